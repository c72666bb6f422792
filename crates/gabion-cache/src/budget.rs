//! Bytes: what an entry costs, what may be used, and by whom it is used.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use gabion_blocks::{Budget, Run};
use gabion_heap::{MAX_SLOT_WORDS, class_for_words, slot_words};

use crate::entries::ENTRY_WORDS;
use crate::segments::{FILL, SEGMENT_WORDS};

/// Bytes of the index for an entry: its own words, and its share of a segment.
pub(crate) const INDEX_BYTES: u64 =
    (ENTRY_WORDS as u64 * 8 + (SEGMENT_WORDS as u64 * 8).div_ceil(FILL)).next_multiple_of(8);
/// Bytes more for an entry that has an end.
pub(crate) const TIMED_BYTES: u64 = 16;

/// The longest payload that does not get a run of its own.
const CHUNK_PAYLOAD: usize = 1 << 20;

/// Bytes that an entry is charged: its payload as the pile rounds it, and its part of the index.
#[inline]
pub(crate) fn weight(payload: usize, timed: bool) -> u64 {
    let words = 1 + payload.div_ceil(8);
    let stored = if words <= MAX_SLOT_WORDS {
        slot_words(class_for_words(words)) * 8
    } else if payload <= CHUNK_PAYLOAD {
        // The slot's word, the chunk's tag, the payload's header.
        24 + payload.next_multiple_of(8)
    } else {
        8 + Run::mapped_bytes(payload)
    };
    stored as u64 + INDEX_BYTES + if timed { TIMED_BYTES } else { 0 }
}

/// Bytes by priority. `Σ bytes = what the entries are charged`, when nothing changes.
#[derive(Debug)]
pub(crate) struct Classes {
    bytes: Box<[AtomicU64]>,
    /// Priorities that were ever used, a bit each, so that few of the 256 need to be looked at.
    used: [AtomicU64; 4],
}

fn class(priority: i8) -> usize {
    usize::from(priority.cast_unsigned() ^ 0x80)
}

impl Default for Classes {
    fn default() -> Self {
        let bytes = (0..256).map(|_| AtomicU64::new(0)).collect();
        Self { bytes, used: std::array::from_fn(|_| AtomicU64::new(0)) }
    }
}

impl Classes {
    fn used_up_to(&self, priority: i8) -> impl Iterator<Item = (i8, u64)> {
        (0..=class(priority)).filter(|at| self.used[at / 64].load(Relaxed) >> (at % 64) & 1 == 1).filter_map(|at| {
            let bytes = self.bytes[at].load(Relaxed);
            (bytes > 0).then_some(((at as u8 ^ 0x80).cast_signed(), bytes))
        })
    }

    /// The lowest priority that holds bytes, up to the given one.
    pub fn lowest(&self, priority: i8) -> Option<i8> {
        self.used_up_to(priority).next().map(|(priority, _)| priority)
    }

    /// Bytes of all priorities up to the given one.
    pub fn up_to(&self, priority: i8) -> u64 {
        self.used_up_to(priority).map(|(_, bytes)| bytes).sum()
    }

    fn add(&self, priority: i8, bytes: u64) {
        let at = class(priority);
        // Relaxed throughout: figures that decide where to look; a lock is taken there.
        if self.used[at / 64].load(Relaxed) >> (at % 64) & 1 == 0 {
            self.used[at / 64].fetch_or(1 << (at % 64), Relaxed);
        }
        self.bytes[at].fetch_add(bytes, Relaxed);
    }

    fn sub(&self, priority: i8, bytes: u64) {
        self.bytes[class(priority)].fetch_sub(bytes, Relaxed);
    }
}

/// What may be used and what is: `used ≤ limit` at every instant.
#[derive(Debug)]
pub(crate) struct Ledger {
    pub used: Budget,
    pub classes: Classes,
    /// Bytes that are freed beyond need once the limit is reached, so that the next puts find room.
    pub slack: u64,
}

impl Ledger {
    pub fn new(limit: u64, slack: u64) -> Self {
        Self { used: Budget::new(limit), classes: Classes::default(), slack }
    }

    /// Whether room could be made for so many bytes by entries of at most this priority.
    pub fn could_hold(&self, bytes: u64, priority: i8) -> bool {
        let free = self.used.limit().saturating_sub(self.used.used());
        free.saturating_add(self.classes.up_to(priority)) >= bytes
    }

    pub fn is_over(&self, slack: u64) -> bool {
        self.used.used() + slack > self.used.limit()
    }

    /// Bytes charged before now belong to an entry.
    pub fn enter(&self, priority: i8, bytes: u64) {
        self.classes.add(priority, bytes);
    }

    /// An entry gives back what it was charged.
    pub fn leave(&self, priority: i8, bytes: u64) {
        self.classes.sub(priority, bytes);
        self.used.give(bytes);
    }

    /// An entry's priority changes.
    pub fn change(&self, from: i8, to: i8, bytes: u64) {
        self.classes.add(to, bytes);
        self.classes.sub(from, bytes);
    }
}
