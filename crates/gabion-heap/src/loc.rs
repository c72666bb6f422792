//! Where something lies: a block number and a word in the block.

use gabion_blocks::{BLOCK_NUMBERS, WORDS_PER_BLOCK, WORDS_PER_PAGE};

/// A place in a block: `block number (20 bits) | word (19 bits)`. Never an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Loc(u64);

impl Loc {
    /// Bits of the word index within a block.
    pub const WORD_BITS: u32 = WORDS_PER_BLOCK.trailing_zeros();
    /// Bits of the block number.
    pub const NUMBER_BITS: u32 = BLOCK_NUMBERS.trailing_zeros();
    /// Bits of the whole.
    pub const BITS: u32 = Self::WORD_BITS + Self::NUMBER_BITS;

    /// The place `word` in block `number`.
    #[inline]
    pub fn new(number: u32, word: usize) -> Self {
        debug_assert!(number < BLOCK_NUMBERS && word < WORDS_PER_BLOCK);
        Self(u64::from(number) << Self::WORD_BITS | word as u64)
    }

    /// Reads back what [`Loc::bits`] gave; higher bits are ignored.
    #[inline]
    pub fn from_bits(bits: u64) -> Self {
        Self(bits & ((1 << Self::BITS) - 1))
    }

    /// The place as the low [`Loc::BITS`] bits of a word.
    #[inline]
    pub fn bits(self) -> u64 {
        self.0
    }

    /// The block's number.
    #[inline]
    pub fn number(self) -> u32 {
        (self.0 >> Self::WORD_BITS) as u32
    }

    /// The word within the block.
    #[inline]
    pub fn word(self) -> usize {
        (self.0 & (WORDS_PER_BLOCK as u64 - 1)) as usize
    }

    /// The page within the block.
    #[inline]
    pub fn page(self) -> usize {
        self.word() / WORDS_PER_PAGE
    }
}

const _: () = assert!(Loc::BITS == 39);
