//! The horizontal filter.

use gabion_blocks::{Buffer, Pool, Request};

use super::weights::{Filter, Weights};
use crate::error::Result;
use crate::wide::{Kernel, byte, wide};

/// How many taps are multiplied at a time. Weights are filled up with zeros to a multiple of it, and so are rows.
const LANES: usize = 8;
/// How many new rows there is room for at first.
const FIRST_ROWS: usize = 16;

/// Rows on their way through the horizontal filter, and those that came out of it.
///
/// ```text
///   new rows:  │ used │ ready │ room │
/// ```
pub struct Across {
    widths: (usize, usize),
    channels: usize,
    /// `None` when the widths are the same.
    taps: Option<Taps>,
    new: Buffer,
    used: usize,
    ready: usize,
}

/// What each new sample is made of.
struct Taps {
    /// The old row as it came.
    row: Buffer,
    /// Its channels one after the other as floats, each filled up to `stride` samples.
    channels: Buffer,
    stride: usize,
    samples: Vec<Tap>,
    weights: Vec<[f32; LANES]>,
}

/// The first old sample, and where its weights lie.
struct Tap {
    first: u32,
    at: u32,
    end: u32,
}

impl Taps {
    fn new(pool: &Pool, channels: usize, widths: (usize, usize), extent: f64, filter: Filter) -> Result<Self> {
        let exact = Weights::new(filter, widths.0, extent, widths.1);
        let groups = exact.most().div_ceil(LANES);
        let stride = widths.0 + groups * LANES;
        let mut taps = Self {
            row: pool.rent(&Request::new(widths.0 * channels))?,
            channels: pool.rent(&Request::new(stride * channels * size_of::<f32>()).clean())?,
            stride,
            samples: Vec::with_capacity(widths.1),
            weights: Vec::with_capacity(widths.1 * groups),
        };
        for new in 0..widths.1 {
            let Some((old, weights)) = exact.of(new) else { break };
            let at = taps.weights.len() as u32;
            taps.weights.extend(weights.chunks(LANES).map(|some| {
                let mut lanes = [0.0; LANES];
                lanes[..some.len()].copy_from_slice(some);
                lanes
            }));
            taps.samples.push(Tap { first: old.start as u32, at, end: taps.weights.len() as u32 });
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
        let pixels = row.as_slice().as_chunks::<N>().0;
        let channels = channels.as_mut_slice().as_chunks_mut::<4>().0;
        for (channel, samples) in channels.chunks_exact_mut(*stride).enumerate() {
            for (sample, pixel) in samples.iter_mut().zip(pixels) {
                *sample = f32::from(pixel[channel]).to_ne_bytes();
            }
            for (out, tap) in self.out.as_chunks_mut::<N>().0.iter_mut().zip(&*taps) {
                let samples = samples[tap.first as usize..].as_chunks::<LANES>().0;
                let mut sums = [0f32; LANES];
                for (weights, samples) in weights[tap.at as usize..tap.end as usize].iter().zip(samples) {
                    for lane in 0..LANES {
                        sums[lane] += f32::from_ne_bytes(samples[lane]) * weights[lane];
                    }
                }
                // Halves at a time, as wide instructions do it.
                let quads = [0, 1, 2, 3].map(|lane| sums[lane] + sums[lane + 4]);
                out[channel] = byte((quads[0] + quads[2]) + (quads[1] + quads[3]));
            }
        }
    }
}

impl Across {
    /// For rows of `widths.0` pixels that cover `extent` of them, to be `widths.1` pixels wide.
    pub fn new(pool: &Pool, channels: usize, widths: (usize, usize), extent: f64, filter: Filter) -> Result<Self> {
        let same = widths.0 == widths.1 && extent >= widths.0 as f64;
        let taps = if same { None } else { Some(Taps::new(pool, channels, widths, extent, filter)?) };
        let new = pool.rent(&Request::new(widths.1 * channels * FIRST_ROWS))?;
        Ok(Self { widths, channels, taps, new, used: 0, ready: 0 })
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
        match &mut self.taps {
            None => write(out),
            Some(taps) => {
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
        if self.used > 0 {
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
