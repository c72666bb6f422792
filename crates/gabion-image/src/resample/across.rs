//! The horizontal filter.

use std::hint::black_box;

use gabion_blocks::{Buffer, Pool, Request};

use super::weights::{Filter, Weights};
use crate::error::Result;
use crate::wide::{Kernel, byte, wide};

/// How many taps are multiplied at a time. Weights are filled up with zeros to a multiple of it, and so are rows.
const LANES: usize = 8;

/// Rows on their way through the horizontal filter, and those that came out of it.
///
/// ```text
///   new rows:  │ used │ ready │ room │
/// ```
pub struct Across {
    widths: (usize, usize),
    channels: usize,
    way: Way,
    new: Buffer,
    used: usize,
    ready: usize,
}

/// How the rows get their width.
enum Way {
    /// They have it.
    Same,
    /// Twice as wide, on straight lines, as colours at half the resolution need it: the row as it came, its first sample once
    /// more before it and its last behind it. As [`Way::Taps`] would do it, some times faster.
    Doubled(Buffer),
    Taps(Taps),
}

/// What each new sample is made of.
struct Taps {
    /// The old row as it came.
    row: Buffer,
    /// Its channels one after the other as floats, each filled up to `stride` samples.
    channels: Buffer,
    stride: usize,
    /// Of each new sample: its first old one, and where its weights begin and end. Numbers as bytes.
    samples: Buffer,
    /// Floats as bytes.
    weights: Buffer,
}

/// A tap in `samples`.
type Tap = [[u8; 4]; 3];
/// Weights that are multiplied at a time.
type Lanes = [[u8; 4]; LANES];

impl Taps {
    fn new(pool: &Pool, channels: usize, widths: (usize, usize), extent: f64, filter: Filter) -> Result<Self> {
        let mut exact = Weights::new(pool, filter, widths.0, extent, widths.1)?;
        let groups = exact.most().div_ceil(LANES);
        let stride = widths.0 + groups * LANES;
        let mut taps = Self {
            row: pool.rent(&Request::new(widths.0 * channels))?,
            channels: pool.rent(&Request::new(stride * channels * size_of::<f32>()).clean())?,
            stride,
            samples: pool.rent(&Request::new(widths.1 * size_of::<Tap>()))?,
            weights: pool.rent(&Request::new(widths.1 * groups * size_of::<Lanes>()))?,
        };
        let samples = taps.samples.as_mut_slice().as_chunks_mut::<4>().0.as_chunks_mut::<3>().0;
        let lanes = taps.weights.as_mut_slice().as_chunks_mut::<4>().0.as_chunks_mut::<LANES>().0;
        let mut end = 0;
        for (new, tap) in samples.iter_mut().enumerate() {
            let Some((old, weights)) = exact.of(new) else { break };
            let at = end;
            for some in weights.chunks(LANES) {
                lanes[end] = [[0; 4]; LANES];
                lanes[end][..some.len()].copy_from_slice(some);
                end += 1;
            }
            *tap = [old.start, at, end].map(|number| (number as u32).to_ne_bytes());
        }
        Ok(taps)
    }
}

/// Filters the row that came, of `N` channels.
struct Filtered<'a, const N: usize> {
    taps: &'a mut Taps,
    out: &'a mut [u8],
}

impl<const N: usize> Kernel for Filtered<'_, N> {
    #[inline(always)]
    fn run(self) {
        let Taps { row, channels, stride, samples: taps, weights } = self.taps;
        let taps: &[Tap] = taps.as_slice().as_chunks().0.as_chunks().0;
        let weights: &[Lanes] = weights.as_slice().as_chunks().0.as_chunks().0;
        let pixels = row.as_slice().as_chunks::<N>().0;
        let channels = channels.as_mut_slice().as_chunks_mut::<4>().0;
        for (channel, samples) in channels.chunks_exact_mut(*stride).enumerate() {
            for (sample, pixel) in samples.iter_mut().zip(pixels) {
                *sample = f32::from(pixel[channel]).to_ne_bytes();
            }
            for (out, tap) in self.out.as_chunks_mut::<N>().0.iter_mut().zip(taps) {
                let [first, at, end] = tap.map(|number| u32::from_ne_bytes(number) as usize);
                let samples = samples[first..].as_chunks::<LANES>().0;
                let mut sums = [0f32; LANES];
                for (weights, samples) in weights[at..end].iter().zip(samples) {
                    for lane in 0..LANES {
                        sums[lane] += f32::from_ne_bytes(samples[lane]) * f32::from_ne_bytes(weights[lane]);
                    }
                }
                // Where the compiler sees that they are added up, it sums up in halves and quarters of an instruction.
                let sums = black_box(sums);
                // Halves at a time, as wide instructions do it.
                let quads = [0, 1, 2, 3].map(|lane| sums[lane] + sums[lane + 4]);
                out[channel] = byte((quads[0] + quads[2]) + (quads[1] + quads[3]));
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

impl Across {
    /// For rows of `widths.0` pixels that cover `extent` of them, to be `widths.1` pixels wide.
    pub fn new(pool: &Pool, channels: usize, widths: (usize, usize), extent: f64, filter: Filter) -> Result<Self> {
        let same = widths.0 == widths.1 && extent >= widths.0 as f64;
        let twice = (extent * 2.0 - widths.1 as f64).abs() < 1e-9;
        let doubled = channels == 1 && filter == Filter::Bilinear && twice;
        let way = if same {
            Way::Same
        } else if doubled {
            Way::Doubled(pool.rent(&Request::new(widths.0 + 2))?)
        } else {
            Way::Taps(Taps::new(pool, channels, widths, extent, filter)?)
        };
        let new = pool.rent(&Request::new(widths.1 * channels))?;
        Ok(Self { widths, channels, way, new, used: 0, ready: 0 })
    }

    fn row_bytes(&self) -> usize {
        self.widths.1 * self.channels
    }

    /// Takes a row, which `write` puts where it belongs. It is ready then.
    pub fn push(&mut self, pool: &Pool, write: impl FnOnce(&mut [u8])) -> Result<()> {
        self.make_room(pool)?;
        let at = (self.used + self.ready) * self.row_bytes();
        let bytes = self.row_bytes();
        let out = &mut self.new.as_mut_slice()[at..at + bytes];
        match &mut self.way {
            Way::Same => write(out),
            Way::Doubled(row) => {
                let row = row.as_mut_slice();
                let last = row.len() - 1;
                write(&mut row[1..last]);
                (row[0], row[last]) = (row[1], row[last - 1]);
                wide(Doubled { row, out });
            }
            Way::Taps(taps) => {
                write(taps.row.as_mut_slice());
                match self.channels {
                    1 => wide(Filtered::<1> { taps, out }),
                    2 => wide(Filtered::<2> { taps, out }),
                    3 => wide(Filtered::<3> { taps, out }),
                    _ => wide(Filtered::<4> { taps, out }),
                }
            }
        }
        self.ready += 1;
        Ok(())
    }

    /// Moves what is ready to the front, into a larger buffer if need be, so that a row fits behind it.
    fn make_room(&mut self, pool: &Pool) -> Result<()> {
        let bytes = self.row_bytes();
        if (self.used + self.ready + 1) * bytes <= self.new.len() {
            return Ok(());
        }
        let ready = self.used * bytes..(self.used + self.ready) * bytes;
        if self.used > self.ready {
            self.new.as_mut_slice().copy_within(ready, 0);
        } else {
            let mut larger = pool.rent(&Request::new(self.new.len() * 2))?;
            larger.as_mut_slice()[..ready.len()].copy_from_slice(&self.new.as_slice()[ready]);
            self.new = larger;
        }
        self.used = 0;
        Ok(())
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

    #[test]
    fn doubled_rows_are_those_of_the_filter() {
        let pool = Pool::global();
        for (old, new) in [(1, 1), (1, 2), (2, 3), (2, 4), (49, 97), (64, 128)] {
            let extent = new as f64 / 2.0;
            let row: Vec<u8> = (0..old).map(|x| (x * 83 % 256) as u8).collect();
            let mut doubled = Across::new(pool, 1, (old, new), extent, Filter::Bilinear).unwrap();
            assert!(matches!(doubled.way, Way::Doubled(_)));
            doubled.push(pool, |out| out.copy_from_slice(&row)).unwrap();
            let way = Way::Taps(Taps::new(pool, 1, (old, new), extent, Filter::Bilinear).unwrap());
            let mut filtered = Across { way, ..Across::new(pool, 1, (old, new), extent, Filter::Bilinear).unwrap() };
            filtered.push(pool, |out| out.copy_from_slice(&row)).unwrap();
            let both = doubled.first().unwrap().iter().zip(filtered.first().unwrap());
            assert!(both.clone().all(|(a, b)| a.abs_diff(*b) <= 1), "{old} {new}: {:?}", both.collect::<Vec<_>>());
        }
    }
}
