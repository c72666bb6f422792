//! The vertical filter.

use gabion_blocks::{Buffer, Pool, Request};

use super::weights::Weights;
use crate::error::Result;
use crate::wide::{Kernel, byte, wide};

/// The last rows that came in, as many as a new row is made of.
///
/// Equations: row `y` lies in slot `y mod slots`; `pushed` rows came in and `popped` went out; a new row is popped as soon as
/// the last row that it is made of is there, so that the slot of row `pushed` is free.
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
    pub fn pop(&mut self, out: &mut [u8]) {
        let Some((rows, weights)) = self.weights.of(self.popped) else { return };
        debug_assert!(rows.end <= self.pushed && rows.start + self.slots >= self.pushed, "the rows are all there");
        let (row_bytes, all) = (self.row_bytes, self.rows.as_slice());
        // The rows from the first one's slot on, and those that went on at the first slot.
        let first = rows.start % self.slots;
        let before = rows.len().min(self.slots - first);
        let (upper, lower) = weights.split_at(before);
        if let [_] = weights {
            out.copy_from_slice(&all[first * row_bytes..][..row_bytes]);
        } else {
            wide(Weighted { out, row_bytes, parts: [(&all[first * row_bytes..], upper), (all, lower)] });
        }
        self.popped += 1;
    }
}

/// How many samples are summed up at a time: their sums stay in registers.
const LANES: usize = 32;

/// Writes the weighted sum of rows to `out`: rows of `row_bytes` from the beginning of each part on, as many as it has
/// weights, which are floats as bytes.
struct Weighted<'a> {
    out: &'a mut [u8],
    row_bytes: usize,
    parts: [(&'a [u8], &'a [[u8; 4]]); 2],
}

impl Kernel for Weighted<'_> {
    #[inline(always)]
    fn run(self) {
        let (lanes, rest) = self.out.as_chunks_mut::<LANES>();
        let whole = lanes.len() * LANES;
        for (index, out) in lanes.iter_mut().enumerate() {
            let mut sums = [0f32; LANES];
            for (rows, weights) in self.parts {
                for (row, weight) in rows.chunks_exact(self.row_bytes).zip(weights) {
                    let (samples, weight) = (&row[index * LANES..][..LANES], f32::from_ne_bytes(*weight));
                    for lane in 0..LANES {
                        sums[lane] += f32::from(samples[lane]) * weight;
                    }
                }
            }
            for lane in 0..LANES {
                out[lane] = byte(sums[lane]);
            }
        }
        for (index, out) in (whole..).zip(rest) {
            let mut sum = 0.0;
            for (rows, weights) in self.parts {
                for (row, weight) in rows.chunks_exact(self.row_bytes).zip(weights) {
                    sum += f32::from(row[index]) * f32::from_ne_bytes(*weight);
                }
            }
            *out = byte(sum);
        }
    }
}
