//! The horizontal filter.

use std::array;
use std::ops::Range;

use gabion_blocks::{Buffer, Pool, Request};

use super::weights::{Filter, Span, Weights};
use crate::error::Result;
use crate::simd::{Fixed6, Kernel, SumKernel, byte, fixed6, simd_dispatch, simd_dispatch_sum, sum_up};

/// How many rows are filtered at a time, side by side: so no sum must be made of the parts of one instruction's result.
const ROWS: usize = 8;

/// Floats as bytes.
pub type Floats = [[u8; 4]];

/// Where a row is to be written.
pub enum Target<'a> {
    Bytes(&'a mut [u8]),
    Floats(&'a mut Floats),
}

/// Rows on their way through the horizontal filter, and those that came out of it.
///
/// ```text
///   new rows:  │ used │ ready │ room │
/// ```
pub struct Horizontal {
    widths: (usize, usize),
    channels: usize,
    /// How many rows are still to come in.
    missing: usize,
    way: Way,
    /// Whether what [`Way::Taps`] makes keeps a fraction.
    fixed6: bool,
    new: Buffer,
    used: usize,
    ready: usize,
}

/// How the rows get their width.
enum Way {
    /// They have it.
    Same,
    /// Twice as wide, on straight lines, as colours at half the resolution need it: the row as it came, its first
    /// sample once more before it and its last behind it. As [`Way::Taps`] would do it, some times faster.
    Doubled(Buffer),
    Taps(Taps),
}

/// What each new sample is made of, and rows that wait until there are [`ROWS`] of them.
struct Taps {
    /// The rows as they came, as floats, each of `stride` samples of which the last ones may be no more than room.
    rows: Buffer,
    stride: usize,
    came: usize,
    /// Which pixels of a row are looked at: the others do not come in.
    columns: Range<usize>,
    /// The same, sample by sample.
    turned: Buffer,
    /// Of each new pixel: its first old one, and how many weights it has, which stand behind those of the one before.
    /// Numbers as bytes.
    pixels: Buffer,
    /// Floats as bytes.
    weights: Buffer,
}

/// A tap in `pixels`. The sum of all weights is more than a number in it can be.
type Tap = [[u8; 4]; 2];
/// A sample of all rows.
type Column = [[u8; 4]; ROWS];

impl Taps {
    fn new(pool: &Pool, channels: usize, widths: (usize, usize), mut exact: Weights) -> Result<Self> {
        let columns = exact.reached();
        let stride = (columns.len() * channels).next_multiple_of(ROWS);
        let mut taps = Self {
            // Clean, so that what is no more than room is no odd number, which would take long to multiply.
            rows: pool.rent(&Request::new(stride * size_of::<Column>()).clean())?,
            stride,
            came: 0,
            columns: columns.clone(),
            turned: pool.rent(&Request::new(stride * size_of::<Column>()))?,
            pixels: pool.rent(&Request::new(widths.1 * size_of::<Tap>()))?,
            weights: pool.rent(&Request::new(widths.1 * exact.max_taps() * size_of::<f32>()))?,
        };
        let pixels = taps.pixels.as_mut_slice().as_chunks_mut::<4>().0.as_chunks_mut::<2>().0;
        let weights = taps.weights.as_mut_slice().as_chunks_mut::<4>().0;
        let mut end = 0;
        for (new, tap) in pixels.iter_mut().enumerate() {
            let Some((old, some)) = exact.of(new) else { break };
            let at = end;
            end += some.len();
            weights[at..end].copy_from_slice(some);
            *tap = [old.start - columns.start, some.len()].map(|number| (number as u32).to_ne_bytes());
        }
        Ok(taps)
    }

    /// Room for the next row.
    fn next_mut(&mut self, samples: usize) -> &mut Floats {
        &mut self.rows.as_mut_slice().as_chunks_mut().0[self.came * self.stride..][..samples]
    }
}

/// A sample as it is written, as bytes.
trait Sample {
    fn of(sum: f32) -> Self;
}

impl Sample for [u8; 1] {
    #[inline(always)]
    fn of(sum: f32) -> Self {
        [byte(sum)]
    }
}

impl Sample for Fixed6 {
    #[inline(always)]
    fn of(sum: f32) -> Self {
        fixed6(sum)
    }
}

/// Filters the rows that came, of `N` channels, into as many of `out`.
struct Filtered<'a, const N: usize, S> {
    taps: &'a mut Taps,
    out: &'a mut [S],
}

impl<const N: usize, S: Sample> SumKernel for Filtered<'_, N, S> {
    #[inline(always)]
    fn run<const FUSED: bool>(self) {
        let Taps { rows, stride, came, turned, pixels, weights, .. } = self.taps;
        let columns: &mut [Column] = turned.as_mut_slice().as_chunks_mut().0.as_chunks_mut().0;
        turn(rows.as_slice().as_chunks().0, *stride, columns);
        let pixels: &[Tap] = pixels.as_slice().as_chunks().0.as_chunks().0;
        let mut rest: &Floats = weights.as_slice().as_chunks().0;
        let old: &[[Column; N]] = columns.as_chunks().0;
        let row_samples = self.out.len() / *came;
        for (new, tap) in pixels.iter().take(row_samples / N).enumerate() {
            let (first, count) = (number(tap[0]), number(tap[1]));
            let (weights, behind) = rest.split_at(count);
            rest = behind;
            let old = &old[first..][..count];
            for channel in 0..N {
                let mut sums = [0f32; ROWS];
                for (weight, pixel) in weights.iter().zip(old) {
                    let weight = f32::from_ne_bytes(*weight);
                    for row in 0..ROWS {
                        sums[row] = sum_up::<FUSED>(sums[row], f32::from_ne_bytes(pixel[channel][row]), weight);
                    }
                }
                let samples = self.out[new * N + channel..].iter_mut().step_by(row_samples);
                for (out, sum) in samples.zip(sums) {
                    *out = S::of(sum);
                }
            }
        }
    }
}

#[inline(always)]
fn number(bytes: [u8; 4]) -> usize {
    u32::from_ne_bytes(bytes) as usize
}

/// Writes rows as columns.
#[inline(always)]
fn turn(rows: &Floats, stride: usize, columns: &mut [Column]) {
    let blocks = columns.as_chunks_mut::<ROWS>().0;
    let rows: [&[Column]; ROWS] = array::from_fn(|row| rows[row * stride..][..stride].as_chunks().0);
    for (at, block) in blocks.iter_mut().enumerate() {
        let mut square = [[[0; 4]; ROWS]; ROWS];
        for row in 0..ROWS {
            square[row] = rows[row][at];
        }
        for column in 0..ROWS {
            for row in 0..ROWS {
                block[column][row] = square[row][column];
            }
        }
    }
}

/// Makes two samples of each, a quarter before it and a quarter behind it.
struct Doubled<'a> {
    row: &'a [u8],
    out: &'a mut [u8],
}

impl Kernel for Doubled<'_> {
    #[inline(always)]
    fn run(self) {
        let mix = |near: u8, far: u8| ((u16::from(near) * 3 + u16::from(far) + 2) / 4) as u8;
        let (pairs, odd) = self.out.as_chunks_mut::<2>();
        let samples = self.row.iter().zip(&self.row[1..]).zip(&self.row[2..]);
        for (pair, ((&before, &sample), &behind)) in pairs.iter_mut().zip(samples) {
            *pair = [mix(sample, before), mix(sample, behind)];
        }
        if let [out] = odd {
            *out = mix(self.row[pairs.len() + 1], self.row[pairs.len()]);
        }
    }
}

impl Horizontal {
    /// For `height` rows of `widths.0` pixels, a `span` of which is to be `widths.1` pixels wide, as `weights` say.
    pub fn new(
        pool: &Pool,
        channels: usize,
        widths: (usize, usize),
        height: usize,
        span: impl Into<Span>,
        weights: Weights,
    ) -> Result<Self> {
        let Span { start, extent } = span.into();
        let same = widths.0 == widths.1 && extent >= widths.0 as f64;
        let all = start == 0.0 && extent > (widths.0 - 1) as f64;
        let twice = all && (extent * 2.0 - widths.1 as f64).abs() < 1e-9;
        let doubled = channels == 1 && weights.filter() == Filter::Bilinear && twice;
        let way = if same {
            Way::Same
        } else if doubled {
            Way::Doubled(pool.rent(&Request::new(widths.0 + 2))?)
        } else {
            Way::Taps(Taps::new(pool, channels, widths, weights)?)
        };
        let new = pool.rent(&Request::new(widths.1 * channels))?;
        Ok(Self { widths, channels, missing: height, way, fixed6: false, new, used: 0, ready: 0 })
    }

    /// The same, for rows of one channel that keep what stands behind the point, if they are filtered.
    pub fn with_fraction(self) -> Self {
        debug_assert!(self.channels == 1 && self.ready == 0, "before any row came");
        Self { fixed6: !self.takes_bytes(), ..self }
    }

    /// Whether rows are of [`Fixed6`] samples; otherwise of bytes.
    pub fn is_fixed6(&self) -> bool {
        self.fixed6
    }

    fn row_bytes(&self) -> usize {
        self.widths.1 * self.channels * if self.fixed6 { size_of::<Fixed6>() } else { 1 }
    }

    /// Which pixels of a row are looked at, and taken.
    pub fn columns(&self) -> Range<usize> {
        match &self.way {
            Way::Taps(taps) => taps.columns.clone(),
            _ => 0..self.widths.0,
        }
    }

    /// Whether rows are taken as bytes; otherwise as floats.
    pub fn takes_bytes(&self) -> bool {
        !matches!(self.way, Way::Taps(_))
    }

    /// Takes a row, which `write` puts where it belongs. It is ready then, or when some more are there.
    ///
    /// # Errors
    /// What `write` gives, and the row does not count then; [`ImageError::Memory`](crate::ImageError::Memory).
    pub fn push(&mut self, pool: &Pool, write: impl FnOnce(Target<'_>) -> Result<()>) -> Result<()> {
        let samples = self.columns().len() * self.channels;
        let rows = if let Way::Taps(taps) = &mut self.way {
            write(Target::Floats(taps.next_mut(samples)))?;
            taps.came += 1;
            let all = taps.came == ROWS || self.missing <= 1;
            let rows = if all { taps.came } else { 0 };
            self.filter(pool, rows)?;
            rows
        } else {
            self.push_bytes(pool, write)?;
            1
        };
        self.ready += rows;
        self.missing = self.missing.saturating_sub(1);
        Ok(())
    }

    fn push_bytes(&mut self, pool: &Pool, write: impl FnOnce(Target<'_>) -> Result<()>) -> Result<()> {
        let room = self.room_for(pool, 1)?;
        let out = &mut self.new.as_mut_slice()[room];
        match &mut self.way {
            Way::Doubled(row) => {
                let row = row.as_mut_slice();
                let last = row.len() - 1;
                write(Target::Bytes(&mut row[1..last]))?;
                (row[0], row[last]) = (row[1], row[last - 1]);
                simd_dispatch(Doubled { row, out });
                Ok(())
            }
            _ => write(Target::Bytes(out)),
        }
    }

    /// Filters the `rows` rows that wait.
    fn filter(&mut self, pool: &Pool, rows: usize) -> Result<()> {
        let room = self.room_for(pool, rows)?;
        let out = &mut self.new.as_mut_slice()[room];
        if let Way::Taps(taps) = &mut self.way
            && rows > 0
        {
            let bytes = |out| <[u8]>::as_chunks_mut::<1>(out).0;
            match self.channels {
                1 if self.fixed6 => simd_dispatch_sum(Filtered::<1, Fixed6> { taps, out: out.as_chunks_mut().0 }),
                1 => simd_dispatch_sum(Filtered::<1, _> { taps, out: bytes(out) }),
                2 => simd_dispatch_sum(Filtered::<2, _> { taps, out: bytes(out) }),
                3 => simd_dispatch_sum(Filtered::<3, _> { taps, out: bytes(out) }),
                _ => simd_dispatch_sum(Filtered::<4, _> { taps, out: bytes(out) }),
            }
            taps.came = 0;
        }
        Ok(())
    }

    /// Where `rows` rows fit behind what is ready: that is moved to the front, into a larger buffer if need be.
    fn room_for(&mut self, pool: &Pool, rows: usize) -> Result<Range<usize>> {
        let bytes = self.row_bytes();
        if (self.used + self.ready + rows) * bytes > self.new.len() {
            let ready = self.used * bytes..(self.used + self.ready) * bytes;
            if self.used >= self.ready + rows {
                self.new.as_mut_slice().copy_within(ready, 0);
            } else {
                let mut larger = pool.rent(&Request::new((self.ready + rows) * 2 * bytes))?;
                larger.as_mut_slice()[..ready.len()].copy_from_slice(&self.new.as_slice()[ready]);
                self.new = larger;
            }
            self.used = 0;
        }
        let at = (self.used + self.ready) * bytes;
        Ok(at..at + rows * bytes)
    }

    /// The first row that is ready.
    pub fn first(&self) -> Option<&[u8]> {
        let bytes = self.row_bytes();
        (self.ready > 0).then(|| &self.new.as_slice()[self.used * bytes..][..bytes])
    }

    /// Forgets the first row that is ready.
    pub fn pop(&mut self) {
        self.used += 1;
        self.ready -= 1;
        if self.ready == 0 {
            self.used = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pushed(mut horizontal: Horizontal, row: &[u8]) -> Vec<u8> {
        let write = |target: Target<'_>| {
            match target {
                Target::Bytes(out) => out.copy_from_slice(row),
                Target::Floats(out) => {
                    out.iter_mut().zip(row).for_each(|(out, &sample)| *out = f32::from(sample).to_ne_bytes());
                }
            }
            Ok(())
        };
        horizontal.push(Pool::global(), write).unwrap();
        horizontal.first().unwrap().to_vec()
    }

    #[test]
    fn doubled_rows_are_those_of_the_filter() {
        let pool = Pool::global();
        for (old, new) in [(1, 1), (1, 2), (2, 3), (2, 4), (49, 97), (64, 128)] {
            let extent = new as f64 / 2.0;
            let row: Vec<u8> = (0..old).map(|x| (x * 83 % 256) as u8).collect();
            let weights = || Weights::new(pool, Filter::Bilinear, old, extent, new).unwrap();
            let horizontal = || Horizontal::new(pool, 1, (old, new), 1, extent, weights()).unwrap();
            assert!(matches!(horizontal().way, Way::Doubled(_)));
            let way = Way::Taps(Taps::new(pool, 1, (old, new), weights()).unwrap());
            let (doubled, filtered) = (pushed(horizontal(), &row), pushed(Horizontal { way, ..horizontal() }, &row));
            let both = doubled.iter().zip(&filtered);
            assert!(both.clone().all(|(a, b)| a.abs_diff(*b) <= 1), "{old} {new}: {:?}", both.collect::<Vec<_>>());
        }
    }

    #[test]
    fn rows_come_out_in_their_order_however_many_there_are() {
        let pool = Pool::global();
        for height in [1, 7, 8, 9, 16, 29] {
            let weights = Weights::new(pool, Filter::Box, 10, 10.0, 4).unwrap();
            let mut horizontal = Horizontal::new(pool, 3, (10, 4), height, 10.0, weights).unwrap();
            let mut next = 0;
            for y in 0..height {
                let write = |target: Target<'_>| {
                    let Target::Floats(out) = target else { panic!("not a row of bytes") };
                    out.fill((y as f32).to_ne_bytes());
                    Ok(())
                };
                horizontal.push(pool, write).unwrap();
                // Some are taken now and some later.
                while y % 3 == 0 && horizontal.first().is_some() {
                    assert_eq!(horizontal.first().unwrap(), [next; 12]);
                    horizontal.pop();
                    next += 1;
                }
            }
            while let Some(row) = horizontal.first() {
                assert_eq!(row, [next; 12]);
                horizontal.pop();
                next += 1;
            }
            assert_eq!(usize::from(next), height);
        }
    }
}
