//! The heap of one shard: slots and chunks over one set of blocks.

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

use gabion_blocks::{Block, BlockError, Invalid, LAST_GENERATION, PAGES_PER_BLOCK};

use crate::chunks::{ChunkPage, Chunks, Unclaimed};
use crate::descriptor::{Descriptor, FLOOR_WORD, Kind, TURNED_WORD};
use crate::error::{Damage, HeapError};
use crate::ground::Ground;
use crate::loc::Loc;
use crate::page::{PageSlot, Taken};
use crate::slots::{ANNEX_REACH, BlockPages, Freed, Marks, Slots, SparsePage, Unlisted};

/// What a heap holds. `page bytes in use = slot pages × 64 KiB + chunk bytes charged`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HeapCounts {
    /// Pages of slots in use.
    pub slot_pages: u64,
    /// Pages of chunk blocks that are charged.
    pub chunk_pages: u64,
    /// Words in free chunks, within charged pages and beyond.
    pub free_chunk_words: u64,
    /// Blocks that belong to this heap.
    pub blocks: u64,
}

/// What a heap has still to learn of the blocks that it takes over: see [`Heap::take_over`].
#[derive(Debug, Default)]
pub struct Recovery {
    marks: Marks,
    unclaimed: Unclaimed,
}

/// Slots and chunks of one shard.
pub struct Heap {
    slots: Slots,
    chunks: Chunks,
}

impl Heap {
    /// An empty heap. `shard` is written into every block it takes. `head` makes the first word of a free slot out of
    /// the block's generation floor; blocks whose floor has reached [`LAST_GENERATION`] are
    /// not used for slots again.
    pub fn new(shard: u32, head: fn(u32) -> u64) -> Self {
        Self { slots: Slots::new(shard, head), chunks: Chunks::new(shard) }
    }

    /// Takes over a block that was this shard's before, in another process. What is in its slots and chunks has to be
    /// said next, by [`Heap::mark_slot`] and [`Heap::claim_chunk`]; at last comes [`Heap::finish_recovery`]. All that
    /// was known of the block beside what is in it is made anew.
    ///
    /// # Errors
    /// [`Damage`] when the block makes no sense: the heap is of no use then.
    pub fn take_over(&mut self, ground: Ground<'_>, number: u32, recovery: &mut Recovery) -> Result<(), Damage> {
        let block = ground.blocks.block(number).expect("a block of this owner");
        // Relaxed, here and below: nobody else knows of the block yet.
        let turned = block.word(TURNED_WORD).load(Relaxed);
        for page in 0..PAGES_PER_BLOCK {
            let descriptor = Descriptor::from_bits(Descriptor::of(block, page).load(Relaxed));
            if !descriptor.is_whole(turned >> page & 1 == 1) {
                return Err(Damage::at(Loc::new(number, page), "the header describes a page as no page is"));
            }
        }
        // Also of chunks: the block may have had slots before, and may have some again.
        let floor = block.word(FLOOR_WORD).load(Relaxed);
        if floor > u64::from(LAST_GENERATION) + 1 {
            return Err(Damage::at(Loc::new(number, FLOOR_WORD), "the header has a generation that is none"));
        }
        ground.blocks.raise_generation_floor(number, floor as u32);
        match Descriptor::from_bits(Descriptor::of(block, 0).load(Relaxed)).kind() {
            Kind::Chunks => self.chunks.take_over(ground, number, &mut recovery.unclaimed),
            Kind::Free | Kind::Slots => self.slots.take_over(ground, number, &mut recovery.marks),
        }
    }

    /// Says that parts of a slot of a block that was taken over are taken; `retired`: that its head is for good. False
    /// when one of them was taken already, or when no such slot is there: the block is damaged.
    pub fn mark_slot(
        &mut self,
        ground: Ground<'_>,
        slot: Loc,
        parts: Taken,
        retired: bool,
        recovery: &mut Recovery,
    ) -> bool {
        self.slots.mark(ground, slot, parts, retired, &mut recovery.marks)
    }

    /// Says that a chunk of a block that was taken over is somebody's. False when it was so already, or when no such
    /// chunk is there.
    pub fn claim_chunk(ground: Ground<'_>, chunk: Loc, recovery: &mut Recovery) -> bool {
        Chunks::claim(ground, chunk, &mut recovery.unclaimed)
    }

    /// Frees all in the blocks that were taken over that nobody has, and counts the rest. Linear in the blocks.
    pub fn finish_recovery(&mut self, ground: Ground<'_>, recovery: Recovery) {
        self.slots.finish_recovery(ground, &recovery.marks);
        self.chunks.finish_recovery(ground, recovery.unclaimed);
    }

    /// Takes a whole slot of `class`: head and body. Constant time, except for the first use of a page; where the
    /// budget has none, chunks give up theirs in which nothing is left.
    ///
    /// # Errors
    /// [`HeapError::Blocks`] when the budget or the system does not give another page.
    #[inline(always)]
    pub fn take_slot<'a>(&mut self, ground: Ground<'a>, class: usize) -> Result<(Block<'a>, Loc), HeapError> {
        self.slots.take(ground, class).or_else(|full| {
            self.yield_pages(ground, full)?;
            self.slots.take(ground, class)
        })
    }

    /// Has chunks give up pages in which nothing is left, for slots that the budget had none for. The error stands
    /// where there are none.
    #[cold]
    #[inline(never)]
    fn yield_pages(&mut self, ground: Ground<'_>, full: HeapError) -> Result<(), HeapError> {
        if self.chunks.give_idle(ground) > 0 { Ok(()) } else { Err(full) }
    }

    /// As [`Heap::take_slot`], if the class has a slot at hand without a look at another word of a page's bitmap: all
    /// but one of 64 times. Otherwise nothing is changed.
    #[inline(always)]
    pub fn take_ready_slot<'a>(&mut self, ground: Ground<'a>, class: usize) -> Option<(Block<'a>, Loc)> {
        self.slots.take_ready(ground, class)
    }

    /// Takes the body of a slot of `class` only: one that its owner has left, if there is one; where it may be `roomy`,
    /// one of the next two classes does as well.
    ///
    /// # Errors
    /// As [`Heap::take_slot`].
    pub fn take_body<'a>(
        &mut self,
        ground: Ground<'a>,
        class: usize,
        roomy: bool,
    ) -> Result<(Block<'a>, Loc), HeapError> {
        let reach = if roomy { ANNEX_REACH } else { 1 };
        self.slots.take_body(ground, class, reach).or_else(|full| {
            self.yield_pages(ground, full)?;
            self.slots.take_body(ground, class, reach)
        })
    }

    /// The class of a slot and what of it is taken, as far as its block says, to which others may have written where it
    /// lies in a file; `None` where the block leads to none of this heap's slots.
    pub fn taken(&self, ground: Ground<'_>, slot: Loc) -> Option<(usize, Taken)> {
        self.slots.taken(ground, slot)
    }

    /// Takes back the body of a slot whose head is taken.
    ///
    /// # Errors
    /// [`HeapError::NotTaken`] when the body is let to another.
    pub fn take_own_body(&mut self, ground: Ground<'_>, slot: Loc) -> Result<(), HeapError> {
        self.slots.take_own_body(ground, slot)
    }

    /// Frees parts of a slot. A page of which nothing is taken any more goes back.
    ///
    /// # Errors
    /// [`HeapError::NotTaken`] when a part that should be freed is free: a double free, found exactly.
    #[inline]
    pub fn free_slot(&mut self, ground: Ground<'_>, slot: Loc, head: bool, body: bool) -> Result<(), HeapError> {
        self.slots.free(ground, slot, head, body)
    }

    /// Takes a slot whose head is taken out of use; `body`: and frees its body, which may serve as an annex from then
    /// on. Its page goes back when nothing is left in it. The caller has raised the block's generation floor to the
    /// limit.
    ///
    /// # Errors
    /// As [`Heap::free_slot`].
    pub fn retire_slot(&mut self, ground: Ground<'_>, slot: Loc, body: bool) -> Result<(), HeapError> {
        self.slots.retire(ground, slot, body)
    }

    /// Frees a slot of which head and body are taken, and whose block and place in its page are known. `None`, and
    /// nothing is changed, when one of them is free, or the page serves another class.
    ///
    /// The last step is left to [`Heap::relist_page`] where it is due, once in hundreds of times, so that this one is
    /// short.
    #[inline(always)]
    pub fn free_whole_slot(&mut self, block: Block<'_>, at: Loc, slot: PageSlot) -> Option<Freed> {
        debug_assert_eq!(block.number(), at.number());
        self.slots.free_whole(block, at.page(), slot)
    }

    /// Lists a page by what is free in it by now, or gives it back when that is all of it.
    pub fn relist_page(&mut self, ground: Ground<'_>, page: Unlisted) {
        self.slots.relist_page(ground, page);
    }

    /// Takes a chunk of at least `words` words. Constant time, as long as the budget has a page for it.
    ///
    /// # Errors
    /// As [`Heap::take_slot`].
    pub fn take_chunk<'a>(&mut self, ground: Ground<'a>, words: usize) -> Result<(Block<'a>, Loc), HeapError> {
        self.chunks.take(ground, words)
    }

    /// Frees a chunk and joins it with free neighbours. Constant time.
    ///
    /// # Errors
    /// [`HeapError::NotTaken`] on a double free.
    pub fn free_chunk(&mut self, ground: Ground<'_>, chunk: Loc) -> Result<(), HeapError> {
        self.chunks.free(ground, chunk)
    }

    /// Whether a used chunk with room for `words` words begins there, and can be freed, as far as its block says, to
    /// which others may have written where it lies in a file. Constant time.
    pub fn has_chunk(&self, ground: Ground<'_>, chunk: Loc, words: usize) -> bool {
        self.chunks.has(ground, chunk, words)
    }

    /// As [`Heap::take_chunk`], of what does not stand in a page's way and is charged already, or takes `most_new`
    /// pages more. `None` when there is none. Constant time.
    pub fn take_chunk_beside<'a>(
        &mut self,
        ground: Ground<'a>,
        words: usize,
        page: &ChunkPage,
        most_new: u32,
    ) -> Option<(Block<'a>, Loc)> {
        self.chunks.take_beside(ground, words, page, most_new)
    }

    /// A page of chunks that is given up once few words of them are moved, but more than `beyond`: see
    /// [`Heap::next_in_way`] and [`Heap::release_idle_chunks`]. `movable` says whether a chunk may be. Looks through 16
    /// blocks at most.
    pub fn sparse_chunk_page(
        &self,
        ground: Ground<'_>,
        beyond: usize,
        movable: impl Fn(Block<'_>, Loc) -> bool,
    ) -> Option<ChunkPage> {
        self.chunks.sparse_chunk_page(ground, beyond, movable)
    }

    /// The first chunk in a page's way behind the `last` one that was moved.
    pub fn next_in_way(ground: Ground<'_>, page: &ChunkPage, last: Option<Loc>) -> Option<Loc> {
        Chunks::next_in_way(ground, page, last)
    }

    /// Gives up a page of chunks, or a block, that was cleared.
    pub fn give_up(&mut self, ground: Ground<'_>, page: &ChunkPage) {
        self.chunks.give_up(ground, page);
    }

    /// Gives up the pages and blocks of chunks in which nothing is left.
    pub fn release_idle_chunks(&mut self, ground: Ground<'_>) {
        self.chunks.release_idle(ground);
    }

    /// Words that a chunk can hold.
    pub fn chunk_words(block: Block<'_>, chunk: Loc) -> usize {
        Chunks::room(block, chunk)
    }

    /// The rooms of all chunks of a block, in words, and whether each is taken. For the lock's holder.
    pub fn rooms(block: Block<'_>) -> impl Iterator<Item = (Range<usize>, bool)> {
        Chunks::rooms(block)
    }

    /// Words that a chunk was asked to hold, if they were [`Heap::recoverable_request`].
    pub fn requested_words(block: Block<'_>, chunk: Loc) -> usize {
        Chunks::asked(block, chunk)
    }

    /// As many words, or up to 128 bytes more, of which a chunk tells later that they were asked for. Others may have
    /// got more, and would get more again wherever they move.
    pub fn recoverable_request(words: usize) -> usize {
        Chunks::known_again(words)
    }

    /// Gives up what is kept warm for the next taker, so that its budget can serve another purpose.
    pub fn release_warm(&mut self, ground: Ground<'_>) {
        self.slots.release_active(ground);
        self.chunks.release_warm(ground);
    }

    /// Leaves it to the pool how long all pages and chunk blocks stay warm of which nothing is taken.
    pub fn release_idle(&mut self, ground: Ground<'_>) {
        self.slots.release_idle(ground);
        self.chunks.release_idle(ground);
    }

    /// Gives back the memory of all pages and chunk blocks of which nothing is taken, at once. Returns bytes: none of a
    /// file, which stays as long as it is.
    pub fn trim(&mut self, ground: Ground<'_>) -> u64 {
        let given = self.slots.trim(ground) + self.chunks.trim(ground);
        if ground.blocks.file().is_some() { 0 } else { given }
    }

    /// Frees everything at once; the blocks stay the heap's, and it is the pool's business how long they stay warm.
    pub fn clear(&mut self, ground: Ground<'_>) {
        self.slots.clear(ground);
        self.chunks.clear(ground);
    }

    /// Every page of slots in use: block number, page, class.
    pub fn slot_pages(&self) -> impl Iterator<Item = (u32, usize, usize)> {
        self.slots.pages()
    }

    /// The pages of one block after the other, for callers that cannot keep a list of [`Heap::slot_pages`]: the number
    /// of the block of this ordinal, from 0 on, and the class of each of its pages. `None` behind the last block. A
    /// block keeps its ordinal.
    pub fn block_pages(&self, ordinal: usize) -> Option<(u32, BlockPages)> {
        self.slots.block_pages(ordinal)
    }

    /// Adds a bit for each slot of a page to `heads`, from a word's lowest on, which says whether its head is taken.
    /// False, and adds nothing, when all of them are. The page, a block's ordinal and which of its pages it is, is one
    /// that [`Heap::block_pages`] has a class for.
    ///
    /// # Errors
    /// [`BlockError::Refused`]; nothing is added.
    pub fn note_heads(
        &self,
        ground: Ground<'_>,
        page: (usize, usize),
        heads: &mut Vec<u64>,
    ) -> Result<bool, BlockError> {
        self.slots.note_heads(ground, page, heads)
    }

    /// A page of slots of which few are taken, if there is one beside those that are being filled and do not `suit`;
    /// `movable`: and for what is in it there is room in other pages. Constant time.
    pub fn sparse_page(&self, movable: bool, suit: impl Fn(&SparsePage) -> bool) -> Option<SparsePage> {
        self.slots.sparse_page(movable, suit)
    }

    /// The numbers of all blocks that hold slots.
    pub fn slot_blocks(&self) -> impl Iterator<Item = u32> {
        self.slots.blocks()
    }

    /// What the heap holds.
    pub fn counts(&self) -> HeapCounts {
        let (chunk_pages, free_chunk_words) = self.chunks.counts();
        HeapCounts {
            slot_pages: self.slots.page_count(),
            chunk_pages,
            free_chunk_words,
            blocks: self.slots.block_count() + self.chunks.block_count(),
        }
    }

    /// Walks everything and checks the equations.
    ///
    /// # Errors
    /// The first equation that does not hold.
    pub fn validate(&self, ground: Ground<'_>) -> Result<(), Invalid> {
        self.slots.validate(ground)?;
        self.chunks.validate(ground)
    }
}

impl std::fmt::Debug for Heap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Heap").field("counts", &self.counts()).finish_non_exhaustive()
    }
}
