//! The vertical filter.

use gabion_blocks::{Buffer, Pool, Request};

use super::across::Target;
use super::weights::Weights;
use crate::error::Result;
use crate::wide::{SumKernel, byte, sum_up, wide_sum};

/// The last rows that came in, as many as a new row is made of.
///
/// Equations: row `y` lies in slot `y mod slots`; `pushed` rows came in and `popped` went out; a new row is popped as
/// soon as the last row that it is made of is there, so that the slot of row `pushed` is free.
pub struct Ring {
    row_bytes: usize,
    slots: usize,
    rows: Buffer,
    weights: Weights,
    pushed: usize,
    popped: usize,
}

impl Ring {
    /// For rows of `row_bytes`, weighted by `weights`.
    pub fn new(pool: &Pool, row_bytes: usize, weights: Weights) -> Result<Self> {
        let slots = weights.most();
        let rows = pool.rent(&Request::new(slots * row_bytes))?;
        Ok(Self { row_bytes, slots, rows, weights, pushed: 0, popped: 0 })
    }

    /// Where the next row is to be written.
    pub fn next_mut(&mut self) -> &mut [u8] {
        let at = self.pushed % self.slots * self.row_bytes;
        &mut self.rows.as_mut_slice()[at..at + self.row_bytes]
    }

    /// Says that the next row was written.
    pub fn pushed(&mut self) {
        self.pushed += 1;
    }

    /// Whether [`Ring::pop`] has a row to give.
    #[inline]
    pub fn has_row(&self) -> bool {
        self.weights.rows(self.popped).is_some_and(|rows| rows.end <= self.pushed)
    }

    /// Makes up the next new row. To be called when there is one.
    pub fn pop(&mut self, out: Target<'_>) {
        match out {
            Target::Bytes(out) => self.pop_to(out),
            Target::Floats(out) => self.pop_to(out),
        }
    }

    fn pop_to<S: Sample>(&mut self, out: &mut [S]) {
        let Some((rows, weights)) = self.weights.of(self.popped) else { return };
        debug_assert!(rows.end <= self.pushed && rows.start + self.slots >= self.pushed, "the rows are all there");
        let (row_bytes, all) = (self.row_bytes, self.rows.as_slice());
        // The rows from the first one's slot on, and those that went on at the first slot.
        let first = rows.start % self.slots;
        let before = rows.len().min(self.slots - first);
        let (upper, lower) = weights.split_at(before);
        if let [_] = weights {
            wide_sum(Copied { out, row: &all[first * row_bytes..][..row_bytes] });
        } else {
            wide_sum(Weighted { out, row_bytes, parts: [(&all[first * row_bytes..], upper), (all, lower)] });
        }
        self.popped += 1;
    }
}

/// What a sum may be written as.
trait Sample: Copy {
    fn of(sum: f32) -> Self;
}

impl Sample for u8 {
    #[inline(always)]
    fn of(sum: f32) -> Self {
        byte(sum)
    }
}

/// A float as bytes.
impl Sample for [u8; 4] {
    #[inline(always)]
    fn of(sum: f32) -> Self {
        sum.to_ne_bytes()
    }
}

/// Writes a row as it is.
struct Copied<'a, S> {
    out: &'a mut [S],
    row: &'a [u8],
}

impl<S: Sample> SumKernel for Copied<'_, S> {
    #[inline(always)]
    fn run<const FUSED: bool>(self) {
        for (out, &sample) in self.out.iter_mut().zip(self.row) {
            *out = S::of(f32::from(sample));
        }
    }
}

/// How many samples are summed up at a time: their sums stay in registers.
const LANES: usize = 32;

/// Writes the weighted sum of rows to `out`: rows of `row_bytes` from the beginning of each part on, as many as it has
/// weights, which are floats as bytes.
struct Weighted<'a, S> {
    out: &'a mut [S],
    row_bytes: usize,
    parts: [(&'a [u8], &'a [[u8; 4]]); 2],
}

impl<S: Sample> SumKernel for Weighted<'_, S> {
    #[inline(always)]
    fn run<const FUSED: bool>(self) {
        let (lanes, rest) = self.out.as_chunks_mut::<LANES>();
        let whole = lanes.len() * LANES;
        for (index, out) in lanes.iter_mut().enumerate() {
            let mut sums = [0f32; LANES];
            for (rows, weights) in self.parts {
                for (row, weight) in rows.chunks_exact(self.row_bytes).zip(weights) {
                    let (samples, weight) = (&row[index * LANES..][..LANES], f32::from_ne_bytes(*weight));
                    for lane in 0..LANES {
                        sums[lane] = sum_up::<FUSED>(sums[lane], f32::from(samples[lane]), weight);
                    }
                }
            }
            for lane in 0..LANES {
                out[lane] = S::of(sums[lane]);
            }
        }
        for (index, out) in (whole..).zip(rest) {
            let mut sum = 0.0;
            for (rows, weights) in self.parts {
                for (row, weight) in rows.chunks_exact(self.row_bytes).zip(weights) {
                    sum = sum_up::<FUSED>(sum, f32::from(row[index]), f32::from_ne_bytes(*weight));
                }
            }
            *out = S::of(sum);
        }
    }
}
