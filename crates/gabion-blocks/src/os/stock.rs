//! Address space for blocks, mapped several at a time.
//!
//! Every mapping, and each of the two cuts that align it, takes the lock of the process's address space for writing.
//! Two threads that fill fresh blocks would meet there at every block: each waits until the other's pages are
//! populated, and is woken late. So blocks are mapped in batches, and all but the first wait here, untouched, without
//! memory of their own.

use std::ptr::{self, NonNull};

use crate::BLOCK_BYTES;
use crate::sync::{AtomicPtr, AtomicUsize, Ordering};

/// The most blocks that are mapped at one time. The first batches are smaller, so that little programs stay little.
pub(super) const LARGEST_BATCH: usize = 16;

/// Blocks that nobody has used.
#[derive(Debug)]
pub(super) struct Stock {
    /// The next block, and in the bits below its address how many there are from it on, one behind the other; null when
    /// there is none. The value is the whole state, so it does no harm when it changes and comes back.
    ///
    /// All orderings are relaxed: nothing was ever written into these blocks, so nothing is published with them.
    rest: AtomicPtr<u8>,
    /// How many are mapped the next time.
    batch: AtomicUsize,
}

impl Stock {
    pub const fn new() -> Self {
        Self { rest: AtomicPtr::new(ptr::null_mut()), batch: AtomicUsize::new(1) }
    }

    /// A block of the stock; where it is empty, the first of those that `map` maps: that many blocks, aligned to one.
    /// What becomes too much, because another thread did the same, is given to `unmap`.
    ///
    /// # Errors
    /// What `map` says to one block alone.
    pub fn take(
        &self,
        map: impl Fn(usize) -> Result<NonNull<u8>, i32>,
        unmap: impl FnOnce(NonNull<u8>, usize),
    ) -> Result<NonNull<u8>, i32> {
        if let Some(block) = self.next() {
            return Ok(block);
        }
        let batch = self.batch.load(Ordering::Relaxed);
        // Without address space for so many, under a limit on it: one.
        let (first, blocks) = map(batch).map(|first| (first, batch)).or_else(|_| map(1).map(|first| (first, 1)))?;
        self.batch.store((2 * blocks).min(LARGEST_BATCH), Ordering::Relaxed);
        let second = first.as_ptr().wrapping_add(BLOCK_BYTES);
        if let Some(rest) = NonNull::new(second).filter(|_| blocks > 1)
            && !self.put(rest, blocks - 1)
        {
            unmap(rest, blocks - 1);
        }
        Ok(first)
    }

    /// Takes a block out.
    fn next(&self) -> Option<NonNull<u8>> {
        let less = |rest: *mut u8| match rest.addr() % BLOCK_BYTES {
            0 => None,
            1 => Some(ptr::null_mut()),
            _ => Some(rest.wrapping_add(BLOCK_BYTES).wrapping_sub(1)),
        };
        let rest = self.rest.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).ok()?;
        NonNull::new(rest.map_addr(|address| address & !(BLOCK_BYTES - 1)))
    }

    /// Puts blocks in; false when there are some already.
    fn put(&self, first: NonNull<u8>, blocks: usize) -> bool {
        let rest = first.as_ptr().wrapping_add(blocks);
        self.rest.compare_exchange(ptr::null_mut(), rest, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeSet;

    use super::*;

    /// Address space of a test: a number for each block, never used.
    fn at(block: usize) -> NonNull<u8> {
        NonNull::new(ptr::without_provenance_mut(block * BLOCK_BYTES)).unwrap()
    }

    fn never(_: NonNull<u8>, _: usize) {
        panic!("nothing is too much");
    }

    #[test]
    fn batches_double_and_every_block_is_given_once() {
        let stock = Stock::new();
        let maps = RefCell::new(Vec::new());
        let map = |blocks: usize| {
            let start = 1 + maps.borrow().iter().sum::<usize>();
            maps.borrow_mut().push(blocks);
            Ok(at(start))
        };
        let taken: BTreeSet<_> = (0..63).map(|_| stock.take(map, never).unwrap()).collect();
        assert_eq!(taken, (1..64).map(at).collect());
        assert_eq!(*maps.borrow(), [1, 2, 4, 8, 16, 16, 16]);
    }

    #[test]
    fn without_room_for_a_batch_blocks_come_alone() {
        let stock = Stock::new();
        assert_eq!(stock.take(|_| Ok(at(1)), never), Ok(at(1)));
        let narrow = |blocks: usize| if blocks == 1 { Ok(at(7)) } else { Err(libc::ENOMEM) };
        assert_eq!(stock.take(narrow, never), Ok(at(7)));
        assert_eq!(stock.take(|_| Err(libc::EPERM), never), Err(libc::EPERM));
        assert_eq!(stock.take(narrow, never), Ok(at(7)), "an error leaves the stock as it was");
    }

    #[test]
    fn what_two_threads_map_at_one_time_is_given_back() {
        let stock = Stock::new();
        stock.take(|_| Ok(at(1)), never).unwrap();
        let gone = RefCell::new(None);
        let first = stock.take(
            |_| {
                // Another thread is faster: it takes the first block of another batch.
                stock.take(|_| Ok(at(20)), never).unwrap();
                Ok(at(10))
            },
            |rest, blocks| *gone.borrow_mut() = Some((rest, blocks)),
        );
        assert_eq!((first, gone.into_inner()), (Ok(at(10)), Some((at(11), 1))));
        assert_eq!(stock.take(|_| panic!("there is one"), never), Ok(at(21)));
    }
}
