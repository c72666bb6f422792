//! The first picture of a TIFF file.

use std::io::Cursor;

use ::tiff::decoder::{Decoder, DecodingResult, Limits as Bound};
use ::tiff::tags::Tag;
use ::tiff::{ColorType, TiffError};
use gabion_blocks::Pool;

use super::{Decode, Header};
use crate::assembly::Assembly;
use crate::error::{ImageError, Result};
use crate::format::Format;
use crate::limits::{Limits, pixel_bytes};
use crate::metadata::{Metadata, Orientation};
use crate::mode::Mode;

pub struct Tiff<'a> {
    decoder: Decoder<Cursor<&'a [u8]>>,
    header: Header,
    color: ColorType,
}

impl<'a> Tiff<'a> {
    pub fn begin(bytes: &'a [u8], limits: &Limits) -> Result<Self> {
        let mut decoder = Decoder::new(Cursor::new(bytes)).map_err(fault)?;
        let size = decoder.dimensions().map_err(fault)?;
        limits.check_size(size.0, size.1)?;
        let color = decoder.colortype().map_err(fault)?;
        let mode = match color {
            ColorType::Gray(8 | 16) => Mode::L,
            ColorType::GrayA(8 | 16) | ColorType::Multiband { bit_depth: 8 | 16, num_samples: 2 } => Mode::LA,
            ColorType::RGB(8 | 16) => Mode::RGB,
            ColorType::RGBA(8 | 16) => Mode::RGBA,
            ColorType::CMYK(8 | 16) => Mode::CMYK,
            other => return Err(ImageError::unsupported(format!("TIFF with pixels of {other:?} cannot be read"))),
        };
        limits.check_bytes(pixel_bytes(mode, size.0, size.1).saturating_mul(u64::from(color.bit_depth()) / 8))?;
        let mut bound = Bound::default();
        let bytes = usize::try_from(limits.max_bytes).unwrap_or(usize::MAX);
        (bound.decoding_buffer_size, bound.intermediate_buffer_size) = (bytes, bytes);
        let mut decoder = decoder.with_limits(bound);
        let icc = decoder.find_tag(Tag::IccProfile).ok().flatten().and_then(|tag| tag.into_u8_vec().ok());
        let orientation = decoder.find_tag_unsigned::<u16>(Tag::Orientation).ok().flatten();
        let mut header = Header::of_pixels(Format::Tiff, size, mode, Metadata { exif: None, icc });
        header.orientation = Orientation::of_value(orientation.unwrap_or(1));
        Ok(Self { decoder, header, color })
    }
}

fn fault(error: TiffError) -> ImageError {
    match error {
        TiffError::UnsupportedError(error) => ImageError::unsupported(error),
        error => ImageError::corrupt(Format::Tiff, error),
    }
}

impl Decode for Tiff<'_> {
    fn header(&self) -> &Header {
        &self.header
    }

    fn rows(&mut self, _pool: &Pool, assembly: &mut Assembly) -> Result<()> {
        let row = self.header.width as usize * usize::from(self.color.num_samples());
        match self.decoder.read_image().map_err(fault)? {
            DecodingResult::U8(samples) => samples.chunks_exact(row).try_for_each(|row| assembly.take_row(0, row)),
            DecodingResult::U16(samples) => samples.chunks_exact(row).try_for_each(|row| {
                assembly.take(0, |out| {
                    out.iter_mut().zip(row).for_each(|(out, &sample)| *out = (sample >> 8) as u8);
                    Ok(())
                })
            }),
            _ => Err(ImageError::unsupported("TIFF with samples that are no whole numbers cannot be read")),
        }
    }
}
