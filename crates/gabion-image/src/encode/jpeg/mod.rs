//! JPEG, row by row; where it is written in more than one scan, of coefficients.
//!
//! Two libraries, by measurement: `mozjpeg` takes half of the time if it was built with SIMD, and three times as long
//! without. `rusty_jpeg` has SIMD without an assembler, and knows longer sides.

mod mozjpeg;

mod rusty;

use std::io::Write;

use super::{SaveOptions, metadata};
use crate::error::Result;
use crate::image::Image;
use crate::limits::LIBJPEGS_LONGEST_SIDE;
use crate::simd::JPEG_SIMD;

pub fn write(image: &Image, options: &SaveOptions, out: &mut dyn Write) -> Result<()> {
    if JPEG_SIMD && image.width().max(image.height()) <= LIBJPEGS_LONGEST_SIDE {
        mozjpeg::write(image, options, out)
    } else {
        rusty::write(image, options, out)
    }
}

/// The picture's samples, and room to whole blocks at its edges.
fn padded_samples(image: &Image) -> u64 {
    let (width, height) = image.size();
    u64::from(width.next_multiple_of(16)) * u64::from(height.next_multiple_of(16))
}

#[cfg(test)]
mod tests;
