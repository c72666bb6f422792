//! How a block is cut into pieces of one class: a bit for each piece, outside the block.

use std::collections::TryReserveError;

use super::size::pieces_in_block;

/// 64 pieces: which of them are free, and which of these read as zero.
#[derive(Debug, Clone, Copy)]
struct Word {
    free: u64,
    zero: u64,
}

impl Word {
    fn warm(self) -> u64 {
        self.free & !self.zero
    }
}

/// Which pieces of a block are free, and which of these read as zero.
///
/// `free = free bits`, `zero = zero bits`, and every zero bit is a free bit too.
#[derive(Debug)]
pub(crate) struct Cut {
    pub pieces: usize,
    pub free: usize,
    pub zero: usize,
    words: Vec<Word>,
    /// No free piece that is warm lies in a word before this one.
    warm_from: usize,
    /// No piece that is zero lies in a word before this one.
    zero_from: usize,
}

impl Cut {
    /// Of a block that is not cut.
    pub const NONE: Self = Self { pieces: 0, free: 0, zero: 0, words: Vec::new(), warm_from: 0, zero_from: 0 };

    /// All pieces of a class, all free; `zero` says that they read as zero.
    ///
    /// # Errors
    /// When there is no memory for the bits.
    pub fn new(class: usize, zero: bool) -> Result<Self, TryReserveError> {
        let pieces = pieces_in_block(class);
        let mut words = Vec::new();
        words.try_reserve_exact(pieces.div_ceil(64))?;
        words.extend((0..pieces.div_ceil(64)).map(|word| {
            let free = match pieces - word * 64 {
                count if count < 64 => (1 << count) - 1,
                _ => u64::MAX,
            };
            Word { free, zero: if zero { free } else { 0 } }
        }));
        Ok(Self { pieces, free: pieces, zero: if zero { pieces } else { 0 }, words, warm_from: 0, zero_from: 0 })
    }

    /// Takes a free piece: one that reads as zero when `clean` asks for it and there is one, else a warm one when there
    /// is one. Returns its index, and whether it reads as zero.
    pub fn take(&mut self, clean: bool) -> Option<(usize, bool)> {
        if self.free == 0 {
            return None;
        }
        let zero = self.zero == self.free || (clean && self.zero > 0);
        let from = if zero { &mut self.zero_from } else { &mut self.warm_from };
        let mask = |word: Word| if zero { word.zero } else { word.warm() };
        let found = self.words[*from..].iter().position(|&word| mask(word) != 0);
        *from += found.expect("the count says that there is one");
        let (index, word) = (*from, &mut self.words[*from]);
        let bit = mask(*word).trailing_zeros() as usize;
        word.free &= !(1 << bit);
        self.free -= 1;
        if zero {
            word.zero &= !(1 << bit);
            self.zero -= 1;
        }
        Some((index * 64 + bit, zero))
    }

    /// Takes a piece back. False when it is free already: then nothing was done.
    #[must_use]
    pub fn give(&mut self, index: usize, zero: bool) -> bool {
        let (at, bit) = (index / 64, 1 << (index % 64));
        if index >= self.pieces || self.words[at].free & bit != 0 {
            return false;
        }
        let word = &mut self.words[at];
        word.free |= bit;
        self.free += 1;
        if zero {
            word.zero |= bit;
            self.zero += 1;
            self.zero_from = self.zero_from.min(at);
        } else {
            self.warm_from = self.warm_from.min(at);
        }
        true
    }

    /// Free pieces that do not read as zero.
    pub fn warm(&self) -> usize {
        self.free - self.zero
    }

    /// True when a piece is free.
    pub fn is_free(&self, index: usize) -> bool {
        self.words[index / 64].free >> (index % 64) & 1 == 1
    }

    /// Whether the counts are those of the bits.
    pub fn holds(&self) -> bool {
        let ones =
            |bits: fn(&Word) -> u64| self.words.iter().map(|word| bits(word).count_ones() as usize).sum::<usize>();
        let subset = self.words.iter().all(|word| word.zero & !word.free == 0);
        ones(|word| word.free) == self.free && ones(|word| word.zero) == self.zero && subset && self.free <= self.pieces
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
