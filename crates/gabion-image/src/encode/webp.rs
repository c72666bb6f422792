//! WebP, as a whole.

use std::io::Write;

use ::webp::{Encoder, WebPConfig};

use super::riff;
use super::whole::with_whole;
use super::{SaveOptions, metadata};
use crate::error::{ImageError, Result};
use crate::format::Format;
use crate::image::Image;
use crate::limits::room_beside;
use crate::mode::Mode;

pub fn write(image: &Image, options: &SaveOptions, out: &mut dyn Write) -> Result<()> {
    let fault = |error: &dyn std::fmt::Debug| ImageError::encoding(Format::WebP, format_args!("{error:?}"));
    let alpha = image.mode().has_alpha();
    let (width, height) = image.size();
    let mut config = WebPConfig::new().map_err(|()| fault(&"no settings"))?;
    config.quality = if options.lossless { LOSSLESS_EFFORT } else { options.quality.into() };
    config.lossless = options.lossless.into();
    // Colours that cannot be seen are kept, too: lossless means every byte.
    config.exact = options.lossless.into();
    let _room = room_beside(image.pool(), bytes_beside((width, height), alpha, options.lossless))?;
    let stored = if alpha { Mode::RGBA } else { Mode::RGB };
    with_whole(image, stored, |whole| {
        let encoder =
            if alpha { Encoder::from_rgba(whole, width, height) } else { Encoder::from_rgb(whole, width, height) };
        let picture = encoder.encode_advanced(&config).map_err(|error| fault(&error))?;
        riff::write(&picture, (width, height), alpha, metadata(image, options, stored), out)
    })
}

/// Bytes that the library takes for itself at most, with the file that it makes: of noise at the highest quality, which
/// takes most. For lossless pictures, and for alpha, these are tables of its own size too, which grow with the picture
/// at first.
fn bytes_beside((width, height): (u32, u32), alpha: bool, lossless: bool) -> u64 {
    let pixels = u64::from(width.next_multiple_of(16)) * u64::from(height.next_multiple_of(16));
    let (each, tables) = match (lossless, alpha) {
        (true, _) => (36, (pixels * 180).min(14 << 20)),
        (false, true) => (44, 0),
        (false, false) => (36, 0),
    };
    pixels * each + tables + (2 << 20)
}

/// For a lossless picture, `quality` means effort. This is the library's own default.
const LOSSLESS_EFFORT: f32 = 75.0;
