//! The file: opened, grown, flushed, let go.

use std::fs::File;
use std::ops::{Deref, DerefMut};
use std::path::Path;

use super::error::FileError;
use super::layout::{HEAD_BYTES, ROOT, Superblock, Use, commit, offset_of, read, table_stretches, table_word};
use super::log_block::LogBlock;
use super::opening::{How, is_begun, open_locked, unmake};
use super::space::{Base, Range, Space};
use crate::directory::BLOCK_NUMBERS;
use crate::error::BlockError;
use crate::fallible::make_room;
use crate::inside::{self, Inside};
use crate::os::{Disk, OwnFile, system_disk};
use crate::sync::{AtomicBool, AtomicU64, Mutex, MutexGuard, Ordering, lock, try_lock};
use crate::unique::unique_number;
use crate::{BLOCK_BYTES, LARGEST_SYSTEM_PAGE};

/// How a file is opened.
#[derive(Debug, Clone, Copy)]
pub struct FileOptions {
    /// Shards of its owner, where it is made anew: a power of two. Otherwise the file says how many.
    pub shards: usize,
    /// Whether it is made where it is not there.
    pub create: bool,
    /// Nothing goes to the file: what is written to its blocks stays this process's own. Others may have it open so at
    /// the same time.
    pub read_only: bool,
    /// The door to the system. `None`: the system itself.
    pub disk: Option<&'static dyn Disk>,
}

/// What a file says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileSummary {
    /// By which it is known among others. Copies of it have it, too, and so has what is saved of a pile in it: pointers
    /// of the one are good for the other.
    pub id: u64,
    /// Its format.
    pub format: u32,
    /// Shards of its owner.
    pub shards: usize,
    /// Blocks of its heaps.
    pub heap_blocks: u64,
    /// Blocks of runs.
    pub run_blocks: u64,
    /// Blocks of the log.
    pub log_blocks: u64,
    /// Blocks that are used for nothing.
    pub free_blocks: u64,
}

/// A mapped file of blocks. See the [module's documentation](crate::file).
pub struct BlockFile {
    file: OwnFile,
    pub(super) disk: &'static dyn Disk,
    superblock: Superblock,
    /// Superblock and table.
    head: Range,
    state: Mutex<State>,
    /// Whether what is written goes to the file.
    shared: AtomicBool,
    /// In a forked child, whose parent has the file and its lock. Never of one that is open for reading only.
    parted: AtomicBool,
    /// This opening is another process's, too.
    forked: AtomicBool,
    read_only: bool,
    /// Runs that somebody has.
    pub(super) runs: AtomicU64,
}

/// What the lock guards.
pub(super) struct State {
    pub space: Space,
    /// Blocks that the file has.
    pub end: u32,
    /// Those that are used for nothing.
    pub free: u32,
    /// None below this one is.
    pub first_free: u32,
    /// The block of the log that is written to.
    pub log: Option<LogBlock>,
    /// Threads that wait for the disk, and use the descriptor without the lock.
    flushing: u32,
    /// The file was let go, and its descriptor is to be closed by who uses it last.
    left: bool,
}

/// The locked state. Who has it may ask for memory: an allocator that stands on gabion must not wait for its own locks
/// then, which a thread that is about to fork may hold, and wait for this one.
pub(super) struct Locked<'a> {
    // Let go in this order.
    state: MutexGuard<'a, State>,
    _inside: Inside,
}

impl Deref for Locked<'_> {
    type Target = State;
    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

pub(super) const REFUSED: BlockError = BlockError::Setting {
    what: "the pile's file takes nothing any more: it was closed, was opened for reading only, or belongs to the process that \
           forked this one",
};

impl BlockFile {
    /// Maps a file, or makes it. What its table says is still to be looked at.
    pub(super) fn map(path: &Path, options: &FileOptions) -> Result<Self, FileError> {
        let disk = options.disk.unwrap_or_else(system_disk);
        let (create, shared) = (options.create && !options.read_only, !options.read_only);
        let (file, made) = open_locked(path, How { create, write: shared }, disk)?;
        let length = file.metadata().map_err(FileError::system("look at the file"))?.len();
        let begun = length == 0 || is_begun(&file, length)?;
        if begun && !create {
            return Err(FileError::NotOurs);
        }
        if shared {
            // A store to what the disk has no room for would end the process.
            let kept = disk.allocate(&file, 0, LARGEST_SYSTEM_PAGE as u64, HEAD_BYTES as u64);
            if kept.is_err() {
                disk.cut(&file, length);
                if made {
                    unmake(path, &file);
                }
            }
            kept.map_err(FileError::number("make the file"))?;
        }
        let head = Range::reserve(disk, HEAD_BYTES).map_err(FileError::number("map the file"))?;
        head.map(0, HEAD_BYTES, &file, 0, shared).map_err(FileError::number("map the file"))?;
        // SAFETY: the whole head was mapped just now, here and below.
        let word = |at: usize| unsafe { head.word(at) };
        let superblock = match Superblock::read(|at| read(word(at)))? {
            Some(found) => found,
            None if begun => {
                let made = Superblock::new(unique_number(), options.shards as u32);
                made.write(|at, value| commit(word(at), value));
                made
            }
            None => return Err(FileError::NotOurs),
        };
        let blocks = length.saturating_sub(HEAD_BYTES as u64) / BLOCK_BYTES as u64;
        let end = blocks.min(u64::from(BLOCK_NUMBERS)) as u32;
        let mut space = Space::default();
        space.map(disk, &file, end, shared)?;
        if length > HEAD_BYTES as u64 && !(length - HEAD_BYTES as u64).is_multiple_of(BLOCK_BYTES as u64) {
            return Err(FileError::damaged(length, "the file ends within a block"));
        }
        let state = Mutex::new(State { space, end, free: 0, first_free: 0, log: None, flushing: 0, left: false });
        Ok(Self {
            file: OwnFile::new(file).map_err(FileError::system("look at the file"))?,
            disk,
            superblock,
            head,
            state,
            shared: AtomicBool::new(shared),
            parted: AtomicBool::new(false),
            forked: AtomicBool::new(false),
            read_only: options.read_only,
            runs: AtomicU64::new(0),
        })
    }

    /// The file by its descriptor, if that is still its own.
    pub(super) fn own(&self) -> Result<&File, BlockError> {
        self.file.get().ok_or(BlockError::DescriptorLost)
    }

    pub(super) fn lock(&self) -> Locked<'_> {
        let inside = inside::enter();
        Locked { state: self.lock_to_fork(), _inside: inside }
    }

    /// As [`BlockFile::lock`], for a fork, whose thread goes inside by itself.
    pub(super) fn lock_to_fork(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// As [`BlockFile::lock_to_fork`], unless it is taken.
    pub(super) fn try_lock(&self) -> Option<MutexGuard<'_, State>> {
        try_lock(&self.state)
    }

    fn table(&self, position: u32) -> &AtomicU64 {
        // SAFETY: the whole head is mapped as long as the file is.
        unsafe { self.head.word(table_word(position)) }
    }

    pub(super) fn use_of(&self, position: u32) -> Option<Use> {
        Use::of(read(self.table(position)))
    }

    pub(super) fn set_use(&self, position: u32, what: Use) {
        commit(self.table(position), what.word());
    }

    /// Whether what is written goes to the file.
    pub fn is_shared(&self) -> bool {
        // Relaxed: changed under all locks of those who write, or in a child that has one thread.
        self.shared.load(Ordering::Relaxed)
    }

    fn stop_sharing(&self) {
        self.shared.store(false, Ordering::Relaxed); // Relaxed: see `is_shared`.
    }

    /// Blocks that the file has.
    pub fn blocks(&self) -> u32 {
        self.lock().end
    }

    /// Runs that somebody has, be it the owner, or a reader of what is gone.
    pub fn runs_in_use(&self) -> u64 {
        // SeqCst: see `Pile::let_go`.
        self.runs.load(Ordering::SeqCst)
    }

    pub(super) fn superblock(&self) -> Superblock {
        self.superblock
    }

    /// Shards of its owner.
    pub fn shards(&self) -> usize {
        self.superblock.shards as usize
    }

    /// Where the generations of its blocks begin.
    pub fn first_generation(&self) -> u32 {
        self.superblock.first_generation
    }

    /// Where a block begins in the file, by its number. For errors.
    pub fn offset_of(&self, number: u32) -> u64 {
        offset_of(self.superblock.position_of(number))
    }

    /// The number that was kept last by [`BlockFile::keep_root`], or 0.
    pub fn root(&self) -> u64 {
        // Acquire: pairs with the commit.
        self.root_word().load(Ordering::Acquire)
    }

    /// Keeps a number for the process that opens the file next.
    pub fn keep_root(&self, root: u64) {
        commit(self.root_word(), root);
    }

    fn root_word(&self) -> &AtomicU64 {
        // SAFETY: the whole head is mapped as long as the file is.
        unsafe { self.head.word(ROOT) }
    }

    /// In a forked child: whether the file is the parent's.
    pub fn is_parted(&self) -> bool {
        self.parted.load(Ordering::Relaxed) // Relaxed: set when the child has one thread.
    }

    /// Takes a block: where it is, its first byte, and whether it reads as zero. Until its use is set it is free for
    /// the process that opens the file next. Its first 4 KiB read as zero in any case.
    pub(super) fn take_block(&self, state: &mut State) -> Result<(u32, Base, bool), BlockError> {
        if !self.is_shared() {
            return Err(REFUSED);
        }
        if state.free > 0
            && let Some(position) =
                (state.first_free..state.end).find(|&position| self.use_of(position) == Some(Use::Nothing))
        {
            // As long as its use is not set, it is free.
            state.first_free = position;
            self.keep_free_room(position, BLOCK_BYTES as u64)?;
            let (base, _) = state.space.find(position).expect("a block of the file is mapped");
            base.clear(LARGEST_SYSTEM_PAGE);
            state.free -= 1;
            return Ok((position, base, false));
        }
        let position = state.end;
        self.grow(state, 1, BLOCK_BYTES as u64)?;
        let (base, _) = state.space.find(position).expect("it was mapped just now");
        state.free -= 1;
        Ok((position, base, true))
    }

    /// Makes the file `blocks` blocks longer, of which `room` bytes are to be written. They are free.
    pub(super) fn grow(&self, state: &mut State, blocks: u32, room: u64) -> Result<(), BlockError> {
        let end = state.end.checked_add(blocks).filter(|&end| end <= BLOCK_NUMBERS);
        let end = end.ok_or(BlockError::Exhausted { what: "blocks of a file" })?;
        let refused = |errno| BlockError::Disk { asked: room, errno };
        let file = self.own()?;
        for stretch in table_stretches(state.end, end) {
            // As in `open_shared`.
            self.disk.allocate(file, stretch, LARGEST_SYSTEM_PAGE as u64, 0).map_err(refused)?;
        }
        let before = offset_of(state.end);
        let kept = self.keep_room(file, (state.end, room), end);
        let mapped = kept.and_then(|()| state.space.map(self.disk, file, blocks, true));
        // What the disk has kept so far goes back.
        mapped.inspect_err(|_| self.disk.cut(file, before))?;
        (state.end..end).for_each(|position| self.set_use(position, Use::Nothing));
        state.end = end;
        state.free += blocks;
        Ok(())
    }

    /// As [`BlockFile::keep_room`], of blocks that are there and free: what the disk has kept so far goes back where it
    /// has not enough.
    pub(super) fn keep_free_room(&self, position: u32, room: u64) -> Result<(), BlockError> {
        let file = self.own()?;
        self.keep_room(file, (position, room), 0).inspect_err(|_| {
            self.disk.punch(file, offset_of(position), room);
        })
    }

    fn keep_room(&self, file: &File, (position, room): (u32, u64), end: u32) -> Result<(), BlockError> {
        let refused = |errno| BlockError::Disk { asked: room, errno };
        self.disk.allocate(file, offset_of(position), room, offset_of(end)).map_err(refused)
    }

    /// Takes a block for a heap, and says whether it reads as zero but for its first 4 KiB, which do in any case.
    pub(crate) fn add_heap_block(&self) -> Result<(u32, Base, bool), BlockError> {
        let mut state = self.lock();
        let (position, base, zero) = self.take_block(&mut state)?;
        self.set_use(position, Use::Heap);
        Ok((self.superblock.number_of(position), base, zero))
    }

    /// The blocks of heaps: their numbers and first bytes.
    ///
    /// # Errors
    /// [`BlockError::Refused`] when there is no memory for the list.
    pub(crate) fn heap_blocks(&self) -> Result<Vec<(u32, Base)>, BlockError> {
        self.each(|position, (base, _), found| {
            (found == Use::Heap).then(|| (self.superblock.number_of(position), base))
        })
    }

    /// What is picked of all blocks, by their positions, first bytes, how many follow one another in addresses from
    /// there on, and uses.
    pub(super) fn each<T>(&self, pick: impl Fn(u32, (Base, u32), Use) -> Option<T>) -> Result<Vec<T>, BlockError> {
        let (state, mut found) = (self.lock(), Vec::new());
        for position in 0..state.end {
            let (Some(at), Some(what)) = (state.space.find(position), self.use_of(position)) else { continue };
            if let Some(picked) = pick(position, at, what) {
                make_room(&mut found, 1)?;
                found.push(picked);
            }
        }
        Ok(found)
    }

    /// What the file takes, and how it is used.
    pub fn summary(&self) -> FileSummary {
        let state = self.lock();
        let mut summary = FileSummary {
            id: self.superblock.id,
            format: super::layout::FORMAT,
            shards: self.shards(),
            heap_blocks: 0,
            run_blocks: 0,
            log_blocks: 0,
            free_blocks: 0,
        };
        for position in 0..state.end {
            *match self.use_of(position) {
                Some(Use::Heap) => &mut summary.heap_blocks,
                Some(Use::Run { .. } | Use::Rest) => &mut summary.run_blocks,
                Some(Use::Log) => &mut summary.log_blocks,
                Some(Use::Nothing | Use::Untouched) | None => &mut summary.free_blocks,
            } += 1;
        }
        summary
    }

    /// Waits until all that was written so far is on the disk, and will be there when the machine goes down. Of a file
    /// that is open for reading only, nothing is to be written.
    ///
    /// # Errors
    /// [`FileError::System`]; also when the file was let go, or belongs to the process that forked this one.
    /// [`FileError::DescriptorLost`].
    pub fn flush(&self) -> Result<(), FileError> {
        let refused = |errno| FileError::number("write the file to the disk")(errno);
        if !self.is_shared() {
            return if self.read_only { Ok(()) } else { Err(refused(libc::EBADF)) };
        }
        // Without the lock, so that others may go on. Stretches stay where they are as long as the file does.
        let mut stretches = Vec::new();
        {
            let mut state = self.lock();
            state.space.each(|range, bytes, _| {
                make_room(&mut stretches, 1)?;
                stretches.push((range.part(0, bytes), bytes));
                Ok::<(), BlockError>(())
            })?;
            state.flushing += 1;
        }
        // SAFETY: mapped stretches; `self` keeps them.
        let synced = stretches.iter().try_for_each(|&(at, bytes)| unsafe { self.disk.sync(at, bytes) });
        let all = synced.and_then(|()| self.head.sync(HEAD_BYTES)).map_err(refused);
        let done = all.and_then(|()| match self.file.get() {
            Some(file) => file.sync_all().map_err(FileError::system("write the file to the disk")),
            // What was stored has gone to the disk by the map; that the file is as long as it is may not have.
            None => Err(FileError::DescriptorLost),
        });
        let mut state = self.lock();
        state.flushing -= 1;
        self.close_left(&state);
        done
    }

    /// Closes the descriptor of a file that was let go, unless somebody still uses it.
    fn close_left(&self, state: &State) {
        if state.left && state.flushing == 0 {
            self.file.close();
        }
    }

    /// Has all blocks read as zero from now on, takes nothing more, and lets the file go, for others to open. Running
    /// readers of words see zeros.
    ///
    /// # Errors
    /// [`FileError::System`]: the file is still open and locked, and takes nothing more. [`FileError::DescriptorLost`]:
    /// it was let go all the same, and what its number leads to by now was left alone.
    ///
    /// # Safety
    /// Nobody has a plain slice of a block or a run, or will make one, and nobody writes to them meanwhile.
    pub unsafe fn let_go(&self) -> Result<(), FileError> {
        let mut state = self.lock();
        self.stop_sharing();
        let refused = |errno| FileError::number("unmap the file")(errno);
        state.space.each(|range, bytes, _| range.blank(bytes)).map_err(refused)?;
        self.head.blank(HEAD_BYTES).map_err(refused)?;
        if state.left {
            return Ok(());
        }
        let found = self.own().map(drop);
        self.unlock();
        state.left = true;
        self.close_left(&state);
        Ok(found?)
    }

    /// Whether it is open for reading, and so in another process as well, of which either may read on when the other
    /// has let it go.
    fn is_common(&self) -> bool {
        self.read_only && self.forked.load(Ordering::Relaxed) // Relaxed: set before the fork, by a thread that holds the lock.
    }

    fn unlock(&self) {
        // A child's lock of what its parent writes would be the parent's, too, and is not its to let go.
        if !self.is_parted()
            && !self.is_common()
            && let Some(file) = self.file.get()
        {
            self.disk.unlock(file);
        }
    }

    /// Before a fork, by who holds the lock of `state`.
    pub(super) fn note_fork(&self) {
        self.forked.store(true, Ordering::Relaxed); // Relaxed: see `is_common`.
    }

    /// In a forked child: takes nothing more of the file, which is the parent's. One that is open for reading only
    /// stays as it is.
    pub(super) fn disown(&self) {
        if !self.read_only {
            self.stop_sharing();
            self.parted.store(true, Ordering::Relaxed); // Relaxed: the child has one thread.
        }
    }

    /// In a forked child, whose only thread holds the lock of `state`: what it writes stays its own, and nobody who
    /// wants the file has to wait for it. One that is open for reading only stays as it is: what is mapped of it is
    /// each process's own already, and made to be read.
    pub(super) fn part(&self, state: &State) {
        self.disown();
        if self.read_only {
            return;
        }
        // First, for what is mapped keeps the opening that it is mapped of, and its lock.
        let own = self.file.get().inspect(|file| self.disk.reopen(file));
        // Without memory for that, the addresses go: better than to write to the parent's file.
        let part = |range: &Range, bytes: usize, from: u64| {
            let mapped = own.is_some_and(|file| range.map(0, bytes, file, from, false).is_ok());
            if mapped { Ok(()) } else { range.blank(bytes) }
        };
        let parted = state.space.each(part).and_then(|()| part(&self.head, HEAD_BYTES, 0));
        if parted.is_err() {
            std::process::abort();
        }
    }
}

impl Drop for BlockFile {
    fn drop(&mut self) {
        // By itself it goes with the last who shares this opening, such as a child on its way to another program.
        self.unlock();
    }
}

impl std::fmt::Debug for BlockFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlockFile").field("superblock", &self.superblock).finish_non_exhaustive()
    }
}
