//! Reading a shard: without its lock, as far as nothing moves meanwhile.

use gabion_pile::{Place, ReadBuf};

use super::shard::{Ground, Links, Shard, State, cohort_in, partition_of};
use crate::entry::Entry;
use crate::index::{Cell, Glimpse};
use crate::key::{Image, KeyHash};
use crate::policy::{Nodes, Policy};
use crate::read::{Changed, Found, read_at, read_brief};
use crate::time::Due;

/// A key that is looked for.
#[derive(Clone, Copy)]
pub(crate) struct Sought<'a> {
    pub ground: &'a Ground,
    pub image: &'a Image<'a>,
    pub hash: KeyHash,
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
    /// Looks for a key's value once, in the first place where it may be. Copies it if it is there.
    #[inline(always)]
    pub fn look(&self, ground: &Ground, image: &Image<'_>, hash: KeyHash, buf: &mut ReadBuf) -> Look<'_> {
        let version = self.segments.version();
        match self.segments.first(hash.kept()) {
            Glimpse::Cell(cell) => match read_brief(&ground.pile, image, cell, buf) {
                Some(found) => Look::Value(found, cell),
                None => Look::Unclear,
            },
            Glimpse::Nothing if version.is_some_and(|version| self.segments.unmoved(version)) => Look::Nothing,
            Glimpse::Nothing | Glimpse::Unclear => Look::Unclear,
        }
    }

    /// Reads a key's value into `buf`: where it begins there. Takes no lock, unless entries move or change under the
    /// reader again and again, or the use changes more than a count: in policies that move entries, and for idle times,
    /// once in a millisecond at most. `now` is asked for when the entry has an end.
    pub fn read(&self, sought: Sought<'_>, used: bool, buf: &mut ReadBuf, now: impl Fn() -> u64) -> Option<usize> {
        match self.search(sought, buf, true) {
            Attempt::Found(found, cell) => self.found(sought.ground, sought.hash, found, cell, used, now),
            Attempt::Nothing => {
                // Of what was taken for the key's value, and refused, nothing is to be told.
                buf.let_go();
                None
            }
            Attempt::Changed | Attempt::Stashed => self.lock_and_read(sought, used, buf, now),
        }
    }

    /// Looks for a key's value without a lock, again as long as something changes meanwhile.
    #[inline]
    fn search(&self, sought: Sought<'_>, buf: &mut ReadBuf, copy: bool) -> Attempt<'_> {
        for _ in 0..ATTEMPTS {
            match self.attempt(sought, buf, copy) {
                Attempt::Changed if buf.refusal().is_some() => break,
                Attempt::Changed => std::hint::spin_loop(),
                told => return told,
            }
        }
        Attempt::Changed
    }

    /// Looks for a key's value once, without a lock.
    #[inline]
    fn attempt(&self, sought: Sought<'_>, buf: &mut ReadBuf, copy: bool) -> Attempt<'_> {
        let Sought { ground, image, hash } = sought;
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
        if due != Due::NONE && !ground.lives_long(due) && !self.lives(ground, due, (hash, cell), used, now()) {
            return None;
        }
        if used && self.note_hit(ground, hash, cell) {
            self.move_up(ground, hash, cell);
        }
        Some(found.offset)
    }

    /// Counts a use, where the policy counts them. True where it wants the entry moved instead.
    #[inline(always)]
    fn note_hit(&self, ground: &Ground, hash: KeyHash, cell: Cell<'_>) -> bool {
        if ground.policy.counts_hits() && cell.hit() && ground.policy == Policy::Sketch {
            self.sketches.note_hit(hash.kept());
        }
        ground.policy.moves_on_hit()
    }

    /// Whether an entry with an end lives on; a use puts the end of its idle time off.
    #[inline(never)]
    fn lives(&self, ground: &Ground, due: Due, (hash, cell): (KeyHash, Cell<'_>), used: bool, now: u64) -> bool {
        if due.is_over(now) {
            return false;
        }
        let entry = Entry::at(&ground.pile, cell.place().to_bits());
        // Read beside writers: if another entry lies there by now, there is nothing to put off.
        if used && put_off(entry, due, now) != due {
            let state = self.lock();
            // Still the same entry: the deadline is its own.
            if self.leads_to(&state, hash, cell.place()) && entry.end() == due {
                entry.set_due(put_off(entry, due, now));
            }
        }
        true
    }

    #[cold]
    fn lock_and_read(&self, sought: Sought<'_>, used: bool, buf: &mut ReadBuf, now: impl Fn() -> u64) -> Option<usize> {
        let mut state = self.lock();
        let (cell, found) = self.read_under_lock(&state, sought, buf)?;
        let Sought { ground, hash, .. } = sought;
        let place = cell.place();
        if found.due != Due::NONE {
            let now = now();
            if found.due.is_over(now) {
                return None;
            }
            if used {
                let entry = Entry::at(&ground.pile, place.to_bits());
                entry.set_due(put_off(entry, found.due, now));
            }
        }
        if used && self.note_hit(ground, hash, cell) {
            self.move_up_locked(ground, &mut state, place);
        }
        Some(found.offset)
    }

    /// Whether a key has a value whose time is not over.
    pub fn contains(&self, sought: Sought<'_>, now: impl Fn() -> u64) -> bool {
        self.end_of(sought).is_some_and(|due| due == Due::NONE || !due.is_over(now()))
    }

    /// When a key's value ends, or has ended; [`Due::NONE`] when it never does.
    pub fn end_of(&self, sought: Sought<'_>) -> Option<Due> {
        let mut buf = ReadBuf::new();
        match self.search(sought, &mut buf, false) {
            Attempt::Found(found, _) => Some(found.due),
            Attempt::Nothing => None,
            Attempt::Changed | Attempt::Stashed => {
                let state = self.lock();
                let id = self.find(&state, sought.ground, sought.image, sought.hash);
                id.map(|id| Entry::at(&sought.ground.pile, id).end())
            }
        }
    }

    /// Reads a key's value under the lock. `None` also where there is no memory to copy it to, as [`ReadBuf::refusal`]
    /// tells.
    pub fn read_under_lock<'a>(
        &'a self,
        state: &'a State,
        sought: Sought<'_>,
        buf: &mut ReadBuf,
    ) -> Option<(Cell<'a>, Found)> {
        buf.let_go();
        self.segments.find_all(&state.stash, sought.hash.kept(), |cell| {
            let found = read_at(&sought.ground.pile, sought.image, cell.place(), buf, true, || true);
            Some((cell, found.ok().flatten()?))
        })
    }

    /// The policy hears of a use.
    #[cold]
    fn move_up(&self, ground: &Ground, hash: KeyHash, cell: Cell<'_>) {
        let mut state = self.lock();
        if self.leads_to(&state, hash, cell.place()) {
            self.move_up_locked(ground, &mut state, cell.place());
        }
    }

    /// Whether an entry of the shard lies at a place where a reader found one. The index says so, and no cell: it may
    /// be of a segment that was given back meanwhile, and be another shard's.
    fn leads_to(&self, state: &State, hash: KeyHash, place: Place) -> bool {
        self.segments.find_all(&state.stash, hash.kept(), |cell| (cell.place() == place).then_some(())).is_some()
    }

    fn move_up_locked(&self, ground: &Ground, state: &mut State, place: Place) {
        let id = place.to_bits();
        let (about, partition) = (Entry::at(&ground.pile, id).about(), partition_of(ground, id));
        let State { cohorts, stash, .. } = state;
        let mut links = Links::with(self, ground, stash);
        let node = links.node(id);
        cohort_in(cohorts, ground.policy, about.priority, partition).queues.touch(&mut links, node);
    }
}

/// The end of an entry that is used now: its idle time begins anew, as far as what else ends it allows.
fn put_off(entry: Entry<'_>, due: Due, now: u64) -> Due {
    let Some(idle) = due.idle() else { return due };
    due.until((now + idle).min(entry.times().end.unwrap_or(u64::MAX)))
}
