//! The picture, which libwebp decodes.
//!
//! `image-webp` finds what is in the file: the size, metadata, how many frames.

use std::io::Cursor;

use gabion_blocks::{Buffer, Pool, Request};
use image_webp::{DecodingError, WebPDecoder};

use super::chunks::{first_frame, is_cut_off, lossless, of_file};
use super::groups;
use crate::assembly::Assembly;
use crate::decode::{Decode, Header};
use crate::error::{ImageError, Result};
use crate::format::Format;
use crate::libwebp::{self, Found};
use crate::limits::{Limits, pixel_bytes, room_beside};
use crate::metadata::{Metadata, exif_block};
use crate::mode::Mode;

pub struct WebP<'a> {
    file: &'a [u8],
    limits: Limits,
    header: Header,
    frames: Option<u32>,
    part: Part<'a>,
}

/// What is decoded: a still picture, or the first frame of an animation.
struct Part<'a> {
    /// The file, or the chunks of the frame.
    bytes: &'a [u8],
    chunks: &'a [u8],
    found: Found,
    /// In which mode it is decoded.
    mode: Mode,
    /// Where the frame lies on its canvas. `None` for a still picture.
    place: Option<(u32, u32)>,
}

/// Bytes that libwebp takes for each column, at most: the coefficients of a row of macroblocks, their samples with
/// those that filters still change, and a row of planes; or some rows of lossless pixels.
const COLUMN: u64 = 128;

fn mode(alpha: bool) -> Mode {
    if alpha { Mode::RGBA } else { Mode::RGB }
}

impl<'a> Part<'a> {
    fn still(file: &'a [u8], size: (u32, u32), mode: Mode) -> Result<Self> {
        let found = found(file, file, size)?;
        Ok(Self { bytes: file, chunks: of_file(file), found, mode, place: None })
    }

    fn first_frame(file: &'a [u8], canvas: (u32, u32)) -> Result<Self> {
        let frame = first_frame(file).ok_or_else(|| damaged(file))?;
        if frame.left + frame.width > canvas.0 || frame.top + frame.height > canvas.1 {
            return Err(ImageError::corrupt(Format::WebP, "its first frame does not lie on its canvas"));
        }
        let found = found(file, frame.chunks, (frame.width, frame.height))?;
        let place = Some((frame.left, frame.top));
        Ok(Self { bytes: frame.chunks, chunks: frame.chunks, found, mode: mode(found.alpha), place })
    }

    fn pixel_bytes(&self) -> u64 {
        pixel_bytes(self.mode, self.found.size.0, self.found.size.1)
    }

    /// Bytes that libwebp takes beside the pixels that it gives, at most, but for [`groups`](Self::groups): alpha,
    /// which comes as pixels of four channels; or such pixels and what predicts them.
    fn beside(&self) -> u64 {
        let (width, height) = self.found.size;
        let each = match (self.found.lossless, self.found.alpha) {
            (true, _) => 6,
            (false, true) => 8,
            (false, false) => 0,
        };
        let pixels = u64::from(width.next_multiple_of(16)) * u64::from(height.next_multiple_of(16));
        pixels.saturating_mul(each).saturating_add(u64::from(width) * COLUMN)
    }

    /// Bytes that libwebp takes for groups of codes.
    fn groups(&self) -> u64 {
        lossless(self.chunks).and_then(|pixels| groups::room(pixels, self.found.size)).unwrap_or(0)
    }

    fn decode(&self, out: &mut [u8]) -> bool {
        libwebp::decode(self.bytes, self.found.size, self.mode.has_alpha(), out)
    }
}

/// What libwebp finds in `bytes`, which is to be of this size: otherwise it might be larger than the limits allow.
fn found(file: &[u8], bytes: &[u8], size: (u32, u32)) -> Result<Found> {
    match libwebp::found(bytes) {
        Some(found) if found.size == size => Ok(found),
        Some(_) => Err(ImageError::corrupt(Format::WebP, "its picture has another size than it says")),
        None => Err(damaged(file)),
    }
}

fn damaged(file: &[u8]) -> ImageError {
    if is_cut_off(file) {
        return ImageError::truncated(Format::WebP);
    }
    ImageError::corrupt(Format::WebP, "its picture is damaged")
}

fn fault(error: DecodingError) -> ImageError {
    ImageError::corrupt(Format::WebP, error)
}

impl<'a> WebP<'a> {
    pub fn begin(bytes: &'a [u8], limits: &Limits) -> Result<Self> {
        let mut decoder = WebPDecoder::new(Cursor::new(bytes)).map_err(fault)?;
        let size = decoder.dimensions();
        limits.check_size(size.0, size.1)?;
        let mode = mode(decoder.has_alpha());
        let animated = decoder.is_animated();
        let part = if animated { Part::first_frame(bytes, size)? } else { Part::still(bytes, size, mode)? };
        limits.check_bytes(pixel_bytes(mode, size.0, size.1).saturating_add(part.beside()))?;
        // Metadata are stored as they are, so they are no longer than the file, whatever they claim.
        decoder.set_memory_limit(bytes.len());
        let exif = decoder.exif_metadata().map_err(fault)?.map(|stored| exif_block(&stored).to_vec());
        let metadata = Metadata { exif, icc: decoder.icc_profile().map_err(fault)? };
        let frames = Some(if animated { decoder.num_frames() } else { 1 }).filter(|frames| *frames > 0);
        let header = Header::of_pixels(Format::WebP, size, mode, metadata);
        Ok(Self { file: bytes, limits: *limits, header, frames, part })
    }

    /// The rows of the canvas, of which the first frame covers a part; the rest is transparent, or black.
    fn canvas(&self, assembly: &mut Assembly, frame: &[u8], (left, top): (u32, u32)) -> Result<()> {
        let (width, height) = self.part.found.size;
        let (has, held) = (self.part.mode.channels(), self.header.layers.mode().channels());
        for y in 0..self.header.height {
            assembly.push_row_with(0, |out| {
                out.fill(0);
                if (top..top + height).contains(&y) {
                    let row = &frame[(y - top) as usize * width as usize * has..][..width as usize * has];
                    for (pixel, out) in row.chunks_exact(has).zip(out.chunks_exact_mut(held).skip(left as usize)) {
                        out[..3].copy_from_slice(&pixel[..3]);
                        if let Some(alpha) = out.get_mut(3) {
                            *alpha = pixel.get(3).copied().unwrap_or(255);
                        }
                    }
                }
                Ok(())
            })?;
        }
        Ok(())
    }
}

impl Decode for WebP<'_> {
    fn header(&self) -> &Header {
        &self.header
    }

    fn frames(&self) -> Option<u32> {
        self.frames
    }

    /// The picture. As long as the library takes something beside it, which `begin` has counted, nothing of the new
    /// image is touched.
    fn beside(&self) -> u64 {
        self.part.pixel_bytes()
    }

    /// It predicts pixels once all of them are there, and gives those of lossy pictures in the end: of a part, nothing
    /// is as it is to be.
    fn rows(&mut self, pool: &Pool, assembly: &mut Assembly, _partial: bool) -> Result<()> {
        let part = &self.part;
        let beside = part.beside().saturating_add(part.groups());
        self.limits.check_bytes(part.pixel_bytes().saturating_add(beside))?;
        let room = room_beside(pool, beside)?;
        let result = |decoded: bool| if decoded { Ok(()) } else { Err(damaged(self.file)) };
        if part.place.is_none()
            && let Some(decoded) = assembly.push_whole(|whole| part.decode(whole))
        {
            return result(decoded);
        }
        // Of fresh memory, which is zero, a file that gives up early touches little.
        let mut whole: Buffer = pool.rent(&Request::new(part.pixel_bytes() as usize).clean())?;
        result(part.decode(whole.as_mut_slice()))?;
        drop(room);
        if let Some(place) = part.place {
            return self.canvas(assembly, whole.as_slice(), place);
        }
        let row_bytes = self.header.width as usize * part.mode.channels();
        whole.as_slice().chunks_exact(row_bytes).try_for_each(|row| assembly.push_row(0, row))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::webp::groups::tests::pixels_of_groups;
    use crate::encode::SaveOptions;
    use crate::error::LimitKind;
    use crate::file::OpenOptions;
    use crate::image::Image;

    fn pixels(file: &[u8]) -> Result<Vec<u8>> {
        Image::decode(Pool::global(), file, &OpenOptions::default())?.to_bytes()
    }

    /// The same, by the other library.
    fn others(file: &[u8]) -> std::result::Result<Vec<u8>, DecodingError> {
        let mut decoder = WebPDecoder::new(Cursor::new(file))?;
        let mut pixels = vec![0; decoder.output_buffer_size().unwrap()];
        decoder.read_image(&mut pixels).map(|()| pixels)
    }

    fn saved(mode: Mode, (width, height): (u32, u32), (lossless, quality): (bool, u8), metadata: &Metadata) -> Vec<u8> {
        let mut image = Image::blank(Pool::global(), mode, width, height).unwrap();
        for (y, row) in image.rows_mut().enumerate() {
            row.iter_mut().enumerate().for_each(|(x, byte)| *byte = (x * 7 + y * 31 + x * y) as u8);
        }
        *image.metadata_mut() = metadata.clone();
        let mut file = Vec::new();
        image.encode(Format::WebP, &SaveOptions { quality, lossless, ..SaveOptions::default() }, &mut file).unwrap();
        file
    }

    #[test]
    fn both_libraries_see_the_same_picture() {
        let told = Metadata { exif: Some(vec![7; 9]), icc: Some(vec![8; 300]) };
        for size in [(1, 1), (2, 3), (15, 17), (16, 16), (33, 1), (1, 50), (130, 71)] {
            for mode in [Mode::RGB, Mode::RGBA] {
                for (quality, metadata) in [(1, &told), (80, &Metadata::default()), (100, &told)] {
                    for lossless in [false, true] {
                        let file = saved(mode, size, (lossless, quality), metadata);
                        assert!(pixels(&file).unwrap() == others(&file).unwrap(), "{mode} {size:?} {quality}");
                    }
                }
            }
        }
    }

    /// Which is not decoded into the image itself.
    #[test]
    fn both_libraries_see_the_same_picture_in_several_parts() {
        let size = (1250, 1130);
        assert!(!Image::blank(Pool::global(), Mode::RGB, size.0, size.1).unwrap().is_contiguous());
        for lossless in [false, true] {
            let file = saved(Mode::RGB, size, (lossless, 20), &Metadata::default());
            assert!(pixels(&file).unwrap() == others(&file).unwrap());
        }
    }

    #[test]
    fn what_is_cut_off_is_refused() {
        for (mode, lossless) in [(Mode::RGB, false), (Mode::RGBA, false), (Mode::RGB, true), (Mode::RGBA, true)] {
            let file = saved(mode, (60, 40), (lossless, 80), &Metadata::default());
            for length in 0..file.len() {
                let refused = pixels(&file[..length]).unwrap_err();
                assert!(length < 16 || matches!(refused, ImageError::Corrupt { .. }), "{length}: {refused}");
            }
        }
    }

    /// A file of chunks.
    fn file_of(chunks: &[(&[u8; 4], Vec<u8>)]) -> Vec<u8> {
        let mut body = b"WEBP".to_vec();
        for (name, content) in chunks {
            body.extend([&name[..], &(content.len() as u32).to_le_bytes(), content].concat());
            body.resize(body.len().next_multiple_of(2), 0);
        }
        [&b"RIFF"[..], &(body.len() as u32).to_le_bytes(), &body].concat()
    }

    fn three(number: u32) -> [u8; 3] {
        let [low, middle, high, _] = number.to_le_bytes();
        [low, middle, high]
    }

    /// The begin of a file that is more than one chunk.
    fn extended(flags: u8, (width, height): (u32, u32)) -> (&'static [u8; 4], Vec<u8>) {
        (b"VP8X", [&[flags, 0, 0, 0][..], &three(width - 1), &three(height - 1)].concat())
    }

    /// An animation of one frame.
    fn animation(alpha: bool, canvas: (u32, u32), place: (u32, u32), size: (u32, u32), chunks: &[u8]) -> Vec<u8> {
        let place = [place.0 / 2, place.1 / 2, size.0 - 1, size.1 - 1, 9].map(three);
        let frame = [place.as_flattened(), &[0], chunks].concat();
        file_of(&[extended(2 | u8::from(alpha) << 4, canvas), (b"ANIM", vec![0; 6]), (b"ANMF", frame)])
    }

    /// Its chunks without what the file begins with, if it is of a single one, or of alpha and the rest.
    fn chunks(mode: Mode, size: (u32, u32), how: (bool, u8)) -> Vec<u8> {
        let file = saved(mode, size, how, &Metadata::default());
        let chunks = of_file(&file);
        if chunks.starts_with(b"VP8X") { chunks[18..].to_vec() } else { chunks.to_vec() }
    }

    #[test]
    fn the_first_frame_lies_on_its_canvas() {
        for (mode, lossless) in [(Mode::RGB, false), (Mode::RGBA, false), (Mode::RGB, true), (Mode::RGBA, true)] {
            let (size, how) = ((7, 5), (lossless, 90));
            let alone = Image::decode(
                Pool::global(),
                &saved(mode, size, how, &Metadata::default()),
                &OpenOptions { mode: Some(Mode::RGBA), ..OpenOptions::default() },
            );
            let alone = alone.unwrap();
            let chunks = chunks(mode, size, how);
            for (alpha, canvas, place) in [(true, (7, 5), (0, 0)), (true, (12, 11), (4, 6)), (false, (12, 11), (2, 0))]
            {
                let file = animation(alpha, canvas, place, size, &chunks);
                let image = Image::decode(Pool::global(), &file, &OpenOptions::default()).unwrap();
                assert_eq!((image.size(), image.mode()), (canvas, super::mode(alpha)));
                let channels = image.mode().channels();
                for (y, row) in (0..).zip(image.rows()) {
                    for (x, pixel) in (0..).zip(row.chunks_exact(channels)) {
                        let inside = x >= place.0 && y >= place.1 && x < place.0 + size.0 && y < place.1 + size.1;
                        let there = || &alone.row(y - place.1).unwrap()[4 * (x - place.0) as usize..][..channels];
                        let wanted = if inside { there() } else { &[0; 4][..channels] };
                        assert_eq!(pixel, wanted, "{mode} {lossless} {alpha} {x} {y}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_picture_of_another_size_than_it_says_is_refused_by_its_header() {
        for (mode, lossless) in [(Mode::RGB, false), (Mode::RGBA, false), (Mode::RGB, true), (Mode::RGBA, true)] {
            let (size, how) = ((40, 30), (lossless, 80));
            let chunks = chunks(mode, size, how);
            let begun = |file: &[u8]| WebP::begin(file, &Limits::default()).map(drop);
            for said in [(1, 1), (30, 40), (40, 31), (41, 30)] {
                let mut file = file_of(&[extended(0x10, said)]);
                file.extend(&chunks);
                let length = file.len() as u32 - 8;
                file[4..8].copy_from_slice(&length.to_le_bytes());
                let frame = animation(true, (50, 50), (2, 2), said, &chunks);
                for file in [file, frame] {
                    let refused = begun(&file).unwrap_err();
                    assert!(matches!(refused, ImageError::Corrupt { .. }), "{mode} {said:?}: {refused}");
                }
            }
            begun(&animation(true, (50, 50), (2, 2), size, &chunks)).unwrap();
            assert!(begun(&animation(true, (50, 50), (12, 2), size, &chunks)).is_err(), "beyond the canvas");
        }
    }

    #[test]
    fn room_for_groups_counts() {
        let every: Vec<u32> = (0..1 << 16).collect();
        let opened = |file: &[u8], max_bytes| {
            let limits = Limits { max_bytes, ..Limits::default() };
            Image::decode(Pool::global(), file, &OpenOptions { limits, ..OpenOptions::default() })
        };
        let file = file_of(&[(b"VP8L", pixels_of_groups((1024, 1024), &every))]);
        let refused = opened(&file, 400 << 20).unwrap_err();
        assert!(
            matches!(
                refused,
                ImageError::Limit { kind: LimitKind::Bytes { at_least: false }, asked: 800_000_000.., .. }
            ),
            "{refused}"
        );
        // Groups that no pixel is read by take nothing.
        let file = file_of(&[(b"VP8L", pixels_of_groups((1, 1), &[0xFFFF]))]);
        assert_eq!(opened(&file, 1 << 20).unwrap().size(), (1, 1));
    }
}
