//! The first picture of a GIF file.

use std::io::Cursor;

use ::gif::{ColorOutput, DecodeOptions, Decoder, DecodingError, MemoryLimit};
use gabion_blocks::{Pool, Request};

use super::{Decode, Header};
use crate::assembly::{Assembly, GREY};
use crate::error::{ImageError, Result};
use crate::format::Format;
use crate::limits::{Limits, pixel_bytes};
use crate::metadata::Metadata;
use crate::mode::Mode;

pub struct Gif<'a> {
    decoder: Decoder<Cursor<&'a [u8]>>,
    header: Header,
    place: Place,
}

/// Where the picture lies on its canvas, in pixels.
struct Place {
    left: usize,
    top: u32,
    width: usize,
    height: u32,
}

impl<'a> Gif<'a> {
    pub fn begin(bytes: &'a [u8], limits: &Limits) -> Result<Self> {
        let mut options = DecodeOptions::new();
        options.set_color_output(ColorOutput::RGBA);
        let bound = limits.max_bytes.max(1).try_into().unwrap_or(std::num::NonZeroU64::MAX);
        options.set_memory_limit(MemoryLimit::Bytes(bound));
        let mut decoder = options.read_info(Cursor::new(bytes)).map_err(fault)?;
        let size = (decoder.width().into(), decoder.height().into());
        limits.check_size(size.0, size.1)?;
        limits.check_bytes(pixel_bytes(Mode::RGBA, size.0, size.1))?;
        let metadata = Metadata { exif: None, icc: decoder.icc_profile().map(<[u8]>::to_vec) };
        let header = Header::of_pixels(Format::Gif, size, Mode::RGBA, metadata);
        let Some(frame) = decoder.next_frame_info().map_err(fault)? else {
            return Err(ImageError::truncated(Format::Gif));
        };
        // It may claim to be larger than its canvas.
        limits.check_size(frame.width.into(), frame.height.into())?;
        limits.check_bytes(pixel_bytes(Mode::RGBA, frame.width.into(), frame.height.into()))?;
        // A code of twelve bits is 4,096 pixels at most, so what is shorter has been cut off, or is a bomb. Said before
        // there is an image for it: memory that is only asked for may cost a huge page in each block.
        if u64::from(frame.width) * u64::from(frame.height) / 2731 > bytes.len() as u64 {
            return Err(ImageError::truncated(Format::Gif));
        }
        let (left, top) = (usize::from(frame.left), frame.top.into());
        let place = Place { left, top, width: frame.width.into(), height: frame.height.into() };
        Ok(Self { decoder, header, place })
    }
}

fn fault(error: DecodingError) -> ImageError {
    ImageError::corrupt(Format::Gif, error)
}

impl Decode for Gif<'_> {
    fn header(&self) -> &Header {
        &self.header
    }

    /// The picture may cover a part of the canvas; the rest is transparent.
    fn rows(&mut self, pool: &Pool, assembly: &mut Assembly) -> Result<()> {
        let (left, width) = (self.place.left * 4, self.place.width * 4);
        let (top, bottom) = (self.place.top, self.place.top + self.place.height);
        let mut picture = pool.rent(&Request::new(self.decoder.buffer_size()))?;
        picture.as_mut_slice().fill(GREY);
        let done = self.decoder.read_into_buffer(picture.as_mut_slice()).map_err(fault);
        let mut rows = picture.as_slice().chunks_exact(width.max(1));
        for y in 0..self.header.height {
            let row = if (top..bottom).contains(&y) { rows.next() } else { None };
            assembly.take(0, |out| {
                out.fill(0);
                if let (Some(row), Some(out)) = (row, out.get_mut(left..)) {
                    out.iter_mut().zip(row).for_each(|(out, &sample)| *out = sample);
                }
                Ok(())
            })?;
        }
        done
    }
}
