//! Memory of the index: units of 4 KiB, cut from pages of blocks.

use std::collections::BTreeMap;
use std::ptr;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gabion_blocks::{BlockError, BlockSet, Budget, PAGES_PER_BLOCK, Pool, UnitTable, WORDS_PER_PAGE};

/// 8-byte words of a unit.
pub(crate) const UNIT_WORDS: usize = 512;
/// Bytes of a unit.
pub(crate) const UNIT_BYTES: u64 = UNIT_WORDS as u64 * 8;
const UNITS: usize = WORDS_PER_PAGE / UNIT_WORDS;
const UNITS_PER_BLOCK: u32 = (PAGES_PER_BLOCK * UNITS) as u32;
const ALL: u16 = u16::MAX;
const _: () = assert!(UNITS == u16::BITS as usize);

/// The first block keeps to small pages: a cache of a few entries shall not cost megabytes.
const FIRST_BLOCKS: usize = 1;

/// A unit's words.
pub(crate) type Unit = [AtomicU64; UNIT_WORDS];

/// Units for one purpose, charged to the cache's memory one by one. Their memory goes back by the page.
///
/// A unit that is given back may be taken by any strip of the same purpose, or its memory may be the system's and read
/// as zero: a reader without a lock may come late, and whatever it reads or writes there is of the kind that it
/// expects. An owner that may write then has blocks that no other set gets ([`Pages::written_late`]).
pub(crate) struct Pages {
    set: Arc<BlockSet>,
    memory: Arc<Budget>,
    stock: Mutex<Stock>,
}

#[derive(Default)]
struct Stock {
    /// The numbers of mapped blocks, by where they lie.
    numbers: BTreeMap<usize, u32>,
    /// Pages of mapped blocks of which nothing is charged.
    empty: Vec<u32>,
    /// Pages with free units.
    open: BTreeMap<u32, Open>,
}

/// Units of a page, a bit each.
struct Open {
    free: u16,
    /// Those that were taken since the page's memory was the system's.
    charged: u16,
}

impl Pages {
    /// Pages for units that late readers may write to.
    pub fn written_late(memory: &Arc<Budget>) -> Result<Self, BlockError> {
        Ok(Self::with(memory, BlockSet::claimed_alone(Pool::global(), FIRST_BLOCKS)?))
    }

    /// Pages for units that late readers read at most.
    pub fn new(memory: &Arc<Budget>) -> Result<Self, BlockError> {
        Ok(Self::with(memory, BlockSet::claimed(Pool::global(), FIRST_BLOCKS)?))
    }

    fn with(memory: &Arc<Budget>, set: BlockSet) -> Self {
        let set = Arc::new(set);
        Self { set, memory: Arc::clone(memory), stock: Mutex::default() }
    }

    fn stock(&self) -> MutexGuard<'_, Stock> {
        self.stock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A unit that nobody has, holding whatever.
    fn take(&self) -> Result<u32, BlockError> {
        let mut stock = self.stock();
        let ready = stock.open.iter().find(|(_, open)| open.free & open.charged != 0).map(|(&page, _)| page);
        let page = match ready {
            Some(page) => page,
            None => self.charge(&mut stock)?,
        };
        let open = stock.open.get_mut(&page).expect("the page is open");
        let ready = open.free & open.charged;
        let unit = if ready != 0 { ready } else { open.free }.trailing_zeros();
        open.free &= !(1 << unit);
        open.charged |= 1 << unit;
        if open.free == 0 {
            stock.open.remove(&page);
        }
        Ok(page * UNITS as u32 + unit)
    }

    /// Charges one more unit, and says in which page one is free.
    fn charge(&self, stock: &mut Stock) -> Result<u32, BlockError> {
        self.memory.take(UNIT_BYTES)?;
        if let Some((&page, _)) = stock.open.first_key_value() {
            return Ok(page);
        }
        if stock.empty.is_empty() {
            let number = self.set.map().inspect_err(|_| self.memory.give(UNIT_BYTES))?.0;
            let base = self.set.base(number).expect("a block of ours");
            stock.numbers.insert(base.addr().get(), number);
            stock.empty.extend((0..PAGES_PER_BLOCK as u32).rev().map(|page| number * PAGES_PER_BLOCK as u32 + page));
        }
        let page = stock.empty.pop().expect("a block has pages");
        self.set.claim(page / PAGES_PER_BLOCK as u32, 1 << (page as usize % PAGES_PER_BLOCK));
        self.set.fit(self.memory.room());
        if stock.empty.is_empty() {
            self.set.note_touched(page / PAGES_PER_BLOCK as u32);
        }
        stock.open.insert(page, Open { free: ALL, charged: 0 });
        Ok(page)
    }

    fn give(&self, unit: &Unit) {
        let mut stock = self.stock();
        let at = ptr::from_ref(unit).addr();
        let (&base, &number) = stock.numbers.range(..=at).next_back().expect("units lie in our blocks");
        let unit = number * UNITS_PER_BLOCK + ((at - base) as u64 / UNIT_BYTES) as u32;
        let (page, bit) = (unit / UNITS as u32, 1 << (unit % UNITS as u32));
        // A page without a free unit had all of them taken.
        let open = stock.open.entry(page).or_insert(Open { free: 0, charged: ALL });
        open.free |= bit;
        if open.free == ALL {
            let charged = open.charged;
            stock.open.remove(&page);
            self.memory.give(u64::from(charged.count_ones()) * UNIT_BYTES);
            self.set.release(
                page / PAGES_PER_BLOCK as u32,
                1 << (page as usize % PAGES_PER_BLOCK),
                0,
                self.memory.room(),
            );
            stock.empty.push(page);
        }
    }
}

/// A growing and shrinking array of units.
pub(crate) struct Strip {
    pages: Arc<Pages>,
    table: UnitTable<UNIT_WORDS>,
}

impl Strip {
    /// A strip with room for `most` units.
    ///
    /// # Errors
    /// That there is no memory for its table.
    pub fn new(pages: &Arc<Pages>, most: usize) -> Result<Self, BlockError> {
        Ok(Self { pages: Arc::clone(pages), table: UnitTable::new(&pages.set, most)? })
    }

    /// Units that may ever be.
    pub fn most(&self) -> usize {
        self.table.most()
    }

    /// Bytes of the table itself.
    pub fn table_bytes(&self) -> u64 {
        self.table.bytes()
    }

    #[inline(always)]
    pub fn get(&self, index: usize) -> Option<&Unit> {
        self.table.get(index)
    }

    /// Puts a unit at the end, where there is none, after `prepare` has seen to what it holds. Under the shard's lock.
    pub fn put(&self, index: usize, prepare: impl FnOnce(&Unit)) -> Result<(), BlockError> {
        let most = self.most() as u64;
        if index as u64 >= most {
            return Err(BlockError::Limit { asked: UNIT_BYTES, used: most, limit: most });
        }
        let unit = self.pages.take()?;
        let (number, first) = (unit / UNITS_PER_BLOCK, (unit % UNITS_PER_BLOCK) as usize * UNIT_WORDS);
        let block = self.pages.set.block(number).expect("units are of our blocks, which stay");
        prepare(block.words(first, UNIT_WORDS).try_into().expect("a unit's words"));
        self.table.lead(index, number, first);
        Ok(())
    }

    /// Gives a unit back. Under the shard's lock.
    pub fn give(&self, index: usize) {
        if let Some(unit) = self.table.clear(index) {
            self.pages.give(unit);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use gabion_blocks::PAGE_BYTES;

    use super::*;

    #[test]
    fn units_of_several_strips_share_pages_and_give_them_back() {
        let memory = Arc::new(Budget::new(3 * PAGE_BYTES as u64));
        let pages = Arc::new(Pages::new(&memory).unwrap());
        let (one, other) = (Strip::new(&pages, 100).unwrap(), Strip::new(&pages, 3).unwrap());
        for index in 0..3 {
            other.put(index, |unit| unit[7].store(index as u64, Relaxed)).unwrap();
        }
        assert!(matches!(other.put(3, |_| {}), Err(BlockError::Limit { .. })));
        let put = (0..100).take_while(|&index| one.put(index, |unit| unit[7].store(1, Relaxed)).is_ok()).count();
        assert_eq!((put, memory.used()), (3 * UNITS - 3, 3 * PAGE_BYTES as u64));
        one.give(20);
        assert_eq!(memory.used(), 3 * PAGE_BYTES as u64);
        one.put(20, |_| {}).unwrap();
        assert_eq!(other.get(2).unwrap()[7].load(Relaxed), 2);
        for index in 0..put {
            one.give(index);
        }
        assert_eq!(memory.used(), PAGE_BYTES as u64);
        assert!(one.get(0).is_none() && other.get(2).unwrap()[7].load(Relaxed) == 2);
        (0..3).for_each(|index| other.give(index));
        assert_eq!(memory.used(), 0);
        one.put(0, |_| {}).unwrap();
        assert_eq!(memory.used(), UNIT_BYTES);
    }
}
