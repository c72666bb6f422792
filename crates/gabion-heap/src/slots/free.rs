//! Free pages: which is used next, and when their memory is given back.

use std::sync::atomic::Ordering;

use gabion_blocks::{BlockSet, LAST_GENERATION, PAGE_BYTES, PAGES_PER_BLOCK, make_room};

use super::{SlotBlock, Slots};
use crate::class::CLASSES;
use crate::descriptor::{FLOOR_WORD, Kind, ORDINAL_WORD, SHARD_WORD};
use crate::error::HeapError;
use crate::ground::{Ground, turn_page};
use crate::page::Page;
use crate::shelf::{PageMeta, Shelf};

/// Free pages kept warm: one block's worth.
const WARM_PAGES: u64 = PAGES_PER_BLOCK as u64;
/// More are kept where many pages are in use, of which many come and go: one for so many.
const WARM_SHARE: u64 = 16;

impl SlotBlock {
    /// Free pages of which the heap keeps the memory. Page 0 is none: the header's part of it always takes some.
    pub(super) fn warm(&self) -> u64 {
        self.free & !self.unkept & !1
    }

    /// Notes that the heap keeps no memory of free pages.
    fn leave_free_pages(&mut self) {
        // Page 0 keeps its first 4 KiB, so it does not read as zero.
        self.unkept |= self.free & !1;
        self.header_only |= self.free & 1 == 1;
    }

    /// Whether its pages have no generation left that heads in them could begin with.
    fn is_worn_out(&self, blocks: &BlockSet) -> bool {
        blocks.generation_floor(self.number) >= LAST_GENERATION
    }
}

impl Slots {
    /// Prepares a free page for slots of `class`.
    pub(super) fn form_page(&mut self, ground: Ground<'_>, class: usize) -> Result<u32, HeapError> {
        ground.budget.take(PAGE_BYTES as u64)?;
        let ordinal = self.block_with_free_page(ground).inspect_err(|_| ground.budget.give(PAGE_BYTES as u64))?;
        let entry = &mut self.blocks[ordinal];
        let number = entry.number;
        let (warm, at_hand) = (entry.warm(), entry.free & !entry.unkept);
        let released = if at_hand == 0 { entry.free & ground.blocks.emptied(number) } else { 0 };
        let first = [at_hand, released, entry.free].into_iter().find(|&pages| pages != 0);
        let index = first.expect("the block has a free page").trailing_zeros() as usize;
        if entry.free == u64::MAX && entry.unkept == !1 {
            ground.blocks.note_refill(number);
        }
        let is_warm = ground.blocks.claim(number, 1 << index) != 0;
        let reads_zero = entry.unkept >> index & 1 == 1 && !is_warm;
        ground.blocks.fit(ground.budget.room());
        entry.free &= !(1 << index);
        entry.unkept &= !(1 << index);
        entry.header_only &= index != 0;
        self.warm_pages -= warm >> index & 1;
        let block = ground.blocks.block(number).expect("a block of this heap");
        let page = Page::new(block, index, class);
        // A handful of objects of many sizes should cost a few of the system's pages.
        let grown = std::mem::replace(&mut self.shelves[class].grown, true);
        if reads_zero && grown {
            // Sixteen faults in one: the page is about to be filled.
            ground.blocks.populate(number, index).expect("a page of this heap");
        }
        if self.blocks[ordinal].free == 0 {
            ground.blocks.note_touched(number);
        }
        page.clear((self.head)(ground.blocks.generation_floor(number)), reads_zero);
        turn_page(ground, block, index, Kind::Slots, class);
        let id = ordinal * PAGES_PER_BLOCK + index;
        self.pages[id] = PageMeta { class: Some(class as u8), whole: page.shape.slots.into(), ..PageMeta::UNUSED };
        self.free_pages -= 1;
        self.used_pages += 1;
        Ok(id as u32)
    }

    /// A block with a free page, mapped if there is none: the first with one that takes memory already, or else the
    /// first.
    fn block_with_free_page(&mut self, ground: Ground<'_>) -> Result<usize, HeapError> {
        while let Some(&entry) = self.blocks.get(self.first_free) {
            if entry.free != 0 && entry.is_worn_out(ground.blocks) {
                // Heads in new pages would have no generation left. Its pages stay empty for good.
                self.free_pages -= u64::from(entry.free.count_ones());
                self.decommit(ground, self.first_free);
                // What a file does not give back is not for use either.
                self.warm_pages -= u64::from(self.blocks[self.first_free].warm().count_ones());
                self.blocks[self.first_free].free = 0;
            } else if entry.free != 0 {
                return Ok(self.warm_block(ground).unwrap_or(self.first_free));
            }
            self.first_free += 1;
        }
        make_room(&mut self.blocks, 1)?;
        make_room(&mut self.pages, PAGES_PER_BLOCK)?;
        // Most heaps stay small, so the first block keeps to small pages.
        let (number, zero) = if self.blocks.is_empty() { ground.blocks.map_as(true) } else { ground.blocks.map() }?;
        let ordinal = self.blocks.len();
        let block = ground.blocks.block(number).expect("just mapped");
        block.word(SHARD_WORD).store(u64::from(self.shard), Ordering::Relaxed);
        block.word(ORDINAL_WORD).store(ordinal as u64, Ordering::Relaxed);
        let entry = SlotBlock { number, free: u64::MAX, unkept: if zero { u64::MAX } else { 0 }, header_only: zero };
        self.warm_pages += u64::from(entry.warm().count_ones());
        self.blocks.push(entry);
        self.pages.resize(self.pages.len() + PAGES_PER_BLOCK, PageMeta::UNUSED);
        self.free_pages += PAGES_PER_BLOCK as u64;
        self.first_free = ordinal;
        Ok(ordinal)
    }

    /// The first block with a free page that takes memory.
    fn warm_block(&self, ground: Ground<'_>) -> Option<usize> {
        if self.warm_pages == 0 {
            return None;
        }
        let is_warm = |entry: &SlotBlock| entry.warm() != 0 && !entry.is_worn_out(ground.blocks);
        self.blocks[self.first_free..].iter().position(is_warm).map(|at| self.first_free + at)
    }

    /// Makes an empty, unlisted page free. It is the pool's business how long it stays warm when enough is kept so.
    pub(super) fn release_page(&mut self, ground: Ground<'_>, id: u32) {
        let ordinal = self.free_page(ground, id);
        // Nobody counts the memory of free pages: where a few things that stay are spread over all blocks, none of
        // these is ever empty, and what is kept for its pages would be as much again as all that is stored.
        let too_warm = self.warm_pages > WARM_PAGES.max(self.used_pages / WARM_SHARE);
        let is_empty = self.blocks[ordinal].free == u64::MAX;
        if too_warm || (is_empty && self.free_pages >= 2 * WARM_PAGES) {
            self.release(ground, ordinal);
        }
    }

    /// Leaves it to the pool how long a block's free pages stay warm.
    fn release(&mut self, ground: Ground<'_>, ordinal: usize) {
        let entry = &mut self.blocks[ordinal];
        self.warm_pages -= u64::from(entry.warm().count_ones());
        ground.blocks.release(entry.number, entry.free, entry.unkept, ground.budget.room());
        entry.leave_free_pages();
    }

    /// As [`Slots::release_page`], and keeps its memory. Returns the ordinal of its block.
    fn free_page(&mut self, ground: Ground<'_>, id: u32) -> usize {
        let (ordinal, index) = (id as usize / PAGES_PER_BLOCK, id as usize % PAGES_PER_BLOCK);
        self.pages[id as usize] = PageMeta::UNUSED;
        let entry = &mut self.blocks[ordinal];
        entry.free |= 1 << index;
        self.warm_pages += entry.warm() >> index & 1;
        let block = ground.blocks.block(entry.number).expect("a block of this heap");
        // Relaxed: the turn comes after it.
        block.word(FLOOR_WORD).store(ground.blocks.generation_floor(entry.number).into(), Ordering::Relaxed);
        turn_page(ground, block, index, Kind::Free, 0);
        self.first_free = self.first_free.min(ordinal);
        self.free_pages += 1;
        self.used_pages -= 1;
        ground.budget.give(PAGE_BYTES as u64);
        ordinal
    }

    /// Gives the memory of a block's free pages back at once, and keeps its header. Returns bytes.
    fn decommit(&mut self, ground: Ground<'_>, ordinal: usize) -> u64 {
        let entry = &mut self.blocks[ordinal];
        // What is free in a file stays in it.
        if entry.free == 0 || ground.blocks.file().is_some() {
            return 0;
        }
        self.warm_pages -= u64::from(entry.warm().count_ones());
        // A huge page brings memory for pages that were never used, too.
        let released = ground.blocks.decommit_pages(entry.number, entry.free);
        let done = entry.free & (released | !(entry.unkept | u64::from(entry.header_only)));
        entry.leave_free_pages();
        u64::from(done.count_ones()) * PAGE_BYTES as u64
    }

    pub fn trim(&mut self, ground: Ground<'_>) -> u64 {
        self.release_active(ground);
        (0..self.blocks.len()).map(|ordinal| self.decommit(ground, ordinal)).sum()
    }

    /// Leaves it to the pool how long all free pages stay warm.
    pub fn release_idle(&mut self, ground: Ground<'_>) {
        self.release_active(ground);
        // From the end: what is released last goes last, and what comes next begins with the first block.
        for ordinal in (0..self.blocks.len()).rev() {
            if self.blocks[ordinal].free != 0 {
                self.release(ground, ordinal);
            }
        }
    }

    pub fn clear(&mut self, ground: Ground<'_>) {
        for id in 0..self.pages.len() as u32 {
            if self.pages[id as usize].class.is_some() {
                self.free_page(ground, id);
            }
        }
        self.shelves = [Shelf::EMPTY; CLASSES];
        self.release_idle(ground);
    }
}
