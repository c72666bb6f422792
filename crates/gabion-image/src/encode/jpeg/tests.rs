//! What both libraries write.

use std::io::ErrorKind;

use super::*;
use crate::encode::Subsampling;
use crate::encode::check::{MOST_PROFILE, PROFILE_PART};
use crate::tests::{picture, pool, psnr};
use crate::{Format, ImageError, Mode, OpenOptions};

type Writer = fn(&Image, &SaveOptions, &mut dyn Write) -> Result<()>;
const WRITERS: [Writer; 2] = [mozjpeg::write, rusty::write];

fn written(write: Writer, image: &Image, options: &SaveOptions) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(image, options, &mut bytes).unwrap();
    bytes
}

/// Whether a file was built with an assembler makes no difference to whoever looks at it.
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
                    assert!(progressive || one.abs_diff(other) < 256 + one / 32, "{mode} {options:?}: {one} {other}");
                }
            }
        }
    }
}

#[test]
fn what_goes_wrong_at_the_target_is_told_as_it_went_wrong() {
    struct Target {
        left: usize,
        panics: bool,
    }
    impl Write for Target {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            if self.left < bytes.len() {
                assert!(!self.panics, "the target's own");
                return Err(std::io::Error::new(std::io::ErrorKind::StorageFull, "full"));
            }
            self.left -= bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let image = picture(&pool(), Mode::RGB, 640, 480);
    for write in WRITERS {
        for options in [false, true].map(|progressive| SaveOptions { progressive, ..SaveOptions::default() }) {
            let length = written(write, &image, &options).len();
            for left in [0, 1, length / 2, length - 1] {
                let attempt = |panics| {
                    let mut target = Target { left, panics };
                    let work = || write(&image, &options, &mut target);
                    std::panic::catch_unwind(std::panic::AssertUnwindSafe(work))
                };
                let error = attempt(false).unwrap().unwrap_err();
                let kind = |error| matches!(error, ImageError::Io(error) if error.kind() == ErrorKind::StorageFull);
                assert!(kind(error), "{left} of {length}");
                let panic = attempt(true).unwrap_err();
                assert_eq!(panic.downcast_ref::<&str>(), Some(&"the target's own"), "{left} of {length}");
            }
        }
    }
}

#[test]
fn profiles_of_several_parts_come_back() {
    let pool = pool();
    let mut image = picture(&pool, Mode::RGB, 30, 20);
    for bytes in [PROFILE_PART, PROFILE_PART + 1, 3 * PROFILE_PART] {
        let icc: Vec<u8> = (0..bytes).map(|i| (i * 7 % 251) as u8).collect();
        image.metadata_mut().icc = Some(icc);
        for write in WRITERS {
            let file = written(write, &image, &SaveOptions::default());
            let back = Image::decode(&pool, &file, &OpenOptions::default()).unwrap();
            assert_eq!(back.metadata().icc, image.metadata().icc);
        }
    }
    image.metadata_mut().icc = Some(vec![0; MOST_PROFILE + 1]);
    let mut bytes = Vec::new();
    let refused = image.encode(Format::Jpeg, &SaveOptions::default(), &mut bytes);
    assert!(matches!(refused, Err(ImageError::Setting { .. })) && bytes.is_empty());
}

/// Its coefficients are not kept from one pass to the next.
#[test]
fn without_an_assembler_the_best_codes_take_no_memory_of_the_size_of_the_picture() {
    let mut settings = gabion_blocks::Settings::default();
    settings.total_limit = 8 << 20;
    let pool = gabion_blocks::Pool::new(gabion_blocks::system(), settings).unwrap();
    let image = picture(&pool, Mode::RGB, 1024, 1024);
    written(rusty::write, &image, &SaveOptions { optimized: true, ..SaveOptions::default() });
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
        for (progressive, write) in [false, true].into_iter().flat_map(|scans| WRITERS.map(|write| (scans, write))) {
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
