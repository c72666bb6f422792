//! Chunks: things from 1 KiB to 1 MiB, behind tags, split and coalesced.
//!
//! A chunk is a *tag* word and what follows it. Tags make the whole block walkable: each says how many words its chunk
//! has, so the next tag is found from it, up to the end tag in the block's last word.
//!
//! ```text
//! tag   = length in words with the tag (20 bits) │ USED │ PREVIOUS_FREE │ LEFT
//! used  │ tag │ room …                                     │
//! free  │ tag │ next in bin │ previous in bin │ … │ length │    the last word lets the follower find the tag
//! ```
//!
//! One store commits each change: a split writes the remainder's tag inside the still-free chunk first, then shrinks
//! the chunk by its own tag; joining writes the survivor's tag last. `PREVIOUS_FREE` and the bins are derived.
//! Tags stand at odd words and lengths are even, so that every room begins at a multiple of 16 bytes.
//!
//! The owner works alone, but for one thing: any thread may *leave* a used chunk (`LEFT`), which the owner then takes
//! back. So tags of used chunks change by atomic steps only.
//! Bins follow TLSF (Masmano, Ripoll, Crespo, Real 2004): thirty-two per doubling, a bitmap finds the first good one.

mod validate;

use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release};

use gabion_blocks::{Block, PAGE_BYTES, PAGES_PER_BLOCK, WORDS_PER_BLOCK, WORDS_PER_PAGE, make_room};

use crate::class::BLOCK_HEADER_WORDS;
use crate::descriptor::{Kind, ORDINAL_WORD, SHARD_WORD};
use crate::error::HeapError;
use crate::ground::{Ground, turn_page};
use crate::loc::Loc;

const FIRST: usize = BLOCK_HEADER_WORDS + 1;
const END: usize = WORDS_PER_BLOCK - 1;
/// What a block keeps of its memory when that is given back.
const KEPT_WORDS: usize = 4096 / 8;
/// Tag, two links, length.
const LEAST_WORDS: usize = 4;
/// The largest chunk: any is found by its bin in a fresh block.
const MOST_WORDS: usize = WORDS_PER_BLOCK / 2;
/// Every room begins at a multiple of so many words.
const ROOM_ALIGN: usize = 2;
const _: () = assert!(FIRST % ROOM_ALIGN == 1 && END % ROOM_ALIGN == 1);
/// A remainder smaller than this stays with the chunk: nothing of interest would fit it.
const LEAST_REMAINDER: usize = 16;

const USED: u64 = 1 << 20;
const PREVIOUS_FREE: u64 = 1 << 21;
/// Freed by another thread, and still to be taken back.
const LEFT: u64 = 1 << 22;
const LENGTH: u64 = USED - 1;

const STEPS: usize = 32;
const BINS: usize = (Loc::WORD_BITS as usize + 1) * STEPS;
/// End of a bin's list, in the form of a [`Loc`]'s bits plus one.
const NOWHERE: u64 = 0;

#[derive(Debug, Clone, Copy)]
struct ChunkBlock {
    /// [`NO_BLOCK`] when the ordinal is vacant.
    number: u32,
    /// Pages that have been handed out at least once since the block was last given back; they count in the budget.
    touched: usize,
    /// True while the block's memory is given back.
    spare: bool,
}

/// Stands for the number of a block that was taken off.
const NO_BLOCK: u32 = u32::MAX;

/// The chunks of one owner, in blocks of their own. One thread at a time but for [`Chunks::leave`] and [`Chunks::room`].
pub struct Chunks {
    shard: u32,
    blocks: Vec<ChunkBlock>,
    /// Ordinals of blocks whose memory was given back.
    spare: Vec<usize>,
    /// Ordinals of blocks that were taken off.
    vacant: Vec<usize>,
    /// Whether blocks may be taken off: nobody but their owner looks at them.
    leave: bool,
    /// True when all of some block was once in use: further ones may be warm then, and have huge pages where those pay.
    grown: bool,
    bins: [u64; BINS],
    filled: [u64; BINS.div_ceil(64)],
    touched_pages: u64,
    free_words: u64,
    /// Blocks without a used chunk that are kept warm.
    empty: usize,
}

/// What [`Chunks::look`] finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// A used chunk begins there.
    Used,
    /// It is free, or left by its user.
    Free,
    /// It is inside a used chunk.
    Inside,
}

/// The bin that a free chunk of `words` stands in: `words` is at least the bin's least size.
fn bin_of(words: usize) -> usize {
    let log = words.ilog2() as usize;
    log * STEPS + ((words * STEPS) >> log) - STEPS
}

/// The least size of a bin that is at least `words`. Chunks are taken in these sizes, so that one that is freed is found
/// again for the next thing of its size; it wastes 1.5 % on average.
fn whole_bin(words: usize) -> usize {
    let step = (1_usize << words.ilog2()) / STEPS;
    words.next_multiple_of(step.max(2))
}

/// Whether `tag` can be that of a chunk at word `at`, in this state.
fn stands(at: usize, tag: u64, state: u64) -> bool {
    let length = (tag & LENGTH) as usize;
    tag & (USED | LEFT) == state && length >= LEAST_WORDS && at + length <= END
}

/// Whether a block has no used chunk.
fn is_empty(block: &Block<'_>) -> bool {
    let tag = block.word(FIRST).load(Relaxed);
    tag & USED == 0 && (tag & LENGTH) as usize == END - FIRST
}

/// How long a chunk with room for `words` words is.
fn length_for(words: usize) -> usize {
    whole_bin((words + 1).max(LEAST_WORDS))
}

/// How long a free chunk must be so that one of `length` words fits in it whose room is at a multiple of `align` words.
fn search_for(length: usize, align: usize) -> usize {
    if align <= ROOM_ALIGN { length } else { whole_bin(length + align + LEAST_WORDS) }
}

/// Words in front of the tag of a room at a multiple of `align` words, in a free chunk at `at`: none, or a chunk's worth.
fn front(at: usize, align: usize) -> usize {
    let room = (at + 1).next_multiple_of(align);
    match room - 1 - at {
        0 => 0,
        front if front < LEAST_WORDS => front + align,
        front => front,
    }
}

impl Chunks {
    /// No chunks yet. `shard` is written into every block that is taken.
    pub fn new(shard: u32) -> Self {
        Self {
            shard,
            blocks: Vec::new(),
            spare: Vec::new(),
            vacant: Vec::new(),
            leave: false,
            grown: false,
            bins: [NOWHERE; BINS],
            filled: [0; BINS.div_ceil(64)],
            touched_pages: 0,
            free_words: 0,
            empty: 0,
        }
    }

    /// As [`Chunks::new`], for an owner whose blocks nobody looks at when they are empty: they are taken off then, by
    /// [`Chunks::empty_block`], and can go back to the pool whole.
    pub fn without_readers(shard: u32) -> Self {
        Self { leave: true, ..Self::new(shard) }
    }

    /// Words that a used chunk can hold.
    pub fn room(block: Block<'_>, chunk: Loc) -> usize {
        ((block.word(chunk.word() - 1).load(Relaxed) & LENGTH) as usize).saturating_sub(1)
    }

    /// Takes a chunk with room for `words` words. The returned place is the word after the tag. Constant time.
    ///
    /// # Errors
    /// [`HeapError::Blocks`] when the budget or the system does not give another page.
    pub fn take<'a>(&mut self, ground: Ground<'a>, words: usize) -> Result<(Block<'a>, Loc), HeapError> {
        self.take_aligned(ground, words, ROOM_ALIGN)
    }

    /// As [`Chunks::take`], with the room at a multiple of `align` words, a power of two from 2 on. What lies in front of
    /// it stays free.
    ///
    /// # Errors
    /// As [`Chunks::take`]; `words + align` above half a block is beyond the limit.
    pub fn take_aligned<'a>(
        &mut self,
        ground: Ground<'a>,
        words: usize,
        align: usize,
    ) -> Result<(Block<'a>, Loc), HeapError> {
        debug_assert!(align.is_power_of_two() && align >= ROOM_ALIGN);
        if words.saturating_add(align - ROOM_ALIGN) > MOST_WORDS {
            let (asked, limit) = ((words as u64).saturating_mul(8), MOST_WORDS as u64 * 8);
            return Err(gabion_blocks::BlockError::Limit { asked, used: 0, limit }.into());
        }
        let length = length_for(words);
        let search = search_for(length, align);
        let bin = if let Some(bin) = self.first_filled(bin_of(search)) {
            bin
        } else {
            self.add_block(ground)?;
            self.first_filled(bin_of(search)).expect("a fresh block has room for every chunk")
        };
        let free = Loc::from_bits(self.bins[bin] - 1);
        let (block, at) = (ground.blocks.block(free.number()).expect("a block of this heap"), free.word());
        self.touch(ground, block, at + search)?;
        let whole = (block.word(at).load(Relaxed) & LENGTH) as usize;
        if at == FIRST && whole == END - FIRST {
            self.empty -= 1;
        }
        self.unbin(ground, free, whole);
        let front = front(at, align);
        let (own, left) = (at + front, whole - front);
        let flags = USED | if front > 0 { PREVIOUS_FREE } else { 0 };
        if left - length >= LEAST_REMAINDER {
            self.make_free(ground, Loc::new(free.number(), own + length), left - length);
            block.word(own).store(length as u64 | flags, Release);
        } else {
            block.word(own + left).fetch_and(!PREVIOUS_FREE, Relaxed);
            block.word(own).store(left as u64 | flags, Release);
        }
        if front > 0 {
            self.make_free(ground, free, front);
        }
        Ok((block, Loc::new(free.number(), own + 1)))
    }

    /// Makes a used chunk longer, so that it has room for `words` words, where enough behind it is free and the budget has its
    /// pages. False, and nothing is changed, where not. For its user. Constant time.
    pub fn grow(&mut self, ground: Ground<'_>, chunk: Loc, words: usize) -> bool {
        let Some(block) = ground.blocks.block(chunk.number()) else { return false };
        let at = chunk.word() - 1;
        let old = (block.word(at).load(Relaxed) & LENGTH) as usize;
        let next = block.word(at + old).load(Relaxed);
        let (whole, least) = (old + (next & LENGTH) as usize, length_for(words));
        if next & USED != 0 || least > whole || least <= old || self.touch(ground, block, at + least).is_err() {
            return least <= old;
        }
        self.unbin(ground, Loc::new(chunk.number(), at + old), whole - old);
        let length = if whole - least >= LEAST_REMAINDER { least } else { whole };
        if length < whole {
            self.make_free(ground, Loc::new(chunk.number(), at + length), whole - length);
        } else {
            block.word(at + whole).fetch_and(!PREVIOUS_FREE, Relaxed);
        }
        // Release: commits. A sum, because the flags beside the length stay.
        block.word(at).fetch_add((length - old) as u64, Release);
        true
    }

    /// Frees a chunk and joins it with free neighbours. Constant time.
    ///
    /// # Errors
    /// [`HeapError::NotTaken`] on a double free.
    pub fn free(&mut self, ground: Ground<'_>, chunk: Loc) -> Result<(), HeapError> {
        self.join(ground, chunk, USED)
    }

    /// Frees a chunk that somebody has left.
    ///
    /// # Errors
    /// [`HeapError::NotTaken`] when nobody has.
    pub fn free_left(&mut self, ground: Ground<'_>, chunk: Loc) -> Result<(), HeapError> {
        self.join(ground, chunk, USED | LEFT)
    }

    /// Marks a used chunk as freed, from any thread; the owner takes it back by [`Chunks::free_left`]. Who has left a
    /// chunk may write to its room until then.
    ///
    /// # Errors
    /// [`HeapError::NotTaken`] when it is free or left already: a double free, found exactly.
    pub fn leave(block: Block<'_>, chunk: Loc) -> Result<(), HeapError> {
        Self::mark(block, chunk, USED, USED | LEFT).map(|_| ())
    }

    /// Whether a used chunk begins there, as far as the word in front of it says; one that was left is not used. From any thread.
    pub fn is_used(block: Block<'_>, chunk: Loc) -> bool {
        let at = chunk.word().checked_sub(1).filter(|at| at % 2 == 1);
        at.is_some_and(|at| stands(at, block.word(at).load(Relaxed), USED))
    }

    /// Changes the state in a chunk's tag, if it is `from`. Returns the tag before.
    fn mark(block: Block<'_>, chunk: Loc, from: u64, to: u64) -> Result<u64, HeapError> {
        let at = chunk.word().checked_sub(1).filter(|at| at % 2 == 1).ok_or(HeapError::NotTaken)?;
        let word = block.word(at);
        let mut tag = word.load(Relaxed);
        loop {
            if !stands(at, tag, from) {
                return Err(HeapError::NotTaken);
            }
            // Release: this store alone frees the chunk; what its user did comes before. Acquire: so does what the
            // thread that left it did.
            match word.compare_exchange_weak(tag, tag & !(USED | LEFT) | to, AcqRel, Relaxed) {
                Ok(_) => return Ok(tag),
                Err(now) => tag = now,
            }
        }
    }

    /// What lies at `chunk`. For the owner: walks the block's tags up to it.
    pub fn look(block: Block<'_>, chunk: Loc) -> Found {
        let (mut at, wanted) = (FIRST, chunk.word());
        loop {
            let tag = block.word(at).load(Relaxed);
            let next = at + ((tag & LENGTH) as usize).max(ROOM_ALIGN);
            if next >= wanted || next >= END {
                return match tag & (USED | LEFT) {
                    USED if at + 1 == wanted => Found::Used,
                    USED => Found::Inside,
                    _ => Found::Free,
                };
            }
            at = next;
        }
    }

    fn join(&mut self, ground: Ground<'_>, chunk: Loc, from: u64) -> Result<(), HeapError> {
        let block = ground.blocks.block(chunk.number()).ok_or(HeapError::NotTaken)?;
        // It also leaves no used tag inside a joined chunk, so that a second free of the same place is found.
        let tag = Self::mark(block, chunk, from, 0)?;
        let mut at = chunk.word() - 1;
        let mut length = (tag & LENGTH) as usize;
        let next_tag = block.word(at + length).load(Relaxed);
        if next_tag & USED == 0 {
            let next_length = (next_tag & LENGTH) as usize;
            self.unbin(ground, Loc::new(chunk.number(), at + length), next_length);
            length += next_length;
        }
        if block.word(at).load(Relaxed) & PREVIOUS_FREE != 0 {
            let previous = block.word(at - 1).load(Relaxed) as usize;
            at -= previous;
            self.unbin(ground, Loc::new(chunk.number(), at), previous);
            length += previous;
        }
        // Two free chunks never touch, so the chunk before a free one is used.
        self.make_free(ground, Loc::new(chunk.number(), at), length);
        if at == FIRST && length == END - FIRST {
            self.empty += 1;
            if self.empty > 1 && !self.leave {
                self.give_block_back(ground, block);
            }
        }
        Ok(())
    }

    /// Takes off a block without a used chunk, beyond the one that is kept for the next chunk, or with `all` that one too.
    /// It is the caller's, to be given back to the pool. For owners [`without_readers`](Chunks::without_readers); looks
    /// through the blocks only when there is one.
    pub fn empty_block(&mut self, ground: Ground<'_>, all: bool) -> Option<u32> {
        if !self.leave || self.empty <= usize::from(!all) {
            return None;
        }
        // What was emptied last stands first in the bin of what is empty: it is found at once, unless something nearly as large
        // was freed since.
        let first = self.bins[bin_of(END - FIRST)].checked_sub(1).map(|bits| Loc::from_bits(bits).number());
        let in_use = self.blocks.iter().filter(|entry| !entry.spare).map(|entry| entry.number);
        let block = first.into_iter().chain(in_use).filter_map(|number| ground.blocks.block(number)).find(is_empty)?;
        let ordinal = block.word(ORDINAL_WORD).load(Relaxed) as usize;
        self.unbin(ground, Loc::new(block.number(), FIRST), END - FIRST);
        self.close(ground, ordinal);
        self.blocks[ordinal].number = NO_BLOCK;
        self.vacant.push(ordinal);
        Some(block.number())
    }

    /// Writes a free chunk: links, length at its end, its follower's flag, its tag last; and puts it into its bin.
    fn make_free(&mut self, ground: Ground<'_>, at: Loc, length: usize) {
        let block = ground.blocks.block(at.number()).expect("a block of this heap");
        let word = at.word();
        let bin = bin_of(length);
        let first = self.bins[bin];
        block.word(word + 1).store(first, Relaxed);
        block.word(word + 2).store(NOWHERE, Relaxed);
        if first != NOWHERE {
            let first = Loc::from_bits(first - 1);
            let other = ground.blocks.block(first.number()).expect("a block of this heap");
            other.word(first.word() + 2).store(at.bits() + 1, Relaxed);
        }
        self.bins[bin] = at.bits() + 1;
        self.filled[bin / 64] |= 1 << (bin % 64);
        self.free_words += length as u64;
        block.word(word + length - 1).store(length as u64, Relaxed);
        // One step, because the follower may be left at the same moment; and none where its flag is set, as it is when only the
        // beginning of what was free was taken: the owner alone changes it.
        let follower = block.word(word + length);
        if follower.load(Relaxed) & PREVIOUS_FREE == 0 {
            follower.fetch_or(PREVIOUS_FREE, Relaxed);
        }
        // Release: the commit. A walk sees the old chunks or the new one.
        block.word(word).store(length as u64, Release);
    }

    /// Takes a free chunk out of its bin.
    fn unbin(&mut self, ground: Ground<'_>, at: Loc, length: usize) {
        let block = ground.blocks.block(at.number()).expect("a block of this heap");
        let next = block.word(at.word() + 1).load(Relaxed);
        let previous = block.word(at.word() + 2).load(Relaxed);
        let bin = bin_of(length);
        let neighbour = |bits: u64| {
            let place = Loc::from_bits(bits - 1);
            (ground.blocks.block(place.number()).expect("a block of this heap"), place.word())
        };
        if next != NOWHERE {
            let (block, word) = neighbour(next);
            block.word(word + 2).store(previous, Relaxed);
        }
        if previous == NOWHERE {
            self.bins[bin] = next;
            if next == NOWHERE {
                self.filled[bin / 64] &= !(1 << (bin % 64));
            }
        } else {
            let (block, word) = neighbour(previous);
            block.word(word + 1).store(next, Relaxed);
        }
        self.free_words -= length as u64;
    }

    fn first_filled(&self, from: usize) -> Option<usize> {
        let mut word = from / 64;
        let mut bits = self.filled.get(word)? & (u64::MAX << (from % 64));
        while bits == 0 {
            word += 1;
            bits = *self.filled.get(word)?;
        }
        Some(word * 64 + bits.trailing_zeros() as usize)
    }

    /// Charges the pages up to word `end` of a block that were not charged yet.
    fn touch(&mut self, ground: Ground<'_>, block: Block<'_>, end: usize) -> Result<(), HeapError> {
        let ordinal = block.word(ORDINAL_WORD).load(Relaxed) as usize;
        let pages = end.div_ceil(WORDS_PER_PAGE);
        let entry = &mut self.blocks[ordinal];
        if pages > entry.touched {
            let more = pages - entry.touched;
            ground.budget.take((more * PAGE_BYTES) as u64)?;
            entry.touched = pages;
            self.touched_pages += more as u64;
            if pages == PAGES_PER_BLOCK {
                self.grown = true;
                ground.blocks.note_touched(entry.number);
            }
        }
        Ok(())
    }

    /// Makes one free chunk of a fresh block, or of one that was given back.
    fn add_block(&mut self, ground: Ground<'_>) -> Result<(), HeapError> {
        let ordinal = if let Some(ordinal) = self.spare.pop() {
            ground.blocks.note_refill(self.blocks[ordinal].number);
            ordinal
        } else {
            self.map_block(ground)?
        };
        self.blocks[ordinal].spare = false;
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
            self.blocks.push(ChunkBlock { number, touched: 0, spare: true });
        }
        self.blocks[ordinal].number = number;
        Ok(ordinal)
    }

    /// Gives back an empty block's memory, all but its header. Returns bytes.
    fn give_block_back(&mut self, ground: Ground<'_>, block: Block<'_>) -> u64 {
        self.unbin(ground, Loc::new(block.number(), FIRST), END - FIRST);
        let ordinal = block.word(ORDINAL_WORD).load(Relaxed) as usize;
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

    /// Blocks that were taken so far, without those that were taken off.
    pub fn block_count(&self) -> u64 {
        (self.blocks.len() - self.vacant.len()) as u64
    }

    /// Touched pages, and free words in blocks in use.
    pub fn counts(&self) -> (u64, u64) {
        (self.touched_pages, self.free_words)
    }
}
