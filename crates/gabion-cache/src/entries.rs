//! What the index knows of an entry: 32 bytes, and 16 more when it has an end.
//!
//! ```text
//! word 0   pointer to the payload; 0 when the entry is free
//! word 1   hash (32) │ weight in units of 8 bytes (32)
//! word 2   newer neighbour (32) │ older neighbour (32)          the policy's
//! word 3   flags (2) │ hits (2) │ queue (2) │ … │ priority (8) │ table (16)
//! ```
//! Readers load words 0 and 3 without a lock and raise the hits; all else is the lock holder's.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use gabion_blocks::BlockError;
use gabion_pile::Pointer;

use crate::pages::{Pages, Strip};
use crate::policy::{MOST_HITS, NONE, Nodes};
use crate::segments::{MOST_IDS, Segments};

const POINTER: usize = 0;
const HASH: usize = 1;
const LINKS: usize = 2;
const STATE: usize = 3;
/// Words of an entry.
pub(crate) const ENTRY_WORDS: usize = 4;

const TIMED: u64 = 1;
const HITS_SHIFT: u32 = 2;
const QUEUE_SHIFT: u32 = 4;
const OWN_SHIFT: u32 = 6;
const PRIORITY_SHIFT: u32 = 8;
const TABLE_SHIFT: u32 = 16;

/// What an entry is, but for what changes with use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct About {
    pub table: u16,
    pub priority: i8,
    /// Its table has a limit of its own, and so policies of its own.
    pub own: bool,
    pub timed: bool,
}

impl About {
    fn pack(self) -> u64 {
        u64::from(self.timed)
            | u64::from(self.own) << OWN_SHIFT
            | u64::from(self.priority.cast_unsigned()) << PRIORITY_SHIFT
            | u64::from(self.table) << TABLE_SHIFT
    }

    fn unpack(state: u64) -> Self {
        Self {
            table: (state >> TABLE_SHIFT) as u16,
            priority: ((state >> PRIORITY_SHIFT) as u8).cast_signed(),
            own: state >> OWN_SHIFT & 1 == 1,
            timed: state & TIMED != 0,
        }
    }

    /// Which group of entries it is evicted with: the table's own, or the one of all tables without a limit.
    pub fn partition(self) -> Option<u16> {
        self.own.then_some(self.table)
    }
}

/// An entry's words.
#[derive(Clone, Copy)]
pub(crate) struct Entry<'a>(&'a [AtomicU64]);

impl Entry<'_> {
    /// The pointer; 0 never names an object.
    #[inline]
    pub fn pointer(self) -> Pointer {
        // Acquire: whoever finds a new pointer finds what was written before it.
        Pointer::from_bits(self.0[POINTER].load(Acquire))
    }

    pub fn set_pointer(self, pointer: Pointer) {
        self.0[POINTER].store(pointer.to_bits(), Release);
    }

    #[inline]
    pub fn kept(self) -> u32 {
        self.0[HASH].load(Relaxed) as u32
    }

    /// Bytes that the entry is charged.
    #[inline]
    pub fn weight(self) -> u64 {
        (self.0[HASH].load(Relaxed) >> 32) * 8
    }

    pub fn set_weight(self, weight: u64) {
        let kept = u64::from(self.kept());
        self.0[HASH].store(kept | (weight / 8) << 32, Relaxed);
    }

    #[inline]
    pub fn about(self) -> About {
        About::unpack(self.state())
    }

    #[inline]
    fn state(self) -> u64 {
        // Acquire: a flag that says that there is a deadline comes after the deadline.
        self.0[STATE].load(Acquire)
    }

    /// Changes the state, but for the hits, which readers raise.
    fn update(self, change: impl Fn(u64) -> u64) {
        // Release: see `state`. A read-modify-write, because readers raise the hits meanwhile.
        let _ = self.0[STATE].fetch_update(Release, Relaxed, |state| Some(change(state)));
    }

    pub fn set_about(self, about: About) {
        let kept = 0b11 << HITS_SHIFT | 0b11 << QUEUE_SHIFT;
        self.update(|state| state & kept | about.pack());
    }

    /// Counts a hit; true when it was not yet counted to the end.
    #[inline]
    pub fn hit(self) -> bool {
        let state = self.0[STATE].load(Relaxed);
        if state >> HITS_SHIFT & 3 == u64::from(MOST_HITS) {
            return false;
        }
        // Relaxed: a hint for the policy. One that fails because another came between is as good as counted.
        let _ = self.0[STATE].compare_exchange_weak(state, state + (1 << HITS_SHIFT), Relaxed, Relaxed);
        true
    }
}

/// The entries of one shard.
pub(crate) struct Entries {
    strip: Strip,
}

/// What only the lock's holder has of the entries. `ids below end = live + free`.
#[derive(Debug)]
pub(crate) struct FreeIds {
    /// Ids below this have been given out.
    pub end: u32,
    /// The first of the free ids, which are linked both ways.
    first: u32,
    pub free: u32,
}

impl Default for FreeIds {
    fn default() -> Self {
        Self { end: 0, first: NONE, free: 0 }
    }
}

impl Entries {
    pub fn new(pages: &Arc<Pages>, most: u64) -> Self {
        Self { strip: Strip::new(pages, ENTRY_WORDS, most.min(u64::from(MOST_IDS)) as usize) }
    }

    pub fn bytes(&self) -> u64 {
        self.strip.bytes()
    }

    /// The entry of an id, if the id was ever given out.
    #[inline]
    pub fn find(&self, id: u32) -> Option<Entry<'_>> {
        Some(self.strip.get(id as usize)).filter(|words| !words.is_empty()).map(Entry)
    }

    /// The entry of an id that the caller knows to be in use.
    #[inline]
    pub fn at(&self, id: u32) -> Entry<'_> {
        Entry(self.strip.get(id as usize))
    }

    /// An id for a new entry.
    pub fn take(&self, ids: &mut FreeIds) -> Result<u32, BlockError> {
        if ids.first != NONE {
            let id = ids.first;
            self.unlink(ids, id);
            return Ok(id);
        }
        self.strip.ensure(ids.end as usize)?;
        ids.end += 1;
        Ok(ids.end - 1)
    }

    /// Fills in a new entry.
    pub fn fill(&self, id: u32, pointer: Pointer, kept: u32, weight: u64, about: About) {
        let entry = self.at(id);
        entry.0[HASH].store(u64::from(kept) | (weight / 8) << 32, Relaxed);
        entry.0[STATE].store(about.pack(), Release);
        entry.set_pointer(pointer);
    }

    /// Gives an id back.
    pub fn give(&self, ids: &mut FreeIds, id: u32) {
        self.at(id).set_pointer(Pointer::from_bits(0));
        self.link(id, NONE, ids.first);
        if ids.first != NONE {
            let older = self.links_of(ids.first).1;
            self.link(ids.first, id, older);
        }
        ids.first = id;
        ids.free += 1;
    }

    fn unlink(&self, ids: &mut FreeIds, id: u32) {
        let (newer, older) = self.links_of(id);
        if newer == NONE {
            ids.first = older;
        } else {
            let before = self.links_of(newer).0;
            self.link(newer, before, older);
        }
        if older != NONE {
            let after = self.links_of(older).1;
            self.link(older, newer, after);
        }
        ids.free -= 1;
    }

    /// Whether so many ids are free that entries should move together.
    pub fn is_sparse(ids: &FreeIds) -> bool {
        ids.free > ids.end / 4 + 1024
    }

    /// Makes the last id free, and says which entry must move where before that, if one lives there.
    pub fn drop_last(&self, ids: &mut FreeIds) -> Option<(u32, u32)> {
        let last = ids.end - 1;
        if self.at(last).pointer() == Pointer::from_bits(0) {
            self.unlink(ids, last);
            ids.end = last;
            return None;
        }
        let to = ids.first;
        self.unlink(ids, to);
        ids.end = last;
        let (from, into) = (self.at(last), self.at(to));
        for word in [HASH, LINKS, STATE, POINTER] {
            into.0[word].store(from.0[word].load(Relaxed), Release);
        }
        Some((last, to))
    }

    /// After [`Entries::drop_last`]: nothing leads to the last id any more.
    pub fn forget(&self, ids: &FreeIds, last: u32) {
        self.at(last).set_pointer(Pointer::from_bits(0));
        self.strip.shrink(ids.end as usize);
    }

    fn links_of(&self, id: u32) -> (u32, u32) {
        let links = self.at(id).0[LINKS].load(Relaxed);
        (links as u32, (links >> 32) as u32)
    }

    fn link(&self, id: u32, newer: u32, older: u32) {
        self.at(id).0[LINKS].store(u64::from(newer) | u64::from(older) << 32, Relaxed);
    }

    /// Ids in use, for whoever walks all of them.
    pub fn live(&self, ids: &FreeIds) -> impl Iterator<Item = u32> + '_ {
        (0..ids.end).filter(|&id| self.at(id).pointer() != Pointer::from_bits(0))
    }
}

/// The entries as the policies see them.
pub(crate) struct Links<'a> {
    pub entries: &'a Entries,
    pub segments: &'a Segments,
}

impl Nodes for Links<'_> {
    #[inline]
    fn links(&self, id: u32) -> (u32, u32) {
        self.entries.links_of(id)
    }
    #[inline]
    fn set_links(&mut self, id: u32, newer: u32, older: u32) {
        self.entries.link(id, newer, older);
    }
    #[inline]
    fn weight(&self, id: u32) -> u64 {
        self.entries.at(id).weight()
    }
    #[inline]
    fn hits(&self, id: u32) -> u8 {
        (self.entries.at(id).state() >> HITS_SHIFT & 3) as u8
    }
    #[inline]
    fn set_hits(&mut self, id: u32, hits: u8) {
        self.entries.at(id).update(|state| state & !(3 << HITS_SHIFT) | u64::from(hits) << HITS_SHIFT);
    }
    #[inline]
    fn queue(&self, id: u32) -> u8 {
        (self.entries.at(id).state() >> QUEUE_SHIFT & 3) as u8
    }
    #[inline]
    fn set_queue(&mut self, id: u32, queue: u8) {
        self.entries.at(id).update(|state| state & !(3 << QUEUE_SHIFT) | u64::from(queue) << QUEUE_SHIFT);
    }
    #[inline]
    fn frequency(&self, id: u32) -> u8 {
        self.segments.frequency(self.entries.at(id).kept())
    }
    #[inline]
    fn hash(&self, id: u32) -> u32 {
        self.entries.at(id).kept()
    }
}
