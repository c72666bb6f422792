//! JPEG at its full size against `libjpeg`, in the ways that components may lie in a scan.

use rusty_jpeg::encode::{ColorType, Encoder, SamplingFactor};

use super::{assert_same, picture, pool, psnr};
use crate::assembly::Assembly;
use crate::decode;
use crate::sides::Layers;
use crate::simd::JPEG_SIMD;
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

/// What is decoded for other sizes: the planes, where they are right.
fn by_planes(pool: &gabion_blocks::Pool, bytes: &[u8]) -> Image {
    let mut decoder = decode::begin(bytes, crate::Formats::ALL, &Limits::default()).unwrap();
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
            for interval in [1, 2, 7, 13, 1000] {
                let bytes = encoded(&image, sampling, interval, 85);
                for max_size in [None, Some((160, 160)), Some((60, 60)), Some((20, 20))] {
                    let options = OpenOptions { max_size, ..OpenOptions::default() };
                    let [ours, plain] = [&bytes, &plain].map(|bytes| Image::decode(&pool, bytes, &options).unwrap());
                    // Where rows end between restarts, nothing is made of planes.
                    match max_size {
                        Some((20, _)) => assert_same(&ours, &plain),
                        None if JPEG_SIMD => assert_same(&ours, &plain),
                        _ => assert!(psnr(&ours, &plain) > 36.0, "{mode} {interval}: {}", psnr(&ours, &plain)),
                    }
                }
            }
        }
    }
}

/// A page of few words: most of its blocks take a few bits.
fn page(pool: &gabion_blocks::Pool, mode: Mode, width: u32, height: u32) -> Image {
    let mut image = Image::new(pool, mode, width, height, &[250, 245, 235][..mode.channels()]).unwrap();
    for (y, row) in image.rows_mut().enumerate() {
        for (x, pixel) in row.chunks_exact_mut(mode.channels()).enumerate() {
            if (x / 90 + y / 40) % 5 == 0 && (x + y / 2) % 9 < 3 {
                pixel.fill(40);
            }
        }
    }
    image
}

/// A file whose components have a scan each, made of files of one component. `factors` are those of luma, `intervals`
/// what is said of restarts before each scan.
fn apart(files: [&[u8]; 3], factors: u8, size: (u16, u16), intervals: [Option<u16>; 3]) -> Vec<u8> {
    let luma = files[0];
    let segment = |file: &[u8], marker: u8| {
        let at = file.windows(2).position(|pair| pair == [0xFF, marker]).unwrap();
        (at, at + 2 + usize::from(u16::from_be_bytes([file[at + 2], file[at + 3]])))
    };
    let (frame, scan) = (segment(luma, 0xC0), segment(luma, 0xDA));
    let (height, width) = (size.1.to_be_bytes(), size.0.to_be_bytes());
    let mut file = [&luma[..frame.0], &[0xFF, 0xC0, 0, 17, 8], &height, &width, &[3, 1, factors, 0]].concat();
    file.extend([2, 0x11, 0, 3, 0x11, 0]);
    file.extend(&luma[frame.1..scan.0]);
    for (id, (part, interval)) in (1..).zip(files.into_iter().zip(intervals)) {
        if let Some(interval) = interval {
            file.extend([&[0xFF, 0xDD, 0, 4][..], &interval.to_be_bytes()].concat());
        }
        file.extend([0xFF, 0xDA, 0, 8, 1, id, 0, 0, 63, 0]);
        file.extend(&part[segment(part, 0xDA).1..part.len() - 2]);
    }
    [&file[..], &[0xFF, 0xD9]].concat()
}

/// Opens it in sizes for which planes are decoded, and compares that with what `libjpeg` makes of it.
#[track_caller]
fn assert_read_right(pool: &gabion_blocks::Pool, bytes: &[u8], mode: Mode) {
    let theirs = by_libjpeg(pool, bytes, mode);
    let (width, height) = theirs.size();
    for (most, scaled) in [((width * 4 / 5, height), true), ((width / 3, height), false)] {
        let options = OpenOptions { max_size: Some(most), scaled, ..OpenOptions::default() };
        let ours = Image::decode(pool, bytes, &options).unwrap();
        let theirs = theirs.resize(ours.width(), ours.height(), options.resampling).unwrap();
        assert!(psnr(&ours, &theirs) > 30.0, "{mode} {most:?}: {}", psnr(&ours, &theirs));
    }
}

/// Whether planes are decoded for a size that is little smaller.
fn has_planes(bytes: &[u8]) -> bool {
    let mut decoder = decode::begin(bytes, crate::Formats::ALL, &Limits::default()).unwrap();
    decoder.shrink((f64::INFINITY, f64::INFINITY));
    matches!(decoder.header().layers, Layers::Planes(_))
}

/// The library that gives planes throws away what is left of a row that ends shortly before a restart.
#[test]
fn rows_may_end_anywhere_between_restarts() {
    let pool = pool();
    for (mode, width) in [(Mode::L, 640), (Mode::RGB, 640), (Mode::L, 333), (Mode::RGB, 24)] {
        let image = page(&pool, mode, width, 240);
        for (sampling, side) in [(SamplingFactor::F_1_1, 8), (SamplingFactor::F_2_1, 16), (SamplingFactor::F_2_2, 16)] {
            let units = width.div_ceil(if mode == Mode::L { 8 } else { side });
            for interval in [1, 3, 7, 16, 33, 3 * units].into_iter().chain([units]) {
                let bytes = encoded(&image, sampling, interval as u16, 75);
                assert_read_right(&pool, &bytes, mode);
                if mode == Mode::RGB {
                    assert_eq!(has_planes(&bytes), units % interval == 0, "{sampling:?} {width} {interval}");
                }
            }
        }
    }
}

#[test]
fn rows_that_libjpeg_does_not_know_may_end_anywhere_between_restarts() {
    let pool = pool();
    let image = page(&pool, Mode::RGB, 65_528, 48);
    for sampling in [SamplingFactor::F_1_1, SamplingFactor::F_2_2] {
        let plain = encoded(&image, sampling, 0, 75);
        for interval in [1, 7, 16, 5000] {
            let bytes = encoded(&image, sampling, interval, 75);
            for max_size in [None, Some((40_000, 48))] {
                let options = OpenOptions { max_size, ..OpenOptions::default() };
                let [ours, plain] = [&bytes, &plain].map(|bytes| Image::decode(&pool, bytes, &options).unwrap());
                assert_same(&ours, &plain);
            }
        }
    }
}

#[test]
fn each_scan_has_rows_and_restarts_of_its_own() {
    let pool = pool();
    // Luma has 14 blocks in a row, and colours 7.
    let file = |scan: usize, interval: u16| {
        let side = if scan == 0 { 112 } else { 56 };
        let mut image = page(&pool, Mode::L, side, side);
        if scan > 0 {
            image.rows_mut().flatten().for_each(|sample| *sample = 112 + *sample / 8);
        }
        encoded(&image, SamplingFactor::F_1_1, interval, 75)
    };
    for (intervals, planes) in [
        ([None; 3], true),
        ([Some(1), None, None], true),
        ([Some(7), None, None], true),
        ([Some(14), None, None], false),
        ([Some(3), None, None], false),
        ([None, Some(3), None], false),
        ([None, None, Some(3)], false),
        ([Some(5), Some(0), None], false),
        ([Some(0), Some(7), Some(1)], true),
    ] {
        let kept = |scan: usize| intervals[..=scan].iter().rev().find_map(|interval| *interval).unwrap_or(0);
        let files = [0, 1, 2].map(|scan| file(scan, kept(scan)));
        let bytes = apart(files.each_ref().map(Vec::as_slice), 0x22, (112, 112), intervals);
        assert_eq!(has_planes(&bytes), planes, "{intervals:?}");
        assert_read_right(&pool, &bytes, Mode::RGB);
    }
}

/// A segment behind the first two bytes.
fn with_segment(file: &[u8], marker: u8, body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u16 + 2).to_be_bytes();
    [&file[..2], &[0xFF, marker], &length, body, &file[2..]].concat()
}

/// The library that gives planes is stricter than others in what it does not need.
#[test]
fn what_libjpeg_passes_over_hinders_no_size() {
    let pool = pool();
    for mode in [Mode::L, Mode::RGB] {
        let file = encoded(&picture(&pool, mode, 200, 120), SamplingFactor::F_2_2, 0, 85);
        for (marker, body) in [
            (0xE2, &b"ICC_PROFILE\0\0\0profile"[..]),
            (0xE2, b"ICC_PROFILE\0\x03\x02profile"),
            (0xEE, b"Adobe\0\x64\0\0\0\0\x03"),
            (0xEE, b"Adobe\0\x64"),
            (0xE1, b"http://ns.adobe.com/xmp/extension/\0short"),
        ] {
            assert_read_right(&pool, &with_segment(&file, marker, body), mode);
        }
        assert_read_right(&pool, &file, mode);
    }
}

#[test]
fn planes_of_a_third_are_read() {
    let pool = pool();
    let file = |width: u32, height: u32| encoded(&page(&pool, Mode::L, width, height), SamplingFactor::F_1_1, 0, 75);
    for (factors, (width, height)) in [(0x31, (288, 96)), (0x13, (96, 288)), (0x33, (288, 288))] {
        let (luma, color) = (file(width, height), file(96, 96));
        let bytes = apart([&luma, &color, &color], factors, (width as u16, height as u16), [None; 3]);
        assert_read_right(&pool, &bytes, Mode::RGB);
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
        let options = OpenOptions { max_size, partial: true, ..OpenOptions::default() };
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
