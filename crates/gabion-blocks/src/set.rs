//! The blocks of one owner.

use std::ptr::{self, NonNull};

use crate::block::Block;
use crate::directory::Owner;
use crate::error::{BlockError, make_room};
use crate::huge::{self, HUGE_PAGE};
use crate::os::Os;
use crate::pool::{Held, Pool, note_holes, note_no_holes, note_small, was_whole};
use crate::sync::{Mutex, MutexGuard, Ordering, lock};
use crate::{BLOCK_BYTES, PAGE_BYTES, PAGES_PER_BLOCK};

/// What of a block's first page reads as zero at first, and is never given back.
const HEADER_BYTES: usize = 4096;

/// The blocks of one owner (a pile, say): takes them from a pool, finds them by number, gives their memory back.
///
/// A block stays in the set until the set is dropped, because readers that take no lock may still look at it; its
/// *memory* goes back earlier, by [`BlockSet::decommit`], and reads as zero from then on. Who knows that nobody looks
/// gives it back whole, by [`BlockSet::give_back`]. What the set holds counts
/// apart from the pool's buffers and draws on none of the pool's limits.
pub struct BlockSet {
    owner: Owner,
    pool: Pool,
    small: usize,
    blocks: Mutex<Vec<(u32, Held)>>,
}

impl BlockSet {
    /// An empty set that draws on `pool`. The first `small` blocks are fresh and keep to small pages, so that a handful
    /// of objects costs a few pages; later ones are what the pool has warm, or fresh with huge pages where those pay.
    ///
    /// # Errors
    /// [`BlockError::Exhausted`] when four million sets are alive.
    pub fn new(pool: &Pool, small: usize) -> Result<Self, BlockError> {
        Ok(Self { owner: Owner::new()?, pool: pool.clone(), small, blocks: Mutex::new(Vec::new()) })
    }

    /// Adds a block and returns its number, and whether all of it reads as zero. Its first 4 KiB do in any case; the rest
    /// of a warm block is whatever an earlier user left.
    ///
    /// # Errors
    /// [`BlockError::NoMemory`] when the system gives no memory, [`BlockError::Exhausted`] when no number is left.
    pub fn map(&self) -> Result<(u32, bool), BlockError> {
        self.map_as(self.len() < self.small)
    }

    /// As [`BlockSet::map`], where the caller knows better whether the block should be a `small` one, fresh and of small pages.
    ///
    /// # Errors
    /// As [`BlockSet::map`].
    pub fn map_as(&self, small: bool) -> Result<(u32, bool), BlockError> {
        let (span, zero) = Held::take(&self.pool, BLOCK_BYTES, small)?;
        let base = span.base();
        if !zero {
            // SAFETY: the block was just taken from the pool, and nobody else knows it.
            unsafe { base.write_bytes(0, HEADER_BYTES) };
        }
        if small {
            // Most of it may never be touched: nothing to keep warm, and nothing to have huge pages for.
            self.open_holes(base);
            note_small(base);
        }
        // The directory holds a plain number, from which `base` makes a pointer again.
        let number = self.owner.enter(base.as_ptr().expose_provenance())?;
        if !small && zero {
            // SAFETY: a block that reads as zero, which nobody else knows the number of yet.
            let huge = unsafe { huge::prepare(self.os(), base, BLOCK_BYTES) };
            if !huge {
                note_small(base);
            }
        }
        let mut blocks = lock(&self.blocks);
        if let Err(error) = make_room(&mut blocks, 1) {
            self.owner.strike(number);
            return Err(error);
        }
        blocks.push((number, span));
        Ok((number, zero))
    }

    /// The block behind a number, or `None` when there is none or when it is another owner's. One load.
    #[inline]
    pub fn block(&self, number: u32) -> Option<Block<'_>> {
        let base = self.base(number)?;
        // SAFETY: the directory holds addresses of mapped blocks only, and this one is ours: it stays mapped until
        // this set is dropped, which the borrow of self rules out.
        Some(unsafe { Block::new(base, number) })
    }

    /// The first byte of a block, for owners that hand out addresses; as [`BlockSet::block`] otherwise.
    #[inline]
    pub fn base(&self, number: u32) -> Option<NonNull<u8>> {
        let address = self.owner.find(number)?;
        // SAFETY: what has an owner's number beside it is a block's address.
        Some(unsafe { NonNull::new_unchecked(ptr::with_exposed_provenance_mut(address)) })
    }

    /// Gives a block back to the pool; its number may be another's from now on. Does nothing when it is not in this set.
    /// Takes time in proportion to the number of blocks that came after it.
    ///
    /// # Safety
    /// Nobody uses the block any more, by a [`Block`] or by its address, and no [`UnitTable`](crate::UnitTable) leads there.
    pub unsafe fn give_back(&self, number: u32) {
        let held = {
            let mut blocks = lock(&self.blocks);
            let Some(place) = blocks.iter().rposition(|block| block.0 == number) else { return };
            // Struck out first: nobody finds a block that is the pool's again.
            self.owner.strike(number);
            blocks.swap_remove(place).1
        };
        drop(held);
    }

    /// Keeps the set's lock until the result is dropped, so that a fork finds it in order.
    pub fn hold(&self) -> HeldSet<'_> {
        HeldSet { _blocks: lock(&self.blocks) }
    }

    /// Has the memory of a page made ready in one step, before it is written to. A hint: what the page holds stays.
    ///
    /// # Errors
    /// As [`BlockSet::populate_pages`].
    pub fn populate(&self, number: u32, page: usize) -> Result<(), BlockError> {
        self.populate_pages(number, page, 1)
    }

    /// As [`BlockSet::populate`], for `pages` pages from page `first` on.
    ///
    /// # Errors
    /// [`BlockError::Setting`] when the pages are not inside a block of this set; nothing is done then.
    pub fn populate_pages(&self, number: u32, first: usize, pages: usize) -> Result<(), BlockError> {
        if first > PAGES_PER_BLOCK || pages > PAGES_PER_BLOCK - first {
            return Err(BlockError::Setting { what: "pages to be made ready should lie inside their block" });
        }
        let Some(base) = self.base(number) else {
            return Err(BlockError::Setting { what: "pages to be made ready should be of a block of this set" });
        };
        // SAFETY: inside a mapped block of ours.
        unsafe { self.os().populate(base.add(first * PAGE_BYTES), pages * PAGE_BYTES) };
        Ok(())
    }

    /// Notes that all of a block's memory was touched: the pool may keep it warm when it is given back, and the system may
    /// gather it onto huge pages in its own time. That makes nobody wait, as a first touch of huge pages can.
    pub fn note_touched(&self, number: u32) {
        if let Some(base) = self.base(number)
            && note_no_holes(base)
        {
            // SAFETY: a mapped block of ours.
            unsafe { self.os().advise_huge(base, BLOCK_BYTES) };
        }
    }

    /// Notes that a block that was given back but for its header will be filled again: with huge pages, where those pay now.
    /// Not so a block that was never full.
    ///
    /// # Panics
    /// When there is something in its second half.
    pub fn note_refill(&self, number: u32) {
        let Some(base) = self.base(number).filter(|&base| was_whole(base)) else { return };
        let block = self.block(number).expect("a block of this set");
        assert!(block.word(HUGE_PAGE / 8).load(Ordering::Relaxed) == 0, "a block is in use that is to be filled");
        // SAFETY: the second half reads as zero, and nobody has any of it; late readers may look at it, and see zeros. The
        // first half, with the header, cannot tell what a huge page costs.
        let huge = unsafe { huge::prepare(self.os(), base.add(HUGE_PAGE), BLOCK_BYTES - HUGE_PAGE) };
        // SAFETY: a mapped block of ours.
        unsafe {
            if huge && note_no_holes(base) {
                self.os().advise_huge(base, BLOCK_BYTES);
            } else {
                self.os().advise_small(base, BLOCK_BYTES);
            }
        }
    }

    /// Notes that part of a block's memory will not be there, and has the system leave it at that.
    fn open_holes(&self, base: NonNull<u8>) {
        if note_holes(base) {
            // SAFETY: a mapped block of ours.
            unsafe { self.os().advise_small(base, BLOCK_BYTES) };
        }
    }

    /// Gives back the memory of `pages` pages from page `first` on; they read as zero from then on. Of page 0, the
    /// first 4 KiB stay as they are: running readers look at the header there.
    ///
    /// # Panics
    /// When the range is not inside a block of this set.
    pub fn decommit(&self, number: u32, first: usize, pages: usize) {
        assert!(first <= PAGES_PER_BLOCK && pages <= PAGES_PER_BLOCK - first, "pages beyond the block");
        let (start, end) = ((first * PAGE_BYTES).max(HEADER_BYTES), (first + pages) * PAGE_BYTES);
        let base = self.base(number).expect("a block of this set");
        self.open_holes(base);
        // SAFETY: inside a mapped block of ours, whose words are accessed atomically only.
        unsafe { self.os().decommit(base.add(start), end.saturating_sub(start)) };
    }

    /// The numbers of all blocks, in the order in which they came as long as none was given back.
    pub fn numbers(&self) -> Vec<u32> {
        lock(&self.blocks).iter().map(|(number, _)| *number).collect()
    }

    /// How many blocks there are.
    pub fn len(&self) -> usize {
        lock(&self.blocks).len()
    }

    /// True when there is no block.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The pool that this set draws on.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    fn os(&self) -> &'static dyn Os {
        self.pool.os()
    }
}

/// The held lock of a set; see [`BlockSet::hold`].
#[must_use = "the lock is let go at once"]
pub struct HeldSet<'a> {
    _blocks: MutexGuard<'a, Vec<(u32, Held)>>,
}

impl Drop for BlockSet {
    fn drop(&mut self) {
        // `&mut self` proves that no view is left. Struck out first: nobody finds a block that is the pool's again.
        for (number, span) in std::mem::take(&mut *lock(&self.blocks)) {
            self.owner.strike(number);
            drop(span);
        }
    }
}

impl std::fmt::Debug for BlockSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlockSet").field("owner", &self.owner).field("blocks", &self.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;

    use super::*;
    use crate::os::Twin;
    use crate::pool::{Request, Settings};
    use crate::system;

    fn unpooled(os: &'static dyn Os) -> Pool {
        Pool::new(os, Settings::unpooled()).unwrap()
    }

    #[test]
    fn a_block_is_found_by_its_owner_only() {
        let (mine, other) = (BlockSet::new(Pool::global(), 1).unwrap(), BlockSet::new(Pool::global(), 1).unwrap());
        let number = mine.map().unwrap().0;
        mine.block(number).unwrap().word(7).store(42, Ordering::Relaxed);
        assert_eq!(mine.block(number).unwrap().word(7).load(Ordering::Relaxed), 42);
        assert!(other.block(number).is_none());
        assert!(mine.block(u32::MAX).is_none());
        mine.block(number).unwrap().word(700).store(42, Ordering::Relaxed);
        mine.decommit(number, 0, 1);
        assert_eq!(mine.block(number).unwrap().word(7).load(Ordering::Relaxed), 42);
        assert_eq!(mine.block(number).unwrap().word(700).load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_refusal_leaves_everything_as_it_was() {
        let twin: &'static Twin = Box::leak(Box::default());
        let set = BlockSet::new(&unpooled(twin), 1).unwrap();
        set.map().unwrap();
        twin.refuse_after(0);
        assert!(matches!(set.map(), Err(BlockError::NoMemory { .. })));
        assert_eq!(set.len(), 1);
        drop(set);
        assert_eq!(twin.mapped(), 0);
    }

    #[test]
    fn words_and_bytes_agree() {
        let set = BlockSet::new(&unpooled(system()), 1).unwrap();
        let (number, _) = set.map().unwrap();
        let block = set.block(number).unwrap();
        for len in 0..200 {
            let bytes: Vec<u8> = (1..=len).collect();
            for at in [100, 101] {
                block.write(at, &bytes);
                let mut back = vec![0xEE; bytes.len() + 9];
                block.read(at, &mut back[..bytes.len()]);
                assert_eq!(back[..bytes.len()], bytes);
                assert_eq!(back[bytes.len()..], [0xEE; 9], "written beyond its end");
            }
            for first in 0..bytes.len() {
                let mut back = [MaybeUninit::new(0xEE); 209];
                block.read_anew(8 * 101 + first, &mut back[..bytes.len() - first]);
                // SAFETY: every byte was set, before and now.
                let back = back.map(|byte| unsafe { byte.assume_init() });
                let (read, beyond) = back.split_at(bytes.len() - first);
                assert_eq!(read, &bytes[first..]);
                assert!(beyond.iter().all(|&byte| byte == 0xEE), "written beyond its end");
            }
        }
    }
    #[test]
    fn blocks_are_taken_warm_and_say_whether_they_are_zero() {
        let twin: &'static Twin = Box::leak(Box::default());
        let mut settings = Settings::unpooled();
        settings.pool_bytes = 1 << 30;
        let pool = Pool::with_root(twin, settings, "/nonexistent-root".into()).unwrap();
        let mut used: Vec<_> = (0..3).map(|_| pool.rent(&Request::new(BLOCK_BYTES)).unwrap()).collect();
        for buffer in &mut used {
            buffer.as_mut_slice().fill(0xFF);
        }
        drop(used);
        let set = BlockSet::new(&pool, 1).unwrap();
        for round in 0..5 {
            let (number, zero) = set.map().unwrap();
            let block = set.block(number).unwrap();
            assert_eq!(zero, !(1..4).contains(&round));
            let end = if zero { BLOCK_BYTES } else { HEADER_BYTES } / 8;
            assert!((0..end).all(|word| block.word(word).load(Ordering::Relaxed) == 0));
            block.word(12_345).store(9, Ordering::Relaxed);
        }
        // The first is fresh, then come the three that were warm.
        assert_eq!((pool.stats().fresh, pool.stats().held, pool.stats().mapped), (5, 20 << 20, 0));
        let numbers = set.numbers();
        pool.validate().unwrap();
        drop(set);
        assert!(BlockSet::new(&pool, 1).unwrap().block(numbers[0]).is_none());
        // All but the first, of which little was touched.
        assert_eq!((pool.stats().held, pool.stats().idle), (0, 16 << 20));
        let again = pool.rent(&Request::new(BLOCK_BYTES).clean()).unwrap();
        assert!(again.as_slice().iter().all(|&byte| byte == 0));
        pool.validate().unwrap();
        drop((again, pool));
        assert_eq!(twin.mapped(), 0);
    }

    /// What the system was told about the memory at `base`: "hg" for huge pages, "nh" for small ones, neither at first.
    #[cfg(all(target_os = "linux", not(miri)))]
    fn advice(base: NonNull<u8>) -> Option<&'static str> {
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut here = false;
        let flags = smaps.lines().find_map(|line| {
            let range = line.split_once(' ').and_then(|(range, _)| range.split_once('-'));
            let ends = range.map(|(start, end)| (usize::from_str_radix(start, 16), usize::from_str_radix(end, 16)));
            if let Some((Ok(start), Ok(end))) = ends {
                here = (start..end).contains(&base.addr().get());
            }
            line.strip_prefix("VmFlags:").filter(|_| here)
        });
        flags.unwrap().split_whitespace().find_map(|flag| ["hg", "nh"].into_iter().find(|&other| other == flag))
    }

    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn memory_that_was_given_back_is_not_brought_back_by_huge_pages() {
        if !std::fs::exists("/sys/kernel/mm/transparent_hugepage").unwrap() {
            return;
        }
        let set = BlockSet::new(&unpooled(system()), 1).unwrap();
        let small = set.map().unwrap().0;
        let (number, _) = set.map().unwrap();
        let (first, last) = (set.base(number).unwrap(), set.block(number).unwrap().word(BLOCK_BYTES / 8 - 1));
        set.note_refill(small);
        assert_eq!(advice(set.base(small).unwrap()), Some("nh"), "most of a small block may never be touched");
        for round in 0..3 {
            last.store(7, Ordering::Relaxed);
            set.note_touched(number);
            // SAFETY: the last page of a block that is mapped.
            let ends = [first, unsafe { first.add(BLOCK_BYTES - PAGE_BYTES) }];
            assert!(round == 0 || ends.map(advice) == [Some("hg"); 2], "all of it is in use");
            set.decommit(number, 3, 2);
            assert_eq!(ends.map(advice), [Some("nh"); 2], "the holes would be filled");
            assert_eq!(last.load(Ordering::Relaxed), 7);
        }
        set.note_touched(small);
        assert_eq!(advice(set.base(small).unwrap()), Some("hg"));
        // Whether huge pages pay now is the machine's business. All of the block goes one way.
        set.decommit(small, 0, PAGES_PER_BLOCK);
        set.note_refill(small);
        let first = set.base(small).unwrap();
        let huge = note_holes(first);
        // SAFETY: the last page of a block that is mapped.
        let ends = [first, unsafe { first.add(BLOCK_BYTES - PAGE_BYTES) }];
        assert_eq!(ends.map(advice), [Some(if huge { "hg" } else { "nh" }); 2]);
    }

    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn a_block_that_went_without_huge_pages_may_have_them_when_it_is_full() {
        if !std::fs::exists("/sys/kernel/mm/transparent_hugepage").unwrap() {
            return;
        }
        let set = BlockSet::new(&unpooled(system()), 0).unwrap();
        let number = set.map().unwrap().0;
        let base = set.base(number).unwrap();
        // As if they had been too dear when it was mapped.
        note_small(base);
        // SAFETY: a block that is mapped.
        unsafe { system().advise_small(base, BLOCK_BYTES) };
        set.note_touched(number);
        assert_eq!(advice(base), Some("hg"));
        // SAFETY: as above.
        unsafe { system().advise_small(base, BLOCK_BYTES) };
        set.note_touched(number);
        assert_eq!(advice(base), Some("nh"), "asked for once only");
    }

    #[test]
    fn pages_are_made_ready_inside_a_block_of_the_set_only() {
        let set = BlockSet::new(&unpooled(system()), 1).unwrap();
        let number = set.map().unwrap().0;
        let word = |index: usize| set.block(number).unwrap().word(index).load(Ordering::Relaxed);
        set.block(number).unwrap().word(7).store(42, Ordering::Relaxed);
        for (first, pages) in [(0, 0), (0, 1), (0, PAGES_PER_BLOCK), (PAGES_PER_BLOCK - 1, 1), (PAGES_PER_BLOCK, 0)] {
            assert_eq!(set.populate_pages(number, first, pages), Ok(()), "{pages} pages from {first} on");
        }
        set.populate(number, PAGES_PER_BLOCK - 1).unwrap();
        assert_eq!((word(7), word(BLOCK_BYTES / 8 - 1)), (42, 0), "what the pages hold stays");
        let most = usize::MAX;
        for (first, pages) in
            [(0, PAGES_PER_BLOCK + 1), (PAGES_PER_BLOCK, 1), (most, 1), (1, most), (most / PAGE_BYTES, 2)]
        {
            let refused = set.populate_pages(number, first, pages);
            assert!(matches!(refused, Err(BlockError::Setting { .. })), "{pages} pages from {first} on: {refused:?}");
        }
        assert!(set.populate(number, most).is_err() && set.populate(u32::MAX, 0).is_err());
        assert!(BlockSet::new(&unpooled(system()), 1).unwrap().populate(number, 0).is_err(), "another set's");
    }

    #[test]
    fn a_small_block_is_kept_warm_once_all_of_it_was_touched() {
        let twin: &'static Twin = Box::leak(Box::default());
        let mut settings = Settings::unpooled();
        settings.pool_bytes = 1 << 30;
        let pool = Pool::with_root(twin, settings, "/nonexistent-root".into()).unwrap();
        let set = BlockSet::new(&pool, 0).unwrap();
        for touched in [false, true] {
            let (number, zero) = set.map_as(true).unwrap();
            assert!(zero);
            if touched {
                set.note_touched(number);
            }
            // SAFETY: nobody uses the block.
            unsafe { set.give_back(number) };
            assert_eq!(pool.stats().idle, if touched { BLOCK_BYTES as u64 } else { 0 });
        }
        assert!(!set.map_as(false).unwrap().1);
        pool.validate().unwrap();
    }

    #[test]
    fn a_block_that_is_given_back_is_gone_and_the_others_stay() {
        let twin: &'static Twin = Box::leak(Box::default());
        let set = BlockSet::new(&unpooled(twin), 1).unwrap();
        let numbers: Vec<_> = (0..3).map(|_| set.map().unwrap().0).collect();
        let base = set.base(numbers[1]).unwrap();
        assert_eq!(base.addr().get() % BLOCK_BYTES, 0);
        // SAFETY: nobody uses the block.
        unsafe { set.give_back(numbers[1]) };
        assert!(set.base(numbers[1]).is_none() && set.block(numbers[1]).is_none());
        assert!(set.block(numbers[0]).is_some() && set.block(numbers[2]).is_some());
        assert_eq!((set.len(), twin.mapped()), (2, 2 * BLOCK_BYTES as u64));
        // SAFETY: as above; it is not there any more.
        unsafe { set.give_back(numbers[1]) };
        drop(set.hold());
        drop(set);
        assert_eq!(twin.mapped(), 0);
    }

    #[test]
    fn a_set_draws_on_none_of_the_pools_limits() {
        let mut settings = Settings::unpooled();
        (settings.total_limit, settings.allocation_limit) = (0, 0);
        let pool = Pool::new(system(), settings).unwrap();
        let set = BlockSet::new(&pool, 1).unwrap();
        set.map().unwrap();
        set.map().unwrap();
        assert!(pool.rent(&Request::new(1)).is_err());
        assert_eq!(pool.stats().held, 8 << 20);
        pool.validate().unwrap();
    }
}
