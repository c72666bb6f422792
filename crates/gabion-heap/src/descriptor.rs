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

/// `stamp (32 bits) | check (22) | class (8) | kind (2)`, changed by its shard's writer and compared by readers. The
/// check follows from class and kind; the process that finds a block in a file sees by it that they are what was
/// written.
///
/// The *stamp* rises whenever something in the page that was pointed to from elsewhere becomes free, and whenever
/// the page is put to another use: a reader that finds the same descriptor after its copy as before it has read
/// bytes that were not reused meanwhile. It wraps after 2³² frees in one page within one copy, or while one long
/// payload is left where it lies to be copied later; no reader is slow enough for that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptor(u64);

impl Descriptor {
    /// Numbers that a descriptor has room for as classes.
    pub const CLASS_NUMBERS: usize = 256;
    const CLASS_SHIFT: u32 = 2;
    const CHECK_SHIFT: u32 = 10;
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
        let use_of = (class as u64) << Self::CLASS_SHIFT | kind;
        Self(self.next().0 >> Self::STAMP_SHIFT << Self::STAMP_SHIFT | Self::checked(use_of))
    }

    /// Class and kind with their check.
    fn checked(use_of: u64) -> u64 {
        let mixed = (use_of + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - (Self::STAMP_SHIFT - Self::CHECK_SHIFT));
        use_of | mixed << Self::CHECK_SHIFT
    }

    /// Whether it is one that was written, or that of a page which was never used: then `turned` must not say that it
    /// was.
    pub(crate) fn is_whole(self, turned: bool) -> bool {
        let low = self.0 & ((1 << Self::STAMP_SHIFT) - 1);
        if self.0 == 0 { !turned } else { low == Self::checked(low & ((1 << Self::CHECK_SHIFT) - 1)) }
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

/// The word of a block's header that holds the highest generation of any pointer into the block, but for pointers into
/// pages in use. Read by the process that finds the block in a file.
pub const FLOOR_WORD: usize = PAGES_PER_BLOCK + 3;
const _: () = assert!(FLOOR_WORD < BLOCK_HEADER_WORDS);

/// A bit for each page that was ever used.
pub(crate) const TURNED_WORD: usize = PAGES_PER_BLOCK + 4;
const _: () = assert!(TURNED_WORD < BLOCK_HEADER_WORDS);

/// The word of a block's header that the heap leaves to its owner; 0 in a fresh block.
pub const OWNER_WORD: usize = PAGES_PER_BLOCK + 2;
const _: () = assert!(OWNER_WORD < BLOCK_HEADER_WORDS);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_that_was_changed_is_known() {
        for (kind, class) in [(Kind::Free, 0), (Kind::Slots, 0), (Kind::Slots, 63), (Kind::Chunks, 0)] {
            let written = Descriptor(7 << 32).turned(kind, class);
            assert_eq!((written.kind(), written.class()), (kind, class));
            assert!(written.is_whole(true) && written.next().is_whole(true));
            assert!((0..32).all(|bit| !Descriptor(written.0 ^ 1 << bit).is_whole(true)));
        }
        assert!(Descriptor(0).is_whole(false) && !Descriptor(0).is_whole(true));
    }
}
