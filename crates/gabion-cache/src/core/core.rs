//! The cache behind all its tables: shards, limits, time.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

use gabion_blocks::{BlockError, Budget, limits};
use gabion_pile::{IndexedPile, Pile, PileOptions};

use crate::budget::{INDEX_BYTES, Ledger, credit_of, memory_of};
use crate::key::{Image, KeyHash, KeyHasher, LONGEST_KEY};
use crate::options::{CacheOptions, TableOptions};
use crate::record::{DEFAULT, Handle, Record, Records};
use crate::shard::{Aligned, Gone, Ground, Locked, Purposes, Reason, Shard};
use crate::stats::CacheStats;
use crate::time::{Clock, NEVER, SystemClock, now, roughly};

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

/// What hears of entries that leave.
pub type Listener = Arc<dyn Fn(&Departure<'_>) + Send + Sync>;

/// Memory for each shard of the pile, at least: twice what a page for each size class takes.
const PILE_SHARE: u64 = 8 << 20;
/// Memory for each shard, at least: of that, its index takes an eighth.
const LEAST_SHARE: u64 = 64 << 10;
/// The least that an entry takes.
const LEAST_ENTRY: u64 = 32 + INDEX_BYTES;
/// Bytes of a cache for each shard, at least.
const SHARD_BYTES: u64 = 1 << 20;
const MOST_SHARDS: usize = 256;
/// Entries that an operation looks at for others' time being over.
const STEPS: usize = 16;

pub(crate) struct Core {
    ground: Ground,
    /// The limit that it was made with: shards and index are made for no more.
    pub made_for: u64,
    shards: Box<[Shard]>,
    hasher: KeyHasher,
    records: RwLock<Records>,
    /// The figures of dropped tables whose numbers are others' now.
    past: Mutex<CacheStats>,
    listener: RwLock<Option<Listener>>,
    heard: AtomicBool,
    /// Where the next eviction looks that its own shard cannot do.
    pub next: AtomicUsize,
}

/// Bytes that the index has room for the entries of: no more than the machine has, whatever the limit.
fn indexed(room: u64) -> u64 {
    // Where the limit is no more than any machine has, nobody needs to be asked.
    const ANY_MACHINE: u64 = 1 << 30;
    if room <= ANY_MACHINE { room } else { room.min(limits::read().physical.max(ANY_MACHINE)) }
}

impl Core {
    pub fn new(options: &CacheOptions) -> Result<Self, BlockError> {
        Self::with_room(options, memory_of(options.max_bytes))
    }

    /// A cache that may take `room` bytes of memory.
    pub fn with_room(options: &CacheOptions, room: u64) -> Result<Self, BlockError> {
        let limit = options.max_bytes;
        let fitting = usize::try_from(limit / SHARD_BYTES).unwrap_or(usize::MAX).max(1);
        // Processors are counted only where it matters: the system answers by way of files, which takes longer than all
        // the rest.
        let most = || (4 * limits::processors()).next_power_of_two().min(1 << fitting.ilog2());
        let shards = options.shards.unwrap_or_else(|| if options.policy.is_exact() { 1 } else { most() });
        let most = usize::try_from(room / LEAST_SHARE).map_or(MOST_SHARDS, |most| most.min(MOST_SHARDS));
        let shards = shards.clamp(1, 1 << most.ilog2()).next_power_of_two();
        let memory = Arc::new(Budget::new(room));
        // Each shard of the pile fills pages of its own.
        let most = usize::try_from(room / PILE_SHARE).map_or(MOST_SHARDS, |most| most.clamp(1, MOST_SHARDS));
        let pile_shards = options.shards.unwrap_or_else(limits::processors).min(1 << most.ilog2());
        let pile_options = PileOptions { shards: Some(pile_shards), ..PileOptions::default() };
        let pile = IndexedPile::from(Pile::with_budget(pile_options, Arc::clone(&memory))?);
        let pages = Purposes::new(&memory, options.policy)?;
        // Hashes spread a little unevenly: by less than this, whatever the share.
        let share = indexed(room) / LEAST_ENTRY / shards as u64;
        let most_entries = share + share / 8 + 4096;
        let shards: Box<[Shard]> = (0..shards).map(|_| Shard::new(&pages, most_entries)).collect::<Result<_, _>>()?;
        let fixed = shards.iter().map(Shard::fixed_bytes).sum();
        memory.take(fixed)?;
        let ledger = Ledger::new(limit);
        let count = shards.len() as u64;
        let most_credit = AtomicU64::new(credit_of(limit, count));
        let clock = options.clock.clone().unwrap_or_else(|| Arc::new(SystemClock::default()));
        let (policy, freed) = (options.policy, Aligned(AtomicU64::new(0)));
        let ground = Ground { pile, ledger, memory, policy, shards: count, fixed, freed, most_credit, clock };
        Ok(Self {
            ground,
            made_for: limit,
            shards,
            hasher: KeyHasher::new(),
            records: RwLock::default(),
            past: Mutex::default(),
            listener: RwLock::default(),
            heard: AtomicBool::new(false),
            next: AtomicUsize::new(0),
        })
    }

    /// Milliseconds by the cache's clock.
    #[inline]
    pub fn now(&self) -> u64 {
        now(&*self.ground.clock).min(NEVER)
    }

    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.ground.clock
    }

    pub fn pile(&self) -> &IndexedPile {
        &self.ground.pile
    }

    pub fn ledger(&self) -> &Ledger {
        &self.ground.ledger
    }

    pub fn shard_count(&self) -> usize {
        self.shards.len()
    }

    /// The most bytes that the entries may take.
    pub fn limit(&self) -> u64 {
        self.ground.ledger.used.limit()
    }

    /// The table of a name, made when there is none, or when the one that was is dropped.
    pub fn table(&self, name: &str, options: TableOptions) -> Option<Handle> {
        let mut records = self.records.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(record) = records.named(name) {
            return Some(Handle::new(record));
        }
        let free = records.take_free();
        let id = free.or_else(|| u16::try_from(records.all.len()).ok())?;
        let record = Arc::new(Record::new(id, name, options));
        let handle = Handle::new(&record);
        records.names.insert(name.to_owned(), id);
        match free {
            Some(id) => {
                let before = std::mem::replace(&mut records.all[usize::from(id)], record);
                *self.past.lock().unwrap_or_else(PoisonError::into_inner) += before.counters.read();
            }
            None => records.all.push(record),
        }
        Some(handle)
    }

    /// The table of a name, if there is one; not the default one.
    pub fn named(&self, name: &str) -> Option<Handle> {
        // The handle is made while the list is locked: see `Record::is_free`.
        self.read_records().named(name).filter(|record| record.id != DEFAULT).map(Handle::new)
    }

    /// Drops a table and removes its entries; true for the first who does.
    pub fn drop_table(&self, record: &Record) -> bool {
        let dropped = record.drop_it();
        if dropped {
            self.clear(Some(record));
            record.mark_cleared();
            let mut records = self.records.write().unwrap_or_else(PoisonError::into_inner);
            // Another of the name may have been made meanwhile.
            if records.names.get(&record.name) == Some(&record.id) {
                records.names.remove(&record.name);
            }
            records.dropped.push_back(record.id);
        }
        dropped
    }

    /// The tables that there are, the default one first.
    pub fn tables(&self) -> Vec<Handle> {
        // Handles are made while the list is locked: see `Record::is_free`.
        self.read_records().all.iter().filter(|record| !record.is_dropped()).map(Handle::new).collect()
    }

    /// The records of all tables that there are, and of dropped ones whose numbers are nobody else's yet.
    pub fn records(&self) -> Vec<Arc<Record>> {
        self.read_records().all.clone()
    }

    /// Their list, locked. A thread that holds it takes no shard's lock.
    pub fn read_records(&self) -> RwLockReadGuard<'_, Records> {
        self.records.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn listen(&self, listener: Option<Listener>) {
        let mut place = self.listener.write().unwrap_or_else(PoisonError::into_inner);
        // Relaxed: an eviction that runs meanwhile may or may not be heard.
        self.heard.store(listener.is_some(), Relaxed);
        *place = listener;
    }

    #[inline]
    pub fn hash(&self, image: &Image<'_>) -> KeyHash {
        self.hasher.hash(image)
    }

    #[inline]
    pub fn shard(&self, hash: KeyHash) -> usize {
        hash.shard(self.shards.len())
    }

    #[inline(always)]
    pub fn lock_only(&self, shard: usize) -> Locked<'_> {
        let shard = &self.shards[shard];
        let (state, heard) = (shard.lock(), self.heard.load(Relaxed));
        Locked { shard, ground: &self.ground, state, heard, spared: None, wanted: None, vacant: None }
    }

    /// Locks a shard, and does a little of what its time has come for.
    #[inline(always)]
    pub fn lock(&self, shard: usize) -> Locked<'_> {
        let mut locked = self.lock_only(shard);
        if locked.state.wheel.entries > 0 {
            // What ended a moment ago can wait for the next put: it is nobody's to find any more.
            locked.expire(roughly(&*self.ground.clock), STEPS);
        }
        locked
    }

    /// Makes sure that the shard knows a table's record.
    #[inline]
    pub fn introduce(&self, locked: &mut Locked<'_>, record: &Record) {
        // A dropped table's number may have been given to another.
        if !locked
            .state
            .records
            .get(usize::from(record.id))
            .is_some_and(|known| std::ptr::eq(&raw const **known, record))
        {
            self.introduce_anew(locked, record);
        }
    }

    #[cold]
    fn introduce_anew(&self, locked: &mut Locked<'_>, record: &Record) {
        let records = self.read_records();
        let (known, at) = (&mut locked.state.records, usize::from(record.id));
        // Others may have other tables by now: the shard has no entries of those before they are introduced, too.
        known.extend(records.all.iter().skip(known.len()).cloned());
        known[at] = Arc::clone(&records.all[at]);
    }

    /// Lets a shard go and tells of what left it.
    #[inline(always)]
    pub fn unlock(&self, mut locked: Locked<'_>) {
        if locked.state.gone.is_empty() {
            return;
        }
        let gone = std::mem::take(&mut locked.state.gone);
        drop(locked);
        self.tell(&gone);
    }

    #[cold]
    fn tell(&self, gone: &[Gone]) {
        let listener = self.listener.read().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(listener) = listener else { return };
        for Gone { record, key, value, reason } in gone {
            listener(&Departure { table: &record.name, key, value, reason: *reason });
        }
    }

    /// Whether any entry has an end.
    pub fn has_ends(&self) -> bool {
        self.shards.iter().any(|shard| shard.lock().wheel.entries > 0)
    }

    pub fn stats(&self) -> CacheStats {
        let mut stats = self.table_stats();
        let (mut other, mut index) = (0, self.ground.fixed);
        for shard in &self.shards {
            let state = shard.lock();
            other += state.credit + state.ghosts.as_ref().map_or(0, |ghosts| ghosts.charged());
            index += shard.index_bytes(&state);
        }
        stats.bytes = self.ground.ledger.used.used().saturating_sub(other);
        stats.max_bytes = self.limit();
        (stats.reserved_bytes, stats.index_bytes) = (self.ground.memory.used(), index);
        stats
    }

    /// The sum of all tables' figures.
    fn table_stats(&self) -> CacheStats {
        // Under one lock: figures go from a record to the past under it.
        let records = self.read_records();
        let mut stats = *self.past.lock().unwrap_or_else(PoisonError::into_inner);
        for record in &records.all {
            stats += record.counters.read();
        }
        stats
    }

    /// What all shards stand on.
    #[inline]
    pub fn ground(&self) -> &Ground {
        &self.ground
    }

    #[inline]
    pub fn shards(&self) -> &[Shard] {
        &self.shards
    }

    /// The image of a key, where it leads, and the number of its shard. `None` for one that is too long for any.
    #[inline(always)]
    pub fn sought<'a>(&self, record: &Record, key: &'a [u8]) -> Option<(Image<'a>, KeyHash, usize)> {
        if key.len() > LONGEST_KEY {
            return None;
        }
        let image = Image::new(record.id, key);
        let hash = self.hash(&image);
        Some((image, hash, self.shard(hash)))
    }

    /// As [`Core::sought`]; `None` also where the table is dropped.
    #[inline(always)]
    pub fn sought_alive<'a>(&self, record: &Record, key: &'a [u8]) -> Option<(Image<'a>, KeyHash, usize)> {
        self.sought(record, key).filter(|_| !record.is_dropped())
    }
}
