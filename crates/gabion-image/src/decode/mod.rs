//! Bytes to rows, by libraries.
//!
//! A decoder reads the header, says what layers it will give, may be asked to give smaller ones, and then hands its
//! rows to an [`Assembly`]. Nothing is allocated for pixels before the header passed the [`Limits`].
//!
//! | module | library | why |
//! |---|---|---|
//! | `jpeg` | `zune-jpeg`, `mozjpeg` | the fastest planes; the fastest pixels if there was an assembler, scaled decoding, CMYK |
//! | `png` | `png` | row by row |
//! | `webp` | `libwebp-sys` (libwebp), `image-webp` | pixels in half of the time and little memory; what else is in a file |
//! | `tiff` | `tiff` | the maintained crate |
//! | `bmp` | `image` | the maintained crate; plain pixels are taken as they lie |
//! | `gif` | `gif` | the maintained crate |
//! | `foreign` | none | names what is not read, for errors |

mod whole;

mod foreign;

mod jpeg;

mod png;

mod webp;

mod tiff;

mod bmp;

mod gif;

#[cfg(test)]
pub(crate) use self::tiff::pages;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use gabion_blocks::Pool;

use crate::assembly::Assembly;
use crate::error::{ImageError, Result};
use crate::format::{Format, Formats};
use crate::limits::Limits;
use crate::metadata::{Metadata, Orientation};
use crate::sides::{Layers, Sides};

/// What a file's header tells.
#[derive(Debug)]
pub(crate) struct Header {
    pub format: Format,
    pub width: u32,
    pub height: u32,
    /// What the decoder gives, as long as nothing smaller is asked for.
    pub layers: Layers,
    pub orientation: Orientation,
    pub metadata: Metadata,
}

impl Header {
    /// Of a picture that comes in one layer of its own size.
    fn of_pixels(format: Format, (width, height): (u32, u32), mode: crate::Mode, metadata: Metadata) -> Self {
        let layers = Layers::Pixels(mode, Sides::covered(width as usize, height as usize));
        let orientation = metadata.orientation();
        Self { format, width, height, layers, orientation, metadata }
    }
}

/// A file whose header was read.
pub(crate) trait Decode {
    fn header(&self) -> &Header;

    /// How many pictures the file has, frames or pages; `None` where that is not told, or is damaged.
    fn frames(&self) -> Option<u32> {
        Some(1)
    }

    /// Says that the picture is wanted in its own size. A decoder may change what its header says of the layers.
    fn keep_size(&mut self) {}

    /// Asks for a picture that is smaller, but not smaller than this, which may be infinite. A decoder that can,
    /// changes what its header says of the layers.
    fn shrink(&mut self, _least: (f64, f64)) {}

    /// Says that colours are not wanted. A decoder that can do without them changes what its header says of the layers.
    fn drop_colors(&mut self) {}

    /// Bytes that are held beside the new image while rows are given: a picture that comes as a whole, coefficients. To
    /// be asked once all wishes are said.
    fn beside(&self) -> u64 {
        0
    }

    /// Gives the rows of all layers. Of a damaged picture, what came of it need not be given unless `partial` is set.
    fn rows(&mut self, pool: &Pool, assembly: &mut Assembly, partial: bool) -> Result<()>;
}

/// Reads the header of `bytes`. The first bytes say which format it is; it is to be one of `formats`.
pub(crate) fn begin<'a>(bytes: &'a [u8], formats: Formats, limits: &Limits) -> Result<Box<dyn Decode + 'a>> {
    let Some(format) = Format::of_bytes(bytes) else {
        if bytes.is_empty() {
            return Err(ImageError::unknown("the file is empty: get it anew"));
        }
        let known = "the first bytes are of no image format that is known here: JPEG, PNG, WebP, TIFF, BMP and GIF are";
        return Err(ImageError::unknown(foreign::identify(bytes).unwrap_or_else(|| known.to_owned())));
    };
    if !formats.contains(format) {
        return Err(ImageError::unknown(format!("the file is {format}, and here only {formats} may be opened")));
    }
    let begun = guarded(format, || {
        Ok(match format {
            Format::Jpeg => Box::new(jpeg::Jpeg::begin(bytes, limits)?) as Box<dyn Decode>,
            Format::Png => Box::new(png::Png::begin(bytes, limits)?),
            Format::WebP => Box::new(webp::WebP::begin(bytes, limits)?),
            Format::Tiff => Box::new(tiff::Tiff::begin(bytes, limits)?),
            Format::Bmp => Box::new(bmp::Bmp::begin(bytes, limits)?),
            Format::Gif => Box::new(gif::Gif::begin(bytes, limits)?),
        })
    });
    // Whatever it is, it is the file's fault: nobody asked for a picture without pixels.
    begun.map_err(|error| match error {
        ImageError::Setting { what } => ImageError::corrupt(format, what),
        error => error,
    })
}

/// Has `decoder` give its rows to `assembly`. When it fails and `partial` is set, the rest is grey.
pub(crate) fn run(decoder: &mut dyn Decode, pool: &Pool, assembly: &mut Assembly, partial: bool) -> Result<()> {
    let format = decoder.header().format;
    let done = guarded(format, || decoder.rows(pool, assembly, partial))
        .and_then(|()| if assembly.is_complete() { Ok(()) } else { Err(ImageError::truncated(format)) });
    match done {
        Err(ImageError::Corrupt { .. }) if partial && assembly.has_begun() => assembly.complete(),
        done => done,
    }
}

/// Runs a library's code. `libjpeg` reports its errors by unwinding, and a library that panics on damaged bytes has
/// found them damaged.
fn guarded<T>(format: Format, work: impl FnOnce() -> Result<T>) -> Result<T> {
    // The state that `work` leaves behind is not used again, except for the rows of the assembly, which are bytes.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(ImageError::corrupt(format, message(&*panic))))
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    text.map_or("the decoder gave up", |text| text.trim_start_matches("libjpeg fatal error: "))
}
