//! A file's picture, a row of its chunks at a time.

use ::tiff::decoder::{Decoder, Limits as Bound};
use ::tiff::tags::Tag;
use gabion_blocks::{Buffer, Pool, Request};

use super::bytes::Bytes;
use super::directory::{pages, profile, refuse_long};
use super::kind::{Extra, Numbers, described, fault, mode_of, refuse_short, samples, tag};
use super::samples::{Pixels, Samples};
use crate::assembly::{Assembly, GREY};
use crate::decode::{Decode, Header};
use crate::error::{ImageError, Result};
use crate::format::Format;
use crate::limits::Limits;
use crate::metadata::{Metadata, Orientation};

/// Rows that a tile may have below the picture, where the library reads them, too.
const BEYOND: usize = 1024;

/// Bytes that the library may take for what it reads of the directory once the picture is known.
const NUMBERS: usize = 4096;

pub struct Tiff<'a> {
    bytes: &'a [u8],
    decoder: Decoder<Bytes<'a>>,
    header: Header,
    pixels: Pixels,
    cut: Cut,
    /// As many as there are samples where each has chunks of its own, else 1.
    planes: usize,
    /// Whether what was read of a chunk is right before all of it is there.
    plain: bool,
}

/// How the picture is cut into strips or tiles, which are chunks.
#[derive(Clone, Copy)]
struct Cut {
    /// Width and height of a chunk, except for those at the edge; where several pixels share a byte, the width in
    /// bytes.
    chunk: (usize, usize),
    /// Chunks in a row of them.
    across: usize,
    /// Chunks in a plane.
    plane: usize,
    /// Pixels that share a byte.
    in_a_byte: usize,
    /// Bytes of a pixel, or of those that share them.
    pixel: usize,
    /// Bytes of a row.
    row: usize,
}

impl<'a> Tiff<'a> {
    pub fn begin(bytes: &'a [u8], limits: &Limits) -> Result<Self> {
        refuse_long(bytes, limits)?;
        let file = Bytes::new(bytes);
        let has_palette = file.has_palette();
        let mut decoder = Decoder::new(file).map_err(fault)?;
        let size = decoder.dimensions().map_err(fault)?;
        limits.check_size(size.0, size.1)?;
        let color = decoder.colortype().map_err(fault)?;
        refuse_short(&mut decoder, size, color.bit_depth(), bytes.len())?;
        let samples = samples(&mut decoder, color, has_palette)?;
        let extra = Extra::of(&mut decoder);
        let numbers = Numbers::of(&mut decoder);
        let mode = samples.mode().or_else(|| if has_palette { None } else { mode_of(color, extra) });
        let Some(mode) = mode.filter(|_| numbers == Numbers::Whole) else {
            return Err(ImageError::unsupported(Format::Tiff, described(color, numbers, has_palette)));
        };
        let mut bound = Bound::default();
        // What is still to be read of the directory are numbers, one each.
        bound.decoding_buffer_size = NUMBERS;
        // How long a chunk may be that is compressed: it stays in the file, which may be cut off.
        bound.intermediate_buffer_size = usize::MAX;
        let mut decoder = decoder.with_limits(bound);
        let orientation = Orientation::of_value(tag(&mut decoder, Tag::Orientation, 1));
        let icc = profile(bytes).unwrap_or_default();
        limits.check_bytes(icc.len() as u64)?;
        let metadata = Metadata { exif: orientation.as_exif(), icc: (!icc.is_empty()).then(|| icc.to_vec()) };
        let header = Header::of_pixels(Format::Tiff, size, mode, metadata);
        let separate = tag(&mut decoder, Tag::PlanarConfiguration, 1) == 2;
        // Differences of neighbours, inverted grey, swapped bytes and what is looked up are set right once a chunk is
        // there.
        let plain = tag(&mut decoder, Tag::Predictor, 1) == 1
            && tag(&mut decoder, Tag::PhotometricInterpretation, 1) != 0
            && matches!(samples, Samples::Bytes);
        let channels = usize::from(color.num_samples());
        let planes = if separate { channels } else { 1 };
        let pixels = Pixels { samples, channels, mode, premultiplied: extra == Extra::Premultiplied };
        let cut = Cut::of(&decoder, size, &pixels)?;
        Ok(Self { bytes, decoder, header, pixels, cut, planes, plain })
    }

    /// Bytes of a row of chunks as rows, and of one chunk where they have to be put together.
    fn held(&self) -> (usize, usize) {
        let (cut, height) = (&self.cut, self.header.height as usize);
        let chunk = cut.chunk.0 * cut.chunk.1.min(height + BEYOND) * cut.pixel / self.planes;
        (cut.row * cut.chunk.1.min(height), if self.is_direct() { 0 } else { chunk })
    }

    /// Whether a chunk is rows of the picture.
    fn is_direct(&self) -> bool {
        self.cut.across == 1 && self.planes == 1
    }
}

impl Decode for Tiff<'_> {
    fn header(&self) -> &Header {
        &self.header
    }

    fn frames(&self) -> Option<u32> {
        pages(self.bytes)
    }

    fn beside(&self) -> u64 {
        let (band, chunk) = self.held();
        band as u64 + chunk as u64
    }

    fn rows(&mut self, pool: &Pool, assembly: &mut Assembly, partial: bool) -> Result<()> {
        let (cut, height, direct) = (self.cut, self.header.height as usize, self.is_direct());
        let partial = partial && self.plain;
        // Zero or grey, so that it never shows what was there before: of fresh memory, which is zero, a file that gives
        // up early touches little.
        let [mut band, mut chunk] = {
            let (band, chunk) = self.held();
            let rent = |bytes| pool.rent(&Request { clean: !partial, ..Request::new(bytes) });
            [rent(band)?, rent(chunk)?]
        };
        for (number, top) in (0..height).step_by(cut.chunk.1).enumerate() {
            let out = &mut band.as_mut_slice()[..cut.row * cut.chunk.1.min(height - top)];
            if partial {
                out.fill(GREY);
            }
            let first = number * cut.across;
            let done = if direct { self.read(first, out) } else { self.read_all(first, &mut chunk, out, partial) };
            if done.is_ok() || partial && out.iter().any(|&sample| sample != GREY) {
                out.chunks_exact_mut(cut.row).try_for_each(|row| self.pixels.hand_on(assembly, row))?;
            }
            done?;
        }
        Ok(())
    }
}

impl Cut {
    fn of(decoder: &Decoder<Bytes<'_>>, (width, height): (u32, u32), pixels: &Pixels) -> Result<Self> {
        let (width, height) = (width as usize, height as usize);
        let (wide, high) = decoder.chunk_dimensions();
        if wide == 0 || high == 0 {
            return Err(ImageError::corrupt(Format::Tiff, "its strips or tiles have no size"));
        }
        // A tile may be larger than the picture, and what is beyond it is not read.
        let in_a_byte = pixels.samples.in_a_byte();
        let across = width.div_ceil(wide as usize);
        if across > 1 && !(wide as usize).is_multiple_of(in_a_byte) {
            return Err(ImageError::corrupt(Format::Tiff, "its tiles do not end with a byte"));
        }
        let chunk = ((wide as usize).min(width).div_ceil(in_a_byte), high as usize);
        let pixel = pixels.channels * pixels.samples.bytes();
        let row = width.div_ceil(in_a_byte) * pixel;
        Ok(Self { chunk, across, plane: across * height.div_ceil(chunk.1), in_a_byte, pixel, row })
    }
}

impl Tiff<'_> {
    /// Reads a chunk.
    fn read(&mut self, number: usize, out: &mut [u8]) -> Result<()> {
        let number = u32::try_from(number).map_err(|error| ImageError::corrupt(Format::Tiff, error))?;
        self.decoder.read_chunk_bytes(number, out).map_err(fault)
    }

    /// Reads a row of chunks, of all planes, side by side into `out`.
    fn read_all(&mut self, first: usize, chunk: &mut Buffer, out: &mut [u8], partial: bool) -> Result<()> {
        let (cut, bytes) = (self.cut, self.cut.pixel / self.planes);
        for (plane, column) in (0..self.planes).flat_map(|plane| (0..cut.across).map(move |column| (plane, column))) {
            let number = plane * cut.plane + first + column;
            // The library leaves the padding out, but not that below later planes.
            let (wide, high) = self.decoder.chunk_data_dimensions(number as u32);
            let wide = (wide as usize).div_ceil(cut.in_a_byte) * bytes;
            let Some(chunk) = chunk.as_mut_slice().get_mut(..wide * high as usize) else {
                return Err(ImageError::corrupt(Format::Tiff, "its tiles do not fit together"));
            };
            if partial {
                chunk.fill(GREY);
            }
            let done = self.read(number, chunk);
            for (row, to) in chunk.chunks_exact(wide.max(1)).zip(out.chunks_exact_mut(cut.row)) {
                let to = &mut to[column * cut.chunk.0 * cut.pixel..];
                if self.planes == 1 {
                    let length = row.len().min(to.len());
                    to[..length].copy_from_slice(&row[..length]);
                    continue;
                }
                for (from, pixel) in row.chunks_exact(bytes).zip(to.chunks_exact_mut(cut.pixel)) {
                    pixel[plane * bytes..][..bytes].copy_from_slice(from);
                }
            }
            done?;
        }
        Ok(())
    }
}
