//! What the cache knows of a table.

use std::collections::{HashMap, VecDeque};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use foldhash::quality::RandomState;

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

    /// Marks the table as dropped; true for the first who does. Each shard is cleared after that under its lock, so
    /// that a put that did not see the mark comes before the clearing.
    pub fn drop_it(&self) -> bool {
        // Release: who sees the mark also sees what came before it. Acquire: the second who drops it comes after the
        // first.
        !self.dropped.swap(true, Ordering::AcqRel)
    }

    /// After each shard was cleared: no entry has the table's number.
    pub fn mark_cleared(&self) {
        // Release: a thread that sees it comes after the clearing.
        self.cleared.store(true, Ordering::Release);
    }

    /// Whether the table's number can be another's: it was dropped, no entry is left, and nobody can ask for one. Asked
    /// under the lock of the list of records, where handles are made.
    pub fn is_free(&self) -> bool {
        // Acquire: what was done through the handles, and the clearing, comes before what the next table does.
        self.cleared.load(Ordering::Acquire) && self.handles.load(Ordering::Acquire) == 0
    }

    /// The table's figures, in a cache of a limit: what is more than that is no limit.
    pub fn stats(&self, limit: u64) -> CacheStats {
        CacheStats { max_bytes: self.options.max_bytes.unwrap_or(limit).min(limit), ..self.counters.read() }
    }
}

/// How many dropped tables are looked at for one whose number can be another's, while there are numbers that nobody has
/// had.
const LOOKS: usize = 16;

/// The records of all tables that there are, and of dropped ones whose numbers are nobody else's yet.
#[derive(Debug, Default)]
pub(crate) struct Records {
    /// By their numbers.
    pub all: Vec<Arc<Record>>,
    /// The newest number of each name, unless its table was dropped and cleared.
    pub names: HashMap<String, u16, RandomState>,
    /// The numbers of tables that were dropped and cleared. Handles may still lead to them.
    pub dropped: VecDeque<u16>,
}

impl Records {
    /// The table of a name.
    pub fn named(&self, name: &str) -> Option<&Arc<Record>> {
        let record = &self.all[usize::from(*self.names.get(name)?)];
        (!record.is_dropped()).then_some(record)
    }

    /// Takes a number that can be another's: the first to be found among some of the dropped ones, or among all where
    /// there are no others.
    pub fn take_free(&mut self) -> Option<u16> {
        let looks = if self.all.len() > usize::from(u16::MAX) { usize::MAX } else { LOOKS };
        for _ in 0..looks.min(self.dropped.len()) {
            let number = self.dropped.pop_front()?;
            if self.all[usize::from(number)].is_free() {
                return Some(number);
            }
            self.dropped.push_back(number);
        }
        None
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
