//! A shard: the part of the keys that one lock guards, and reading without it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use gabion_blocks::Budget;
use gabion_pile::{Pile, Place, ReadBuf};

use crate::bucket::Cell;
use crate::budget::Ledger;
use crate::clock::{Clock, LATE, roughly};
use crate::entry::Entry;
use crate::hash::KeyHash;
use crate::key::Image;
use crate::pages::Pages;
use crate::policy::{Id, Mode, NONE, Nodes, Policy};
use crate::read::{Changed, Found, read_at, read_whole};
use crate::record::Record;
use crate::segments::{Glimpse, Segments, Spot, Stash};
use crate::sketches::Sketches;
use crate::wheel::{Due, Timers, Wheel};

/// What all shards of a cache stand on.
pub(crate) struct Ground {
    pub pile: Pile,
    pub ledger: Ledger,
    /// Pages and runs taken, of pile and index.
    pub memory: Arc<Budget>,
    pub mode: Mode,
    pub shards: u64,
    /// Bytes that a shard may keep charged and unused.
    pub most_credit: u64,
    pub clock: Arc<dyn Clock>,
}

impl Ground {
    /// Whether an entry that ends then surely lives on, and has no idle time to be put off: told by a cheaper look at the
    /// clock, which may be late.
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
struct Aligned<T>(T);

/// Entries of one priority that are evicted together.
pub(crate) struct Group {
    pub priority: i8,
    /// The table, if it has a limit of its own; otherwise the group is of all tables without.
    pub partition: Option<u16>,
    pub policy: Policy,
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

/// An entry that left, for whoever listens.
pub(crate) struct Gone {
    /// Its table's, whose number may be another's when it is told.
    pub record: Arc<Record>,
    pub key: Vec<u8>,
    pub value: Vec<u8>,
    pub reason: Reason,
}

/// What the lock guards. The entries of all groups are the entries of the stash and the segments, each once.
#[derive(Default)]
pub(crate) struct State {
    pub stash: Stash,
    pub wheel: Wheel,
    /// Bytes that are charged to the cache and belong to no entry: the next puts here take them without asking.
    pub credit: u64,
    /// Lowest priority first.
    pub groups: Vec<Group>,
    pub records: Vec<Arc<Record>>,
    /// Entries that left since the lock was taken, when somebody listens.
    pub gone: Vec<Gone>,
    /// Where payloads are put together.
    pub payload: Vec<u8>,
    pub buf: ReadBuf,
}

/// What a short look for a key came to.
pub(crate) enum Look<'a> {
    /// Its value was read. It may be over, and nobody has heard of its use.
    Value(Found, Cell<'a>),
    /// There is none.
    Nothing,
    /// A longer search will tell.
    Unclear,
}

/// What one search without a lock came to.
enum Attempt<'a> {
    Found(Found, Cell<'a>),
    Nothing,
    /// Something changed meanwhile.
    Changed,
    /// It may be in the stash.
    Stashed,
}

/// How many times a read is tried beside writers before it asks for the lock.
const ATTEMPTS: u32 = 16;

impl Shard {
    pub fn new(cells: &Arc<Pages>, sketches: &Arc<Pages>, most_entries: u64) -> Self {
        Self {
            segments: Segments::new(cells, most_entries),
            sketches: Sketches::new(sketches, most_entries),
            state: Aligned(Mutex::default()),
        }
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

    /// Looks for a key's value once, in the first place where it may be. Copies it if it is there.
    #[inline(always)]
    pub fn look(&self, ground: &Ground, image: &Image<'_>, hash: KeyHash, buf: &mut ReadBuf) -> Look<'_> {
        let version = self.segments.version();
        match self.segments.first(hash.kept()) {
            Glimpse::Cell(cell) => match read_whole(&ground.pile, image, cell, buf) {
                Some(found) => Look::Value(found, cell),
                None => Look::Unclear,
            },
            Glimpse::Nothing if version.is_some_and(|version| self.segments.unmoved(version)) => Look::Nothing,
            Glimpse::Nothing | Glimpse::Unclear => Look::Unclear,
        }
    }

    /// Reads a key's value into `buf`: where it begins there. Takes no lock, unless entries move or change under the reader
    /// again and again, or the use changes more than a count: in modes that move entries, and for idle times, once in a
    /// millisecond at most. `now` is asked for when the entry has an end.
    pub fn read(
        &self,
        ground: &Ground,
        image: &Image<'_>,
        hash: KeyHash,
        used: bool,
        buf: &mut ReadBuf,
        now: impl Fn() -> u64,
    ) -> Option<usize> {
        for _ in 0..ATTEMPTS {
            match self.attempt(ground, image, hash, buf, true) {
                Attempt::Found(found, cell) => return self.found(ground, hash, found, cell, used, now),
                Attempt::Nothing => return None,
                Attempt::Changed => std::hint::spin_loop(),
                Attempt::Stashed => break,
            }
        }
        self.read_locked(ground, image, hash, used, buf, now)
    }

    /// Looks for a key's value once, without a lock.
    #[inline]
    fn attempt(&self, ground: &Ground, image: &Image<'_>, hash: KeyHash, buf: &mut ReadBuf, copy: bool) -> Attempt<'_> {
        let Some(version) = self.segments.version() else { return Attempt::Changed };
        let (found, stashed) = self.segments.find(hash.kept(), |cell| {
            let read = read_at(&ground.pile, image, cell.place(), buf, copy, move || cell.stands());
            read.map(|found| Some((found?, cell))).transpose()
        });
        match found {
            Some(Ok((found, cell))) => Attempt::Found(found, cell),
            None if stashed => Attempt::Stashed,
            None if self.segments.unmoved(version) => Attempt::Nothing,
            Some(Err(Changed)) | None => Attempt::Changed,
        }
    }

    /// Where a value that was found begins, unless its time is over. The policy hears of its use.
    pub fn found(
        &self,
        ground: &Ground,
        hash: KeyHash,
        found: Found,
        cell: Cell<'_>,
        used: bool,
        now: impl Fn() -> u64,
    ) -> Option<usize> {
        let due = found.due;
        if due != Due::NONE && !ground.lives_long(due) && !self.lives(ground, due, cell, used, now()) {
            return None;
        }
        if used {
            if ground.mode.counts_hits() {
                if cell.hit() && ground.mode == Mode::Sketch {
                    self.sketches.note(hash.kept());
                }
            } else if ground.mode.moves_on_hit() {
                self.move_up(ground, cell);
            }
        }
        Some(found.offset)
    }

    /// Whether an entry with an end lives on; a use puts the end of its idle time off.
    #[inline(never)]
    fn lives(&self, ground: &Ground, due: Due, cell: Cell<'_>, used: bool, now: u64) -> bool {
        if due.deadline() <= now {
            return false;
        }
        if used && due.idle().is_some_and(|idle| due.deadline() != now + idle) {
            let _state = self.lock();
            let entry = Entry::at(&ground.pile, cell.place().to_bits());
            // Still the same entry: the deadline is its own.
            if cell.stands() && entry.end() == due {
                put_off(entry, now);
            }
        }
        true
    }

    #[cold]
    fn read_locked(
        &self,
        ground: &Ground,
        image: &Image<'_>,
        hash: KeyHash,
        used: bool,
        buf: &mut ReadBuf,
        now: impl Fn() -> u64,
    ) -> Option<usize> {
        let mut state = self.lock();
        let (cell, found) = self.open(&state, ground, image, hash, buf)?;
        let place = cell.place();
        if found.due != Due::NONE {
            let now = now();
            if found.due.deadline() <= now {
                return None;
            }
            if used {
                put_off(Entry::at(&ground.pile, place.to_bits()), now);
            }
        }
        if used {
            if ground.mode.counts_hits() && cell.hit() && ground.mode == Mode::Sketch {
                self.sketches.note(hash.kept());
            }
            if ground.mode.moves_on_hit() {
                self.move_up_locked(ground, &mut state, place);
            }
        }
        Some(found.offset)
    }

    /// Whether a key has a value whose time is not over.
    pub fn contains(&self, ground: &Ground, image: &Image<'_>, hash: KeyHash, now: impl Fn() -> u64) -> bool {
        let mut buf = ReadBuf::new();
        for _ in 0..ATTEMPTS {
            match self.attempt(ground, image, hash, &mut buf, false) {
                Attempt::Found(found, _) => return found.due == Due::NONE || found.due.deadline() > now(),
                Attempt::Nothing => return false,
                Attempt::Changed => std::hint::spin_loop(),
                Attempt::Stashed => break,
            }
        }
        self.read_locked(ground, image, hash, false, &mut buf, now).is_some()
    }

    /// Reads a key's value under the lock.
    pub fn open<'a>(
        &'a self,
        state: &'a State,
        ground: &Ground,
        image: &Image<'_>,
        hash: KeyHash,
        buf: &mut ReadBuf,
    ) -> Option<(Cell<'a>, Found)> {
        self.segments.find_all(&state.stash, hash.kept(), |cell| {
            let found = read_at(&ground.pile, image, cell.place(), buf, true, || true);
            Some((cell, found.ok().flatten()?))
        })
    }

    /// The policy hears of a use.
    #[cold]
    fn move_up(&self, ground: &Ground, cell: Cell<'_>) {
        let mut state = self.lock();
        if cell.stands() {
            self.move_up_locked(ground, &mut state, cell.place());
        }
    }

    fn move_up_locked(&self, ground: &Ground, state: &mut State, place: Place) {
        let id = place.to_bits();
        let (about, partition) = (Entry::at(&ground.pile, id).about(), partition_of(ground, id));
        let State { groups, stash, .. } = state;
        let mut links = Links::with(self, ground, stash);
        let node = links.node(id);
        group_in(groups, ground.mode, about.priority, partition).policy.touch(&mut links, node);
    }

    /// A key's entry. Under the lock.
    #[inline]
    pub fn find(&self, state: &mut State, ground: &Ground, image: &Image<'_>, hash: KeyHash) -> Option<Id> {
        let State { stash, buf, .. } = state;
        self.segments.find_all(stash, hash.kept(), |cell| {
            let entry = Entry::at(&ground.pile, cell.place().to_bits());
            let inline = entry.begins_with(image)?;
            let own = inline == image.len() || has_rest_of(ground, entry, image, buf);
            own.then_some(cell.place().to_bits())
        })
    }

    /// Bytes of the shard's index.
    pub fn index_bytes(&self) -> u64 {
        self.segments.bytes() + self.sketches.bytes()
    }
}

/// Whether a key, of which only the image's prefix lies in the entry, lies in its second object.
#[cold]
fn has_rest_of(ground: &Ground, entry: Entry<'_>, image: &Image<'_>, buf: &mut ReadBuf) -> bool {
    let Some((pointer, _)) = entry.rest() else { return false };
    let own = ground.pile.read(pointer, buf).is_ok_and(|payload| payload.starts_with(image.key));
    buf.let_go();
    own
}

/// Puts off the end of an entry's idle time. Under the lock.
fn put_off(entry: Entry<'_>, now: u64) {
    let due = entry.end();
    if let Some(idle) = due.idle() {
        entry.set_due(due.until((now + idle).min(entry.times().end.unwrap_or(u64::MAX))));
    }
}

/// Which group of entries one is evicted with: its table's own, or the one of all tables without a limit.
#[inline]
pub(crate) fn partition_of(ground: &Ground, id: Id) -> Option<u16> {
    let entry = Entry::at(&ground.pile, id);
    entry.about().own.then(|| entry.prefix().1)
}

/// Where the group of a priority and partition stands, made when it is not there.
#[inline]
pub(crate) fn group_at(groups: &mut Vec<Group>, mode: Mode, priority: i8, partition: Option<u16>) -> usize {
    // Nearly always there is one group.
    if let [group] = groups.as_slice()
        && (group.priority, group.partition) == (priority, partition)
    {
        return 0;
    }
    let place = |group: &Group| (group.priority, group.partition).cmp(&(priority, partition));
    groups.binary_search_by(place).unwrap_or_else(|at| {
        groups.insert(at, Group { priority, partition, policy: Policy::new(mode) });
        at
    })
}

/// The group of a priority and partition, made when it is not there.
#[inline]
pub(crate) fn group_in(groups: &mut Vec<Group>, mode: Mode, priority: i8, partition: Option<u16>) -> &mut Group {
    let at = group_at(groups, mode, priority, partition);
    &mut groups[at]
}

/// The entries as the policies and the wheel see them. Under the lock.
pub(crate) struct Links<'a, 's> {
    shard: &'a Shard,
    pile: &'a Pile,
    stash: &'s Stash,
    /// The entry that stays, or [`NONE`].
    spared: Id,
}

/// An entry at hand: where it lies, and where its cell does, once that was asked for.
#[derive(Clone, Copy)]
pub(crate) struct Held<'a> {
    pub id: Id,
    pub entry: Entry<'a>,
    spot: Option<Spot<'a>>,
}

impl<'a> Held<'a> {
    #[inline]
    pub fn new(pile: &'a Pile, id: Id) -> Self {
        Self { id, entry: Entry::at(pile, id), spot: None }
    }

    /// Where its cell lies.
    #[inline]
    pub fn spot(&mut self, shard: &'a Shard, stash: &Stash) -> Spot<'a> {
        let (entry, place) = (self.entry, Place::from_bits(self.id));
        *self.spot.get_or_insert_with(|| shard.segments.spot(stash, entry.kept(), place))
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
    type Node = Held<'a>;
    #[inline]
    fn node(&self, id: Id) -> Held<'a> {
        Held::new(self.pile, id)
    }
    #[inline]
    fn id(&self, node: Held<'a>) -> Id {
        node.id
    }
    #[inline]
    fn links(&self, node: Held<'a>) -> (Id, Id) {
        node.entry.links()
    }
    #[inline]
    fn set_newer(&mut self, node: Held<'a>, newer: Id) {
        node.entry.set_newer(newer);
    }
    #[inline]
    fn set_older(&mut self, node: Held<'a>, older: Id) {
        node.entry.set_older(older);
    }
    #[inline]
    fn weight(&self, node: Held<'a>) -> u64 {
        node.entry.stored() + crate::budget::INDEX_BYTES
    }
    #[inline]
    fn hits(&self, node: &mut Held<'a>) -> u8 {
        Segments::cell(self.stash, node.spot(self.shard, self.stash)).hits()
    }
    #[inline]
    fn set_hits(&mut self, node: &mut Held<'a>, hits: u8) {
        let cell = Segments::cell(self.stash, node.spot(self.shard, self.stash));
        if cell.hits() != hits {
            cell.set_hits(hits);
        }
    }
    #[inline]
    fn queue(&self, node: Held<'a>) -> u8 {
        node.entry.queue()
    }
    #[inline]
    fn set_queue(&mut self, node: Held<'a>, queue: u8) {
        node.entry.set_queue(queue);
    }
    #[inline(always)]
    fn frequency(&self, node: Held<'a>) -> u8 {
        self.shard.sketches.frequency(node.entry.kept())
    }
    #[inline]
    fn hash(&self, node: Held<'a>) -> u64 {
        node.entry.kept()
    }
    #[inline]
    fn foresee(&self, node: Held<'a>) {
        let (newer, kept) = (node.entry.links().0, node.entry.kept());
        self.shard.segments.prefetch(kept);
        self.shard.sketches.prefetch(kept);
        if let Some(body) = self.pile.body(Place::from_bits(newer)) {
            body.prefetch();
        }
    }
    #[inline]
    fn spares(&self, id: Id) -> bool {
        self.spared == id
    }
}

impl Timers for Links<'_, '_> {
    fn due(&self, id: Id) -> Due {
        self.entry(id).end()
    }
    fn hooks(&self, id: Id) -> (Id, Id, usize) {
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
