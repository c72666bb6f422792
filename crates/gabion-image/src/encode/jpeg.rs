//! JPEG, row by row.

use std::io::Write;

use jpeg_encoder::{Encoder, EncodingError, ImageBuffer, JpegColorType, SamplingFactor};

use super::{SaveOptions, Subsampling};
use crate::error::{ImageError, Result};
use crate::format::Format;
use crate::image::Image;
use crate::mode::Mode;

pub fn write(image: &Image, options: &SaveOptions, out: &mut dyn Write) -> Result<()> {
    let mut encoder = Encoder::new(out, options.quality);
    encoder.set_sampling_factor(match options.subsampling {
        Subsampling::Full => SamplingFactor::F_1_1,
        Subsampling::HalfWidth => SamplingFactor::F_2_1,
        Subsampling::Half => SamplingFactor::F_2_2,
    });
    encoder.set_progressive(options.progressive);
    encoder.set_optimized_huffman_tables(options.optimized);
    if options.metadata {
        let metadata = image.metadata();
        if let Some(exif) = &metadata.exif {
            encoder.add_exif_metadata(exif).map_err(fault)?;
        }
        if let Some(icc) = &metadata.icc {
            encoder.add_icc_profile(icc).map_err(fault)?;
        }
    }
    encoder.encode_image(Rows(image)).map_err(fault)
}

fn fault(error: EncodingError) -> ImageError {
    match error {
        EncodingError::IoError(error) => ImageError::Io(error),
        error => ImageError::encoding(Format::Jpeg, error),
    }
}

/// Rows as the encoder wants them: one list for each component.
struct Rows<'a>(&'a Image);

impl ImageBuffer for Rows<'_> {
    fn get_jpeg_color_type(&self) -> JpegColorType {
        match self.0.mode() {
            Mode::L | Mode::LA => JpegColorType::Luma,
            Mode::RGB | Mode::RGBA => JpegColorType::Ycbcr,
            Mode::CMYK => JpegColorType::Cmyk,
        }
    }

    fn width(&self) -> u16 {
        self.0.width() as u16
    }

    fn height(&self) -> u16 {
        self.0.height() as u16
    }

    fn fill_buffers(&self, y: u16, buffers: &mut [Vec<u8>; 4]) {
        let row = self.0.row(y.into()).unwrap_or_default();
        let [first, second, third, fourth] = buffers;
        match self.0.mode() {
            Mode::L | Mode::LA => first.extend_from_slice(row),
            Mode::RGB | Mode::RGBA => {
                let pixels = || row.as_chunks::<3>().0.iter().map(|rgb| rgb.map(i32::from));
                first.extend(pixels().map(|rgb| weigh(rgb, [19595, 38470, 7471], 0)));
                second.extend(pixels().map(|rgb| weigh(rgb, [-11059, -21709, 32768], 128)));
                third.extend(pixels().map(|rgb| weigh(rgb, [32768, -27439, -5329], 128)));
            }
            Mode::CMYK => {
                // Adobe's way: 255 is no ink.
                for (channel, component) in [first, second, third, fourth].into_iter().enumerate() {
                    component.extend(row.as_chunks::<4>().0.iter().map(|pixel| 255 - pixel[channel]));
                }
            }
        }
    }
}

/// A component by its weights in 16 fractional bits: JFIF's conversion, ITU-R BT.601 at full range. Half a step is rounded
/// down, so that no sum exceeds 255.
#[inline(always)]
fn weigh([r, g, b]: [i32; 3], [of_r, of_g, of_b]: [i32; 3], middle: i32) -> u8 {
    ((of_r * r + of_g * g + of_b * b + (middle << 16) + 0x7FFF) >> 16) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_are_within_rounding_of_their_definition() {
        for r in (0..=255).step_by(5) {
            for g in (0..=255).step_by(5) {
                for b in (0..=255).step_by(5) {
                    let exact = |of: [f64; 3]| of[0] * f64::from(r) + of[1] * f64::from(g) + of[2] * f64::from(b);
                    let near = |got: u8, exact: f64| (f64::from(got) - exact).abs() < 0.51;
                    assert!(near(weigh([r, g, b], [19595, 38470, 7471], 0), exact([0.299, 0.587, 0.114])));
                    let blue = exact([-0.168_736, -0.331_264, 0.5]) + 128.0;
                    assert!(near(weigh([r, g, b], [-11059, -21709, 32768], 128), blue), "{r} {g} {b}");
                    let red = exact([0.5, -0.418_688, -0.081_312]) + 128.0;
                    assert!(near(weigh([r, g, b], [32768, -27439, -5329], 128), red), "{r} {g} {b}");
                }
            }
        }
    }
}
