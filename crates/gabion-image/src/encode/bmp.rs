//! Windows bitmaps, as a whole.

use std::io::Write;

use image::codecs::bmp::BmpEncoder;
use image::{ExtendedColorType, ImageError as Fault};

use super::whole::with_whole;
use crate::error::{ImageError, Result};
use crate::format::Format;
use crate::image::Image;
use crate::mode::Mode;

pub fn write(image: &Image, mut out: &mut dyn Write) -> Result<()> {
    let (mode, color) = match image.mode() {
        Mode::L => (Mode::L, ExtendedColorType::L8),
        Mode::RGB | Mode::CMYK => (Mode::RGB, ExtendedColorType::Rgb8),
        Mode::LA | Mode::RGBA => (Mode::RGBA, ExtendedColorType::Rgba8),
    };
    with_whole(image, mode, |whole| {
        BmpEncoder::new(&mut out).encode(whole, image.width(), image.height(), color).map_err(|error| match error {
            Fault::IoError(error) => ImageError::Io(error),
            error => ImageError::encoding(Format::Bmp, error),
        })
    })
}
