//! By `rusty_jpeg`.

use std::io::{BufWriter, Write};

use rusty_jpeg::encode::{Encoder, EncodingError, ImageBuffer, JpegColorType, QuantizationTableType, SamplingFactor};

use super::{SaveOptions, metadata, padded_samples};
use crate::convert::{BLOCK, deinterleave};
use crate::encode::Subsampling;
use crate::error::{ImageError, Result};
use crate::format::Format;
use crate::image::Image;
use crate::limits::room_beside;
use crate::mode::Mode;
use crate::simd::{Kernel, simd_dispatch};

pub fn write(image: &Image, options: &SaveOptions, out: &mut dyn Write) -> Result<()> {
    let _room = room_beside(image.pool(), bytes_beside(image, options))?;
    // The encoder writes eight bytes at a time.
    let mut out = BufWriter::new(out);
    let mut encoder = Encoder::new(&mut out, options.quality);
    if image.mode() == Mode::CMYK {
        // Inks are as sharp as each other, and as fine: the encoder would take three for colours.
        encoder.set_sampling_factor(SamplingFactor::F_1_1);
        encoder.set_quantization_tables(fine(options.quality), fine(options.quality));
    } else {
        encoder.set_sampling_factor(match options.subsampling {
            Subsampling::Full => SamplingFactor::F_1_1,
            Subsampling::HalfWidth => SamplingFactor::F_2_1,
            Subsampling::Half => SamplingFactor::F_2_2,
        });
    }
    encoder.set_progressive(options.progressive);
    encoder.set_optimized_huffman_tables(options.optimized);
    // The rows are gone through twice; nothing is kept in between.
    encoder.set_streaming_optimize(true);
    let metadata = metadata(image, options, image.mode());
    if let Some(exif) = metadata.exif {
        encoder.add_exif_metadata(exif).map_err(fault)?;
    }
    if let Some(icc) = metadata.icc {
        encoder.add_icc_profile(icc).map_err(fault)?;
    }
    encoder.encode_image(Rows(image)).map_err(fault)?;
    Ok(out.flush()?)
}

/// Bytes that the encoder takes for itself, where it wants all of the picture before it writes: each sample, and room
/// for two bytes of its coefficient. Else it takes some rows.
fn bytes_beside(image: &Image, options: &SaveOptions) -> u64 {
    if options.progressive {
        padded_samples(image) * image.mode().channels() as u64 * 3
    } else {
        u64::from(image.width()) * 64
    }
}

fn fault(error: EncodingError) -> ImageError {
    match error {
        EncodingError::IoError(error) => ImageError::Io(error),
        error => ImageError::encoding(Format::Jpeg, error),
    }
}

/// Steps of brightness: JPEG's example (ITU-T T.81, K.1), and `libjpeg`'s scale of qualities.
fn fine(quality: u8) -> QuantizationTableType {
    const STEPS: [[u16; 8]; 8] = [
        [16, 11, 10, 16, 24, 40, 51, 61],
        [12, 12, 14, 19, 26, 58, 60, 55],
        [14, 13, 16, 24, 40, 57, 69, 56],
        [14, 17, 22, 29, 51, 87, 80, 62],
        [18, 22, 37, 56, 68, 109, 103, 77],
        [24, 35, 55, 64, 81, 104, 113, 92],
        [49, 64, 78, 87, 103, 121, 120, 101],
        [72, 92, 95, 98, 112, 100, 103, 99],
    ];
    let quality = u32::from(quality.clamp(1, 100));
    let percent = if quality < 50 { 5000 / quality } else { 200 - quality * 2 };
    let mut steps = Box::new([0; 64]);
    for (scaled, step) in steps.iter_mut().zip(STEPS.as_flattened()) {
        *scaled = ((u32::from(*step) * percent + 50) / 100).clamp(1, 255) as u16;
    }
    QuantizationTableType::Custom(steps)
}

/// Rows as the encoder wants them: one list for each component, all at full resolution.
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
        let y = u32::from(y);
        let row = self.0.row(y).unwrap_or_default();
        let [first, second, third, fourth] = buffers;
        match self.0.mode() {
            Mode::L | Mode::LA => first.extend_from_slice(row),
            Mode::RGB | Mode::RGBA => {
                let width = self.0.width() as usize;
                let [luma, blue, red] = [first, second, third].map(|component| longer_by(component, width));
                simd_dispatch(Components { row, luma, blue, red });
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

/// The new end of a list.
fn longer_by(list: &mut Vec<u8>, count: usize) -> &mut [u8] {
    let before = list.len();
    list.resize(before + count, 0);
    &mut list[before..]
}

const OF_LUMA: [i32; 3] = [19595, 38470, 7471];
const OF_BLUE: [i32; 3] = [-11059, -21709, 32768];
const OF_RED: [i32; 3] = [32768, -27439, -5329];

/// Brightness and colours of a row.
struct Components<'a> {
    row: &'a [u8],
    luma: &'a mut [u8],
    blue: &'a mut [u8],
    red: &'a mut [u8],
}

impl Kernel for Components<'_> {
    #[inline(always)]
    fn run(self) {
        let [(luma, luma_rest), (blue, blue_rest), (red, red_rest)] =
            [self.luma, self.blue, self.red].map(|component| component.as_chunks_mut::<BLOCK>());
        let (row, row_rest) = self.row.as_chunks().0.as_chunks();
        for (((luma, blue), red), pixels) in luma.iter_mut().zip(blue).zip(red).zip(row) {
            let [r, g, b] = deinterleave(pixels);
            for at in 0..BLOCK {
                [luma[at], blue[at], red[at]] = components([r[at], g[at], b[at]]);
            }
        }
        for (((luma, blue), red), &pixel) in luma_rest.iter_mut().zip(blue_rest).zip(red_rest).zip(row_rest) {
            [*luma, *blue, *red] = components(pixel);
        }
    }
}

#[inline(always)]
fn components(rgb: [u8; 3]) -> [u8; 3] {
    let rgb = rgb.map(i32::from);
    [weigh(rgb, OF_LUMA, 0), weigh(rgb, OF_BLUE, 128), weigh(rgb, OF_RED, 128)]
}

/// A component by its weights in 16 fractional bits: JFIF's conversion, ITU-R BT.601 at full range. Half a step is
/// rounded down, so that nothing exceeds 255.
#[inline(always)]
fn weigh([r, g, b]: [i32; 3], [of_r, of_g, of_b]: [i32; 3], middle: i32) -> u8 {
    ((of_r * r + of_g * g + of_b * b + (middle << 16) + (1 << 15) - 1) >> 16) as u8
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
                    assert!(near(weigh([r, g, b], OF_LUMA, 0), exact([0.299, 0.587, 0.114])));
                    let blue = exact([-0.168_736, -0.331_264, 0.5]) + 128.0;
                    assert!(near(weigh([r, g, b], OF_BLUE, 128), blue), "{r} {g} {b}");
                    let red = exact([0.5, -0.418_688, -0.081_312]) + 128.0;
                    assert!(near(weigh([r, g, b], OF_RED, 128), red), "{r} {g} {b}");
                }
            }
        }
    }

    #[test]
    fn blocks_of_pixels_are_as_pixels_one_by_one() {
        for width in [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 5] {
            let pixels: Vec<[u8; 3]> =
                (0..width).map(|x| [x * 37, x * 5 + x * x, x * x / 3].map(|c| c as u8)).collect();
            let [mut luma, mut blue, mut red] = std::array::from_fn(|_| vec![0; width]);
            simd_dispatch(Components { row: pixels.as_flattened(), luma: &mut luma, blue: &mut blue, red: &mut red });
            for (x, &pixel) in pixels.iter().enumerate() {
                assert_eq!([luma[x], blue[x], red[x]], components(pixel), "pixel {x} of {width}");
            }
        }
    }
}
