//! A shard: the part of the keys that one lock guards.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use gabion_blocks::{BlockError, Budget, PAGE_BYTES};
use gabion_pile::{IndexedPile, Place};

use super::leases::Leases;
use super::shortage::Shortage;
use crate::budget::Ledger;
use crate::entry::{Entry, stored};
use crate::index::{Ghosts, Pages, Segments, Sketches, Spot, Stash, UNIT_BYTES, Unit};
use crate::key::{Image, KeyHash};
use crate::policy::{Id, NONE, Nodes, Policy, Queues};
use crate::record::Record;
use crate::time::{Clock, Due, Hooks, LATE, Timers, Wheel, roughly};

/// What all shards of a cache stand on.
pub(crate) struct Ground {
    pub pile: IndexedPile,
    pub ledger: Ledger,
    /// Pages and runs taken, of pile and index.
    pub memory: Arc<Budget>,
    pub policy: Policy,
    pub shards: u64,
    /// Bytes of memory that are taken for as long as the cache is there.
    pub fixed: u64,
    /// How often anything was removed from the pile, or moved in it.
    pub freed: Aligned<AtomicU64>,
    /// Bytes that a shard may keep charged and unused.
    pub most_credit: AtomicU64,
    pub clock: Arc<dyn Clock>,
}

impl Ground {
    /// Notes that the pile may have room that it had not: whatever removes an object or moves it says so.
    #[inline]
    pub fn note_freed(&self) {
        // Release: a thread that sees that more was freed finds it.
        self.freed.0.fetch_add(1, Release);
    }

    /// How often that was noted; what was freed until then is there to be found.
    #[inline]
    pub fn freed(&self) -> u64 {
        // Acquire: pairs with the release in `note_freed`.
        self.freed.0.load(Acquire)
    }

    /// Bytes that a shard may keep charged and unused.
    #[inline]
    pub fn most_credit(&self) -> u64 {
        // Relaxed: the number is the whole message.
        self.most_credit.load(Relaxed)
    }

    /// Whether there is memory for an entry, with that many bytes in a second object, if it is all that the cache
    /// holds.
    pub fn may_hold(&self, rest: Option<usize>) -> bool {
        let page = PAGE_BYTES as u64;
        // Its head lies in a page; the rest, if there is one, has a word in another and takes as many as it fills.
        let rest = rest.map_or(0, |length| page + stored(length) / page * page);
        // Each shard keeps a segment and a sketch, in pages of their own.
        let index = 2 * (self.shards * UNIT_BYTES).next_multiple_of(page);
        self.fixed + index + page + rest <= self.memory.limit()
    }

    /// Whether an entry that ends then surely lives on, and has no idle time to be put off: told by a cheaper look at
    /// the clock, which may be late.
    #[inline]
    pub fn lives_long(&self, due: Due) -> bool {
        due.idle().is_none() && due.deadline() > roughly(&*self.clock) + LATE
    }
}

/// One shard. Aligned so that two shards never share a cache line, nor the pair that the prefetcher takes.
#[repr(align(128))]
pub(crate) struct Shard {
    pub segments: Segments,
    pub sketches: Sketches,
    state: Aligned<Mutex<State>>,
}

/// On lines of its own: writers change it while readers read what stands beside it.
#[repr(align(128))]
pub(crate) struct Aligned<T>(pub T);

/// Entries of one priority that are evicted together.
pub(crate) struct Cohort {
    pub priority: i8,
    /// The table, if it has a limit of its own; otherwise the cohort is of all tables without.
    pub partition: Option<u16>,
    pub queues: Queues,
}

/// Why an entry left without being asked to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// It had to make room.
    Evicted,
    /// Its time was over.
    Expired,
}

/// An entry that left, for the listener.
pub(crate) struct Gone {
    /// Its table's, whose number may be another's when it is told.
    pub record: Arc<Record>,
    pub key: Vec<u8>,
    pub value: Vec<u8>,
    pub reason: Reason,
}

/// Memory of the index, by what lies in it.
pub(crate) struct Purposes {
    pub cells: Arc<Pages>,
    pub sketches: Arc<Pages>,
    /// In the policy that has ghosts.
    pub ghosts: Option<Arc<Pages>>,
}

impl Purposes {
    pub fn new(memory: &Arc<Budget>, policy: Policy) -> Result<Self, BlockError> {
        let pages = || Ok::<_, BlockError>(Arc::new(Pages::new(memory)?));
        let ghosts = if policy == Policy::S3Fifo { Some(pages()?) } else { None };
        // A hit that is noted late writes to a sketch that may be given back by then. The cells that it counts in are
        // changed only as long as they are what the reader found, which no empty one is.
        Ok(Self { cells: pages()?, sketches: Arc::new(Pages::written_late(memory)?), ghosts })
    }
}

/// What the lock guards. The entries of all cohorts are the entries of the stash and the segments, each once.
#[derive(Default)]
pub(crate) struct State {
    pub stash: Stash,
    pub wheel: Wheel,
    /// Bytes that are charged to the cache and belong to no entry: the next puts here take them without asking.
    pub credit: u64,
    pub shortage: Shortage,
    pub leases: Leases,
    /// Lowest priority first.
    pub cohorts: Vec<Cohort>,
    pub records: Vec<Arc<Record>>,
    /// Entries that left since the lock was taken, when somebody listens.
    pub gone: Vec<Gone>,
    /// Keys that left of late, in the policy that asks.
    pub ghosts: Option<Box<Ghosts>>,
    /// Where payloads are put together.
    pub payload: Vec<u8>,
}

impl Shard {
    /// # Errors
    /// That there is no memory for the tables that lead to its index.
    pub fn new(pages: &Purposes, most_entries: u64) -> Result<Self, BlockError> {
        let ghosts = pages.ghosts.as_ref().map(|pages| Ghosts::new(pages, most_entries)).transpose()?.map(Box::new);
        Ok(Self {
            segments: Segments::new(&pages.cells, most_entries)?,
            sketches: Sketches::new(&pages.sketches, most_entries)?,
            state: Aligned(Mutex::new(State { ghosts, ..State::default() })),
        })
    }

    /// Bytes of the shard itself, and of the tables that lead to its index: as many from the first entry to the last.
    pub fn fixed_bytes(&self) -> u64 {
        let ghosts = self.lock().ghosts.as_ref().map_or(0, |ghosts| ghosts.table_bytes());
        size_of::<Self>() as u64 + self.segments.table_bytes() + self.sketches.table_bytes() + ghosts
    }

    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, State> {
        match self.state.0.try_lock() {
            Ok(state) => state,
            // A panic under the lock is a bug of this crate; what it guards is checked by `validate`.
            Err(TryLockError::Poisoned(state)) => state.into_inner(),
            Err(TryLockError::WouldBlock) => self.state.0.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// A key's entry. Under the lock.
    #[inline]
    pub fn find(&self, state: &State, ground: &Ground, image: &Image<'_>, hash: KeyHash) -> Option<Id> {
        self.find_in(self.segments.segment(hash.kept()), state, ground, image, hash)
    }

    /// As [`Shard::find`], for callers that know the hash's segment.
    #[inline]
    pub fn find_in<'a>(
        &'a self,
        segment: Option<&'a Unit>,
        state: &State,
        ground: &Ground,
        image: &Image<'_>,
        hash: KeyHash,
    ) -> Option<Id> {
        self.segments.find_all_in(segment, &state.stash, hash.kept(), |cell| {
            let entry = Entry::at(&ground.pile, cell.place().to_bits());
            let inline = entry.begins_with(image)?;
            let own = inline == image.len() || has_rest_of(ground, entry, image);
            own.then_some(cell.place().to_bits())
        })
    }

    /// Bytes of the shard's index.
    pub fn index_bytes(&self, state: &State) -> u64 {
        let ghosts = state.ghosts.as_ref().map_or(0, |ghosts| ghosts.bytes());
        self.segments.bytes() + self.sketches.bytes() + ghosts
    }
}

/// Whether a key, of which only the image's prefix lies in the entry, lies in its second object.
#[cold]
fn has_rest_of(ground: &Ground, entry: Entry<'_>, image: &Image<'_>) -> bool {
    let Some((pointer, _)) = entry.rest() else { return false };
    ground.pile.begins_with(pointer, image.key).is_ok_and(|own| own)
}

/// Which cohort of entries one is evicted with: its table's own, or the one of all tables without a limit.
#[inline]
pub(crate) fn partition_of(ground: &Ground, id: Id) -> Option<u16> {
    let entry = Entry::at(&ground.pile, id);
    entry.about().own.then(|| entry.prefix().1)
}

/// Where the cohort of a priority and partition stands, made when it is not there.
#[inline]
pub(crate) fn cohort_at(cohorts: &mut Vec<Cohort>, policy: Policy, priority: i8, partition: Option<u16>) -> usize {
    // Nearly always there is one cohort.
    if let [cohort] = cohorts.as_slice()
        && (cohort.priority, cohort.partition) == (priority, partition)
    {
        return 0;
    }
    find_cohort(cohorts, priority, partition).unwrap_or_else(|at| {
        cohorts.insert(at, Cohort { priority, partition, queues: Queues::new(policy) });
        at
    })
}

/// Where the cohort of a priority and partition stands, or else where it would.
#[inline]
pub(crate) fn find_cohort(cohorts: &[Cohort], priority: i8, partition: Option<u16>) -> Result<usize, usize> {
    cohorts.binary_search_by(|cohort| (cohort.priority, cohort.partition).cmp(&(priority, partition)))
}

/// Where the cohorts of a partition stand, the lowest priority first. In a few steps for each priority that there is.
pub(crate) fn cohorts_of(cohorts: &[Cohort], partition: Option<u16>) -> impl Iterator<Item = usize> {
    let mut from = 0;
    std::iter::from_fn(move || {
        let priority = cohorts.get(from)?.priority;
        let at = find_cohort(cohorts, priority, partition);
        from = cohorts.partition_point(|cohort| cohort.priority <= priority);
        Some(at.ok())
    })
    .flatten()
}

/// The cohort of a priority and partition, made when it is not there.
#[inline]
pub(crate) fn cohort_in(
    cohorts: &mut Vec<Cohort>,
    policy: Policy,
    priority: i8,
    partition: Option<u16>,
) -> &mut Cohort {
    let at = cohort_at(cohorts, policy, priority, partition);
    &mut cohorts[at]
}

/// The entries as the policies and the wheel see them. Under the lock.
pub(crate) struct Links<'a, 's> {
    shard: &'a Shard,
    pile: &'a IndexedPile,
    stash: &'s Stash,
    /// The entry that stays, or [`NONE`].
    spared: Id,
}

/// An entry at hand: where it lies, and where its cell does, once that was asked for.
#[derive(Clone, Copy)]
pub(crate) struct AtHand<'a> {
    pub id: Id,
    pub entry: Entry<'a>,
    spot: Option<Spot<'a>>,
}

impl<'a> AtHand<'a> {
    #[inline]
    pub fn new(pile: &'a IndexedPile, id: Id) -> Self {
        Self { id, entry: Entry::at(pile, id), spot: None }
    }

    /// Another entry in its place: nothing is known of it yet.
    #[inline]
    pub fn anew(self) -> Self {
        Self { spot: None, ..self }
    }

    /// Where its cell lies.
    #[inline(always)]
    pub fn spot(&mut self, shard: &'a Shard, stash: &Stash) -> Spot<'a> {
        if let Some(spot) = self.spot {
            return spot;
        }
        let spot = shard.segments.spot(stash, self.entry.kept(), Place::from_bits(self.id));
        self.spot = Some(spot);
        spot
    }
}

impl<'a, 's> Links<'a, 's> {
    pub fn new(shard: &'a Shard, ground: &'a Ground, state: &'s State) -> Self {
        Self::with(shard, ground, &state.stash)
    }

    #[inline]
    pub fn with(shard: &'a Shard, ground: &'a Ground, stash: &'s Stash) -> Self {
        Self { shard, pile: &ground.pile, stash, spared: NONE }
    }

    /// With an entry that shall not be evicted.
    #[inline]
    pub fn sparing(self, spared: Option<Id>) -> Self {
        Self { spared: spared.unwrap_or(NONE), ..self }
    }

    #[inline]
    fn entry(&self, id: Id) -> Entry<'a> {
        Entry::at(self.pile, id)
    }
}

impl<'a> Nodes for Links<'a, '_> {
    type Node = AtHand<'a>;
    #[inline(always)]
    fn node(&self, id: Id) -> AtHand<'a> {
        AtHand::new(self.pile, id)
    }
    #[inline(always)]
    fn id(&self, node: AtHand<'a>) -> Id {
        node.id
    }
    #[inline(always)]
    fn links(&self, node: AtHand<'a>) -> (Id, Id) {
        node.entry.links()
    }
    #[inline(always)]
    fn set_newer(&mut self, node: AtHand<'a>, newer: Id) {
        node.entry.set_newer(newer);
    }
    #[inline(always)]
    fn set_older(&mut self, node: AtHand<'a>, older: Id) {
        node.entry.set_older(older);
    }
    #[inline(always)]
    fn weight(&self, node: AtHand<'a>) -> u64 {
        node.entry.stored() + crate::budget::INDEX_BYTES
    }
    #[inline(always)]
    fn hits(&self, node: &mut AtHand<'a>) -> u8 {
        Segments::cell(self.stash, node.spot(self.shard, self.stash)).hits()
    }
    #[inline(always)]
    fn set_hits(&mut self, node: &mut AtHand<'a>, hits: u8) {
        let cell = Segments::cell(self.stash, node.spot(self.shard, self.stash));
        if cell.hits() != hits {
            cell.set_hits(hits);
        }
    }
    #[inline(always)]
    fn queue(&self, node: AtHand<'a>) -> u8 {
        node.entry.queue()
    }
    #[inline(always)]
    fn set_queue(&mut self, node: AtHand<'a>, queue: u8) {
        node.entry.set_queue(queue);
    }
    #[inline(always)]
    fn frequency(&self, node: AtHand<'a>) -> u8 {
        self.shard.sketches.frequency(node.entry.kept())
    }
    #[inline(always)]
    fn era(&self) -> u32 {
        self.shard.sketches.era()
    }
    #[inline(always)]
    fn mark(&self, node: &mut AtHand<'a>) -> u64 {
        self.shard.segments.mark(node.entry.kept(), node.spot(self.shard, self.stash))
    }
    #[inline(always)]
    fn is_unhit(&self, id: Id, mark: u64) -> bool {
        self.shard.segments.is_unhit(Place::from_bits(id), mark)
    }
    #[inline]
    fn foresee(&self, node: AtHand<'a>) {
        let (newer, kept) = (node.entry.links().0, node.entry.kept());
        self.shard.segments.prefetch(kept);
        self.shard.sketches.prefetch(kept);
        self.pile.prefetch_at(Place::from_bits(newer));
    }
    #[inline(always)]
    fn spares(&self, id: Id) -> bool {
        self.spared == id
    }
}

impl Timers for Links<'_, '_> {
    fn due(&self, id: Id) -> Due {
        self.entry(id).end()
    }
    fn hooks(&self, id: Id) -> Hooks {
        self.entry(id).hooks()
    }
    fn set_hooks(&self, id: Id, previous: Id, next: Id, bucket: usize) {
        self.entry(id).set_hooks(previous, next, bucket);
    }
    fn set_previous(&self, id: Id, previous: Id, bucket: usize) {
        self.entry(id).set_previous(previous, bucket);
    }
    fn set_next(&self, id: Id, next: Id) {
        self.entry(id).set_next(next);
    }
}
