//! JPEG at its full size against `libjpeg`, in the ways that components may lie in a scan.

use rusty_jpeg::encode::{ColorType, Encoder, SamplingFactor};

use super::{assert_same, picture, pool, psnr};
use crate::assembly::Assembly;
use crate::decode;
use crate::{Format, Image, Limits, Mode, OpenOptions, Resampling, SaveOptions};

fn encoded(image: &Image, sampling: SamplingFactor, interval: u16, quality: u8) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes, quality);
    encoder.set_sampling_factor(sampling);
    encoder.set_restart_interval(interval);
    let color = if image.mode() == Mode::L { ColorType::Luma } else { ColorType::Rgb };
    let (width, height) = (image.width() as u16, image.height() as u16);
    encoder.encode(&image.to_bytes().unwrap(), width, height, color).unwrap();
    bytes
}

/// What `libjpeg` makes of it.
fn by_libjpeg(pool: &gabion_blocks::Pool, bytes: &[u8], mode: Mode) -> Image {
    let decoder = mozjpeg::Decompress::new_mem(bytes).unwrap();
    let started = match mode {
        Mode::L => decoder.grayscale(),
        Mode::CMYK => decoder.to_colorspace(mozjpeg::ColorSpace::JCS_CMYK),
        _ => decoder.rgb(),
    };
    let mut started = started.unwrap();
    let (width, height) = (started.width() as u32, started.height() as u32);
    let mut image = Image::blank(pool, mode, width, height).unwrap();
    for row in image.rows_mut() {
        started.read_scanlines_into(row).unwrap();
    }
    image
}

/// What the planes make, which are taken for other sizes.
fn by_planes(pool: &gabion_blocks::Pool, bytes: &[u8]) -> Image {
    let mut decoder = decode::begin(bytes, &Limits::default()).unwrap();
    let (size, layers) = ((decoder.header().width, decoder.header().height), decoder.header().layers.clone());
    let mut assembly = Assembly::new(pool, &layers, size, layers.mode(), Resampling::default()).unwrap();
    decode::run(&mut *decoder, pool, &mut assembly, false).unwrap();
    assembly.into_image()
}

#[test]
fn grey_is_what_libjpeg_makes_of_it() {
    let pool = pool();
    for size in [(160, 120), (8, 8), (97, 61), (5, 3)] {
        let image = picture(&pool, Mode::L, size.0, size.1);
        for quality in [30, 75, 100] {
            let bytes = encoded(&image, SamplingFactor::F_1_1, 0, quality);
            let theirs = by_libjpeg(&pool, &bytes, Mode::L);
            let opened = Image::decode(&pool, &bytes, &OpenOptions::default()).unwrap();
            for ours in [opened, by_planes(&pool, &bytes)] {
                let worst = ours.rows().flatten().zip(theirs.rows().flatten()).map(|(a, b)| a.abs_diff(*b)).max();
                assert!(worst <= Some(2), "{size:?} {quality}: {worst:?}");
            }
        }
    }
}

#[test]
fn colours_are_what_libjpeg_makes_of_them_however_they_lie() {
    let pool = pool();
    for sampling in [SamplingFactor::F_1_1, SamplingFactor::F_2_1, SamplingFactor::F_1_2, SamplingFactor::F_2_2] {
        for size in [(160, 120), (97, 61), (5, 3)] {
            let image = picture(&pool, Mode::RGB, size.0, size.1);
            let bytes = encoded(&image, sampling, 0, 90);
            let theirs = by_libjpeg(&pool, &bytes, Mode::RGB);
            let opened = Image::decode(&pool, &bytes, &OpenOptions::default()).unwrap();
            for ours in [opened, by_planes(&pool, &bytes)] {
                assert!(psnr(&ours, &theirs) > 36.0, "{sampling:?} {size:?}: {}", psnr(&ours, &theirs));
            }
        }
    }
}

#[test]
fn restarts_change_nothing() {
    let pool = pool();
    for mode in [Mode::L, Mode::RGB] {
        let image = picture(&pool, mode, 203, 77);
        for sampling in [SamplingFactor::F_1_1, SamplingFactor::F_2_2] {
            let plain = encoded(&image, sampling, 0, 85);
            for interval in [1, 2, 7, 1000] {
                let bytes = encoded(&image, sampling, interval, 85);
                for max_size in [None, Some((60, 60)), Some((20, 20))] {
                    let options = OpenOptions { max_size, ..OpenOptions::default() };
                    let open = |bytes: &[u8]| Image::decode(&pool, bytes, &options).unwrap();
                    assert_same(&open(&bytes), &open(&plain));
                }
            }
        }
    }
}

/// `libjpeg` knows sides of up to 65,500 only, and no planes of two thirds of others.
#[test]
fn what_libjpeg_does_not_know_is_read_and_written_all_the_same() {
    let pool = pool();
    for (width, height) in [(65_500, 1), (65_501, 1), (65_535, 2), (1, 65_535)] {
        let image = picture(&pool, Mode::RGB, width, height);
        let mut file = Vec::new();
        image.encode(Format::Jpeg, &SaveOptions::default(), &mut file).unwrap();
        let open = |max_size| {
            let options = OpenOptions { max_size, ..OpenOptions::default() };
            Image::decode(&pool, &file, &options).unwrap()
        };
        assert!(psnr(&open(None), &image) > 20.0);
        assert_eq!(open(Some((4000, 4000))).size(), if width > 1 { (4000, 1) } else { (1, 4000) });
    }
    let image = picture(&pool, Mode::RGB, 96, 96);
    let mut file = encoded(&image, SamplingFactor::F_1_2, 0, 90);
    let frame = file.windows(2).position(|pair| pair == [0xFF, 0xC0]).unwrap();
    let sampling = [frame + 11, frame + 14, frame + 17].map(|at| file[at]);
    assert_eq!(sampling, [0x12, 0x11, 0x11]);
    // As if luma had three rows of blocks where colours have two: nonsense to look at, but within the format.
    for (at, factors) in [(frame + 11, 0x13), (frame + 14, 0x12), (frame + 17, 0x12)] {
        file[at] = factors;
    }
    let open = |max_size| {
        let options = OpenOptions { max_size, partly: true, ..OpenOptions::default() };
        Image::decode(&pool, &file, &options).unwrap().size()
    };
    assert_eq!([open(None), open(Some((40, 40))), open(Some((6, 6)))], [(96, 96), (40, 40), (6, 6)]);
}

/// The encoder would give three of four the steps of colours, which are coarser.
#[test]
fn each_ink_is_as_fine_as_a_grey_picture() {
    let pool = pool();
    let grey = picture(&pool, Mode::L, 160, 120);
    let inks: Vec<u8> = grey.rows().flatten().flat_map(|&grey| [255 - grey; 4]).collect();
    let inks = Image::from_bytes(&pool, Mode::CMYK, 160, 120, &inks).unwrap();
    for quality in [1, 30, 75, 100] {
        let options = SaveOptions { quality, ..SaveOptions::default() };
        let [grey, inks] = [&grey, &inks].map(|image| {
            let mut bytes = Vec::new();
            image.encode(Format::Jpeg, &options, &mut bytes).unwrap();
            by_libjpeg(&pool, &bytes, image.mode())
        });
        for (y, (inks, grey)) in inks.rows().zip(grey.rows()).enumerate() {
            for (ink, grey) in inks.as_chunks::<4>().0.iter().zip(grey) {
                assert_eq!(ink, &[*grey; 4], "{quality}: row {y}");
            }
        }
    }
}
