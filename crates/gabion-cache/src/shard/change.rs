//! A put into a shard, under its lock.

use gabion_blocks::{BlockError, Piece};
use gabion_pile::{PileError, Place, Pointer, SLOT_PAYLOAD, Value};

use super::locked::Locked;
use super::request::{Lack, Progress, Request, Step, When};
use super::shard::{State, partition_of};
use crate::entry::stored;
use crate::index::Unit;
use crate::policy::{Id, Nodes, Policy};
use crate::stats::Figure;
use crate::time::now;

impl<'a> Locked<'a> {
    /// Stores a value, as far as this shard alone can make room for it. `sure`: room can be made.
    #[inline(never)]
    pub fn put(&mut self, request: &Request<'_>, progress: &mut Progress, sure: bool) -> Step {
        self.wanted = request.layout.rest.is_none().then_some(request.layout.stored);
        let step = match self.find_and_put(request, progress, sure).unwrap_or_else(Step::Lacks) {
            Step::Inserted if std::mem::take(&mut progress.taken) => Step::Replaced,
            Step::Inserted if progress.met => Step::Renewed,
            step => step,
        };
        self.wanted = None;
        if let Some(place) = self.vacant.take() {
            self.discard(place.to_bits());
        }
        step
    }

    #[inline(always)]
    fn find_and_put(&mut self, request: &Request<'_>, progress: &mut Progress, sure: bool) -> Result<Step, Lack> {
        if let When::Leased(number) = request.when
            && !self.state.leases.holds(request.hash.0, number)
        {
            return Ok(Step::Unwanted);
        }
        // Memory answers while the key is looked for.
        let ahead = self.shard.sketches.ahead(request.hash.kept());
        let (found, segment) = self.find_live(request);
        self.spared = found;
        if let Some(id) = found {
            if request.when == When::Absent {
                return Ok(Step::Unwanted);
            }
            self.note_change(request);
            progress.met = true;
            if self.overwrite(request, id) {
                return Ok(Step::Replaced);
            }
            self.touch(id);
            self.promote(request, id);
        } else if request.when == When::Touched {
            return Ok(Step::Unwanted);
        } else {
            self.note_change(request);
        }
        let hollow = found.filter(|&id| request.layout.rest.is_some() && self.hollow_out(request, id));
        if self.ground.policy == Policy::Sketch {
            self.shard.sketches.note_put(self.state.stash.entries, request.hash.kept(), ahead);
        } else if found.is_none() && self.ground.policy == Policy::S3Fifo {
            progress.had_ghost |= self.take_ghost(request.hash.kept());
        }
        if found.is_none() && self.trade(request, segment) {
            return Ok(Step::Inserted);
        }
        let step = self.charge_and_write(request, found, progress.had_ghost, sure);
        let (Some(id), Err(_)) = (hollow, &step) else { return step };
        self.spared = None;
        self.remove_entry(id, None);
        progress.taken = true;
        // What is left of it leaves room, too.
        self.charge_and_write(request, None, progress.had_ghost, sure)
    }

    #[inline]
    fn charge_and_write(
        &mut self,
        request: &Request<'_>,
        found: Option<Id>,
        had_ghost: bool,
        sure: bool,
    ) -> Result<Step, Lack> {
        self.charge(request, sure)?;
        self.write(request, found, had_ghost).inspect_err(|_| self.uncharge(request))
    }

    /// Lets go of the second object of the key's entry, where there is no room for the new value beside it, but in its
    /// place: no other entry has to go then. A thread that reads the key meanwhile looks again until the new value is
    /// there.
    #[cold]
    fn hollow_out(&mut self, request: &Request<'_>, id: Id) -> bool {
        let (entry, ground) = (self.entry(id), self.ground);
        let (Some(length), Some((pointer, weight))) = (request.layout.rest, entry.rest()) else { return false };
        let own = request.record.own.as_ref();
        let affords = self.affords(request.weight()) && own.is_none_or(|own| own.used.room() >= request.weight());
        let tight = ground.memory.room() < stored(length) || !affords;
        // A key that lies there, too, is what the entry is found by.
        let found_without = entry.begins_with(request.image) == Some(request.image.len());
        let goes = length > SLOT_PAYLOAD && weight >= stored(length) && tight && found_without;
        if goes {
            self.discard_object(pointer);
        }
        goes
    }

    /// What others are making of the key's former state is not to be stored any more.
    #[inline(always)]
    fn note_change(&mut self, request: &Request<'_>) {
        if matches!(request.when, When::Always | When::Absent) {
            self.state.leases.end_key(request.hash.0);
        }
    }

    /// The policy hears of a use.
    fn touch(&mut self, id: Id) {
        let about = self.entry(id).about();
        let partition = partition_of(self.ground, id);
        // What counts no hits has none counted: readers know worn cells for such as need nothing noted.
        if self.ground.policy.counts_hits() {
            let State { stash, .. } = &*self.state;
            self.shard.segments.cell_of(stash, self.entry(id).kept(), Place::from_bits(id)).hit();
        }
        self.with_cohort(about.priority, partition, |cohort, links| cohort.queues.touch(links, links.node(id)));
    }

    /// The key's entry; one that has expired is removed. And the segment that the key's hash leads to.
    #[inline]
    fn find_live(&mut self, request: &Request<'_>) -> (Option<Id>, Option<&'a Unit>) {
        let shard = self.shard;
        let segment = shard.segments.segment(request.hash.kept());
        let found = shard.find_in(segment, &self.state, self.ground, request.image, request.hash);
        // A put without an end has not asked for the time.
        if let Some(id) = found
            && self.entry(id).is_over(|| now(&**request.clock))
        {
            self.expire_entry(id);
            return (None, shard.segments.segment(request.hash.kept()));
        }
        (found, segment)
    }

    /// Replaces a value by one of the same weight, in place.
    fn overwrite(&mut self, request: &Request<'_>, id: Id) -> bool {
        let entry = self.entry(id);
        if request.layout.rest.is_some() || entry.rest().is_some() || entry.stored() != request.layout.stored {
            return false;
        }
        // What leaves the lists does so before its links are written over.
        let (about, queue, links) = (entry.about(), entry.queue(), entry.links());
        let partition = partition_of(self.ground, id);
        let hooks = self.lend_hooks(id, request.due);
        let pointer = self.ground.pile.pointer_at(Place::from_bits(id)).expect("an entry is in the cache's pile");
        let State { payload, .. } = &mut *self.state;
        let payload = request.payload(None, payload);
        // The same words in the same slot: this cannot fail for lack of room.
        self.ground.pile.replace(pointer, payload).expect("an entry's payload fits its own slot");
        entry.set_links(links.0, links.1);
        entry.set_queue(queue);
        self.take_hooks(id, hooks);
        self.move_to_priority(request, id, about.priority, partition);
        self.touch(id);
        true
    }

    /// Gives the key's entry the priority of its new value ahead of that. It makes no room, and is not to be the only
    /// one of the lowest priority, whose turn it would be.
    fn promote(&mut self, request: &Request<'_>, id: Id) {
        let (entry, partition) = (self.entry(id), partition_of(self.ground, id));
        let before = entry.about().priority;
        entry.set_priority(request.priority);
        self.move_to_priority(request, id, before, partition);
    }

    /// Moves an entry that has another priority by now to the cohort of that.
    fn move_to_priority(&mut self, request: &Request<'_>, id: Id, before: i8, partition: Option<u16>) {
        if before != request.priority {
            self.with_cohort(before, partition, |cohort, links| cohort.queues.remove(links, links.node(id)));
            self.with_cohort(request.priority, partition, |cohort, links| {
                let mut node = links.node(id);
                links.set_hits(&mut node, 0);
                cohort.queues.insert(links, node, false);
            });
        }
    }

    /// Puts the payload into the pile and the entry into the index.
    fn write(&mut self, request: &Request<'_>, found: Option<Id>, had_ghost: bool) -> Result<Step, Lack> {
        let place = self.put_entry(request)?;
        if let Some(id) = found {
            self.swap(request, id, place);
            return Ok(Step::Replaced);
        }
        self.insert(request, place, had_ghost).map_err(|error| {
            // The index could not grow.
            self.discard(place.to_bits());
            Lack::Pages(error)
        })?;
        Ok(Step::Inserted)
    }

    /// Puts an entry's payload, in one or two objects.
    #[inline]
    fn put_entry(&mut self, request: &Request<'_>) -> Result<Place, Lack> {
        if let Some(length) = request.layout.rest {
            return self.put_split(request, length);
        }
        let mut payload = std::mem::take(&mut self.state.payload);
        let bytes = request.payload(None, &mut payload);
        let result = match self.take_over(bytes) {
            Some(place) => Ok(place),
            None => self.put_payload(request, Value::Whole(bytes), bytes.len()).map(Pointer::to_place),
        };
        self.state.payload = payload;
        result
    }

    /// Puts an entry's payload as two objects, the second of which has `length` bytes.
    #[cold]
    fn put_split(&mut self, request: &Request<'_>, length: usize) -> Result<Place, Lack> {
        if let Some(rest) = request.rest {
            return self.put_head(request, rest);
        }
        let key = if request.value.len() == length { &[][..] } else { request.image.key };
        let pointer = match request.value {
            whole if key.is_empty() => self.put_payload(request, whole, length),
            Value::Whole(value) if length <= SLOT_PAYLOAD => {
                self.put_payload(request, Value::Whole(&[key, value].concat()), length)
            }
            Value::Whole(value) => self.put_payload(request, (&[key, value]).into(), length),
            Value::Pieces(pieces) => {
                self.put_payload(request, Value::Pieces(&[&[Piece::from(key)], pieces].concat()), length)
            }
        }?;
        self.put_head(request, (pointer, stored(length))).inspect_err(|_| self.discard_object(pointer))
    }

    /// Puts the payload that leads to a second object.
    fn put_head(&mut self, request: &Request<'_>, rest: (Pointer, u64)) -> Result<Place, Lack> {
        let mut payload = std::mem::take(&mut self.state.payload);
        let bytes = request.payload(Some(rest), &mut payload);
        let result = self.put_payload(request, Value::Whole(bytes), bytes.len()).map(Pointer::to_place);
        self.state.payload = payload;
        result
    }

    /// Puts a payload of a length where there is room at hand, or where an entry of its kind that was about to go
    /// leaves some.
    #[inline]
    fn put_payload(&mut self, request: &Request<'_>, payload: Value<'_>, length: usize) -> Result<Pointer, Lack> {
        let (ground, stored) = (self.ground, stored(length));
        let pile = &ground.pile;
        if !self.lacks_room(stored) {
            let freed = ground.freed();
            match pile.try_put_pieces(payload) {
                Ok(pointer) => return Ok(pointer),
                Err(_) => self.state.shortage.note(stored, freed),
            }
        }
        let lowest = ground.ledger.priorities.lowest(request.priority);
        // Where the order is exact, no entry goes before its turn.
        if !ground.policy.is_exact() && lowest.is_some_and(|lowest| self.evict_like(request, lowest)) {
            // What lies in pieces is longer than any slot.
            let taken = if let Value::Whole(whole) = payload { self.take_over(whole) } else { None };
            let taken = taken.and_then(|place| pile.pointer_at(place));
            if let Ok(pointer) = taken.map_or_else(|| pile.try_put_pieces(payload), Ok) {
                return Ok(pointer);
            }
        }
        pile.put_beside(payload).map_err(|error| match error {
            PileError::Memory { cause, .. } => Lack::Pages(cause),
            _ => Lack::Room,
        })
    }

    /// Puts a payload into the slot that an entry left to it, if one did.
    #[inline]
    fn take_over(&mut self, payload: &[u8]) -> Option<Place> {
        let place = self.vacant.filter(|&place| self.ground.pile.hand_over(place, payload))?;
        self.vacant = None;
        Some(place)
    }

    /// Puts an entry's payload into another slot that `fits`; false when there is none.
    pub fn move_out(&mut self, id: Id, fits: impl Fn(Place) -> bool) -> bool {
        let (entry, partition) = (self.entry(id), partition_of(self.ground, id));
        let pile = &self.ground.pile;
        let Ok(pointer) = pile.put_beside(Value::Whole(&entry.bytes())) else { return false };
        let to = pointer.to_place();
        if !fits(to) {
            self.discard_object(pointer);
            return false;
        }
        if entry.due().is_some() {
            self.unhang(id);
            self.hang(to.to_bits());
        }
        self.relocate(id, to, partition);
        if let Some(pointer) = pile.pointer_at(Place::from_bits(id)) {
            self.discard_object(pointer);
        }
        true
    }

    /// The lists and the index lead to another place, where the entry's links were copied.
    fn relocate(&mut self, id: Id, to: Place, partition: Option<u16>) {
        let entry = self.entry(id);
        let priority = entry.about().priority;
        self.with_cohort(priority, partition, |cohort, links| {
            cohort.queues.renumber(links, id, links.node(to.to_bits()));
        });
        let place = Place::from_bits(id);
        self.shard.segments.cell_of(&self.state.stash, entry.kept(), place).lead_to(to);
    }

    /// Gives a key another entry in place of its old one. Readers see the old value or the new.
    fn swap(&mut self, request: &Request<'_>, id: Id, place: Place) {
        let (entry, new) = (self.entry(id), self.entry(place.to_bits()));
        let (priority, partition) = (entry.about().priority, partition_of(self.ground, id));
        let (old_weight, weight, carried) = (self.weight(id), request.weight(), self.carried(request));
        let (newer, older) = entry.links();
        new.set_links(newer, older);
        new.set_queue(entry.queue());
        if entry.due().is_some() {
            self.unhang(id);
        }
        let to = place.to_bits();
        self.with_cohort(priority, partition, |cohort, links| cohort.queues.reweigh(links, links.node(id), weight));
        self.relocate(id, place, partition);
        if request.rest.is_some() {
            self.discard_head(id);
        } else {
            self.discard(id);
        }
        self.spared = None;
        if let Some(own) = &request.record.own {
            own.used.give(old_weight - carried);
        }
        request.record.counters.add_each([(Figure::BytesOut, old_weight), (Figure::BytesIn, weight)]);
        self.earn(old_weight - carried);
        self.take_hooks(to, None);
    }

    fn insert(&mut self, request: &Request<'_>, place: Place, had_ghost: bool) -> Result<(), BlockError> {
        let id = place.to_bits();
        self.shard.segments.insert(&mut self.state.stash, request.hash.kept(), place)?;
        if request.due.is_some() {
            self.hang(id);
        }
        self.with_cohort(request.priority, request.partition(), |cohort, links| {
            cohort.queues.insert(links, links.node(id), had_ghost);
        });
        request.record.counters.add_each([(Figure::Came, 1), (Figure::BytesIn, request.weight())]);
        Ok(())
    }
}
