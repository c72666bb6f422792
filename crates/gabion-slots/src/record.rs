//! What a block says about itself and its pages: its header, which fills page 0.
//!
//! ```text
//! block    │ page 0 │ page 1 │ page 2 │ … │ page 63 │        64 KiB each; pages 1 to 63 hold nothing but slots
//! page 0   │ records 0 … 63 │ header │ remote │ pairs of page 1 │ … │ pairs of page 63 │
//!            32 B each        64 B     64 B     62 × `free`, then 62 × `remote_free`, of 64 slots each
//! ```
//!
//! So what is known about a page follows from any address in it, slots begin at multiples of their size, and a free
//! reads three lines of memory, of which it writes to two: the page's record, and the words of one pair. Allocations
//! write to no line that other threads write to. Neither records nor pairs stand at multiples of a large power of two,
//! where many pages' would share a few sets of a cache.

use std::ptr::{self, NonNull};

use gabion_blocks::{BLOCK_BYTES, PAGE_BYTES, PAGES_PER_BLOCK};

use crate::sync::{AtomicI32, AtomicU8, AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use crate::tier::{MOST_PAIRS, SHAPES, Shape};

/// All pages that hold slots, as bits.
pub(crate) const ALL_PAGES: u64 = u64::MAX << 1;

/// What the countdown of the active page begins with: its slots are counted by their bits when somebody asks.
const UNCOUNTED: i32 = i32::MAX;

/// A full page is listed again when so many of its slots, or one more, are free: one part in this many. Until then a
/// page would be made the active one for the sake of a slot or two.
const WORTHWHILE: u32 = 16;

/// Sixty-four slots: which are free, as the page's owner knows, and which were freed by others, as it does not know
/// yet.
#[derive(Clone, Copy)]
pub(crate) struct Pair<'a> {
    /// Written by the owner; by another thread when it takes the page back.
    pub free: &'a AtomicU64,
    /// Set by others, cleared by the owner after it has set the same bits in `free`. Its address stands for the pair.
    pub remote_free: &'a AtomicU64,
}

impl Pair<'_> {
    /// Whether one of these slots is free, as far as another thread can see. What its owner collects is set in `free`
    /// before it is cleared in `remote_free`, so this looks the other way round.
    pub fn is_free(self, bits: u64) -> bool {
        // Acquire: pairs with the release in `remote::collect`.
        let remote_free = self.remote_free.load(Acquire);
        (remote_free | self.free.load(Relaxed)) & bits != 0
    }
}

/// The words of all pairs of a page.
#[repr(C)]
struct Words {
    free: [AtomicU64; MOST_PAIRS],
    remote_free: [AtomicU64; MOST_PAIRS],
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

    /// The standing in a list of a page with so many of its slots used.
    pub fn listed(used: u32, slots: u32) -> Self {
        let quarters = u32::from(Self::QUARTERS);
        Self((used * quarters / slots).min(quarters - 1) as u8)
    }

    /// True in a list.
    pub fn is_listed(self) -> bool {
        self.0 < Self::QUARTERS
    }

    /// The number of slots in use below which a page of that many slots needs another standing. The active page needs
    /// none.
    fn threshold(self, slots: u32) -> u32 {
        match self {
            Self::FULL => slots - slots / WORTHWHILE,
            Self::ACTIVE => 0,
            Self(quarter) => (u32::from(quarter) * slots).div_ceil(u32::from(Self::QUARTERS)).max(1),
        }
    }
}

/// What is known about a page, beside its pairs. Atomic, because other threads read who owns it and how it is cut up,
/// and reports read how much of it is used.
///
/// `slots = used + bits set in free`, where `used` counts what others have freed until the owner has collected it.
/// While the page is active, allocations leave `spare` alone and the bits say what is used; else `spare = used −
/// threshold`, and the owner looks for another standing when `used` falls below the threshold.
#[repr(C, align(32))]
pub(crate) struct Record {
    /// The arena's word, or 0 when the page is not in use. Constant in between, as is how it is cut up.
    pub owner: AtomicU64,
    reciprocal: AtomicU32,
    limit: AtomicU32,
    /// A free has no more to do than to count down and look at the sign.
    spare: AtomicI32,
    /// Neighbours in the list of its quarter.
    pub next: AtomicU32,
    pub previous: AtomicU32,
    /// As `tier::mark_of` has it.
    mark: AtomicU8,
    standing: AtomicU8,
    /// The pair where the search for free slots begins, while the page is not active.
    pub cursor: AtomicU8,
    /// Not 0 when others have freed slots of it since it was opened.
    pub remote_freed: AtomicU8,
}

/// Page 0 of a block of pages: what is known about the block, and about each of its pages. Its own thread's, except for
/// `remote`, what is constant, and the pairs' `remote_free`; and except for pages that the thread does not allocate
/// from, which another one may take back under the lock of the arena's lists.
#[repr(C, align(64))]
pub(crate) struct Header {
    /// Page 0 has one as well, of a page that is never in use: no address in page 0 is a slot's.
    records: [Record; PAGES_PER_BLOCK],
    /// The block's number.
    pub number: AtomicU32,
    /// Its affinity's when the block was taken. Constant, as are the number and the affinity.
    pub epoch: AtomicU64,
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
    pub affinity: AtomicU8,
    /// True while it is among those with free pages.
    pub has_room: AtomicU8,
    pub remote: Remote,
    /// Of pages 1 to 63.
    words: [Words; PAGES_PER_BLOCK - 1],
}

/// What other threads say when they free slots of a block; they write to no other line of its header.
#[repr(C, align(64))]
pub(crate) struct Remote {
    /// The block's number, once more.
    pub number: AtomicU32,
    /// Pages with something in `remote_free`, as bits.
    pub pages: AtomicU64,
    /// The next block on the owner's stack.
    pub next: AtomicU32,
}

const _: () = assert!(size_of::<Record>() == 32 && size_of::<Header>() <= PAGE_BYTES);
// What is read of a fresh block is zero.
const _: () = assert!(std::mem::offset_of!(Header, words) <= 4096);

/// A number in a list: 0 means none.
#[inline]
pub(crate) fn link(number: u32) -> u32 {
    number + 1
}

/// The start of the block around an address.
///
/// # Safety
/// The address lies in a block.
#[inline(always)]
pub(crate) unsafe fn block_of(at: NonNull<u8>) -> NonNull<u8> {
    // An address may come back from its user with the right to its own bytes alone, so the block's is taken from where
    // it was exposed when the block was entered into the directory.
    let base: *mut u8 = ptr::with_exposed_provenance_mut(at.addr().get() & !(BLOCK_BYTES - 1));
    debug_assert!(!base.is_null());
    // SAFETY: the caller's duty.
    unsafe { NonNull::new_unchecked(base) }
}

impl Header {
    /// The header of the block that begins at `base`.
    ///
    /// # Safety
    /// A block of pages that stays with its `Slots` for `'a`.
    #[inline(always)]
    pub unsafe fn of<'a>(base: NonNull<u8>) -> &'a Self {
        // SAFETY: page 0 of a block of pages is its header, aligned to the block, and every field is atomic.
        unsafe { base.cast().as_ref() }
    }

    /// The block's first byte, with the right to all of the block.
    #[inline]
    pub fn base(&self) -> NonNull<u8> {
        // SAFETY: a header lies in its block.
        unsafe { block_of(NonNull::from(self).cast()) }
    }

    /// The page with this index, 1 to 63.
    #[inline(always)]
    pub fn page(&self, index: usize) -> Page<'_> {
        Page { header: self, index: index % PAGES_PER_BLOCK }
    }

    /// The page that a pair belongs to, by the address that stands for it.
    pub fn page_of(&self, pair: *const AtomicU64) -> Page<'_> {
        let place = (pair.addr() - self.words.as_ptr().addr()) / size_of::<Words>();
        self.page(place + 1)
    }
}

/// A page of slots, by its block and its place there.
#[derive(Clone, Copy)]
pub(crate) struct Page<'a> {
    pub header: &'a Header,
    index: usize,
}

impl<'a> Page<'a> {
    /// The page around an address.
    ///
    /// # Safety
    /// The address lies in a block of pages that stays with its `Slots` for `'a`.
    #[inline(always)]
    pub unsafe fn around(at: NonNull<u8>) -> Self {
        // SAFETY: the caller's duty, for both.
        let header = unsafe { Header::of(block_of(at)) };
        header.page(at.addr().get() / PAGE_BYTES)
    }

    /// Its place in the block, 1 to 63; 0 if it is the header's.
    #[inline]
    pub fn index(self) -> usize {
        self.index
    }

    /// Its name, `number << 6 | index`.
    pub fn name(self) -> u32 {
        self.header.number.load(Relaxed) * PAGES_PER_BLOCK as u32 + self.index as u32
    }

    /// What is known about it.
    #[inline(always)]
    pub fn record(self) -> &'a Record {
        &self.header.records[self.index]
    }

    /// The word of its arena, or 0 when it is not in use.
    #[inline(always)]
    pub fn owner(self) -> u64 {
        self.record().owner.load(Relaxed)
    }

    /// Its class.
    pub fn class(self) -> usize {
        usize::from(self.record().mark.load(Relaxed)).saturating_sub(1)
    }

    /// How it is cut up.
    pub fn shape(self) -> Shape {
        SHAPES[self.class() + 1]
    }

    /// How many slots it has.
    pub fn slots(self) -> u32 {
        u32::from(self.shape().slots)
    }

    /// Its first slot.
    #[inline]
    pub fn first_slot(self) -> NonNull<u8> {
        // SAFETY: the page lies in the block.
        unsafe { self.header.base().add(self.index * PAGE_BYTES) }
    }

    // --- slots and pairs -------------------------------------------------------------------------

    /// The slot that begins at an address in this page, if one does; see [`Shape`]: its index, its pair, and its bit
    /// there.
    #[inline(always)]
    pub fn slot_at(self, at: NonNull<u8>) -> Option<(usize, Pair<'a>, u64)> {
        let (record, offset) = (self.record(), (at.addr().get() % PAGE_BYTES) as u64);
        let product = offset * u64::from(record.reciprocal.load(Relaxed));
        if product as u32 >= record.limit.load(Relaxed) {
            return None;
        }
        let index = (product >> 32) as usize;
        // Looked up with a check: where the slot was freed before, its owner may be opening the page for other ones,
        // and then the two numbers above are of two ways to cut it up.
        let words = self.header.words.get(self.index.checked_sub(1)?)?;
        let pair = Pair { free: words.free.get(index / 64)?, remote_free: words.remote_free.get(index / 64)? };
        Some((index, pair, 1 << (index % 64)))
    }

    /// How many pairs stand for its slots.
    pub fn pair_count(self) -> usize {
        (self.slots() as usize).div_ceil(64)
    }

    /// The pairs that stand for its slots.
    pub fn pairs(self) -> impl Iterator<Item = Pair<'a>> {
        let words = &self.header.words[self.index.saturating_sub(1)];
        words
            .free
            .iter()
            .zip(&words.remote_free)
            .map(|(free, remote_free)| Pair { free, remote_free })
            .take(self.pair_count())
    }

    /// Which of its slots are free, sixty-four by sixty-four; none beyond [`Page::pair_count`].
    #[inline]
    pub fn words(self) -> &'a [AtomicU64; MOST_PAIRS] {
        &self.header.words[self.index.saturating_sub(1)].free
    }

    /// As [`Page::words`], no more than there are.
    #[inline]
    pub fn free(self) -> &'a [AtomicU64] {
        &self.words()[..self.pair_count()]
    }

    /// Whether all of its slots are free, here or by remote frees, and allocations come from other pages. Then the
    /// owner has done with it, until it looks at its lists. For whoever holds the lock of the arena's lists.
    pub fn is_all_freed(self) -> bool {
        // Acquire: pairs with the release in `free_local_fast` and in `remote::publish`.
        let whole = |(index, pair): (usize, Pair<'_>)| {
            let valid = self.valid(index);
            (pair.free.load(Acquire) | pair.remote_free.load(Acquire)) & valid == valid
        };
        self.standing() != Standing::ACTIVE && self.pairs().enumerate().all(whole)
    }

    /// The bits of a pair that stand for slots.
    pub fn valid(self, pair: usize) -> u64 {
        valid_bits(self.slots() as usize, pair)
    }

    // --- how much of it is used ------------------------------------------------------------------

    /// Slots in use. While the owner changes something, another thread may see a wrong number, up to that of all slots.
    pub fn used(self) -> u32 {
        if self.standing() == Standing::ACTIVE {
            let free: u32 = self.free().iter().map(|free| free.load(Relaxed).count_ones()).sum();
            return self.slots().saturating_sub(free);
        }
        self.counted().clamp(0, self.slots().cast_signed()).cast_unsigned()
    }

    /// Slots in use of a page that is not active, by its count.
    pub fn counted(self) -> i32 {
        self.record().spare.load(Relaxed).saturating_add(self.standing().threshold(self.slots()).cast_signed())
    }

    /// Counts slots that were freed. True when the page needs another standing.
    pub fn count_out(self, slots: u32) -> bool {
        let spare = &self.record().spare;
        let left = spare.load(Relaxed).wrapping_sub(slots.cast_signed());
        spare.store(left, Relaxed);
        left < 0
    }

    /// Where it stands.
    pub fn standing(self) -> Standing {
        Standing(self.record().standing.load(Relaxed))
    }

    /// False when it needs another standing.
    pub fn keeps_standing(self) -> bool {
        self.record().spare.load(Relaxed) >= 0
    }

    /// Makes it the active page, or lets the active page's countdown begin anew.
    pub fn activate(self) {
        self.record().spare.store(UNCOUNTED, Relaxed);
        self.record().standing.store(Standing::ACTIVE.0, Relaxed);
    }

    /// Gives it another standing than that of the active page.
    pub fn stand(self, standing: Standing, used: u32) {
        let spare = used.cast_signed() - standing.threshold(self.slots()).cast_signed();
        self.record().spare.store(spare, Relaxed);
        self.record().standing.store(standing.0, Relaxed);
    }

    /// Makes it one of the class that `mark` stands for, with all slots free, and the active page.
    pub fn open(self, owner: u64, mark: u8) {
        let (record, shape) = (self.record(), SHAPES[usize::from(mark)]);
        record.mark.store(mark, Relaxed);
        record.reciprocal.store(shape.reciprocal, Relaxed);
        record.limit.store(shape.limit, Relaxed);
        record.cursor.store(0, Relaxed);
        record.remote_freed.store(0, Relaxed);
        for (place, pair) in self.pairs().enumerate() {
            pair.free.store(valid_bits(usize::from(shape.slots), place), Relaxed);
            pair.remote_free.store(0, Relaxed);
        }
        self.activate();
        // Relaxed, as all above: another thread learns of the page by a slot that its user hands over.
        record.owner.store(owner, Relaxed);
    }
}

/// Frees the slot at an address, if its page's owner is the arena with this `word`. False when it is not, or no slot
/// begins there, or the page needs another standing then, or the slot is seen to be free, which it should not be; then
/// nothing is changed. What [`Page`] would find one after the other, in as few steps as there are: every free begins
/// here.
///
/// # Safety
/// The address lies in a block of pages of some slots; if a slot begins there, it is taken. The word is that of the
/// calling thread's arena, or of none.
#[inline(always)]
pub(crate) unsafe fn free_local_fast(at: NonNull<u8>, word: u64) -> bool {
    const RECORD: usize = size_of::<Record>();
    // SAFETY: the caller's duty.
    let base = unsafe { block_of(at) };
    let place = at.addr().get() / PAGE_BYTES % PAGES_PER_BLOCK * RECORD;
    // SAFETY: a header begins with its records, and this is the offset of one of them.
    let record = unsafe { base.byte_add(place).cast::<Record>().as_ref() };
    if record.owner.load(Relaxed) != word {
        return false;
    }
    let offset = (at.addr().get() % PAGE_BYTES) as u64;
    // Plain reads, here and below, which the compiler may join with their use: nobody writes to these meanwhile.
    // SAFETY: both are fields of the record, which is mapped and aligned. They are stored to by the page's owner alone,
    // when it opens the page, and the owner is this thread's arena; so no store goes on beside these reads.
    let (reciprocal, limit) = unsafe { (record.reciprocal.as_ptr().read(), record.limit.as_ptr().read()) };
    let product = offset * u64::from(reciprocal);
    if product as u32 >= limit {
        return false;
    }
    let (pair, bit) = ((product >> 38) as usize, 1_u64 << (product >> 32 & 63));
    // SAFETY: page 0 has no owner, so this is page 1 or above, whose words follow each other from `words` on; the pair
    // is one of theirs, because the index is below that of the last slot.
    let words = unsafe {
        base.byte_add(place * (size_of::<Words>() / RECORD) + WORDS_OF_PAGE_0).cast::<u64>().as_ptr().add(pair)
    };
    // SAFETY: as above; `remote_free` follows `free`.
    let (free, remote_free) = unsafe { (AtomicU64::from_ptr(words), AtomicU64::from_ptr(words.add(MOST_PAIRS))) };
    // SAFETY: of a page of this thread's, others write to it only when they take the page back, which needs every slot
    // of the page to be free, here or by a remote free. This one is neither: it was just seen to begin here, so it is
    // taken, as the caller says.
    let before = unsafe { words.read() };
    let spare = record.spare.load(Relaxed).wrapping_sub(1);
    // Relaxed: written by others, but what counts here is what they did before this thread was told.
    if (before | remote_free.load(Relaxed)) & bit != 0 || spare < 0 {
        return false;
    }
    record.spare.store(spare, Relaxed);
    // Release: a thread that finds everything of the page free may take it, and this one has done with it by then.
    free.store(before | bit, Release);
    true
}

/// Where the words of page 0 would stand, if it had some.
const WORDS_OF_PAGE_0: usize = std::mem::offset_of!(Header, words) - size_of::<Words>();
const _: () = assert!(size_of::<Words>().is_multiple_of(size_of::<Record>()));

/// Which bits of pair `pair` stand for slots, of so many in all.
fn valid_bits(slots: usize, pair: usize) -> u64 {
    match slots.saturating_sub(pair * 64) {
        left @ 0..64 => (1 << left) - 1,
        _ => u64::MAX,
    }
}

impl PartialEq for Page<'_> {
    fn eq(&self, other: &Self) -> bool {
        ptr::eq(self.header, other.header) && self.index == other.index
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Affinity;
    use crate::tests::{give, give_all, on_twin, take};

    #[test]
    fn the_active_page_stays_active_however_often_it_is_freed_to() {
        let (slots, _twin) = on_twin();
        let places: Vec<_> = (0..100).map(|_| take(&slots, Affinity::NODES, 24)).collect();
        // SAFETY: a slot of these slots.
        let page = unsafe { Page::around(places[0]) };
        assert_eq!((page.standing(), page.used()), (Standing::ACTIVE, 100));
        // As after two thousand million frees.
        page.record().spare.store(0, Relaxed);
        for &at in &places[..10] {
            give(&slots, at);
        }
        assert_eq!((page.standing(), page.used()), (Standing::ACTIVE, 90));
        slots.validate().unwrap();
        assert_eq!(slots.stats().total().live_objects, 90);
        give_all(&slots, places[10..].to_vec());
        slots.trim();
        assert_eq!(slots.stats().total().mapped_bytes, 0);
    }

    #[test]
    fn pairs_of_a_page_are_its_own() {
        let (slots, _twin) = on_twin();
        let at = take(&slots, Affinity::NODES, 8);
        // SAFETY: a slot of these slots.
        let header = unsafe { Page::around(at) }.header;
        for index in 1..PAGES_PER_BLOCK {
            let page = header.page(index);
            page.open(1, 1);
            for slot in 0..page.slots() as usize {
                // SAFETY: so many slots lie in the page.
                let begin = unsafe { page.first_slot().add(slot * usize::from(page.shape().slot)) };
                let (index, pair, bit) = page.slot_at(begin).unwrap();
                let same = page.pairs().nth(slot / 64).unwrap();
                assert_eq!((index, bit), (slot, 1 << (slot % 64)));
                assert!(header.page_of(pair.remote_free) == page && ptr::eq(same.remote_free, pair.remote_free));
                assert!(page.valid(slot / 64) & pair.free.load(Relaxed) & bit != 0);
            }
        }
        // What was opened here is nobody's; dropping the slots gives the block back whatever it says.
        drop(slots);
    }

    /// A slot that is freed again while its owner opens the page for other ones was looked for beyond the page's pairs.
    #[test]
    fn between_two_shapes_no_slot_lies_beyond_the_pairs() {
        let (slots, _twin) = on_twin();
        let at = take(&slots, Affinity::NODES, 8);
        // SAFETY: a slot of these slots.
        let header = unsafe { Page::around(at) }.header;
        let (page, marks) = (header.page(5), 1..SHAPES.len());
        for (reciprocal, limit) in marks.clone().flat_map(|one| marks.clone().map(move |other| (one, other))) {
            page.record().reciprocal.store(SHAPES[reciprocal].reciprocal, Relaxed);
            page.record().limit.store(SHAPES[limit].limit, Relaxed);
            for word in 0..PAGE_BYTES / 8 {
                // SAFETY: as above.
                let begin = unsafe { header.base().add(5 * PAGE_BYTES + word * 8) };
                if let Some((index, ..)) = page.slot_at(begin) {
                    assert!(index < MOST_PAIRS * 64);
                }
            }
        }
        for page in 0..PAGES_PER_BLOCK {
            // SAFETY: as above.
            let begin = unsafe { header.base().add(page * PAGE_BYTES) };
            let in_use = page == 1 || page == 5;
            assert_eq!(header.page(page).slot_at(begin).is_some(), in_use);
        }
    }
}
