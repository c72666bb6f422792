//! The first picture of a TIFF file, a row of its strips or tiles at a time.

use std::io::{self, Cursor, Read, Seek, SeekFrom};

use ::tiff::decoder::{Decoder, Limits as Bound};
use ::tiff::tags::Tag;
use ::tiff::{ColorType, TiffError};
use gabion_blocks::{Buffer, Pool, Request};

use super::{Decode, Header};
use crate::assembly::{Assembly, GREY};
use crate::error::{ImageError, Result};
use crate::format::Format;
use crate::limits::{Limits, pixel_bytes};
use crate::metadata::{Metadata, Orientation};
use crate::mode::Mode;

/// Rows that a tile may have below the picture, where the library reads them, too.
const BEYOND: usize = 1024;

pub struct Tiff<'a> {
    decoder: Decoder<Bytes<'a>>,
    header: Header,
    color: ColorType,
    /// As many as there are samples where each has chunks of its own, else 1.
    planes: usize,
    /// Whether what was read of a chunk is right before all of it is there.
    plain: bool,
}

/// The bytes of a file. Unlike a cursor it hands on those that there are when more are asked for.
struct Bytes<'a>(Cursor<&'a [u8]>);

impl Read for Bytes<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.0.read(out)
    }
}

impl Seek for Bytes<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.0.seek(to)
    }
}

/// How the picture is cut into strips or tiles, which are chunks.
#[derive(Clone, Copy)]
struct Cut {
    /// Width and height of a chunk, but for those at the edge.
    chunk: (usize, usize),
    /// Chunks in a row of them.
    across: usize,
    /// Chunks in a plane.
    plane: usize,
    /// Bytes of a sample.
    sample: usize,
    /// Bytes of a pixel.
    pixel: usize,
    /// Bytes of a row.
    row: usize,
}

impl<'a> Tiff<'a> {
    pub fn begin(bytes: &'a [u8], limits: &Limits) -> Result<Self> {
        let mut decoder = Decoder::new(Bytes(Cursor::new(bytes))).map_err(fault)?;
        let size = decoder.dimensions().map_err(fault)?;
        limits.check_size(size.0, size.1)?;
        // A code of LZW is 4,096 bytes at most, and nothing else gets shorter, so what is has been cut off, or is a bomb.
        if u64::from(size.0) * u64::from(size.1) / 2731 > bytes.len() as u64 {
            return Err(ImageError::truncated(Format::Tiff));
        }
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
        let mut tag = |tag, default: u16| decoder.find_tag_unsigned(tag).ok().flatten().unwrap_or(default);
        let separate = tag(Tag::PlanarConfiguration, 1) == 2;
        // Differences of neighbours, inverted grey and swapped bytes are set right once a chunk is there.
        let plain =
            tag(Tag::Predictor, 1) == 1 && tag(Tag::PhotometricInterpretation, 1) != 0 && color.bit_depth() == 8;
        let planes = if separate { usize::from(color.num_samples()) } else { 1 };
        Ok(Self { decoder, header, color, planes, plain })
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

    fn rows(&mut self, pool: &Pool, assembly: &mut Assembly) -> Result<()> {
        let cut = self.cut()?;
        let height = self.header.height as usize;
        let mut band = pool.rent(&Request::new(cut.row * cut.chunk.1.min(height)))?;
        let direct = cut.across == 1 && self.planes == 1;
        let chunk = cut.chunk.0 * cut.chunk.1.min(height + BEYOND) * cut.pixel / self.planes;
        let mut chunk = pool.rent(&Request::new(if direct { 0 } else { chunk }))?;
        for (number, top) in (0..height).step_by(cut.chunk.1).enumerate() {
            let out = &mut band.as_mut_slice()[..cut.row * cut.chunk.1.min(height - top)];
            out.fill(GREY);
            let first = number * cut.across;
            let done = if direct { self.read(first, out) } else { self.read_all(&cut, first, &mut chunk, out) };
            if done.is_ok() || self.plain && out.iter().any(|&sample| sample != GREY) {
                out.chunks_exact(cut.row).try_for_each(|row| hand_on(assembly, row, cut.sample))?;
            }
            done?;
        }
        Ok(())
    }
}

impl Tiff<'_> {
    fn cut(&self) -> Result<Cut> {
        let (width, height) = (self.header.width as usize, self.header.height as usize);
        let (wide, high) = self.decoder.chunk_dimensions();
        if wide == 0 || high == 0 {
            return Err(ImageError::corrupt(Format::Tiff, "its strips or tiles have no size"));
        }
        // A tile may be larger than the picture, and what is beyond it is not read.
        let chunk = ((wide as usize).min(width), high as usize);
        let across = width.div_ceil(wide as usize);
        let sample = usize::from(self.color.bit_depth()) / 8;
        let pixel = usize::from(self.color.num_samples()) * sample;
        Ok(Cut { chunk, across, plane: across * height.div_ceil(chunk.1), sample, pixel, row: width * pixel })
    }

    /// Reads a chunk.
    fn read(&mut self, number: usize, out: &mut [u8]) -> Result<()> {
        let number = u32::try_from(number).map_err(|error| ImageError::corrupt(Format::Tiff, error))?;
        self.decoder.read_chunk_bytes(number, out).map_err(fault)
    }

    /// Reads a row of chunks, of all planes, side by side into `out`.
    fn read_all(&mut self, cut: &Cut, first: usize, chunk: &mut Buffer, out: &mut [u8]) -> Result<()> {
        let bytes = cut.pixel / self.planes;
        for (plane, column) in (0..self.planes).flat_map(|plane| (0..cut.across).map(move |column| (plane, column))) {
            let number = plane * cut.plane + first + column;
            // The library leaves the padding out, but not that below later planes.
            let (wide, high) = self.decoder.chunk_data_dimensions(number as u32);
            let wide = wide as usize * bytes;
            let Some(chunk) = chunk.as_mut_slice().get_mut(..wide * high as usize) else {
                return Err(ImageError::corrupt(Format::Tiff, "its tiles do not fit together"));
            };
            chunk.fill(GREY);
            let done = self.read(number, chunk);
            for (row, to) in chunk.chunks_exact(wide.max(1)).zip(out.chunks_exact_mut(cut.row)) {
                let pixels = to[column * cut.chunk.0 * cut.pixel..].chunks_exact_mut(cut.pixel);
                for (from, pixel) in row.chunks_exact(bytes).zip(pixels) {
                    pixel[plane * bytes..][..bytes].copy_from_slice(from);
                }
            }
            done?;
        }
        Ok(())
    }
}

/// Hands a row on; of samples of two bytes the more significant ones.
fn hand_on(assembly: &mut Assembly, row: &[u8], sample: usize) -> Result<()> {
    if sample == 1 {
        return assembly.take_row(0, row);
    }
    assembly.take(0, |out| {
        let samples = row.as_chunks().0.iter();
        out.iter_mut().zip(samples).for_each(|(out, &sample)| *out = (u16::from_ne_bytes(sample) >> 8) as u8);
        Ok(())
    })
}
