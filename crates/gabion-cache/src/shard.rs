//! A shard: the part of the keys that one lock guards.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use gabion_blocks::Budget;
use gabion_pile::{Pile, Pointer, ReadBuf};

use crate::budget::Ledger;
use crate::entries::{Entries, FreeIds, Links};
use crate::hash::KeyHash;
use crate::key::{self, Image};
use crate::pages::Pages;
use crate::policy::{Mode, Policy};
use crate::record::Record;
use crate::segments::{Segments, Stash};
use crate::wheel::{Dues, Wheel};

/// What all shards of a cache stand on.
pub(crate) struct Ground {
    pub pile: Pile,
    pub ledger: Ledger,
    /// Pages and runs taken, of pile and index.
    pub memory: Arc<Budget>,
    pub mode: Mode,
    pub shards: u64,
}

/// One shard. Aligned so that two shards never share a cache line, nor the pair that the prefetcher takes.
#[repr(align(128))]
pub(crate) struct Shard {
    pub segments: Segments,
    pub entries: Entries,
    pub dues: Dues,
    state: Mutex<State>,
}

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
    pub payload: Vec<u8>,
    pub reason: Reason,
}

/// What the lock guards. The entries of all groups are the entries of the stash and the segments, each once.
#[derive(Default)]
pub(crate) struct State {
    pub stash: Stash,
    pub ids: FreeIds,
    pub wheel: Wheel,
    /// Lowest priority first.
    pub groups: Vec<Group>,
    pub records: Vec<Arc<Record>>,
    /// Entries that left since the lock was taken, when somebody listens.
    pub gone: Vec<Gone>,
    pub buf: ReadBuf,
}

/// What a read without a lock found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    /// The value begins at this byte of the payload.
    Value(usize),
    /// No such key, or its time is over.
    Nothing,
}

/// An entry changed while it was looked at.
struct Changed;

/// How many times a read is tried beside writers before it asks for the lock.
const ATTEMPTS: u32 = 16;

impl Shard {
    pub fn new(pages: &Arc<Pages>, most_entries: u64) -> Self {
        Self {
            segments: Segments::new(pages, most_entries),
            entries: Entries::new(pages, most_entries),
            dues: Dues::new(pages, most_entries),
            state: Mutex::default(),
        }
    }

    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, State> {
        match self.state.try_lock() {
            Ok(state) => state,
            // A panic under the lock is a bug of this crate; what it guards is checked by `validate`.
            Err(TryLockError::Poisoned(state)) => state.into_inner(),
            Err(TryLockError::WouldBlock) => self.state.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    pub fn links(&self) -> Links<'_> {
        Links { entries: &self.entries, segments: &self.segments }
    }

    /// Reads a key's payload into `buf`. Takes no lock, unless entries move or change under the reader again and again,
    /// or the mode moves entries on a hit. `now` is asked for when the entry has an end.
    #[inline]
    pub fn read(
        &self,
        ground: &Ground,
        image: &Image,
        hash: KeyHash,
        used: bool,
        buf: &mut ReadBuf,
        now: &impl Fn() -> u64,
    ) -> Seen {
        for _ in 0..ATTEMPTS {
            let Some(version) = self.segments.version() else {
                std::hint::spin_loop();
                continue;
            };
            match self.segments.find(hash, |id| self.look(ground, image, hash, id, used, buf, now).transpose()) {
                (Some(Ok(seen)), _) => return seen,
                (None, true) => break,
                (None, false) if self.segments.unmoved(version) => return Seen::Nothing,
                (Some(Err(Changed)), _) | (None, false) => {}
            }
        }
        self.read_locked(ground, image, hash, used, buf, now)
    }

    #[cold]
    fn read_locked(
        &self,
        ground: &Ground,
        image: &Image,
        hash: KeyHash,
        used: bool,
        buf: &mut ReadBuf,
        now: &impl Fn() -> u64,
    ) -> Seen {
        let mut state = self.lock();
        let Some(id) = self.find(&mut state, ground, image, hash, buf) else { return Seen::Nothing };
        let due = self.dues.get(id);
        if self.entries.at(id).about().timed && due.deadline() <= now() {
            return Seen::Nothing;
        }
        let (times, value) = key::value_of(image, buf.payload()).expect("it was found by its image");
        if used {
            if self.entries.at(id).about().timed
                && let Some(idle) = due.idle()
            {
                self.dues.set(id, due.until((now() + idle).min(times.end.unwrap_or(u64::MAX))));
            }
            self.use_entry(ground, &mut state, id);
        }
        Seen::Value(buf.payload().len() - value.len())
    }

    /// Reads what an id stands for. `None`: another key's entry.
    #[inline]
    #[allow(clippy::too_many_arguments)]
    fn look(
        &self,
        ground: &Ground,
        image: &Image,
        hash: KeyHash,
        id: u32,
        used: bool,
        buf: &mut ReadBuf,
        now: &impl Fn() -> u64,
    ) -> Result<Option<Seen>, Changed> {
        let entry = self.entries.find(id).ok_or(Changed)?;
        // The order of these loads is the proof: state and deadline lie between two looks at the pointer, and no pointer
        // is ever given out twice, so they are of the same entry as the payload. A deadline is set after the pointer or
        // payload that it belongs to, so that a new one is never read with an older value.
        let pointer = entry.pointer();
        let timed = entry.about().timed;
        let due = if timed { Some(self.dues.get(id)) } else { None };
        let payload = ground.pile.read(pointer, buf).map_err(|_| Changed)?;
        let Some((times, value)) = key::value_of(image, payload) else { return Ok(None) };
        if entry.pointer() != pointer {
            return Err(Changed);
        }
        let offset = payload.len() - value.len();
        if let Some(due) = due {
            let now = now();
            if due.deadline() <= now {
                return Ok(Some(Seen::Nothing));
            }
            if used && let Some(idle) = due.idle() {
                self.dues.put_off(id, due, (now + idle).min(times.end.unwrap_or(u64::MAX)));
            }
        }
        if used {
            if ground.mode.counts_hits() {
                if entry.hit() && ground.mode == Mode::Sketch {
                    self.segments.note(hash.kept());
                }
            } else if ground.mode.moves_on_hit() {
                let mut state = self.lock();
                if entry.pointer() == pointer {
                    self.use_entry(ground, &mut state, id);
                }
            }
        }
        Ok(Some(Seen::Value(offset)))
    }

    /// Under the lock: the policy hears of a use.
    fn use_entry(&self, ground: &Ground, state: &mut State, id: u32) {
        let entry = self.entries.at(id);
        if ground.mode.moves_on_hit() {
            let about = entry.about();
            state.group(ground.mode, about.priority, about.partition()).policy.touch(&mut self.links(), id);
        } else if ground.mode.counts_hits() && entry.hit() && ground.mode == Mode::Sketch {
            self.segments.note(entry.kept());
        }
    }

    /// The id of a key's entry, and its payload in `buf`. Under the lock.
    #[inline]
    pub fn find(
        &self,
        state: &mut State,
        ground: &Ground,
        image: &Image,
        hash: KeyHash,
        buf: &mut ReadBuf,
    ) -> Option<u32> {
        self.segments.find_all(&state.stash, hash, |id| {
            let entry = self.entries.at(id);
            if entry.kept() != hash.kept() {
                return None;
            }
            let payload = ground.pile.read(entry.pointer(), buf).ok()?;
            key::value_of(image, payload).map(|_| id)
        })
    }

    /// Bytes of the shard's index.
    pub fn index_bytes(&self) -> u64 {
        self.segments.bytes() + self.entries.bytes() + self.dues.bytes()
    }
}

impl State {
    /// The group of a priority and partition, made when it is not there.
    #[inline]
    pub fn group(&mut self, mode: Mode, priority: i8, partition: Option<u16>) -> &mut Group {
        let place = |group: &Group| (group.priority, group.partition).cmp(&(priority, partition));
        let at = match self.groups.binary_search_by(place) {
            Ok(at) => at,
            Err(at) => {
                self.groups.insert(at, Group { priority, partition, policy: Policy::new(mode) });
                at
            }
        };
        &mut self.groups[at]
    }

    /// The next entry whose deadline has passed. It still hangs in the wheel.
    pub fn next_due(&mut self, dues: &Dues, now: u64, steps: &mut usize) -> Option<u32> {
        let id = self.wheel.next_due(dues, now, steps)?;
        self.wheel.hang(dues, id);
        Some(id)
    }

    pub fn record(&self, table: u16) -> &Arc<Record> {
        &self.records[table as usize]
    }
}

/// A pointer that names nothing.
pub(crate) fn no_pointer() -> Pointer {
    Pointer::from_bits(0)
}
