//! Memory of the index: pages of blocks, strung together.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};

use gabion_blocks::{BlockError, BlockSet, Budget, PAGE_BYTES, PAGES_PER_BLOCK, Pool, WORDS_PER_PAGE};

/// Pages of blocks that nobody else has, charged to the cache's memory.
pub(crate) struct Pages {
    set: BlockSet,
    memory: Arc<Budget>,
    /// Pages of mapped blocks that no strip has taken yet.
    free: Mutex<Vec<u32>>,
}

impl Pages {
    pub fn new(memory: Arc<Budget>) -> Result<Self, BlockError> {
        // The first block keeps to small pages: a cache of a few entries shall not cost megabytes.
        Ok(Self { set: BlockSet::new(Pool::global(), 1)?, memory, free: Mutex::default() })
    }

    /// A page that nobody had, holding whatever.
    fn take(&self) -> Result<u32, BlockError> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if free.is_empty() {
            let number = self.set.map()?.0;
            free.extend((0..PAGES_PER_BLOCK as u32).rev().map(|page| number * PAGES_PER_BLOCK as u32 + page));
        }
        Ok(free.pop().expect("a block has pages"))
    }

    /// Gives the memory of a page back to the system; the page stays its strip's.
    fn decommit(&self, page: u32) {
        self.set.decommit(page / PAGES_PER_BLOCK as u32, page as usize % PAGES_PER_BLOCK, 1);
    }

    #[inline]
    fn words(&self, page: u32, at: usize, count: usize) -> &[AtomicU64] {
        let block = self.set.block(page / PAGES_PER_BLOCK as u32).expect("pages are of our blocks, which stay");
        block.words(page as usize % PAGES_PER_BLOCK * WORDS_PER_PAGE + at, count)
    }
}

/// An array of items of a fixed number of words, on pages.
///
/// Items never move, and a page once taken stays this strip's at its place, even while its memory is the system's: a
/// reader without a lock may come late, and whatever it reads or writes there is of the kind that it expects.
pub(crate) struct Strip {
    pages: Arc<Pages>,
    /// The page of each stretch of items, plus one, and whether its memory is charged; 0 where there is none yet.
    table: Box<[AtomicU32]>,
    words: usize,
    per_page: usize,
}

/// The page's memory is charged and in use.
const CHARGED: u32 = 1 << 31;

impl Strip {
    /// A strip with room for `most` items of `words` words each.
    pub fn new(pages: &Arc<Pages>, words: usize, most: usize) -> Self {
        let per_page = WORDS_PER_PAGE / words;
        let table = (0..most.div_ceil(per_page)).map(|_| AtomicU32::new(0)).collect();
        Self { pages: Arc::clone(pages), table, words, per_page }
    }

    /// Items that may ever be.
    pub fn most(&self) -> usize {
        self.table.len() * self.per_page
    }

    /// An item's words; empty when it never had a page.
    #[inline]
    pub fn get(&self, index: usize) -> &[AtomicU64] {
        // Acquire: pairs with `ensure`, so that the block is found.
        match self.table.get(index / self.per_page).map(|page| page.load(Acquire) & !CHARGED) {
            None | Some(0) => &[],
            Some(page) => self.pages.words(page - 1, index % self.per_page * self.words, self.words),
        }
    }

    /// Makes sure that the item and all before it have memory, holding whatever. Under the shard's lock.
    pub fn ensure(&self, index: usize) -> Result<(), BlockError> {
        let (last, most) = (index / self.per_page, self.most() as u64);
        if last >= self.table.len() {
            return Err(BlockError::Limit { asked: PAGE_BYTES as u64, used: most, limit: most });
        }
        let first = (0..=last).rev().take_while(|&at| !self.is_charged(at)).last();
        (first.unwrap_or(last + 1)..=last).try_for_each(|at| self.charge(at))
    }

    fn is_charged(&self, at: usize) -> bool {
        // Relaxed: only the lock's holder stores.
        self.table[at].load(Relaxed) & CHARGED != 0
    }

    fn charge(&self, at: usize) -> Result<(), BlockError> {
        self.pages.memory.take(PAGE_BYTES as u64)?;
        let page = match self.table[at].load(Relaxed) {
            0 => self.pages.take().inspect_err(|_| self.pages.memory.give(PAGE_BYTES as u64))? + 1,
            page => page,
        };
        // Release: see `get`.
        self.table[at].store(page | CHARGED, Release);
        Ok(())
    }

    /// Gives back the memory of pages that hold only items from `count` on. Under the shard's lock.
    pub fn shrink(&self, count: usize) {
        let first = count.div_ceil(self.per_page);
        for at in (first..self.table.len()).take_while(|&at| self.is_charged(at)) {
            let entry = &self.table[at];
            let page = entry.load(Relaxed);
            self.pages.decommit((page & !CHARGED) - 1);
            entry.store(page & !CHARGED, Release);
            self.pages.memory.give(PAGE_BYTES as u64);
        }
    }

    /// Bytes of memory taken.
    pub fn bytes(&self) -> u64 {
        let taken = (0..self.table.len()).take_while(|&at| self.is_charged(at)).count();
        (taken * PAGE_BYTES) as u64
    }
}
