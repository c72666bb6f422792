//! The blocks of chunks: taken, emptied, given back.

use std::sync::atomic::Ordering::Relaxed;

use gabion_blocks::{Block, PAGE_BYTES, PAGES_PER_BLOCK, make_room};

use super::{BINS, ChunkBlock, Chunks, END, FIRST, LENGTH, NO_BLOCK, NOWHERE, Tray, USED, bin_of, ordinal_of};
use crate::descriptor::{Kind, ORDINAL_WORD, SHARD_WORD};
use crate::error::HeapError;
use crate::ground::{Ground, turn_page};
use crate::loc::Loc;

/// What a block keeps of its memory when that is given back.
const KEPT_WORDS: usize = 4096 / 8;

/// Whether a block has no used chunk.
fn is_empty(block: &Block<'_>) -> bool {
    let tag = block.word(FIRST).load(Relaxed);
    tag & USED == 0 && (tag & LENGTH) as usize == END - FIRST
}

impl Chunks {
    /// Whether [`Chunks::empty_block`] has one to take off beyond the one that is kept.
    #[inline]
    pub fn has_empty_block(&self) -> bool {
        self.leave && self.empty > 1
    }

    /// Takes off a block without a used chunk, beyond the one that is kept for the next chunk, or with `all` that one too.
    /// It is the caller's, to be given back to the pool. For owners [`without_readers`](Chunks::without_readers); looks
    /// through the blocks only when there is one.
    pub fn empty_block(&mut self, ground: Ground<'_>, all: bool) -> Option<u32> {
        if !self.leave || self.empty <= usize::from(!all) {
            return None;
        }
        // What is on the tray may be all that is left in a block.
        self.empty_tray(ground);
        // What was emptied last stands first in the bin of what is empty: it is found at once, unless something nearly as large
        // was freed since.
        let first = self.bins[bin_of(END - FIRST)].checked_sub(1).map(|bits| Loc::from_bits(bits).number());
        let in_use = self.blocks.iter().filter(|entry| !entry.spare).map(|entry| entry.number);
        let block = first.into_iter().chain(in_use).filter_map(|number| ground.blocks.block(number)).find(is_empty)?;
        let ordinal = ordinal_of(block);
        self.unbin(ground, Loc::new(block.number(), FIRST), END - FIRST);
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
        (self.blocks[ordinal].spare, self.blocks[ordinal].live) = (false, 0);
        let number = self.blocks[ordinal].number;
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
        let own = self.blocks.is_empty() || self.leave;
        let (number, _) = if own { ground.blocks.map_as(!self.grown) } else { ground.blocks.map() }?;
        let ordinal = self.vacant.pop().unwrap_or(self.blocks.len());
        if ordinal == self.blocks.len() {
            self.blocks.push(ChunkBlock { number, touched: 0, live: 0, spare: true });
        }
        self.blocks[ordinal].number = number;
        Ok(ordinal)
    }

    /// Gives back an empty block's memory, all but its header. Returns bytes.
    pub(super) fn give_block_back(&mut self, ground: Ground<'_>, block: Block<'_>) -> u64 {
        self.unbin(ground, Loc::new(block.number(), FIRST), END - FIRST);
        let ordinal = ordinal_of(block);
        for page in 0..PAGES_PER_BLOCK {
            turn_page(ground, block, page, Kind::Free, 0);
        }
        ground.blocks.decommit(block.number(), 0, PAGES_PER_BLOCK);
        self.spare.push(ordinal);
        self.close(ground, ordinal)
    }

    /// Counts out an empty block, which is on no list. Returns bytes.
    fn close(&mut self, ground: Ground<'_>, ordinal: usize) -> u64 {
        let entry = &mut self.blocks[ordinal];
        entry.spare = true;
        let touched = std::mem::take(&mut entry.touched) as u64;
        ground.budget.give(touched * PAGE_BYTES as u64);
        self.touched_pages -= touched;
        self.empty -= 1;
        touched * PAGE_BYTES as u64
    }

    /// Gives back the memory of blocks without a used chunk. Returns bytes.
    pub fn trim(&mut self, ground: Ground<'_>) -> u64 {
        let mut bytes = 0;
        if self.empty == 0 {
            return bytes;
        }
        self.empty_tray(ground);
        for ordinal in 0..self.blocks.len() {
            let block = ground.blocks.block(self.blocks[ordinal].number);
            if let Some(block) = block.filter(|block| !self.blocks[ordinal].spare && is_empty(block)) {
                bytes += self.give_block_back(ground, block);
            }
        }
        bytes
    }

    /// Frees everything at once; the blocks stay, their memory goes back.
    pub fn clear(&mut self, ground: Ground<'_>) {
        self.bins = [NOWHERE; BINS];
        self.filled = [0; BINS.div_ceil(64)];
        self.free_words = 0;
        self.empty = 0;
        if let Some(tray) = &mut self.tray {
            **tray = Tray::new();
        }
        for ordinal in 0..self.blocks.len() {
            if self.blocks[ordinal].spare {
                continue;
            }
            let block = ground.blocks.block(self.blocks[ordinal].number).expect("a block of this heap");
            for page in 0..PAGES_PER_BLOCK {
                turn_page(ground, block, page, Kind::Free, 0);
            }
            // The first 4 KiB stay: no tag there may say that its chunk is used.
            for word in FIRST..KEPT_WORDS {
                block.word(word).store(0, Relaxed);
            }
            ground.blocks.decommit(block.number(), 0, PAGES_PER_BLOCK);
            let touched = std::mem::take(&mut self.blocks[ordinal].touched);
            ground.budget.give((touched * PAGE_BYTES) as u64);
            self.blocks[ordinal].spare = true;
        }
        self.touched_pages = 0;
        self.spare.clear();
        self.spare.extend((0..self.blocks.len()).filter(|&ordinal| self.blocks[ordinal].number != NO_BLOCK));
    }
}
