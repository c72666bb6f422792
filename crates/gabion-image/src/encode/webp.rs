//! WebP, as a whole.

use std::io::Write;

use super::riff;
use super::whole::with_whole;
use super::{SaveOptions, metadata};
use crate::error::{ImageError, Result};
use crate::format::Format;
use crate::image::Image;
use crate::libwebp;
use crate::limits::room_beside;
use crate::mode::Mode;

pub fn write(image: &Image, options: &SaveOptions, out: &mut dyn Write) -> Result<()> {
    let alpha = image.mode().has_alpha();
    let size = image.size();
    let quality = if options.lossless { LOSSLESS_EFFORT } else { options.quality.into() };
    let _room = room_beside(image.pool(), bytes_beside(size, alpha, options.lossless))?;
    let stored = if alpha { Mode::RGBA } else { Mode::RGB };
    let picture = with_whole(image, stored, |whole| {
        libwebp::encode(whole, size, alpha, (options.lossless, quality))
            .map_err(|error| ImageError::encoding(Format::WebP, error))
    })?;
    riff::write(&picture, size, alpha, metadata(image, options, stored), out)
}

/// Bytes that the library takes for itself at most, with the file that it makes: of noise at the highest quality, which
/// takes most. For lossless pictures it takes most either while it compares parts of the picture, in tables of which
/// there are more in a large one, up to a number; or when all is put together.
fn bytes_beside((width, height): (u32, u32), alpha: bool, lossless: bool) -> u64 {
    let pixels = u64::from(width.next_multiple_of(16)) * u64::from(height.next_multiple_of(16));
    let most = match (lossless, alpha) {
        (true, _) => (pixels * 41).max(pixels * 25 + (pixels * 275).min(44 << 20)),
        (false, true) => pixels * 44,
        (false, false) => pixels * 32,
    };
    most + (2 << 20)
}

/// For a lossless picture, `quality` means effort. This is the library's own default.
const LOSSLESS_EFFORT: f32 = 75.0;
