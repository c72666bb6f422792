//! The tray: chunks that were just freed, whole and at hand for the next of their size.
//!
//! To join a chunk with its neighbours and to cut it off again touches memory that its users have nothing to do with.
//! Most sizes that are freed are wanted again soon. So an owner [`without_readers`](Chunks::without_readers) keeps what
//! it frees for a while: marked so that nobody joins it or frees it again, and entered in a table of its own, which
//! stays in the cache.
//!
//! It must hardly cost memory. So a chunk is kept only where there is nothing to join it with, except for the first
//! few; and what is kept is joined when its neighbour is freed, before a page is charged, before another block is
//! mapped, and when a second block has no chunk in use.

use std::sync::atomic::Ordering::{Acquire, Relaxed};

use gabion_blocks::{Block, WORDS_PER_PAGE};

use super::bins::{BINS, bin_of};
use super::{Chunks, KEPT, LEAST_REMAINDER, LEFT, LENGTH, PREVIOUS_FREE, USED};
use crate::error::HeapError;
use crate::ground::Ground;
use crate::loc::Loc;

/// Chunks on the tray at most: to join so many takes some microseconds.
const MOST_CHUNKS: usize = 256;
/// Words on the tray at most: so many, or this part of the pages that are charged.
const LEAST_LIMIT: usize = (256 << 10) / 8;
const WORDS_OF_PAGE: usize = WORDS_PER_PAGE / 32;
/// So few chunks are kept wherever they lie, or this part of the pages that are charged: what is taken and freed in
/// turns is often cut off from a large free chunk.
const FEW: usize = 8;
const FEW_WORDS_OF_PAGE: usize = WORDS_OF_PAGE / 2;
/// When so many were not kept with none taken meanwhile, other sizes are wanted than those that are there.
const PATIENCE: u32 = 256;

/// Stands for the chunk of a vacant place.
const NO_CHUNK: u64 = u64::MAX;

/// A place on the tray.
#[derive(Clone, Copy)]
struct Place {
    chunk: u64,
    /// Its neighbours among those of its bin, as in [`Tray::first`]; of a vacant place, the next vacant one.
    next: u16,
    previous: u16,
}

/// See the [module's documentation](self).
pub(super) struct Tray {
    /// By bin: one more than the place of the chunk that was freed last, or 0.
    first: [u16; BINS],
    vacant: u16,
    places: [Place; MOST_CHUNKS],
    chunks: usize,
    words: usize,
    /// See [`PATIENCE`].
    refused: u32,
}

impl Tray {
    pub fn new() -> Self {
        let mut places = [Place { chunk: NO_CHUNK, next: 0, previous: 0 }; MOST_CHUNKS];
        for (index, place) in places.iter_mut().enumerate().take(MOST_CHUNKS - 1) {
            place.next = index as u16 + 2;
        }
        Self { first: [0; BINS], vacant: 1, places, chunks: 0, words: 0, refused: 0 }
    }

    /// How many chunks it holds, and their words.
    pub const fn counts(&self) -> (usize, usize) {
        (self.chunks, self.words)
    }

    /// All chunks, with the bin that they stand in; `None` where a list goes wrong.
    pub fn all(&self) -> impl Iterator<Item = Option<(usize, Loc)>> {
        (0..BINS).flat_map(move |bin| {
            let (mut name, mut before, mut steps) = (self.first[bin], 0, 0);
            std::iter::from_fn(move || {
                let place = self.places.get(usize::from(name).checked_sub(1)?)?;
                let sound = place.previous == before && steps < self.chunks;
                (before, name, steps) = (name, if sound { place.next } else { 0 }, steps + 1);
                Some(sound.then(|| (bin, Loc::from_bits(place.chunk))))
            })
        })
    }

    /// Enters a chunk of `length` words. There is a vacant place. Returns its name.
    #[inline]
    fn enter(&mut self, chunk: Loc, length: usize) -> u16 {
        let name = self.vacant;
        let first = &mut self.first[bin_of(length)];
        let next = std::mem::replace(first, name);
        if next != 0 {
            self.places[usize::from(next) - 1].previous = name;
        }
        let place = &mut self.places[usize::from(name) - 1];
        self.vacant = place.next;
        *place = Place { chunk: chunk.bits(), next, previous: 0 };
        self.chunks += 1;
        self.words += length;
        name
    }

    /// Strikes out the chunk of `length` words that has this name.
    #[inline]
    fn strike(&mut self, name: u16, length: usize) {
        let place = &mut self.places[usize::from(name) - 1];
        let (next, previous) = (place.next, place.previous);
        *place = Place { chunk: NO_CHUNK, next: std::mem::replace(&mut self.vacant, name), previous: 0 };
        if next != 0 {
            self.places[usize::from(next) - 1].previous = previous;
        }
        if previous == 0 {
            self.first[bin_of(length)] = next;
        } else {
            self.places[usize::from(previous) - 1].next = next;
        }
        self.chunks -= 1;
        self.words -= length;
    }

    /// The first chunk of the next bins that serve `length` words, where there are such.
    fn slightly_longer(&self, length: usize) -> Option<u16> {
        let bins = bin_of(length) + 1..bin_of(length + LEAST_REMAINDER - 1) + 1;
        self.first[bins].iter().copied().find(|&name| name != 0)
    }

    /// The name of a chunk: that which stands in its room, unless its user has written there since.
    fn name_of(&self, chunk: Loc, said: u64) -> Option<u16> {
        let is_it = |index: &usize| self.places.get(*index).is_some_and(|place| place.chunk == chunk.bits());
        let said = (said as usize).checked_sub(1).filter(is_it);
        said.or_else(|| (0..MOST_CHUNKS).find(is_it)).map(|index| index as u16 + 1)
    }
}

impl Chunks {
    /// Takes a chunk of at least `length` words, the least size of a bin, off the tray: one that is longer by no more
    /// than stays with a chunk when it is cut off. Its room begins at a multiple of two words.
    #[inline]
    pub(super) fn take_kept<'a>(&mut self, ground: Ground<'a>, length: usize) -> Option<(Block<'a>, Loc)> {
        let tray = self.tray.as_mut()?;
        let name = match tray.first[bin_of(length)] {
            0 => tray.slightly_longer(length)?,
            name => name,
        };
        let chunk = Loc::from_bits(tray.places[usize::from(name) - 1].chunk);
        let block = ground.blocks.block(chunk.number())?;
        let word = block.word(chunk.word() - 1);
        let tag = word.load(Relaxed);
        tray.strike(name, (tag & LENGTH) as usize);
        tray.refused = 0;
        // Relaxed, and no exchange: nobody but the owner changes the tag of a chunk that is left.
        word.store(tag & !(LEFT | KEPT), Relaxed);
        self.count_in(block);
        Some((block, chunk))
    }

    /// Offers the tray a used chunk with this tag that is to be freed. True when it has a place; otherwise the chunk's
    /// neighbour has none any more either, so that they can be joined.
    #[inline]
    pub(super) fn offer_to_tray(&mut self, ground: Ground<'_>, block: Block<'_>, chunk: Loc, tag: u64) -> bool {
        let Some(tray) = &mut self.tray else { return false };
        let length = (tag & LENGTH) as usize;
        let pages = self.charged_pages as usize;
        let fits = tray.chunks < MOST_CHUNKS && tray.words + length <= LEAST_LIMIT.max(pages * WORDS_OF_PAGE);
        if fits && (tray.chunks < FEW || tray.words + length <= pages * FEW_WORDS_OF_PAGE) {
            return true;
        }
        let next = block.word(chunk.word() - 1 + length).load(Relaxed);
        // A chunk in front of it that is on the tray does not show.
        if fits && tag & PREVIOUS_FREE == 0 && next & (USED | KEPT) == USED {
            return true;
        }
        tray.refused += 1;
        if tray.refused >= PATIENCE {
            self.empty_tray(ground);
        } else if next & KEPT != 0 {
            self.join_kept(ground, block, Loc::new(chunk.number(), chunk.word() + length));
        }
        false
    }

    /// Puts a chunk with this tag on the tray.
    #[inline]
    pub(super) fn keep(&mut self, block: Block<'_>, chunk: Loc, tag: u64) -> Result<(), HeapError> {
        let tray = self.tray.as_mut().expect("who keeps a chunk has a tray");
        // Acquire: what is done with the room next comes after what was done by a thread that left it. The tag can have
        // changed only if another thread has just left the chunk: the owner alone changes the rest of it.
        let marked = block.word(chunk.word() - 1).compare_exchange(tag, tag | LEFT | KEPT, Acquire, Relaxed);
        marked.map_err(|_| HeapError::NotTaken)?;
        let name = tray.enter(chunk, (tag & LENGTH) as usize);
        block.word(chunk.word()).store(u64::from(name), Relaxed);
        Ok(())
    }

    /// Joins a chunk that is on the tray with its free neighbours.
    pub(super) fn join_kept(&mut self, ground: Ground<'_>, block: Block<'_>, chunk: Loc) {
        let said = block.word(chunk.word()).load(Relaxed);
        let tray = self.tray.as_mut().expect("who keeps a chunk has a tray");
        let name = tray.name_of(chunk, said).expect("what is marked as kept is on the tray");
        tray.strike(name, Self::length(block, chunk));
        let joined = self.join(ground, block, chunk, USED | LEFT | KEPT);
        debug_assert!(joined.is_ok(), "what is on the tray is left");
    }

    /// Joins what is on the tray from `at` on, where some chunk begins, until a free one of `length` words begins
    /// there, if that can be. Returns the tag that stands there then.
    pub(super) fn join_kept_from(&mut self, ground: Ground<'_>, block: Block<'_>, at: Loc, length: usize) -> u64 {
        loop {
            let tag = block.word(at.word()).load(Relaxed);
            let free = if tag & USED == 0 { (tag & LENGTH) as usize } else { 0 };
            let behind = at.word() + free;
            if free >= length || block.word(behind).load(Relaxed) & KEPT == 0 {
                return tag;
            }
            self.join_kept(ground, block, Loc::new(at.number(), behind + 1));
        }
    }

    /// Joins all that is on the tray with its neighbours.
    pub fn empty_tray(&mut self, ground: Ground<'_>) {
        let Some(tray) = &mut self.tray else { return };
        tray.refused = 0;
        let mut bin = 0;
        while let Some(tray) = self.tray.as_ref().filter(|tray| tray.chunks > 0) {
            let Some(index) = usize::from(tray.first[bin]).checked_sub(1) else {
                bin += 1;
                continue;
            };
            let chunk = Loc::from_bits(tray.places[index].chunk);
            let block = ground.blocks.block(chunk.number()).expect("a block of this heap");
            self.join_kept(ground, block, chunk);
        }
    }
}
