//! Entries that outlast their cache: written down with all that stands with them, and put into another one.

use std::ops::ControlFlow;

use gabion_pile::ReadBuf;

use crate::cache::Table;
use crate::options::{PutResult, Terms};
use crate::value::Value;

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

    /// As [`Table::for_each_key`], until `take` breaks off.
    pub fn for_each_key_until(&self, take: impl FnMut(&[u8]) -> ControlFlow<()>) {
        self.core.keys(&self.record, take);
    }
}
