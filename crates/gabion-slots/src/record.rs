//! What a block says about its pages: its header, and a record for each page.
//!
//! ```text
//! block    │ header │ record 1 │ record 2 │ … │ record 63 │ page 1 │ page 2 │ … │ page 63 │
//!            1 KiB    1 KiB each: together page 0             64 KiB each, nothing but slots
//!
//! record   │ line 0: read by all    owner, class, slot size, slots, epoch        │
//!          │ line 1: the owner's    used, threshold, place in a list             │
//!          │ 56 pairs               free bits │ left bits   of 64 slots each      │
//! ```
//!
//! So the place of a record follows from any address in its page, slots begin at multiples of their size, and what is
//! known about the pages of a block does not fall into the same few lines of a cache.

use std::ptr::NonNull;

use gabion_blocks::{BLOCK_BYTES, PAGE_BYTES, PAGES_PER_BLOCK};

use crate::sync::{AtomicI32, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed};
use crate::tier::{MOST_SLOTS, SHAPES};

const RECORD_BYTES: usize = PAGE_BYTES / PAGES_PER_BLOCK;

/// All pages that hold slots, as bits.
pub(crate) const ALL_PAGES: u64 = u64::MAX << 1;

/// Sixty-four slots: which are free, as the page's owner knows, and which were freed by others, as he does not know yet.
///
/// One line holds both, so that whoever frees looks at one line only.
#[repr(C)]
pub(crate) struct Pair {
    /// Written by the owner alone.
    pub free: AtomicU64,
    /// Set by others, cleared by the owner after it has set the same bits in `free`.
    pub left: AtomicU64,
}

impl Pair {
    /// Whether one of these slots is free, as far as another thread can see. What its owner collects is set in `free` before
    /// it is cleared in `left`, so this looks the other way round.
    pub fn is_free(&self, bits: u64) -> bool {
        // Acquire: pairs with the release in `letters::collect`.
        let left = self.left.load(Acquire);
        (left | self.free.load(Relaxed)) & bits != 0
    }
}

/// Where a page stands among the pages of its shelf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Standing(pub u8);

impl Standing {
    /// In the list of pages with room whose fullness is in this quarter: 0 to 3.
    pub const QUARTERS: u8 = 4;
    /// In no list, because there is next to no room in it.
    pub const FULL: Self = Self(4);
    /// The page that allocations come from.
    pub const ACTIVE: Self = Self(5);
}

/// What of a record is left for pairs.
const PAIRS: usize = MOST_SLOTS / 64;

/// The record of a page. `slots = used + bits set in free`, where `used` counts what others have freed until the owner
/// has collected it. Atomic, because other threads read line 0 and reports read `used`; only pairs' `left` has two writers.
#[repr(C, align(1024))]
pub(crate) struct Record {
    pub line: Line,
    pub own: OwnLine,
    pub pairs: [Pair; PAIRS],
}

/// Constant while the page is in use.
#[repr(C, align(64))]
pub(crate) struct Line {
    /// The arena's word, or 0 when the page is not in use.
    pub owner: AtomicU64,
    pub reciprocal: AtomicU32,
    /// Its affinity's when the page was opened.
    pub epoch: AtomicU32,
    /// Bytes of a slot.
    pub slot: AtomicU16,
    pub slots: AtomicU16,
    pub class: AtomicU8,
    pub affinity: AtomicU8,
}

/// Changes with every allocation and free.
#[repr(C, align(64))]
pub(crate) struct OwnLine {
    /// `used − threshold`: a free has no more to do than to count down and look at the sign.
    spare: AtomicI32,
    /// The owner looks for another standing when `used` falls below.
    threshold: AtomicI32,
    /// Neighbours in the list of its quarter.
    pub next: AtomicU32,
    pub previous: AtomicU32,
    /// The pair where the search for free slots begins.
    pub cursor: AtomicU32,
    pub standing: AtomicU8,
}

const _: () = assert!(size_of::<Record>() == RECORD_BYTES);

/// The header of a block of pages. Its own thread's, but for the lines of `mail`.
#[repr(C, align(1024))]
pub(crate) struct Header {
    /// Zero, as the owner of a page that is not in use: no address in page 0 is a slot's.
    _no_owner: AtomicU64,
    /// The block's number.
    pub number: AtomicU32,
    pub affinity: AtomicU8,
    /// Pages not in use, as bits.
    pub free: AtomicU64,
    /// Free pages that were not touched yet.
    pub zero: AtomicU64,
    /// Neighbours among the row's blocks with free pages, in the form of [`link`].
    pub room_next: AtomicU32,
    pub room_previous: AtomicU32,
    /// Neighbours among all blocks of the row.
    pub next: AtomicU32,
    pub previous: AtomicU32,
    /// True while it is among those with free pages.
    pub has_room: AtomicU8,
    pub mail: Mail,
}

/// What other threads leave at a block; they need no other line of its header.
#[repr(C, align(64))]
pub(crate) struct Mail {
    /// The block's number, once more.
    pub number: AtomicU32,
    /// Pages with something in `left`, as bits.
    pub pages: AtomicU64,
    /// The next block in the owner's letter box.
    pub next: AtomicU32,
}

const _: () = assert!(size_of::<Header>() == RECORD_BYTES);

/// A number in a list: 0 means none.
#[inline]
pub(crate) fn link(number: u32) -> u32 {
    number + 1
}

/// The start of the block around an address.
#[inline(always)]
pub(crate) fn block_of(at: NonNull<u8>) -> NonNull<u8> {
    // Never null: what is handed out lies inside a mapped block.
    let base = at.as_ptr().map_addr(|address| address & !(BLOCK_BYTES - 1));
    NonNull::new(base).unwrap_or(at)
}

impl Record {
    /// The record of the page around an address.
    ///
    /// # Safety
    /// The address lies in a block of pages that stays with its `Slots` for `'a`.
    #[inline(always)]
    pub unsafe fn of<'a>(at: NonNull<u8>) -> &'a Self {
        let place = at.as_ptr().map_addr(|address| {
            address & !(BLOCK_BYTES - 1) | (address / PAGES_PER_BLOCK) & (PAGE_BYTES - RECORD_BYTES)
        });
        // SAFETY: page 0 of the block is all header and records, aligned to their size, and every field is atomic.
        unsafe { &*place.cast() }
    }

    /// The record that an address is inside of.
    ///
    /// # Safety
    /// As [`Record::of`], with an address in a record.
    #[inline]
    pub unsafe fn around<'a>(at: NonNull<u8>) -> &'a Self {
        let page = at.addr().get() % BLOCK_BYTES / RECORD_BYTES;
        // SAFETY: the caller's duty.
        unsafe { Self::at(block_of(at), page) }
    }

    /// The record of page `page` of a block.
    ///
    /// # Safety
    /// As [`Record::of`], with the block's first byte; `page` is 1 to 63.
    #[inline]
    pub unsafe fn at<'a>(base: NonNull<u8>, page: usize) -> &'a Self {
        debug_assert!((1..PAGES_PER_BLOCK).contains(&page));
        // SAFETY: as in `of`.
        unsafe { base.add(page * RECORD_BYTES).cast().as_ref() }
    }

    /// The block's first byte.
    #[inline]
    pub fn base(&self) -> NonNull<u8> {
        block_of(NonNull::from(self).cast())
    }

    /// The page's place in the block.
    #[inline]
    pub fn page(&self) -> usize {
        std::ptr::from_ref(self).addr() % BLOCK_BYTES / RECORD_BYTES
    }

    /// The block's header.
    #[inline]
    pub fn header(&self) -> &Header {
        // SAFETY: a record lies in a block of pages, which stays as long as its record.
        unsafe { Header::of(self.base()) }
    }

    /// The page's name, `number << 6 | page`.
    pub fn name(&self) -> u32 {
        self.header().number.load(Relaxed) * PAGES_PER_BLOCK as u32 + self.page() as u32
    }

    /// The page's first slot.
    #[inline]
    pub fn first_slot(&self) -> NonNull<u8> {
        // SAFETY: the page lies in the same block.
        unsafe { self.base().add(self.page() * PAGE_BYTES) }
    }

    /// The slot that begins at an address in this page, if one does.
    ///
    /// The offset is divided by multiplication; what the product has below the point is less than the reciprocal exactly
    /// if nothing is left over (Lemire, Kaser, Kurz 2019).
    #[inline(always)]
    pub fn index_of(&self, at: NonNull<u8>) -> Option<usize> {
        let offset = (at.addr().get() % PAGE_BYTES) as u64;
        let reciprocal = self.line.reciprocal.load(Relaxed);
        let product = offset * u64::from(reciprocal);
        let index = (product >> 32) as usize;
        ((product as u32) < reciprocal && index < self.line.slots.load(Relaxed) as usize).then_some(index)
    }

    /// The pair and the bit of a slot of this page.
    #[inline(always)]
    pub fn pair_of(&self, index: usize) -> Option<(&Pair, u64)> {
        Some((self.pairs.get(index / 64)?, 1 << (index % 64)))
    }

    /// As [`Record::pair_of`].
    ///
    /// # Safety
    /// The page is in use, and the index is one that [`Record::index_of`] has given.
    #[inline(always)]
    pub unsafe fn pair_unchecked(&self, index: usize) -> (&Pair, u64) {
        // SAFETY: the index is below the page's slots, which `open` has set to MOST_SLOTS at most.
        (unsafe { self.pairs.get_unchecked(index / 64) }, 1 << (index % 64))
    }

    /// Slots in use. With a threshold that is just being changed by the owner, another thread may see a wrong number.
    #[inline]
    pub fn used(&self) -> u32 {
        (self.own.spare.load(Relaxed) + self.own.threshold.load(Relaxed)).max(0).cast_unsigned()
    }

    /// Counts a slot that was taken.
    #[inline(always)]
    pub fn count_in(&self) {
        self.own.spare.store(self.own.spare.load(Relaxed) + 1, Relaxed);
    }

    /// Counts slots that were freed. True when the page needs another standing.
    #[inline(always)]
    pub fn count_out(&self, slots: u32) -> bool {
        let spare = self.own.spare.load(Relaxed) - slots.cast_signed();
        self.own.spare.store(spare, Relaxed);
        spare < 0
    }

    /// The number of slots in use below which the page needs another standing.
    pub fn threshold(&self) -> u32 {
        self.own.threshold.load(Relaxed).cast_unsigned()
    }

    /// Sets it.
    pub fn set_threshold(&self, threshold: u32) {
        let used = self.used().cast_signed();
        self.own.threshold.store(threshold.cast_signed(), Relaxed);
        self.own.spare.store(used - threshold.cast_signed(), Relaxed);
    }

    /// The bits of a pair that stand for slots.
    pub fn valid(&self, pair: usize) -> u64 {
        match usize::from(self.line.slots.load(Relaxed)).saturating_sub(pair * 64) {
            left @ 0..64 => (1 << left) - 1,
            _ => u64::MAX,
        }
    }

    /// Pairs in use.
    #[inline]
    pub fn pair_count(&self) -> usize {
        usize::from(self.line.slots.load(Relaxed)).div_ceil(64)
    }

    /// Makes the page one of `class`, with all slots free.
    pub fn open(&self, owner: u64, class: usize, affinity: u8, epoch: u32) {
        let shape = SHAPES[class];
        self.line.slot.store(shape.slot, Relaxed);
        self.line.slots.store(shape.slots, Relaxed);
        self.line.reciprocal.store(shape.reciprocal, Relaxed);
        self.line.class.store(class as u8, Relaxed);
        self.line.affinity.store(affinity, Relaxed);
        self.line.epoch.store(epoch, Relaxed);
        self.own.spare.store(0, Relaxed);
        self.own.threshold.store(0, Relaxed);
        self.own.cursor.store(0, Relaxed);
        let mut left = usize::from(shape.slots);
        for pair in &self.pairs[..left.div_ceil(64)] {
            pair.free.store(if left >= 64 { u64::MAX } else { (1 << left) - 1 }, Relaxed);
            pair.left.store(0, Relaxed);
            left = left.saturating_sub(64);
        }
        // Relaxed, as all above: another thread learns of the page by a slot that its user hands over.
        self.line.owner.store(owner, Relaxed);
    }
}

impl Header {
    /// The header of the block that begins at `base`.
    ///
    /// # Safety
    /// As [`Record::of`], with the block's first byte.
    #[inline]
    pub unsafe fn of<'a>(base: NonNull<u8>) -> &'a Self {
        // SAFETY: the first KiB of a block of pages is its header, and every field is atomic.
        unsafe { base.cast().as_ref() }
    }

    /// The block's first byte.
    #[inline]
    pub fn base(&self) -> NonNull<u8> {
        NonNull::from(self).cast()
    }
}
