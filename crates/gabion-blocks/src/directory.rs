//! The directory: block number → where the block lies and whose it is.
//!
//! One table for the process, as snmalloc's page map: a pointer that was made by another owner is found out by one
//! load, before anything behind it is touched. An entry packs the block's address (a multiple of 4 MiB) and the
//! owner's number in the 22 bits below it; 0 stands for "no block".
//!
//! Block numbers are reused when their owner is gone. So that a stale pointer never fits again, the directory also
//! remembers, for each number, the highest generation handed out under it (the *generation floor*). A number that has
//! no generations left is not reused.
//!
//! An owner whose blocks lie in a file has a directory of its own: its pointers outlive the process, and so do the
//! numbers in them.

use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::BLOCK_BYTES;
use crate::error::BlockError;
use crate::fallible::{make_room, zeroed_box};
use crate::inside;
use crate::sync::{Mutex, MutexGuard, lock};

/// How many blocks a process can have at one time: 2²⁰ blocks of 4 MiB are 4 TiB.
pub const BLOCK_NUMBERS: u32 = 1 << 20;

/// The highest generation of an object. New objects are stored only where the floor is below it.
pub const LAST_GENERATION: u32 = (1 << 20) - 2;

/// Where generations may begin that are to be others than those of another process or file, by a
/// [unique number](crate::unique_number).
pub fn first_generation(unique: u64) -> u32 {
    // A small part of all generations: a slot has the others to use up.
    1 + (unique as u32 & 0xFFFF)
}

const OWNER_MASK: u64 = BLOCK_BYTES as u64 - 1;

/// What the numbers of blocks lead to. It lies in zeroed, lazily mapped memory: only the lines in use cost anything.
struct Directory {
    entries: [AtomicU64; BLOCK_NUMBERS as usize],
    floors: [AtomicU32; BLOCK_NUMBERS as usize],
}

/// The directory of all owners that have none of their own.
static PROCESS: Directory = Directory {
    entries: [const { AtomicU64::new(0) }; BLOCK_NUMBERS as usize],
    floors: [const { AtomicU32::new(0) }; BLOCK_NUMBERS as usize],
};

impl Directory {
    fn boxed() -> Result<Box<Self>, BlockError> {
        // SAFETY: numbers of which all bytes are zero are whole.
        unsafe { zeroed_box() }
    }
}

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
pub(crate) struct LockedNumbers {
    _blocks: MutexGuard<'static, Numbers>,
    _owners: MutexGuard<'static, Numbers>,
}

/// Takes the locks of both number lists and keeps them.
pub(crate) fn hold_numbers() -> LockedNumbers {
    LockedNumbers { _blocks: lock(&BLOCKS), _owners: lock(&OWNERS) }
}

/// One owner of blocks: a number that is this owner's alone for as long as the value lives.
pub(crate) struct Owner {
    number: u32,
    /// The owner's own directory, if it does not share that of the process.
    own: Option<Box<Directory>>,
}

impl Owner {
    pub(crate) fn new() -> Result<Self, BlockError> {
        let _inside = inside::enter();
        lock(&OWNERS).take("owner numbers").map(|number| Self { number, own: None })
    }

    /// An owner with a directory of its own, in which it says what number a block has.
    pub(crate) fn with_own_numbers() -> Result<Self, BlockError> {
        let mut owner = Self::new()?;
        owner.own = Some(Directory::boxed()?);
        Ok(owner)
    }

    #[inline(always)]
    fn directory(&self) -> &Directory {
        self.own.as_deref().unwrap_or(&PROCESS)
    }

    /// Enters a block and returns its number.
    pub(crate) fn enter(&self, address: usize) -> Result<u32, BlockError> {
        debug_assert!(self.own.is_none());
        let number = {
            let _inside = inside::enter();
            lock(&BLOCKS).take("block numbers")?
        };
        self.enter_as(number, address);
        Ok(number)
    }

    /// Enters a block under a number that nothing has.
    pub(crate) fn enter_as(&self, number: u32, address: usize) {
        debug_assert_eq!(address % BLOCK_BYTES, 0);
        // Release: a thread that finds the entry also sees what was written to the block before.
        self.directory().entries[number as usize].store(address as u64 | u64::from(self.number), Ordering::Release);
    }

    /// The address of a block, if it exists and is this owner's.
    #[inline]
    pub(crate) fn find(&self, number: u32) -> Option<usize> {
        // Acquire: pairs with the release in `enter_as`.
        let entry = self.directory().entries.get(number as usize)?.load(Ordering::Acquire);
        (entry & OWNER_MASK == u64::from(self.number)).then_some((entry & !OWNER_MASK) as usize)
    }

    /// Strikes a block out; its number may be reused at once, if it has generations left. The next owner, and each
    /// after it, would take a block for it in vain.
    pub(crate) fn strike(&self, number: u32) {
        debug_assert!(self.find(number).is_some());
        // Release: what the owner did with the block comes before its number serves another one.
        self.directory().entries[number as usize].store(0, Ordering::Release);
        if self.own.is_none() && self.floor(number) < LAST_GENERATION {
            lock(&BLOCKS).back.push(number);
        }
    }

    /// See [`BlockSet::generation_floor`](crate::BlockSet::generation_floor).
    #[inline]
    pub(crate) fn floor(&self, number: u32) -> u32 {
        // Relaxed: the thread that raised it did so under the lock that the asker holds, or through which the number
        // changed hands.
        self.directory().floors[number as usize].load(Ordering::Relaxed)
    }

    /// See [`BlockSet::raise_generation_floor`](crate::BlockSet::raise_generation_floor).
    #[inline]
    pub(crate) fn raise_floor(&self, number: u32, generation: u32) {
        let floor = &self.directory().floors[number as usize];
        // Relaxed: as in `floor`.
        if generation > floor.load(Ordering::Relaxed) {
            floor.store(generation, Ordering::Relaxed);
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        lock(&OWNERS).back.push(self.number);
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Owner").field(&self.number).finish()
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

    #[test]
    fn owners_with_own_numbers_do_not_meet() {
        let (shared, one, other) =
            (Owner::new().unwrap(), Owner::with_own_numbers().unwrap(), Owner::with_own_numbers().unwrap());
        let number = shared.enter(BLOCK_BYTES).unwrap();
        one.enter_as(number, 2 * BLOCK_BYTES);
        other.enter_as(number, 3 * BLOCK_BYTES);
        one.raise_floor(number, 7);
        one.raise_floor(number, 3);
        let owners = [&shared, &one, &other];
        assert_eq!(owners.map(|owner| owner.find(number).unwrap() / BLOCK_BYTES), [1, 2, 3]);
        assert_eq!((one.floor(number), other.floor(number)), (7, 0));
        for owner in owners {
            owner.strike(number);
        }
        assert!(owners.iter().all(|owner| owner.find(number).is_none()));
    }
}
