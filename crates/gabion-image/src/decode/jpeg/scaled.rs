//! Decoding to pixels, scaled within the cosine transform, by `libjpeg-turbo`'s offspring `mozjpeg`.

use std::cell::Cell;
use std::io::{self, BufRead, Read};

use mozjpeg::{ColorSpace, Decompress};

use crate::assembly::Assembly;
use crate::error::{ImageError, Result};
use crate::format::Format;
use crate::mode::Mode;

/// The bytes of a file. Notes when more are asked for than there are: `libjpeg` makes up an end then.
struct Watched<'a> {
    rest: &'a [u8],
    short: &'a Cell<bool>,
}

impl Read for Watched<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.short.set(self.short.get() || self.rest.is_empty());
        self.rest.read(out)
    }
}

impl BufRead for Watched<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.short.set(self.short.get() || self.rest.is_empty());
        Ok(self.rest)
    }

    fn consume(&mut self, count: usize) {
        self.rest = &self.rest[count..];
    }
}

/// Hands on rows of pixels in `mode`, `eighths` of the size in the file; in the file, 0 is the most of an
/// `inverted` ink. Errors are unwound: see `guarded`.
pub fn rows(bytes: &[u8], mode: Mode, inverted: bool, eighths: u8, assembly: &mut Assembly) -> Result<()> {
    let corrupt = |error: io::Error| ImageError::corrupt(Format::Jpeg, error);
    let short = Cell::new(false);
    let mut decoder = Decompress::new_reader(Watched { rest: bytes, short: &short }).map_err(corrupt)?;
    decoder.scale(eighths);
    let mut started = match mode {
        Mode::L => decoder.grayscale(),
        Mode::CMYK => decoder.to_colorspace(ColorSpace::JCS_CMYK),
        _ => decoder.rgb(),
    }
    .map_err(corrupt)?;
    for _ in 0..started.height() {
        assembly.push_row_with(0, |row| {
            started.read_scanlines_into(row).map_err(corrupt)?;
            if short.get() {
                return Err(ImageError::truncated(Format::Jpeg));
            }
            if inverted {
                for ink in row {
                    *ink = 255 - *ink;
                }
            }
            Ok(())
        })?;
    }
    Ok(())
}
