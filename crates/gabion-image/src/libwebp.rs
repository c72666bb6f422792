//! libwebp, as far as it is used: the pixels of a picture, and a file of pixels.
//!
//! All that is handed to C are numbers, slices with their lengths, and a function that cannot unwind. The library keeps
//! none of it. Any number of threads may call it at a time: what they share it makes at the first call of a kind, and
//! [`READY`] sees to it that one thread alone does that.

#![allow(unsafe_code)] // The one place that calls C by itself; see the proofs below.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::slice;

use gabion_blocks::os::ForkOnce;
use libwebp_sys::{
    VP8StatusCode, WebPBitstreamFeatures, WebPConfig, WebPDecodeRGBAInto, WebPDecodeRGBInto, WebPEncode,
    WebPEncodingError, WebPGetFeatures, WebPPicture, WebPPictureFree, WebPPictureImportRGB, WebPPictureImportRGBA,
};

/// Whether the first call of each kind is over.
static READY: ForkOnce = ForkOnce::new();

/// Makes a first call of each kind, in which the library chooses functions for the processor and fills tables. Built
/// without threads it takes no lock for that; see `docs/decisions.md`.
fn call_first() {
    // Large and uneven enough for all that is chosen, alpha included; what comes of it is of no interest.
    let (size, mut pixels) = ((16, 16), [0; 16 * 16 * 4]);
    (0..).zip(&mut pixels).for_each(|(at, byte)| *byte = (at * at % 251) as u8);
    let lossy = encoded(&pixels, size, true, (false, 75.0));
    let lossless = encoded(&pixels, size, true, (true, 0.0));
    let decoded = [lossy, lossless].map(|file| file.map(|file| decoded(&file, size, true, &mut pixels)));
    debug_assert_eq!(decoded, [Ok(true), Ok(true)]);
}

/// What [`WebPBitstreamFeatures`] says of lossless pictures.
const LOSSLESS: c_int = 2;

/// What a file has, or the chunks of a picture alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    pub size: (u32, u32),
    pub alpha: bool,
    pub lossless: bool,
}

/// What is in `bytes`, if they begin as a still picture does. One whose size is not that of its file is none. Nothing
/// is chosen or filled for that, so it may be called before the library is ready.
pub fn found(bytes: &[u8]) -> Option<Found> {
    let mut found = MaybeUninit::<WebPBitstreamFeatures>::uninit();
    // SAFETY: it reads no more of the bytes than their length, and writes to what has the size of the features, all of
    // which it sets before it says that all is well.
    let found = unsafe {
        match WebPGetFeatures(bytes.as_ptr(), bytes.len(), found.as_mut_ptr()) {
            VP8StatusCode::VP8_STATUS_OK => found.assume_init(),
            _ => return None,
        }
    };
    let [width, height] = [found.width, found.height].map(|side| u32::try_from(side).ok());
    let (size, alpha) = ((width?, height?), found.has_alpha != 0);
    (found.has_animation == 0).then_some(Found { size, alpha, lossless: found.format == LOSSLESS })
}

/// The size as C takes it, with the bytes of a row, where `bytes` are the pixels of such a picture.
fn sides((width, height): (u32, u32), alpha: bool, bytes: usize) -> Option<(c_int, c_int, c_int)> {
    let row_bytes = width.checked_mul(if alpha { 4 } else { 3 })?;
    let fits = u64::from(row_bytes) * u64::from(height) == bytes as u64;
    let [width, height, row_bytes] = [width, height, row_bytes].map(|side| c_int::try_from(side).ok());
    fits.then_some((width?, height?, row_bytes?))
}

/// Decodes a still picture of this size into `out`, as RGB or RGBA, which a lossy one without alpha is not. False if it
/// is no such picture, or not all of it is there: then `out` holds anything.
pub fn decode(file: &[u8], size: (u32, u32), alpha: bool, out: &mut [u8]) -> bool {
    READY.call(call_first);
    decoded(file, size, alpha, out)
}

/// As [`decode`], once the library is ready.
fn decoded(file: &[u8], size: (u32, u32), alpha: bool, out: &mut [u8]) -> bool {
    let Some((_, _, row_bytes)) = sides(size, alpha, out.len()) else { return false };
    if !found(file).is_some_and(|found| found.size == size && (found.alpha || found.lossless || !alpha)) {
        return false;
    }
    let decode = if alpha { WebPDecodeRGBAInto } else { WebPDecodeRGBInto };
    // SAFETY: it reads no more of the file than its length. Before it writes it compares what it decodes, by the size
    // that it finds itself, with the length of `out` and the bytes of a row. Nobody else reads or writes `out`.
    let made = unsafe { decode(file.as_ptr(), file.len(), out.as_mut_ptr(), out.len(), row_bytes) };
    !made.is_null()
}

/// A picture that is given to the encoder, with the library's memory.
struct Picture(WebPPicture);

impl Drop for Picture {
    fn drop(&mut self) {
        // SAFETY: the library made the picture, so what is freed here is its own, or null.
        unsafe { WebPPictureFree(&raw mut self.0) }
    }
}

/// Makes a file of `pixels`, which are RGB, or RGBA, without gaps: lossless or not, of this quality, which for a
/// lossless picture is the effort.
///
/// # Errors
/// The library's name for what is wrong.
pub fn encode(pixels: &[u8], size: (u32, u32), alpha: bool, how: (bool, f32)) -> Result<Vec<u8>, String> {
    READY.call(call_first);
    encoded(pixels, size, alpha, how)
}

/// As [`encode`], once the library is ready.
fn encoded(pixels: &[u8], size: (u32, u32), alpha: bool, (lossless, quality): (bool, f32)) -> Result<Vec<u8>, String> {
    let text = |error: WebPEncodingError| format!("{error:?}");
    let Some((width, height, row_bytes)) = sides(size, alpha, pixels.len()) else {
        return Err(text(WebPEncodingError::VP8_ENC_ERROR_BAD_DIMENSION));
    };
    let (Ok(mut config), Ok(picture)) = (WebPConfig::new(), WebPPicture::new()) else {
        return Err("no settings".to_owned());
    };
    config.quality = quality;
    config.lossless = lossless.into();
    // Colours that cannot be seen are kept, too: lossless means every byte.
    config.exact = lossless.into();
    let mut picture = Picture(picture);
    // Else the pixels become planes at once, without a copy between.
    picture.0.use_argb = lossless.into();
    (picture.0.width, picture.0.height) = (width, height);
    let import = if alpha { WebPPictureImportRGBA } else { WebPPictureImportRGB };
    let mut file = Vec::<u8>::new();
    picture.0.writer = Some(append);
    picture.0.custom_ptr = (&raw mut file).cast();
    // SAFETY: it reads `height` rows, which are all of `pixels`, and makes memory of its own for them.
    let imported = unsafe { import(&raw mut picture.0, pixels.as_ptr(), row_bytes) } != 0;
    // SAFETY: settings and picture were made by the library, and what was set since is of the kind that it takes. It
    // calls `append` only during this call, in which nobody else looks at `file`.
    let done = imported && unsafe { WebPEncode(&raw const config, &raw mut picture.0) } != 0;
    if done { Ok(file) } else { Err(text(picture.0.error_code)) }
}

/// Puts a part of a file behind what is there. Zero, which is an error, if there is no memory for it: an allocation
/// that is given up ends the process, and a panic has no way through C.
///
/// # Safety
/// `custom_ptr` of the picture points to a vector that nobody else looks at, and there are `length` bytes.
unsafe extern "C" fn append(bytes: *const u8, length: usize, picture: *const WebPPicture) -> c_int {
    if length == 0 {
        return 1;
    }
    // SAFETY: by this function's own contract.
    let (file, bytes) =
        unsafe { (&mut *(*picture).custom_ptr.cast::<Vec<u8>>(), slice::from_raw_parts(bytes, length)) };
    if file.try_reserve(length).is_err() {
        return 0;
    }
    file.extend_from_slice(bytes);
    1
}

#[cfg(test)]
mod tests {
    use libwebp_sys::{WebPGetDecoderVersion, WebPGetEncoderVersion};

    use super::*;

    const LOSSY: (bool, f32) = (false, 80.0);

    fn pixels((width, height): (u32, u32), alpha: bool) -> Vec<u8> {
        let bytes = width * height * if alpha { 4 } else { 3 };
        (0..bytes).map(|at| (at * 7 + at / width * 31) as u8).collect()
    }

    /// And none of before, whose faults are known.
    #[test]
    fn the_library_is_the_one_that_is_built_in() {
        // SAFETY: they take nothing and tell a number.
        let versions = unsafe { [WebPGetDecoderVersion(), WebPGetEncoderVersion()] };
        assert!(versions.iter().all(|version| *version >= 0x01_06_00), "{versions:x?}");
    }

    /// So memory may be used that is not clean.
    #[test]
    fn every_byte_of_the_target_is_written() {
        for size in [(1, 1), (2, 3), (16, 16), (17, 33), (130, 71)] {
            for alpha in [false, true] {
                let pixels = pixels(size, alpha);
                for how in [LOSSY, (true, 20.0)] {
                    let file = encode(&pixels, size, alpha, how).unwrap();
                    let [zeros, ones] = [0, 255].map(|before| {
                        let mut out = vec![before; pixels.len()];
                        assert!(decode(&file, size, alpha, &mut out), "{size:?} {alpha}");
                        out
                    });
                    assert!(zeros == ones, "{size:?} {alpha}");
                }
            }
        }
    }

    #[test]
    fn what_is_not_the_picture_that_was_told_is_refused() {
        let (size, length) = ((40, 30), 40 * 30 * 3);
        let file = encode(&pixels(size, false), size, false, LOSSY).unwrap();
        let taken = |file: &[u8], size, alpha, length| decode(file, size, alpha, &mut vec![0; length]);
        assert!(taken(&file, size, false, length));
        assert!(!taken(&file, (30, 40), false, length), "another size");
        assert!(!taken(&file, (40, 15), false, length / 2), "a part");
        assert!(!taken(&file, size, true, length / 3 * 4), "alpha");
        for other in [0, length - 1, length + 1] {
            assert!(!taken(&file, size, false, other), "{other} bytes");
        }
        assert!(!taken(&file, (u32::MAX, u32::MAX), false, length) && !taken(&[], size, false, length));
        assert!(!taken(&file[..file.len() - 3], size, false, length), "cut off");
        let lossless = encode(&pixels(size, false), size, false, (true, 75.0)).unwrap();
        assert!(taken(&lossless, size, false, length) && taken(&lossless, size, true, length / 3 * 4));
        assert!(!taken(&lossless, (30, 40), false, length), "another size");
        assert!(!taken(&lossless[..lossless.len() - 3], size, false, length), "cut off");
    }

    #[test]
    fn what_cannot_be_encoded_is_told_by_its_name() {
        let fault = |size, bytes| encode(&vec![0; bytes], size, false, LOSSY).unwrap_err();
        for (size, bytes) in [((16_384, 1), 16_384 * 3), ((1, 16_384), 16_384 * 3), ((4, 4), 47), ((0, 4), 0)] {
            assert_eq!(fault(size, bytes), "VP8_ENC_ERROR_BAD_DIMENSION", "{size:?}");
        }
        let error = encode(&[0; 48], (4, 4), false, (false, 101.0)).unwrap_err();
        assert_eq!(error, "VP8_ENC_ERROR_INVALID_CONFIGURATION");
    }
}
