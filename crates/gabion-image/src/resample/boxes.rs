//! Means of boxes.

use gabion_blocks::{Buffer, Pool, Request};

use crate::error::Result;
use crate::simd::{Kernel, byte, simd_dispatch};

/// The largest side of a box: the sum of 256 samples of 8 bits fits 16 bits.
pub const LARGEST: usize = 256;

/// Sums up rows, and gives the means of `wide` × `high` samples once a row of boxes is full.
///
/// Equation: `rows` of the row of boxes are summed up in `sums`, one sum for each sample of a row.
pub struct Boxes {
    wide: usize,
    high: usize,
    channels: usize,
    rows: usize,
    sums: Buffer,
}

impl Boxes {
    /// For rows of `width` pixels.
    pub fn new(pool: &Pool, width: usize, channels: usize, wide: usize, high: usize) -> Result<Self> {
        debug_assert!((1..=LARGEST).contains(&wide) && (1..=LARGEST).contains(&high), "sums must fit");
        let sums = pool.rent(&Request::new(width * channels * 2))?;
        Ok(Self { wide, high, channels, rows: 0, sums })
    }

    /// Adds a row. True when the row of boxes is full, or this is the last row.
    pub fn add(&mut self, row: &[u8], last: bool) -> bool {
        let sums = self.sums.as_mut_slice().as_chunks_mut::<2>().0;
        simd_dispatch(Add { sums, row, first: self.rows == 0 });
        self.rows += 1;
        self.rows == self.high || last
    }

    /// Writes the means, and begins the next row of boxes.
    pub fn finish_row(&mut self, means: &mut [u8]) {
        let (across, rows) = (self.wide, self.rows);
        let sums = self.sums.as_slice().as_chunks::<2>().0;
        match self.channels {
            1 => simd_dispatch(Means::<1> { sums, out: means, wide: across, rows }),
            2 => simd_dispatch(Means::<2> { sums, out: means, wide: across, rows }),
            3 => simd_dispatch(Means::<3> { sums, out: means, wide: across, rows }),
            _ => simd_dispatch(Means::<4> { sums, out: means, wide: across, rows }),
        }
        self.rows = 0;
    }
}

/// Adds a row to the sums; the first row makes them.
struct Add<'a> {
    sums: &'a mut [[u8; 2]],
    row: &'a [u8],
    first: bool,
}

impl Kernel for Add<'_> {
    #[inline(always)]
    fn run(self) {
        let both = self.sums.iter_mut().zip(self.row);
        if self.first {
            for (sum, &sample) in both {
                *sum = u16::from(sample).to_ne_bytes();
            }
        } else {
            for (sum, &sample) in both {
                *sum = (u16::from_ne_bytes(*sum) + u16::from(sample)).to_ne_bytes();
            }
        }
    }
}

/// Makes means of the sums of `rows` rows, `wide` pixels of `N` channels at a time.
struct Means<'a, const N: usize> {
    sums: &'a [[u8; 2]],
    out: &'a mut [u8],
    wide: usize,
    rows: usize,
}

impl<const N: usize> Kernel for Means<'_, N> {
    #[inline(always)]
    fn run(self) {
        let (sums, means) = (self.sums.as_chunks::<N>().0, self.out.as_chunks_mut::<N>().0);
        match self.wide {
            1 => means_of::<N, 1>(sums, means, self.rows),
            2 => means_of::<N, 2>(sums, means, self.rows),
            3 => means_of::<N, 3>(sums, means, self.rows),
            4 => means_of::<N, 4>(sums, means, self.rows),
            wide => means_of_any::<N>(sums, means, wide, self.rows),
        }
    }
}

/// As [`means_of_any`], for widths that the compiler can unroll.
#[inline(always)]
fn means_of<const N: usize, const W: usize>(sums: &[[[u8; 2]; N]], means: &mut [[u8; N]], rows: usize) {
    let (boxes, rest) = sums.as_chunks::<W>();
    let (whole, last) = means.split_at_mut(boxes.len());
    let share = share(W * rows);
    for (mean, pixels) in whole.iter_mut().zip(boxes) {
        for channel in 0..N {
            let mut sum = 0;
            for pixel in pixels {
                sum += i32::from(u16::from_ne_bytes(pixel[channel]));
            }
            mean[channel] = byte(sum as f32 * share);
        }
    }
    means_of_any::<N>(rest, last, W, rows);
}

#[inline(always)]
fn means_of_any<const N: usize>(sums: &[[[u8; 2]; N]], means: &mut [[u8; N]], wide: usize, rows: usize) {
    for (mean, pixels) in means.iter_mut().zip(sums.chunks(wide)) {
        let share = share(pixels.len() * rows);
        for channel in 0..N {
            let sum: i32 = pixels.iter().map(|pixel| i32::from(u16::from_ne_bytes(pixel[channel]))).sum();
            mean[channel] = byte(sum as f32 * share);
        }
    }
}

/// What a sum is multiplied by. Sums are below 2²⁴, so that floats hold them exactly.
#[inline(always)]
fn share(count: usize) -> f32 {
    1.0 / count as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_those_of_a_plain_loop() {
        let pool = Pool::global();
        for (width, height, channels, wide, high) in [
            (10, 6, 3, 2, 3),
            (11, 7, 1, 3, 2),
            (9, 5, 4, 4, 4),
            (300, 3, 2, 256, 2),
            (5, 260, 3, 7, 256),
            (1, 1, 1, 2, 2),
        ] {
            let sample = |x: usize, y: usize, c: usize| ((x * 7 + y * 31 + c * 101) % 256) as u8;
            let mut boxes = Boxes::new(pool, width, channels, wide, high).unwrap();
            let mut top = 0;
            for y in 0..height {
                let row: Vec<u8> = (0..width * channels).map(|i| sample(i / channels, y, i % channels)).collect();
                if !boxes.add(&row, y == height - 1) {
                    continue;
                }
                let mut means = vec![0; width.div_ceil(wide) * channels];
                boxes.finish_row(&mut means);
                for (i, &mean) in means.iter().enumerate() {
                    let (left, c) = (i / channels * wide, i % channels);
                    let samples: Vec<u32> = (top..=y)
                        .flat_map(|y| (left..(left + wide).min(width)).map(move |x| u32::from(sample(x, y, c))))
                        .collect();
                    let exact = f64::from(samples.iter().sum::<u32>()) / samples.len() as f64;
                    assert!((f64::from(mean) - exact).abs() <= 0.501, "{width} {wide} {i}: {mean} for {exact}");
                }
                top = y + 1;
            }
        }
    }
}
