//! Piles in files: what is put into one is there for the next process, with the pointers that it was given.
#![allow(unsafe_code)] // The one place that lets a file go under its pile; see the proof below.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use gabion_blocks::file::{BlockFile, FileError, FileOptions, FileSummary};
use gabion_blocks::os::Disk;
use gabion_blocks::{BlockError, BlockSet, Budget, Pool, limits};
use gabion_heap::Heap;

use crate::error::PileError;
use crate::pile::{MOST_SHARDS, Pile, give_pages, limit_of};
use crate::pointer::Pointer;
use crate::shard::lock_all;
use crate::slot::Slot;
use crate::stats::PileStats;
use crate::word::Word;

/// How a pile in a file is opened.
#[derive(Debug, Clone, Copy)]
pub struct OpenOptions {
    /// As [`PileOptions::max_bytes`](crate::PileOptions::max_bytes), but that `None` is what a file can hold at all: 4
    /// TiB. What is in the file already counts, and stays where it is more.
    pub max_bytes: Option<u64>,
    /// How many writers can work at one time, where the file is made anew; otherwise the file says it. As
    /// [`PileOptions::shards`](crate::PileOptions::shards).
    pub shards: Option<usize>,
    /// Whether the file is made where it is not there.
    pub create: bool,
    /// Nothing goes to the file: what is put, replaced or removed is so for this process alone, and gone with it; it is
    /// refused where it needs more than the file has room for. Any number of processes may have the file open so at one
    /// time, as long as none has it open to write.
    pub read_only: bool,
    /// The door to the system. `None`: the system itself.
    pub disk: Option<&'static dyn Disk>,
}

impl Default for OpenOptions {
    /// To write, and made where it is not there.
    fn default() -> Self {
        Self { max_bytes: None, shards: None, create: true, read_only: false, disk: None }
    }
}

impl Pile {
    /// Opens the pile in a file, or makes one.
    ///
    /// The pile is as any other, but that it outlives the process: pointers stay valid, and whatever a call had done
    /// when it returned is there for the next one that opens the file, however this process ends; a call that it ends
    /// within has done all of its change or nothing. Whether the *disk* has it is another matter: see [`Pile::flush`].
    ///
    /// ```
    /// use gabion_pile::{OpenOptions, Pile, ReadBuf};
    ///
    /// let path = std::env::temp_dir().join(format!("gabion-{}.pile", std::process::id()));
    /// let pile = Pile::open(&path, &OpenOptions::default())?;
    /// let pointer = pile.put(b"stone")?;
    /// drop(pile);
    /// let pile = Pile::open(&path, &OpenOptions::default())?;
    /// assert_eq!(pile.read(pointer, &mut ReadBuf::new())?, b"stone");
    /// # drop(pile);
    /// # std::fs::remove_file(path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # What is different
    /// * A replacement is written beside the old payload and needs room of its own meanwhile, with its reserve.
    /// * The file grows by blocks of 4 MiB, and for objects over 1 MiB by what they take. It does not shrink; only what
    ///   such objects took goes back to the disk. What else becomes free serves the next objects.
    /// * `max_bytes` counts what is in the file, be it in memory or not.
    /// * Room for an object over 1 MiB is sought block by block where others of that size were removed: a load for each
    ///   block of the file.
    /// * A forked child must not use the pile, or a view of it ([`Pile::is_parted`]); nothing that it does goes to the
    ///   file. One that is open for reading only may be read on both sides.
    ///
    /// Takes time linear in the pile: every word is looked at, no payload over 1 KiB is.
    ///
    /// # Errors
    /// [`FileError`]; the file is as it was, except for what is made anew from the words each time.
    pub fn open(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Self, FileError> {
        Self::open_at(path.as_ref(), options)
    }

    fn open_at(path: &Path, options: &OpenOptions) -> Result<Self, FileError> {
        let shards = options.shards.unwrap_or_else(limits::processors).clamp(1, MOST_SHARDS).next_power_of_two();
        let OpenOptions { create, read_only, disk, .. } = *options;
        let file = BlockFile::open(path, &FileOptions { shards, create, read_only, disk })?;
        if file.shards() > MOST_SHARDS {
            return Err(FileError::damaged(8, "the superblock has more shards than there may be"));
        }
        let blocks = BlockSet::in_file(Pool::global(), Arc::clone(&file))?;
        let budget = Arc::new(Budget::new(limit_of(options.max_bytes, true)));
        let pile = Self::over(blocks, budget, file.shards())?;
        pile.recover(&file)?;
        Ok(pile)
    }

    /// Looks at all that a pile's file holds, without a change of it, and returns the figures. What is checked is the
    /// structure: whether every word, tag and length makes sense, every payload is its object's alone, and all adds up.
    /// Payloads are not looked into.
    ///
    /// # Errors
    /// [`FileError`], and [`FileError::InUse`] while it is open to write.
    pub fn check(path: impl AsRef<Path>) -> Result<PileStats, FileError> {
        let pile = Self::open(path, &OpenOptions { create: false, read_only: true, ..OpenOptions::default() })?;
        pile.validate().map_err(|wrong| FileError::damaged(None, wrong.0))?;
        Ok(pile.stats())
    }

    fn file(&self) -> Option<&Arc<BlockFile>> {
        self.blocks.file()
    }

    /// Whether the pile lies in a file.
    pub fn is_in_file(&self) -> bool {
        self.file().is_some()
    }

    /// In a forked child: whether the pile's file is the parent's; not of one that is open for reading only, in which
    /// both may read on. What is done then goes nowhere, and what the parent does may show: nothing of the pile is to
    /// be used.
    pub fn is_parted(&self) -> bool {
        self.file().is_some_and(|file| file.is_parted())
    }

    /// Waits until all that was done before is on the disk, and would be there after the machine went down. Other
    /// threads go on; of what they do meanwhile, some may be there.
    ///
    /// After a machine went down, what was changed since the last flush may be there in part, and in any order: then
    /// [`Pile::open`] may find the file damaged. (After a *process* went down, it never is.) A pile without a file has
    /// nothing to flush.
    ///
    /// # Errors
    /// [`FileError::System`].
    pub fn flush(&self) -> Result<(), FileError> {
        self.file().map_or(Ok(()), |file| file.flush())
    }

    /// Appends a record to the file's log, for whatever the owner has to know of the payloads. Kept like an object, and
    /// never changed.
    ///
    /// # Errors
    /// [`BlockError::TooLarge`] above nearly 4 MiB; [`BlockError::Disk`] when the file cannot grow;
    /// [`BlockError::Setting`] when the pile has no file.
    pub fn append(&self, record: &[u8]) -> Result<(), BlockError> {
        let what = "a pile without a file has no log";
        self.file().ok_or(BlockError::Setting { what })?.append(record)
    }

    /// All records of the file's log, one behind the other; nothing without a file.
    ///
    /// # Errors
    /// [`FileError::Damaged`], [`FileError::Blocks`].
    pub fn log(&self) -> Result<Vec<u8>, FileError> {
        self.file().map_or_else(|| Ok(Vec::new()), |file| file.log())
    }

    /// What the file says of itself, if there is one.
    pub fn summary(&self) -> Option<FileSummary> {
        self.file().map(|file| file.summary())
    }

    /// The pointer that was kept last: where a program finds the first of its objects. It is as any pointer, and
    /// refused when its object is gone.
    pub fn root(&self) -> Option<Pointer> {
        // Relaxed: the number is the whole message.
        let bits = self.file().map_or_else(|| self.root.load(Ordering::Relaxed), |file| file.root());
        Pointer::from_bits(bits)
    }

    /// Keeps a pointer as the [`Pile::root`], or none.
    ///
    /// # Errors
    /// [`PileError::Pointer`] when it is not live; the one before stays.
    pub fn set_root(&self, root: Option<Pointer>) -> Result<(), PileError> {
        if let Some(pointer) = root {
            Slot::live(&self.blocks, pointer)?;
        }
        let bits = root.map_or(0, Pointer::to_bits);
        match self.file() {
            Some(file) => file.keep_root(bits),
            None => self.root.store(bits, Ordering::Relaxed), // Relaxed: as above.
        }
        Ok(())
    }

    /// After a reader of an object over 1 MiB has let it go: lets the file go, if [`Pile::let_go`] left that to who
    /// came last. Views do so by themselves. Where the file cannot be unmapped, it goes with the pile.
    pub fn go_on_leaving(&self) {
        // SeqCst: see `Pile::let_go`.
        if self.leaving.load(Ordering::SeqCst) {
            let _ = self.let_go();
        }
    }

    /// Lets go of a run that may be nobody's any more, without a lock: to unmap it takes its time. As long as it is
    /// there, [`Pile::let_go`] takes it for one that somebody reads.
    pub(crate) fn part_with<R>(&self, run: R) {
        drop(run);
        self.go_on_leaving();
    }

    /// Lets the file go, so that others may open it, while this value lives on: every pointer is refused from then on,
    /// and every put. As long as there are views, or readers of objects over 1 MiB, nothing is done, and it returns
    /// false; the last view does it then. False without a file, too.
    ///
    /// # Errors
    /// [`FileError::System`]: the pile refuses everything, and the file stays locked until it is dropped.
    /// [`FileError::DescriptorLost`]: it was let go, and what has got its descriptor's number was left alone.
    /// [`FileError::Blocks`]: nothing was done, except that the last view, or the next call of this, lets it go.
    pub fn let_go(&self) -> Result<bool, FileError> {
        let Some(file) = self.file() else { return Ok(false) };
        // SeqCst, as the count of runs, and what a view asks at its end: the one of them that comes last finds the
        // other.
        self.leaving.store(true, Ordering::SeqCst);
        let mut all = lock_all(self.shards())?;
        let known: u64 = all.iter().map(|locked| locked.large.count).sum();
        let seen = all.iter().any(|locked| !locked.pins.is_empty() || locked.large.is_shared());
        // Some may be gone from the pile and still be looked at.
        if seen || file.runs_in_use() != known {
            return Ok(false);
        }
        self.budget.set_limit(0);
        for (number, locked) in all.iter_mut().enumerate() {
            give_pages(&self.budget, locked);
            locked.heap = Heap::new(number as u32, |floor| Word::free(floor).0);
            locked.large.leave();
            (locked.objects, locked.used_bytes, locked.away) = (0, 0, 0);
        }
        // SAFETY: all writers' locks are held, and their heaps have no blocks from now on. There is no view, whose
        // slices are the only ones of blocks, and nobody has a run: of those there were, the tables have just been
        // emptied.
        unsafe { file.let_go() }.map(|()| true)
    }
}

#[cfg(test)]
mod tests {
    use gabion_blocks::LAST_GENERATION;

    use super::*;

    /// The header said that generations had gone on beyond the last one, and no such file was ever opened again.
    #[test]
    fn a_slot_that_is_used_up_stays_so_in_its_file() {
        let path = std::env::temp_dir().join(format!("gabion-{}-retired.pile", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let open = || Pile::open(&path, &OpenOptions { shards: Some(1), ..OpenOptions::default() }).unwrap();
        let pile = open();
        let number = pile.put(b"first").unwrap().place().number();
        pile.clear();
        pile.blocks.raise_generation_floor(number, LAST_GENERATION - 1);
        // A page full of them, so that the slot that becomes free is the next one.
        let mut others: Vec<_> = (0..64).map(|_| pile.put(&[2; 1016]).unwrap()).collect();
        others.retain(|other| other.generation() == Some(LAST_GENERATION - 1));
        pile.remove(others.pop().unwrap()).unwrap();
        let put = || pile.put(&[1; 1016]).unwrap();
        let last = std::iter::repeat_with(put).find(|last| last.generation() == Some(LAST_GENERATION)).unwrap();
        pile.remove(last).unwrap();
        for round in 0..3 {
            let pile = open_again(&path, if round == 0 { Some(&pile) } else { None });
            assert!(!pile.contains(last) && others.iter().all(|&other| pile.contains(other) == (round < 2)));
            pile.validate().unwrap();
            if round == 1 {
                pile.clear();
            }
        }
        drop(pile);
        std::fs::remove_file(&path).unwrap();
    }

    /// Opens a file again, after its pile has let it go.
    fn open_again(path: &Path, before: Option<&Pile>) -> Pile {
        assert!(before.is_none_or(|pile| pile.let_go().unwrap()));
        Pile::open(path, &OpenOptions::default()).unwrap()
    }
}
