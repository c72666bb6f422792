//! Blocks of chunks that were there before: bins and counts, made anew from the tags.

use std::sync::atomic::Ordering::Relaxed;

use gabion_blocks::{PAGE_BYTES, PAGES_PER_BLOCK, WORDS_PER_BLOCK, make_room};

use super::charge::pages_with;
use super::{ChunkBlock, Chunks, END, FIRST, LEAST_WORDS, LENGTH, PREVIOUS_FREE, ROOM_ALIGN, USED, ordinal_of};
use crate::descriptor::{Descriptor, Kind, ORDINAL_WORD};
use crate::error::Damage;
use crate::ground::{Ground, turn_page};
use crate::loc::Loc;
use crate::page::store_changed;

/// Where the used chunks of each block begin that nobody has claimed yet, by the block's ordinal: a bit for every other
/// word.
#[derive(Debug, Default)]
pub(crate) struct Unclaimed(Vec<Box<[u64]>>);

const BITS_WORDS: usize = WORDS_PER_BLOCK / ROOM_ALIGN / 64;

impl Unclaimed {
    /// Takes a chunk's bit, by the word of its tag. False when there is none.
    fn take(&mut self, ordinal: usize, at: usize) -> bool {
        let (word, bit) = (at / ROOM_ALIGN / 64, 1_u64 << (at / ROOM_ALIGN % 64));
        let Some(bits) = self.0.get_mut(ordinal) else { return false };
        let had = at % ROOM_ALIGN == 1 && bits[word] & bit != 0;
        bits[word] &= if had { !bit } else { u64::MAX };
        had
    }
}

impl Chunks {
    /// Takes over a block of chunks that was this shard's before. Its chunks count as nobody's until they are claimed.
    pub(crate) fn take_over(
        &mut self,
        ground: Ground<'_>,
        number: u32,
        unclaimed: &mut Unclaimed,
    ) -> Result<(), Damage> {
        let most = self.blocks.len() + 1;
        make_room(&mut self.blocks, 1)?;
        // As in `map_block`.
        make_room(&mut self.spare, most)?;
        make_room(&mut self.vacant, most)?;
        make_room(&mut unclaimed.0, 1)?;
        let mut bits = Vec::new();
        make_room(&mut bits, BITS_WORDS)?;
        bits.resize(BITS_WORDS, 0);
        let block = ground.blocks.block(number).expect("a block of this owner");
        for page in 0..PAGES_PER_BLOCK {
            match Descriptor::from_bits(Descriptor::of(block, page).load(Relaxed)).kind() {
                Kind::Chunks => {}
                // The block was just being taken for chunks, the first page first.
                Kind::Free => turn_page(ground, block, page, Kind::Chunks, 0),
                Kind::Slots => return Err(Damage::at(Loc::new(number, page), "a page of slots is among chunks")),
            }
        }
        let mut at = FIRST;
        while at < END {
            let tag = block.word(at).load(Relaxed);
            let length = (tag & LENGTH) as usize;
            if length < LEAST_WORDS || !length.is_multiple_of(ROOM_ALIGN) || at + length > END {
                return Err(Damage::at(Loc::new(number, at), "a tag has a length that leads nowhere"));
            }
            if tag & USED != 0 {
                bits[at / ROOM_ALIGN / 64] |= 1 << (at / ROOM_ALIGN % 64);
            }
            at += length;
        }
        store_changed(block.word(ORDINAL_WORD), self.blocks.len() as u64);
        self.blocks.push(ChunkBlock { number, charged: 0, reached: u64::MAX, live: 0, spare: false });
        unclaimed.0.push(bits.into_boxed_slice());
        Ok(())
    }

    /// Notes that a used chunk is somebody's. False when there is no such chunk, or when it is somebody's already.
    pub(crate) fn claim(ground: Ground<'_>, chunk: Loc, unclaimed: &mut Unclaimed) -> bool {
        let Some(block) = ground.blocks.block(chunk.number()) else { return false };
        let Some(at) = chunk.word().checked_sub(1) else { return false };
        unclaimed.take(ordinal_of(block), at)
    }

    /// Counts and bins all chunks, after all that is somebody's was claimed. What nobody has claimed is free.
    pub(crate) fn finish_recovery(&mut self, ground: Ground<'_>, mut unclaimed: Unclaimed) {
        for ordinal in 0..self.blocks.len() {
            self.recover_block(ground, ordinal, &mut unclaimed);
        }
    }

    fn recover_block(&mut self, ground: Ground<'_>, ordinal: usize, unclaimed: &mut Unclaimed) {
        let number = self.blocks[ordinal].number;
        let block = ground.blocks.block(number).expect("a block of this heap");
        store_changed(block.word(END), 1 | USED);
        let (mut at, mut free) = (FIRST, None);
        while at < END {
            // Relaxed: nobody else knows of the block yet.
            let tag = block.word(at).load(Relaxed);
            let length = (tag & LENGTH) as usize;
            if tag & USED == 0 || unclaimed.take(ordinal, at) {
                free.get_or_insert(at);
            } else {
                let entry = &mut self.blocks[ordinal];
                entry.charged |= pages_with(at, at + length);
                entry.live += 1;
                let flag = if free.is_some() { PREVIOUS_FREE } else { 0 };
                store_changed(block.word(at), length as u64 | USED | flag);
                self.list_free(ground, number, free.take(), at);
            }
            at += length;
        }
        self.list_free(ground, number, free, END);
        let entry = &mut self.blocks[ordinal];
        let (charged, live) = (u64::from(entry.charged.count_ones()), entry.live);
        self.charged_pages += charged;
        ground.budget.charge(charged * PAGE_BYTES as u64);
        if live == 0 {
            self.empty += 1;
            if self.empty > 1 {
                self.release_block(ground, block);
            }
        }
    }

    /// Makes one free chunk of all that is free up to a word.
    fn list_free(&mut self, ground: Ground<'_>, number: u32, from: Option<usize>, to: usize) {
        if let Some(from) = from {
            self.make_free(ground, Loc::new(number, from), to - from);
        }
    }
}
