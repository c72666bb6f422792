//! Turns, crops and pastes against a plain model; rows and seams.

use std::sync::atomic::{AtomicU32, Ordering};

use proptest::prelude::*;

use gabion_blocks::{Pool, Settings, system};

use super::{assert_same, picture, pool};
use crate::{Filter, Flip, Image, ImageError, Mode, Region, Resampling, Turn};

/// The plain model: a list of pixels.
#[derive(Clone, PartialEq, Debug)]
struct Plain {
    width: usize,
    pixels: Vec<Vec<u8>>,
}

impl Plain {
    fn of(image: &Image) -> Self {
        let channels = image.mode().channels();
        let pixels = image.rows().flat_map(|row| row.chunks(channels).map(<[u8]>::to_vec)).collect();
        Self { width: image.width() as usize, pixels }
    }

    fn height(&self) -> usize {
        self.pixels.len() / self.width
    }

    fn at(&self, x: usize, y: usize) -> Vec<u8> {
        self.pixels[y * self.width + x].clone()
    }

    fn made(width: usize, height: usize, pixel: impl Fn(usize, usize) -> Vec<u8>) -> Self {
        let pixels = (0..height).flat_map(|y| (0..width).map(move |x| (x, y))).map(|(x, y)| pixel(x, y)).collect();
        Self { width, pixels }
    }
}

#[derive(Debug, Clone)]
enum Step {
    Turn(Turn),
    Flip(Flip),
    Crop(f64, f64, f64, f64),
    Paste(i64, i64, u32, u32),
    Copy,
    Contiguous,
}

fn step() -> impl Strategy<Value = Step> {
    let part = || 0.0..1.0f64;
    prop_oneof![
        prop_oneof![Just(Turn::Quarter), Just(Turn::Half), Just(Turn::ThreeQuarters)].prop_map(Step::Turn),
        prop_oneof![Just(Flip::Horizontal), Just(Flip::Vertical)].prop_map(Step::Flip),
        (part(), part(), part(), part()).prop_map(|(a, b, c, d)| Step::Crop(a, b, c, d)),
        (-90i64..90, -90i64..90, 1u32..60, 1u32..60).prop_map(|(x, y, w, h)| Step::Paste(x, y, w, h)),
        Just(Step::Copy),
        Just(Step::Contiguous),
    ]
}

/// Both ends of a part of `side` pixels, at least one of them long.
fn ends(side: u32, from: f64, to: f64) -> (u32, u32) {
    let first = ((f64::from(side) * from.min(to)) as u32).min(side - 1);
    (first, ((f64::from(side) * from.max(to)) as u32).clamp(first + 1, side))
}

fn take(image: &mut Image, plain: &mut Plain, step: &Step) {
    let (width, height) = (plain.width, plain.height());
    match *step {
        Step::Turn(turn) => {
            *image = image.rotate(turn).unwrap();
            *plain = match turn {
                Turn::Quarter => Plain::made(height, width, |x, y| plain.at(y, height - 1 - x)),
                Turn::Half => Plain::made(width, height, |x, y| plain.at(width - 1 - x, height - 1 - y)),
                Turn::ThreeQuarters => Plain::made(height, width, |x, y| plain.at(width - 1 - y, x)),
            };
        }
        Step::Flip(flip) => {
            *image = image.flip(flip).unwrap();
            *plain = match flip {
                Flip::Horizontal => Plain::made(width, height, |x, y| plain.at(width - 1 - x, y)),
                Flip::Vertical => Plain::made(width, height, |x, y| plain.at(x, height - 1 - y)),
            };
        }
        Step::Crop(a, b, c, d) => {
            let ((left, right), (top, bottom)) = (ends(image.width(), a, b), ends(image.height(), c, d));
            *image = image.crop(Region { left, top, right, bottom }).unwrap();
            let at = |x: usize, y: usize| plain.at(x + left as usize, y + top as usize);
            *plain = Plain::made((right - left) as usize, (bottom - top) as usize, at);
        }
        Step::Paste(x, y, w, h) => {
            let other = picture(image.pool(), image.mode(), w, h);
            image.paste(&other, x, y).unwrap();
            let other = Plain::of(&other);
            let inside = |at: i64, from: i64, side: u32| (from..from + i64::from(side)).contains(&at);
            *plain = Plain::made(width, height, |px, py| {
                if inside(px as i64, x, w) && inside(py as i64, y, h) {
                    other.at((px as i64 - x) as usize, (py as i64 - y) as usize)
                } else {
                    plain.at(px, py)
                }
            });
        }
        Step::Copy => *image = image.copy().unwrap(),
        Step::Contiguous => assert_eq!(image.make_contiguous().unwrap().len(), width * height * plain.pixels[0].len()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn steps_do_what_the_plain_model_does(
        mode in prop::sample::select(Mode::ALL.to_vec()),
        width in 1u32..140, height in 1u32..140,
        steps in prop::collection::vec(step(), 1..8),
    ) {
        let pool = pool();
        let mut image = picture(&pool, mode, width, height);
        let mut plain = Plain::of(&image);
        for step in &steps {
            take(&mut image, &mut plain, step);
            image.validate().unwrap();
            prop_assert_eq!(Plain::of(&image), plain.clone(), "{:?}", step);
        }
        drop(image);
        prop_assert_eq!(pool.stats().in_use, 0);
        pool.validate().unwrap();
    }
}

#[test]
fn rows_never_cross_a_seam() {
    let pool = pool();
    // Rows that leave slack in a block, and rows longer than a block.
    for (width, height) in [(3001, 1000), (1_400_001, 4), (2_000_000, 3)] {
        let mut image = Image::new(&pool, Mode::RGB, width, height, &[1, 2, 3]).unwrap();
        image.validate().unwrap();
        assert!(!image.is_contiguous() && image.as_contiguous().is_none());
        assert!(image.rows().all(|row| row.chunks(3).all(|pixel| pixel == [1, 2, 3])));
        for y in 0..height {
            image.row_mut(y).unwrap().fill(y as u8);
        }
        assert!((0..).zip(image.rows()).all(|(y, row)| row.iter().all(|&sample| sample == y as u8)));
        assert!(image.row(height).is_none() && image.row_mut(height).is_none());
        let bytes = image.to_bytes().unwrap();
        let back = Image::from_bytes(&pool, Mode::RGB, width, height, &bytes).unwrap();
        assert_same(&back, &image);
        assert_eq!(image.make_contiguous().unwrap(), bytes);
        assert_eq!(image.as_contiguous(), Some(bytes.as_slice()));
        assert_same(&back, &image);
        assert_eq!(back.copy_contiguous().unwrap().as_contiguous(), Some(bytes.as_slice()));
    }
    assert_eq!(pool.stats().in_use, 0);
}

#[test]
fn every_row_is_processed_once_by_any_number_of_threads() {
    let pool = pool();
    for threads in [0, 1, 2, 5, 16, 1000] {
        let mut image = Image::new(&pool, Mode::L, 5000, 1700, &[0]).unwrap();
        let calls = AtomicU32::new(0);
        image.process_rows(threads, |y, row| {
            // Relaxed: the number is read after all threads have ended.
            calls.fetch_add(1, Ordering::Relaxed);
            for sample in row {
                *sample += y as u8;
            }
        });
        assert_eq!(calls.into_inner(), 1700);
        assert!((0..).zip(image.rows()).all(|(y, row)| row.iter().all(|&sample| sample == y as u8)));
    }
}

/// What a filter needs grows with a side that the caller names, so it must not come from where there is no error.
#[test]
fn a_new_size_takes_its_memory_from_the_pool() {
    let mut settings = Settings::default();
    settings.total_limit = 24 << 20;
    let pool = Pool::new(system(), settings).unwrap();
    let image = picture(&pool, Mode::L, 5, 4);
    for filter in Filter::ALL {
        for (width, height) in [(10_000_000, 1), (2_000_000_000, 1), (u32::MAX, 1), (1, 2_000_000_000), (1, u32::MAX)] {
            let result = image.resize(width, height, Resampling::exact(filter));
            let refused = matches!(result, Err(ImageError::Memory(_) | ImageError::Limit { .. }));
            assert!(refused, "{filter:?} {width} × {height}: {result:?}");
        }
    }
    // Towards few samples the filter is as long as the image.
    let long = Image::new(&pool, Mode::L, 4_100_000, 1, &[7]).unwrap();
    assert!(matches!(long.resize(1, 1, Resampling::exact(Filter::Lanczos3)), Err(ImageError::Memory(_))));
    assert!(long.resize(1, 1, Resampling::default()).unwrap().rows().flatten().eq(&[7]));
    drop((image, long));
    assert_eq!(pool.stats().in_use, 0);
}

/// Rows are made up when they are asked for: an image that gets larger is not held a second time.
#[test]
fn a_larger_image_is_not_held_beside_itself() {
    let pool = pool();
    let image = picture(&pool, Mode::RGB, 900, 3);
    let larger = image.resize(900, 9000, Resampling::default()).unwrap();
    let stats = pool.stats();
    assert!(stats.peak < larger.len() as u64 + (16 << 20), "{} for {}", stats.peak, larger.len());
    assert!(larger.row(4500).unwrap().iter().zip(image.row(1).unwrap()).all(|(a, b)| a.abs_diff(*b) < 9));
}

#[test]
fn nonsense_is_refused() {
    let pool = pool();
    let setting = |result: crate::Result<Image>| assert!(matches!(result, Err(ImageError::Setting { .. })));
    setting(Image::new(&pool, Mode::RGB, 0, 5, &[0; 3]));
    setting(Image::new(&pool, Mode::RGB, 5, 0, &[0; 3]));
    setting(Image::new(&pool, Mode::RGB, 5, 5, &[0; 4]));
    setting(Image::from_bytes(&pool, Mode::RGB, 5, 5, &[0; 74]));
    assert!(matches!(Image::new(&pool, Mode::L, u32::MAX, 1, &[0]), Err(ImageError::Limit { .. })));
    assert!(matches!(Image::new(&pool, Mode::CMYK, 1 << 30, 1 << 30, &[0; 4]), Err(ImageError::Memory(_))));
    let image = picture(&pool, Mode::RGB, 9, 9);
    setting(image.crop(Region { left: 3, top: 3, right: 3, bottom: 9 }));
    setting(image.crop(Region { left: 3, top: 3, right: 10, bottom: 9 }));
    setting(image.resize(0, 9, Resampling::default()));
    setting(image.thumbnail(9, 0, Resampling::default()));
    let mut grey = picture(&pool, Mode::L, 9, 9);
    assert!(matches!(grey.paste(&image, 0, 0), Err(ImageError::Setting { .. })));
    assert!(matches!(grey.copy_to(&mut [0; 80]), Err(ImageError::Setting { .. })));
    grey.paste(&grey.copy().unwrap(), i64::MIN, i64::MAX).unwrap();
    assert_eq!(grey.resize(1, 1, Resampling::exact(Filter::Box)).unwrap().size(), (1, 1));
}
