//! What a format can hold.

use super::options::SaveOptions;
use crate::error::{ImageError, Result};
use crate::format::Format;
use crate::image::Image;
use crate::metadata::Written;
use crate::mode::Mode;

/// The longest EXIF block of JPEG: a segment tells its length in two bytes, which count, and the block's name takes
/// six.
const MOST_EXIF: usize = 65_535 - 2 - 6;

/// Bytes of a profile in a segment of JPEG, where its name and place take 14; and of how many parts who writes it
/// knows.
pub const PROFILE_PART: usize = 65_535 - 2 - 14;
pub const MOST_PROFILE: usize = 254 * PROFILE_PART;

/// What is written beside pixels that are stored in `mode`.
pub fn metadata<'a>(image: &'a Image, options: &SaveOptions, mode: Mode) -> Written<'a> {
    let Written { exif, icc } = image.metadata().written_with(mode);
    Written { exif: exif.filter(|_| options.exif), icc: icc.filter(|_| options.profile) }
}

/// Refuses what the format cannot hold, before anything is written.
pub fn check(image: &Image, format: Format, options: &SaveOptions) -> Result<()> {
    let mode = image.mode();
    if !format.holds(mode) {
        let laid = if mode.has_alpha() { ": convert(\"RGB\", background=255) lays it over white" } else { "" };
        return Err(ImageError::setting(format!(
            "{format} does not hold {mode}: convert the image to RGB first{laid}"
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
