//! A shard: a heap and what is known about its objects, behind one lock for writers.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use gabion_blocks::os::out_of_cancels_reach;
use gabion_blocks::{Biased, BiasedGuard, BlockError, make_room};
use gabion_heap::Heap;

use crate::large::LargeTable;
use crate::pins::Pins;
use crate::word::Word;

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
}

impl Shard {
    pub fn new(number: u32, writes_beside: bool) -> Self {
        let heap = Heap::new(number, |floor| Word::free(floor).0);
        // The first key of a table of the standard library's comes from the system.
        let (large, pins) = out_of_cancels_reach(|| (LargeTable::new(number), Pins::default()));
        let inner =
            Inner { heap, large, pins, objects: 0, used_bytes: 0, away: 0, writes_beside, crowded: false, version: 0 };
        Self { inner: Biased::new(inner), objects: AtomicU64::new(0) }
    }

    /// Locks the shard for writing. Never held while foreign code runs.
    #[inline]
    pub fn lock(&self) -> Locked<'_> {
        // A panic under the lock would be a bug of this crate; the words in the blocks are whole at every instant.
        self.locked(self.inner.lock())
    }

    /// As [`Shard::lock`], if the lock leans to this thread; never waits.
    #[inline(always)]
    pub fn lean(&self) -> Option<Locked<'_>> {
        self.inner.lean().map(|inner| self.locked(inner))
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
    /// A version that no word of this shard has had for a long time.
    #[inline]
    pub fn next_version(&mut self) -> u32 {
        self.version = (self.version + 1) & ((1 << 28) - 1);
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
