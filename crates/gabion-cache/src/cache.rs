//! Caches, as callers see them.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use gabion_blocks::{BlockError, Invalid};

use crate::core::{Core, Listener};
use crate::flight::Flights;
use crate::options::{CacheOptions, TableOptions};
use crate::record::DEFAULT;
use crate::stats::CacheStats;
use crate::table::Table;

/// A cache bounded in bytes: its default table, and more tables that share its limit.
///
/// It derefs to the default table, so that keys are put and got in the cache itself. What is said of the cache as a
/// whole, [`Cache::clear`] and [`Cache::stats`], is of all its tables; [`Cache::default_table`] is for that one alone.
///
/// All methods take `&self` and may be called from any thread at any time. A clone is another handle of the same cache.
/// See the [crate's documentation](crate).
#[derive(Clone)]
pub struct Cache {
    table: Table,
}

impl Cache {
    /// A cache of at most `max_bytes`, with the default options.
    ///
    /// # Errors
    /// [`BlockError::Exhausted`] when four million caches are alive, or the numbers of blocks are used up; what the
    /// system says when it has no memory for the tables that lead to the index, as [`BlockError::Refused`]; and
    /// [`BlockError::Limit`] where those tables alone would take more than the cache may.
    pub fn new(max_bytes: u64) -> Result<Self, BlockError> {
        Self::with_options(&CacheOptions { max_bytes, ..CacheOptions::default() })
    }

    /// A cache made as `options` say.
    ///
    /// # Errors
    /// As [`Cache::new`].
    pub fn with_options(options: &CacheOptions) -> Result<Self, BlockError> {
        Ok(Self::of(Core::new(options)?, options))
    }

    /// A cache that may take more memory than its limit, so that nothing but bytes decides who goes.
    #[cfg(test)]
    pub(crate) fn with_room(options: &CacheOptions, room: u64) -> Result<Self, BlockError> {
        Ok(Self::of(Core::with_room(options, room)?, options))
    }

    fn of(core: Core, options: &CacheOptions) -> Self {
        let record = core.table("", options.table).expect("the first table has a number");
        debug_assert_eq!(record.id, DEFAULT, "no other table is there yet");
        drop(record);
        Self::with(Arc::new(core), Arc::default())
    }

    /// A handle of a cache whose default table was made.
    pub(crate) fn with(core: Arc<Core>, flights: Arc<Flights>) -> Self {
        let record = core.table("", TableOptions::default()).expect("the default table is never dropped");
        Self { table: Table { core, record, flights } }
    }

    /// The most bytes that the cache may take: what it was made with, or was set to.
    pub fn max_bytes(&self) -> u64 {
        self.table.core.limit()
    }

    /// What it was made with: the most that [`Cache::set_max_bytes`] takes.
    pub fn made_for(&self) -> u64 {
        self.table.core.made_for
    }

    /// Sets it, to what the cache was made with or less. What is more than that is evicted, the lowest priority first
    /// and as the policy has it, before this returns; the memory goes back to the pool, or to the system. Others go on
    /// meanwhile, and none of their puts goes beyond it. In time that goes with what is evicted.
    ///
    /// # Errors
    /// [`BlockError::Limit`] for more than the cache was made with, which its index is made for: make it with the most
    /// that it may ever take, and set less at once. The same where the tables alone that lead to the index take more.
    /// Nothing is changed then.
    ///
    /// # Examples
    /// ```
    /// let cache = gabion_cache::Cache::new(64 << 20)?;
    /// cache.set_max_bytes(16 << 20)?;
    /// assert!(cache.set_max_bytes(128 << 20).is_err());
    /// assert_eq!(cache.max_bytes(), 16 << 20);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_max_bytes(&self, max_bytes: u64) -> Result<(), BlockError> {
        self.table.core.set_limit(max_bytes)
    }

    /// The table of a name, made with `options` when there is none; one that is there stays as it was made, which
    /// [`Table::options`] tells. `None` when there are 65,536 tables, dropped ones included of which there are handles.
    pub fn table(&self, name: &str, options: TableOptions) -> Option<Table> {
        let record = self.table.core.table(name, options)?;
        Some(Table { record, ..self.table.clone() })
    }

    /// The table that the cache derefs to; its name is empty.
    pub fn default_table(&self) -> &Table {
        &self.table
    }

    /// All tables, the default one first.
    pub fn tables(&self) -> Vec<Table> {
        self.table.core.tables().into_iter().map(|record| Table { record, ..self.table.clone() }).collect()
    }

    /// Drops a table with all that is in it. Handles of it stay safe: gets find nothing, puts are refused. The name can
    /// be given to a new table. False when there is no such table; the default table stays.
    pub fn drop_table(&self, name: &str) -> bool {
        let core = &self.table.core;
        core.named(name).is_some_and(|record| core.drop_table(&record))
    }

    /// Removes all entries of all tables. Returns how many. In time that goes with the memory that they take, not with
    /// their number; puts and removals wait meanwhile, gets do not.
    pub fn clear(&self) -> u64 {
        let removed = self.table.core.clear(None);
        self.table.core.forget_ghosts();
        removed
    }

    /// Removes all entries whose time is over. Nobody needs to call it for correct answers: gets look at the time, and
    /// puts remove a little on the way; it gives the memory back of a cache that is only read, or not used.
    pub fn expire(&self) -> u64 {
        self.table.core.expire()
    }

    /// Whether any entry has an end, and [`Cache::expire`] may ever have something to do.
    pub fn has_ends(&self) -> bool {
        self.table.core.has_ends()
    }

    /// The figures of all tables, summed, and of the memory that they share.
    pub fn stats(&self) -> CacheStats {
        self.table.core.stats()
    }

    /// Has `listener` called with each entry that is evicted or expires, without any lock held, on the thread whose
    /// call made it leave. `None` ends it. Entries that callers remove or replace are not told of.
    ///
    /// A listener must not panic: of entries that left by the same call, some would not be told.
    ///
    /// The cache holds the listener: one that uses the cache takes a [`WeakCache`](crate::WeakCache), because with a
    /// [`Cache`] each would keep the other alive for ever.
    pub fn on_departure(&self, listener: Option<Listener>) {
        self.table.core.listen(listener);
    }

    #[cfg(test)]
    pub(crate) fn core(&self) -> &Core {
        &self.table.core
    }

    /// Checks every equation of the cache's structure. For tests; nobody may put meanwhile, but what expires may go.
    /// Takes time in proportion to the entries, and holds up all else that changes the cache.
    ///
    /// # Errors
    /// The first equation that does not hold.
    pub fn validate(&self) -> Result<(), Invalid> {
        crate::core::validate(&self.table.core)
    }
}

impl Deref for Cache {
    type Target = Table;

    /// The default table, as [`Cache::default_table`].
    fn deref(&self) -> &Table {
        &self.table
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("stats", &self.stats()).finish_non_exhaustive()
    }
}
