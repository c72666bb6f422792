//! The blocks of one owner.

use std::ptr::{self, NonNull};
use std::sync::Arc;

use crate::block::Block;
use crate::directory::Owner;
use crate::error::BlockError;
use crate::fallible::make_room;
use crate::file::BlockFile;
use crate::huge::{self, HUGE_PAGE};
use crate::os::Os;
use crate::pool::{HEADER_BYTES, Held, HeldBlock, Pool, bytes_of};
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering, lock};
use crate::{BLOCK_BYTES, PAGE_BYTES, PAGES_PER_BLOCK};

/// The pages of a block that lie on its second huge page.
const SECOND_HALF: u64 = u64::MAX << (HUGE_PAGE / PAGE_BYTES);
const _: () = assert!(2 * HUGE_PAGE == BLOCK_BYTES);

/// The blocks of one owner (a pile, say): takes them from a pool, finds them by number, gives their memory back.
///
/// A block stays in the set until the set is dropped, because readers that take no lock may still look at it; its
/// *memory* goes back earlier: by [`BlockSet::decommit_pages`] at once, or by [`BlockSet::release`] when the pool's
/// policy has no use for it, unless it is taken for use again before. An owner that knows that no reader looks gives a
/// block back whole, by [`BlockSet::give_back`]. What the set holds counts apart from the pool's buffers and draws on
/// none of the pool's limits.
pub struct BlockSet {
    owner: Owner,
    pool: Pool,
    small: usize,
    /// Where the generations of blocks that are added begin, at least.
    first_generation: u32,
    firsts: Firsts,
    /// Each with what the pool lent; nothing for blocks in a file.
    blocks: Mutex<Vec<(u32, Option<Held>)>>,
    file: Option<Arc<BlockFile>>,
    /// Bytes of pages that were released and are warm, or more: what went back to the system since is found when it
    /// matters.
    emptied: AtomicU64,
}

/// What a set's first blocks are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Firsts {
    /// As all others.
    Plain,
    /// The set's own: their pages are claimed before they are used.
    Alone,
    /// Claimed, too; and taken over from other sets, and handed on to them.
    HandedOn,
}

impl BlockSet {
    /// An empty set that draws on `pool`. The first `small` blocks are fresh and keep to small pages, so that a handful
    /// of objects costs a few pages; later ones are what the pool has warm, or fresh with huge pages where those pay.
    ///
    /// # Errors
    /// [`BlockError::Exhausted`] when four million sets are alive.
    pub fn new(pool: &Pool, small: usize) -> Result<Self, BlockError> {
        Self::with(pool, small, Firsts::Plain)
    }

    /// As [`BlockSet::new`], for an owner that takes each page by [`BlockSet::claim`] before it uses it: the first
    /// blocks may have been those of another such set before, and are warm then as far as that used them.
    ///
    /// # Errors
    /// As [`BlockSet::new`].
    pub fn claimed(pool: &Pool, small: usize) -> Result<Self, BlockError> {
        Self::with(pool, small, Firsts::HandedOn)
    }

    /// As [`BlockSet::claimed`], for an owner whose late readers may still write to a page that it has released. Such a
    /// set hands no first block on, because the next set would take for zeros what was written late; and it takes none
    /// over.
    ///
    /// # Errors
    /// As [`BlockSet::new`].
    pub fn claimed_alone(pool: &Pool, small: usize) -> Result<Self, BlockError> {
        Self::with(pool, small, Firsts::Alone)
    }

    fn with(pool: &Pool, small: usize, firsts: Firsts) -> Result<Self, BlockError> {
        let (owner, pool, blocks) = (Owner::new()?, pool.clone(), Mutex::new(Vec::new()));
        let (first_generation, emptied) = (0, AtomicU64::new(0));
        Ok(Self { owner, pool, small, first_generation, firsts, blocks, file: None, emptied })
    }

    /// The set, with blocks whose generations begin at this one, where the number of a block has not gone beyond it
    /// already. For owners whose pointers may get to another process, and are to be refused there.
    #[must_use]
    pub fn beginning_at(mut self, generation: u32) -> Self {
        self.first_generation = generation;
        self
    }

    /// The blocks of heaps in a file, under the numbers that they have there, and those that are added to it. The pool
    /// knows nothing of them: they stay in memory and in the file, whatever is given up of them.
    ///
    /// # Errors
    /// As [`BlockSet::new`]; [`BlockError::Refused`].
    pub fn in_file(pool: &Pool, file: Arc<BlockFile>) -> Result<Self, BlockError> {
        let found = file.heap_blocks()?;
        let (owner, mut blocks) = (Owner::with_own_numbers()?, Vec::new());
        make_room(&mut blocks, found.len())?;
        for (number, base) in found {
            owner.raise_floor(number, file.first_generation());
            owner.enter_as(number, base.byte(0).as_ptr().expose_provenance());
            blocks.push((number, None));
        }
        let first_generation = file.first_generation();
        let (pool, blocks, file, emptied) = (pool.clone(), Mutex::new(blocks), Some(file), AtomicU64::new(0));
        Ok(Self { owner, pool, small: 0, first_generation, firsts: Firsts::Plain, blocks, file, emptied })
    }

    /// The file that the blocks lie in, if they do.
    pub fn file(&self) -> Option<&Arc<BlockFile>> {
        self.file.as_ref()
    }

    /// Adds a block and returns its number, and whether all of it reads as zero, except for pages that are found warm
    /// when they are claimed. Its first 4 KiB do in any case; the rest of a warm block is whatever an earlier user
    /// left.
    ///
    /// # Errors
    /// [`BlockError::NoMemory`] when the system gives no memory, [`BlockError::Exhausted`] when no number is left.
    pub fn map(&self) -> Result<(u32, bool), BlockError> {
        self.map_as(self.len() < self.small)
    }

    /// As [`BlockSet::map`], where the caller knows better whether the block should be a `small` one, fresh and of
    /// small pages.
    ///
    /// # Errors
    /// As [`BlockSet::map`].
    pub fn map_as(&self, small: bool) -> Result<(u32, bool), BlockError> {
        if let Some(file) = &self.file {
            return self.map_in(file);
        }
        let again = if small && self.firsts == Firsts::HandedOn { Held::take_first(&self.pool) } else { None };
        let used = again.is_some();
        let (span, zero) = match again {
            Some(span) => (span, true),
            None => Held::take(&self.pool, BLOCK_BYTES, small)?,
        };
        let base = span.base();
        if used || !zero {
            // SAFETY: the block was just taken from the pool, and nobody else knows it.
            unsafe { base.write_bytes(0, HEADER_BYTES) };
        }
        let held = span.block();
        if used {
            self.emptied.fetch_add(bytes_of(held.emptied_pages()), Ordering::Relaxed);
        } else if small {
            // Most of it may never be touched: nothing to keep warm, and nothing to have huge pages for.
            if held.note_holes() {
                // SAFETY: as above; a whole block.
                unsafe { self.os().advise_small(base, BLOCK_BYTES) };
            }
            held.note_small();
            if self.firsts != Firsts::Plain {
                span.note_first(self.firsts == Firsts::HandedOn);
            }
        }
        // The directory holds a plain number, from which `base` makes a pointer again.
        let number = self.owner.enter(base.as_ptr().expose_provenance())?;
        self.owner.raise_floor(number, self.first_generation);
        if !small && zero {
            // SAFETY: a block that reads as zero, which nobody else knows the number of yet.
            let huge = unsafe { huge::prepare(self.os(), base, BLOCK_BYTES) };
            if !huge {
                held.note_small();
            }
        }
        let mut blocks = lock(&self.blocks);
        if let Err(error) = make_room(&mut blocks, 1) {
            self.owner.strike(number);
            return Err(error);
        }
        span.note_place(blocks.len());
        blocks.push((number, Some(span)));
        Ok((number, zero))
    }

    /// As [`BlockSet::map`], in a file.
    fn map_in(&self, file: &BlockFile) -> Result<(u32, bool), BlockError> {
        let mut blocks = lock(&self.blocks);
        make_room(&mut blocks, 1)?;
        let (number, base, zero) = file.add_heap_block()?;
        self.owner.raise_floor(number, self.first_generation);
        self.owner.enter_as(number, base.byte(0).as_ptr().expose_provenance());
        blocks.push((number, None));
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

    /// The highest generation that was handed out under a block number. New slots in the block start at it.
    #[inline]
    pub fn generation_floor(&self, number: u32) -> u32 {
        self.owner.floor(number)
    }

    /// Raises the generation floor of a block number; lower values change nothing. The caller owns the block, and
    /// raises it under a lock or from one thread at a time.
    #[inline]
    pub fn raise_generation_floor(&self, number: u32, generation: u32) {
        self.owner.raise_floor(number, generation);
    }

    /// The first byte of a block, for owners that hand out addresses; as [`BlockSet::block`] otherwise.
    #[inline]
    pub fn base(&self, number: u32) -> Option<NonNull<u8>> {
        let address = self.owner.find(number)?;
        // SAFETY: what has an owner's number beside it is a block's address.
        Some(unsafe { NonNull::new_unchecked(ptr::with_exposed_provenance_mut(address)) })
    }

    /// Gives a block back to the pool; its number may be another's from now on. Does nothing when it is not in this
    /// set. Constant time, and that of the pool.
    ///
    /// # Safety
    /// Nobody uses the block any more, by a [`Block`] or by its address, and no [`UnitTable`](crate::UnitTable) leads
    /// there.
    pub unsafe fn give_back(&self, number: u32) {
        let held = {
            let mut blocks = lock(&self.blocks);
            let Some(place) = self.held(number).map(HeldBlock::place) else { return };
            debug_assert!(blocks[place].0 == number, "a block stands at its place");
            // Struck out first: nobody finds a block that is the pool's again.
            self.owner.strike(number);
            let (_, held) = blocks.swap_remove(place);
            if let Some((_, Some(moved))) = blocks.get(place) {
                moved.note_place(place);
            }
            held
        };
        drop(held);
    }

    /// Keeps the set's lock until the result is dropped, so that a fork finds it in order.
    pub fn hold(&self) -> LockedSet<'_> {
        LockedSet { _blocks: lock(&self.blocks) }
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

    /// What the pool knows of a block of this set: nothing of one in a file.
    fn held(&self, number: u32) -> Option<HeldBlock> {
        let lent = if self.file.is_none() { self.base(number) } else { None };
        lent.and_then(|base| HeldBlock::find(&self.pool, base))
    }

    /// Notes that all of a block's memory was touched: the pool may keep it warm when it is given back, and the system
    /// may gather it onto huge pages in its own time. That makes nobody wait, as a first touch of huge pages can. Does
    /// nothing in a file.
    pub fn note_touched(&self, number: u32) {
        if let (Some(held), Some(base)) = (self.held(number), self.base(number))
            && held.note_no_holes()
        {
            // SAFETY: a mapped block of ours.
            unsafe { self.os().advise_huge(base, BLOCK_BYTES) };
        }
    }

    /// Notes that a block that was given back except for its header will be filled again: with huge pages, where those
    /// pay now. Not so a block that was never full, nor one in a file.
    ///
    /// # Panics
    /// When there is something in its second half.
    pub fn note_refill(&self, number: u32) {
        let Some(held) = self.held(number).filter(|held| held.was_whole()) else { return };
        let (base, block) = self.base(number).zip(self.block(number)).expect("a block of this set");
        assert!(block.word(HUGE_PAGE / 8).load(Ordering::Relaxed) == 0, "a block is in use that is to be filled");
        // SAFETY: the second half reads as zero, and nobody has any of it; late readers may look at it, and see zeros.
        // The first half, with the header, cannot tell what a huge page costs.
        let huge = unsafe { huge::prepare_there(self.os(), base.add(HUGE_PAGE), BLOCK_BYTES - HUGE_PAGE) };
        if huge && held.note_no_holes() {
            // All of that half is there now. So it counts as taken, and goes back with the rest.
            held.claim_pages(SECOND_HALF);
            // SAFETY: a mapped block of ours.
            unsafe { self.os().advise_huge(base, BLOCK_BYTES) };
        } else {
            // SAFETY: as above.
            unsafe { self.os().advise_small(base, BLOCK_BYTES) };
            // What was touched to learn its price.
            held.decommit_pages(SECOND_HALF);
        }
    }

    /// Gives back the memory of pages, a bit each, at once; they read as zero from then on. Of page 0, the first 4 KiB
    /// stay as they are: running readers look at the header there. Returns those of them that had been released and
    /// were still warm. In a file nothing is done: pages hold what they held.
    ///
    /// # Panics
    /// When there is no such block in the set.
    pub fn decommit_pages(&self, number: u32, pages: u64) -> u64 {
        if self.file.is_some() {
            return 0;
        }
        let emptied = self.held(number).expect("a block of this set").decommit_pages(pages);
        self.count_claimed(emptied);
        emptied
    }

    /// Gives up the `free` pages of a block, a bit each, of which those of `fresh` read as zero since the block was
    /// mapped, or since their memory went back. Their memory stays where it is, as long as the pool keeps it and no
    /// more than `room` bytes are kept so in all of this set; it counts as held and idle. Otherwise it goes back at
    /// once. Before one of these pages is used it has to be taken by [`BlockSet::claim`]. In a file nothing is done.
    ///
    /// # Panics
    /// When there is no such block in the set.
    pub fn release(&self, number: u32, free: u64, fresh: u64, room: u64) {
        if self.file.is_some() {
            return;
        }
        let held = self.held(number).expect("a block of this set");
        // Relaxed, as all of this number: it is its whole message.
        let most = |set: &Self| room.saturating_sub(set.emptied.load(Ordering::Relaxed));
        let mut kept = held.empty_pages(free, fresh, most(self));
        // Where the pool has no room it is of no use to know better.
        if kept.is_none() && most(self) < bytes_of(free) && self.emptied.load(Ordering::Relaxed) > 0 {
            self.count_anew();
            kept = held.empty_pages(free, fresh, most(self));
        }
        match kept {
            Some(bytes) => drop(self.emptied.fetch_add(bytes, Ordering::Relaxed)),
            None => drop(self.decommit_pages(number, free)),
        }
    }

    /// Takes pages of a block for use, a bit each: before they are written to, if they were ever released. Returns
    /// those that are warm, and hold whatever they held then; the others that were released read as zero. In a file all
    /// of them are warm.
    #[inline]
    pub fn claim(&self, number: u32, pages: u64) -> u64 {
        if self.file.is_some() {
            // They hold what they held. A fresh one may read as zero, which nobody keeps an account of.
            return pages;
        }
        let Some(held) = self.held(number) else { return 0 };
        let warm = held.claim_pages(pages);
        self.count_claimed(warm);
        warm
    }

    /// The released pages of a block that are warm, at this moment.
    pub fn emptied(&self, number: u32) -> u64 {
        self.held(number).map_or(0, HeldBlock::emptied_pages)
    }

    /// Sees to it that no more than `room` bytes of released pages are kept warm: to be called when memory was taken
    /// for use that is not warm. Mostly one load.
    #[inline]
    pub fn fit(&self, room: u64) {
        if self.emptied.load(Ordering::Relaxed) > room {
            self.fit_now(room);
        }
    }

    #[cold]
    fn fit_now(&self, room: u64) {
        let mut left = self.count_anew();
        if left <= room {
            return;
        }
        // Somewhat more than has to be, so that this is rare.
        let enough = room - room / 16;
        for number in self.each_number().rev() {
            if left <= enough {
                break;
            }
            let bytes = self.held(number).map_or(0, HeldBlock::give_emptied_back);
            self.lower_emptied(bytes);
            left = left.saturating_sub(bytes);
        }
    }

    /// Finds out how much is emptied by now. Returns bytes.
    fn count_anew(&self) -> u64 {
        let counted = self.emptied.load(Ordering::Relaxed);
        let found: u64 = self.each_number().map(|number| bytes_of(self.emptied(number))).sum();
        // Unless it changed meanwhile: two who count at one time would both take off what is missing.
        let _ = self.emptied.compare_exchange(counted, found.min(counted), Ordering::Relaxed, Ordering::Relaxed);
        found
    }

    fn count_claimed(&self, pages: u64) {
        if pages != 0 {
            self.lower_emptied(bytes_of(pages));
        }
    }

    fn lower_emptied(&self, bytes: u64) {
        // Another thread may have counted anew since these were found.
        let lower = |emptied: u64| Some(emptied.saturating_sub(bytes));
        let _ = self.emptied.fetch_update(Ordering::Relaxed, Ordering::Relaxed, lower);
    }

    /// The numbers of all blocks, in the order in which they came as long as none was given back.
    pub fn numbers(&self) -> Vec<u32> {
        lock(&self.blocks).iter().map(|(number, _)| *number).collect()
    }

    /// The same one after the other: takes no memory, and holds no lock between two of them. Of a set that blocks are
    /// given back from meanwhile, some may be left out.
    pub fn each_number(&self) -> impl DoubleEndedIterator<Item = u32> {
        (0..self.len()).filter_map(|index| lock(&self.blocks).get(index).map(|block| block.0))
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
pub struct LockedSet<'a> {
    _blocks: MutexGuard<'a, Vec<(u32, Option<Held>)>>,
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
mod tests;
