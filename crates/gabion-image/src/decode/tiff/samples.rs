//! From samples as they are stored to pixels.

use crate::assembly::{Assembly, unpremultiply};
use crate::error::{ImageError, Result};
use crate::format::Format;
use crate::mode::Mode;

/// A pixel for each value of a sample.
type Table<const N: usize> = Box<[[u8; N]; 256]>;

/// How samples are stored.
pub enum Samples {
    /// As they are here.
    Bytes,
    /// In two bytes, in the order of this machine.
    Words,
    /// In that many bits, those of a row without gaps, as greys.
    Greys(u8, Table<1>),
    /// As numbers in a palette, in that many bits.
    Colors(u8, Table<3>),
}

impl Samples {
    /// Greys of fewer than eight bits: 1, 2 or 4.
    pub fn of_greys(depth: u8) -> Self {
        let most = (1 << depth) - 1;
        Self::Greys(depth, Box::new(std::array::from_fn(|value| [(value.min(most) * 255 / most) as u8])))
    }

    /// A palette as files have it: all reds, all greens, all blues, in 16 bits.
    ///
    /// # Errors
    /// [`ImageError::Corrupt`] when it is too short.
    pub fn of_palette(depth: u8, palette: &[u16]) -> Result<Self> {
        let count = 1 << depth;
        if palette.len() < 3 * count {
            return Err(ImageError::corrupt(Format::Tiff, "its palette is missing, or has too few colours"));
        }
        // Some programs write eight bits, as they are; in 16 that would all be black.
        let shift = if palette.iter().all(|&value| value <= 255) { 0 } else { 8 };
        let color = |number: usize| [0, 1, 2].map(|channel| (palette[channel * count + number] >> shift) as u8);
        let table = std::array::from_fn(|number| if number < count { color(number) } else { [0; 3] });
        Ok(Self::Colors(depth, Box::new(table)))
    }

    /// The mode of pixels that are looked up.
    pub fn mode(&self) -> Option<Mode> {
        match self {
            Self::Bytes | Self::Words => None,
            Self::Greys(..) => Some(Mode::L),
            Self::Colors(..) => Some(Mode::RGB),
        }
    }

    /// Bytes of a sample, at least one.
    pub fn bytes(&self) -> usize {
        if matches!(self, Self::Words) { 2 } else { 1 }
    }

    /// Samples that share a byte.
    pub fn in_a_byte(&self) -> usize {
        match self {
            Self::Bytes | Self::Words => 1,
            Self::Greys(depth, _) | Self::Colors(depth, _) => 8 / usize::from(*depth),
        }
    }
}

/// What the pixels of a file are made of.
pub struct Pixels {
    pub samples: Samples,
    /// Samples of a pixel in the file. What goes beyond the mode's is left out.
    pub channels: usize,
    pub mode: Mode,
    /// Whether colours are multiplied by their alpha.
    pub premultiplied: bool,
}

impl Pixels {
    /// Hands a row on; of samples of two bytes the more significant ones.
    pub fn hand_on(&self, assembly: &mut Assembly, row: &mut [u8]) -> Result<()> {
        // Only grey has something beside it that is left out.
        let step = if self.mode == Mode::L { self.channels } else { 1 };
        if matches!(self.samples, Samples::Bytes) && step == 1 {
            if self.premultiplied {
                unpremultiply(self.mode, row);
            }
            return assembly.push_row(0, row);
        }
        assembly.push_row_with(0, |out| {
            match &self.samples {
                Samples::Bytes => out.iter_mut().zip(row.iter().step_by(step)).for_each(|(out, &byte)| *out = byte),
                Samples::Words => {
                    let words = row.as_chunks().0.iter();
                    let upper = |(out, &word): (&mut u8, &[u8; 2])| *out = (u16::from_ne_bytes(word) >> 8) as u8;
                    if step == 1 {
                        out.iter_mut().zip(words).for_each(upper);
                    } else {
                        out.iter_mut().zip(words.step_by(step)).for_each(upper);
                    }
                }
                Samples::Greys(depth, table) => look_up(row, usize::from(*depth), table, out),
                Samples::Colors(depth, table) => look_up(row, usize::from(*depth), table, out),
            }
            if self.premultiplied {
                unpremultiply(self.mode, out);
            }
            Ok(())
        })
    }
}

/// Writes the pixels of samples of `depth` bits, which divides eight; the first has the highest bits.
fn look_up<const N: usize>(row: &[u8], depth: usize, table: &[[u8; N]; 256], out: &mut [u8]) {
    let most = u8::MAX >> (8 - depth);
    for (x, pixel) in out.as_chunks_mut().0.iter_mut().enumerate() {
        let bit = x * depth;
        let value = row[bit / 8] >> (8 - depth - bit % 8) & most;
        *pixel = table[usize::from(value)];
    }
}
