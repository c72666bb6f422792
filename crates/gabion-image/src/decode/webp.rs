//! WebP, as a whole.
//!
//! Lossy pictures are decoded by libwebp, in half of the time or less. `image-webp` finds what is in the file, decodes
//! lossless pictures and animations, and says what is wrong with a file that libwebp refuses.

use std::io::Cursor;

use gabion_blocks::{Buffer, Pool, Request};
use image_webp::{DecodingError, WebPDecoder};

use super::whole::rows_of_whole;
use super::{Decode, Header};
use crate::assembly::Assembly;
use crate::error::{ImageError, Result};
use crate::format::Format;
use crate::libwebp;
use crate::limits::{Limits, pixel_bytes, room_beside};
use crate::metadata::{Metadata, exif_block};
use crate::mode::Mode;

pub struct WebP<'a> {
    decoder: WebPDecoder<Cursor<&'a [u8]>>,
    header: Header,
    /// What the library takes for itself.
    beside: u64,
    /// The file, if its picture is lossy and the only one.
    lossy: Option<&'a [u8]>,
}

/// Bytes that a library takes for each pixel beside the picture that it gives, at most: planes of whole macroblocks,
/// and alpha, which comes as pixels of four channels; or such pixels and what predicts them.
fn bytes_beside(decoder: &mut WebPDecoder<Cursor<&[u8]>>) -> u64 {
    let still = match (decoder.is_lossy(), decoder.has_alpha()) {
        (true, false) | (false, true) => 2,
        (true, true) => 8,
        (false, false) => 6,
    };
    // The frame and the canvas, both with alpha.
    if decoder.is_animated() { 8 + 8 } else { still }
}

/// Bytes that libwebp takes for each column, at most: the coefficients of a row of macroblocks, their samples with
/// those that filters still change, and a row of planes.
const COLUMN: u64 = 128;

impl<'a> WebP<'a> {
    pub fn begin(bytes: &'a [u8], limits: &Limits) -> Result<Self> {
        let mut decoder = WebPDecoder::new(Cursor::new(bytes)).map_err(fault)?;
        let size = decoder.dimensions();
        limits.check_size(size.0, size.1)?;
        let mode = if decoder.has_alpha() { Mode::RGBA } else { Mode::RGB };
        // The library copies what is compressed.
        let pixels = u64::from(size.0.next_multiple_of(16)) * u64::from(size.1.next_multiple_of(16));
        let beside = pixels.saturating_mul(bytes_beside(&mut decoder)).saturating_add(2 * bytes.len() as u64);
        limits.check_bytes(pixel_bytes(mode, size.0, size.1).saturating_add(beside))?;
        // Metadata are stored as they are, so they are no longer than the file, whatever they claim.
        decoder.set_memory_limit(bytes.len());
        let exif = decoder.exif_metadata().map_err(fault)?.map(|stored| exif_block(&stored).to_vec());
        let metadata = Metadata { exif, icc: decoder.icc_profile().map_err(fault)? };
        decoder.set_memory_limit(usize::try_from(limits.max_bytes).unwrap_or(usize::MAX));
        let lossy = (decoder.is_lossy() && !decoder.is_animated()).then_some(bytes);
        Ok(Self { decoder, header: Header::of_pixels(Format::WebP, size, mode, metadata), beside, lossy })
    }

    /// Has libwebp decode a lossy picture. False when it does not.
    fn lossy_rows(&self, pool: &Pool, assembly: &mut Assembly, row_bytes: usize) -> Result<bool> {
        let Some(file) = self.lossy else { return Ok(false) };
        let Header { width, height, .. } = self.header;
        let alpha = self.header.layers.mode().has_alpha();
        // Of what is counted for the other library it takes what alpha needs.
        let beside = if alpha { self.beside } else { 0 };
        let _room = room_beside(pool, beside.saturating_add(u64::from(width) * COLUMN))?;
        let decode = |whole: &mut [u8]| libwebp::decode(file, (width, height), alpha, whole);
        if let Some(decoded) = assembly.take_all(decode) {
            return Ok(decoded);
        }
        let mut whole: Buffer = pool.rent(&Request::new(row_bytes * height as usize))?;
        if !decode(whole.as_mut_slice()) {
            return Ok(false);
        }
        whole.as_slice().chunks_exact(row_bytes).try_for_each(|row| assembly.take_row(0, row))?;
        Ok(true)
    }
}

fn fault(error: DecodingError) -> ImageError {
    ImageError::corrupt(Format::WebP, error)
}

impl Decode for WebP<'_> {
    fn header(&self) -> &Header {
        &self.header
    }

    fn frames(&self) -> Option<u32> {
        Some(if self.decoder.is_animated() { self.decoder.num_frames() } else { 1 }).filter(|frames| *frames > 0)
    }

    /// The picture. As long as the library takes something beside it, which `begin` has counted, nothing of the new
    /// image is touched.
    fn beside(&self) -> u64 {
        pixel_bytes(self.header.layers.mode(), self.header.width, self.header.height)
    }

    fn rows(&mut self, pool: &Pool, assembly: &mut Assembly, _partial: bool) -> Result<()> {
        let row_bytes = self.header.width as usize * self.header.layers.mode().channels();
        if self.lossy_rows(pool, assembly, row_bytes)? {
            return Ok(());
        }
        let _room = room_beside(pool, self.beside)?;
        // It predicts pixels once all of them are there, and gives those of lossy pictures in the end: of a part,
        // nothing is as it is to be.
        rows_of_whole(pool, assembly, (row_bytes, self.header.height as usize), false, |whole| {
            self.decoder.read_image(whole).map_err(fault)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::SaveOptions;
    use crate::image::Image;
    use crate::resample::Resampling;

    /// The pixels of a lossy picture, by libwebp first or by the other library alone.
    fn pixels(file: &[u8], libwebp: bool) -> Result<Vec<u8>> {
        let mut webp = WebP::begin(file, &Limits::default())?;
        assert!(webp.lossy.is_some());
        webp.lossy = webp.lossy.filter(|_| libwebp);
        let (size, mode) = ((webp.header.width, webp.header.height), webp.header.layers.mode());
        let pool = Pool::global();
        let mut assembly = Assembly::new(pool, &webp.header.layers, size, mode, Resampling::default())?;
        webp.rows(pool, &mut assembly, false)?;
        assembly.into_image().to_bytes()
    }

    fn saved(mode: Mode, (width, height): (u32, u32), quality: u8, metadata: &Metadata) -> Vec<u8> {
        let mut image = Image::blank(Pool::global(), mode, width, height).unwrap();
        for (y, row) in image.rows_mut().enumerate() {
            row.iter_mut().enumerate().for_each(|(x, byte)| *byte = (x * 7 + y * 31 + x * y) as u8);
        }
        *image.metadata_mut() = metadata.clone();
        let mut file = Vec::new();
        image.encode(Format::WebP, &SaveOptions { quality, ..SaveOptions::default() }, &mut file).unwrap();
        file
    }

    fn decodes(file: &[u8], size: (u32, u32), mode: Mode) -> bool {
        let mut out = vec![0; pixel_bytes(mode, size.0, size.1) as usize];
        libwebp::decode(file, size, mode.has_alpha(), &mut out)
    }

    #[test]
    fn both_libraries_see_the_same_picture() {
        let told = Metadata { exif: Some(vec![7; 9]), icc: Some(vec![8; 300]) };
        for size in [(1, 1), (2, 3), (15, 17), (16, 16), (33, 1), (1, 50), (130, 71)] {
            for mode in [Mode::RGB, Mode::RGBA] {
                for (quality, metadata) in [(1, &told), (80, &Metadata::default()), (100, &told)] {
                    let file = saved(mode, size, quality, metadata);
                    assert!(decodes(&file, size, mode), "{mode} {size:?} {quality}");
                    let (one, other) = (pixels(&file, true).unwrap(), pixels(&file, false).unwrap());
                    assert!(one == other, "{mode} {size:?} {quality}");
                }
            }
        }
    }

    /// Which is not decoded into the image itself.
    #[test]
    fn both_libraries_see_the_same_picture_in_several_parts() {
        let size = (1250, 1130);
        assert!(!Image::blank(Pool::global(), Mode::RGB, size.0, size.1).unwrap().is_contiguous());
        let file = saved(Mode::RGB, size, 20, &Metadata::default());
        assert!(decodes(&file, size, Mode::RGB));
        assert!(pixels(&file, true).unwrap() == pixels(&file, false).unwrap());
    }

    #[test]
    fn what_libwebp_refuses_is_left_to_the_other() {
        let file = saved(Mode::RGB, (60, 40), 80, &Metadata::default());
        let mut refused = 0;
        for length in 30..file.len() {
            let [one, other] = [true, false].map(|libwebp| pixels(&file[..length], libwebp));
            refused += usize::from(one.is_err());
            assert_eq!(one.map_err(|error| error.to_string()), other.map_err(|error| error.to_string()), "{length}");
        }
        assert!(refused > file.len() / 2, "{refused} of {}", file.len());
    }
}
