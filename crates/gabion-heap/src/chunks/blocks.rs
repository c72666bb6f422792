//! The blocks of chunks: taken, emptied, given back.

use std::sync::atomic::Ordering::Relaxed;

use gabion_blocks::{Block, PAGE_BYTES, PAGES_PER_BLOCK, make_room};

use super::bins::{Bins, bin_of};
use super::{ChunkBlock, Chunks, END, FIRST, LENGTH, NO_BLOCK, Tray, USED, ordinal_of, tags};
use crate::descriptor::{Kind, ORDINAL_WORD, SHARD_WORD};
use crate::error::HeapError;
use crate::ground::{Ground, turn_page};
use crate::loc::Loc;

/// The pages with a block's first tag and its last one.
pub(super) const ENDS: u64 = 1 | 1 << (PAGES_PER_BLOCK - 1);

/// Whether a block has no used chunk.
fn is_empty(block: &Block<'_>) -> bool {
    let tag = block.word(FIRST).load(Relaxed);
    tag & USED == 0 && (tag & LENGTH) as usize == END - FIRST
}

impl Chunks {
    /// Whether [`Chunks::empty_block`] has one to take off beyond the one that is kept.
    #[inline]
    pub fn has_empty_block(&self) -> bool {
        self.takes_off && self.empty > 1
    }

    /// Takes off a block without a used chunk, beyond the one that is kept for the next chunk, or with `all` that one
    /// too. It is the caller's, to be given back to the pool. For owners [`without_readers`](Chunks::without_readers);
    /// looks through the blocks only when there is one.
    pub fn empty_block(&mut self, ground: Ground<'_>, all: bool) -> Option<u32> {
        if !self.takes_off || self.empty <= usize::from(!all) {
            return None;
        }
        // What is on the tray may be all that is left in a block.
        self.empty_tray(ground);
        // What was emptied last stands first in the bin of what is empty: it is found at once, unless something nearly
        // as large was freed since.
        let first = self.bins.first_of(bin_of(END - FIRST)).map(Loc::number);
        let in_use = self.blocks.iter().filter(|entry| !entry.spare).map(|entry| entry.number);
        let block = first.into_iter().chain(in_use).filter_map(|number| ground.blocks.block(number)).find(is_empty)?;
        let ordinal = ordinal_of(block);
        self.unbin(ground, block, Loc::new(block.number(), FIRST), END - FIRST);
        self.empty -= 1;
        self.close(ground, ordinal);
        self.blocks[ordinal].number = NO_BLOCK;
        self.vacant.push(ordinal);
        Some(block.number())
    }

    /// Makes one free chunk of a fresh block, or of one that was given back.
    pub(super) fn add_block(&mut self, ground: Ground<'_>) -> Result<(), HeapError> {
        let ordinal = if let Some(ordinal) = self.spare.pop() {
            ground.blocks.note_refill(self.blocks[ordinal].number);
            ordinal
        } else {
            self.map_block(ground)?
        };
        let entry = &mut self.blocks[ordinal];
        (entry.spare, entry.live, entry.reached) = (false, 0, ENDS);
        let number = entry.number;
        // The others are claimed when something is written to them.
        ground.blocks.claim(number, ENDS);
        let block = ground.blocks.block(number).expect("a block of this heap");
        block.word(SHARD_WORD).store(u64::from(self.shard), Relaxed);
        block.word(ORDINAL_WORD).store(ordinal as u64, Relaxed);
        block.word(END).store(1 | USED, Relaxed);
        self.make_free(ground, Loc::new(number, FIRST), END - FIRST);
        for page in 0..PAGES_PER_BLOCK {
            turn_page(ground, block, page, Kind::Chunks, 0);
        }
        self.empty += 1;
        Ok(())
    }

    /// Maps a block and enters it. Returns its ordinal.
    fn map_block(&mut self, ground: Ground<'_>) -> Result<usize, HeapError> {
        let most = self.blocks.len() + 1;
        make_room(&mut self.blocks, 1)?;
        // For all of them: giving back needs no memory then.
        make_room(&mut self.spare, most)?;
        make_room(&mut self.vacant, most)?;
        // Most heaps stay small, so the first block keeps to small pages.
        let own = self.blocks.is_empty() || self.takes_off;
        let (number, _) = if own { ground.blocks.map_as(!self.grown) } else { ground.blocks.map() }?;
        let ordinal = self.vacant.pop().unwrap_or(self.blocks.len());
        if ordinal == self.blocks.len() {
            self.blocks.push(ChunkBlock { number, charged: 0, reached: 0, live: 0, spare: true });
        }
        self.blocks[ordinal].number = number;
        Ok(ordinal)
    }

    /// Makes an empty block a spare one: nothing of it is charged, and it is the pool's business how long it stays
    /// warm.
    pub(super) fn release_block(&mut self, ground: Ground<'_>, block: Block<'_>) {
        self.unbin(ground, block, Loc::new(block.number(), FIRST), END - FIRST);
        let ordinal = ordinal_of(block);
        self.spare.push(ordinal);
        self.empty -= 1;
        self.release(ground, ordinal);
    }

    /// The rest of making a block a spare one.
    fn release(&mut self, ground: Ground<'_>, ordinal: usize) {
        let entry = self.blocks[ordinal];
        let block = ground.blocks.block(entry.number).expect("a block of this heap");
        for page in 0..PAGES_PER_BLOCK {
            turn_page(ground, block, page, Kind::Free, 0);
        }
        self.close(ground, ordinal);
        ground.blocks.release(entry.number, u64::MAX, !entry.reached, ground.budget.room());
    }

    /// Counts out a block in which nothing is used.
    fn close(&mut self, ground: Ground<'_>, ordinal: usize) {
        let entry = &mut self.blocks[ordinal];
        entry.spare = true;
        entry.reached = 0;
        let charged = u64::from(std::mem::take(&mut entry.charged).count_ones());
        ground.budget.give(charged * PAGE_BYTES as u64);
        self.charged_pages -= charged;
    }

    /// Leaves it to the pool how long blocks without a used chunk stay warm, and pages of others in which nothing is
    /// left: they are charged no more.
    pub fn release_idle(&mut self, ground: Ground<'_>) {
        self.give_idle(ground);
        if self.empty == 0 {
            return;
        }
        self.empty_tray(ground);
        for ordinal in 0..self.blocks.len() {
            let block = ground.blocks.block(self.blocks[ordinal].number);
            if let Some(block) = block.filter(|block| !self.blocks[ordinal].spare && is_empty(block)) {
                self.release_block(ground, block);
            }
        }
    }

    /// As [`Chunks::release_idle`], and gives back the memory of blocks without a used chunk at once. Returns bytes.
    pub fn release_warm(&mut self, ground: Ground<'_>) -> u64 {
        let before = self.charged_pages;
        // What was charged until now may have gone back already, when it was released.
        let kept: u64 = self.spare.iter().map(|&ordinal| self.give_released(ground, ordinal)).sum();
        let first = self.spare.len();
        self.release_idle(ground);
        for &ordinal in &self.spare[first..] {
            self.give_released(ground, ordinal);
        }
        kept + (before - self.charged_pages) * PAGE_BYTES as u64
    }

    /// Gives back the memory of blocks without a used chunk, and of pages of others in which nothing is left, at once.
    /// Returns bytes.
    pub fn trim(&mut self, ground: Ground<'_>) -> u64 {
        let each = |chunks: &Self| (0..chunks.blocks.len()).map(|at| chunks.give_released(ground, at)).sum::<u64>();
        let kept = each(self);
        let given = self.release_warm(ground);
        each(self);
        kept + given
    }

    /// Gives back at once what is warm of a block's released pages. Returns bytes.
    fn give_released(&self, ground: Ground<'_>, ordinal: usize) -> u64 {
        let ChunkBlock { number, spare, .. } = self.blocks[ordinal];
        let warm = if number == NO_BLOCK { 0 } else { ground.blocks.emptied(number) };
        if warm == 0 {
            return 0;
        }
        let pages = if spare { u64::MAX } else { warm };
        u64::from(ground.blocks.decommit_pages(number, pages).count_ones()) * PAGE_BYTES as u64
    }

    /// Forgets what is free in blocks in use, of which nothing is used any more.
    fn forget_free(&mut self) {
        self.bins = Bins::new();
        (self.empty, self.idle_pages) = (0, 0);
        if let Some(tray) = &mut self.tray {
            **tray = Tray::new();
        }
    }

    /// Frees everything at once; the blocks stay, as spare ones.
    pub fn clear(&mut self, ground: Ground<'_>) {
        self.forget_free();
        for ordinal in 0..self.blocks.len() {
            if self.blocks[ordinal].spare {
                continue;
            }
            let block = ground.blocks.block(self.blocks[ordinal].number).expect("a block of this heap");
            Self::strike_tags(block);
            self.release(ground, ordinal);
        }
        debug_assert!(self.charged_pages == 0);
        self.spare.clear();
        self.spare.extend((0..self.blocks.len()).filter(|&ordinal| self.blocks[ordinal].number != NO_BLOCK));
    }

    /// Frees everything at once and takes all blocks off: each is the caller's, to be given back to the pool. For
    /// owners [`without_readers`](Chunks::without_readers).
    pub fn take_off_all(&mut self, ground: Ground<'_>, mut each: impl FnMut(u32)) {
        debug_assert!(self.takes_off, "somebody may look at the blocks");
        self.forget_free();
        for ordinal in 0..self.blocks.len() {
            let entry = self.blocks[ordinal];
            if entry.number == NO_BLOCK {
                continue;
            }
            if !entry.spare {
                self.close(ground, ordinal);
            }
            each(entry.number);
        }
        debug_assert!(self.charged_pages == 0);
        self.blocks.clear();
        self.spare.clear();
        self.vacant.clear();
    }

    /// Sees to it that no tag of a block says that its chunk is used: what is freed once more is found out by that.
    fn strike_tags(block: Block<'_>) {
        for (at, tag) in tags(block, FIRST) {
            // Relaxed: the owner's alone; readers go by the page's descriptor.
            block.word(at).store(tag & LENGTH, Relaxed);
        }
    }
}
