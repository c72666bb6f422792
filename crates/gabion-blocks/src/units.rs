//! A table that leads to stretches of words without the directory.

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use crate::error::BlockError;
use crate::fallible::null_pointers;
use crate::set::BlockSet;

/// A table of *units*: `N` words each in the blocks of one set. An index of one's own that is looked up again and again
/// saves the way through the directory by it.
pub struct UnitTable<const N: usize> {
    set: Arc<BlockSet>,
    units: Box<[AtomicPtr<[AtomicU64; N]>]>,
}

impl<const N: usize> UnitTable<N> {
    /// A table of `most` places, which all lead nowhere.
    ///
    /// # Errors
    /// [`BlockError::Refused`] when there is no memory for it.
    pub fn new(set: &Arc<BlockSet>, most: usize) -> Result<Self, BlockError> {
        let units = null_pointers(most)?;
        Ok(Self { set: Arc::clone(set), units })
    }

    /// How many places there are.
    pub fn most(&self) -> usize {
        self.units.len()
    }

    /// Bytes of the table itself.
    pub fn bytes(&self) -> u64 {
        size_of_val(&*self.units) as u64
    }

    /// The unit that a place leads to. One load.
    #[inline(always)]
    pub fn get(&self, place: usize) -> Option<&[AtomicU64; N]> {
        // Acquire: pairs with `lead`, so that the unit is found as it was prepared.
        let unit = self.units.get(place)?.load(Ordering::Acquire);
        // SAFETY: null, or words of a block of the set: aligned, accessed atomically only, and mapped until the set is
        // dropped, which `self` keeps, or until the block is given back, which is not done while a table leads there
        // (duty of that caller).
        unsafe { unit.as_ref() }
    }

    /// Has a place lead to the words of a block of the set from word `first` on; a thread that finds them there finds
    /// what was written to them before.
    ///
    /// # Panics
    /// When there is no such place, the block is not the set's, or the words do not lie in it.
    pub fn lead(&self, place: usize, number: u32, first: usize) {
        let block = self.set.block(number).expect("the block is of the set");
        let unit: &[AtomicU64; N] = block.words(first, N).try_into().expect("that many words");
        // Release: see `get`.
        self.units[place].store(ptr::from_ref(unit).cast_mut(), Ordering::Release);
    }

    /// Has a place lead nowhere, and returns what it led to. A thread that looked it up before may still use that.
    pub fn clear(&self, place: usize) -> Option<&[AtomicU64; N]> {
        let unit = self.get(place)?;
        // Relaxed: what the words are used for next is told by the code that uses them.
        self.units[place].store(ptr::null_mut(), Ordering::Relaxed);
        Some(unit)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::UnitTable;
    use crate::{BlockError, BlockSet, Pool, Settings, WORDS_PER_BLOCK, system};

    #[test]
    fn places_lead_to_words_or_nowhere() {
        use std::sync::atomic::Ordering::Relaxed;
        let pool = Pool::new(system(), Settings::unpooled()).unwrap();
        let set = Arc::new(BlockSet::new(&pool, 1).unwrap());
        let (number, _) = set.map().unwrap();
        assert!(UnitTable::<512>::new(&set, 0).unwrap().get(0).is_none());
        assert!(matches!(UnitTable::<512>::new(&set, usize::MAX), Err(BlockError::Refused { .. })));
        let table = UnitTable::<512>::new(&set, 3).unwrap();
        assert_eq!((table.most(), table.bytes()), (3, 24));
        assert!((0..4).all(|place| table.get(place).is_none()));
        let last = WORDS_PER_BLOCK - 512;
        set.block(number).unwrap().word(last + 511).store(7, Relaxed);
        table.lead(1, number, last);
        assert_eq!(table.get(1).unwrap()[511].load(Relaxed), 7);
        drop(set);
        table.get(1).unwrap()[0].store(8, Relaxed);
        assert_eq!(table.get(1).unwrap()[0].load(Relaxed), 8, "the table keeps the set");
        assert_eq!(table.clear(1).unwrap()[511].load(Relaxed), 7);
        assert!(table.get(1).is_none() && table.get(0).is_none() && table.clear(1).is_none());
    }

    #[test]
    #[should_panic(expected = "the block is of the set")]
    fn a_block_of_another_set_is_refused() {
        let pool = Pool::new(system(), Settings::unpooled()).unwrap();
        let [one, other] = [(); 2].map(|()| Arc::new(BlockSet::new(&pool, 1).unwrap()));
        UnitTable::<8>::new(&one, 1).unwrap().lead(0, other.map().unwrap().0, 0);
    }

    #[test]
    #[should_panic(expected = "words beyond the block")]
    fn words_that_end_behind_their_block_are_refused() {
        let pool = Pool::new(system(), Settings::unpooled()).unwrap();
        let set = Arc::new(BlockSet::new(&pool, 1).unwrap());
        UnitTable::<8>::new(&set, 1).unwrap().lead(0, set.map().unwrap().0, WORDS_PER_BLOCK - 7);
    }
}
