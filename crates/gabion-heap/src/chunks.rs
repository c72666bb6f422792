//! Chunks: things from 1 KiB to 1 MiB, behind tags, split and coalesced.
//!
//! A chunk is a *tag* word and what follows it. Tags make the whole block walkable: each says how many words its chunk
//! has, so the next tag is found from it, up to the end tag in the block's last word.
//!
//! ```text
//! tag   = length in words with the tag (20 bits) │ USED │ PREVIOUS_FREE │ LEFT │ KEPT
//! used  │ tag │ room …                                     │
//! free  │ tag │ next in bin │ previous in bin │ … │ length │    the last word lets the follower find the tag
//! ```
//!
//! One store commits each change: a split writes the remainder's tag inside the still-free chunk first, then shrinks
//! the chunk by its own tag; joining writes the survivor's tag last. `PREVIOUS_FREE` and the bins are derived.
//! Tags stand at odd words and lengths are even, so that every room begins at a multiple of 16 bytes.
//!
//! The owner works alone, except for one thing: any thread may *leave* a used chunk (`LEFT`), which the owner then
//! takes back. So tags of used chunks change by atomic steps only. Owners whose blocks nobody reads keep what they free
//! on a *tray* for a while (`KEPT`): see `tray`; how a free chunk is found in constant time: see `bins`; which pages
//! count in the budget, and how one comes free among chunks: see `charge` and `clearing`; how all this is made anew
//! from the tags alone: see `recover`.

mod bins;
mod tray;
mod charge;
mod blocks;
mod clearing;
mod recover;
mod validate;

#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release};

use gabion_blocks::{Block, BlockError, PAGE_BYTES, WORDS_PER_BLOCK, try_box};

use crate::class::BLOCK_HEADER_WORDS;
use crate::descriptor::ORDINAL_WORD;
use crate::error::HeapError;
use crate::ground::Ground;
use crate::loc::Loc;
use bins::{Bins, least_of_bin, whole_bin};
use charge::Part;
pub use clearing::ChunkPage;
pub(crate) use recover::Unclaimed;
use tray::Tray;

const FIRST: usize = BLOCK_HEADER_WORDS + 1;
const END: usize = WORDS_PER_BLOCK - 1;
/// Tag, two links, length.
const LEAST_WORDS: usize = 4;
/// The most words that a chunk can be asked to hold: any is found by its bin in a fresh block.
pub const MOST_WORDS: usize = WORDS_PER_BLOCK / 2;
/// Every room begins at a multiple of that many words.
const ROOM_ALIGN: usize = 2;
const _: () = assert!(FIRST % ROOM_ALIGN == 1 && END % ROOM_ALIGN == 1);
/// A remainder smaller than this stays with the chunk: nothing of interest would fit it.
const LEAST_REMAINDER: usize = 16;

const USED: u64 = 1 << 20;
const PREVIOUS_FREE: u64 = 1 << 21;
/// Freed by its user, and still to be taken back by its owner.
const LEFT: u64 = 1 << 22;
/// Left, and on the owner's tray.
const KEPT: u64 = 1 << 23;
const LENGTH: u64 = USED - 1;

#[derive(Debug, Clone, Copy)]
struct ChunkBlock {
    /// [`NO_BLOCK`] when the ordinal is vacant.
    number: u32,
    /// Pages that count in the budget, a bit each: all that a used chunk lies in, and free ones until they are given
    /// up.
    charged: u64,
    /// Pages that are there to be written to: those, and those that hold tag, links or length of what is free.
    reached: u64,
    /// Chunks in use.
    live: u32,
    /// True while the block's memory is given back.
    spare: bool,
}

/// Stands for the number of a block that was taken off.
const NO_BLOCK: u32 = u32::MAX;

/// The chunks of one owner, in blocks of their own. One thread at a time except for [`Chunks::leave`] and
/// [`Chunks::room`].
pub struct Chunks {
    shard: u32,
    blocks: Vec<ChunkBlock>,
    /// Ordinals of blocks whose memory was given back.
    spare: Vec<usize>,
    /// Ordinals of blocks that were taken off.
    vacant: Vec<usize>,
    /// Whether blocks may be taken off: nobody but their owner looks at them.
    takes_off: bool,
    /// True when all of some block was once in use: further ones may be warm then, and have huge pages where those pay.
    grown: bool,
    /// All that is free in blocks in use, except for what is on the tray.
    bins: Bins,
    charged_pages: u64,
    /// Charged pages that lie wholly inside of what is in the bins: they can be given up.
    idle_pages: u64,
    /// Blocks without a chunk in use that are kept warm.
    empty: usize,
    /// Of owners whose blocks nobody reads.
    tray: Option<Box<Tray>>,
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

/// The place of a block among its owner's.
#[inline]
fn ordinal_of(block: Block<'_>) -> usize {
    block.word(ORDINAL_WORD).load(Relaxed) as usize
}

/// The tags of a block from one on: where each stands, and what it says. A length that makes no sense, as
/// another program may have written it in a file, leads a step further.
fn tags(block: Block<'_>, from: usize) -> impl Iterator<Item = (usize, u64)> + '_ {
    let tag = move |at: usize| (at < END).then(|| (at, block.word(at).load(Relaxed)));
    std::iter::successors(tag(from), move |&(at, last)| tag(at + ((last & LENGTH) as usize).max(ROOM_ALIGN)))
}

/// Whether `tag` can be that of a chunk at word `at`, in this state.
fn stands(at: usize, tag: u64, state: u64) -> bool {
    let length = (tag & LENGTH) as usize;
    tag & (USED | LEFT | KEPT) == state && length >= LEAST_WORDS && at + length <= END
}

/// How many words a chunk with room for `words` words takes: its tag as well, up to the size of a bin.
pub fn chunk_length(words: usize) -> usize {
    whole_bin((words + 1).max(LEAST_WORDS))
}

/// How long a free chunk must be so that one of `length` words fits in it whose room is at a multiple of `align` words.
fn search_for(length: usize, align: usize) -> usize {
    if align <= ROOM_ALIGN { length } else { whole_bin(length + align + LEAST_WORDS) }
}

/// Words in front of the tag of a room at a multiple of `align` words, in a free chunk at `at`: none, or a chunk's
/// worth.
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
            takes_off: false,
            grown: false,
            bins: Bins::new(),
            charged_pages: 0,
            idle_pages: 0,
            empty: 0,
            tray: None,
        }
    }

    /// As [`Chunks::new`], for an owner whose blocks nobody looks at when they are empty: they are taken off then, by
    /// [`Chunks::empty_block`], and can go back to the pool whole.
    ///
    /// # Errors
    /// That there is no memory for their tray.
    pub fn without_readers(shard: u32) -> Result<Self, BlockError> {
        Ok(Self { takes_off: true, tray: Some(try_box(Tray::new())?), ..Self::new(shard) })
    }

    /// Words that a used chunk can hold.
    #[inline]
    pub fn room(block: Block<'_>, chunk: Loc) -> usize {
        Self::length(block, chunk).saturating_sub(1)
    }

    /// The rooms of all chunks of a block, and whether somebody has them.
    pub fn rooms(block: Block<'_>) -> impl Iterator<Item = (Range<usize>, bool)> {
        let mut at = FIRST;
        std::iter::from_fn(move || {
            // Relaxed: asked by the lock's holder.
            let (tag, from) = (block.word(at).load(Relaxed), at + 1);
            let length = (tag & LENGTH) as usize;
            if at >= END || length < LEAST_WORDS || length > END - at {
                return None;
            }
            at += length;
            Some((from..at, tag & USED != 0 && tag & LEFT == 0))
        })
    }

    /// Words that a used chunk was asked to hold, if that was a [`Chunks::known_again`]: some get a remainder beside
    /// that is too small for a chunk.
    pub fn asked(block: Block<'_>, chunk: Loc) -> usize {
        let length = Self::length(block, chunk).max(LEAST_REMAINDER);
        least_of_bin(length - length % LEAST_REMAINDER) - 1
    }

    /// As many words, or somewhat more, so that [`Chunks::asked`] knows them again: what is to be as large wherever it
    /// moves asks for these.
    pub fn known_again(words: usize) -> usize {
        (words + 1).next_multiple_of(LEAST_REMAINDER) - 1
    }

    /// What the word in front of a chunk's room says of its length.
    #[inline]
    fn length(block: Block<'_>, chunk: Loc) -> usize {
        (block.word(chunk.word().wrapping_sub(1)).load(Relaxed) & LENGTH) as usize
    }

    /// Takes a chunk with room for `words` words. The returned place is the word after the tag. Constant
    /// time, as long as the budget has the pages.
    ///
    /// # Errors
    /// [`HeapError::Blocks`] when the budget or the system does not give another page.
    pub fn take<'a>(&mut self, ground: Ground<'a>, words: usize) -> Result<(Block<'a>, Loc), HeapError> {
        self.take_aligned(ground, words, ROOM_ALIGN)
    }

    /// As [`Chunks::take`], with the room at a multiple of `align` words, a power of two from 2 on. What lies in front
    /// of it stays free.
    ///
    /// # Errors
    /// As [`Chunks::take`]; `words + align` above half a block is beyond the limit.
    pub fn take_aligned<'a>(
        &mut self,
        ground: Ground<'a>,
        words: usize,
        align: usize,
    ) -> Result<(Block<'a>, Loc), HeapError> {
        if let Some(taken) = self.take_within(ground, words, align)? {
            return Ok(taken);
        }
        let page = PAGE_BYTES as u64;
        if ground.budget.room() < page && self.give_idle(ground) == 0 {
            // A block of which no page may be charged would be there in vain, and a file longer by it.
            ground.budget.take(page)?;
            ground.budget.give(page);
        }
        self.add_block(ground)?;
        let taken = self.take_within(ground, words, align)?;
        Ok(taken.expect("a fresh block has room for every chunk"))
    }

    /// As [`Chunks::take_aligned`], from the blocks that there are; `None` where it would add one.
    ///
    /// # Errors
    /// As [`Chunks::take_aligned`].
    pub fn take_within<'a>(
        &mut self,
        ground: Ground<'a>,
        words: usize,
        align: usize,
    ) -> Result<Option<(Block<'a>, Loc)>, HeapError> {
        debug_assert!(align.is_power_of_two() && align >= ROOM_ALIGN);
        if words.saturating_add(align - ROOM_ALIGN) > MOST_WORDS {
            let (asked, limit) = ((words as u64).saturating_mul(8), MOST_WORDS as u64 * 8);
            return Err(BlockError::Limit { asked, used: 0, limit }.into());
        }
        let length = chunk_length(words);
        if align <= ROOM_ALIGN
            && let Some(kept) = self.take_kept(ground, length)
        {
            return Ok(Some(kept));
        }
        let search = search_for(length, align);
        let part = |free: Loc| Part::of(ground, free, length, align);
        let Some(free) = self.find(ground, search) else { return Ok(None) };
        let mut chosen = part(free);
        if let Err(full) = self.pay(ground, &chosen) {
            chosen = self.within_budget(ground, search, chosen, part).ok_or(full)?;
        }
        Ok(Some((chosen.block, self.cut(ground, &chosen))))
    }

    /// As [`Chunks::take`], if that needs no page that is not charged yet. Otherwise nothing is changed.
    #[inline]
    pub fn take_ready<'a>(&mut self, ground: Ground<'a>, words: usize) -> Option<(Block<'a>, Loc)> {
        if words > MOST_WORDS {
            return None;
        }
        let length = chunk_length(words);
        if let Some(kept) = self.take_kept(ground, length) {
            return Some(kept);
        }
        let part = Part::of(ground, self.bins.first_fit(length)?, length, ROOM_ALIGN);
        self.is_ready(&part).then(|| (part.block, self.cut(ground, &part)))
    }

    /// Takes a part of a free chunk whose pages are paid for. Returns the word after its tag.
    fn cut(&mut self, ground: Ground<'_>, part: &Part<'_>) -> Loc {
        let &Part { block, free, whole, front, length } = part;
        self.count_in(block);
        self.unbin(ground, block, free, whole);
        self.charge_part(ground, part);
        let (own, left) = (free.word() + front, whole - front);
        let flags = USED | if front > 0 { PREVIOUS_FREE } else { 0 };
        if length < left {
            self.make_free(ground, Loc::new(free.number(), own + length), left - length);
        } else {
            block.word(own + left).fetch_and(!PREVIOUS_FREE, Relaxed);
        }
        block.word(own).store(length as u64 | flags, Release);
        if front > 0 {
            self.make_free(ground, free, front);
        }
        Loc::new(free.number(), own + 1)
    }

    /// Makes a used chunk longer, so that it has room for `words` words, where enough behind it is free and the budget
    /// has its pages. False, and nothing is changed, where not. For its user. Constant time.
    pub fn grow(&mut self, ground: Ground<'_>, chunk: Loc, words: usize) -> bool {
        let Some(block) = ground.blocks.block(chunk.number()) else { return false };
        let at = chunk.word() - 1;
        let old = (block.word(at).load(Relaxed) & LENGTH) as usize;
        let least = chunk_length(words);
        if least <= old {
            return true;
        }
        let behind = Loc::new(chunk.number(), at + old);
        let next = self.join_kept_from(ground, block, behind, least - old);
        if next & USED != 0 || (next & LENGTH) as usize + old < least {
            return false;
        }
        let part = Part::of(ground, behind, least - old, ROOM_ALIGN);
        if self.pay(ground, &part).is_err() {
            return false;
        }
        self.unbin(ground, block, behind, part.whole);
        self.charge_part(ground, &part);
        if part.length < part.whole {
            self.make_free(ground, Loc::new(chunk.number(), at + old + part.length), part.whole - part.length);
        } else {
            block.word(at + old + part.whole).fetch_and(!PREVIOUS_FREE, Relaxed);
        }
        // Release: commits. A sum, because the flags beside the length stay.
        block.word(at).fetch_add(part.length as u64, Release);
        true
    }

    /// A free chunk of at least `search` words.
    fn find(&mut self, ground: Ground<'_>, search: usize) -> Option<Loc> {
        let mut found = self.bins.first_fit(search);
        // Rather than memory that is not charged, what waits on the tray for other sizes.
        let is_ready = |free| self.is_ready(&Part::of(ground, free, search, ROOM_ALIGN));
        if self.tray.is_some() && !found.is_some_and(is_ready) {
            self.empty_tray(ground);
            found = self.bins.first_fit(search);
        }
        found
    }

    /// Frees a chunk: keeps it whole for the next of its size, or joins it with free neighbours. Constant time, but
    /// once in hundreds of times.
    ///
    /// # Errors
    /// [`HeapError::NotTaken`] on a double free.
    pub fn free(&mut self, ground: Ground<'_>, chunk: Loc) -> Result<(), HeapError> {
        self.free_from(ground, chunk, USED)
    }

    /// As [`Chunks::free`], for a chunk that somebody has left.
    ///
    /// # Errors
    /// [`HeapError::NotTaken`] when nobody has.
    pub fn free_left(&mut self, ground: Ground<'_>, chunk: Loc) -> Result<(), HeapError> {
        self.free_from(ground, chunk, USED | LEFT)
    }

    #[inline]
    fn free_from(&mut self, ground: Ground<'_>, chunk: Loc, state: u64) -> Result<(), HeapError> {
        let block = ground.blocks.block(chunk.number()).ok_or(HeapError::NotTaken)?;
        if self.tray.is_none() {
            self.join(ground, block, chunk, state)?;
        } else {
            let tag = Self::standing(block, chunk, state).ok_or(HeapError::NotTaken)?;
            if self.offer_to_tray(ground, block, chunk, tag) {
                self.keep(block, chunk, tag)?;
            } else {
                self.join(ground, block, chunk, state)?;
            }
        }
        self.count_out(ground, block);
        Ok(())
    }

    /// Counts a chunk of a block in.
    #[inline]
    fn count_in(&mut self, block: Block<'_>) {
        let entry = &mut self.blocks[ordinal_of(block)];
        self.empty -= usize::from(entry.live == 0);
        entry.live += 1;
    }

    /// Counts a chunk of a block out.
    #[inline]
    fn count_out(&mut self, ground: Ground<'_>, block: Block<'_>) {
        let entry = &mut self.blocks[ordinal_of(block)];
        entry.live -= 1;
        if entry.live == 0 {
            self.empty += 1;
            if self.empty > 1 && !self.takes_off {
                self.release_block(ground, block);
            }
        }
    }

    /// Marks a used chunk as freed, from any thread; the owner takes it back by [`Chunks::free_left`]. A thread that
    /// has left a chunk may write to its room until then.
    ///
    /// # Errors
    /// [`HeapError::NotTaken`] when it is free or left already: a double free, found exactly.
    pub fn leave(block: Block<'_>, chunk: Loc) -> Result<(), HeapError> {
        Self::mark(block, chunk, USED, USED | LEFT).map(|_| ())
    }

    /// Whether a used chunk begins there, as far as the word in front of it says; one that was left is not used. From
    /// any thread.
    pub fn is_used(block: Block<'_>, chunk: Loc) -> bool {
        Self::standing(block, chunk, USED).is_some()
    }

    /// Whether a used chunk with room for `words` words begins there, and what is looked at when it is freed makes
    /// sense: the block's ordinal, and what is free in front of it and behind it.
    pub fn has(&self, ground: Ground<'_>, chunk: Loc, words: usize) -> bool {
        let Some(block) = ground.blocks.block(chunk.number()) else { return false };
        let entry = self.blocks.get(ordinal_of(block));
        let is_own = entry.is_some_and(|entry| entry.number == chunk.number() && !entry.spare && entry.live > 0);
        let Some(tag) = Self::standing(block, chunk, USED).filter(|_| is_own) else { return false };
        let (at, length) = (chunk.word() - 1, (tag & LENGTH) as usize);
        let next = block.word(at + length).load(Relaxed);
        let is_free = |at: usize, length: usize| {
            let (first, last) = (block.word(at).load(Relaxed), block.word(at + length - 1).load(Relaxed));
            (first, last) == (length as u64, length as u64)
                && self.bins.has(ground, Loc::new(block.number(), at), length)
        };
        let sound_behind = next & USED != 0 || (stands(at + length, next, 0) && is_free(at + length, next as usize));
        let sound_before = tag & PREVIOUS_FREE == 0 || {
            let previous = block.word(at - 1).load(Relaxed);
            (LEAST_WORDS as u64..=(at - FIRST) as u64).contains(&previous)
                && is_free(at - previous as usize, previous as usize)
        };
        length > words && sound_behind && sound_before
    }

    /// The tag of a chunk that begins there and is in this state, as far as it says.
    #[inline]
    fn standing(block: Block<'_>, chunk: Loc, state: u64) -> Option<u64> {
        let at = chunk.word().checked_sub(1).filter(|at| at % 2 == 1)?;
        let tag = block.word(at).load(Relaxed);
        stands(at, tag, state).then_some(tag)
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
            match word.compare_exchange_weak(tag, tag & !(USED | LEFT | KEPT) | to, AcqRel, Relaxed) {
                Ok(_) => return Ok(tag),
                Err(now) => tag = now,
            }
        }
    }

    /// What lies at `chunk`. For the owner: walks the block's tags up to it.
    pub fn look(block: Block<'_>, chunk: Loc) -> Found {
        let wanted = chunk.word();
        match tags(block, FIRST).take_while(|&(at, _)| at < wanted).last() {
            Some((at, tag)) if tag & (USED | LEFT) == USED => {
                if at + 1 == wanted {
                    Found::Used
                } else {
                    Found::Inside
                }
            }
            Some(_) => Found::Free,
            // In front of all chunks.
            None => Found::Inside,
        }
    }

    /// Joins a chunk that is in the state `from` with its free neighbours.
    fn join(&mut self, ground: Ground<'_>, block: Block<'_>, chunk: Loc, from: u64) -> Result<(), HeapError> {
        // It also leaves no used tag inside a joined chunk, so that a second free of the same place is found.
        let tag = Self::mark(block, chunk, from, 0)?;
        let mut at = chunk.word() - 1;
        let mut length = (tag & LENGTH) as usize;
        let next_tag = block.word(at + length).load(Relaxed);
        if next_tag & USED == 0 {
            let next_length = (next_tag & LENGTH) as usize;
            self.unbin(ground, block, Loc::new(chunk.number(), at + length), next_length);
            length += next_length;
        }
        if block.word(at).load(Relaxed) & PREVIOUS_FREE != 0 {
            let previous = block.word(at - 1).load(Relaxed) as usize;
            at -= previous;
            self.unbin(ground, block, Loc::new(chunk.number(), at), previous);
            length += previous;
        }
        // Two free chunks never touch, so the chunk before a free one is used.
        self.make_free(ground, Loc::new(chunk.number(), at), length);
        Ok(())
    }

    /// Writes a free chunk: links, length at its end, its follower's flag, its tag last; and puts it into its bin.
    fn make_free(&mut self, ground: Ground<'_>, at: Loc, length: usize) {
        let block = ground.blocks.block(at.number()).expect("a block of this heap");
        let word = at.word();
        self.bins.insert(ground, block, at, length);
        self.idle_pages += self.idle_in(block, word, length);
        block.word(word + length - 1).store(length as u64, Relaxed);
        // One step, because the follower may be left at the same moment; and none where its flag is set, as it is when
        // only the beginning of what was free was taken: the owner alone changes it.
        let follower = block.word(word + length);
        if follower.load(Relaxed) & PREVIOUS_FREE == 0 {
            follower.fetch_or(PREVIOUS_FREE, Relaxed);
        }
        // Release: the commit. A walk sees the old chunks or the new one.
        block.word(word).store(length as u64, Release);
    }

    /// Takes a free chunk of `length` words out of its bin.
    fn unbin(&mut self, ground: Ground<'_>, block: Block<'_>, at: Loc, length: usize) {
        self.idle_pages -= self.idle_in(block, at.word(), length);
        self.bins.remove(ground, at, length);
    }

    /// Blocks that were taken so far, without those that were taken off.
    pub fn block_count(&self) -> u64 {
        (self.blocks.len() - self.vacant.len()) as u64
    }

    /// Charged pages, and free words in blocks in use.
    pub fn counts(&self) -> (u64, u64) {
        (self.charged_pages, self.bins.words())
    }
}
