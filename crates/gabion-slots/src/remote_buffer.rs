//! What a thread has freed of other threads' slots and not yet delivered to their owners.
//!
//! Frees into the same sixty-four slots are merged, since a thread that frees a run of slots that were allocated
//! together would otherwise pay an atomic step on another thread's cache line for each of them.

use std::cell::Cell;
use std::ptr;

use gabion_blocks::BLOCK_BYTES;

use crate::record::Page;
use crate::remote::Hazard;
use crate::sync::AtomicU64;

/// Places for pages, found by the page's address; each has the last pairs of such a page that something was freed in. A
/// thread that frees in the order of allocation is in one pair of a page at a time, and in one page of each class.
const PAGES: usize = 64;
const PAIRS: usize = 2;

/// After so many frees everything is delivered to its owner, whatever it is.
const MOST_WAITING: u32 = 4096;

/// How many bytes of chunks count as one more free: some MiB are as many as the limit.
const WAITING_BYTES: usize = 1 << 10;

/// Slots of one pair.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RemoteFreeBatch {
    /// Where its `remote_free` is.
    pub pair: *const AtomicU64,
    pub bits: u64,
    /// The block's: when its affinity was released since, the batch is nobody's.
    pub epoch: u64,
}

/// A batch, or none when `pair` is null.
struct Entry {
    pair: Cell<*const AtomicU64>,
    bits: Cell<u64>,
    epoch: Cell<u64>,
}

impl Entry {
    fn replace(&self, batch: RemoteFreeBatch) -> Option<RemoteFreeBatch> {
        let old = RemoteFreeBatch {
            pair: self.pair.replace(batch.pair),
            bits: self.bits.replace(batch.bits),
            epoch: self.epoch.replace(batch.epoch),
        };
        (!old.pair.is_null()).then_some(old)
    }
}

/// A thread's buffer of remote frees. The cells are the thread's own.
pub(crate) struct RemoteFreeBuffer {
    entries: [[Entry; PAIRS]; PAGES],
    /// Frees since everything was flushed.
    waiting: Cell<u32>,
    /// The block that this thread is delivering something to.
    pub hazard: Hazard,
}

impl RemoteFreeBuffer {
    #[inline(always)]
    fn entries(&self, page: Page<'_>) -> &[Entry; PAIRS] {
        // Pages in use follow each other, in every block from the first on: blocks' should spread.
        let block = ptr::from_ref(page.header).addr() / BLOCK_BYTES;
        &self.entries[block.wrapping_mul(11).wrapping_add(page.index()) % PAGES]
    }

    /// Adds one slot to its batch, if there is one for its pair already and it is not due. `Some(false)` when the slot
    /// is in it already: freed twice.
    #[inline(always)]
    pub fn add(&self, page: Page<'_>, pair: *const AtomicU64, bit: u64, epoch: u64) -> Option<bool> {
        let waiting = self.waiting.get();
        if waiting >= MOST_WAITING {
            return None;
        }
        let same = |entry: &&Entry| ptr::eq(entry.pair.get(), pair) && entry.epoch.get() == epoch;
        let entry = self.entries(page).iter().find(same)?;
        let bits = entry.bits.get();
        entry.bits.set(bits | bit);
        self.waiting.set(waiting + 1);
        Some(bits & bit == 0)
    }

    /// True when one of these slots is in a batch for its pair.
    pub fn has(&self, page: Page<'_>, pair: *const AtomicU64, bit: u64, epoch: u64) -> bool {
        let same = |entry: &&Entry| ptr::eq(entry.pair.get(), pair) && entry.epoch.get() == epoch;
        self.entries(page).iter().find(same).is_some_and(|entry| entry.bits.get() & bit != 0)
    }

    /// Puts in a batch; the oldest one that had its place comes out.
    pub fn put(&self, page: Page<'_>, batch: RemoteFreeBatch) -> Option<RemoteFreeBatch> {
        self.waiting.set(self.waiting.get() + 1);
        self.entries(page).iter().try_fold(batch, |batch, entry| entry.replace(batch).ok_or(())).ok()
    }

    /// Counts something that was delivered to its owner without a buffer, of `bytes` bytes: much of it should not lie
    /// there uncollected.
    pub fn count(&self, bytes: usize) {
        self.waiting.set(self.waiting.get() + 1 + (bytes / WAITING_BYTES) as u32);
    }

    /// True when it is time to flush.
    pub fn is_due(&self) -> bool {
        self.waiting.get() >= MOST_WAITING
    }

    /// True when nothing waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.get() == 0
    }

    /// Takes all batches out.
    pub fn drain(&self) -> impl Iterator<Item = RemoteFreeBatch> {
        self.waiting.set(0);
        let none = RemoteFreeBatch { pair: ptr::null(), bits: 0, epoch: 0 };
        self.entries.iter().flatten().filter_map(move |entry| entry.replace(none))
    }
}
