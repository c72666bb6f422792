//! Windows bitmaps, some rows at a time.

use std::io::Write;

use gabion_blocks::Request;

use crate::convert::{Converter, map_pixels, swap_red_and_blue};
use crate::error::{ImageError, Result};
use crate::format::Format;
use crate::image::Image;
use crate::mode::Mode;

/// Bytes that are gathered before they are written; one row at least. A file takes them in less time by the MiB than by
/// 64 KiB.
const GATHERED: usize = 1 << 20;

/// What stands first: how long the file is, and where its pixels begin.
const FILE_HEADER: u32 = 14;

/// `BITMAPINFOHEADER`, which knows no alpha.
const HEADER: u32 = 40;

/// `BITMAPV4HEADER`, whose masks say which byte is alpha.
const HEADER_WITH_MASKS: u32 = 108;

/// Colours from blue to red, or one grey, from the lowest row up, each row filled up to four bytes.
pub fn write(image: &Image, out: &mut dyn Write) -> Result<()> {
    let (channels, convert): (usize, Converter) = match image.mode() {
        Mode::L => (1, |from, to| to.copy_from_slice(from)),
        Mode::LA => (4, |from, to| map_pixels(from, to, |[l, a]| [l, l, l, a])),
        Mode::RGB => (3, swap_red_and_blue),
        Mode::RGBA => (4, |from, to| map_pixels(from, to, |[r, g, b, a]| [b, g, r, a])),
        Mode::CMYK => return Err(ImageError::encoding(Format::Bmp, "it has no inks")),
    };
    write_headers(image, channels as u32, out)?;
    let row_bytes = image.width() as usize * channels;
    let padded = row_bytes.next_multiple_of(4);
    let mut gathered = image.pool().rent(&Request::new(padded * (GATHERED / padded).max(1)))?;
    // The padding stays 0.
    let gathered = gathered.as_mut_slice();
    gathered.fill(0);
    let mut rows = (0..image.height()).rev().filter_map(|y| image.row(y));
    loop {
        let mut filled = 0;
        for (place, row) in gathered.chunks_exact_mut(padded).zip(&mut rows) {
            convert(row, &mut place[..row_bytes]);
            filled += padded;
        }
        if filled == 0 {
            return Ok(());
        }
        out.write_all(&gathered[..filled])?;
    }
}

/// What stands before the pixels: both headers, and of a grey picture its palette.
fn write_headers(image: &Image, channels: u32, out: &mut dyn Write) -> Result<()> {
    let (width, height) = image.size();
    let header = if channels == 4 { HEADER_WITH_MASKS } else { HEADER };
    let colors = if channels == 1 { 256 } else { 0 };
    let start = FILE_HEADER + header + colors * 4;
    // The headers have 32 bits for sizes.
    let row = width.checked_mul(channels).and_then(|row| row.checked_next_multiple_of(4));
    let pixels = row.and_then(|row| row.checked_mul(height));
    let Some((pixels, file)) = pixels.and_then(|pixels| Some((pixels, pixels.checked_add(start)?))) else {
        let text = format!("{width} × {height} pixels are more than the 4 GiB that it can tell");
        return Err(ImageError::encoding(Format::Bmp, text));
    };
    let mut bytes = Vec::from(*b"BM");
    let mut put = |words: &[u32]| bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    put(&[file, 0, start]);
    // One plane of that many bits; masks or nothing; no resolution; how many colours, and how many of them matter.
    put(&[header, width, height, 1 | (channels * 8) << 16, if channels == 4 { 3 } else { 0 }, pixels, 0, 0, colors, 0]);
    if channels == 4 {
        // Masks of red, green, blue and alpha; sRGB, which needs no end points and no gamma.
        put(&[0xFF << 16, 0xFF << 8, 0xFF, 0xFF << 24, u32::from_be_bytes(*b"sRGB")]);
        put(&[0; 12]);
    }
    for grey in 0..colors {
        put(&[grey * 0x01_01_01]);
    }
    Ok(out.write_all(&bytes)?)
}

#[cfg(test)]
mod tests {
    use gabion_blocks::Pool;
    use image::ExtendedColorType;
    use image::codecs::bmp::BmpEncoder;

    use super::*;

    /// What the library that reads them writes, byte by byte.
    #[test]
    fn files_are_those_of_another_encoder() {
        let modes = [
            (Mode::L, Mode::L, ExtendedColorType::L8),
            (Mode::LA, Mode::RGBA, ExtendedColorType::Rgba8),
            (Mode::RGB, Mode::RGB, ExtendedColorType::Rgb8),
            (Mode::RGBA, Mode::RGBA, ExtendedColorType::Rgba8),
        ];
        // The last are more than is gathered at a time, and rows of colours that are longer than that.
        for (width, height) in [(1, 1), (2, 3), (3, 2), (5, 4), (300, 401), (70_000, 7), (360_000, 2)] {
            for (mode, held, color) in modes {
                let mut image = Image::blank(Pool::global(), mode, width, height).unwrap();
                for (y, row) in image.rows_mut().enumerate() {
                    row.iter_mut().enumerate().for_each(|(x, byte)| *byte = (x * 7 + y * 31 + x * y) as u8);
                }
                let (mut ours, mut theirs) = (Vec::new(), Vec::new());
                write(&image, &mut ours).unwrap();
                let whole = image.convert(held).unwrap().copy_contiguous().unwrap();
                BmpEncoder::new(&mut theirs).encode(whole.as_contiguous().unwrap(), width, height, color).unwrap();
                assert!(ours == theirs, "{mode} {width} × {height}");
            }
        }
    }
}
