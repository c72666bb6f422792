//! What every part of a heap stands on.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, fence};

use gabion_blocks::{Block, BlockSet, Budget};

use crate::descriptor::{Descriptor, Kind, SHARD_WORD, TURNED_WORD};

/// What a heap stands on: the blocks it draws from and the budget it draws on, shared by all shards.
#[derive(Debug, Clone, Copy)]
pub struct Ground<'a> {
    /// The owner's blocks.
    pub blocks: &'a BlockSet,
    /// The owner's budget in bytes.
    pub budget: &'a Budget,
    /// How often the owner's pages were put to another use.
    pub turns: &'a Turns,
}

/// How often any page of an owner was put to another use. A reader that finds it unchanged after a copy has found every
/// page in the use that it had before the copy; for readers that do not want to look at a page's descriptor, which may
/// lie on a line of memory that no thread has looked at for long. On a line of its own, which hardly ever changes.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Turns(AtomicU64);

impl Turns {
    /// The number before a copy.
    #[inline(always)]
    pub fn before(&self) -> u64 {
        // Acquire: what is copied comes after it, and is no older than the last turn that is counted.
        self.0.load(Acquire)
    }

    /// Whether the number is still what it was, after a copy and an acquire fence.
    #[inline(always)]
    pub fn stands(&self, before: u64) -> bool {
        // Relaxed: a reader that copied what was written after a turn finds the turn, because of the fences here and
        // there.
        self.0.load(Relaxed) == before
    }
}

/// The shard that a block belongs to. Constant while the block is in use.
#[inline]
pub fn shard_of(block: Block<'_>) -> u32 {
    block.word(SHARD_WORD).load(Relaxed) as u32
}

/// Writes a page's descriptor for its next use.
pub(crate) fn turn_page(ground: Ground<'_>, block: Block<'_>, page: usize, kind: Kind, class: usize) {
    // Release: a reader that finds the count of this turn finds nothing older in the page than it was prepared with.
    // What comes after the turn is ordered by the fence below.
    ground.turns.0.fetch_add(1, Release);
    let cell = Descriptor::of(block, page);
    let before = cell.load(Relaxed);
    let turned = Descriptor::from_bits(before).turned(kind, class);
    // Release: a reader that sees the new use also sees the page prepared for it.
    cell.store(turned.bits(), Release);
    if before == 0 {
        // Relaxed: the shard's lock orders it; who opens a file finds it after the descriptor, or not at all.
        let turned = block.word(TURNED_WORD);
        turned.store(turned.load(Relaxed) | 1 << page, Relaxed);
    }
    // What is written into the page next must not be seen before the descriptor and the count by a reader that copies
    // meanwhile.
    fence(Release);
}
