//! Windows bitmaps: row by row where the pixels lie in the file as they are, else as a whole.

use std::io::Cursor;

use gabion_blocks::Pool;
use image::codecs::bmp::BmpDecoder;
use image::{ColorType, ImageDecoder, ImageError as Fault};

use super::whole::rows_of_whole_by;
use super::{Decode, Header};
use crate::assembly::Assembly;
use crate::convert::{Converter, map_pixels, swap_red_and_blue};
use crate::error::{ImageError, Result};
use crate::format::Format;
use crate::limits::{Limits, pixel_bytes};
use crate::metadata::Metadata;
use crate::mode::Mode;

pub struct Bmp<'a> {
    decoder: Option<BmpDecoder<Cursor<&'a [u8]>>>,
    plain: Option<Plain<'a>>,
    header: Header,
}

/// The longest side that the library takes.
const LONGEST_SIDE: i32 = 0xFFFF;

/// Pixels of whole bytes, as they lie in the file: nothing is packed, and nothing is missing.
struct Plain<'a> {
    bytes: &'a [u8],
    /// From the start of a row to that of the next.
    row_bytes: usize,
    /// How many of them are pixels.
    pixel_bytes: usize,
    convert: Converter,
    /// The highest row comes first.
    top_down: bool,
}

impl<'a> Plain<'a> {
    /// None for what only the library reads, or has to find damaged. It has read the header and found it sound.
    fn of(file: &'a [u8], (width, height): (u32, u32), mode: Mode) -> Option<Self> {
        let word = |at: usize| Some(u32::from_le_bytes(*file.get(at..)?.first_chunk()?));
        let (start, header) = (word(10)? as usize, word(14)?);
        let (top_down, bits, packed) = (word(22)?.cast_signed() < 0, word(26)? >> 16, word(30)?);
        // Of those with a mask for alpha, the ones that put it behind the colours.
        let masks = [0xFF << 16, 0xFF << 8, 0xFF, 0xFF << 24];
        let masked = || (0..4).all(|number| word(54 + 4 * number) == Some(masks[number]));
        let (channels, convert): (usize, Converter) = match (mode, bits, packed, header) {
            (Mode::RGB, 24, 0, 40..) => (3, swap_red_and_blue),
            (Mode::RGBA, 32, 3, 56..) if masked() => (4, |from, to| map_pixels(from, to, |[b, g, r, a]| [r, g, b, a])),
            _ => return None,
        };
        let pixel_bytes = (width as usize).checked_mul(channels)?;
        let row_bytes = pixel_bytes.checked_next_multiple_of(4)?;
        let bytes = file.get(start..)?.get(..row_bytes.checked_mul(height as usize)?)?;
        Some(Self { bytes, row_bytes, pixel_bytes, convert, top_down })
    }

    fn rows(&self, assembly: &mut Assembly) -> Result<()> {
        let mut push = |row: &[u8]| {
            assembly.push_row_with(0, |to| {
                (self.convert)(&row[..self.pixel_bytes], to);
                Ok(())
            })
        };
        let mut rows = self.bytes.chunks_exact(self.row_bytes);
        if self.top_down { rows.try_for_each(push) } else { rows.rev().try_for_each(&mut push) }
    }
}

impl<'a> Bmp<'a> {
    pub fn begin(bytes: &'a [u8], limits: &Limits) -> Result<Self> {
        refuse_long(bytes)?;
        let decoder = BmpDecoder::new(Cursor::new(bytes)).map_err(fault)?;
        let size = decoder.dimensions();
        limits.check_size(size.0, size.1)?;
        // Of run lengths two bytes end a row, and what is missing of it is blank. Of what is shorter even than this,
        // little is there: it has been cut off, or is a bomb.
        let (width, height) = (u64::from(size.0), u64::from(size.1));
        let least = if has_runs(bytes) { 2 * height } else { width * height / 128 };
        if least > bytes.len() as u64 {
            return Err(ImageError::truncated(Format::Bmp));
        }
        let mode = match decoder.color_type() {
            ColorType::L8 => Mode::L,
            ColorType::Rgb8 if has_greys(bytes) => Mode::L,
            ColorType::Rgb8 => Mode::RGB,
            ColorType::Rgba8 => Mode::RGBA,
            other => {
                return Err(ImageError::unsupported(
                    Format::Bmp,
                    format!("BMP with pixels of {other:?} cannot be read"),
                ));
            }
        };
        let header = Header::of_pixels(Format::Bmp, size, mode, Metadata::default());
        Ok(Self { decoder: Some(decoder), plain: Plain::of(bytes, size, mode), header })
    }
}

/// Whether pixels are stored as run lengths, of eight bits or of four.
fn has_runs(file: &[u8]) -> bool {
    let word = |at: usize| file.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |word| u32::from_le_bytes(*word));
    word(14) >= 40 && matches!(word(30), 1 | 2)
}

/// Whether the pixels are numbers in a palette that has greys only. Beyond its end they are black.
fn has_greys(file: &[u8]) -> bool {
    let long = |at: usize| file.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |word| u32::from_le_bytes(*word));
    let header = long(14);
    // The oldest headers have colors of three bytes, and no number of them.
    let old = header < 40;
    let (bits, said) = if old { (long(22) >> 16, 0) } else { (long(26) >> 16, long(46)) };
    if !(1..=8).contains(&bits) {
        return false;
    }
    let colors = if said == 0 { 1 << bits } else { said.min(1 << bits) };
    let palette = file.get(header as usize + FILE_HEADER..).unwrap_or_default();
    let mut palette = palette.chunks_exact(if old { 3 } else { 4 }).take(colors as usize).peekable();
    palette.peek().is_some() && palette.all(|color| color[0] == color[1] && color[1] == color[2])
}

/// Bytes before the header that says what the pixels are.
const FILE_HEADER: usize = 14;

/// Refuses sides that the library does not take, and takes for damage.
fn refuse_long(file: &[u8]) -> Result<()> {
    let word = |at: usize| file.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |word| i32::from_le_bytes(*word));
    // The oldest headers have sixteen bits for each.
    let (width, height) = if word(14) < 40 { (0, 0) } else { (word(18), word(22)) };
    if width.max(height) > LONGEST_SIDE {
        let text = format!("BMP of {width} × {height} pixels cannot be read: its sides are {LONGEST_SIDE} at most");
        return Err(ImageError::unsupported(Format::Bmp, text));
    }
    Ok(())
}

fn fault(error: Fault) -> ImageError {
    match error {
        Fault::Unsupported(error) => ImageError::unsupported(Format::Bmp, error),
        error => ImageError::corrupt(Format::Bmp, error),
    }
}

impl Decode for Bmp<'_> {
    fn header(&self) -> &Header {
        &self.header
    }

    fn beside(&self) -> u64 {
        let Header { width, height, .. } = self.header;
        let mode = self.header.layers.mode();
        // Greys come as colours.
        let mode = if mode == Mode::L { Mode::RGB } else { mode };
        if self.plain.is_none() { pixel_bytes(mode, width, height) } else { 0 }
    }

    fn rows(&mut self, pool: &Pool, assembly: &mut Assembly, partial: bool) -> Result<()> {
        if let Some(plain) = &self.plain {
            return plain.rows(assembly);
        }
        let Some(decoder) = self.decoder.take() else {
            return Err(ImageError::setting("rows are given once"));
        };
        // Greys come as colours, too.
        let (channels, grey) = (decoder.color_type().bytes_per_pixel().into(), self.header.layers.mode() == Mode::L);
        let size = (self.header.width as usize * channels, self.header.height as usize);
        let read = |whole: &mut [u8]| decoder.read_image(whole).map_err(fault);
        rows_of_whole_by(pool, assembly, size, partial, read, |assembly, row| match (grey, channels) {
            (true, 3) => assembly.push_row_with(0, |out| {
                map_pixels(row, out, |[grey, _, _]| [grey]);
                Ok(())
            }),
            _ => assembly.push_row(0, row),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::SaveOptions;
    use crate::image::Image;

    /// The rows of a file as the library gives them, and as they come here if they lie there plainly.
    fn both_ways(file: &[u8]) -> (Vec<u8>, Option<Vec<u8>>) {
        let pixels = |plainly: bool| {
            let mut bmp = Bmp::begin(file, &Limits::default()).unwrap();
            if !plainly {
                bmp.plain = None;
            } else if bmp.plain.is_none() {
                return None;
            }
            let (size, mode) = ((bmp.header.width, bmp.header.height), bmp.header.layers.mode());
            let pool = Pool::global();
            let how = crate::resample::Resampling::default();
            let mut assembly = Assembly::new(pool, &bmp.header.layers, size, mode, how).unwrap();
            bmp.rows(pool, &mut assembly, false).unwrap();
            let image = assembly.into_image();
            Some(image.rows().flatten().copied().collect())
        };
        (pixels(false).unwrap(), pixels(true))
    }

    fn saved(mode: Mode, (width, height): (u32, u32)) -> Vec<u8> {
        let mut image = Image::blank(Pool::global(), mode, width, height).unwrap();
        for (y, row) in image.rows_mut().enumerate() {
            row.iter_mut().enumerate().for_each(|(x, byte)| *byte = (x * 7 + y * 31 + x * y) as u8);
        }
        let mut file = Vec::new();
        image.encode(Format::Bmp, &SaveOptions::default(), &mut file).unwrap();
        file
    }

    #[test]
    fn plain_pixels_are_those_that_the_library_gives() {
        for size in [(1, 1), (2, 3), (3, 2), (5, 4), (130, 70)] {
            for mode in [Mode::RGB, Mode::RGBA] {
                let mut file = saved(mode, size);
                for height in [size.1.cast_signed(), -size.1.cast_signed()] {
                    file[22..26].copy_from_slice(&height.to_le_bytes());
                    let (library, plain) = both_ways(&file);
                    assert!(plain == Some(library), "{mode} {size:?} {height}");
                }
            }
        }
    }

    #[test]
    fn the_library_reads_what_is_not_plain() {
        let grey = saved(Mode::L, (9, 7));
        assert_eq!(both_ways(&grey).1, None, "a palette");
        let mut masks = saved(Mode::RGBA, (9, 7));
        masks.copy_within(54..58, 62);
        masks[54..58].copy_from_slice(&0xFFu32.to_le_bytes());
        assert_eq!(both_ways(&masks).1, None, "red and blue at each other's place");
        let cut = saved(Mode::RGB, (9, 7));
        let cut = Bmp::begin(&cut[..cut.len() - 1], &Limits::default()).unwrap();
        assert!(cut.plain.is_none(), "a byte is missing");
    }

    /// A file of run lengths of eight bits.
    fn runs((width, height): (u32, u32), codes: &[u8]) -> Vec<u8> {
        let start = 54 + 1024;
        let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        let mut file =
            [b"BM", &words(&[start + codes.len() as u32, 0, start, 40, width, height, 1 | 8 << 16, 1])[..]].concat();
        file.extend(words(&[codes.len() as u32, 0, 0, 256, 0]));
        file.extend((0..=255).flat_map(|grey| [grey, grey, grey, 0]));
        [&file, codes].concat()
    }

    #[test]
    fn rows_of_run_lengths_may_be_blank() {
        for (width, height) in [(300, 100), (1000, 1000)] {
            let codes = [&b"\x05\x07\0\0"[..], &b"\0\0".repeat(height as usize - 1), b"\0\x01"].concat();
            let (pixels, _) = both_ways(&runs((width, height), &codes));
            let last = width as usize * (height as usize - 1);
            assert!(pixels[..last].iter().all(|&sample| sample == 0));
            assert!(pixels[last..last + 5].iter().all(|&sample| sample == 7));
        }
        // Its rows do not even end.
        let file = runs((60_000, 2000), b"\0\x01");
        let error = Bmp::begin(&file, &Limits::default()).err().unwrap().to_string();
        assert!(error.contains("ends before the picture does"), "{error}");
    }
}
