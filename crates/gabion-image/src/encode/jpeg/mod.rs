//! JPEG, row by row.
//!
//! Two libraries, by measurement: `mozjpeg` takes half of the time, if it was built with SIMD, and three times as long without.
//! `rusty_jpeg` has SIMD without an assembler.

mod assembled;

mod portable;

use std::io::Write;

use super::{SaveOptions, metadata};
use crate::error::Result;
use crate::image::Image;
use crate::wide::JPEG_SIMD;

pub fn write(image: &Image, options: &SaveOptions, out: &mut dyn Write) -> Result<()> {
    if JPEG_SIMD { assembled::write(image, options, out) } else { portable::write(image, options, out) }
}

/// The picture's samples, and room to whole blocks at its edges.
fn padded_samples(image: &Image) -> u64 {
    let (width, height) = image.size();
    u64::from(width.next_multiple_of(16)) * u64::from(height.next_multiple_of(16))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::Subsampling;
    use crate::tests::{picture, pool, psnr};
    use crate::{Mode, OpenOptions};

    type Writer = fn(&Image, &SaveOptions, &mut dyn Write) -> Result<()>;
    const WRITERS: [Writer; 2] = [assembled::write, portable::write];

    fn written(write: Writer, image: &Image, options: &SaveOptions) -> Vec<u8> {
        let mut bytes = Vec::new();
        write(image, options, &mut bytes).unwrap();
        bytes
    }

    /// Whether a file was built with an assembler makes no difference to who looks at it.
    #[test]
    fn both_write_the_same_picture() {
        let pool = pool();
        for mode in [Mode::L, Mode::RGB, Mode::CMYK] {
            let image = picture(&pool, mode, 83, 61);
            for quality in [1, 5, 23, 24, 50, 80, 100] {
                for subsampling in [Subsampling::Full, Subsampling::HalfWidth, Subsampling::Half] {
                    for (progressive, optimized) in [(false, false), (true, false), (false, true)] {
                        let options =
                            SaveOptions { quality, subsampling, progressive, optimized, ..SaveOptions::default() };
                        let files = WRITERS.map(|write| written(write, &image, &options));
                        let baseline = |file: &Vec<u8>| file.windows(2).any(|pair| pair == [0xFF, 0xC0]);
                        assert!(progressive || files.iter().all(baseline), "{mode} {options:?}");
                        let open = |file: &Vec<u8>| Image::decode(&pool, file, &OpenOptions::default()).unwrap();
                        let [one, other] = [open(&files[0]), open(&files[1])];
                        let likeness = psnr(&one, &other);
                        // Where steps are wide, what is rounded the other way is a step apart.
                        let least = if quality < 24 { 25.0 } else { 35.0 };
                        assert!(likeness > least, "{mode} {options:?}: {likeness}");
                        let [one, other] = files.map(|file| file.len());
                        assert!(
                            progressive || one.abs_diff(other) < 256 + one / 32,
                            "{mode} {options:?}: {one} {other}"
                        );
                    }
                }
            }
        }
    }

    /// The encoder would take each second pixel for two.
    #[test]
    fn colours_at_half_the_resolution_are_means() {
        let pool = pool();
        for (width, height) in [(64, 48), (33, 17), (1, 1), (2, 3)] {
            let mut image = Image::blank(&pool, Mode::RGB, width, height).unwrap();
            for (y, row) in image.rows_mut().enumerate() {
                for (x, pixel) in row.as_chunks_mut::<3>().0.iter_mut().enumerate() {
                    *pixel = if (x + y) % 2 == 0 { [220, 60, 40] } else { [20, 110, 200] };
                }
            }
            let options = SaveOptions { quality: 100, subsampling: Subsampling::Half, ..SaveOptions::default() };
            for (progressive, write) in [false, true].into_iter().flat_map(|scans| WRITERS.map(|write| (scans, write)))
            {
                let bytes = written(write, &image, &SaveOptions { progressive, ..options.clone() });
                let back = Image::decode(&pool, &bytes, &OpenOptions::default()).unwrap();
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
