//! Tests of the whole: files, damage, seams, and what a picture must be after each step.

mod tiff;

mod damage;

mod fitted;

mod greys;

mod probes;

mod limits;

mod geometry;

mod jpeg;

mod profiles;

mod quality;

mod round_trips;

use gabion_blocks::{Pool, Settings, system};

use crate::{Image, Mode};

/// A pool of its own, so that what a test leaves behind is seen.
pub(crate) fn pool() -> Pool {
    Pool::new(system(), Settings::default()).unwrap()
}

/// Pixels that a picture could have: smooth, with an edge and a little noise, different in each channel.
pub(crate) fn picture(pool: &Pool, mode: Mode, width: u32, height: u32) -> Image {
    let channels = mode.channels();
    let mut image = Image::blank(pool, mode, width, height).unwrap();
    for (y, row) in (0..).zip(image.rows_mut()) {
        for (i, sample) in row.iter_mut().enumerate() {
            let (x, c) = ((i / channels) as f64, (i % channels) as f64);
            let wave = 60.0 * (x / (17.0 + c * 5.0)).sin() + 50.0 * (f64::from(y) / (23.0 - c * 3.0)).cos();
            let edge = if x > f64::from(width) / 2.0 + f64::from(y) / 9.0 { 25.0 } else { -15.0 };
            let noise = ((i as u32).wrapping_mul(2_654_435_761) ^ (y as u32).wrapping_mul(40503)) >> 29;
            *sample = (125.0 + wave + edge + f64::from(noise) - c * 4.0) as u8;
        }
    }
    image.validate().unwrap();
    image
}

/// Peak signal to noise of two pictures, in decibels; infinite when they are the same.
pub(crate) fn psnr(one: &Image, other: &Image) -> f64 {
    assert_eq!((one.mode(), one.size()), (other.mode(), other.size()));
    let squares: f64 =
        one.rows().flatten().zip(other.rows().flatten()).map(|(&a, &b)| (f64::from(a) - f64::from(b)).powi(2)).sum();
    10.0 * (255.0 * 255.0 / (squares / one.len() as f64)).log10()
}

/// The same pixels.
#[track_caller]
fn assert_same(one: &Image, other: &Image) {
    assert_eq!((one.mode(), one.size()), (other.mode(), other.size()));
    for (y, (a, b)) in one.rows().zip(other.rows()).enumerate() {
        assert!(a == b, "row {y}: {:?}", a.iter().zip(b).position(|(a, b)| a != b));
    }
}
