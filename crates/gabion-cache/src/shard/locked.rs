//! A locked shard: its lists, its wheel, and entries that leave it.

use std::sync::{Arc, MutexGuard};

use gabion_pile::{Place, Pointer, ReadBuf};

use super::shard::{AtHand, Cohort, Gone, Ground, Links, Reason, Shard, State, cohort_at, cohorts_of, partition_of};
use crate::budget::INDEX_BYTES;
use crate::entry::{Entry, contents};
use crate::key::{Image, KeyHash};
use crate::policy::Id;
use crate::stats::Figure;
use crate::time::{Due, Hooks, Wheel};

/// A locked shard.
pub(crate) struct Locked<'a> {
    pub shard: &'a Shard,
    pub ground: &'a Ground,
    pub state: MutexGuard<'a, State>,
    /// Whether somebody wants to hear of entries that leave.
    pub heard: bool,
    /// An entry that shall not be evicted: a put's, whose key's value must not get lost.
    pub spared: Option<Id>,
    /// The room that a put is about to need in the pile, if it is a slot: the first entry that leaves a slot of this
    /// size leaves it to the put.
    pub wanted: Option<u64>,
    /// The place of an entry that left it to the put. The pile still holds its payload; nothing else leads there.
    pub vacant: Option<Place>,
}

#[cfg(debug_assertions)]
impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let told = self.state.gone.is_empty() || std::thread::panicking();
        assert!(told, "entries left, and nobody was told: let go by `Core::unlock`");
    }
}

impl<'a> Locked<'a> {
    #[inline]
    pub fn entry(&self, id: Id) -> Entry<'a> {
        Entry::at(&self.ground.pile, id)
    }

    /// A key's entry.
    #[inline]
    pub fn find(&self, image: &Image<'_>, hash: KeyHash) -> Option<Id> {
        self.shard.find(&self.state, self.ground, image, hash)
    }

    /// What the entry is charged.
    #[inline]
    pub fn weight(&self, id: Id) -> u64 {
        self.entry(id).stored() + INDEX_BYTES
    }

    /// Has a policy do something to the lists of an entry's cohort.
    #[inline]
    pub fn with_cohort<R>(
        &mut self,
        priority: i8,
        partition: Option<u16>,
        act: impl FnOnce(&mut Cohort, &mut Links<'a, '_>) -> R,
    ) -> R {
        let at = cohort_at(&mut self.state.cohorts, self.ground.policy, priority, partition);
        self.with_cohort_at(at, act)
    }

    /// As [`Locked::with_cohort`], for the cohort that stands at `at`.
    #[inline]
    pub fn with_cohort_at<R>(&mut self, at: usize, act: impl FnOnce(&mut Cohort, &mut Links<'a, '_>) -> R) -> R {
        let State { cohorts, stash, records, .. } = &mut *self.state;
        let cohort = &mut cohorts[at];
        let before = cohort.queues.is_empty();
        let result = act(cohort, &mut Links::with(self.shard, self.ground, stash).sparing(self.spared));
        let after = cohort.queues.is_empty();
        if before != after {
            let (priority, partition) = (cohort.priority, cohort.partition);
            let own = partition.and_then(|table| records[usize::from(table)].own.as_ref());
            for ledger in own.into_iter().chain([&self.ground.ledger]) {
                if after { ledger.priorities.go(priority) } else { ledger.priorities.come(priority) }
            }
            // One cohort is quick to choose from, so those that are no more do not count among several.
            if after {
                cohorts.remove(at);
            }
        }
        result
    }

    /// Whether an entry's time is over.
    pub fn is_over(&self, id: Id, now: u64) -> bool {
        self.entry(id).is_over(|| now)
    }

    pub fn hang(&mut self, id: Id) {
        let State { wheel, stash, .. } = &mut *self.state;
        wheel.hang(&Links::with(self.shard, self.ground, stash), id);
    }

    /// Gives an entry that has an end another one.
    pub fn set_due(&mut self, id: Id, due: Due) {
        let hooks = self.lend_hooks(id, Some(due));
        self.entry(id).set_due(due);
        self.take_hooks(id, hooks);
    }

    pub fn unhang(&mut self, id: Id) {
        let State { wheel, stash, .. } = &mut *self.state;
        wheel.take(&Links::with(self.shard, self.ground, stash), id);
    }

    /// Readies an entry in the wheel, before one with the end `due` is written over it: it keeps its place, which is
    /// returned, or it is taken down.
    pub fn lend_hooks(&mut self, id: Id, due: Option<Due>) -> Option<Hooks> {
        let old = self.entry(id).due()?;
        if due.is_some_and(|due| Wheel::keeps(old, due)) {
            return Some(self.entry(id).hooks());
        }
        self.unhang(id);
        None
    }

    /// Gives an entry that was just written the place of the one before it, or hangs it up by its end, if it has one.
    pub fn take_hooks(&mut self, id: Id, hooks: Option<Hooks>) {
        if let Some((previous, next, bucket)) = hooks {
            self.entry(id).set_hooks(previous, next, bucket);
        } else if self.entry(id).due().is_some() {
            self.hang(id);
        }
    }

    /// Removes an entry, for its caller's reason.
    pub fn remove_entry(&mut self, id: Id, reason: Option<Reason>) {
        let (about, partition) = (self.entry(id).about(), partition_of(self.ground, id));
        let node = AtHand::new(&self.ground.pile, id);
        self.with_cohort(about.priority, partition, |cohort, links| cohort.queues.remove(links, node));
        self.remove_unlisted(node, reason);
    }

    /// How many entries a table with a limit of its own has in the shard.
    pub fn count_own(&self, table: u16) -> u64 {
        let cohorts = &self.state.cohorts;
        cohorts_of(cohorts, Some(table)).map(|at| cohorts[at].queues.len()).sum()
    }

    fn oldest_own(&self, table: u16) -> Option<Id> {
        let cohorts = &self.state.cohorts;
        cohorts_of(cohorts, Some(table)).find_map(|at| cohorts[at].queues.oldest())
    }

    /// Removes up to `most` entries of a table with a limit of its own, for its caller. Returns how many; fewer when
    /// there are no more. Looks at no entries of others: its cohorts lead to its own.
    pub fn remove_own(&mut self, table: u16, most: u64) -> u64 {
        let mut removed = 0;
        while removed < most
            && let Some(id) = self.oldest_own(table)
        {
            self.remove_entry(id, None);
            removed += 1;
        }
        removed
    }

    /// Forgets all entries of the shard; what they took in the pile, and what they are charged, is the caller's to give
    /// back.
    pub fn forget_all(&mut self) {
        let State { stash, wheel, cohorts, records, .. } = &mut *self.state;
        self.shard.segments.clear(stash);
        self.shard.sketches.clear();
        wheel.take_all();
        for cohort in cohorts.drain(..).filter(|cohort| !cohort.queues.is_empty()) {
            let own = cohort.partition.and_then(|table| records[usize::from(table)].own.as_ref());
            own.into_iter().chain([&self.ground.ledger]).for_each(|ledger| ledger.priorities.go(cohort.priority));
        }
    }

    pub fn expire_entry(&mut self, id: Id) {
        self.remove_entry(id, Some(Reason::Expired));
    }

    /// Removes an entry that was taken out of its cohort's queues.
    pub fn remove_unlisted(&mut self, mut node: AtHand<'a>, reason: Option<Reason>) {
        let (id, entry) = (node.id, node.entry);
        let weight = entry.stored() + INDEX_BYTES;
        if entry.due().is_some() {
            self.unhang(id);
        }
        let stash = &mut self.state.stash;
        self.shard.segments.remove(stash, node.spot(self.shard, stash));
        let (_, table, _) = entry.prefix();
        if let Some(reason) = reason.filter(|_| self.heard) {
            let mut buf = ReadBuf::new();
            if let Some((key, value)) = contents(&self.ground.pile, id, &mut buf) {
                let record = Arc::clone(&self.state.records[usize::from(table)]);
                self.state.gone.push(Gone { record, key, value, reason });
            }
        }
        if entry.rest().is_none() && self.wanted == Some(weight - INDEX_BYTES) {
            (self.wanted, self.vacant) = (None, Some(Place::from_bits(id)));
        } else {
            self.discard(id);
        }
        let record = &self.state.records[usize::from(table)];
        let evicted = u64::from(reason == Some(Reason::Evicted));
        let expired = u64::from(reason == Some(Reason::Expired));
        let left = [(Figure::Went, 1), (Figure::BytesOut, weight)];
        record.counters.add_each([left[0], left[1], (Figure::Evicted, evicted), (Figure::Expired, expired)]);
        if let Some(own) = &record.own {
            own.used.give(weight);
        }
        self.earn(weight);
        self.shard.segments.shrink(&mut self.state.stash);
    }

    /// Removes an entry's objects from the pile: nothing leads there any more.
    pub fn discard(&self, id: Id) {
        let rest = self.entry(id).rest();
        self.discard_head(id);
        if let Some((pointer, _)) = rest {
            self.discard_object(pointer);
        }
    }

    /// As [`Locked::discard`], but a second object is another entry's by now.
    pub fn discard_head(&self, id: Id) {
        if let Some(pointer) = self.ground.pile.pointer_at(Place::from_bits(id)) {
            self.discard_object(pointer);
        }
    }

    /// Removes one object from the pile, if it is there.
    pub fn discard_object(&self, pointer: Pointer) {
        let _ = self.ground.pile.remove(pointer);
        self.ground.note_freed();
    }

    /// Removes entries whose time is over, looking at `steps` entries and buckets at most. Returns how many went, and
    /// whether there is more to look at.
    pub fn expire(&mut self, now: u64, mut steps: usize) -> (u64, bool) {
        let mut expired = 0;
        loop {
            let State { wheel, stash, .. } = &mut *self.state;
            let links = Links::with(self.shard, self.ground, stash);
            let Some(id) = wheel.next_due(&links, now, &mut steps) else { return (expired, steps == 0) };
            // What removes it takes it down again.
            wheel.hang(&links, id);
            self.expire_entry(id);
            expired += 1;
        }
    }
}
