//! Rows to bytes, by libraries where there is more to it than order.
//!
//! | room | library | why |
//! |---|---|---|
//! | `jpeg` | `mozjpeg`, `rusty_jpeg` | the fastest, if there was an assembler; SIMD without one |
//! | `png` | `png` | takes rows |
//! | `webp` | `webp` (libwebp) | the one that writes lossy WebP; wants one piece |
//! | `tiff` | `tiff` | the kept one; wants one piece, and writes out of order |
//! | `bmp` | none | rows from the lowest up, blue first |

mod whole;

mod kept;

mod riff;

mod jpeg;

mod png;

mod webp;

mod tiff;

mod bmp;

use std::io::Write;

use crate::error::{ImageError, Result};
use crate::format::Format;
use crate::image::Image;
use crate::metadata::Written;
use crate::mode::Mode;

/// How colours are stored in JPEG, against brightness.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Subsampling {
    /// At full resolution (4:4:4).
    Full,
    /// At half of the width (4:2:2).
    HalfWidth,
    /// At half of both sides (4:2:0).
    #[default]
    Half,
}

/// How hard PNG and TIFF try to be small. The picture is the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Compression {
    /// Not at all.
    None,
    /// As fast as can be.
    Fast,
    /// A fair share of both.
    #[default]
    Balanced,
    /// As small as can be.
    Small,
}

/// How an image is saved.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a choice of its own")]
pub struct SaveOptions {
    /// JPEG and lossy WebP: 1 to 100. Default: 80.
    pub quality: u8,
    /// JPEG: 4:2:0 unless set.
    pub subsampling: Subsampling,
    /// JPEG: in several scans, coarse to fine.
    pub progressive: bool,
    /// JPEG: code tables of its own: some per cent smaller, and the picture is gone through twice.
    pub optimized: bool,
    /// WebP: every pixel as it is.
    pub lossless: bool,
    /// PNG and TIFF.
    pub compression: Compression,
    /// Writes the image's EXIF block and ICC profile, if it has them. JPEG, PNG and WebP take both, TIFF the profile and of the
    /// block the orientation, BMP nothing. A profile that does not fit what is stored is left out, as that of a grey image in WebP, which stores colours.
    pub metadata: bool,
}

impl Default for SaveOptions {
    fn default() -> Self {
        Self {
            quality: 80,
            subsampling: Subsampling::default(),
            progressive: false,
            optimized: false,
            lossless: false,
            compression: Compression::default(),
            metadata: true,
        }
    }
}

impl Image {
    /// Writes the image in this format.
    ///
    /// # Errors
    /// [`ImageError::Setting`] when the format knows no such mode, size, EXIF block or quality, before anything is written;
    /// [`ImageError::Unsupported`] for GIF, which can be read only; [`ImageError::Io`] when `out` fails.
    pub fn encode(&self, format: Format, options: &SaveOptions, out: &mut dyn Write) -> Result<()> {
        check(self, format, options)?;
        self.pool().note_malloc();
        match format {
            Format::Jpeg => jpeg::write(self, options, out),
            Format::Png => png::write(self, options, out),
            Format::WebP => webp::write(self, options, out),
            Format::Tiff => tiff::write(self, options, out),
            Format::Bmp => bmp::write(self, out),
            Format::Gif => Err(ImageError::not_written("GIF can be read, but not written")),
        }
    }
}

/// The longest EXIF block of JPEG: a segment tells its length in two bytes, which count, and the block's name takes six.
const MOST_EXIF: usize = 65_535 - 2 - 6;

/// Bytes of a profile in a segment of JPEG, where its name and place take 14; and of how many parts who writes it knows.
const PROFILE_PART: usize = 65_535 - 2 - 14;
const MOST_PROFILE: usize = 254 * PROFILE_PART;

/// What is written beside pixels that are stored in `mode`.
fn metadata<'a>(image: &'a Image, options: &SaveOptions, mode: Mode) -> Written<'a> {
    if options.metadata { image.metadata().written_with(mode) } else { Written::default() }
}

fn check(image: &Image, format: Format, options: &SaveOptions) -> Result<()> {
    let mode = image.mode();
    let (known, instead) = match format {
        Format::Jpeg => (!mode.has_alpha(), Mode::RGB),
        Format::Png | Format::WebP | Format::Bmp => (mode != Mode::CMYK, Mode::RGB),
        Format::Tiff | Format::Gif => (true, mode),
    };
    if !known {
        return Err(ImageError::setting(format!(
            "{format} does not hold {mode}: convert the image to {instead} first"
        )));
    }
    let longest = match format {
        // The header of BMP could tell more, but what reads it, here and elsewhere, does not take that.
        Format::Jpeg | Format::Bmp => u32::from(u16::MAX),
        Format::WebP => 16383,
        _ => crate::LONGEST_SIDE,
    };
    let (width, height) = image.size();
    if width.max(height) > longest {
        return Err(ImageError::setting(format!(
            "{format} holds sides of up to {longest} pixels, not {width} × {height}: make the image smaller, or save it in \
             another format"
        )));
    }
    let Written { exif, icc } = metadata(image, options, mode);
    for (what, held, most) in [("EXIF blocks", exif, MOST_EXIF), ("ICC profiles", icc, MOST_PROFILE)] {
        let bytes = held.map_or(0, <[u8]>::len);
        if format == Format::Jpeg && bytes > most {
            return Err(ImageError::setting(format!(
                "{format} holds {what} of up to {most} bytes, not {bytes}: leave the metadata out, or save the image in \
                 another format"
            )));
        }
    }
    if !(1..=100).contains(&options.quality) {
        return Err(ImageError::setting(format!("quality is from 1 to 100, not {}", options.quality)));
    }
    Ok(())
}
