//! The blocks of one owner.

use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

use crate::block::Block;
use crate::directory::Owner;
use crate::error::BlockError;
use crate::os::Os;
use crate::{BLOCK_BYTES, PAGE_BYTES, PAGES_PER_BLOCK, huge};

/// What of a block's first page is never given back.
const HEADER_BYTES: usize = 4096;

/// The blocks of one owner (a pile, say): maps them, finds them by number, gives their memory back.
///
/// A block stays mapped until the set is dropped, because readers that take no lock may still look at it; its
/// *memory* goes back earlier, by [`BlockSet::decommit`], and reads as zero from then on.
pub struct BlockSet {
    owner: Owner,
    os: &'static dyn Os,
    small: usize,
    numbers: Mutex<Vec<u32>>,
}

impl BlockSet {
    /// An empty set that maps through `os`. The first `small` blocks keep to small pages, so that a handful of objects
    /// does not cost 2 MiB; later ones ask for huge pages where those pay.
    ///
    /// # Errors
    /// [`BlockError::Exhausted`] when four million sets are alive.
    pub fn new(os: &'static dyn Os, small: usize) -> Result<Self, BlockError> {
        Ok(Self { owner: Owner::new()?, os, small, numbers: Mutex::new(Vec::new()) })
    }

    /// Maps a fresh, zeroed block and returns its number.
    ///
    /// # Errors
    /// [`BlockError::Refused`] when the system gives no memory, [`BlockError::Exhausted`] when no number is left.
    pub fn map(&self) -> Result<u32, BlockError> {
        let base = self
            .os
            .map(BLOCK_BYTES, BLOCK_BYTES)
            .map_err(|errno| BlockError::Refused { asked: BLOCK_BYTES as u64, errno })?;
        let number = self.owner.enter(base.as_ptr() as usize).inspect_err(|_| {
            // SAFETY: mapped just above and entered nowhere.
            unsafe { self.os.unmap(base, BLOCK_BYTES) };
        })?;
        let count = {
            let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
            numbers.push(number);
            numbers.len()
        };
        if count > self.small && huge::wanted(self.os) {
            // SAFETY: the block is mapped and belongs to this set.
            let block = unsafe {
                self.os.advise_huge(base, BLOCK_BYTES);
                Block::new(base, number)
            };
            huge::touch(self.os, block.word(0));
        }
        Ok(number)
    }

    /// The block behind a number, or `None` when there is none or when it is another owner's. One load.
    #[inline]
    pub fn block(&self, number: u32) -> Option<Block<'_>> {
        let base = NonNull::new(self.owner.find(number)? as *mut u8)?;
        // SAFETY: the directory holds addresses of mapped blocks only, and this one is ours: it stays mapped until
        // this set is dropped, which the borrow of self rules out.
        Some(unsafe { Block::new(base, number) })
    }

    /// Has the memory of a page made ready in one step, before it is written to. A hint.
    pub fn populate(&self, number: u32, page: usize) {
        let base = self.owner.find(number).and_then(|base| NonNull::new((base + page * PAGE_BYTES) as *mut u8));
        if let Some(base) = base.filter(|_| page < PAGES_PER_BLOCK) {
            // SAFETY: inside a mapped block of ours.
            unsafe { self.os.populate(base, PAGE_BYTES) };
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
        let base = self.owner.find(number).and_then(|base| NonNull::new((base + start) as *mut u8));
        let base = base.expect("a block of this set");
        // SAFETY: inside a mapped block of ours, whose words are accessed atomically only.
        unsafe { self.os.decommit(base, end.saturating_sub(start)) };
    }

    /// The numbers of all blocks, in the order of their mapping.
    pub fn numbers(&self) -> Vec<u32> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How many blocks are mapped.
    pub fn len(&self) -> usize {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// True when no block is mapped.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The door that this set maps through.
    pub fn os(&self) -> &'static dyn Os {
        self.os
    }
}

impl Drop for BlockSet {
    fn drop(&mut self) {
        let numbers = std::mem::take(self.numbers.get_mut().unwrap_or_else(PoisonError::into_inner));
        for number in numbers {
            let base = self.owner.find(number).and_then(|base| NonNull::new(base as *mut u8));
            self.owner.strike(number);
            if let Some(base) = base {
                // SAFETY: mapped by this set with this size; `&mut self` proves that no view is left.
                unsafe { self.os.unmap(base, BLOCK_BYTES) };
            }
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
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::os::Twin;
    use crate::system;

    #[test]
    fn a_block_is_found_by_its_owner_only() {
        let (mine, other) = (BlockSet::new(system(), 1).unwrap(), BlockSet::new(system(), 1).unwrap());
        let number = mine.map().unwrap();
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
        let set = BlockSet::new(twin, 1).unwrap();
        set.map().unwrap();
        twin.refuse_after(0);
        assert!(matches!(set.map(), Err(BlockError::Refused { .. })));
        assert_eq!(set.len(), 1);
        drop(set);
        assert_eq!(twin.mapped(), 0);
    }

    #[test]
    fn words_and_bytes_agree() {
        let set = BlockSet::new(system(), 1).unwrap();
        let number = set.map().unwrap();
        let block = set.block(number).unwrap();
        for len in 0..40 {
            let bytes: Vec<u8> = (1..=len).collect();
            block.write(100, &bytes);
            let mut back = vec![0; bytes.len()];
            block.read(100, &mut back);
            assert_eq!(back, bytes);
        }
    }
}
