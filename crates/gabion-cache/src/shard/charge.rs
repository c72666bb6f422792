//! Bytes under a shard's lock: charging a put, and making room for it.

use super::locked::Locked;
use super::request::{Lack, Request};
use super::shard::{AtHand, Cohort, Reason, cohorts_of, partition_of};
use crate::budget::{INDEX_BYTES, Ledger};
use crate::entry::{Entry, stored};
use crate::index::GHOST_BYTES;
use crate::key::{Image, KeyHash};
use crate::policy::Nodes;

/// Bytes of the largest slot.
const MOST_SLOT: u64 = gabion_heap::MAX_SLOT_WORDS as u64 * 8;

/// Entries that go under one lock for what is over a limit that was lowered.
const BATCH: u32 = 64;

impl Locked<'_> {
    /// Keeps the key's entry from being evicted: it stays until the new one is there, and makes no room for it but its
    /// own.
    pub fn spare(&mut self, image: &Image<'_>, hash: KeyHash) {
        self.spared = self.find(image, hash);
    }

    /// Bytes of a put that the key's spared entry is charged already.
    pub fn carried(&self, request: &Request<'_>) -> u64 {
        self.spared.map_or(0, |id| self.weight(id).min(request.weight()))
    }

    /// Charges what the put weighs to the table and the cache, making room for it.
    #[inline]
    pub fn charge(&mut self, request: &Request<'_>, sure: bool) -> Result<(), Lack> {
        if request.record.own.is_none() {
            let weight = request.weight() - self.carried(request);
            // Nearly always one entry makes room for one of its kind.
            if self.draw(weight) || self.swap_out(request.priority, weight) && self.draw(weight) {
                return Ok(());
            }
        }
        self.charge_by_evicting(request, sure)
    }

    /// Evicts one entry where nothing else can be the answer: all entries of the shard are in one cohort, which has the
    /// bytes that the put needs, and no priority is lower. False when that is not so.
    #[inline]
    fn swap_out(&mut self, priority: i8, needed: u64) -> bool {
        let [cohort] = self.state.cohorts.as_slice() else { return false };
        let lowest =
            cohort.priority <= priority && self.ground.ledger.priorities.lowest(priority) == Some(cohort.priority);
        let enough = cohort.partition.is_none() && self.bytes_to_go(cohort) >= needed;
        lowest && enough && self.evict_from(0)
    }

    #[inline(never)]
    fn charge_by_evicting(&mut self, request: &Request<'_>, sure: bool) -> Result<(), Lack> {
        let weight = request.weight() - self.carried(request);
        let own = request.record.own.as_ref();
        if own.is_none_or(|own| own.used.take(weight).is_ok()) {
            if self.draw(weight) {
                return Ok(());
            }
            if let Some(own) = own {
                own.used.give(weight);
            }
        }
        let whole = request.weight();
        let too_large = |ledger: &Ledger| whole > ledger.used.limit();
        if too_large(&self.ground.ledger) || own.is_some_and(too_large) || !self.ground.may_hold(request.layout.rest) {
            return Err(Lack::Room);
        }
        let ghosts = if own.is_none() { self.ghost_bytes() } else { 0 };
        if !sure && !self.could_evict(request.priority, request.partition(), weight.saturating_sub(ghosts)) {
            return Err(Lack::Unsure(weight));
        }
        if let Some(own) = own {
            while own.used.take(weight).is_err() {
                self.make_room(request, true)?;
            }
        }
        let used = &self.ground.ledger.used;
        let mut left = BATCH;
        while !self.draw(weight) {
            let mut made = self.make_room(request, false);
            if used.used() > used.limit() {
                // The limit was lowered just now. What is over it is not this put's to evict in one go: others wait.
                left -= 1;
                let priority = request.priority;
                made = made.and(if left > 0 { Ok(()) } else { Err(Lack::Elsewhere { priority, table_only: false }) });
            }
            if let Err(lack) = made {
                if let Some(own) = own {
                    own.used.give(weight);
                }
                return Err(lack);
            }
        }
        Ok(())
    }

    /// Bytes of the shard's entries up to a priority: of a table with a limit of its own, or of all.
    pub fn evictable(&self, priority: i8, only: Option<u16>) -> u64 {
        self.each_evictable(priority, only).sum()
    }

    /// Whether these are that many. Looks at no more cohorts than that takes: there may be thousands.
    fn could_evict(&self, priority: i8, only: Option<u16>, bytes: u64) -> bool {
        let mut found = 0;
        bytes == 0
            || self.each_evictable(priority, only).any(|more| {
                found += more;
                found >= bytes
            })
    }

    /// The bytes of each cohort up to a priority: of a table with a limit of its own, or of all.
    fn each_evictable(&self, priority: i8, only: Option<u16>) -> impl Iterator<Item = u64> {
        let cohorts = &self.state.cohorts;
        let own = only.map(|_| cohorts_of(cohorts, only));
        let all = only.is_none().then_some(0..cohorts.len());
        let each = own.into_iter().flatten().chain(all.into_iter().flatten()).map(|at| &cohorts[at]);
        each.take_while(move |cohort| cohort.priority <= priority).map(|cohort| self.bytes_to_go(cohort))
    }

    /// Bytes of a cohort's entries, except for the one that is spared.
    #[inline]
    fn bytes_to_go(&self, cohort: &Cohort) -> u64 {
        let Some(id) = self.spared else { return cohort.queues.bytes() };
        let of_cohort = (self.entry(id).about().priority, partition_of(self.ground, id));
        let spared = of_cohort == (cohort.priority, cohort.partition);
        cohort.queues.bytes() - if spared { self.weight(id) } else { 0 }
    }

    /// Takes bytes that this shard has charged, or that nobody has.
    #[inline]
    fn draw(&mut self, weight: u64) -> bool {
        let lacking = weight.saturating_sub(self.state.credit);
        if lacking > 0 && self.ground.ledger.used.take(lacking).is_err() {
            return false;
        }
        self.state.credit -= weight - lacking;
        true
    }

    /// Bytes that no entry needs any more.
    pub fn earn(&mut self, bytes: u64) {
        self.state.credit += bytes;
        if self.state.credit > self.ground.most_credit() {
            self.return_credit();
        }
    }

    /// Gives up what is charged and unused. Returns how much that was.
    pub fn return_credit(&mut self) -> u64 {
        let credit = std::mem::take(&mut self.state.credit);
        if credit > 0 {
            self.ground.ledger.used.give(credit);
        }
        credit
    }

    pub fn uncharge(&mut self, request: &Request<'_>) {
        let weight = request.weight() - self.carried(request);
        if let Some(own) = &request.record.own {
            own.used.give(weight);
        }
        self.earn(weight);
    }

    /// Evicts an entry of the lowest priority that there is in the table or the cache, as far as this shard goes.
    fn make_room(&mut self, request: &Request<'_>, table_only: bool) -> Result<(), Lack> {
        let own = request.record.own.as_ref().filter(|_| table_only);
        let ledger: &Ledger = own.unwrap_or(&self.ground.ledger);
        let only = table_only.then_some(request.record.id);
        let lowest = ledger.priorities.lowest(request.priority);
        if lowest.is_some_and(|priority| self.evict(priority, only)) || !table_only && self.forget() {
            return Ok(());
        }
        Err(lowest.map_or(Lack::Room, |priority| Lack::Elsewhere { priority, table_only }))
    }

    /// Bytes that ghosts are charged.
    pub fn ghost_bytes(&self) -> u64 {
        self.state.ghosts.as_ref().map_or(0, |ghosts| ghosts.charged())
    }

    /// Forgets the oldest ghost; false when there is none.
    pub fn forget(&mut self) -> bool {
        let forgot = self.state.ghosts.as_mut().is_some_and(|ghosts| ghosts.forget());
        if forgot {
            self.earn(GHOST_BYTES);
        }
        forgot
    }

    /// Whether a key that is about to be put had a ghost, which goes.
    #[cold]
    pub fn take_ghost(&mut self, kept: u64) -> bool {
        let had = self.state.ghosts.as_mut().is_some_and(|ghosts| ghosts.take(kept));
        if had {
            self.earn(GHOST_BYTES);
        }
        had
    }

    /// Remembers the key of an entry that was just let go of. Its own bytes pay for that.
    #[cold]
    fn remember(&mut self, kept: u64, weight: u64, most: u64) {
        if !self.draw(GHOST_BYTES) {
            return;
        }
        let Some(ghosts) = self.state.ghosts.as_mut() else { return self.earn(GHOST_BYTES) };
        let before = ghosts.len();
        ghosts.add(kept, weight, most);
        let forgotten = before + 1 - ghosts.len();
        self.earn(forgotten * GHOST_BYTES);
    }

    /// Evicts one entry of a priority: of a table with a limit of its own, or of whichever cohort has most. False when
    /// there is none here.
    pub fn evict(&mut self, priority: i8, only: Option<u16>) -> bool {
        // Nearly always there is one cohort.
        let found = match self.state.cohorts.as_slice() {
            [cohort] if cohort.priority == priority && (only.is_none() || cohort.partition == only) => Some(0),
            _ => self.fullest(priority, only),
        };
        found.is_some_and(|at| self.evict_from(at))
    }

    /// Evicts one entry of the cohort that stands at `at`.
    #[inline(never)]
    fn evict_from(&mut self, at: usize) -> bool {
        let state = &*self.state;
        // The number of shards is a power of two.
        let share = |limit: u64| limit >> self.ground.shards.trailing_zeros();
        let all = share(self.ground.ledger.used.limit()).saturating_sub(self.ghost_bytes());
        let capacity = match state.cohorts[at].partition {
            Some(table) => state.records[table as usize].own.as_ref().map_or(0, |own| share(own.used.limit())),
            None => all,
        };
        let evicted = self.with_cohort_at(at, |cohort, links| {
            let node = cohort.queues.evict(links, capacity)?;
            // All tables and priorities have their ghosts in one queue.
            let most = cohort.queues.ghosts(links.queue(node), all);
            Some((node, most.map(|most| (node.entry.kept(), links.weight(node), most))))
        });
        let Some((node, ghost)) = evicted else { return false };
        self.remove_unlisted(node, Some(Reason::Evicted));
        if let Some((kept, weight, most)) = ghost {
            self.remember(kept, weight, most);
        }
        true
    }

    /// The cohort of a priority that has most to give: of a table with a limit of its own, or of all.
    #[cold]
    fn fullest(&self, priority: i8, only: Option<u16>) -> Option<usize> {
        let (mut most, mut found) = (0, None);
        for (at, cohort) in self.state.cohorts.iter().enumerate() {
            if cohort.priority == priority && (only.is_none() || cohort.partition == only) {
                let bytes = self.bytes_to_go(cohort);
                if bytes > 0 && bytes >= most {
                    (most, found) = (bytes, Some(at));
                }
            }
        }
        found
    }

    /// Evicts one entry of a priority whose place in the pile is of the kind that the put needs, if one is about to go.
    pub fn evict_like(&mut self, request: &Request<'_>, priority: i8) -> bool {
        let has = |cohort: &Cohort| cohort.priority == priority && cohort.queues.bytes() > 0;
        (0..self.state.cohorts.len()).any(|at| has(&self.state.cohorts[at]) && self.evict_like_from(at, request))
    }

    #[inline]
    fn evict_like_from(&mut self, at: usize, request: &Request<'_>) -> bool {
        let fits = |node: AtHand<'_>, _| makes_place_for(node.entry, request);
        let found = self.with_cohort_at(at, |cohort, links| cohort.queues.evict_like(links, fits));
        let Some(node) = found else { return false };
        self.remove_unlisted(node, Some(Reason::Evicted));
        true
    }
}

/// Whether an entry's place would do for what a put writes.
fn makes_place_for(entry: Entry<'_>, request: &Request<'_>) -> bool {
    match (entry.rest(), request.layout.rest) {
        (None, None) => entry.stored() == request.layout.stored,
        (None, Some(_)) if request.rest.is_some() => entry.stored() + INDEX_BYTES == request.fresh(),
        // A slot does for its own class only, room beyond slots for all that is smaller.
        (Some((_, weight)), Some(rest)) if stored(rest) <= MOST_SLOT => weight == stored(rest),
        (Some((_, weight)), Some(rest)) => weight >= stored(rest),
        _ => false,
    }
}
