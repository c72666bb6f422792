//! What a page is: one word per page in the block's header.

use std::sync::atomic::AtomicU64;

use gabion_blocks::{Block, PAGES_PER_BLOCK};

use crate::class::BLOCK_HEADER_WORDS;

/// What a page holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Nothing.
    Free,
    /// Slots of one size class.
    Slots,
    /// Chunks behind tags; the whole block is so.
    Chunks,
}

/// `stamp (32 bits) | class (8) | kind (2)`, changed by its shard's writer and compared by readers.
///
/// The *stamp* rises whenever something in the page that was pointed to from elsewhere becomes free, and whenever
/// the page is put to another use: a reader that finds the same descriptor after its copy as before it has read
/// bytes that were not reused meanwhile. It wraps after 2³² frees in one page within one copy, or while one long payload is left
/// where it lies to be copied later; no reader is slow enough for that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptor(u64);

impl Descriptor {
    /// Numbers that a descriptor has room for as classes.
    pub const CLASS_NUMBERS: usize = 256;
    const CLASS_SHIFT: u32 = 2;
    const STAMP_SHIFT: u32 = 32;

    /// Where the descriptor of a page stands.
    #[inline]
    pub fn of(block: Block<'_>, page: usize) -> &AtomicU64 {
        block.word(page & (PAGES_PER_BLOCK - 1))
    }

    /// Reads a descriptor word.
    #[inline]
    pub fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The descriptor as stored.
    #[inline]
    pub fn bits(self) -> u64 {
        self.0
    }

    /// What the page holds.
    #[inline]
    pub fn kind(self) -> Kind {
        match self.0 & 3 {
            1 => Kind::Slots,
            2 => Kind::Chunks,
            _ => Kind::Free,
        }
    }

    /// The size class of a page of slots.
    #[inline]
    pub fn class(self) -> usize {
        (self.0 >> Self::CLASS_SHIFT) as usize % Self::CLASS_NUMBERS
    }

    /// The same page in a new use and the next stamp.
    pub(crate) fn turned(self, kind: Kind, class: usize) -> Self {
        let kind = match kind {
            Kind::Free => 0,
            Kind::Slots => 1,
            Kind::Chunks => 2,
        };
        Self(self.next().0 >> Self::STAMP_SHIFT << Self::STAMP_SHIFT | (class as u64) << Self::CLASS_SHIFT | kind)
    }

    /// The same page in the same use, one stamp on.
    #[must_use]
    #[inline]
    pub fn next(self) -> Self {
        Self(self.0.wrapping_add(1 << Self::STAMP_SHIFT))
    }
}

// The header also says whose the block is.
pub(crate) const SHARD_WORD: usize = PAGES_PER_BLOCK;
pub(crate) const ORDINAL_WORD: usize = PAGES_PER_BLOCK + 1;

/// The word of a block's header that the heap leaves to its owner; 0 in a fresh block.
pub const OWNER_WORD: usize = PAGES_PER_BLOCK + 2;
const _: () = assert!(OWNER_WORD < BLOCK_HEADER_WORDS);
