//! Tables, as callers see them.

use std::fmt;
use std::ops::ControlFlow;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::Duration;

use gabion_pile::{ReadBuf, Reading, Value, with_read_buf};

use crate::core::{Core, Foreseen, Former, Standing};
use crate::flight::{Begin, Deadlock, Flights, this_thread};
use crate::index::Cell;
use crate::key::Image;
use crate::lease::Lease;
use crate::options::{PutOptions, PutResult, Span, TableOptions};
use crate::read::Found;
use crate::record::{DEFAULT, Handle};
use crate::shard::{Look, When};
use crate::stats::{CacheStats, Figure};

/// A table of a cache: its own keys, and its own limit and times if it was made with some.
///
/// A handle stays safe when the table is dropped: gets find nothing then, and puts are refused.
#[derive(Clone)]
pub struct Table {
    pub(crate) core: Arc<Core>,
    pub(crate) record: Handle,
    pub(crate) flights: Arc<Flights>,
}

// Nothing of a caller's runs while the table is half changed: factories, listeners and what takes keys are called
// without a lock and between changes, and a clock must not panic. A factory's panic ends its flight as an error does.
impl UnwindSafe for Table {}
impl RefUnwindSafe for Table {}

/// How a get goes on when a short look did not tell.
type Again<'t, 'b, R> = fn(&'t Table, &[u8], &'b mut ReadBuf) -> Option<R>;

impl Table {
    /// The table's name; the default table's is empty.
    pub fn name(&self) -> &str {
        &self.record.name
    }

    /// How the table was made.
    pub fn options(&self) -> TableOptions {
        self.record.options
    }

    /// Whether the table was dropped.
    pub fn is_dropped(&self) -> bool {
        self.record.is_dropped()
    }

    /// Copies a key's value into `buf` and returns it.
    ///
    /// Takes no lock, except with [`Policy::Lru`](crate::Policy::Lru); to put off the end of an idle time, once in a
    /// millisecond at most; when writers disturb it again and again; and for values over 1 MiB.
    ///
    /// `None` also when there is no memory for `buf` to grow, here and for the calls below: [`ReadBuf::refusal`] tells.
    #[inline]
    pub fn get<'b>(&self, key: &[u8], buf: &'b mut ReadBuf) -> Option<&'b [u8]> {
        // A row of gets is as fast as the processor sees the next ones' lines ahead: so there are few instructions
        // here, and whatever is not nearly always so stands elsewhere.
        self.get_by(key, buf, Self::get_again)
    }

    /// As [`Table::get`], but a long value stays where it lies until its reader knows where it belongs.
    #[inline]
    pub fn get_or_find<'a>(&'a self, key: &[u8], buf: &'a mut ReadBuf) -> Option<Reading<'a>> {
        self.get_by(key, buf, Self::find_again)
    }

    #[inline(always)]
    fn get_by<'t, 'b, R: From<&'b [u8]>>(
        &'t self,
        key: &[u8],
        buf: &'b mut ReadBuf,
        again: Again<'t, 'b, R>,
    ) -> Option<R> {
        if self.record.id != DEFAULT {
            return self.get_named(key, buf, again);
        }
        // The default table is never dropped.
        self.get_at(Image::short(DEFAULT, key), key, buf, again)
    }

    #[inline(never)]
    fn get_named<'t, 'b, R: From<&'b [u8]>>(
        &'t self,
        key: &[u8],
        buf: &'b mut ReadBuf,
        again: Again<'t, 'b, R>,
    ) -> Option<R> {
        let image = Image::short(self.record.id, key).filter(|_| !self.record.is_dropped());
        self.get_at(image, key, buf, again)
    }

    #[inline(always)]
    fn get_at<'t, 'b, R: From<&'b [u8]>>(
        &'t self,
        image: Option<Image<'_>>,
        key: &[u8],
        buf: &'b mut ReadBuf,
        again: Again<'t, 'b, R>,
    ) -> Option<R> {
        let Some(image) = image else { return again(self, key, buf) };
        match self.core.look(&image, buf) {
            Look::Value(found, cell) if cell.is_worn() && self.core.lives_long(found.due) => {
                self.record.counters.count(Figure::Hits);
                Some(buf.copied(found.offset).into())
            }
            Look::Value(found, cell) => self.get_found(key, found, cell, buf).map(R::from),
            Look::Nothing => {
                self.record.counters.count(Figure::Misses);
                buf.let_go();
                None
            }
            Look::Unclear => again(self, key, buf),
        }
    }

    #[inline(never)]
    fn get_found<'b>(&self, key: &[u8], found: Found, cell: Cell<'_>, buf: &'b ReadBuf) -> Option<&'b [u8]> {
        let offset = self.core.read_found(&self.record, key, found, cell)?;
        Some(buf.copied(offset))
    }

    #[inline(never)]
    fn get_again<'b>(&self, key: &[u8], buf: &'b mut ReadBuf) -> Option<&'b [u8]> {
        let offset = self.core.read(&self.record, key, true, buf)?;
        Some(&buf.payload()[offset..])
    }

    #[inline(never)]
    fn find_again<'a>(&'a self, key: &[u8], buf: &'a mut ReadBuf) -> Option<Reading<'a>> {
        let offset = buf.leaving(|buf| self.core.read(&self.record, key, true, buf))?;
        Some(self.core.pile().reading(buf, offset))
    }

    /// Asks memory for the part of the index where a key is looked up; [`Table::foresee_entry`] goes on from there. For
    /// who knows the keys of many gets: a get waits for memory twice, and these let the waits overlap. Hints: whatever
    /// else happens between is no harm. Each takes about as long as hashing the key; a long key is left to the get.
    ///
    /// ```
    /// use gabion_cache::{Cache, PutOptions, ReadBuf};
    ///
    /// let (cache, keys) = (Cache::new(64 << 20)?, ["one", "two", "three", "four", "five"].map(str::as_bytes));
    /// for key in keys {
    ///     cache.put(key, key, &PutOptions::default());
    /// }
    /// // The index some keys ahead, entries half as many: by then their part of the index is there.
    /// const AHEAD: usize = 4;
    /// let mut buf = ReadBuf::new();
    /// let mut foreseen: Vec<_> = keys.iter().take(AHEAD).map(|key| cache.foresee(key)).collect();
    /// foreseen.iter().take(AHEAD / 2).for_each(|&next| cache.foresee_entry(next));
    /// for (at, key) in keys.iter().enumerate() {
    ///     foreseen.extend(keys.get(at + AHEAD).map(|key| cache.foresee(key)));
    ///     if let Some(&next) = foreseen.get(at + AHEAD / 2) {
    ///         cache.foresee_entry(next);
    ///     }
    ///     assert_eq!(cache.get(key, &mut buf), Some(*key));
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn foresee(&self, key: &[u8]) -> Foreseen {
        self.core.foresee(self.record.id, key)
    }

    /// Asks memory for the entry of a key that was foreseen.
    #[inline]
    pub fn foresee_entry(&self, foreseen: Foreseen) {
        self.core.foresee_entry(foreseen);
    }

    /// Asks memory for what a put of a key will look at first, for callers that have work to do before the put: making
    /// the value, for one. A hint that takes about as long as hashing the key; a long key is left to the put.
    ///
    /// ```
    /// use gabion_cache::{Cache, PutOptions};
    ///
    /// let cache = Cache::new(64 << 20)?;
    /// cache.foresee_put(b"stone");
    /// let value = format!("{} MiB", 4);
    /// cache.put(b"stone", value.as_bytes(), &PutOptions::default());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn foresee_put(&self, key: &[u8]) {
        self.core.foresee_put(self.record.id, key);
    }

    /// As [`Table::get`], but neither counted nor seen by the eviction policy.
    pub fn peek<'b>(&self, key: &[u8], buf: &'b mut ReadBuf) -> Option<&'b [u8]> {
        let offset = self.core.read(&self.record, key, false, buf)?;
        Some(&buf.payload()[offset..])
    }

    /// Whether there is a value. Neither counted nor seen by the eviction policy.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        self.core.contains(&self.record, key)
    }

    /// How long a key's value lives on if nobody asks for it; [`Duration::MAX`] when it has no end. Neither counted nor
    /// seen by the eviction policy, and no use: an idle time goes on.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use gabion_cache::{Cache, PutOptions, Span};
    ///
    /// let (cache, minute) = (Cache::new(64 << 20)?, Duration::from_secs(60));
    /// cache.put(b"stone", b"4 MiB", &PutOptions { ttl: Span::Of(minute), ..PutOptions::default() });
    /// assert!(cache.expires_in(b"stone").is_some_and(|left| left <= minute));
    /// assert_eq!(cache.expires_in(b"gravel"), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn expires_in(&self, key: &[u8]) -> Option<Duration> {
        self.core.expires_in(&self.record, key)
    }

    /// Bytes that a key's entry takes of the limit: key, value, header, rounding, and its part of the index. Those of
    /// all entries add up to [`CacheStats::bytes`]. Neither counted nor seen by the eviction policy.
    pub fn size_of(&self, key: &[u8]) -> Option<u64> {
        self.core.size_of(&self.record, key)
    }

    /// Stores a copy of `value`. Constant time, but that it may have to make room for it. What is not stored, because
    /// it is too large or of too low a priority, removes the key's earlier value all the same: ask
    /// [`PutResult::is_stored`].
    pub fn put<'v>(&self, key: &[u8], value: impl Into<Value<'v>>, options: &PutOptions) -> PutResult {
        self.core.put(&self.record, key, value.into(), options, When::Always).unwrap_or(PutResult::Rejected)
    }

    /// Stores a copy of `value` if the key has none. `None` when it has one.
    pub fn add<'v>(&self, key: &[u8], value: impl Into<Value<'v>>, options: &PutOptions) -> Option<PutResult> {
        self.core.put(&self.record, key, value.into(), options, When::Absent)
    }

    /// Takes a lease of a key, for a caller that is about to make its value of facts that may change meanwhile.
    ///
    /// ```
    /// use gabion_cache::{Cache, PutOptions};
    ///
    /// let cache = Cache::new(64 << 20)?;
    /// let lease = cache.lease(b"stone");
    /// let value = b"what was true just now";
    /// // Somebody changes the facts, and says so.
    /// cache.remove(b"stone");
    /// assert_eq!(cache.put_made(&lease, b"stone", value, &PutOptions::default()), None);
    /// assert!(!cache.contains(b"stone"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn lease(&self, key: &[u8]) -> Lease {
        Lease::new(&self.core, &self.record, key)
    }

    /// Stores a copy of a value that was made under a lease of its key. `None` when the lease has ended: then nothing
    /// is changed.
    pub fn put_made<'v>(
        &self,
        lease: &Lease,
        key: &[u8],
        value: impl Into<Value<'v>>,
        options: &PutOptions,
    ) -> Option<PutResult> {
        let number = lease.number(&self.core)?;
        self.core.put(&self.record, key, value.into(), options, When::Leased(number))
    }

    /// Removes the value of a key while a lease of it holds: what takes its place is not to be kept. False when there
    /// was none, or the lease has ended; then nothing is changed.
    pub fn remove_made(&self, lease: &Lease, key: &[u8]) -> bool {
        let number = lease.number(&self.core);
        number.is_some_and(|number| self.core.remove(&self.record, key, Some(number)))
    }

    /// Replaces a key's value while it is `old`; its end, idle time and priority stay. `None`: it is another by now, or
    /// there is none, and nothing is changed. [`PutResult::Rejected`]: there was no room, not even in place of `old`,
    /// and the key holds nothing now.
    pub fn replace_if<'o, 'v>(
        &self,
        key: &[u8],
        old: impl Into<Former<'o>>,
        new: impl Into<Value<'v>>,
    ) -> Option<PutResult> {
        self.core.replace_if(&self.record, key, &old.into(), new.into())
    }

    /// Removes a key's value. False when there is none.
    pub fn remove(&self, key: &[u8]) -> bool {
        self.core.remove(&self.record, key, None)
    }

    /// Removes a key's value while it is `old`: of several threads that remove the same value, one does. False when it
    /// is another by now, or there is none.
    ///
    /// ```
    /// use gabion_cache::{Cache, PutOptions};
    ///
    /// let cache = Cache::new(64 << 20)?;
    /// cache.put(b"stone", b"4 MiB", &PutOptions::default());
    /// assert!(!cache.remove_if(b"stone", b"2 MiB"));
    /// assert!(cache.remove_if(b"stone", b"4 MiB") && !cache.contains(b"stone"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn remove_if<'o>(&self, key: &[u8], old: impl Into<Former<'o>>) -> bool {
        self.core.remove_if(&self.record, key, &old.into())
    }

    /// Gets and removes in one step: of several threads that pop the same key, one gets the value. It stays where
    /// there is no memory for `buf` to grow.
    pub fn pop<'b>(&self, key: &[u8], buf: &'b mut ReadBuf) -> Option<&'b [u8]> {
        let (offset, _) = self.core.pop(&self.record, key, buf)?;
        Core::count_pop(&self.record);
        Some(&buf.payload()[offset..])
    }

    /// As [`Table::pop`], for a caller that may have to [put the value back](Table::put_back), and otherwise says that
    /// it is [popped](Table::popped): counted then, as one or the other.
    pub fn pop_for_now<'b>(&self, key: &[u8], buf: &'b mut ReadBuf) -> Option<(&'b [u8], Standing)> {
        let (offset, standing) = self.core.pop(&self.record, key, buf)?;
        Some((&buf.payload()[offset..], standing))
    }

    /// Counts a value that was popped for now as popped for good.
    pub fn popped(&self, _standing: Standing) {
        Core::count_pop(&self.record);
    }

    /// Stores a value that was popped for now, with the end, idle time and priority that it had: then nothing is
    /// counted. `None` when the key has another by now, which stays, and [`PutResult::Rejected`] when there is no room
    /// any more: both are counted as a removal.
    ///
    /// ```
    /// use gabion_cache::{Cache, PutOptions, PutResult, ReadBuf};
    ///
    /// let (cache, mut buf) = (Cache::new(64 << 20)?, ReadBuf::new());
    /// cache.put(b"stone", b"4 MiB", &PutOptions { priority: 5, ..PutOptions::default() });
    /// let (value, standing) = cache.pop_for_now(b"stone", &mut buf).unwrap();
    /// assert_eq!(cache.put_back(b"stone", value, standing), Some(PutResult::Inserted));
    /// assert_eq!((cache.stats().inserted, cache.stats().removed), (1, 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn put_back(&self, key: &[u8], value: &[u8], standing: Standing) -> Option<PutResult> {
        self.core.put_back(&self.record, key, value, standing)
    }

    /// As [`Table::remove_if`], for a caller that has looked at the value with [`Table::peek`]: counts as a hit.
    pub fn pop_if<'o>(&self, key: &[u8], old: impl Into<Former<'o>>) -> bool {
        self.core.pop_if(&self.record, key, &old.into())
    }

    /// Restarts a value's time: `ttl`, this once, or ([`Span::Table`]) the one that it was put with, or the table's. A
    /// value that was put with a moment ([`PutOptions::expires_at`]), or without a time to live, keeps the end that it
    /// has if no `ttl` is given. False when there is no value, or no room for the end of one that had none; it stays as
    /// it was then.
    pub fn touch(&self, key: &[u8], ttl: Span) -> bool {
        self.core.touch(&self.record, key, ttl)
    }

    /// The key's value, or what `factory` makes of it. However many threads ask for a key that is not there, one
    /// factory runs; the others wait for its value, or try themselves when it fails. No lock is held meanwhile.
    ///
    /// The value is returned even if there is no room to keep it. Nor is it kept if the key is put or removed, or the
    /// table cleared or dropped, while the factory runs: that is newer. A call that comes after that runs a factory of
    /// its own. So does one in a child that was forked while the factory ran: in the child no thread runs it.
    ///
    /// # Errors
    /// What the factory fails with, or [`Deadlock`] when factories wait for each other or for themselves.
    pub fn get_or_put<E: From<Deadlock>>(
        &self,
        key: &[u8],
        options: &PutOptions,
        factory: impl FnOnce() -> Result<Vec<u8>, E>,
    ) -> Result<Vec<u8>, E> {
        loop {
            if let Some(value) = with_read_buf(|buf| self.get(key, buf).map(<[u8]>::to_vec)) {
                return Ok(value);
            }
            match self.flights.begin(&self.flight_key(key), this_thread())? {
                Begin::Wait(waiting) if waiting.is_outdated() => waiting.supersede(),
                Begin::Wait(waiting) => {
                    if let Some(value) = waiting.wait() {
                        return Ok(value.to_vec());
                    }
                }
                Begin::Run(ticket) => {
                    let lease = Arc::new(self.lease(key));
                    ticket.made_under(&lease);
                    // It may have landed between the look and the begin.
                    if let Some(value) = with_read_buf(|buf| self.peek(key, buf).map(<[u8]>::to_vec)) {
                        return Ok(value);
                    }
                    let value = factory()?;
                    self.put_made(&lease, key, &value, options);
                    ticket.land(&value);
                    return Ok(value);
                }
            }
        }
    }

    /// The key under which flights, which are the whole cache's, know a key of this table.
    fn flight_key(&self, key: &[u8]) -> Vec<u8> {
        [&self.record.id.to_le_bytes(), key].concat()
    }

    /// Calls `take` with the keys, some at a time, beside running writers. Each key that is there from beginning to end
    /// is given at least once; twice only if others are removed meanwhile.
    pub fn for_each_key(&self, mut take: impl FnMut(&[u8])) {
        self.core.keys(&self.record, |key| {
            take(key);
            ControlFlow::Continue(())
        });
    }

    /// Removes all entries of the table. Returns how many. While no other table has entries, as
    /// [`Cache::clear`](crate::Cache::clear) does; otherwise one by one, in time that goes with the entries of all
    /// tables, or of this one if it has a limit of its own.
    pub fn clear(&self) -> u64 {
        self.core.clear(Some(&self.record))
    }

    /// Entries, those included whose time is over and whose memory was not yet given back.
    pub fn len(&self) -> u64 {
        self.record.counters.entries()
    }

    /// True when there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The table's figures.
    pub fn stats(&self) -> CacheStats {
        self.record.stats(self.core.limit())
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("name", &self.name()).field("stats", &self.stats()).finish_non_exhaustive()
    }
}
