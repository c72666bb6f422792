//! By `mozjpeg`, set to write what `libjpeg-turbo` writes.

use std::cell::Cell;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use mozjpeg::qtable::{AnnexK_Chroma, AnnexK_Luma};
use mozjpeg::{ColorSpace, Compress, Marker};

use super::{SaveOptions, metadata, padded_samples};
use crate::encode::Subsampling;
use crate::encode::check::PROFILE_PART;
use crate::error::{ImageError, Result};
use crate::format::Format;
use crate::image::Image;
use crate::limits::room_beside;
use crate::mode::Mode;
use crate::writer::ErrorKeepingWriter;

/// Below this the library's steps get wider than a byte, which only few readers take.
const LEAST_PLAIN_QUALITY: u8 = 24;

/// What the library's errors begin with. Other panics are those of `out`.
const LIBRARYS: &str = "libjpeg fatal error: ";

pub fn write(image: &Image, options: &SaveOptions, out: &mut dyn Write) -> Result<()> {
    let _room = room_beside(image.pool(), bytes_beside(image, options))?;
    let failed = Cell::new(None);
    let out = ErrorKeepingWriter { out, failed: &failed };
    // The library reports its errors by unwinding. What it leaves behind is dropped, and `out` has failed.
    let written = catch_unwind(AssertUnwindSafe(|| rows(image, options, out)));
    match (written, failed.take()) {
        (_, Some(error)) => Err(ImageError::Io(error)),
        (Ok(written), None) => Ok(written?),
        (Err(panic), None) => match panic.downcast_ref::<String>().and_then(|text| text.strip_prefix(LIBRARYS)) {
            Some(text) => Err(ImageError::encoding(Format::Jpeg, text)),
            None => resume_unwind(panic),
        },
    }
}

fn rows(image: &Image, options: &SaveOptions, out: impl Write) -> io::Result<()> {
    let mut started = settings(image, options).start_compress(out)?;
    let metadata = metadata(image, options, image.mode());
    if let Some(exif) = metadata.exif {
        started.write_marker(Marker::APP(1), &[b"Exif\0\0", exif].concat());
    }
    if let Some(icc) = metadata.icc {
        let parts = icc.chunks(PROFILE_PART);
        let count = parts.len() as u8;
        for (number, part) in (1..).zip(parts) {
            started.write_marker(Marker::APP(2), &[b"ICC_PROFILE\0", &[number, count][..], part].concat());
        }
    }
    let mut inks = Vec::new();
    for row in image.rows() {
        if image.mode() == Mode::CMYK {
            // Adobe's way: 255 is no ink.
            inks.clear();
            inks.extend(row.iter().map(|ink| 255 - ink));
            started.write_scanlines(&inks)?;
        } else {
            started.write_scanlines(row)?;
        }
    }
    started.finish().map(drop)
}

fn settings(image: &Image, options: &SaveOptions) -> Compress {
    let mut settings = Compress::new(match image.mode() {
        Mode::L => ColorSpace::JCS_GRAYSCALE,
        // Inks are as sharp and as fine as each other, unless more is said.
        Mode::CMYK => ColorSpace::JCS_CMYK,
        _ => ColorSpace::JCS_RGB,
    });
    settings.set_fastest_defaults();
    settings.set_size(image.width() as usize, image.height() as usize);
    if options.quality >= LEAST_PLAIN_QUALITY {
        settings.set_quality(options.quality.into());
    } else {
        let quality = f32::from(options.quality);
        settings.set_luma_qtable(&AnnexK_Luma.scaled(quality, quality));
        settings.set_chroma_qtable(&AnnexK_Chroma.scaled(quality, quality));
    }
    if image.mode() == Mode::RGB {
        let sides = match options.subsampling {
            Subsampling::Full => (1, 1),
            Subsampling::HalfWidth => (2, 1),
            Subsampling::Half => (2, 2),
        };
        settings.set_chroma_sampling_pixel_sizes(sides, sides);
    }
    settings.set_optimize_coding(options.optimized);
    if options.progressive {
        settings.set_progressive_mode();
    }
    settings
}

/// Bytes that the library takes for itself where it goes over the picture more than once: the coefficients, two bytes
/// each, and those again from before they were rounded, for a search that is off but has its room. Else some rows.
fn bytes_beside(image: &Image, options: &SaveOptions) -> u64 {
    if !options.progressive && !options.optimized {
        return u64::from(image.width()) * 64;
    }
    let bytes = match (image.mode(), options.subsampling) {
        (Mode::L, _) => 4,
        (Mode::CMYK, _) => 16,
        (_, Subsampling::Full) => 12,
        (_, Subsampling::HalfWidth) => 8,
        (_, Subsampling::Half) => 6,
    };
    padded_samples(image) * bytes
}
