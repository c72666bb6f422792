//! WebP, as a whole.

use std::io::Cursor;

use gabion_blocks::Pool;
use image_webp::{DecodingError, WebPDecoder};

use super::whole::{Halfway, rows_of_whole};
use super::{Decode, Header};
use crate::assembly::Assembly;
use crate::error::{ImageError, Result};
use crate::format::Format;
use crate::limits::{Limits, pixel_bytes, room_beside};
use crate::metadata::Metadata;
use crate::mode::Mode;

pub struct WebP<'a> {
    decoder: WebPDecoder<Cursor<&'a [u8]>>,
    header: Header,
    /// What the library takes for itself.
    beside: u64,
}

/// Bytes that the library takes for each pixel beside the picture that it gives, at most: planes of whole macroblocks, and alpha,
/// which comes as pixels of four channels; or such pixels and what predicts them.
fn bytes_beside(decoder: &mut WebPDecoder<Cursor<&[u8]>>) -> u64 {
    let still = match (decoder.is_lossy(), decoder.has_alpha()) {
        (true, false) | (false, true) => 2,
        (true, true) => 8,
        (false, false) => 6,
    };
    // The frame and the canvas, both with alpha.
    if decoder.is_animated() { 8 + 8 } else { still }
}

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
        let metadata =
            Metadata { exif: decoder.exif_metadata().map_err(fault)?, icc: decoder.icc_profile().map_err(fault)? };
        decoder.set_memory_limit(usize::try_from(limits.max_bytes).unwrap_or(usize::MAX));
        Ok(Self { decoder, header: Header::of_pixels(Format::WebP, size, mode, metadata), beside })
    }
}

fn fault(error: DecodingError) -> ImageError {
    ImageError::corrupt(Format::WebP, error)
}

impl Decode for WebP<'_> {
    fn header(&self) -> &Header {
        &self.header
    }

    fn rows(&mut self, pool: &Pool, assembly: &mut Assembly) -> Result<()> {
        let row_bytes = self.header.width as usize * self.header.layers.mode().channels();
        let _room = room_beside(pool, self.beside)?;
        // It predicts pixels once all of them are there, and gives those of lossy pictures in the end.
        rows_of_whole(pool, assembly, row_bytes, self.header.height as usize, Halfway::Nothing, |whole| {
            self.decoder.read_image(whole).map_err(fault)
        })
    }
}
