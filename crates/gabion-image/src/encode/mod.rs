//! Rows to bytes, by libraries where there is more to it than order.
//!
//! `options` says how, `check` what a format can hold; `whole`, `seek_buffer` and `riff` are what several formats need.
//!
//! | module | library | why |
//! |---|---|---|
//! | `jpeg` | `mozjpeg`, `rusty_jpeg` | the fastest, if there was an assembler; SIMD without one |
//! | `png` | `png` | takes rows |
//! | `webp` | `libwebp-sys` (libwebp) | the one that writes lossy WebP; wants one piece |
//! | `tiff` | `tiff` | the maintained crate; wants one piece, and writes out of order |
//! | `bmp` | none | rows from the lowest up, blue first |

mod options;

mod check;

mod whole;

mod seek_buffer;

mod riff;

mod jpeg;

mod png;

mod webp;

mod tiff;

mod bmp;

use std::io::Write;
use std::path::Path;

use self::check::{check, metadata};
pub use self::options::{Compression, SaveOptions, Subsampling};
use crate::error::{ImageError, Result};
use crate::format::Format;
use crate::image::Image;

impl Format {
    /// The format that a file's name tells, if it can be written.
    ///
    /// # Errors
    /// [`ImageError::Unsupported`] when the name tells none, or one that can be read only. It says which ones there
    /// are.
    pub fn to_write(path: impl AsRef<Path>) -> Result<Self> {
        let name = path.as_ref().display().to_string();
        match Self::of_path(path) {
            Some(format) if format.can_write() => Ok(format),
            Some(format) => {
                Err(ImageError::not_written(format!("the name {name:?} tells {format}, which {READ_ONLY}")))
            }
            None => {
                let written = Self::ALL.into_iter().filter(|format| format.can_write());
                let endings: Vec<_> = written.map(|format| format!(".{}", format.extension())).collect();
                Err(ImageError::unknown(format!(
                    "the name {name:?} tells no format that can be written: end it in one of {}, or pass the format",
                    endings.join(", ")
                )))
            }
        }
    }
}

/// What is said of GIF.
const READ_ONLY: &str = "can be read, but not written";

impl Image {
    /// Writes the image in this format.
    ///
    /// # Errors
    /// [`ImageError::Setting`] when the format knows no such mode, size, EXIF block or quality, before anything is
    /// written; [`ImageError::Unsupported`] for GIF, which can be read only; [`ImageError::Io`] when `out` fails.
    pub fn encode(&self, format: Format, options: &SaveOptions, out: &mut dyn Write) -> Result<()> {
        check(self, format, options)?;
        self.pool().note_malloc();
        match format {
            Format::Jpeg => jpeg::write(self, options, out),
            Format::Png => png::write(self, options, out),
            Format::WebP => webp::write(self, options, out),
            Format::Tiff => tiff::write(self, options, out),
            Format::Bmp => bmp::write(self, out),
            Format::Gif => Err(ImageError::not_written(format!("{format} {READ_ONLY}"))),
        }
    }
}
