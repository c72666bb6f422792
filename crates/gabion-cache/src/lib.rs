//! A cache bounded in bytes: expiry, priorities, one factory call per key. Keys and values are bytes.
//!
//! ```
//! use gabion_cache::{Cache, PutOptions, PutResult, ReadBuf};
//!
//! let cache = Cache::new(64 << 20)?;
//! let mut buf = ReadBuf::new();
//! assert_eq!(cache.put(b"stone", b"4 MiB", &PutOptions::default()), PutResult::Inserted);
//! assert_eq!(cache.get(b"stone", &mut buf), Some(&b"4 MiB"[..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # How it works
//! A key's hash leads to a *shard*, in it to a *segment*, and there to a *cell* in one cache line, which names a place
//! in one pile. There lies the *entry*: neighbours in its eviction queue, times, key, value. So the index knows hashes
//! only, keys cost the collector and malloc nothing, a hit reads two places in memory, and it is believed because the
//! entry itself has the key.
//!
//! ```text
//! key ─hash─► shard ─► segment: 64 buckets of 7 cells (tag, place) ─► entry in the pile: neighbours, times, key, value
//!                      and sketches of how often keys were asked for
//! ```
//!
//! Readers take no lock: they read cell and entry, compare the key, copy the value, and look at the cell and at the
//! pile's own guards again. Cells move only when a segment is split or merged; a version tells a reader that found
//! nothing to look again. Writers lock one shard. So does a reader for a moment: at each hit with [`Policy::Lru`],
//! where a use puts an idle time off (once in a millisecond at most), where writers disturbed its look 16 times, where
//! the key's cell is in the stash, and, in the pile, for values over 1 MiB.
//!
//! Bytes are counted twice. What entries are charged (rounded payloads, their part of the index) never exceeds
//! `max_bytes`; and memory, of pile and index together, is taken from one budget of the same size (in caches below
//! 8 MiB, of a page more for each size class). Where either is short, entries are evicted, of the lowest priority
//! first; where only pages are short, entries also move together. An entry that is evicted for one of the same size
//! leaves its slot to that one: in a full cache nearly every put is such a trade, which changes no count. Where pages
//! are short, the policy's choice goes if its slot is of the size that the put needs, otherwise the next one that has
//! such a slot.
//!
//! In the exact policies there is one shard, and no entry goes before its turn: where pages are short, more go than
//! bytes ask for, but in order. The keys that [`Policy::S3Fifo`] remembers lie in memory of the index and are charged
//! as entries are.
//!
//! # Forks
//! A forked child has a copy of each cache, which is its own from then on. A fork may come while factories run, for no
//! lock is held meanwhile: what another thread of the parent was just making, the child makes itself. It may not come
//! while another thread is in any other call, or between its factory and its caller: the child would find a lock taken
//! for ever, as with a [`Pile`](gabion_pile::Pile). (The Python package sees to that itself.)
//!
//! # Modules
//! The modules, lowest first:
//!
//! | module | what it holds |
//! |---|---|
//! | `sync` | the door to the index's atomics |
//! | `key` | a key's image and its hash |
//! | `policy` | who goes when room is needed, checkable without a cache |
//! | `time` | clocks, and when entries end |
//! | `testing` | time that passes for tests |
//! | `index` | what is known by a hash: places, how often a key was asked for, keys that left |
//! | `entry`, `read` | what stands in the pile: neighbours, times, key, value; and reading it without a lock |
//! | `budget` | what an entry costs, what may be used |
//! | `stats`, `options`, `record` | figures, settings, and what the cache knows of a table |
//! | `shard` | one lock's part of it all, and what is done under the lock |
//! | `core` | the cache behind its tables: what callers ask of it |
//! | `lease` | the right to make a key's value |
//! | `flight` | one factory for each key |
//! | `table`, `cache`, `weak`, `outlast` | tables and caches, as callers see them; a handle that keeps none alive; entries that outlast their cache |

#![forbid(unsafe_code)]

mod sync;

mod key;

mod policy;

mod time;

pub mod testing;

mod index;

mod entry;

mod read;

mod budget;

mod stats;

mod options;

mod record;

mod shard;

mod core;

mod lease;

mod flight;

mod table;

mod cache;

mod weak;

mod outlast;

#[cfg(test)]
mod tests;

pub use cache::Cache;
pub use core::{Departure, Foreseen, Former, Listener, Standing};
pub use flight::Deadlock;
pub use gabion_pile::{Long, Piece, ReadBuf, Reading, RunIdentity, Value};
pub use lease::Lease;
pub use options::{CacheOptions, PutOptions, PutResult, Span, TableOptions, Terms};
pub use policy::Policy;
pub use shard::Reason;
pub use stats::CacheStats;
pub use table::Table;
pub use time::{Clock, ManualClock, SystemClock};
pub use weak::WeakCache;
