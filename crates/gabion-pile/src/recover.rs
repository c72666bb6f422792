//! What the blocks of a file hold, found again from what stands in them.
//!
//! In a pile the word is the truth: which objects there are, and where their payloads lie. All else is made anew from
//! the words: what is taken, what is free, which lists that stands on. So a process may end at any moment, and whatever
//! it had begun is done or is not:
//!
//! ```text
//!   it ended before the store of the word       it ended behind it
//!   put       the slot is free, and so is       the object is there
//!             what was written for it
//!   replace   the old payload is there; the     the new one is there; nothing leads to the old one, which is free
//!             new one is nobody's, and free
//!   remove    the object is there               it is gone, and its payload is free
//! ```

#![allow(unsafe_code)] // Values that stand for the runs of a file are made here alone; see the proofs below.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use gabion_blocks::file::{BlockFile, FileError, RunRoom};
use gabion_blocks::{Block, LAST_GENERATION, Run, make_room};
use gabion_heap::{Damage, Descriptor, Heap, Kind, Loc, Recovery, Taken, shard_of, slot_words, slots_in_page};

use crate::change::{Guest, publish};
use crate::large::{ChargedRun, owner_of};
use crate::pile::Pile;
use crate::shard::Locked;
use crate::slot::{GUEST_WORDS, guest_header};
use crate::word::{State, Word};

/// A run that is somebody's, as it says itself.
struct Owned {
    owner: (u32, u32),
    room: RunRoom,
}

impl Pile {
    /// Finds all objects in the blocks of the pile's file. For a pile that nobody else knows yet.
    ///
    /// # Errors
    /// [`FileError::Damaged`], [`FileError::Blocks`]: the pile is of no use then.
    pub(crate) fn recover(&self, file: &Arc<BlockFile>) -> Result<(), FileError> {
        let runs = owned_runs(file)?;
        let mut recoveries = Vec::new();
        make_room(&mut recoveries, self.shards().len())?;
        recoveries.resize_with(self.shards().len(), Recovery::default);
        for number in self.blocks.each_number() {
            let block = self.blocks.block(number).expect("a block of this pile");
            let shard = shard_of(block) as usize;
            let Some(found) = self.shards().get(shard) else {
                return Err(FileError::damaged(file.offset_of(number), "the header names a shard that is none"));
            };
            let taken = found.lock().heap.take_over(self.ground(), number, &mut recoveries[shard]);
            taken.map_err(|damage| told(file, damage))?;
        }
        for (number, (shard, recovery)) in self.shards().iter().zip(recoveries).enumerate() {
            let mut finding =
                Finding { pile: self, file, shard: number as u32, locked: shard.lock(), recovery, runs: &runs };
            finding.find_all().map_err(|damage| told(file, damage))?;
            let Finding { mut locked, recovery, .. } = finding;
            locked.heap.finish_recovery(self.ground(), recovery);
            locked.large.list_free_numbers();
        }
        self.let_go_of_runs(file, &runs)
    }

    /// Gives the room back of runs that nothing leads to.
    fn let_go_of_runs(&self, file: &Arc<BlockFile>, runs: &[Owned]) -> Result<(), FileError> {
        for (room, owner) in file.runs()? {
            let owned = owner_of(owner).and_then(|owner| find(runs, owner));
            let (shard, index) = owned.map_or((usize::MAX, 0), |run| (run.owner.0 as usize, run.owner.1));
            let kept = self.shards().get(shard).is_some_and(|shard| shard.lock().large.get(index).is_some());
            if !kept {
                // SAFETY: a run of this file, and no object's: no other value stands for it.
                let run = unsafe { Run::found(file, room) };
                run.own(0);
            }
        }
        Ok(())
    }
}

/// The runs that say whose they are, in the order of their owners.
fn owned_runs(file: &Arc<BlockFile>) -> Result<Vec<Owned>, FileError> {
    let found = file.runs()?;
    let mut runs = Vec::new();
    make_room(&mut runs, found.len())?;
    runs.extend(found.into_iter().filter_map(|(room, owner)| Some(Owned { owner: owner_of(owner)?, room })));
    runs.sort_unstable_by_key(|run: &Owned| run.owner);
    if runs.windows(2).any(|pair| pair[0].owner == pair[1].owner) {
        return Err(FileError::damaged(None, "two runs say that they are one object's"));
    }
    Ok(runs)
}

fn find(runs: &[Owned], owner: (u32, u32)) -> Option<&Owned> {
    runs.binary_search_by_key(&owner, |run| run.owner).ok().map(|at| &runs[at])
}

/// A damage, with where it is in the file.
fn told(file: &BlockFile, damage: Damage) -> FileError {
    match damage {
        Damage::Block { at, what } => FileError::damaged(file.offset_of(at.number()) + 8 * at.word() as u64, what),
        Damage::Memory(error) => FileError::Blocks(error),
        _ => FileError::damaged(None, "a block makes no sense"),
    }
}

/// The objects of one shard are being found.
struct Finding<'a> {
    pile: &'a Pile,
    file: &'a Arc<BlockFile>,
    shard: u32,
    locked: Locked<'a>,
    recovery: Recovery,
    runs: &'a [Owned],
}

impl Finding<'_> {
    fn find_all(&mut self) -> Result<(), Damage> {
        let mut ordinal = 0;
        while let Some((number, classes)) = self.locked.heap.block_pages(ordinal) {
            ordinal += 1;
            let block = self.pile.blocks.block(number).expect("a block of this pile");
            let mut highest = 0;
            for (page, class) in classes.into_iter().enumerate().filter_map(|(at, class)| Some((at, class?))) {
                for word in slots_in_page(class.into(), page) {
                    highest = highest.max(self.find(block, Loc::new(number, word), class.into())?);
                }
            }
            self.pile.blocks.raise_generation_floor(number, highest);
        }
        Ok(())
    }

    /// Finds out what is in a slot, and marks all that it has. Returns its generation.
    fn find(&mut self, block: Block<'_>, at: Loc, class: usize) -> Result<u32, Damage> {
        let ground = self.pile.ground();
        // Relaxed, here and below: nobody writes yet.
        let word = Word(block.word(at.word()).load(Relaxed));
        let generation = word.generation();
        let most = LAST_GENERATION + u32::from(word.state() == State::Free);
        // No word is zero: what is free has a generation.
        if generation > most || word.0 == 0 {
            return Err(Damage::at(at, "an object has a generation that is none"));
        }
        let mut parts = Taken { head: true, body: false };
        let length = match word.state() {
            State::Free => {
                if generation > LAST_GENERATION
                    && !self.locked.heap.mark_slot(ground, at, parts, true, &mut self.recovery)
                {
                    return Err(Damage::at(at, "a slot that is used up is taken"));
                }
                return Ok(generation);
            }
            State::Busy => return Err(Damage::at(at, "an object is being overwritten, and nobody is at it")),
            State::Inline { length, pinned, .. } => {
                if length > (slot_words(class) - 1) * 8 {
                    return Err(Damage::at(at, "an object is longer than its slot"));
                }
                if pinned {
                    publish(&block, at.word(), word.pinned(false).0);
                }
                parts.body = true;
                length
            }
            State::Away { at: guest, .. } => {
                self.locked.away += 1;
                self.find_guest(at, guest)?
            }
            State::Large { index } => self.find_run(at, index)?,
        };
        if !self.locked.heap.mark_slot(ground, at, parts, false, &mut self.recovery) {
            return Err(Damage::at(at, "the room of an object is another's, too"));
        }
        self.locked.objects += 1;
        self.locked.used_bytes += length as u64;
        Ok(generation)
    }

    /// Finds the payload of the slot `owner` that lies elsewhere. Returns its length.
    fn find_guest(&mut self, owner: Loc, at: Loc) -> Result<usize, Damage> {
        let ground = self.pile.ground();
        let nowhere = Damage::at(owner, "an object's payload is where no payload is");
        let Some(block) = ground.blocks.block(at.number()) else { return Err(nowhere) };
        let descriptor = Descriptor::from_bits(Descriptor::of(block, at.page()).load(Relaxed));
        let kind = descriptor.kind();
        if shard_of(block) != self.shard || kind == Kind::Free {
            return Err(nowhere);
        }
        let (taken, room) = if kind == Kind::Chunks {
            let taken = Heap::claim_chunk(ground, at, &mut self.recovery);
            (taken, Heap::chunk_words(block, at).checked_sub(1))
        } else {
            let parts = Taken { head: false, body: true };
            let taken = self.locked.heap.mark_slot(ground, at, parts, false, &mut self.recovery);
            (taken, slot_words(descriptor.class()).checked_sub(GUEST_WORDS))
        };
        let Some(room) = room.filter(|_| taken) else { return Err(nowhere) };
        let guest = Guest { block, at, kind, header: guest_header(kind, at) };
        let header = guest.read_header();
        if header.owner() != owner || header.length() > 8 * room {
            return Err(Damage::at(at, "a payload is another object's, or longer than its room"));
        }
        if header.is_pinned() {
            publish(&block, guest.header, header.pinned(false).0);
        }
        Ok(header.length())
    }

    /// Finds the run of the slot `owner`. Returns its length.
    fn find_run(&mut self, owner: Loc, index: u32) -> Result<usize, Damage> {
        let missing = Damage::at(owner, "an object's run is missing, or another's");
        // Each takes a block at least, and numbers are given out again.
        let Some(run) = find(self.runs, (self.shard, index)).filter(|_| index < self.file.blocks()) else {
            return Err(missing);
        };
        // The table has one of a number, and no two runs have one number.
        if self.locked.large.get(index).is_some() {
            return Err(missing);
        }
        // SAFETY: a run of this file, and this is the first value that stands for it.
        let run = unsafe { Run::found(self.file, run.room) };
        let run = ChargedRun::found(run, &self.pile.budget);
        let length = run.bytes().len();
        if self.locked.large.enter(index, run)? { Ok(length) } else { Err(missing) }
    }
}
