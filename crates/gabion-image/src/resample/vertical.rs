//! The vertical filter.

use gabion_blocks::{Buffer, Pool, Request};

use super::horizontal::{Floats, Target};
use super::weights::Weights;
use crate::error::Result;
use crate::simd::{SumKernel, byte, simd_dispatch_sum, sum_up};

/// The last rows that came in, as many as a new row is made of.
///
/// Equations: row `y` lies in slot `y mod slots`; `pushed` rows came in and `popped` went out; a new row is popped as
/// soon as the last row that it is made of is there, so that the slot of row `pushed` is free.
pub struct Vertical {
    row_bytes: usize,
    /// Whether samples are floats; otherwise they are bytes.
    floats: bool,
    slots: usize,
    rows: Buffer,
    weights: Weights,
    pushed: usize,
    popped: usize,
}

impl Vertical {
    /// For rows of so many samples, which are floats as bytes or bytes, weighted by `weights`.
    pub fn new(pool: &Pool, samples: usize, floats: bool, weights: Weights) -> Result<Self> {
        let slots = weights.max_taps();
        let row_bytes = samples * if floats { size_of::<f32>() } else { 1 };
        let rows = pool.rent(&Request::new(slots * row_bytes))?;
        Ok(Self { row_bytes, floats, slots, rows, weights, pushed: 0, popped: 0 })
    }

    /// Where the next row is to be written.
    pub fn next_mut(&mut self) -> &mut [u8] {
        let at = self.pushed % self.slots * self.row_bytes;
        &mut self.rows.as_mut_slice()[at..at + self.row_bytes]
    }

    /// Says that the next row was written.
    pub fn commit_row(&mut self) {
        self.pushed += 1;
    }

    /// Whether [`Vertical::pop`] has a row to give.
    #[inline]
    pub fn has_row(&self) -> bool {
        self.weights.inputs(self.popped).is_some_and(|rows| rows.end <= self.pushed)
    }

    /// Makes up the next new row. To be called when there is one.
    pub fn pop(&mut self, out: Target<'_>) {
        let Some((rows, weights)) = self.weights.of(self.popped) else { return };
        debug_assert!(rows.end <= self.pushed && rows.start + self.slots >= self.pushed, "the rows are all there");
        // The rows from the first one's slot on, and those that went on at the first slot.
        let first = rows.start % self.slots;
        let weights = weights.split_at(rows.len().min(self.slots - first));
        let (all, row_bytes) = (self.rows.as_slice(), self.row_bytes);
        let floats = |bytes| <[u8]>::as_chunks::<4>(bytes).0;
        match (out, self.floats) {
            (Target::Bytes(out), false) => sum_rows(all, row_bytes, first, weights, out),
            (Target::Floats(out), false) => sum_rows(all, row_bytes, first, weights, out),
            (Target::Bytes(out), true) => sum_rows(floats(all), row_bytes / 4, first, weights, out),
            (Target::Floats(out), true) => sum_rows(floats(all), row_bytes / 4, first, weights, out),
        }
        self.popped += 1;
    }
}

/// Writes the sum of rows of so many samples, from the `first` on and then from the top.
fn sum_rows<I: Old, S: Sample>(
    all: &[I],
    samples: usize,
    first: usize,
    (upper, lower): (&Floats, &Floats),
    out: &mut [S],
) {
    let rest = &all[first * samples..];
    if upper.len() + lower.len() == 1 {
        simd_dispatch_sum(Copied { out, row: &rest[..samples] });
    } else {
        simd_dispatch_sum(Weighted { out, samples, parts: [(rest, upper), (all, lower)] });
    }
}

/// What samples of rows may be.
trait Old: Copy {
    fn value(self) -> f32;
}

impl Old for u8 {
    #[inline(always)]
    fn value(self) -> f32 {
        f32::from(self)
    }
}

/// A float as bytes.
impl Old for [u8; 4] {
    #[inline(always)]
    fn value(self) -> f32 {
        f32::from_ne_bytes(self)
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
struct Copied<'a, I, S> {
    out: &'a mut [S],
    row: &'a [I],
}

impl<I: Old, S: Sample> SumKernel for Copied<'_, I, S> {
    #[inline(always)]
    fn run<const FUSED: bool>(self) {
        for (out, &sample) in self.out.iter_mut().zip(self.row) {
            *out = S::of(sample.value());
        }
    }
}

/// How many samples are summed up at a time: their sums stay in registers.
const LANES: usize = 32;

/// Writes the weighted sum of rows to `out`: rows of so many samples from the beginning of each part on, as many as it
/// has weights, which are floats as bytes.
struct Weighted<'a, I, S> {
    out: &'a mut [S],
    samples: usize,
    parts: [(&'a [I], &'a Floats); 2],
}

impl<I: Old, S: Sample> SumKernel for Weighted<'_, I, S> {
    #[inline(always)]
    fn run<const FUSED: bool>(self) {
        let (lanes, rest) = self.out.as_chunks_mut::<LANES>();
        let whole = lanes.len() * LANES;
        for (index, out) in lanes.iter_mut().enumerate() {
            let mut sums = [0f32; LANES];
            for (rows, weights) in self.parts {
                for (row, weight) in rows.chunks_exact(self.samples).zip(weights) {
                    let (samples, weight) = (&row[index * LANES..][..LANES], f32::from_ne_bytes(*weight));
                    for lane in 0..LANES {
                        sums[lane] = sum_up::<FUSED>(sums[lane], samples[lane].value(), weight);
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
                for (row, weight) in rows.chunks_exact(self.samples).zip(weights) {
                    sum = sum_up::<FUSED>(sum, row[index].value(), f32::from_ne_bytes(*weight));
                }
            }
            *out = S::of(sum);
        }
    }
}
