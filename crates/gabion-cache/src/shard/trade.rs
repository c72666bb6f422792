//! A put into the place of the entry that goes for it: what nearly every put into a full cache comes to, in one go.

use gabion_pile::Place;

use super::locked::Locked;
use super::request::Request;
use super::shard::{AtHand, Links, Reason, State, find_cohort};
use crate::entry::Entry;
use crate::index::{Segments, Unit};
use crate::policy::Policy;
use crate::stats::Figure;

impl<'a> Locked<'a> {
    /// Stores the value of a key that is not there, and whose hash leads to `segment`, in the slot of the entry that
    /// goes for it. False where that is not all there is to do, or where nobody needs to go: the put takes the long way
    /// then, for which an entry may have gone.
    ///
    /// One entry of the same weight takes the place of another in all counts, so no limit sees either.
    #[inline(never)]
    pub fn trade(&mut self, request: &Request<'_>, segment: Option<&'a Unit>) -> bool {
        let plain = request.layout.rest.is_none() && self.spared.is_none() && !self.heard;
        let (Some(segment), Policy::Sketch, true) = (segment, self.ground.policy, plain) else { return false };
        let Some((at, short)) = self.market(request) else { return false };
        // Early, so that it has reached the cache by the time it is copied in wider pieces: the copy would wait for
        // that.
        let length = request.payload(None, &mut self.state.payload).len();
        let Some(mut node) = self.who_goes(at, request, short) else { return false };
        if !short && !has_slot_of(node.entry, request.layout.stored) {
            self.remove_and_note_empty_cohort(at, request, node);
            return false;
        }
        // All that is asked of the old entry, before the new one is written over it.
        let spot = node.spot(self.shard, &self.state.stash);
        let (table, hooks) = (node.entry.table(), self.lend_hooks(node.id, request.due));
        let place = Place::from_bits(node.id);
        let traded = self.ground.pile.hand_over(place, &self.state.payload[..length]);
        self.take_hooks(node.id, hooks);
        if !traded {
            self.remove_and_note_empty_cohort(at, request, node);
            return false;
        }
        let State { stash, cohorts, records, .. } = &mut *self.state;
        // A reader who comes between finds another key there, and so nothing.
        self.shard.segments.exchange(stash, spot, segment, request.hash.kept(), place);
        let weight = request.weight();
        let mut links = Links::with(self.shard, self.ground, stash);
        cohorts[at].queues.insert_weighed(&mut links, node.anew(), weight);
        let came = [(Figure::Came, 1), (Figure::BytesIn, weight)];
        let went = [(Figure::Went, 1), (Figure::BytesOut, weight), (Figure::Evicted, 1)];
        if table == request.record.id {
            request.record.counters.add_each([came[0], came[1], went[0], went[1], went[2]]);
        } else {
            records[usize::from(table)].counters.add_each(went);
            request.record.counters.add_each(came);
        }
        true
    }

    /// The position of the cohort that this put must evict from, if it is the put's own: its table's, where that is at
    /// its limit, or the only one. And whether pages are short rather than bytes.
    #[inline(always)]
    fn market(&mut self, request: &Request<'_>) -> Option<(usize, bool)> {
        let weight = request.weight();
        // While the index is to grow, or there is room, nobody is in a hurry.
        let settled = !Segments::is_growing(&self.state.stash);
        if let Some(own) = &request.record.own {
            let needs = own.used.used() + weight > own.used.limit() && own.priorities.is_lowest(request.priority);
            if !(needs && settled) {
                return None;
            }
            let at = find_cohort(&self.state.cohorts, request.priority, request.partition()).ok()?;
            return Some((at, false));
        }
        let [cohort] = self.state.cohorts.as_slice() else { return None };
        let alone = cohort.partition.is_none() && cohort.priority == request.priority;
        if !alone || !self.ground.ledger.priorities.is_lowest(request.priority) {
            return None;
        }
        let short = self.lacks_room(request.layout.stored);
        (short || settled && !self.affords(weight)).then_some((0, short))
    }

    /// Whether it is known that the pile has no room for a payload of a slot's size.
    #[inline]
    pub fn lacks_room(&mut self, stored: u64) -> bool {
        let freed = self.ground.freed();
        self.state.shortage.knows(stored, freed)
    }

    /// Whether that many bytes could be charged.
    #[inline]
    pub fn affords(&self, weight: u64) -> bool {
        let used = &self.ground.ledger.used;
        weight <= self.state.credit || used.used() + (weight - self.state.credit) <= used.limit()
    }

    /// Has a cohort's policy let go of an entry: of one whose slot the put could have, where there is no other; of any,
    /// where it is bytes that are short.
    #[inline(always)]
    fn who_goes(&mut self, at: usize, request: &Request<'_>, short: bool) -> Option<AtHand<'a>> {
        let State { stash, cohorts, .. } = &mut *self.state;
        let mut links = Links::with(self.shard, self.ground, stash);
        let fits = |node: AtHand<'_>, weight| !short || weight == request.weight() && node.entry.rest().is_none();
        cohorts[at].queues.evict_like(&mut links, fits)
    }

    /// Removes an entry that was taken out of the queues of the put's cohort, and notes it if that was the last one:
    /// [`Locked::with_cohort_at`], which would have, is too slow for a trade.
    #[cold]
    fn remove_and_note_empty_cohort(&mut self, at: usize, request: &Request<'_>, node: AtHand<'a>) {
        let cohort = &self.state.cohorts[at];
        if cohort.queues.is_empty() {
            for ledger in request.record.own.iter().chain([&self.ground.ledger]) {
                ledger.priorities.go(cohort.priority);
            }
        }
        self.remove_unlisted(node, Some(Reason::Evicted));
    }
}

/// Whether an entry lies in a slot of a size, with all that it has.
#[inline(always)]
fn has_slot_of(entry: Entry<'_>, stored: u64) -> bool {
    entry.rest().is_none() && entry.stored() == stored
}
