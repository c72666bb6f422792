//! What every part of a heap stands on.

use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::atomic::fence;

use gabion_blocks::{Block, BlockSet, Budget};

use crate::descriptor::{Descriptor, Kind, SHARD_WORD};

/// What a heap stands on: the blocks it draws from and the budget it draws on, shared by all shards.
#[derive(Debug, Clone, Copy)]
pub struct Ground<'a> {
    /// The owner's blocks.
    pub blocks: &'a BlockSet,
    /// The owner's budget in bytes.
    pub budget: &'a Budget,
}

/// The shard that a block belongs to. Constant while the block is in use.
#[inline]
pub fn shard_of(block: Block<'_>) -> u32 {
    block.word(SHARD_WORD).load(Relaxed) as u32
}

/// Writes a page's descriptor for its next use.
pub(crate) fn turn_page(block: Block<'_>, page: usize, kind: Kind, class: usize) {
    let cell = Descriptor::of(block, page);
    let turned = Descriptor::from_bits(cell.load(Relaxed)).turned(kind, class);
    // Release: a reader that sees the new use also sees the page prepared for it.
    cell.store(turned.bits(), Release);
    // What is written into the page next must not be seen before the descriptor by a reader that copies meanwhile.
    fence(Release);
}
