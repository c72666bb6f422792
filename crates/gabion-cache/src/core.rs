//! The cache behind all its tables: shards, limits, time.

use std::cell::Cell;
use std::hash::RandomState;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, PoisonError, RwLock};

use gabion_blocks::{BlockError, Budget};
use gabion_pile::{Pile, PileOptions, ReadBuf};

use crate::budget::{INDEX_BYTES, Ledger};
use crate::change::{Locked, Request, Step};
use crate::clock::{Clock, SystemClock};
use crate::hash::KeyHash;
use crate::key::{self, Image, Payload, Times};
use crate::options::{CacheOptions, PutOptions, PutResult, Span, TableOptions};
use crate::pages::Pages;
use crate::policy::Mode;
use crate::record::Record;
use crate::shard::{Gone, Ground, Reason, Seen, Shard};
use crate::stats::{CacheStats, count};
use crate::wheel::{Due, NEVER};

/// An entry that left without being asked to.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Departure<'a> {
    /// The name of its table.
    pub table: &'a str,
    /// Its key.
    pub key: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
    /// Why it left.
    pub reason: Reason,
}

/// Whoever wants to hear of entries that leave.
pub type Listener = Arc<dyn Fn(&Departure<'_>) + Send + Sync>;

/// Caches below this limit may take this much memory: each size class of the pile fills pages of its own.
const LEAST_MEMORY: u64 = 8 << 20;
/// The least that an entry takes.
const LEAST_ENTRY: u64 = 16 + INDEX_BYTES;
/// Bytes of a cache for each shard, at least.
const SHARD_BYTES: u64 = 1 << 20;
const MOST_SHARDS: usize = 256;
/// Payloads longer than this do not stay with the thread.
const KEEP: usize = 1 << 20;
/// Entries that an operation looks at for others' time being over.
const STEPS: usize = 16;
/// Entries that a walk over all looks at before it lets the lock go for a moment.
const STRETCH: u32 = 256;

pub(crate) struct Core {
    ground: Ground,
    shards: Box<[Shard]>,
    hasher: RandomState,
    clock: Arc<dyn Clock>,
    records: RwLock<Vec<Arc<Record>>>,
    listener: RwLock<Option<Listener>>,
    heard: AtomicBool,
    /// Where the next eviction looks that its own shard cannot do.
    next: AtomicUsize,
}

/// Bytes that a limit's eviction frees beyond need; the exact modes and small caches free none.
fn slack(mode: Mode, limit: u64) -> u64 {
    if mode == Mode::Sketch && limit >= 16 << 20 { (limit / 4096).min(1 << 18) } else { 0 }
}

/// Calls `work` with an empty buffer that the thread reuses.
fn with_scratch<R>(work: impl FnOnce(&mut Vec<u8>) -> R) -> R {
    thread_local!(static SCRATCH: Cell<Option<Vec<u8>>> = const { Cell::new(None) });
    // A listener that puts something itself, on the same thread, finds the place empty.
    let mut buffer = SCRATCH.try_with(Cell::take).ok().flatten().unwrap_or_default();
    buffer.clear();
    let result = work(&mut buffer);
    if buffer.capacity() <= KEEP {
        let _ = SCRATCH.try_with(|place| place.set(Some(buffer)));
    }
    result
}

impl Core {
    pub fn new(options: &CacheOptions) -> Result<Self, BlockError> {
        let limit = options.max_bytes;
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let fitting = usize::try_from(limit / SHARD_BYTES).unwrap_or(usize::MAX).max(1);
        let shards = options.shards.unwrap_or_else(|| (4 * processors).next_power_of_two().min(1 << fitting.ilog2()));
        let shards = shards.clamp(1, MOST_SHARDS).next_power_of_two();
        let memory = Arc::new(Budget::new(limit.max(LEAST_MEMORY)));
        let pile_options = PileOptions { shards: options.shards, ..PileOptions::default() };
        let pile = Pile::with_budget(pile_options, Arc::clone(&memory))?;
        let pages = Arc::new(Pages::new(Arc::clone(&memory))?);
        // Hashes spread unevenly, so a shard has room for twice its share.
        let most_entries = 2 * (limit.max(LEAST_MEMORY) / LEAST_ENTRY) / shards as u64 + 4096;
        let ledger = Ledger::new(limit, slack(options.mode, limit));
        let ground = Ground { pile, ledger, memory, mode: options.mode, shards: shards as u64 };
        Ok(Self {
            ground,
            shards: (0..shards).map(|_| Shard::new(&pages, most_entries)).collect(),
            hasher: RandomState::new(),
            clock: options.clock.clone().unwrap_or_else(|| Arc::new(SystemClock::default())),
            records: RwLock::default(),
            listener: RwLock::default(),
            heard: AtomicBool::new(false),
            next: AtomicUsize::new(0),
        })
    }

    /// Milliseconds by the cache's clock.
    #[inline]
    pub fn now(&self) -> u64 {
        u64::try_from(self.clock.now().as_millis()).unwrap_or(NEVER)
    }

    pub fn limit(&self) -> u64 {
        self.ground.ledger.used.limit()
    }

    /// The record of the table of a name, made when there is none, or when the one that was is dropped.
    pub fn record(&self, name: &str, options: TableOptions) -> Option<Arc<Record>> {
        let mut records = self.records.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(record) = records.iter().find(|record| record.name == name && !record.is_dropped()) {
            return Some(Arc::clone(record));
        }
        let id = u16::try_from(records.len()).ok()?;
        let record = Arc::new(Record::new(id, name, options, |limit| slack(self.ground.mode, limit)));
        records.push(Arc::clone(&record));
        Some(record)
    }

    /// The records of all tables that there are and were.
    pub fn records(&self) -> Vec<Arc<Record>> {
        self.records.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn listen(&self, listener: Option<Listener>) {
        let mut place = self.listener.write().unwrap_or_else(PoisonError::into_inner);
        // Relaxed: an eviction that runs meanwhile may or may not be heard.
        self.heard.store(listener.is_some(), Relaxed);
        *place = listener;
    }

    fn hash(&self, image: &Image) -> KeyHash {
        KeyHash::new(&self.hasher, image.bytes())
    }

    fn shard(&self, hash: KeyHash) -> usize {
        hash.shard(self.shards.len())
    }

    fn lock_only(&self, shard: usize) -> Locked<'_> {
        let shard = &self.shards[shard];
        let (state, heard) = (shard.lock(), self.heard.load(Relaxed));
        Locked { shard, ground: &self.ground, state, heard }
    }

    /// Locks a shard, and does a little of what its time has come for.
    fn lock(&self, shard: usize) -> Locked<'_> {
        let mut locked = self.lock_only(shard);
        if locked.state.wheel.entries > 0 {
            locked.expire(self.now(), STEPS);
        }
        locked
    }

    /// Makes sure that the shard knows a table's record.
    fn introduce(&self, locked: &mut Locked<'_>, record: &Record) {
        if locked.state.records.len() <= usize::from(record.id) {
            locked.state.records = self.records();
        }
    }

    /// Lets a shard go and tells of what left it.
    fn unlock(&self, mut locked: Locked<'_>) {
        let gone = std::mem::take(&mut locked.state.gone);
        drop(locked);
        if !gone.is_empty() {
            self.tell(&gone);
        }
    }

    #[cold]
    fn tell(&self, gone: &[Gone]) {
        let listener = self.listener.read().unwrap_or_else(PoisonError::into_inner).clone();
        let (Some(listener), records) = (listener, self.records()) else { return };
        for Gone { payload, reason } in gone {
            let Some(Payload { table, key, value, .. }) = key::parse(payload) else { continue };
            listener(&Departure { table: &records[usize::from(table)].name, key, value, reason: *reason });
        }
    }

    /// Reads a value into `buf`: where it begins in the payload.
    #[inline]
    pub fn read(&self, record: &Record, key: &[u8], used: bool, buf: &mut ReadBuf) -> Option<usize> {
        let image = Image::new(record.id, key);
        let hash = self.hash(&image);
        let seen = self.shards[self.shard(hash)].read(&self.ground, &image, hash, used, buf, &|| self.now());
        if used {
            record.counters.asked(seen != Seen::Nothing);
        }
        match seen {
            Seen::Value(offset) => Some(offset),
            Seen::Nothing => None,
        }
    }

    /// When a value ends, and what must stand with it to know.
    fn times(&self, record: &Record, options: &PutOptions) -> (Option<Due>, Times, u64) {
        let table = record.options;
        let (ttl, idle) = (options.ttl.millis(table.ttl), options.idle.millis(table.idle));
        if ttl.is_none() && idle.is_none() && options.expires_at.is_none() {
            return (None, Times::default(), 0);
        }
        let now = self.now();
        let wall = options.expires_at.map(|at| at.saturating_sub(self.clock.wall()).as_millis());
        let wall = wall.map(|left| now.saturating_add(u64::try_from(left).unwrap_or(NEVER)));
        let end = [ttl.map(|ttl| now.saturating_add(ttl)), wall].into_iter().flatten().min();
        let deadline = [end, idle.map(|idle| now.saturating_add(idle))].into_iter().flatten().min();
        let own_ttl = if matches!(options.ttl, Span::Of(_)) { ttl } else { None };
        let due = deadline.map(|deadline| Due::new(deadline, idle));
        (due, Times { end: end.filter(|_| idle.is_some()), ttl: own_ttl }, now)
    }

    /// Stores a value; `None` when the key is there and the put is for absent keys only.
    pub fn put(
        &self,
        record: &Record,
        key: &[u8],
        value: &[u8],
        options: &PutOptions,
        absent: bool,
    ) -> Option<PutResult> {
        let image = Image::new(record.id, key);
        let (due, times, now) = self.times(record, options);
        let (hash, priority) = (self.hash(&image), options.priority);
        let result = with_scratch(|payload| {
            key::write(&image, times, value, payload);
            self.store(&Request { record, image: &image, hash, payload, due, priority, absent, now })
        })?;
        let counters = &record.counters;
        count(match result {
            PutResult::Inserted => &counters.inserted,
            PutResult::Replaced => &counters.replaced,
            PutResult::Rejected => &counters.rejected,
        });
        Some(result)
    }

    fn store(&self, request: &Request<'_>) -> Option<PutResult> {
        let shard = self.shard(request.hash);
        loop {
            let mut locked = self.lock(shard);
            self.introduce(&mut locked, request.record);
            let step = if request.record.is_dropped() { Step::Refused } else { locked.put(request) };
            let (result, elsewhere) = match step {
                Step::Present => (None, None),
                Step::Inserted => (Some(PutResult::Inserted), None),
                Step::Replaced => (Some(PutResult::Replaced), None),
                Step::Elsewhere { priority, table_only } => (None, Some((priority, table_only))),
                Step::Refused => {
                    // Its old value is not what the caller wants to be found. It also leaves room for another try.
                    let tried_with_it = self.remove_locked(&mut locked, request.image, request.hash).is_some();
                    if tried_with_it && !request.record.is_dropped() {
                        self.unlock(locked);
                        continue;
                    }
                    (Some(PutResult::Rejected), None)
                }
            };
            self.unlock(locked);
            let Some((priority, table_only)) = elsewhere else { return result };
            let only = table_only.then_some(request.record.id);
            if !self.evict_elsewhere(shard, priority, only) {
                // What is charged there is just being put, or just gone.
                std::thread::yield_now();
            }
        }
    }

    /// Evicts entries of a priority in another shard.
    fn evict_elsewhere(&self, own: usize, priority: i8, only: Option<u16>) -> bool {
        // Relaxed: any shard is as good as another.
        let start = self.next.fetch_add(1, Relaxed);
        let others = (0..self.shards.len()).map(|step| (start + step) % self.shards.len());
        others.filter(|&other| other != own).any(|other| {
            let mut locked = self.lock(other);
            let evicted = locked.evict(priority, only);
            self.unlock(locked);
            evicted
        })
    }

    /// Removes a key's entry; `None` when there is none, `Some(false)` when its time was over.
    fn remove_locked(&self, locked: &mut Locked<'_>, image: &Image, hash: KeyHash) -> Option<bool> {
        let mut buf = std::mem::take(&mut locked.state.buf);
        let id = locked.shard.find(&mut locked.state, locked.ground, image, hash, &mut buf);
        buf.let_go();
        locked.state.buf = buf;
        let id = id?;
        let over = locked.shard.entries.at(id).about().timed && locked.is_over(id, self.now());
        locked.remove_entry(id, over.then_some(Reason::Expired));
        Some(!over)
    }

    pub fn remove(&self, record: &Record, key: &[u8]) -> bool {
        let image = Image::new(record.id, key);
        let hash = self.hash(&image);
        let mut locked = self.lock(self.shard(hash));
        let removed = self.remove_locked(&mut locked, &image, hash) == Some(true);
        self.unlock(locked);
        if removed {
            count(&record.counters.removed);
        }
        removed
    }

    /// Removes an entry and leaves its payload in `buf`: where its value begins.
    pub fn pop(&self, record: &Record, key: &[u8], buf: &mut ReadBuf) -> Option<usize> {
        let image = Image::new(record.id, key);
        let hash = self.hash(&image);
        let mut locked = self.lock(self.shard(hash));
        let found = locked.shard.find(&mut locked.state, &self.ground, &image, hash, buf).and_then(|id| {
            let over = locked.shard.entries.at(id).about().timed && locked.is_over(id, self.now());
            locked.remove_entry(id, over.then_some(Reason::Expired));
            if over { None } else { Some(key::value_of(&image, buf.payload())?.1.len()) }
        });
        self.unlock(locked);
        record.counters.asked(found.is_some());
        let length = found?;
        count(&record.counters.removed);
        Some(buf.payload().len() - length)
    }

    /// Restarts a value's time: `ttl`, or the one it was put with, or its table's. False when there is no such value.
    pub fn touch(&self, record: &Record, key: &[u8], ttl: Span) -> bool {
        let image = Image::new(record.id, key);
        let hash = self.hash(&image);
        let mut locked = self.lock(self.shard(hash));
        let mut buf = ReadBuf::new();
        let touched = locked.shard.find(&mut locked.state, &self.ground, &image, hash, &mut buf).is_some_and(|id| {
            let (times, value) = key::value_of(&image, buf.payload()).expect("it was found by its image");
            self.rejuvenate(&mut locked, record, &image, id, ttl, times, value)
        });
        self.unlock(locked);
        touched
    }

    #[allow(clippy::too_many_arguments)]
    fn rejuvenate(
        &self,
        locked: &mut Locked<'_>,
        record: &Record,
        image: &Image,
        id: u32,
        ttl: Span,
        times: Times,
        value: &[u8],
    ) -> bool {
        let (now, entry) = (self.now(), locked.shard.entries.at(id));
        if locked.is_over(id, now) {
            locked.remove_entry(id, Some(Reason::Expired));
            return false;
        }
        if !entry.about().timed {
            // It never ends. Giving it an end is a put's work, because that weighs more.
            return ttl == Span::Table || ttl == Span::Never || self.retime(locked, record, image, id, ttl, value);
        }
        let due = locked.shard.dues.get(id);
        let own = times.ttl.map_or(Span::Table, |ttl| Span::Of(std::time::Duration::from_millis(ttl)));
        let span = if ttl == Span::Table { own } else { ttl };
        let restarted = span.millis(record.options.ttl).map(|ttl| now.saturating_add(ttl));
        // Put with an end by the time of day only: that stays.
        let old_end = if due.idle().is_some() { times.end } else { Some(due.deadline()) };
        let end = if ttl == Span::Never { None } else { restarted.or(old_end) };
        if times.end.is_some() && end != times.end {
            let times = Times { end: Some(end.unwrap_or(NEVER)), ..times };
            let mut payload = Vec::new();
            key::write(image, times, value, &mut payload);
            if self.ground.pile.replace(entry.pointer(), &payload).is_err() {
                return false;
            }
        } else if due.idle().is_some() && times.end.is_none() && restarted.is_some() {
            return self.retime(locked, record, image, id, ttl, value);
        }
        let idle = due.idle().map(|idle| now.saturating_add(idle));
        let deadline = [end, idle].into_iter().flatten().min().unwrap_or(NEVER);
        locked.state.wheel.take(&locked.shard.dues, id);
        locked.shard.dues.set(id, due.until(deadline));
        locked.state.wheel.hang(&locked.shard.dues, id);
        true
    }

    /// Puts a value anew because its times take another place than before.
    fn retime(
        &self,
        locked: &mut Locked<'_>,
        record: &Record,
        image: &Image,
        id: u32,
        ttl: Span,
        value: &[u8],
    ) -> bool {
        let entry = locked.shard.entries.at(id);
        let about = entry.about();
        let idle = locked.shard.dues.get(id).idle().filter(|_| about.timed);
        let idle = idle.map_or(Span::Never, |idle| Span::Of(std::time::Duration::from_millis(idle)));
        let options = PutOptions { ttl, idle, expires_at: None, priority: about.priority };
        let (due, times, now) = self.times(record, &options);
        let mut payload = Vec::new();
        key::write(image, times, value, &mut payload);
        let (hash, priority) = (self.hash(image), about.priority);
        let request = Request { record, image, hash, payload: &payload, due, priority, absent: false, now };
        matches!(locked.put(&request), Step::Replaced | Step::Inserted)
    }

    /// Removes the entries of a table, or all. Returns how many.
    pub fn clear(&self, record: Option<&Record>) -> u64 {
        let mut removed = 0;
        for shard in 0..self.shards.len() {
            // From the end down, because entries move only down, into the places of those that went.
            let mut next = u32::MAX;
            while next > 0 {
                let mut locked = self.lock(shard);
                next = next.min(locked.state.ids.end);
                for id in (next.saturating_sub(STRETCH)..next).rev() {
                    let Some(table) = locked.table_of(id) else { continue };
                    if record.is_none_or(|record| record.id == table) {
                        let owner = locked.state.record(table).clone();
                        locked.remove_entry(id, None);
                        count(&owner.counters.removed);
                        removed += 1;
                    }
                }
                next = next.saturating_sub(STRETCH);
                self.unlock(locked);
            }
        }
        removed
    }

    /// Removes all entries whose time is over. Returns how many.
    pub fn expire(&self) -> u64 {
        let now = self.now();
        let each = |shard: usize| {
            let mut expired = 0;
            loop {
                let mut locked = self.lock_only(shard);
                let (went, more) = locked.expire(now, 4096);
                self.unlock(locked);
                expired += went;
                if !more {
                    return expired;
                }
            }
        };
        (0..self.shards.len()).map(each).sum()
    }

    /// Calls `take` with each key of a table, some at a time, beside running writers. Each key that is there from begin
    /// to end is given, and given twice only when others are removed meanwhile.
    pub fn keys(&self, record: &Record, mut take: impl FnMut(&[u8])) {
        let mut buf = ReadBuf::new();
        for shard in 0..self.shards.len() {
            let mut next = u32::MAX;
            while next > 0 {
                let locked = self.lock(shard);
                next = next.min(locked.state.ids.end);
                let now = if locked.state.wheel.entries > 0 { self.now() } else { 0 };
                let mut keys: Vec<Vec<u8>> = Vec::new();
                for id in (next.saturating_sub(STRETCH)..next).rev() {
                    if locked.table_of(id) == Some(record.id)
                        && !locked.is_over(id, now)
                        && let Ok(payload) = self.ground.pile.read(locked.shard.entries.at(id).pointer(), &mut buf)
                        && let Some(payload) = key::parse(payload)
                    {
                        keys.push(payload.key.to_vec());
                    }
                }
                next = next.saturating_sub(STRETCH);
                self.unlock(locked);
                for key in &keys {
                    take(key);
                }
            }
        }
    }

    /// Whether any entry has an end.
    pub fn has_ends(&self) -> bool {
        self.shards.iter().any(|shard| shard.lock().wheel.entries > 0)
    }

    pub fn stats(&self) -> CacheStats {
        let mut stats = CacheStats::default();
        for record in self.records() {
            stats += record.stats(self.limit());
        }
        stats.bytes = self.ground.ledger.used.used();
        stats.max_bytes = self.limit();
        stats.reserved_bytes = self.ground.memory.used();
        stats.index_bytes = self.shards.iter().map(Shard::index_bytes).sum();
        stats
    }

    pub fn parts(&self) -> (&Ground, &[Shard]) {
        (&self.ground, &self.shards)
    }
}
