//! Entries that outlast their cache: written down with all that stands with them, and put into another one.

use std::ops::ControlFlow;
use std::sync::Arc;

use gabion_pile::{ReadBuf, Value};

use crate::options::{PutResult, Terms};
use crate::record::Record;
use crate::table::Table;

impl Table {
    /// As [`Table::peek`], with all else that the cache knows of the value. Holds up other writers for the moment.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use gabion_cache::{Cache, PutOptions, PutResult, ReadBuf, Span};
    ///
    /// let (cache, minute) = (Cache::new(64 << 20)?, Duration::from_secs(60));
    /// cache.put(b"stone", b"4 MiB", &PutOptions { ttl: Span::Of(minute), priority: 5, ..PutOptions::default() });
    /// let mut buf = ReadBuf::new();
    /// let (value, terms) = cache.peek_with_terms(b"stone", &mut buf).unwrap();
    /// assert_eq!((terms.touch, terms.priority), (Span::Of(minute), 5));
    ///
    /// let other = Cache::new(64 << 20)?;
    /// assert_eq!(other.add_with_terms(b"stone", value, &terms), Some(PutResult::Inserted));
    /// assert!(other.expires_in(b"stone").is_some_and(|left| left <= minute));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn peek_with_terms<'b>(&self, key: &[u8], buf: &'b mut ReadBuf) -> Option<(&'b [u8], Terms)> {
        let (offset, terms) = self.core.peek_with_terms(&self.record, key, buf)?;
        Some((&buf.payload()[offset..], terms))
    }

    /// Stores a copy of `value` with the terms that it had, if the key has none. `None` when it has one, or when the
    /// value's time is over. A touch that restarts the table's own time to live restarts this table's.
    pub fn add_with_terms<'v>(&self, key: &[u8], value: impl Into<Value<'v>>, terms: &Terms) -> Option<PutResult> {
        self.core.add_with_terms(&self.record, key, value.into(), terms)
    }

    /// As [`Table::for_each_key`], until `take` breaks off, and of several tables of this cache in one walk, whose time
    /// is linear in the whole cache. With each key comes which of the tables has it.
    ///
    /// ```
    /// use std::ops::ControlFlow;
    ///
    /// use gabion_cache::{Cache, PutOptions, TableOptions};
    ///
    /// let cache = Cache::new(64 << 20)?;
    /// let table = cache.table("photos", TableOptions::default()).unwrap();
    /// table.put(b"stone", b"4 MiB", &PutOptions::default());
    /// let mut keys = Vec::new();
    /// let tables = cache.tables();
    /// cache.for_each_key_of(&tables, |number, key| {
    ///     keys.push((number, key.to_vec()));
    ///     ControlFlow::Continue(())
    /// });
    /// assert_eq!(keys, [(1, b"stone".to_vec())]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// When one of the tables is another cache's.
    pub fn for_each_key_of(&self, tables: &[Self], take: impl FnMut(usize, &[u8]) -> ControlFlow<()>) {
        assert!(tables.iter().all(|table| Arc::ptr_eq(&table.core, &self.core)), "tables of one cache");
        let records: Vec<&Record> = tables.iter().map(|table| &*table.record).collect();
        self.core.keys_of(&records, take);
    }
}
