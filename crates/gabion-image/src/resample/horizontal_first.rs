//! The horizontal filter for rows that get much narrower, before the vertical one.

use std::ops::Range;

use gabion_blocks::{Buffer, Pool, Request};

use super::horizontal::Floats;
use super::weights::Weights;
use crate::error::Result;
use crate::simd::{SumKernel, simd_dispatch_sum, sum_up};

/// How many rows are filtered with weights that are made up once: to make them up takes longer than to use them.
const ROWS: usize = 8;

/// Rows on their way through the filter, and those that came out of it, as floats. Weights are made up as they are
/// needed, and rows stay bytes until then, so that memory is what the rows themselves take.
///
/// Equation: of the `came` rows, all are ready when there is none to come in, or no room for it; `used` of them were
/// taken then.
pub struct HorizontalFirst {
    channels: usize,
    weights: Weights,
    columns: Range<usize>,
    /// How many rows are still to come in.
    missing: usize,
    most: usize,
    rows: Buffer,
    came: usize,
    new: Buffer,
    ready: usize,
    used: usize,
}

/// Filters the rows that came, of `N` channels, into as many of `new`.
struct Narrowed<'a, const N: usize>(&'a mut HorizontalFirst);

/// How many products are summed up at a time.
const LANES: usize = 16;

impl<const N: usize> SumKernel for Narrowed<'_, N> {
    #[inline(always)]
    fn run<const FUSED: bool>(self) {
        let HorizontalFirst { weights, columns, rows, came, new, .. } = self.0;
        let rows = rows.as_slice().as_chunks::<N>().0.chunks_exact(columns.len()).take(*came);
        let width = weights.outputs();
        let new = new.as_mut_slice().as_chunks_mut::<4>().0.as_chunks_mut::<N>().0;
        for x in 0..width {
            let Some((old, weights)) = weights.of(x) else { break };
            let old = old.start - columns.start..old.end - columns.start;
            for (y, row) in rows.clone().enumerate() {
                new[y * width + x] = summed::<N, FUSED>(&row[old.clone()], weights);
            }
        }
    }
}

/// The weighted sum of pixels: floats as bytes.
#[inline(always)]
fn summed<const N: usize, const FUSED: bool>(pixels: &[[u8; N]], weights: &Floats) -> [[u8; 4]; N] {
    let mut sums = [[0f32; LANES]; N];
    let (many, last) = pixels.as_chunks::<LANES>();
    let (their, last_weights) = weights.as_chunks::<LANES>();
    for (pixels, weights) in many.iter().zip(their) {
        for lane in 0..LANES {
            let weight = f32::from_ne_bytes(weights[lane]);
            for channel in 0..N {
                sums[channel][lane] = sum_up::<FUSED>(sums[channel][lane], f32::from(pixels[lane][channel]), weight);
            }
        }
    }
    for (lane, (pixel, weight)) in last.iter().zip(last_weights).enumerate() {
        for channel in 0..N {
            let weight = f32::from_ne_bytes(*weight);
            sums[channel][lane] = sum_up::<FUSED>(sums[channel][lane], f32::from(pixel[channel]), weight);
        }
    }
    sums.map(|sums| sums.iter().sum::<f32>().to_ne_bytes())
}

impl HorizontalFirst {
    /// For `height` rows, of which `weights` says what each new pixel is made of.
    ///
    /// # Errors
    /// [`ImageError::Memory`](crate::ImageError::Memory) when the pool has none.
    pub fn new(pool: &Pool, channels: usize, height: usize, weights: Weights) -> Result<Self> {
        let (columns, most) = (weights.reached(), height.min(ROWS));
        let rows = pool.rent(&Request::new(most * columns.len() * channels))?;
        let new = pool.rent(&Request::new(most * weights.outputs() * channels * size_of::<f32>()))?;
        Ok(Self { channels, weights, columns, missing: height, most, rows, came: 0, new, ready: 0, used: 0 })
    }

    /// Which pixels of a row are looked at.
    pub fn columns(&self) -> Range<usize> {
        self.columns.clone()
    }

    /// Where the next row is to be written, of the pixels that are looked at. No row is ready then.
    pub fn next_mut(&mut self) -> &mut [u8] {
        debug_assert!(self.first().is_none(), "rows that are ready would be lost");
        let bytes = self.columns.len() * self.channels;
        &mut self.rows.as_mut_slice()[self.came * bytes..][..bytes]
    }

    /// Says that the next row was written. It is ready then, or when some more are there.
    pub fn commit_row(&mut self) {
        self.came += 1;
        self.missing = self.missing.saturating_sub(1);
        if self.came < self.most && self.missing > 0 {
            return;
        }
        match self.channels {
            1 => simd_dispatch_sum(Narrowed::<1>(self)),
            2 => simd_dispatch_sum(Narrowed::<2>(self)),
            3 => simd_dispatch_sum(Narrowed::<3>(self)),
            _ => simd_dispatch_sum(Narrowed::<4>(self)),
        }
        (self.ready, self.used, self.came) = (self.came, 0, 0);
    }

    /// The first row that is ready: floats as bytes.
    pub fn first(&self) -> Option<&[u8]> {
        let bytes = self.weights.outputs() * self.channels * size_of::<f32>();
        (self.used < self.ready).then(|| &self.new.as_slice()[self.used * bytes..][..bytes])
    }

    /// Forgets the first row that is ready.
    pub fn pop(&mut self) {
        self.used += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::super::weights::Filter;
    use super::*;

    #[test]
    fn rows_come_out_in_their_order_however_many_there_are() {
        let pool = Pool::global();
        for height in [1, 7, 8, 9, 16, 29] {
            let weights = Weights::new(pool, Filter::Lanczos3, 50, 50.0, 4).unwrap();
            let mut filter = HorizontalFirst::new(pool, 3, height, weights).unwrap();
            let mut next = 0;
            for y in 0..height {
                filter.next_mut().fill(y as u8);
                filter.commit_row();
                while let Some(row) = filter.first() {
                    let samples = row.as_chunks().0;
                    let right = |sample: &[u8; 4]| (f32::from_ne_bytes(*sample) - next as f32).abs() < 1e-3;
                    assert!(samples.len() == 12 && samples.iter().all(right), "row {next} of {height}");
                    filter.pop();
                    next += 1;
                }
            }
            assert_eq!(next, height);
        }
    }
}
