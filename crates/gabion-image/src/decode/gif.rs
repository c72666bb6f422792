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
    interlaced: bool,
}

impl Place {
    /// Where a row of the picture is stored: interlaced ones come in four passes.
    fn stored(&self, y: u32) -> u32 {
        let height = self.height;
        match y % 8 {
            _ if !self.interlaced => y,
            0 => y / 8,
            4 => height.div_ceil(8) + y / 8,
            2 | 6 => height.div_ceil(4) + y / 4,
            _ => height.div_ceil(2) + y / 2,
        }
    }
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
        let (width, height, interlaced) = (frame.width.into(), frame.height.into(), frame.interlaced);
        let place = Place { left, top, width, height, interlaced };
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
        // All rows as they are stored, in one piece. Where the library has to put interlaced rows in their order, it gives
        // up at a row that ends within a code.
        let done = self.decoder.fill_buffer(picture.as_mut_slice()).map_err(fault);
        let done = done.and_then(|whole| if whole { Ok(()) } else { Err(ImageError::truncated(Format::Gif)) });
        for y in 0..self.header.height {
            let inside = (top..bottom).contains(&y).then(|| self.place.stored(y - top) as usize * width);
            let row = inside.and_then(|start| picture.as_slice().get(start..start + width));
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

#[cfg(test)]
mod tests {
    use gabion_blocks::{Settings, system};

    use super::*;
    use crate::file::OpenOptions;
    use crate::image::Image;

    /// The rows of a picture in the order in which an interlaced file has them.
    fn passes(height: usize) -> impl Iterator<Item = usize> {
        [(0, 8), (4, 8), (2, 4), (1, 2)].into_iter().flat_map(move |(first, step)| (first..height).step_by(step))
    }

    fn file(width: usize, height: usize, pixel: impl Fn(usize, usize) -> u8, interlaced: bool) -> Vec<u8> {
        let order: Vec<_> = if interlaced { passes(height).collect() } else { (0..height).collect() };
        let pixels: Vec<u8> =
            order.into_iter().flat_map(|y| (0..width).map(move |x| (x, y))).map(|(x, y)| pixel(x, y)).collect();
        let (width, height) = (width as u16, height as u16);
        let mut frame = ::gif::Frame::from_indexed_pixels(width, height, pixels, None);
        frame.interlaced = interlaced;
        let palette: Vec<u8> = (0..=255).flat_map(|grey| [grey, grey, grey]).collect();
        let mut bytes = Vec::new();
        let mut encoder = ::gif::Encoder::new(&mut bytes, width, height, &palette).unwrap();
        encoder.write_frame(&frame).unwrap();
        drop(encoder);
        bytes
    }

    /// Of one colour most of all: there a code is as long as several rows.
    #[test]
    fn interlaced_pictures_of_all_sizes_are_what_they_are_row_by_row() {
        let pool = Pool::new(system(), Settings::default()).unwrap();
        let open = |bytes: &[u8]| Image::decode(&pool, bytes, &OpenOptions::default());
        for (width, height) in (1..48).flat_map(|width| [1, 2, 3, 4, 5, 8, 9, 16, 23, 31].map(|height| (width, height)))
        {
            for pixel in [|_, _| 0, |x: usize, y: usize| (x / 16 + y * 5) as u8] {
                let plain = open(&file(width, height, pixel, false)).unwrap();
                let interlaced = open(&file(width, height, pixel, true));
                let interlaced = interlaced.unwrap_or_else(|error| panic!("{width} × {height}: {error}"));
                assert!(plain.rows().eq(interlaced.rows()), "{width} × {height}");
            }
        }
    }
}
