//! Windows bitmaps, as a whole.

use std::io::Cursor;

use gabion_blocks::Pool;
use image::codecs::bmp::BmpDecoder;
use image::{ColorType, ImageDecoder, ImageError as Fault};

use super::whole::{Halfway, rows_of_whole};
use super::{Decode, Header};
use crate::assembly::Assembly;
use crate::error::{ImageError, Result};
use crate::format::Format;
use crate::limits::{Limits, pixel_bytes};
use crate::metadata::Metadata;
use crate::mode::Mode;

pub struct Bmp<'a> {
    decoder: Option<BmpDecoder<Cursor<&'a [u8]>>>,
    header: Header,
}

impl<'a> Bmp<'a> {
    pub fn begin(bytes: &'a [u8], limits: &Limits) -> Result<Self> {
        let decoder = BmpDecoder::new(Cursor::new(bytes)).map_err(fault)?;
        let size = decoder.dimensions();
        limits.check_size(size.0, size.1)?;
        // Two bytes are a run of 255 pixels at most, so what is shorter has been cut off, or is a bomb.
        if u64::from(size.0) * u64::from(size.1) / 128 > bytes.len() as u64 {
            return Err(ImageError::truncated(Format::Bmp));
        }
        let mode = match decoder.color_type() {
            ColorType::L8 => Mode::L,
            ColorType::Rgb8 => Mode::RGB,
            ColorType::Rgba8 => Mode::RGBA,
            other => return Err(ImageError::unsupported(format!("BMP with pixels of {other:?} cannot be read"))),
        };
        limits.check_bytes(pixel_bytes(mode, size.0, size.1))?;
        let header = Header::of_pixels(Format::Bmp, size, mode, Metadata::default());
        Ok(Self { decoder: Some(decoder), header })
    }
}

fn fault(error: Fault) -> ImageError {
    match error {
        Fault::Unsupported(error) => ImageError::unsupported(error),
        error => ImageError::corrupt(Format::Bmp, error),
    }
}

impl Decode for Bmp<'_> {
    fn header(&self) -> &Header {
        &self.header
    }

    fn rows(&mut self, pool: &Pool, assembly: &mut Assembly) -> Result<()> {
        let row_bytes = self.header.width as usize * self.header.layers.mode().channels();
        let Some(decoder) = self.decoder.take() else {
            return Err(ImageError::setting("rows are given once"));
        };
        rows_of_whole(pool, assembly, row_bytes, self.header.height as usize, Halfway::Pixels, |whole| {
            decoder.read_image(whole).map_err(fault)
        })
    }
}
