//! How a block is cut into pieces of one class: a bit for each piece, outside the block.

use std::collections::TryReserveError;

use super::size::pieces_in_block;

/// Which pieces of a block are free, and which of these read as zero.
///
/// `free = ones in free_bits`, `zero = ones in zero_bits`, and every zero bit is a free bit too.
#[derive(Debug)]
pub(crate) struct Cut {
    pub pieces: usize,
    pub free: usize,
    pub zero: usize,
    free_bits: Vec<u64>,
    zero_bits: Vec<u64>,
    /// No free piece that is warm lies in a word before this one.
    warm_from: usize,
    /// No piece that is zero lies in a word before this one.
    zero_from: usize,
}

impl Cut {
    /// Of a block that is not cut.
    pub const NONE: Self =
        Self { pieces: 0, free: 0, zero: 0, free_bits: Vec::new(), zero_bits: Vec::new(), warm_from: 0, zero_from: 0 };

    /// All pieces of a class, all free; `zero` says that they read as zero.
    ///
    /// # Errors
    /// When there is no memory for the bits.
    pub fn new(class: usize, zero: bool) -> Result<Self, TryReserveError> {
        let pieces = pieces_in_block(class);
        let bits = |ones: usize| {
            let mut bits = Vec::new();
            bits.try_reserve_exact(pieces.div_ceil(64))?;
            bits.extend((0..pieces.div_ceil(64)).map(|word| match ones.saturating_sub(word * 64) {
                0 => 0,
                count if count < 64 => (1 << count) - 1,
                _ => u64::MAX,
            }));
            Ok::<_, TryReserveError>(bits)
        };
        let zeros = if zero { pieces } else { 0 };
        let (free_bits, zero_bits) = (bits(pieces)?, bits(zeros)?);
        Ok(Self { pieces, free: pieces, zero: zeros, free_bits, zero_bits, warm_from: 0, zero_from: 0 })
    }

    /// Takes a free piece: one that reads as zero when `clean` asks for it and there is one, else a warm one when there is
    /// one. Returns its index, and whether it reads as zero.
    pub fn take(&mut self, clean: bool) -> Option<(usize, bool)> {
        if self.free == 0 {
            return None;
        }
        let zero = self.zero == self.free || (clean && self.zero > 0);
        let start = if zero { self.zero_from } else { self.warm_from };
        let mask = |word: usize| if zero { self.zero_bits[word] } else { self.free_bits[word] & !self.zero_bits[word] };
        let word =
            (start..self.free_bits.len()).find(|&word| mask(word) != 0).expect("the count says that there is one");
        let bit = mask(word).trailing_zeros() as usize;
        *(if zero { &mut self.zero_from } else { &mut self.warm_from }) = word;
        self.free_bits[word] &= !(1 << bit);
        self.free -= 1;
        if zero {
            self.zero_bits[word] &= !(1 << bit);
            self.zero -= 1;
        }
        Some((word * 64 + bit, zero))
    }

    /// Takes a piece back. False when it is free already: then nothing was done.
    #[must_use]
    pub fn give(&mut self, index: usize, zero: bool) -> bool {
        let (word, bit) = (index / 64, 1 << (index % 64));
        if index >= self.pieces || self.free_bits[word] & bit != 0 {
            return false;
        }
        self.free_bits[word] |= bit;
        self.free += 1;
        if zero {
            self.zero_bits[word] |= bit;
            self.zero += 1;
            self.zero_from = self.zero_from.min(word);
        } else {
            self.warm_from = self.warm_from.min(word);
        }
        true
    }

    /// Free pieces that do not read as zero.
    pub fn warm(&self) -> usize {
        self.free - self.zero
    }

    /// True when a piece is free.
    pub fn is_free(&self, index: usize) -> bool {
        self.free_bits[index / 64] >> (index % 64) & 1 == 1
    }

    /// Whether the counts are those of the bits.
    pub fn holds(&self) -> bool {
        let ones = |bits: &[u64]| bits.iter().map(|word| word.count_ones() as usize).sum::<usize>();
        let subset = self.free_bits.iter().zip(&self.zero_bits).all(|(free, zero)| zero & !free == 0);
        ones(&self.free_bits) == self.free && ones(&self.zero_bits) == self.zero && subset && self.free <= self.pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_piece_is_given_out_once() {
        for class in [0, 1, 20, 35, 50, 51] {
            for zero in [false, true] {
                let mut cut = Cut::new(class, zero).unwrap();
                assert!(cut.holds());
                let mut seen = vec![false; cut.pieces];
                while let Some((index, reads_zero)) = cut.take(false) {
                    assert!(!std::mem::replace(&mut seen[index], true));
                    assert_eq!(reads_zero, zero);
                }
                assert!(seen.iter().all(|&seen| seen) && cut.holds());
                for index in 0..cut.pieces {
                    assert!(cut.give(index, false) && !cut.give(index, false), "a double return passed");
                }
                assert!(cut.holds() && cut.free == cut.pieces && !cut.give(cut.pieces, true));
            }
        }
    }

    #[test]
    fn warm_pieces_are_taken_first_unless_zeros_are_wanted() {
        let mut cut = Cut::new(30, true).unwrap();
        assert_eq!(cut.take(false), Some((0, true)));
        assert_eq!(cut.take(false), Some((1, true)));
        assert!(cut.give(1, false));
        assert_eq!(cut.take(true), Some((2, true)));
        assert_eq!(cut.take(false), Some((1, false)));
        assert_eq!(cut.take(false), Some((3, true)));
        assert!(cut.give(0, true));
        assert_eq!(cut.take(true), Some((0, true)));
        assert!(cut.holds());
    }
}
