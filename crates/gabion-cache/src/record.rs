//! What the cache knows of a table.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::budget::Ledger;
use crate::options::TableOptions;
use crate::stats::{CacheStats, Counters};

/// A table's record. It outlives the table, because entries and handles refer to it.
#[derive(Debug)]
pub(crate) struct Record {
    pub id: u16,
    pub name: String,
    pub options: TableOptions,
    /// The table's own limit, if it has one.
    pub own: Option<Ledger>,
    pub counters: Counters,
    pub bytes: AtomicU64,
    dropped: AtomicBool,
}

impl Record {
    pub fn new(id: u16, name: &str, options: TableOptions, slack: impl FnOnce(u64) -> u64) -> Self {
        let own = options.max_bytes.map(|limit| Ledger::new(limit, slack(limit)));
        let (counters, bytes, dropped) = (Counters::default(), AtomicU64::new(0), AtomicBool::new(false));
        Self { id, name: name.to_owned(), options, own, counters, bytes, dropped }
    }

    /// Whether the table was dropped: it takes nothing in any more. Asked under a shard's lock before a put.
    pub fn is_dropped(&self) -> bool {
        // Acquire: see `drop_it`.
        self.dropped.load(Ordering::Acquire)
    }

    /// Marks the table as dropped; true for the first who does. Each shard is cleared after that under its lock, so that
    /// a put that did not see the mark comes before the clearing.
    pub fn drop_it(&self) -> bool {
        !self.dropped.swap(true, Ordering::AcqRel)
    }

    pub fn stats(&self, limit: u64) -> CacheStats {
        CacheStats {
            bytes: self.bytes.load(Ordering::Relaxed),
            max_bytes: self.options.max_bytes.unwrap_or(limit),
            ..self.counters.read()
        }
    }
}
