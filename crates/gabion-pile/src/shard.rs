//! A shard: a heap and what is known about its objects, behind one lock for writers.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use gabion_blocks::os::{AtFork, out_of_cancels_reach};
use gabion_blocks::{Biased, BiasedGuard, Block, BlockError, BlockSet, LAST_GENERATION, make_room, unique_number};
use gabion_heap::{Heap, Loc};

use crate::large::LargeTable;
use crate::pins::Pins;
use crate::word::Word;

/// How many forks led from the process in which the first pile was made to this one.
static FORKS: AtomicU32 = AtomicU32::new(0);

static AT_FORK: AtFork = AtFork::new(before, in_parent, in_child);

/// Has the piles of forked children go on with generations of their own. Without, parent and child would give out the
/// same numbers for different objects.
pub(crate) fn watch_forks() {
    AT_FORK.watch();
}

extern "C" fn before() {
    AT_FORK.note_call();
}

extern "C" fn in_parent() {}

extern "C" fn in_child() {
    // Relaxed: the number is its whole message, and the child has one thread.
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// How far ahead of its parent's a child's generations begin: by one of so many numbers. Others have few of them in
/// common with it, and a slot has all but a small part of its generations left.
const AHEAD: u32 = 1 << 14;

/// One shard. Aligned so that two shards never share a cache line, nor the pair that the prefetcher takes.
#[repr(align(128))]
pub(crate) struct Shard {
    inner: Biased<Inner>,
    objects: AtomicU64,
}

/// What the lock guards. `objects = inline + away + large.count`.
pub(crate) struct Inner {
    pub heap: Heap,
    pub large: LargeTable,
    pub pins: Pins,
    /// Live objects.
    pub objects: u64,
    /// Bytes of all payloads.
    pub used_bytes: u64,
    /// Objects whose payload lies in another slot or in a chunk.
    pub away: u64,
    /// A payload is never overwritten where it lies, so that a process that opens the pile's file finds the old one or
    /// the new one.
    pub writes_beside: bool,
    /// No page could be cleared of chunks, and none was freed since.
    pub crowded: bool,
    version: u32,
    /// What [`FORKS`] was when `least` was set.
    forks: u32,
    /// The least generation that is given out.
    least: u32,
}

impl Shard {
    /// What the lock guards, for who has the shard to itself.
    pub fn inner_mut(&mut self) -> &mut Inner {
        self.inner.get_mut()
    }

    pub fn new(number: u32, writes_beside: bool) -> Self {
        let heap = Heap::new(number, |floor| Word::free(floor).0);
        // The first key of a table of the standard library's comes from the system.
        let (large, pins) = out_of_cancels_reach(|| (LargeTable::new(number), Pins::default()));
        let forks = FORKS.load(Ordering::Relaxed); // Relaxed: see `in_child`.
        let (objects, used_bytes, away, crowded, version, least) = (0, 0, 0, false, 0, 0);
        let inner =
            Inner { heap, large, pins, objects, used_bytes, away, writes_beside, crowded, version, forks, least };
        Self { inner: Biased::new(inner), objects: AtomicU64::new(0) }
    }

    /// Locks the shard for writing. Never held while foreign code runs.
    #[inline]
    pub fn lock(&self) -> Locked<'_> {
        // A panic under the lock would be a bug of this crate; the words in the blocks are whole at every instant.
        self.locked(self.inner.lock())
    }

    /// As [`Shard::lock`], if the lock is biased to this thread; never waits.
    #[inline(always)]
    pub fn try_lock_biased(&self) -> Option<Locked<'_>> {
        self.inner.try_lock_biased().map(|inner| self.locked(inner))
    }

    #[inline(always)]
    fn locked<'a>(&'a self, inner: BiasedGuard<'a, Inner>) -> Locked<'a> {
        // Release: orders the guards that another thread changed under this lock before whatever this one writes into
        // the room that became free (see `protocol`).
        fence(Ordering::Release);
        Locked { inner, objects: &self.objects }
    }

    /// Live objects, without the lock.
    pub fn objects(&self) -> u64 {
        // Relaxed: a count that may be stale by the time it is used anyway.
        self.objects.load(Ordering::Relaxed)
    }
}

impl Inner {
    /// The generation of what is put into a free slot.
    #[inline(always)]
    pub fn generation_for(&mut self, blocks: &BlockSet, block: &Block<'_>, at: Loc) -> u32 {
        // Relaxed: the shard's lock orders the word. See `in_child` for the other.
        let generation = Word(block.word(at.word()).load(Ordering::Relaxed)).generation();
        if generation >= self.least && self.forks == FORKS.load(Ordering::Relaxed) {
            return generation;
        }
        self.generation_after_fork(blocks, at, generation)
    }

    #[cold]
    fn generation_after_fork(&mut self, blocks: &BlockSet, at: Loc, generation: u32) -> u32 {
        let forks = FORKS.load(Ordering::Relaxed); // Relaxed: see `in_child`.
        if self.forks != forks {
            self.forks = forks;
            // A slot whose generations are used up by half keeps the others, and what lies in a file is the parent's.
            let floors = blocks.each_number().map(|number| blocks.generation_floor(number));
            let highest = floors.filter(|&floor| floor < LAST_GENERATION / 2).max().unwrap_or(0);
            if blocks.file().is_none() {
                self.least = highest + 1 + unique_number() as u32 % AHEAD;
            }
        }
        if generation < self.least {
            blocks.raise_generation_floor(at.number(), self.least);
        }
        generation.max(self.least)
    }

    /// A version that no word of this shard has had for a long time.
    #[inline]
    pub fn next_version(&mut self) -> u32 {
        self.version = (self.version + 1) & ((1 << Word::VERSION_BITS) - 1);
        self.version
    }
}

/// Locks all shards, in their order: nobody else holds two of them.
///
/// # Errors
/// [`BlockError::Refused`]; none is locked.
pub(crate) fn lock_all(shards: &[Shard]) -> Result<Vec<Locked<'_>>, BlockError> {
    let mut all = Vec::new();
    make_room(&mut all, shards.len())?;
    all.extend(shards.iter().map(Shard::lock));
    Ok(all)
}

/// A locked shard; publishes the object count when it is let go.
pub(crate) struct Locked<'a> {
    inner: BiasedGuard<'a, Inner>,
    objects: &'a AtomicU64,
}

impl std::ops::Deref for Locked<'_> {
    type Target = Inner;
    fn deref(&self) -> &Inner {
        &self.inner
    }
}

impl std::ops::DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Inner {
        &mut self.inner
    }
}

impl Drop for Locked<'_> {
    #[inline]
    fn drop(&mut self) {
        // Relaxed: see `Shard::objects`; only the lock's holder stores.
        self.objects.store(self.inner.objects, Ordering::Relaxed);
    }
}
