//! Changes to a shard, under its lock.

use std::sync::MutexGuard;
use std::sync::atomic::Ordering::Relaxed;

use gabion_blocks::BlockError;
use gabion_pile::{PileError, Pointer, ReadBuf};

use crate::budget::{Ledger, weight};
use crate::entries::{About, Entries};
use crate::hash::KeyHash;
use crate::key::Image;
use crate::policy::Mode;
use crate::record::Record;
use crate::shard::{Gone, Ground, Group, Reason, Shard, State, no_pointer};
use crate::stats::count;
use crate::wheel::Due;

/// A put, ready to be stored.
pub(crate) struct Request<'a> {
    pub record: &'a Record,
    pub image: &'a Image,
    pub hash: KeyHash,
    pub payload: &'a [u8],
    pub due: Option<Due>,
    pub priority: i8,
    /// Only when the key is not there.
    pub absent: bool,
    pub now: u64,
}

impl Request<'_> {
    pub fn weight(&self) -> u64 {
        weight(self.payload.len(), self.due.is_some())
    }

    fn about(&self) -> About {
        let (table, own) = (self.record.id, self.record.own.is_some());
        About { table, priority: self.priority, own, timed: self.due.is_some() }
    }
}

/// How far a put came.
pub(crate) enum Step {
    Inserted,
    Replaced,
    /// The key is there, and the put is for absent keys only.
    Present,
    /// Entries of this priority (of the table, or of all) must go first, and this shard has none.
    Elsewhere {
        priority: i8,
        table_only: bool,
    },
    /// No room can be made.
    Refused,
}

/// Why there is no room yet.
enum Lack {
    Elsewhere { priority: i8, table_only: bool },
    Room,
}

impl From<Lack> for Step {
    fn from(lack: Lack) -> Self {
        match lack {
            Lack::Elsewhere { priority, table_only } => Self::Elsewhere { priority, table_only },
            Lack::Room => Self::Refused,
        }
    }
}

/// How many entries make room at one time when memory lacks: pages come free together or not at all.
const BATCH: usize = 16;

/// A locked shard.
pub(crate) struct Locked<'a> {
    pub shard: &'a Shard,
    pub ground: &'a Ground,
    pub state: MutexGuard<'a, State>,
    /// Whether somebody wants to hear of entries that leave.
    pub heard: bool,
}

impl Locked<'_> {
    /// Stores a value, as far as this shard alone can make room for it.
    pub fn put(&mut self, request: &Request<'_>) -> Step {
        let mut buf = std::mem::take(&mut self.state.buf);
        let step = self.put_with(request, &mut buf);
        buf.let_go();
        self.state.buf = buf;
        step.unwrap_or_else(Step::from)
    }

    fn put_with(&mut self, request: &Request<'_>, buf: &mut ReadBuf) -> Result<Step, Lack> {
        let found = self.find_live(request, buf);
        if let Some(id) = found {
            if request.absent {
                return Ok(Step::Present);
            }
            if self.overwrite(request, id) {
                return Ok(Step::Replaced);
            }
            // Used now, so that it is the last to make room for its own new value.
            self.touch(id);
        }
        if self.ground.mode == Mode::Sketch {
            self.shard.segments.note(request.hash.kept());
            self.shard.segments.keep_time(&self.state.stash, request.hash.kept());
        } else if found.is_none() {
            let (mode, about) = (self.ground.mode, request.about());
            self.state.group(mode, about.priority, about.partition()).policy.miss(request.hash.kept());
        }
        self.charge(request, found)?;
        if let Err(lack) = self.store(request, buf) {
            self.uncharge(request);
            return Err(lack);
        }
        Ok(if found.is_some() { Step::Replaced } else { Step::Inserted })
    }

    /// The policy hears of a use.
    fn touch(&mut self, id: u32) {
        let entry = self.shard.entries.at(id);
        entry.hit();
        let about = entry.about();
        let group = self.state.group(self.ground.mode, about.priority, about.partition());
        group.policy.touch(&mut self.shard.links(), id);
    }

    /// The key's entry; one that has expired is removed.
    fn find_live(&mut self, request: &Request<'_>, buf: &mut ReadBuf) -> Option<u32> {
        let id = self.shard.find(&mut self.state, self.ground, request.image, request.hash, buf)?;
        if self.is_over(id, request.now) {
            self.expire_entry(id);
            return None;
        }
        Some(id)
    }

    /// Whether an entry's time is over.
    pub fn is_over(&self, id: u32, now: u64) -> bool {
        self.shard.entries.at(id).about().timed && self.shard.dues.get(id).deadline() <= now
    }

    /// Replaces a value by one of the same weight, in place.
    fn overwrite(&mut self, request: &Request<'_>, id: u32) -> bool {
        let entry = self.shard.entries.at(id);
        if entry.weight() != request.weight() || self.ground.pile.replace(entry.pointer(), request.payload).is_err() {
            return false;
        }
        self.settle(request, id);
        self.touch(id);
        true
    }

    /// Gives an entry the deadline and priority of the put that replaced its value.
    fn settle(&mut self, request: &Request<'_>, id: u32) {
        let entry = self.shard.entries.at(id);
        let (before, after) = (entry.about(), request.about());
        if before.timed {
            self.state.wheel.take(&self.shard.dues, id);
        }
        if let Some(due) = request.due {
            self.shard.dues.set(id, due);
            self.state.wheel.hang(&self.shard.dues, id);
        }
        if before.priority != after.priority {
            let (mode, mut links) = (self.ground.mode, self.shard.links());
            self.state.group(mode, before.priority, before.partition()).policy.remove(&mut links, id);
            self.state.group(mode, after.priority, after.partition()).policy.insert(&mut links, id);
            self.ledgers(request.record, |ledger| ledger.change(before.priority, after.priority, entry.weight()));
        }
        entry.set_about(after);
    }

    fn ledgers(&self, record: &Record, act: impl Fn(&Ledger)) {
        act(&self.ground.ledger);
        record.own.iter().for_each(act);
    }

    /// Charges what the put weighs to the table and the cache, making room for it.
    fn charge(&mut self, request: &Request<'_>, found: Option<u32>) -> Result<(), Lack> {
        let weight = request.weight();
        // An entry of higher priority can be replaced, though not evicted.
        let replaced = found.map_or(0, |id| {
            let entry = self.shard.entries.at(id);
            if entry.about().priority > request.priority { entry.weight() } else { 0 }
        });
        let needed = weight.saturating_sub(replaced);
        let could = |ledger: &Ledger| ledger.could_hold(needed, request.priority);
        if !could(&self.ground.ledger) || !request.record.own.as_ref().is_none_or(could) {
            return Err(Lack::Room);
        }
        if let Some(own) = &request.record.own {
            while own.used.take(weight).is_err() {
                self.make_room(request, true)?;
            }
        }
        while self.ground.ledger.used.take(weight).is_err() {
            if let Err(lack) = self.make_room(request, false) {
                if let Some(own) = &request.record.own {
                    own.used.give(weight);
                }
                return Err(lack);
            }
        }
        Ok(())
    }

    fn uncharge(&self, request: &Request<'_>) {
        self.ledgers(request.record, |ledger| ledger.used.give(request.weight()));
    }

    /// Evicts an entry of the lowest priority that there is in the table or the cache, and what the slack asks for
    /// beyond that, as far as this shard goes.
    fn make_room(&mut self, request: &Request<'_>, table_only: bool) -> Result<(), Lack> {
        let own = request.record.own.as_ref().filter(|_| table_only);
        let ledger = own.unwrap_or(&self.ground.ledger);
        let priority = ledger.classes.lowest(request.priority).ok_or(Lack::Room)?;
        let only = table_only.then_some(request.record.id);
        if !self.evict(priority, only) {
            return Err(Lack::Elsewhere { priority, table_only });
        }
        let slack = ledger.slack + request.weight();
        for _ in 0..BATCH {
            if ledger.slack == 0 || !ledger.is_over(slack) || !self.evict(priority, only) {
                break;
            }
        }
        Ok(())
    }

    /// Evicts one entry of a priority: of a table with a limit of its own, or of whichever group has most. False when
    /// there is none here.
    pub fn evict(&mut self, priority: i8, only: Option<u16>) -> bool {
        let fits = |group: &&mut Group| {
            group.priority == priority && (only.is_none() || group.partition == only) && group.policy.bytes() > 0
        };
        let state = &mut *self.state;
        let Some(group) = state.groups.iter_mut().filter(fits).max_by_key(|group| group.policy.bytes()) else {
            return false;
        };
        let limit = match group.partition {
            Some(table) => state.records[table as usize].own.as_ref().map_or(0, |own| own.used.limit()),
            None => self.ground.ledger.used.limit(),
        };
        let Some(id) = group.policy.evict(&mut self.shard.links(), limit / self.ground.shards) else { return false };
        self.let_go(id, Some(Reason::Evicted));
        true
    }

    /// Puts the payload into the pile and the entry into the index.
    fn store(&mut self, request: &Request<'_>, buf: &mut ReadBuf) -> Result<(), Lack> {
        let pointer = self.put_payload(request)?;
        // What made room may have been the key's own old entry.
        let found = self.shard.find(&mut self.state, self.ground, request.image, request.hash, buf);
        if let Some(id) = found {
            self.swap(request, id, pointer);
            return Ok(());
        }
        loop {
            let Err(error) = self.insert(request, pointer) else { return Ok(()) };
            // The index could not grow: entries must go until a page of theirs is empty, or a place of theirs free.
            if let Err(lack) = self.make_memory(request, &error) {
                let _ = self.ground.pile.remove(pointer);
                return Err(lack);
            }
        }
    }

    fn put_payload(&mut self, request: &Request<'_>) -> Result<Pointer, Lack> {
        loop {
            let cause = match self.ground.pile.put(request.payload, 0) {
                Ok(pointer) => return Ok(pointer),
                Err(PileError::Memory { cause, .. }) => cause,
                Err(_) => return Err(Lack::Room),
            };
            self.make_memory(request, &cause)?;
        }
    }

    /// Evicts some entries, because the pages that there may be are all in use.
    fn make_memory(&mut self, request: &Request<'_>, cause: &BlockError) -> Result<(), Lack> {
        // Where the system itself has no memory, evicting the whole cache would not be the answer.
        if !matches!(cause, BlockError::Limit { .. }) {
            return Err(Lack::Room);
        }
        let priority = self.ground.ledger.classes.lowest(request.priority).ok_or(Lack::Room)?;
        if !self.evict(priority, None) {
            return Err(Lack::Elsewhere { priority, table_only: false });
        }
        (1..BATCH).take_while(|_| self.evict(priority, None)).count();
        Ok(())
    }

    /// Gives a key's entry another payload. Readers see the old value or the new.
    fn swap(&mut self, request: &Request<'_>, id: u32, pointer: Pointer) {
        let entry = self.shard.entries.at(id);
        let (old, before, about) = (entry.pointer(), entry.weight(), entry.about());
        let weight = request.weight();
        let (mode, links) = (self.ground.mode, self.shard.links());
        let group = self.state.group(mode, about.priority, about.partition());
        group.policy.reweigh(&links, id, weight);
        self.ledgers(request.record, |ledger| {
            ledger.leave(about.priority, before);
            ledger.enter(about.priority, weight);
        });
        request.record.bytes.fetch_add(weight, Relaxed);
        request.record.bytes.fetch_sub(before, Relaxed);
        entry.set_weight(weight);
        entry.set_pointer(pointer);
        if request.due.is_some() && self.shard.dues.ensure(id).is_err() {
            // Without a place for its end the value may not stay; the caller finds it gone.
            let _ = self.ground.pile.remove(old);
            self.unlink(id);
            self.let_go(id, Some(Reason::Evicted));
            return;
        }
        self.settle(request, id);
        let _ = self.ground.pile.remove(old);
    }

    fn insert(&mut self, request: &Request<'_>, pointer: Pointer) -> Result<(), BlockError> {
        let (shard, state) = (self.shard, &mut *self.state);
        let id = shard.entries.take(&mut state.ids)?;
        if let Some(due) = request.due {
            if let Err(error) = shard.dues.ensure(id) {
                shard.entries.give(&mut state.ids, id);
                return Err(error);
            }
            shard.dues.set(id, due);
        }
        let (about, kept, weight) = (request.about(), request.hash.kept(), request.weight());
        shard.entries.fill(id, pointer, kept, weight, about);
        if let Err(error) = shard.segments.insert(&mut state.stash, request.hash, id, |id| shard.entries.at(id).kept())
        {
            shard.entries.give(&mut state.ids, id);
            return Err(error);
        }
        if request.due.is_some() {
            state.wheel.hang(&shard.dues, id);
        }
        state.group(self.ground.mode, about.priority, about.partition()).policy.insert(&mut shard.links(), id);
        self.ledgers(request.record, |ledger| ledger.enter(about.priority, weight));
        request.record.bytes.fetch_add(weight, Relaxed);
        count(&request.record.counters.entries);
        Ok(())
    }

    /// Takes an entry out of its policy.
    fn unlink(&mut self, id: u32) {
        let about = self.shard.entries.at(id).about();
        let group = self.state.group(self.ground.mode, about.priority, about.partition());
        group.policy.remove(&mut self.shard.links(), id);
    }

    /// Removes an entry, for its caller's reason.
    pub fn remove_entry(&mut self, id: u32, reason: Option<Reason>) {
        self.unlink(id);
        self.let_go(id, reason);
    }

    fn expire_entry(&mut self, id: u32) {
        self.remove_entry(id, Some(Reason::Expired));
    }

    /// Removes an entry that its policy has let go of.
    fn let_go(&mut self, id: u32, reason: Option<Reason>) {
        let (shard, state) = (self.shard, &mut *self.state);
        let entry = shard.entries.at(id);
        let (about, pointer, weight) = (entry.about(), entry.pointer(), entry.weight());
        shard.segments.remove(&mut state.stash, entry.kept(), id);
        if about.timed {
            state.wheel.take(&shard.dues, id);
        }
        if let Some(reason) = reason.filter(|_| self.heard) {
            let mut buf = ReadBuf::new();
            if let Ok(payload) = self.ground.pile.read(pointer, &mut buf) {
                state.gone.push(Gone { payload: payload.to_vec(), reason });
            }
        }
        let _ = self.ground.pile.remove(pointer);
        shard.entries.give(&mut state.ids, id);
        let record = state.record(about.table).clone();
        record.counters.entries.fetch_sub(1, Relaxed);
        record.bytes.fetch_sub(weight, Relaxed);
        match reason {
            Some(Reason::Evicted) => count(&record.counters.evicted),
            Some(Reason::Expired) => count(&record.counters.expired),
            None => {}
        }
        self.ledgers(&record, |ledger| ledger.leave(about.priority, weight));
        self.tidy();
    }

    /// Gives back a little of an index that has become too large.
    fn tidy(&mut self) {
        let (shard, state) = (self.shard, &mut *self.state);
        shard.segments.shrink(&mut state.stash, |id| shard.entries.at(id).kept());
        for _ in 0..2 {
            if !Entries::is_sparse(&state.ids) {
                return;
            }
            let last = state.ids.end - 1;
            if let Some((from, to)) = shard.entries.drop_last(&mut state.ids) {
                let about = shard.entries.at(to).about();
                shard.segments.renumber(&mut state.stash, shard.entries.at(to).kept(), from, to);
                state.group(self.ground.mode, about.priority, about.partition()).policy.renumber(
                    &mut shard.links(),
                    from,
                    to,
                );
                if about.timed {
                    state.wheel.renumber(&shard.dues, from, to).expect("lower ids have their place");
                }
            }
            shard.entries.forget(&state.ids, last);
            shard.dues.shrink(state.ids.end);
        }
    }

    /// The table of an id's entry, if one lives there.
    pub fn table_of(&self, id: u32) -> Option<u16> {
        let entry = self.shard.entries.find(id)?;
        (entry.pointer() != no_pointer()).then(|| entry.about().table)
    }

    /// Removes entries whose time is over, looking at `steps` entries and buckets at most. Returns how many went, and
    /// whether there is more to look at.
    pub fn expire(&mut self, now: u64, mut steps: usize) -> (u64, bool) {
        let mut expired = 0;
        while let Some(id) = self.state.next_due(&self.shard.dues, now, &mut steps) {
            self.expire_entry(id);
            expired += 1;
        }
        (expired, steps == 0)
    }
}
