//! New sizes: against the filters by definition, streamed and not, with alpha.

use std::time::{Duration, Instant};

use super::{assert_same, picture, pool, psnr};
use crate::simd::JPEG_SIMD;
use crate::{Filter, Fit, Flip, Format, Image, Mode, OpenOptions, Resampling, SaveOptions, Subsampling, Turn};

/// One direction of a filter by its definition, in floating point.
fn filtered(samples: &[f64], new: usize, filter: Filter) -> Vec<f64> {
    let kernel = |x: f64| {
        let x = x.abs();
        let sinc = |x: f64| if x == 0.0 { 1.0 } else { (std::f64::consts::PI * x).sin() / (std::f64::consts::PI * x) };
        match filter {
            Filter::Bilinear => (1.0 - x).max(0.0),
            Filter::Bicubic if x < 1.0 => 1.5 * x.powi(3) - 2.5 * x.powi(2) + 1.0,
            Filter::Bicubic if x < 2.0 => -0.5 * x.powi(3) + 2.5 * x.powi(2) - 4.0 * x + 2.0,
            Filter::Lanczos3 if x < 3.0 => sinc(x) * sinc(x / 3.0),
            _ => 0.0,
        }
    };
    let scale = samples.len() as f64 / new as f64;
    let stretch = scale.max(1.0);
    (0..new)
        .map(|i| {
            let center = (i as f64 + 0.5) * scale;
            let weights: Vec<f64> = (0..samples.len()).map(|x| kernel((x as f64 + 0.5 - center) / stretch)).collect();
            let sum: f64 = weights.iter().sum();
            samples.iter().zip(&weights).map(|(sample, weight)| sample * weight).sum::<f64>() / sum
        })
        .collect()
}

/// A grey image in another size by definition, rounded between the directions and at the end.
fn by_definition(image: &Image, width: u32, height: u32, filter: Filter) -> Vec<u8> {
    let round = |samples: Vec<f64>| samples.into_iter().map(|sample| sample.round().clamp(0.0, 255.0));
    let old = (image.width() as usize, image.height() as usize);
    let mut tall = vec![vec![0.0; old.0]; height as usize];
    for x in 0..old.0 {
        let column: Vec<f64> = image.rows().map(|row| f64::from(row[x])).collect();
        for (y, sample) in round(filtered(&column, height as usize, filter)).enumerate() {
            tall[y][x] = sample;
        }
    }
    tall.iter().flat_map(|row| round(filtered(row, width as usize, filter))).map(|sample| sample as u8).collect()
}

#[test]
fn the_filter_alone_is_within_rounding_of_its_definition() {
    let pool = pool();
    let image = picture(&pool, Mode::L, 157, 119);
    for filter in [Filter::Bilinear, Filter::Bicubic, Filter::Lanczos3] {
        for (width, height) in [(40, 30), (157, 60), (33, 119), (200, 151), (314, 40), (1, 1), (157, 119)] {
            let got = image.resize(width, height, Resampling::exact(filter)).unwrap();
            got.validate().unwrap();
            let exact = by_definition(&image, width, height, filter);
            let worst = got.rows().flatten().zip(&exact).map(|(&a, &b)| a.abs_diff(b)).max().unwrap();
            assert!(worst <= 2, "{filter:?} {width} × {height}: {worst}");
        }
    }
}

#[test]
fn every_mode_is_filtered_channel_by_channel() {
    let pool = pool();
    for mode in [Mode::RGB, Mode::CMYK] {
        let image = picture(&pool, mode, 211, 150);
        for how in [Resampling::default(), Resampling::exact(Filter::Box), Resampling::exact(Filter::Nearest)] {
            let small = image.resize(50, 41, how).unwrap();
            for channel in 0..mode.channels() {
                let pick = |image: &Image| {
                    let (width, height) = image.size();
                    let bytes: Vec<u8> =
                        image.rows().flatten().skip(channel).step_by(mode.channels()).copied().collect();
                    Image::from_bytes(&pool, Mode::L, width, height, &bytes).unwrap()
                };
                let alone = pick(&image).resize(50, 41, how).unwrap();
                let worst =
                    alone.rows().flatten().zip(pick(&small).rows().flatten()).map(|(a, b)| a.abs_diff(*b)).max();
                assert!(worst <= Some(1), "{mode} {how:?}");
            }
        }
    }
}

#[test]
fn the_nearest_pixel_is_the_nearest() {
    let pool = pool();
    let image = picture(&pool, Mode::RGB, 97, 61);
    let small = image.resize(31, 200, Resampling::exact(Filter::Nearest)).unwrap();
    for y in 0..200 {
        for x in 0..31usize {
            let (old_x, old_y) =
                (((x as f64 + 0.5) * 97.0 / 31.0) as usize, ((f64::from(y) + 0.5) * 61.0 / 200.0) as u32);
            assert_eq!(small.row(y).unwrap()[x * 3..][..3], image.row(old_y).unwrap()[old_x * 3..][..3]);
        }
    }
}

/// A decoder's rows go another way than those of an image.
#[test]
fn the_nearest_pixels_are_those_of_a_picture_that_is_made_smaller_while_it_is_decoded() {
    let pool = pool();
    let how = Resampling::exact(Filter::Nearest);
    for mode in [Mode::L, Mode::LA, Mode::RGB, Mode::RGBA] {
        for (size, most) in [((97, 61), (31, 200)), ((1, 9), (1, 4)), ((300, 7), (299, 300)), ((64, 64), (64, 9))] {
            let image = picture(&pool, mode, size.0, size.1);
            let mut file = Vec::new();
            image.encode(Format::Png, &SaveOptions::default(), &mut file).unwrap();
            let options = OpenOptions { max_size: Some(most), resampling: how, ..OpenOptions::default() };
            let opened = Image::decode(&pool, &file, &options).unwrap();
            assert_same(&opened, &image.resize(opened.width(), opened.height(), how).unwrap());
        }
    }
}

#[test]
fn nearest_pixels_are_taken_over_across_seams() {
    let pool = pool();
    let image = picture(&pool, Mode::RGB, 700, 500);
    let large = image.resize(2100, 1500, Resampling::exact(Filter::Nearest)).unwrap();
    assert!(!large.is_contiguous());
    for (y, row) in (0..).zip(large.rows()) {
        let old = image.row(y / 3).unwrap().chunks(3);
        assert!(row.chunks(9).zip(old).all(|(new, old)| new == [old, old, old].concat()), "{y}");
    }
}

#[test]
fn boxes_first_cost_little_quality() {
    let pool = pool();
    let image = picture(&pool, Mode::RGB, 1023, 769);
    for (width, height) in [(150, 113), (99, 74), (333, 250)] {
        let exact = image.resize(width, height, Resampling::exact(Filter::Lanczos3)).unwrap();
        let boxes = image.resize(width, height, Resampling::default()).unwrap();
        assert!(psnr(&boxes, &exact) > 45.0, "{width}: {}", psnr(&boxes, &exact));
    }
}

#[test]
fn what_cannot_be_seen_does_not_colour_its_neighbours() {
    let pool = pool();
    let mut image = Image::new(&pool, Mode::RGBA, 200, 200, &[0, 255, 0, 0]).unwrap();
    let red = Image::new(&pool, Mode::RGBA, 101, 200, &[255, 0, 0, 255]).unwrap();
    image.paste(&red, 0, 0).unwrap();
    for how in [Resampling::default(), Resampling::exact(Filter::Bilinear)] {
        let small = image.resize(50, 50, how).unwrap();
        for pixel in small.rows().flat_map(|row| row.chunks(4)) {
            assert!(pixel[1] == 0 || pixel[3] == 0, "{pixel:?}");
            assert!(pixel[3] < 8 || pixel[0] > 240, "{pixel:?}");
        }
    }
}

#[test]
fn a_streamed_picture_is_the_one_that_was_decoded_first() {
    let pool = pool();
    for (mode, width, height) in
        [(Mode::RGB, 640, 427), (Mode::L, 511, 300), (Mode::CMYK, 320, 200), (Mode::RGBA, 333, 222)]
    {
        let image = picture(&pool, mode, width, height);
        for format in [Format::Jpeg, Format::Png, Format::Tiff] {
            let mut bytes = Vec::new();
            let options = SaveOptions { quality: 95, subsampling: Subsampling::Full, ..SaveOptions::default() };
            if image.encode(format, &options, &mut bytes).is_err() {
                continue;
            }
            let whole = Image::decode(&pool, &bytes, &OpenOptions::default()).unwrap();
            for size in [150, 61, 300] {
                let how = Resampling::default();
                let then = whole.thumbnail(size, size, how).unwrap();
                let full = OpenOptions { scaled: false, ..OpenOptions::thumbnail(size, size) };
                let streamed = Image::decode(&pool, &bytes, &full).unwrap();
                if format == Format::Jpeg && (mode == Mode::RGB || mode == Mode::L && JPEG_SIMD) {
                    // Planes are filtered before they become colours, and not after; with SIMD another library decodes
                    // them.
                    assert!(psnr(&streamed, &then) > 46.0, "{format} {mode} {size}: {}", psnr(&streamed, &then));
                } else {
                    assert_same(&streamed, &then);
                }
                let scaled = Image::decode(&pool, &bytes, &OpenOptions::thumbnail(size, size)).unwrap();
                assert!(psnr(&scaled, &then) > 32.0, "{format} {mode} {size}: {}", psnr(&scaled, &then));
            }
        }
    }
}

#[test]
fn a_mode_may_be_asked_for() {
    let pool = pool();
    let image = picture(&pool, Mode::RGB, 320, 200);
    for format in [Format::Jpeg, Format::Png] {
        let mut bytes = Vec::new();
        image.encode(format, &SaveOptions { quality: 95, ..SaveOptions::default() }, &mut bytes).unwrap();
        let whole = Image::decode(&pool, &bytes, &OpenOptions::default()).unwrap();
        for mode in Mode::ALL {
            let asked = OpenOptions { mode: Some(mode), ..OpenOptions::default() };
            let got = Image::decode(&pool, &bytes, &asked).unwrap();
            let then = whole.convert(mode).unwrap();
            assert!(psnr(&got, &then) > 40.0, "{format} {mode}: {}", psnr(&got, &then));
            let small = OpenOptions { max_size: Some((40, 40)), ..asked };
            assert_eq!(Image::decode(&pool, &bytes, &small).unwrap().size(), (40, 25));
        }
    }
}

/// A wide, low picture that becomes narrow and high gets its width first; with rows for columns, it gets the same side
/// first without that.
#[test]
fn either_direction_may_come_first() {
    let pool = pool();
    for mode in Mode::ALL {
        for (size, new) in [((300, 40), (10, 300)), ((157, 3), (10, 200)), ((900, 1), (33, 400)), ((61, 29), (2, 150))]
        {
            let image = picture(&pool, mode, size.0, size.1);
            let exchanged = |image: Image| image.rotate(Turn::Quarter).unwrap().flip(Flip::Horizontal).unwrap();
            let columns = exchanged(image.copy().unwrap());
            for filter in Filter::ALL {
                for how in [Resampling::exact(filter), Resampling { filter, gap: 2.0 }] {
                    let one = image.resize(new.0, new.1, how).unwrap();
                    let other = exchanged(columns.resize(new.1, new.0, how).unwrap());
                    let worst = one.rows().flatten().zip(other.rows().flatten()).map(|(a, b)| a.abs_diff(*b)).max();
                    // Where little can be seen of a colour, much is made of what is rounded.
                    let alike = if mode.has_alpha() { psnr(&one, &other) > 40.0 } else { worst <= Some(1) };
                    assert!(alike, "{mode} {size:?} {new:?} {how:?}: {worst:?}, {}", psnr(&one, &other));
                }
            }
        }
    }
}

/// Between the two directions there were 3.6 billion samples, and each took its time.
#[test]
fn a_row_becomes_a_column_in_the_time_that_a_column_becomes_a_row() {
    let pool = pool();
    let (row, column) = ((60_000, 1), (1, 60_000));
    let timed = |from: (u32, u32), to: (u32, u32)| {
        let image = picture(&pool, Mode::L, from.0, from.1);
        let begun = Instant::now();
        image.resize(to.0, to.1, Resampling::exact(Filter::Lanczos3)).unwrap();
        begun.elapsed()
    };
    let tall = timed(column, row);
    assert!(timed(row, column) < 20 * tall + Duration::from_millis(200), "{tall:?}");
}

/// Each sample of a row was held as a float eight times over, and once more in columns.
#[test]
fn rows_of_any_length_take_no_more_memory_than_a_few_of_them() {
    let pool = pool();
    let image = Image::new(&pool, Mode::L, 4 << 20, 2, &[77]).unwrap();
    for (width, height) in [(150, 150), (4000, 2), (150, 1)] {
        let small = image.resize(width, height, Resampling::exact(Filter::Lanczos3)).unwrap();
        assert!(small.rows().flatten().all(|&sample| sample == 77));
    }
    // Of what lies beside the middle, nothing is filtered.
    image.resize_to_fit(150, 150, Fit::Cover, Resampling::exact(Filter::Lanczos3)).unwrap();
    assert!(pool.stats().peak < 100 << 20, "{}", pool.stats().peak);
}
