//! Bytes: what an entry costs, what may be used, what memory that takes, and which priorities there are to make room.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};

use gabion_blocks::{Budget, PAGE_BYTES};
use gabion_heap::CLASSES;

use crate::entry::Layout;
use crate::index::{SEGMENT_FULL, SKETCH_FULL, UNIT_BYTES};

/// Bytes of the index for an entry: its shares of a segment and of a sketch that are three quarters full.
pub(crate) const INDEX_BYTES: u64 =
    ((UNIT_BYTES * 4).div_ceil(SEGMENT_FULL * 3) + (UNIT_BYTES * 4).div_ceil(SKETCH_FULL * 3)).next_multiple_of(8);

/// Caches below this limit may take more memory than that, up to this: each size class of the pile fills pages of its
/// own, and with less, pages would decide who goes, long before bytes do.
const LEAST_MEMORY: u64 = 8 << 20;
/// The most that it may be more: a page for each size class, and some for the index and for long values.
const PAGES_MEMORY: u64 = (CLASSES * PAGE_BYTES) as u64 + (1 << 20);
/// One part in so many of the limit may be charged to shards whose entries do not use it.
const CREDIT_SHARE: u64 = 256;
/// Bytes of memory that a cache of a limit may take.
pub(crate) fn memory_of(limit: u64) -> u64 {
    limit.max(LEAST_MEMORY.min(limit.saturating_add(PAGES_MEMORY)))
}

/// Bytes that each of some shards may keep charged and unused.
pub(crate) fn credit_of(limit: u64, shards: u64) -> u64 {
    // With one shard nobody else misses what it keeps.
    if shards == 1 { u64::MAX } else { limit / CREDIT_SHARE / shards }
}

/// Bytes that an entry is charged: what it takes in the pile, and its part of the index.
#[inline]
pub(crate) fn weight(layout: Layout) -> u64 {
    layout.stored + INDEX_BYTES
}

/// Priorities that hold entries, by how many cohorts of entries in all shards do.
#[derive(Debug)]
pub(crate) struct Priorities {
    cohorts: Box<[AtomicU32]>,
    /// Priorities that were ever used, a bit each, so that few of the 256 need to be looked at.
    used: [AtomicU64; 4],
    /// The rank of the lowest of them.
    least: AtomicU32,
}

/// How many priorities are lower.
fn rank(priority: i8) -> usize {
    usize::from(priority.cast_unsigned() ^ 0x80)
}

impl Default for Priorities {
    fn default() -> Self {
        let cohorts = (0..256).map(|_| AtomicU32::new(0)).collect();
        Self { cohorts, used: std::array::from_fn(|_| AtomicU64::new(0)), least: AtomicU32::new(u32::MAX) }
    }
}

impl Priorities {
    /// The lowest priority that holds entries, up to the given one.
    #[inline]
    pub fn lowest(&self, priority: i8) -> Option<i8> {
        let last = rank(priority);
        for (word, used) in self.used.iter().enumerate().take(last / 64 + 1) {
            // Relaxed throughout: figures that decide where to look; a lock is taken there.
            let mut left = used.load(Relaxed);
            while left != 0 {
                let at = word * 64 + left.trailing_zeros() as usize;
                if at > last {
                    return None;
                }
                if self.cohorts[at].load(Relaxed) > 0 {
                    return Some((at as u8 ^ 0x80).cast_signed());
                }
                left &= left - 1;
            }
        }
        None
    }

    /// Whether no priority below the given one, which holds entries, does.
    #[inline]
    pub fn is_lowest(&self, priority: i8) -> bool {
        // Relaxed: as in `lowest`.
        self.least.load(Relaxed) >= rank(priority) as u32 || self.lowest(priority) == Some(priority)
    }

    /// A cohort got its first entry.
    pub fn come(&self, priority: i8) {
        let at = rank(priority);
        self.cohorts[at].fetch_add(1, Relaxed);
        self.used[at / 64].fetch_or(1 << (at % 64), Relaxed);
        self.least.fetch_min(at as u32, Relaxed);
    }

    /// A cohort lost its last entry.
    pub fn go(&self, priority: i8) {
        self.cohorts[rank(priority)].fetch_sub(1, Relaxed);
    }

    /// How many cohorts hold entries.
    pub fn cohorts(&self) -> u64 {
        self.cohorts.iter().map(|cohorts| u64::from(cohorts.load(Relaxed))).sum()
    }
}

/// What may be used and what is: `used ≤ limit` at every instant.
#[derive(Debug)]
pub(crate) struct Ledger {
    pub used: Budget,
    pub priorities: Priorities,
}

impl Ledger {
    pub fn new(limit: u64) -> Self {
        Self { used: Budget::new(limit), priorities: Priorities::default() }
    }
}
