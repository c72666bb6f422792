//! Decoding to pixels, scaled within the cosine transform, by `libjpeg-turbo`'s offspring `mozjpeg`.

use std::cell::Cell;
use std::io::{self, BufRead, Read};

use mozjpeg::{ColorSpace, Decompress};

use super::header::Colors;
use crate::assembly::Assembly;
use crate::error::{ImageError, Result};
use crate::format::Format;

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

/// Hands on rows of pixels, `eighths` of the size in the file. Errors are unwound: see `guarded`.
pub fn rows(bytes: &[u8], colors: Colors, eighths: u8, assembly: &mut Assembly) -> Result<()> {
    let corrupt = |error: io::Error| ImageError::corrupt(Format::Jpeg, error);
    let short = Cell::new(false);
    let mut decoder = Decompress::new_reader(Watched { rest: bytes, short: &short }).map_err(corrupt)?;
    decoder.scale(eighths);
    let mut started = match colors {
        Colors::Grey => decoder.grayscale(),
        // They become colours at the size that is wanted.
        Colors::YCbCr => decoder.to_colorspace(ColorSpace::JCS_YCbCr),
        Colors::Rgb => decoder.rgb(),
        Colors::Cmyk { .. } => decoder.to_colorspace(ColorSpace::JCS_CMYK),
    }
    .map_err(corrupt)?;
    for _ in 0..started.height() {
        assembly.take(0, |row| {
            started.read_scanlines_into(row).map_err(corrupt)?;
            if short.get() {
                return Err(ImageError::truncated(Format::Jpeg));
            }
            if colors == (Colors::Cmyk { inverted: true }) {
                for ink in row {
                    *ink = 255 - *ink;
                }
            }
            Ok(())
        })?;
    }
    Ok(())
}
