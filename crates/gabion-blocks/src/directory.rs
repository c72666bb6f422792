//! The directory: block number → where the block lies and whose it is.
//!
//! One table for the process, as snmalloc's page map: a pointer that was made by another owner is found out by one
//! load, before anything behind it is touched. An entry packs the block's address (a multiple of 4 MiB) and the
//! owner's number in the 22 bits below it; 0 stands for "no block".
//!
//! Block numbers are reused when their owner is gone. So that a stale pointer never fits again, the directory also
//! remembers, for each number, the highest generation handed out under it (the *generation floor*). A number that has no
//! generations left is not reused.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::BLOCK_BYTES;
use crate::error::{BlockError, make_room};
use crate::inside;
use crate::sync::{Mutex, MutexGuard, lock};

/// How many blocks a process can have at one time: 2²⁰ blocks of 4 MiB are 4 TiB.
pub const BLOCK_NUMBERS: u32 = 1 << 20;

/// The highest generation of an object. New objects are stored only where the floor is below it.
pub const LAST_GENERATION: u32 = (1 << 21) - 2;

const OWNER_MASK: u64 = BLOCK_BYTES as u64 - 1;

// Both tables lie in zeroed, lazily mapped memory: only the lines in use cost anything.
static ENTRIES: [AtomicU64; BLOCK_NUMBERS as usize] = [const { AtomicU64::new(0) }; BLOCK_NUMBERS as usize];
static FLOORS: [AtomicU32; BLOCK_NUMBERS as usize] = [const { AtomicU32::new(0) }; BLOCK_NUMBERS as usize];

/// Numbers handed out in rising order, and those that came back.
struct Numbers {
    next: u32,
    end: u32,
    back: Vec<u32>,
}

impl Numbers {
    const fn new(first: u32, end: u32) -> Self {
        Self { next: first, end, back: Vec::new() }
    }

    /// A number that nobody has, and room for it to come back: giving back needs no memory. `what` says what they are.
    fn take(&mut self, what: &'static str) -> Result<u32, BlockError> {
        if let Some(number) = self.back.pop() {
            return Ok(number);
        }
        if self.next == self.end {
            return Err(BlockError::Exhausted { what });
        }
        // None is back, so no more are out than were ever handed out.
        make_room(&mut self.back, self.next as usize + 1)?;
        self.next += 1;
        Ok(self.next - 1)
    }
}

static BLOCKS: Mutex<Numbers> = Mutex::new(Numbers::new(0, BLOCK_NUMBERS));
static OWNERS: Mutex<Numbers> = Mutex::new(Numbers::new(1, BLOCK_BYTES as u32));

/// The held locks of both number lists, for a fork.
pub(crate) struct HeldNumbers {
    _blocks: MutexGuard<'static, Numbers>,
    _owners: MutexGuard<'static, Numbers>,
}

/// Takes the locks of both number lists and keeps them.
pub(crate) fn hold_numbers() -> HeldNumbers {
    HeldNumbers { _blocks: lock(&BLOCKS), _owners: lock(&OWNERS) }
}

/// One owner of blocks: a number that is this owner's alone for as long as the value lives.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Owner(u32);

impl Owner {
    pub(crate) fn new() -> Result<Self, BlockError> {
        let _inside = inside::enter();
        lock(&OWNERS).take("owner numbers").map(Self)
    }

    /// Enters a block and returns its number.
    pub(crate) fn enter(&self, address: usize) -> Result<u32, BlockError> {
        debug_assert_eq!(address % BLOCK_BYTES, 0);
        let number = {
            let _inside = inside::enter();
            lock(&BLOCKS).take("block numbers")?
        };
        // Release: whoever finds the entry also sees what was written to the block before.
        ENTRIES[number as usize].store(address as u64 | u64::from(self.0), Ordering::Release);
        Ok(number)
    }

    /// The address of a block, if it exists and is this owner's.
    #[inline]
    pub(crate) fn find(&self, number: u32) -> Option<usize> {
        // Acquire: pairs with the release in `enter`.
        let entry = ENTRIES.get(number as usize)?.load(Ordering::Acquire);
        (entry & OWNER_MASK == u64::from(self.0)).then_some((entry & !OWNER_MASK) as usize)
    }

    /// Strikes a block out; its number may be reused at once, if it has generations left. The next owner, and each after it, would
    /// take a block for it in vain.
    pub(crate) fn strike(&self, number: u32) {
        debug_assert!(self.find(number).is_some());
        // Release: what the owner did with the block comes before its number serves another one.
        ENTRIES[number as usize].store(0, Ordering::Release);
        if generation_floor(number) < LAST_GENERATION {
            lock(&BLOCKS).back.push(number);
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        lock(&OWNERS).back.push(self.0);
    }
}

/// The highest generation that was handed out under a block number. New slots in the block start at it.
pub fn generation_floor(number: u32) -> u32 {
    FLOORS[number as usize].load(Ordering::Relaxed)
}

/// Raises the generation floor of a block number; lower values change nothing.
///
/// The caller owns the block, and raises it under a lock or from one thread at a time.
#[inline]
pub fn raise_generation_floor(number: u32, generation: u32) {
    let floor = &FLOORS[number as usize];
    // Relaxed: the next reader of the floor is ordered after us by the lock through which the number changes hands.
    if generation > floor.load(Ordering::Relaxed) {
        floor.store(generation, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_are_out_come_back_without_memory() {
        let mut numbers = Numbers::new(1, 1000);
        for round in 0..3 {
            let out: Vec<_> = (1..1000).map(|_| numbers.take("numbers").unwrap()).collect();
            assert_eq!(numbers.take("numbers"), Err(BlockError::Exhausted { what: "numbers" }));
            let room = numbers.back.capacity();
            assert!(room >= out.len(), "{room} in round {round}");
            numbers.back.extend(out);
            assert_eq!(numbers.back.capacity(), room);
        }
    }
}
