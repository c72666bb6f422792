//! What the cache knows of a table.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::budget::Ledger;
use crate::options::TableOptions;
use crate::stats::{CacheStats, Counters};

/// The number of the default table, which is never dropped.
pub(crate) const DEFAULT: u16 = 0;

/// A table's record. It outlives the table, because entries and handles refer to it.
#[derive(Debug)]
pub(crate) struct Record {
    pub id: u16,
    pub name: String,
    pub options: TableOptions,
    /// The table's own limit, if it has one.
    pub own: Option<Ledger>,
    pub counters: Counters,
    dropped: AtomicBool,
    /// Dropped, and no entry of it is left.
    cleared: AtomicBool,
    handles: AtomicUsize,
}

impl Record {
    pub fn new(id: u16, name: &str, options: TableOptions) -> Self {
        let own = options.max_bytes.map(Ledger::new);
        let (counters, no) = (Counters::default(), || AtomicBool::new(false));
        Self {
            id,
            name: name.to_owned(),
            options,
            own,
            counters,
            dropped: no(),
            cleared: no(),
            handles: AtomicUsize::new(0),
        }
    }

    /// Whether the table was dropped: it takes nothing in any more. Asked under a shard's lock before a put.
    #[inline]
    pub fn is_dropped(&self) -> bool {
        // Acquire: see `drop_it`.
        self.dropped.load(Ordering::Acquire)
    }

    /// Marks the table as dropped; true for the first who does. Each shard is cleared after that under its lock, so that
    /// a put that did not see the mark comes before the clearing.
    pub fn drop_it(&self) -> bool {
        // Release: who sees the mark also sees what came before it. Acquire: the second who drops it comes after the first.
        !self.dropped.swap(true, Ordering::AcqRel)
    }

    /// After each shard was cleared: no entry has the table's number.
    pub fn mark_cleared(&self) {
        // Release: whoever sees it comes after the clearing.
        self.cleared.store(true, Ordering::Release);
    }

    /// Whether the table's number can be another's: it was dropped, no entry is left, and nobody can ask for one. Asked
    /// under the lock of the list of records, where handles are made.
    pub fn is_free(&self) -> bool {
        // Acquire: what was done through the handles, and the clearing, comes before what the next table does.
        self.cleared.load(Ordering::Acquire) && self.handles.load(Ordering::Acquire) == 0
    }

    pub fn stats(&self, limit: u64) -> CacheStats {
        CacheStats { max_bytes: self.options.max_bytes.unwrap_or(limit), ..self.counters.read() }
    }
}

/// A table's record in the hands of callers. While one is there, the table's number is no other's, even after a drop: a
/// call on a dropped table can reach nobody else's entries.
#[derive(Debug)]
pub(crate) struct Handle(Arc<Record>);

impl Handle {
    /// The first handles are made under the lock of the list of records, the others from those.
    pub fn new(record: &Arc<Record>) -> Self {
        // Relaxed: the lock, or the handle that it is made from, keeps the number from being given away.
        record.handles.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(record))
    }
}

impl Clone for Handle {
    fn clone(&self) -> Self {
        Self::new(&self.0)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // Release: see `Record::is_free`.
        self.0.handles.fetch_sub(1, Ordering::Release);
    }
}

impl Deref for Handle {
    type Target = Record;

    #[inline]
    fn deref(&self) -> &Record {
        &self.0
    }
}
