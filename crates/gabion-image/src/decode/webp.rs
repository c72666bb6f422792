//! WebP, as a whole.

use std::io::Cursor;

use gabion_blocks::Pool;
use image_webp::{DecodingError, WebPDecoder};

use super::whole::{Halfway, rows_of_whole};
use super::{Decode, Header};
use crate::assembly::Assembly;
use crate::error::{ImageError, Result};
use crate::format::Format;
use crate::limits::{Limits, pixel_bytes};
use crate::metadata::Metadata;
use crate::mode::Mode;

pub struct WebP<'a> {
    decoder: WebPDecoder<Cursor<&'a [u8]>>,
    header: Header,
}

impl<'a> WebP<'a> {
    pub fn begin(bytes: &'a [u8], limits: &Limits) -> Result<Self> {
        let mut decoder = WebPDecoder::new(Cursor::new(bytes)).map_err(fault)?;
        let size = decoder.dimensions();
        limits.check_size(size.0, size.1)?;
        let mode = if decoder.has_alpha() { Mode::RGBA } else { Mode::RGB };
        limits.check_bytes(pixel_bytes(mode, size.0, size.1))?;
        // Metadata are stored as they are, so they are no longer than the file, whatever they claim.
        decoder.set_memory_limit(bytes.len());
        let metadata =
            Metadata { exif: decoder.exif_metadata().map_err(fault)?, icc: decoder.icc_profile().map_err(fault)? };
        decoder.set_memory_limit(usize::try_from(limits.max_bytes).unwrap_or(usize::MAX));
        Ok(Self { decoder, header: Header::of_pixels(Format::WebP, size, mode, metadata) })
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
        // It predicts pixels once all of them are there, and gives those of lossy pictures in the end.
        rows_of_whole(pool, assembly, row_bytes, self.header.height as usize, Halfway::Nothing, |whole| {
            self.decoder.read_image(whole).map_err(fault)
        })
    }
}
