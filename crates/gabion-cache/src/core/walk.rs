//! Walks over all entries.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::iter::successors;
use std::ops::ControlFlow;

use gabion_pile::{Place, ReadBuf};

use super::core::Core;
use crate::entry::contents;
use crate::index::partner;
use crate::record::Record;
use crate::shard::Locked;
use crate::stats::Figure;

/// How many entries of a table with a limit of its own are removed while the others wait: about as many as a segment
/// has.
const OWN_AT_A_TIME: u64 = 256;

/// Which segments of a shard a walk looks at, while they are split and merged.
#[derive(Default)]
struct Route {
    /// Those before it were looked at.
    next: u64,
    /// How many there were.
    count: u64,
    /// Those that took in others since they were looked at.
    again: Vec<u64>,
    /// Those from `next` on that were split off from some that had been looked at, in order: all of theirs was seen.
    seen: VecDeque<u64>,
}

impl Route {
    /// The next one, where there are `count` by now.
    fn next(&mut self, count: u64) -> Option<u64> {
        let before = std::mem::replace(&mut self.count, count);
        for gone in count..before {
            let into = successors(Some(gone), |&at| (at > 0).then(|| partner(at))).find(|&at| at < count);
            self.again.extend(into.filter(|&into| self.is_seen(into)));
        }
        while self.seen.back().is_some_and(|&seen| seen >= count) {
            self.seen.pop_back();
        }
        self.again.retain(|&again| again < count);
        for new in before.max(1).max(self.next)..count {
            if self.is_seen(partner(new)) && !self.again.contains(&partner(new)) {
                self.seen.push_back(new);
            }
        }
        self.again.pop().or_else(|| {
            while self.seen.front() == Some(&self.next) {
                self.seen.pop_front();
                self.next += 1;
            }
            let next = self.next;
            self.next += 1;
            (next < count).then_some(next)
        })
    }

    fn is_seen(&self, segment: u64) -> bool {
        segment < self.next || self.seen.binary_search(&segment).is_ok()
    }
}

impl Core {
    /// Locks each shard and has `visit` look at its entries, a segment at a time; calls `unlocked` in between, which
    /// may break off. An entry that is there from beginning to end is seen; it is seen twice only when segments were
    /// merged meanwhile, because others were removed.
    fn walk<S>(
        &self,
        state: &mut S,
        visit: impl Fn(&mut Locked<'_>, &[Place], &mut S),
        unlocked: impl Fn(&mut S) -> ControlFlow<()>,
    ) {
        for shard in 0..self.shard_count() {
            let mut route = Route::default();
            loop {
                let mut locked = self.lock(shard);
                let Some(segment) = route.next(locked.shard.segments.count()) else {
                    // What taking the lock has expired is told of, too.
                    self.unlock(locked);
                    break;
                };
                let places = locked.shard.segments.places(&locked.state.stash, segment);
                // Memory answers for all of them at one time: they lie anywhere.
                for &place in &places {
                    self.pile().prefetch_at(place);
                }
                visit(&mut locked, &places, state);
                self.unlock(locked);
                if unlocked(state).is_break() {
                    return;
                }
            }
        }
    }

    /// Removes the entries of a table, or all. Returns how many.
    pub fn clear(&self, record: Option<&Record>) -> u64 {
        self.clear_at_once(record).unwrap_or_else(|| self.clear_each(record))
    }

    /// Removes all entries, if there are none but the table's, in time that goes with the memory that they take, not
    /// with their number. All others wait meanwhile who change the cache.
    fn clear_at_once(&self, record: Option<&Record>) -> Option<u64> {
        // All locks at one time, in their order, as `validate` takes them.
        let mut all: Vec<_> = (0..self.shard_count()).map(|shard| self.lock_only(shard)).collect();
        let records = self.read_records();
        let is_asked = |other: &Record| record.is_none_or(|record| record.id == other.id);
        if record.is_some_and(|record| record.counters.entries() == 0) {
            // As tables of functions often are, in a cache that is full of others.
            for locked in &mut all {
                locked.state.leases.end_all(record.map(|record| record.id));
            }
            return Some(0);
        }
        if records.all.iter().any(|other| !is_asked(other) && other.counters.entries() > 0) {
            return None;
        }
        for locked in &mut all {
            locked.state.leases.end_all(record.map(|record| record.id));
            locked.forget_all();
        }
        let ground = self.ground();
        ground.pile.clear();
        ground.note_freed();
        let removed = records.all.iter().map(|record| {
            // Under all locks nothing comes or goes.
            let (entries, bytes) = (record.counters.entries(), record.counters.bytes());
            record.counters.add_each([(Figure::Went, entries), (Figure::BytesOut, bytes), (Figure::Removed, entries)]);
            for ledger in record.own.iter().chain([&ground.ledger]) {
                ledger.used.give(bytes);
            }
            entries
        });
        Some(removed.sum())
    }

    /// As [`Core::clear`], one by one: the others find the cache free in between.
    fn clear_each(&self, record: Option<&Record>) -> u64 {
        for shard in 0..self.shard_count() {
            self.lock_only(shard).state.leases.end_all(record.map(|record| record.id));
        }
        let mut removed = 0;
        if let Some(record) = record.filter(|record| record.own.is_some())
            && self.clear_own(record, &mut removed)
        {
            return removed;
        }
        let visit = |locked: &mut Locked<'_>, places: &[Place], removed: &mut u64| {
            for place in places {
                let id = place.to_bits();
                let (_, table, _) = locked.entry(id).prefix();
                if record.is_none_or(|record| record.id == table) {
                    locked.remove_entry(id, None);
                    locked.state.records[usize::from(table)].counters.count(Figure::Removed);
                    *removed += 1;
                }
            }
        };
        let is_done = |_: &mut u64| {
            // First without the locks, where it may be off by what others are at.
            let is_done = record.is_some_and(|record| record.counters.entries() == 0 && self.has_none(record));
            if is_done { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        self.walk(&mut removed, visit, is_done);
        removed
    }

    /// Removes the entries of a table with a limit of its own, in time that goes with them alone, and counts how many.
    /// False: others put in new ones as fast, and some may be left that were there from the beginning.
    fn clear_own(&self, record: &Record, removed: &mut u64) -> bool {
        (0..self.shard_count()).all(|shard| {
            // Those that are there now, and as many again that are put or moved meanwhile; and one to see that there
            // are none.
            let mut left = 2 * self.lock_only(shard).count_own(record.id) + 1;
            loop {
                let step = left.min(OWN_AT_A_TIME);
                let mut locked = self.lock(shard);
                let went = locked.remove_own(record.id, step);
                self.unlock(locked);
                record.counters.add_each([(Figure::Removed, went)]);
                *removed += went;
                left -= went;
                if went < step || left == 0 {
                    return went < step;
                }
            }
        })
    }

    /// Whether a table has no entries. Takes all locks.
    fn has_none(&self, record: &Record) -> bool {
        let _all: Vec<_> = (0..self.shard_count()).map(|shard| self.lock_only(shard)).collect();
        record.counters.entries() == 0
    }

    /// Removes all entries whose time is over. Returns how many.
    pub fn expire(&self) -> u64 {
        let now = self.now();
        let each = |shard: usize| {
            let (mut expired, mut current) = (0, false);
            loop {
                let mut locked = self.lock_only(shard);
                let (went, more) = locked.expire(now, 4096);
                let done = !more && current;
                if !more && !current {
                    locked.state.wheel.open_current();
                    current = true;
                }
                self.unlock(locked);
                expired += went;
                if done {
                    return expired;
                }
            }
        };
        (0..self.shard_count()).map(each).sum()
    }

    /// Calls `take` with each key of a table, some at a time, beside running writers, until it breaks off. Each key
    /// that is there from begin to end is given, and given twice only when others are removed meanwhile.
    pub fn keys(&self, record: &Record, mut take: impl FnMut(&[u8]) -> ControlFlow<()>) {
        self.keys_of(&[record], |_, key| take(key));
    }

    /// As [`Core::keys`], of several tables in one walk. With each key comes which of the tables has it.
    pub fn keys_of(&self, records: &[&Record], take: impl FnMut(usize, &[u8]) -> ControlFlow<()>) {
        let last = records.iter().map(|record| usize::from(record.id)).max();
        let mut of_id = vec![None; last.map_or(0, |last| last + 1)];
        for (number, record) in records.iter().enumerate() {
            of_id[usize::from(record.id)] = Some(number);
        }
        let visit = |locked: &mut Locked<'_>, places: &[Place], keys: &mut Vec<(usize, Vec<u8>)>| {
            let now = if locked.state.wheel.entries > 0 { self.now() } else { 0 };
            let mut buf = ReadBuf::new();
            for id in places.iter().map(|place| place.to_bits()) {
                let asked = of_id.get(usize::from(locked.entry(id).prefix().1)).copied().flatten();
                if let Some(number) = asked.filter(|_| !locked.is_over(id, now)) {
                    keys.extend(contents(self.pile(), id, &mut buf).map(|(key, _)| (number, key)));
                }
            }
        };
        let take = RefCell::new(take);
        self.walk(&mut Vec::new(), visit, |keys| {
            keys.drain(..).try_for_each(|(number, key)| take.borrow_mut()(number, &key))
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::Parts;

    /// Keys by a number that stands for their hash, some of which a walk meets while segments are split and merged
    /// between its steps: each is met, and more than once only where segments were merged.
    #[test]
    fn every_key_is_met_and_only_merges_have_it_met_again() {
        let mut random = 88_172_645_463_325_252_u64;
        let mut below = |most: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % most
        };
        for round in 0..2000 {
            let grows_only = round % 2 == 0;
            let mut count = 1 + below(40);
            let (mut route, mut met) = (Route::default(), [0_u32; 256]);
            let mut steps = 0;
            while let Some(segment) = route.next(count) {
                steps += 1;
                for (hash, met) in met.iter_mut().enumerate() {
                    *met += u32::from(Parts::of(count).address(hash as u64) as u64 == segment);
                }
                match below(if grows_only { 2 } else { 3 }) {
                    // As many merges as looks would go on for ever.
                    _ if steps > 100 => {}
                    0 => count = (count + below(9)).min(150),
                    2 => count = count.saturating_sub(below(30)).max(1),
                    _ => {}
                }
            }
            assert!(met.iter().all(|&met| met > 0), "round {round}: some are not met");
            assert!(!grows_only || met.iter().all(|&met| met == 1), "round {round}: some are met again");
        }
    }
}
