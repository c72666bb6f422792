//! Blocks: the stones that every part of gabion is built from.
//!
//! A *block* is 4 MiB of memory taken straight from the operating system, aligned to 4 MiB and addressed by a
//! process-wide *number*. This crate maps blocks, knows whose they are, gives their memory back, and reads what the
//! system allows. The modules, lowest first:
//!
//! | module | what it holds |
//! |---|---|
//! | `sync` | locks and atomics, which the model checker replaces |
//! | [`inside`] | whether this thread is in the middle of gabion's own books, for allocators under `malloc` |
//! | [`ending`] | whether what a thread does at its end can be noted |
//! | [`os`] | the one door to the operating system, and its twin for tests that fails at a chosen step |
//! | `unique` | numbers that no other process gives |
//! | `rank` | the order in which threads came |
//! | `owner_slot`, [`bias`] | a lock that is biased to the thread that always takes it |
//! | [`limits`] | how much memory this process may really use (physical memory, cgroup v1 and v2) |
//! | `error`, `invalid` | why memory was not given; what a check of equations found |
//! | `fallible` | boxes and lists of gabion's own that may be refused |
//! | `piece` | bytes that others may write to, copied by their addresses |
//! | `copy` | copies between plain bytes and words that other threads read or write meanwhile; [`copy_out`], [`prefetch`] |
//! | [`block`] | a view of one block as 8-byte atomic words |
//! | [`budget`] | a byte budget that several threads draw on |
//! | [`directory`] | block number → address and owner; generations that a number has used up |
//! | [`mod@file`] | blocks in a file, which the next process finds |
//! | [`huge`] | whether huge pages pay here and now, decided by measurement |
//! | [`pool`] | warm memory for buffers and groups, and the blocks of everything else |
//! | [`run`] | one object larger than any chunk, in a run of the pool |
//! | [`set`] | the blocks of one owner |
//! | [`units`] | a table that leads to stretches of a set's words without the directory |
//!
//! Nothing here takes memory from malloc for payload, and nothing stored inside a block is a raw address.

mod sync;

pub mod inside;

pub mod ending;

pub mod os;

mod unique;

mod rank;

mod owner_slot;

pub mod bias;

pub mod limits;

mod error;

mod invalid;

mod fallible;

mod piece;

mod copy;

pub mod block;

pub mod budget;

pub mod directory;

pub mod file;

pub mod huge;

pub mod pool;

pub mod run;

pub mod set;

pub mod units;

pub use bias::{Biased, BiasedGuard};
pub use block::{Block, WORDS_PER_BLOCK, WORDS_PER_PAGE};
pub use budget::Budget;
pub use copy::{copy_out, prefetch};
pub use directory::{BLOCK_NUMBERS, LAST_GENERATION, first_generation};
pub use error::BlockError;
pub use fallible::{make_room, null_pointers, try_box, try_room, zero_counts};
pub use invalid::{Invalid, ensure};
pub use os::{Os, system};
pub use piece::{Piece, total_len};
pub use pool::{Allowance, Buffer, Change, Group, GroupRequest, Held, Pool, PoolStats, Request, Settings};
pub use rank::Rank;
pub use run::Run;
pub use set::BlockSet;
pub use unique::unique_number;
pub use units::UnitTable;

/// Bytes in a block: two huge pages of 2 MiB, so that masking any inner address finds the block.
pub const BLOCK_BYTES: usize = 4 << 20;

/// Bytes in a page of a block. A page holds slots of one size class; 64 of them make a block.
pub const PAGE_BYTES: usize = 64 << 10;

/// A page of the system: what mappings of an exact size are rounded up to.
pub(crate) const SYSTEM_PAGE: usize = 4096;

/// The largest page that a system has: what is a multiple of it is whole pages of every kernel.
pub(crate) const LARGEST_SYSTEM_PAGE: usize = 64 << 10;

/// Pages in a block.
pub const PAGES_PER_BLOCK: usize = BLOCK_BYTES / PAGE_BYTES;
