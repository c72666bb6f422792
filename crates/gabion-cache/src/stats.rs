//! What a cache tells about itself.

use std::cell::Cell;
use std::ops::AddAssign;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};

/// A table's or a cache's figures. A cache's are the sums of its tables', but for memory, which tables share.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheStats {
    /// Gets that found a value.
    pub hits: u64,
    /// Gets that found none, or one that had expired.
    pub misses: u64,
    /// Puts under a new key.
    pub inserted: u64,
    /// Puts under a key that was there.
    pub replaced: u64,
    /// Puts for which there was no room.
    pub rejected: u64,
    /// Entries removed by callers, one by one or all at once.
    pub removed: u64,
    /// Entries that had to make room.
    pub evicted: u64,
    /// Entries whose time was over.
    pub expired: u64,
    /// Entries now.
    pub entries: u64,
    /// Bytes charged now: payloads with keys, headers and rounding, and their part of the index.
    pub bytes: u64,
    /// The most that `bytes` may become.
    pub max_bytes: u64,
    /// Memory taken, in pages of 64 KiB: what `bytes` lie in, and room within it. The cache's only.
    pub reserved_bytes: u64,
    /// Memory of the index, out of `reserved_bytes`. The cache's only.
    pub index_bytes: u64,
}

impl AddAssign for CacheStats {
    fn add_assign(&mut self, other: Self) {
        self.hits += other.hits;
        self.misses += other.misses;
        self.inserted += other.inserted;
        self.replaced += other.replaced;
        self.rejected += other.rejected;
        self.removed += other.removed;
        self.evicted += other.evicted;
        self.expired += other.expired;
        self.entries += other.entries;
        self.bytes += other.bytes;
    }
}

/// Hits and misses of some threads, on cache lines of their own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe {
    hits: AtomicU64,
    misses: AtomicU64,
}

const STRIPES: usize = 16;

/// The counters of a table.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    stripes: [Stripe; STRIPES],
    pub inserted: AtomicU64,
    pub replaced: AtomicU64,
    pub rejected: AtomicU64,
    pub removed: AtomicU64,
    pub evicted: AtomicU64,
    pub expired: AtomicU64,
    pub entries: AtomicU64,
}

/// Adds one. Relaxed: figures, nothing depends on them.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}

impl Counters {
    #[inline]
    pub fn asked(&self, hit: bool) {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local!(static TURN: Cell<usize> = const { Cell::new(usize::MAX) });
        let turn = TURN.with(|turn| {
            if turn.get() == usize::MAX {
                // Relaxed: any order of turns is as good as another.
                turn.set(NEXT.fetch_add(1, Relaxed) % STRIPES);
            }
            turn.get()
        });
        let stripe = &self.stripes[turn];
        count(if hit { &stripe.hits } else { &stripe.misses });
    }

    pub fn read(&self) -> CacheStats {
        let get = |counter: &AtomicU64| counter.load(Relaxed);
        CacheStats {
            hits: self.stripes.iter().map(|stripe| get(&stripe.hits)).sum(),
            misses: self.stripes.iter().map(|stripe| get(&stripe.misses)).sum(),
            inserted: get(&self.inserted),
            replaced: get(&self.replaced),
            rejected: get(&self.rejected),
            removed: get(&self.removed),
            evicted: get(&self.evicted),
            expired: get(&self.expired),
            entries: get(&self.entries),
            ..CacheStats::default()
        }
    }
}
