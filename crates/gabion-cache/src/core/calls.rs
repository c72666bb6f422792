//! What callers ask of a table: read, put, remove, touch.

use std::time::Duration;

use gabion_pile::{ReadBuf, Value};

use super::core::Core;
use crate::entry::{Entry, Layout, Times, contents};
use crate::index::Cell;
use crate::key::{Image, KeyHash};
use crate::options::{PutOptions, PutResult, Span};
use crate::policy::Id;
use crate::read::Found;
use crate::record::Record;
use crate::shard::{ENDED, Lack, Locked, Look, Need, Progress, Reason, Request, Sought, Step, When};
use crate::stats::Figure;
use crate::time::{Due, NEVER};

/// What stood with a value that [`Table::pop_for_now`](crate::Table::pop_for_now) took: its end, idle time and
/// priority. To be handed to [`Table::popped`](crate::Table::popped) or [`Table::put_back`](crate::Table::put_back):
/// until then the pop is not counted.
#[derive(Debug)]
#[must_use = "a pop for now is counted by popped() or put_back()"]
pub struct Standing {
    pub(super) due: Option<Due>,
    pub(super) times: Times,
    pub(super) priority: i8,
}

impl Standing {
    pub(super) fn of(locked: &Locked<'_>, id: Id) -> Self {
        let entry = locked.entry(id);
        Self { due: entry.due(), times: entry.times(), priority: entry.about().priority }
    }
}

impl Core {
    /// Has a short look for a value. What there is left to do after it is told by [`Core::read_found`] and
    /// [`Core::read`].
    #[inline(always)]
    pub fn look(&self, image: &Image<'_>, buf: &mut ReadBuf) -> Look<'_> {
        let hash = self.hash(image);
        let (ground, shards) = (self.ground(), self.shards());
        shards[self.shard(hash)].look(ground, image, hash, buf)
    }

    /// Whether an entry with this end surely lives on, without more ado.
    #[inline(always)]
    pub fn lives_long(&self, due: Due) -> bool {
        due == Due::NONE || self.ground().lives_long(due)
    }

    /// Where the value begins that a look has found, after its time and its use were seen to.
    pub fn read_found(&self, record: &Record, key: &[u8], found: Found, cell: Cell<'_>) -> Option<usize> {
        let (ground, shards) = (self.ground(), self.shards());
        let hash = self.hash(&Image::new(record.id, key));
        let offset = shards[self.shard(hash)].found(ground, hash, found, cell, true, || self.now());
        record.counters.count(if offset.is_some() { Figure::Hits } else { Figure::Misses });
        offset
    }

    /// Reads a value into `buf`, however long the search: where it begins there.
    pub fn read(&self, record: &Record, key: &[u8], used: bool, buf: &mut ReadBuf) -> Option<usize> {
        buf.let_go();
        let (image, hash, shard) = self.sought_alive(record, key)?;
        let sought = Sought { ground: self.ground(), image: &image, hash };
        let offset = self.shards()[shard].read(sought, used, buf, || self.now());
        if used {
            record.counters.count(if offset.is_some() { Figure::Hits } else { Figure::Misses });
        }
        offset
    }

    /// When a value ends, and what must stand with it to know.
    #[inline(always)]
    fn times(&self, record: &Record, options: &PutOptions) -> (Option<Due>, Times) {
        let table = record.options;
        // A moment of its own takes the place of the table's time to live.
        let moment = options.expires_at.is_some();
        let span = if moment && options.ttl == Span::Table { Span::Never } else { options.ttl };
        let (ttl, idle) = (span.millis(table.ttl), options.idle.millis(table.idle));
        let restarts = match span {
            _ if moment => Some(NEVER).filter(|_| table.ttl.is_some()),
            // One that never comes is told from the mark of those that do not begin anew.
            Span::Of(_) => ttl.map(|ttl| ttl.min(NEVER - 1)),
            Span::Never => Some(NEVER).filter(|_| table.ttl.is_some() && idle.is_some()),
            Span::Table => None,
        };
        if idle.is_some() || moment {
            let (due, end) = self.ends_of(options, ttl, idle);
            return (due, Times { end, ttl: restarts });
        }
        let due = ttl.map(|ttl| Due::new(self.now().saturating_add(ttl), None));
        (due, Times { end: None, ttl: restarts })
    }

    /// When a value with an idle time or a moment of its own ends, and when it does however often it is used, if that
    /// must be known.
    #[inline(never)]
    fn ends_of(&self, options: &PutOptions, ttl: Option<u64>, idle: Option<u64>) -> (Option<Due>, Option<u64>) {
        let now = self.now();
        let wall = options.expires_at.map(|at| at.saturating_sub(self.clock().wall()).as_millis());
        let wall = wall.map(|left| now.saturating_add(u64::try_from(left).unwrap_or(NEVER)));
        let end = [ttl.map(|ttl| now.saturating_add(ttl)), wall].into_iter().flatten().min();
        let deadline = [end, idle.map(|idle| now.saturating_add(idle))].into_iter().flatten().min();
        (deadline.map(|deadline| Due::new(deadline, idle)), end.filter(|_| idle.is_some()))
    }

    /// Stores a value, if `when` says so; otherwise `None`.
    pub fn put(
        &self,
        record: &Record,
        key: &[u8],
        value: Value<'_>,
        options: &PutOptions,
        when: When,
    ) -> Option<PutResult> {
        if let Some(whole) = value.joined() {
            return self.put(record, key, Value::Whole(&whole), options, when);
        }
        let Some((image, hash, _)) = self.sought(record, key) else {
            record.counters.count(Figure::Rejected);
            return Some(PutResult::Rejected);
        };
        self.carry_out(&self.request(record, &image, hash, value, options, when))
    }

    #[inline(always)]
    pub fn request<'a>(
        &'a self,
        record: &'a Record,
        image: &'a Image<'a>,
        hash: KeyHash,
        value: Value<'a>,
        options: &PutOptions,
        when: When,
    ) -> Request<'a> {
        let (due, times) = self.times(record, options);
        let layout = Layout::new(image, value.len(), due.is_some(), times);
        let (clock, priority) = (self.clock(), options.priority);
        Request { record, image, hash, value, layout, due, times, priority, when, rest: None, clock }
    }

    /// Takes a lease of a key for a caller that will make its value, with a number to show for it. That of a dropped
    /// table has ended.
    pub fn lease(&self, record: &Record, key: &[u8]) -> (KeyHash, u64) {
        // A key that is too long is nobody's.
        let Some((_, hash, shard)) = self.sought(record, key) else { return (KeyHash(0), ENDED) };
        let mut locked = self.lock_only(shard);
        // Asked under the lock: a thread that drops the table ends its leases after that.
        let number = if record.is_dropped() { ENDED } else { locked.state.leases.take(hash.0, record.id) };
        (hash, number)
    }

    /// Whether the key was left alone since the lease was taken.
    pub fn holds(&self, (hash, number): (KeyHash, u64)) -> bool {
        self.lock_only(self.shard(hash)).state.leases.holds(hash.0, number)
    }

    pub fn end_lease(&self, (hash, number): (KeyHash, u64)) {
        self.lock_only(self.shard(hash)).state.leases.end(hash.0, number);
    }

    /// Whether a key has a value. Copies nothing.
    pub fn contains(&self, record: &Record, key: &[u8]) -> bool {
        let sought = self.sought_alive(record, key);
        let Some((image, hash, shard)) = sought else { return false };
        self.shards()[shard].contains(Sought { ground: self.ground(), image: &image, hash }, || self.now())
    }

    /// How long a key's value lives on if nobody uses it; [`Duration::MAX`] when it has no end.
    pub fn expires_in(&self, record: &Record, key: &[u8]) -> Option<Duration> {
        let (image, hash, shard) = self.sought_alive(record, key)?;
        let due = self.shards()[shard].end_of(Sought { ground: self.ground(), image: &image, hash })?;
        if due.deadline() == NEVER {
            return Some(Duration::MAX);
        }
        let left = due.deadline().saturating_sub(self.now());
        (left > 0).then(|| Duration::from_millis(left))
    }

    /// Bytes that a key's entry is charged.
    pub fn size_of(&self, record: &Record, key: &[u8]) -> Option<u64> {
        let (image, hash, shard) = self.sought_alive(record, key)?;
        let locked = self.lock_only(shard);
        let id = locked.find(&image, hash)?;
        (!self.is_over(&locked, id)).then(|| locked.weight(id))
    }

    /// Removes a key's value; one that is `leased` by this number only while that holds.
    pub fn remove(&self, record: &Record, key: &[u8], leased: Option<u64>) -> bool {
        let sought = self.sought_alive(record, key);
        let Some((image, hash, shard)) = sought else { return false };
        let mut locked = self.lock(shard);
        if leased.is_some_and(|number| !locked.state.leases.holds(hash.0, number)) {
            self.unlock(locked);
            return false;
        }
        locked.state.leases.end_key(hash.0);
        let removed = self.remove_locked(&mut locked, &image, hash) == Some(true);
        self.unlock(locked);
        if removed {
            record.counters.count(Figure::Removed);
        }
        removed
    }

    /// Removes an entry and leaves its value in `buf`: where it begins, and what stood with it. A miss is counted; what
    /// was found is left to [`Core::count_pop`].
    pub fn pop(&self, record: &Record, key: &[u8], buf: &mut ReadBuf) -> Option<(usize, Standing)> {
        buf.let_go();
        let (image, hash, shard) = self.sought_alive(record, key)?;
        let mut locked = self.lock(shard);
        locked.state.leases.end_key(hash.0);
        let opened =
            locked.shard.read_under_lock(&locked.state, Sought { ground: self.ground(), image: &image, hash }, buf);
        let opened = opened.map(|(cell, found)| (cell.place().to_bits(), found.offset));
        let found = opened.and_then(|(id, offset)| {
            let (over, standing) = (self.is_over(&locked, id), Standing::of(&locked, id));
            locked.remove_entry(id, over.then_some(Reason::Expired));
            (!over).then_some((offset, standing))
        });
        self.unlock(locked);
        if found.is_none() {
            record.counters.count(Figure::Misses);
        }
        found
    }

    /// Counts a pop that has found something, which is gone for good.
    pub fn count_pop(record: &Record) {
        record.counters.add_each([(Figure::Hits, 1), (Figure::Removed, 1)]);
    }

    /// Restarts a value's time: `ttl`, this once, or the one it was put with, or its table's; one that was put with a
    /// moment, or without a time to live, keeps the end that it has if no `ttl` is given. False when there is no such
    /// value, or (where it had no end) no room to note one: then it stays as it was.
    pub fn touch(&self, record: &Record, key: &[u8], ttl: Span) -> bool {
        let Some((image, hash, shard)) = self.sought(record, key) else { return false };
        self.retry(self.lock(shard), shard, |locked, effort| {
            self.introduce(locked, record);
            let Some(id) = locked.find(&image, hash).filter(|_| !record.is_dropped()) else { return Ok(false) };
            if self.is_over(locked, id) {
                locked.remove_entry(id, Some(Reason::Expired));
                return Ok(false);
            }
            if self.restart(locked, record, id, ttl) {
                return Ok(true);
            }
            // Its times take another place than before: that is a put's work.
            let entry = locked.entry(id);
            // What is longer than a slot stays where it lies.
            let value = match entry.rest() {
                Some(_) => Some(Vec::new()),
                None => contents(self.pile(), id, &mut ReadBuf::new()).map(|(_, value)| value),
            };
            let Some(value) = value else { return Ok(false) };
            let request = self.touched(record, (&image, hash), entry, &value, ttl);
            match self.attempt(locked, &request, &mut Progress::default(), effort.outlook) {
                Step::Lacks(Lack::Room) => Ok(false),
                Step::Lacks(lack) => Err((Need::new(record, &image, &request), lack)),
                step => Ok(step.told().is_some()),
            }
        })
    }

    /// A put of an entry with the end that a touch gives it: `value` is its own, unless that lies in a second object.
    fn touched<'a>(
        &'a self,
        record: &'a Record,
        (image, hash): (&'a Image<'a>, KeyHash),
        entry: Entry<'_>,
        value: &'a [u8],
        ttl: Span,
    ) -> Request<'a> {
        let idle = entry.due().and_then(Due::idle);
        let idle = idle.map_or(Span::Never, |idle| Span::Of(Duration::from_millis(idle)));
        let options = PutOptions { ttl, idle, expires_at: None, priority: entry.about().priority };
        let request = self.request(record, image, hash, value.into(), &options, When::Touched);
        // What a touch is given counts once: the next one goes by what the value was put with. Without an end in a
        // table that has a time to live, that was another one.
        let endless = entry.due().is_none() && record.options.ttl.is_some();
        let times = Times { ttl: if endless { Some(NEVER) } else { entry.times().ttl }, ..request.times };
        let rest = entry.rest();
        let inline = entry.begins_with(image).unwrap_or(image.len());
        let layout = match rest {
            Some((_, weight)) => Layout::headed(inline, weight, times),
            None => Layout::new(image, value.len(), true, times),
        };
        Request { layout, times, rest, ..request }
    }

    /// Restarts an entry's time where its payload has a place for it; false where it has none.
    fn restart(&self, locked: &mut Locked<'_>, record: &Record, id: Id, ttl: Span) -> bool {
        let (now, entry) = (self.now(), locked.entry(id));
        // What never ends has no place for an end.
        let Some(due) = entry.due() else { return ttl == Span::Table || ttl == Span::Never };
        let times = entry.times();
        let restarted = match times.ttl.filter(|_| ttl == Span::Table) {
            Some(NEVER) => None,
            Some(own) => Some(own),
            None => ttl.millis(record.options.ttl),
        };
        let restarted = restarted.map(|ttl| now.saturating_add(ttl));
        // Put with an end by the time of day: that stays.
        let old_end = if due.idle().is_some() { times.end } else { Some(due.deadline()) };
        let end = if ttl == Span::Never { None } else { restarted.or(old_end) };
        if times.end.is_some() {
            entry.set_end(end.unwrap_or(NEVER));
        } else if due.idle().is_some() && restarted.is_some() {
            return false;
        }
        let idle = due.idle().map(|idle| now.saturating_add(idle));
        let deadline = [end, idle].into_iter().flatten().min().unwrap_or(NEVER);
        locked.set_due(id, due.until(deadline));
        true
    }
}
