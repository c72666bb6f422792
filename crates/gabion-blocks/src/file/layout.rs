//! What the words of superblock, table, runs and log mean. `docs/layouts.md` draws them.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, Release};

use super::error::FileError;
use crate::directory::{BLOCK_NUMBERS, LAST_GENERATION, first_generation};
use crate::{BLOCK_BYTES, LARGEST_SYSTEM_PAGE};

/// The format's number.
pub(super) const FORMAT: u32 = 2;

/// The first word of the file, as a machine reads it whose words are those of the file.
const MAGIC: u64 = u64::from_le_bytes(*b"gabion\0p");

/// Where the table begins, and how long it is: a word for each number that there is.
pub(super) const TABLE: usize = BLOCK_BYTES;
const TABLE_BYTES: usize = BLOCK_NUMBERS as usize * 8;

/// What stands before the first block.
pub(super) const HEAD_BYTES: usize = TABLE + TABLE_BYTES;
const _: () = assert!(HEAD_BYTES.is_multiple_of(BLOCK_BYTES));

/// Where a block of the file begins.
pub(super) fn offset_of(position: u32) -> u64 {
    HEAD_BYTES as u64 + u64::from(position) * BLOCK_BYTES as u64
}

/// The word of the table that speaks of a block, counted from the file's beginning.
pub(super) fn table_word(position: u32) -> usize {
    TABLE / 8 + position as usize
}

/// Blocks that a stretch of the table speaks of which is kept room for at one time.
const BLOCKS_PER_STRETCH: u32 = (LARGEST_SYSTEM_PAGE / 8) as u32;

/// The stretches of the table, in bytes of the file, that speak of blocks from one on and not of any before.
pub(super) fn table_stretches(from: u32, to: u32) -> impl Iterator<Item = u64> {
    (from.div_ceil(BLOCKS_PER_STRETCH)..to.div_ceil(BLOCKS_PER_STRETCH))
        .map(|stretch| (TABLE + stretch as usize * LARGEST_SYSTEM_PAGE) as u64)
}

/// A sum by which words are known again; no more than that.
pub(super) fn sum_of(words: impl Iterator<Item = u64>) -> u64 {
    words.fold(0xCBF2_9CE4_8422_2325, |sum, word| (sum ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29))
}

/// The same of bytes.
pub(super) fn sum_of_bytes(bytes: &[u8]) -> u64 {
    let word = |chunk: &[u8]| chunk.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
    sum_of(bytes.chunks(8).map(word).chain([bytes.len() as u64]))
}

/// What a file says of itself, once and for all: `MAGIC | format, shards | id | first number, first generation | sum`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Superblock {
    /// How many shards its owner has.
    pub shards: u32,
    /// By which the file is known among others that are no copies of it.
    pub id: u64,
    /// The number of the first block. The others have the next ones, and after the last number comes 0.
    pub first_number: u32,
    /// Where the generations of its blocks begin. With the number above, pointers of other piles are refused by it.
    pub first_generation: u32,
}

/// The word that the owner may change at any time: where the next process begins.
pub(super) const ROOT: usize = 16;

impl Superblock {
    const WORDS: usize = 5;

    pub fn new(id: u64, shards: u32) -> Self {
        Self::numbered(id, shards, (id >> 32) as u32 % BLOCK_NUMBERS)
    }

    /// One whose first block has a number that is given.
    pub fn numbered(id: u64, shards: u32, first_number: u32) -> Self {
        Self { shards, id, first_number, first_generation: first_generation(id) }
    }

    pub fn words(self) -> [u64; Self::WORDS] {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let words = [MAGIC, pair(FORMAT, self.shards), self.id, pair(self.first_number, self.first_generation)];
        let sum = sum_of(words.into_iter());
        [words[0], words[1], words[2], words[3], sum]
    }

    /// Writes it; the first word, without which it is none, last.
    pub fn write(self, store: impl Fn(usize, u64)) {
        let words = self.words();
        for (index, word) in words.into_iter().enumerate().skip(1) {
            store(index, word);
        }
        store(0, words[0]);
    }

    /// Reads it. `None` where nothing was written yet.
    pub fn read(word: impl Fn(usize) -> u64) -> Result<Option<Self>, FileError> {
        let words: [u64; Self::WORDS] = std::array::from_fn(word);
        if words[0] == 0 {
            return Ok(None);
        }
        if words[0] != MAGIC {
            return Err(FileError::NotOurs);
        }
        let (low, high) = (|word: u64| word as u32, |word: u64| (word >> 32) as u32);
        if low(words[1]) != FORMAT {
            return Err(FileError::Format { found: low(words[1]) });
        }
        let found = Self {
            shards: high(words[1]),
            id: words[2],
            first_number: low(words[3]),
            first_generation: high(words[3]),
        };
        let whole = found.words() == words && found.shards.is_power_of_two() && found.shards <= 1 << 16;
        if !whole || found.first_number >= BLOCK_NUMBERS || found.first_generation >= LAST_GENERATION {
            return Err(FileError::damaged(Some(0), "the superblock does not add up"));
        }
        Ok(Some(found))
    }

    /// The number of a block.
    pub fn number_of(&self, position: u32) -> u32 {
        (self.first_number + position) % BLOCK_NUMBERS
    }

    /// The block of a number.
    pub fn position_of(&self, number: u32) -> u32 {
        (number + BLOCK_NUMBERS - self.first_number) % BLOCK_NUMBERS
    }
}

/// What a block of the file is used for: `kind (8 bits) | blocks of the run (24)`. Kinds are words of the extended
/// Hamming code: from one to another, four bits change, so that a bit that a disk has turned makes no block free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// A word that was never written. The block is as the disk gave it: all zero.
    Untouched,
    Nothing,
    Heap,
    Run {
        blocks: u32,
    },
    Rest,
    Log,
}

impl Use {
    pub fn word(self) -> u64 {
        match self {
            Self::Untouched => 0,
            Self::Nothing => 0x0F,
            Self::Heap => 0x33,
            Self::Run { blocks } => 0x55 | u64::from(blocks) << 8,
            Self::Rest => 0x66,
            Self::Log => 0x3C,
        }
    }

    /// `None` for a word that no version of the format has.
    pub fn of(word: u64) -> Option<Self> {
        let found = match word & 0xFF {
            0 => Self::Untouched,
            0x0F => Self::Nothing,
            0x33 => Self::Heap,
            0x55 => Self::Run { blocks: u32::try_from(word >> 8).ok()? },
            0x66 => Self::Rest,
            0x3C => Self::Log,
            _ => return None,
        };
        (found.word() == word).then_some(found)
    }
}

/// What stands in front of the bytes of a run: their number, and whose they are: nobody's (0), or `1 + (shard, index)`.
pub(super) const RUN_HEAD: usize = 64;
pub(super) const RUN_LENGTH: usize = 0;
pub(super) const RUN_OWNER: usize = 1;

/// How many blocks a run of that many bytes lies in, with its head.
pub(super) fn blocks_for(len: usize) -> Option<u32> {
    u32::try_from(len.checked_add(RUN_HEAD)?.div_ceil(BLOCK_BYTES)).ok().filter(|&blocks| blocks < BLOCK_NUMBERS)
}

/// How much of the disk it takes.
pub(super) fn room_for(len: usize) -> u64 {
    (len + RUN_HEAD).next_multiple_of(LARGEST_SYSTEM_PAGE) as u64
}

/// A block of the log: which one it is, from 1 on, and how many of its bytes are written. Then come the records:
/// `length (32 bits) | low half of their sum (32) | bytes, filled up to words`.
pub(super) const LOG_SEQUENCE: usize = 0;
pub(super) const LOG_END: usize = 1;
pub(super) const LOG_HEAD: usize = 64;

/// Stores a word of the file after all that it speaks of.
pub(super) fn commit(word: &AtomicU64, value: u64) {
    // Release: what was written before is there for a thread that finds the word, in this process; and a process that
    // opens the file later finds the stores of a killed process in this order, too.
    word.store(value, Release);
}

/// Reads a word of the file, of which nobody writes what it speaks of.
pub(super) fn read(word: &AtomicU64) -> u64 {
    // Relaxed: asked by who opens the file, before anybody writes, or under the file's lock.
    word.load(Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nothing_else() {
        let block = Superblock::new(0xDEAD_BEEF_1234_5678, 4);
        let words = block.words();
        assert_eq!(Superblock::read(|at| words[at]).unwrap(), Some(block));
        assert!(Superblock::read(|_| 0).unwrap().is_none());
        for at in 0..Superblock::WORDS {
            for bit in 0..64 {
                let changed = |word: usize| words[word] ^ (u64::from(word == at) << bit);
                assert!(Superblock::read(changed).is_err(), "word {at}, bit {bit}");
            }
        }
        for position in [0, 1, 77, BLOCK_NUMBERS - 1] {
            assert_eq!(block.position_of(block.number_of(position)), position);
        }
    }

    #[test]
    fn each_stretch_of_the_table_is_kept_room_for_once() {
        let all: Vec<u64> = (0..20_000).flat_map(|at| table_stretches(at, at + 1)).collect();
        let table = TABLE as u64;
        assert_eq!(all, [table, table + (64 << 10), table + (128 << 10)]);
        assert_eq!(table_stretches(0, 20_000).collect::<Vec<_>>(), all);
        assert_eq!(table_stretches(8191, 8192).count() + table_stretches(1, 8192).count(), 0);
    }

    #[test]
    fn words_of_the_table_read_back() {
        let all = [Use::Untouched, Use::Nothing, Use::Heap, Use::Run { blocks: 1 << 19 }, Use::Rest, Use::Log];
        for found in all {
            let far = |other: &Use| (found.word() ^ other.word()).count_ones() >= 4;
            assert!(all.iter().all(|other| *other == found || far(other)));
            assert_eq!(Use::of(found.word()), Some(found));
        }
        assert!([1, 0x133, 0xFF, 1 << 40 | 0x33, u64::MAX].into_iter().all(|word| Use::of(word).is_none()));
    }
}
