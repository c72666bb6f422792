//! JPEG, row by row.

use std::io::{BufWriter, Write};

use jpeg_encoder::{Encoder, EncodingError, ImageBuffer, JpegColorType, SamplingFactor};

use super::{SaveOptions, Subsampling, metadata};
use crate::error::{ImageError, Result};
use crate::format::Format;
use crate::image::Image;
use crate::limits::room_beside;
use crate::mode::Mode;
use crate::wide::{Kernel, wide};

pub fn write(image: &Image, options: &SaveOptions, out: &mut dyn Write) -> Result<()> {
    let _room = room_beside(image.pool(), bytes_beside(image, options))?;
    // The encoder writes eight bytes at a time.
    let mut out = BufWriter::new(out);
    let mut encoder = Encoder::new(&mut out, options.quality);
    // Inks are as sharp as each other.
    let subsampling = if image.mode() == Mode::CMYK { Subsampling::Full } else { options.subsampling };
    encoder.set_sampling_factor(match subsampling {
        Subsampling::Full => SamplingFactor::F_1_1,
        Subsampling::HalfWidth => SamplingFactor::F_2_1,
        Subsampling::Half => SamplingFactor::F_2_2,
    });
    encoder.set_progressive(options.progressive);
    encoder.set_optimized_huffman_tables(options.optimized);
    let metadata = metadata(image, options, image.mode());
    if let Some(exif) = metadata.exif {
        encoder.add_exif_metadata(exif).map_err(fault)?;
    }
    if let Some(icc) = metadata.icc {
        encoder.add_icc_profile(icc).map_err(fault)?;
    }
    encoder.encode_image(Rows { image, subsampling }).map_err(fault)?;
    Ok(out.flush()?)
}

/// Bytes that the encoder takes for itself, where it wants all of the picture before it writes: each sample, and room for two
/// bytes of its coefficient. Else it takes some rows.
fn bytes_beside(image: &Image, options: &SaveOptions) -> u64 {
    let (width, height) = image.size();
    let samples = u64::from(width.next_multiple_of(16)) * u64::from(height.next_multiple_of(16));
    let whole = options.progressive || options.optimized;
    if whole { samples * image.mode().channels() as u64 * 3 } else { u64::from(width) * 64 }
}

fn fault(error: EncodingError) -> ImageError {
    match error {
        EncodingError::IoError(error) => ImageError::Io(error),
        error => ImageError::encoding(Format::Jpeg, error),
    }
}

/// Rows as the encoder wants them: one list for each component.
///
/// Of colours at half the resolution it takes the first of two samples, in the first of two rows. So these get what belongs
/// there, the mean of all that one sample stands for.
struct Rows<'a> {
    image: &'a Image,
    subsampling: Subsampling,
}

impl ImageBuffer for Rows<'_> {
    fn get_jpeg_color_type(&self) -> JpegColorType {
        match self.image.mode() {
            Mode::L | Mode::LA => JpegColorType::Luma,
            Mode::RGB | Mode::RGBA => JpegColorType::Ycbcr,
            Mode::CMYK => JpegColorType::Cmyk,
        }
    }

    fn width(&self) -> u16 {
        self.image.width() as u16
    }

    fn height(&self) -> u16 {
        self.image.height() as u16
    }

    fn fill_buffers(&self, y: u16, buffers: &mut [Vec<u8>; 4]) {
        let y = u32::from(y);
        let row = self.image.row(y).unwrap_or_default();
        let [first, second, third, fourth] = buffers;
        match self.image.mode() {
            Mode::L | Mode::LA => first.extend_from_slice(row),
            Mode::RGB | Mode::RGBA => {
                let width = self.image.width() as usize;
                let [luma, blue, red] = [first, second, third].map(|component| longer_by(component, width));
                wide(Luma { row, luma });
                let below = self.image.row(y + 1).unwrap_or(row);
                match self.subsampling {
                    Subsampling::Full => wide(Colors { row, blue, red }),
                    Subsampling::HalfWidth => wide(Halves { rows: [row, row], blue, red }),
                    // The last row stands for those below it, too, which the encoder makes up.
                    Subsampling::Half if y % 2 == 0 || y + 1 == self.image.height() => {
                        wide(Halves { rows: [row, below], blue, red });
                    }
                    Subsampling::Half => {}
                }
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

/// Brightness of a row.
struct Luma<'a> {
    row: &'a [u8],
    luma: &'a mut [u8],
}

impl Kernel for Luma<'_> {
    #[inline(always)]
    fn run(self) {
        for (luma, rgb) in self.luma.iter_mut().zip(self.row.as_chunks::<3>().0) {
            *luma = weigh::<16>(rgb.map(i32::from), OF_LUMA, 0);
        }
    }
}

/// Colours of a row.
struct Colors<'a> {
    row: &'a [u8],
    blue: &'a mut [u8],
    red: &'a mut [u8],
}

impl Kernel for Colors<'_> {
    #[inline(always)]
    fn run(self) {
        for ((blue, red), rgb) in self.blue.iter_mut().zip(self.red).zip(self.row.as_chunks::<3>().0) {
            *blue = weigh::<16>(rgb.map(i32::from), OF_BLUE, 128);
            *red = weigh::<16>(rgb.map(i32::from), OF_RED, 128);
        }
    }
}

/// Colours of two rows, means of two pixels of each.
struct Halves<'a> {
    rows: [&'a [u8]; 2],
    blue: &'a mut [u8],
    red: &'a mut [u8],
}

impl Kernel for Halves<'_> {
    #[inline(always)]
    fn run(self) {
        let [upper, lower] = self.rows.map(|row| row.as_chunks::<6>());
        let (blues, blue) = self.blue.as_chunks_mut::<2>();
        let (reds, red) = self.red.as_chunks_mut::<2>();
        for (((blue, red), upper), lower) in blues.iter_mut().zip(reds).zip(upper.0).zip(lower.0) {
            let sums = [0, 1, 2]
                .map(|c| i32::from(upper[c]) + i32::from(upper[c + 3]) + i32::from(lower[c]) + i32::from(lower[c + 3]));
            *blue = [weigh::<18>(sums, OF_BLUE, 128); 2];
            *red = [weigh::<18>(sums, OF_RED, 128); 2];
        }
        // A column that has no other beside it.
        if let ([blue], [red], &[r, g, b], &[s, h, c]) = (blue, red, upper.1, lower.1) {
            let sums = [(r, s), (g, h), (b, c)].map(|(upper, lower)| i32::from(upper) + i32::from(lower));
            (*blue, *red) = (weigh::<17>(sums, OF_BLUE, 128), weigh::<17>(sums, OF_RED, 128));
        }
    }
}

/// A component by its weights in 16 fractional bits: JFIF's conversion, ITU-R BT.601 at full range. With more `BITS` of sums of
/// pixels. Half a step is rounded down, so that nothing exceeds 255.
#[inline(always)]
fn weigh<const BITS: u32>([r, g, b]: [i32; 3], [of_r, of_g, of_b]: [i32; 3], middle: i32) -> u8 {
    ((of_r * r + of_g * g + of_b * b + (middle << BITS) + (1 << (BITS - 1)) - 1) >> BITS) as u8
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
                    assert!(near(weigh::<16>([r, g, b], OF_LUMA, 0), exact([0.299, 0.587, 0.114])));
                    let blue = exact([-0.168_736, -0.331_264, 0.5]) + 128.0;
                    assert!(near(weigh::<16>([r, g, b], OF_BLUE, 128), blue), "{r} {g} {b}");
                    let red = exact([0.5, -0.418_688, -0.081_312]) + 128.0;
                    assert!(near(weigh::<16>([r, g, b], OF_RED, 128), red), "{r} {g} {b}");
                    assert!(near(weigh::<18>([r * 4, g * 4, b * 4], OF_RED, 128), red), "{r} {g} {b}");
                }
            }
        }
    }

    /// The encoder would take each second pixel for two.
    #[test]
    fn colours_at_half_the_resolution_are_means() {
        let pool = gabion_blocks::Pool::global();
        for (width, height) in [(64, 48), (33, 17), (1, 1), (2, 3)] {
            let mut image = Image::blank(pool, Mode::RGB, width, height).unwrap();
            for (y, row) in image.rows_mut().enumerate() {
                for (x, pixel) in row.as_chunks_mut::<3>().0.iter_mut().enumerate() {
                    *pixel = if (x + y) % 2 == 0 { [220, 60, 40] } else { [20, 110, 200] };
                }
            }
            let options = SaveOptions { quality: 100, subsampling: Subsampling::Half, ..SaveOptions::default() };
            for progressive in [false, true] {
                let mut bytes = Vec::new();
                image.encode(Format::Jpeg, &SaveOptions { progressive, ..options.clone() }, &mut bytes).unwrap();
                let back = Image::decode(pool, &bytes, &crate::OpenOptions::default()).unwrap();
                let mean = |image: &Image, channel: usize| {
                    let all: Vec<f64> = image
                        .rows()
                        .flat_map(|row| row.as_chunks::<3>().0)
                        .map(|pixel| f64::from(pixel[channel]))
                        .collect();
                    all.iter().sum::<f64>() / all.len() as f64
                };
                if width > 2 {
                    for channel in 0..3 {
                        let (was, is) = (mean(&image, channel), mean(&back, channel));
                        assert!((was - is).abs() < 6.0, "{width} × {height} {progressive}, {channel}: {was} {is}");
                    }
                }
            }
        }
    }
}
