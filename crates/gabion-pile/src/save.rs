//! A pile saved: all that it holds at one moment, in a file of its own and under the same pointers.
//!
//! ```text
//!   without a lock        all pages as they are just now, most of them for good
//!   all writers wait      what has changed since; which runs there are
//!   without a lock        the runs, which never change; the records; the name
//! ```
//! Readers go on throughout. What is copied is what stands in the blocks, so a block of this process's memory becomes a
//! block of a file as it is, under its own number: pointers are made of numbers, not of addresses.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use gabion_blocks::file::{Draft, FileError, Numbering};
use gabion_blocks::os::Disk;
use gabion_blocks::{Block, BlockError, PAGE_BYTES, PAGES_PER_BLOCK, WORDS_PER_PAGE, make_room};
use gabion_heap::{
    BLOCK_HEADER_WORDS, Descriptor, FLOOR_WORD, Heap, Kind, Loc, outside_slots, shard_of, slot_in_copy, slots_in_page,
};

use crate::large::{ChargedRun, number_of};
use crate::pile::Pile;
use crate::pointer::Pointer;
use crate::shard::{Locked, Shard, lock_all};
use crate::slot::GUEST_WORDS;
use crate::word::{GuestHeader, State, Word};

/// What was saved of a pile, on its way to be a file: see [`Pile::begin_save`].
#[derive(Debug)]
#[must_use = "without `finish` there will be no file"]
pub struct Saving {
    draft: Draft,
    root: u64,
}

/// A look at all blocks.
#[derive(Clone, Copy, PartialEq)]
enum Pass {
    /// The first one, beside writers.
    Beside,
    /// The second one, under all locks: for what has changed since.
    Locked,
}

impl Saving {
    /// Completes the file with the records of its log, waits until it is on the disk, and gives it its name.
    ///
    /// # Errors
    /// [`FileError`]; what had the name before has it still.
    pub fn finish(self, records: &[u8]) -> Result<(), FileError> {
        self.draft.finish(self.root, records)
    }
}

impl Pile {
    /// Saves the pile, as it is at one moment of the call, in a file that [`Pile::open`] opens: with all objects under
    /// their pointers, and the root. The pile stays where it is, in memory or in a file of its own.
    ///
    /// The file is written aside and gets its name when it is complete and on the disk: a process that looks there
    /// finds the one before or the new one. It may replace a pile's file that nobody has open to write; a process that
    /// reads the old one reads on.
    ///
    /// ```
    /// use gabion_pile::{OpenOptions, Pile, ReadBuf};
    ///
    /// let path = std::env::temp_dir().join(format!("gabion-saved-{}.pile", std::process::id()));
    /// let pile = Pile::new()?;
    /// let pointer = pile.put(b"stone")?;
    /// pile.save(&path)?;
    /// let saved = Pile::open(&path, &OpenOptions::default())?;
    /// assert_eq!(saved.read(pointer, &mut ReadBuf::new())?, b"stone");
    /// # drop(saved);
    /// # std::fs::remove_file(path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Pointers that are put after it, into the pile or into the file, are good for that one alone. The other does not
    /// tell: they may lead to another object there.
    ///
    /// Takes time linear in the pile. Readers go on meanwhile, and so do writers, except while what they changed since
    /// the beginning is looked for: every page is compared then, and views, figures and readers of objects over 1 MiB
    /// wait, too. Objects over 1 MiB that are removed meanwhile go when the call is over. What is free is zeros in the
    /// file: nothing that was removed is in it.
    ///
    /// # Errors
    /// [`FileError`]; what had the name before has it still. [`FileError::InUse`]: it is a file that is open to write,
    /// as the pile's own. [`FileError::NotOurs`]: it is no pile's, and is left alone.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), FileError> {
        let saving = self.begin_save(path, None)?;
        // After all payloads: a record that one of them needs is there by now.
        saving.finish(&self.log()?)
    }

    /// The first part of [`Pile::save`], for an owner that keeps records of its own: after it, all payloads that will
    /// be in the file are known, and the records that they need can be handed to [`Saving::finish`]. `disk`: the
    /// system calls that the file is written with; `None`: the system's own.
    ///
    /// # Errors
    /// As [`Pile::save`].
    pub fn begin_save(&self, path: impl AsRef<Path>, disk: Option<&'static dyn Disk>) -> Result<Saving, FileError> {
        self.begin_save_at(path.as_ref(), disk)
    }

    fn begin_save_at(&self, path: &Path, disk: Option<&'static dyn Disk>) -> Result<Saving, FileError> {
        let saved = self.save_blocks(path, disk);
        // It may have been let go meanwhile, and have left its file to the last who reads its runs.
        self.go_on_leaving();
        saved
    }

    fn save_blocks(&self, path: &Path, disk: Option<&'static dyn Disk>) -> Result<Saving, FileError> {
        let mut first = self.lowest_number();
        loop {
            let numbering = match self.blocks.file() {
                Some(file) => Numbering::Of(file),
                None => Numbering::From { first, shards: self.shards().len() },
            };
            let draft = Draft::begin(path, numbering, disk)?;
            if let Some(saving) = self.save_to(draft, first)? {
                return Ok(saving);
            }
            // A block came meanwhile whose number is lower than all others. None is lower than this.
            first = 0;
        }
    }

    fn lowest_number(&self) -> u32 {
        self.blocks.each_number().min().unwrap_or(0)
    }

    /// Saves all but the records. `None` when a block has a number below `first`, which the file has no place for.
    fn save_to(&self, mut draft: Draft, first: u32) -> Result<Option<Saving>, FileError> {
        let mut page = Vec::new();
        make_room(&mut page, PAGE_BYTES)?;
        page.resize(PAGE_BYTES, 0);
        let first = if self.is_in_file() { 0 } else { first };
        self.copy_blocks(&mut draft, (first, Pass::Beside), &mut page)?;
        let (root, runs) = {
            let all = lock_all(self.shards())?;
            // SeqCst: as in `let_go`. Set before anything is let go of.
            if self.leaving.load(Ordering::SeqCst) {
                let what = "the pile was let go: there is nothing to save";
                return Err(BlockError::Setting { what }.into());
            }
            if self.lowest_number() < first {
                return Ok(None);
            }
            self.copy_blocks(&mut draft, (first, Pass::Locked), &mut page)?;
            (self.root().map_or(0, Pointer::to_bits), runs_of(&all)?)
        };
        for &(shard, index, ref run) in &runs {
            // A file has more blocks than its runs have numbers: see `recover`. Here there may have been more runs
            // once.
            draft.reach(index + 1)?;
            draft.add_run(number_of(shard, index), run.bytes())?;
        }
        Ok(Some(Saving { draft, root }))
    }

    /// Copies what is in use of all blocks whose numbers are not below `first`.
    fn copy_blocks(&self, draft: &mut Draft, (first, pass): (u32, Pass), page: &mut [u8]) -> Result<(), FileError> {
        let (mut free, again) = (Vec::new(), pass == Pass::Locked);
        for number in self.blocks.each_number().filter(|&number| number >= first) {
            draft.add_heap_block(number)?;
            let block = self.blocks.block(number).expect("a block of this pile");
            free.clear();
            // Relaxed, here and below: beside writers, what is copied is looked at again; after that, they are locked
            // out.
            if Descriptor::from_bits(Descriptor::of(block, 0).load(Ordering::Relaxed)).kind() == Kind::Chunks {
                let shard = self.shards().get(shard_of(block) as usize).filter(|_| !again);
                let _locked = shard.map(Shard::lock);
                self.free_rooms(block, &mut free)?;
            }
            for index in 0..PAGES_PER_BLOCK {
                if self.copy_page(block, index, &free, page) || again {
                    draft.write(number, index * PAGE_BYTES, page, again)?;
                }
            }
        }
        Ok(())
    }

    /// Copies a page as it is to stand in a file: zeros where nothing is. False when that is all of it.
    fn copy_page(&self, block: Block<'_>, index: usize, free: &[Range<usize>], page: &mut [u8]) -> bool {
        let descriptor = Descriptor::from_bits(Descriptor::of(block, index).load(Ordering::Relaxed));
        let at = index * WORDS_PER_PAGE;
        match descriptor.kind() {
            Kind::Chunks => {
                block.read(at, page);
                let after = free.partition_point(|room| room.end <= at);
                for room in free[after..].iter().take_while(|room| room.start < at + WORDS_PER_PAGE) {
                    let (from, to) = (room.start.max(at) - at, room.end.min(at + WORDS_PER_PAGE) - at);
                    page[8 * from..8 * to].fill(0);
                }
            }
            Kind::Slots => {
                block.read(at, page);
                self.clean_slots(block.number(), descriptor.class(), index, page);
            }
            Kind::Free => {
                page.fill(0);
                if index == 0 {
                    block.read(0, &mut page[..8 * BLOCK_HEADER_WORDS]);
                }
            }
        }
        if index == 0 {
            // What the process knows of its numbers, the block has to know by itself.
            let floor = word_at(page, FLOOR_WORD);
            let known = u64::from(self.blocks.generation_floor(block.number()));
            *floor = u64::from_le_bytes(*floor).max(known).to_le_bytes();
        }
        index == 0 || descriptor.kind() != Kind::Free
    }

    /// The words of a block of chunks in which nothing is, one range behind the other.
    fn free_rooms(&self, block: Block<'_>, free: &mut Vec<Range<usize>>) -> Result<(), FileError> {
        for (room, taken) in Heap::rooms(block) {
            let header = GuestHeader(block.word(room.start).load(Ordering::Relaxed));
            let here = Loc::new(block.number(), room.start);
            let used = if taken && self.is_owned(header, here) { 1 + header.length().div_ceil(8) } else { 0 };
            if used < room.len() {
                make_room(free, 1)?;
                free.push(room.start + used..room.end);
            }
        }
        Ok(())
    }

    /// Whether a payload is where its owner says it is: otherwise only views look at it, and nobody will in a file.
    fn is_owned(&self, header: GuestHeader, here: Loc) -> bool {
        let owner = header.owner();
        let word =
            self.blocks.block(owner.number()).map(|block| Word(block.word(owner.word()).load(Ordering::Relaxed)));
        word.is_some_and(|word| matches!(word.state(), State::Away { at, .. } if at == here))
    }

    /// Zeros what nothing is in of a page of slots, in a copy of it.
    fn clean_slots(&self, number: u32, class: usize, index: usize, page: &mut [u8]) {
        for outside in outside_slots(class, index) {
            page[outside].fill(0);
        }
        for (at, word) in slots_in_page(class, index).enumerate() {
            let (slot, taken) = slot_in_copy(page, class, index, at);
            let guest = GuestHeader(u64::from_le_bytes(*word_at(page, slot.start / 8 + 1)));
            let head = word_at(page, slot.start / 8);
            // Generations begin at 0 in memory alone: in a file, a word of zeros is one that was lost.
            if *head == [0; 8] {
                *head = Word::free(1).0.to_le_bytes();
            }
            let used = match Word(u64::from_le_bytes(*head)).length_here() {
                Some(length) => 8 + length,
                None if taken && self.is_owned(guest, Loc::new(number, word)) => 8 * GUEST_WORDS + guest.length(),
                None => 8,
            };
            page[slot].get_mut(used..).into_iter().for_each(|rest| rest.fill(0));
        }
    }
}

fn word_at(page: &mut [u8], index: usize) -> &mut [u8; 8] {
    &mut page.as_chunks_mut().0[index]
}

/// Runs, and which shard's they are under which number.
type Runs = Vec<(u32, u32, Arc<ChargedRun>)>;

fn runs_of(all: &[Locked<'_>]) -> Result<Runs, FileError> {
    let mut runs = Vec::new();
    make_room(&mut runs, all.iter().map(|locked| locked.large.count as usize).sum())?;
    for (shard, locked) in (0..).zip(all) {
        runs.extend(locked.large.each().map(|(index, run)| (shard, index, Arc::clone(run))));
    }
    Ok(runs)
}

#[cfg(test)]
mod tests {
    use gabion_blocks::LAST_GENERATION;

    use super::*;
    use crate::{OpenOptions, ReadBuf};

    /// The floors of blocks that were cleared for longer than there are generations went on, and nobody could open the
    /// file.
    #[test]
    fn a_pile_that_has_used_up_blocks_is_saved() {
        let path = std::env::temp_dir().join(format!("gabion-{}-worn.pile", std::process::id()));
        let pile = Pile::new().unwrap();
        let number = pile.put(b"first").unwrap().place().number();
        pile.blocks.raise_generation_floor(number, LAST_GENERATION - 1);
        for _ in 0..6 {
            pile.clear();
            let pointer = pile.put(b"stone").unwrap();
            pile.save(&path).unwrap();
            let saved = Pile::open(&path, &OpenOptions::default()).unwrap();
            assert_eq!(saved.read(pointer, &mut ReadBuf::new()).unwrap(), b"stone");
            (0..100).for_each(|length| assert!(saved.put(&vec![1; 8 * length]).is_ok()));
            saved.validate().unwrap();
        }
        std::fs::remove_file(&path).unwrap();
    }
}
