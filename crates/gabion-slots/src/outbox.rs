//! What a thread has freed of other threads' slots and not yet left at their owners.
//!
//! Frees into the same sixty-four slots are merged, since a thread that frees a run of slots that were allocated
//! together would otherwise pay an atomic step on another thread's cache line for each of them.

use std::cell::Cell;
use std::ptr;

use gabion_blocks::BLOCK_BYTES;

use crate::letters::Hazard;
use crate::record::Page;
use crate::sync::AtomicU64;

/// Places for pages, found by the page's address; each has the last pairs of such a page that something was freed in. A
/// thread that frees in the order of allocation is in one pair of a page at a time, and in one page of each class.
const PAGES: usize = 64;
const PAIRS: usize = 2;

/// After so many frees everything is left at its owner, whatever it is.
const MOST_WAITING: u32 = 4096;

/// How many bytes of chunks count as one more free: some MiB are as many as the limit.
const WAITING_BYTES: usize = 1 << 10;

/// Slots of one pair.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parcel {
    /// Where its `left` is.
    pub pair: *const AtomicU64,
    pub bits: u64,
    /// The block's: when its affinity was released since, the parcel is nobody's.
    pub epoch: u64,
}

/// A parcel, or none when `pair` is null.
struct Entry {
    pair: Cell<*const AtomicU64>,
    bits: Cell<u64>,
    epoch: Cell<u64>,
}

impl Entry {
    fn replace(&self, parcel: Parcel) -> Option<Parcel> {
        let old = Parcel {
            pair: self.pair.replace(parcel.pair),
            bits: self.bits.replace(parcel.bits),
            epoch: self.epoch.replace(parcel.epoch),
        };
        (!old.pair.is_null()).then_some(old)
    }
}

/// A thread's outbox. The cells are the thread's own.
pub(crate) struct Outbox {
    entries: [[Entry; PAIRS]; PAGES],
    /// Frees since everything was flushed.
    waiting: Cell<u32>,
    /// The block that this thread is leaving something at.
    pub hazard: Hazard,
}

impl Outbox {
    #[inline(always)]
    fn entries(&self, page: Page<'_>) -> &[Entry; PAIRS] {
        // Pages in use follow each other, in every block from the first on: blocks' should spread.
        let block = ptr::from_ref(page.header).addr() / BLOCK_BYTES;
        &self.entries[block.wrapping_mul(11).wrapping_add(page.index()) % PAGES]
    }

    /// Adds one slot to its parcel, if there is one for its pair already and it is not due. `Some(false)` when the slot
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

    /// True when one of these slots is in a parcel for its pair.
    pub fn has(&self, page: Page<'_>, pair: *const AtomicU64, bit: u64, epoch: u64) -> bool {
        let same = |entry: &&Entry| ptr::eq(entry.pair.get(), pair) && entry.epoch.get() == epoch;
        self.entries(page).iter().find(same).is_some_and(|entry| entry.bits.get() & bit != 0)
    }

    /// Puts in a parcel; the oldest one that had its place comes out.
    pub fn put(&self, page: Page<'_>, parcel: Parcel) -> Option<Parcel> {
        self.waiting.set(self.waiting.get() + 1);
        self.entries(page).iter().try_fold(parcel, |parcel, entry| entry.replace(parcel).ok_or(())).ok()
    }

    /// Counts something that was left at its owner without an outbox, of `bytes` bytes: much of it should not lie there
    /// unread.
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

    /// Takes all parcels out.
    pub fn drain(&self) -> impl Iterator<Item = Parcel> {
        self.waiting.set(0);
        let none = Parcel { pair: ptr::null(), bits: 0, epoch: 0 };
        self.entries.iter().flatten().filter_map(move |entry| entry.replace(none))
    }
}
