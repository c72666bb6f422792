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
//! A key's hash leads to a *shard*, in it to a *segment*, and there to a *cell* in one cache line, which names a place in one
//! pile. There lies the *entry*: neighbours in its eviction queue, times, key, value. So the index knows hashes only, keys
//! cost the collector and malloc nothing, a hit reads two places in memory, and it is believed because the entry itself has
//! the key.
//!
//! ```text
//! key ─hash─► shard ─► segment: 64 buckets of 7 cells (tag, place) ─► entry in the pile: neighbours, times, key, value
//!                      and sketches of how often keys were asked for
//! ```
//!
//! Readers take no lock: they read cell and entry, compare the key, copy the value, and look at the cell and at the pile's
//! own guards again. Cells move only when a segment is split or merged; a version tells a reader that found nothing to look
//! again. Writers lock one shard.
//!
//! Bytes are counted twice. What entries are charged (rounded payloads, their part of the index) never exceeds
//! `max_bytes`; and memory, of pile and index together, is taken from one budget of the same size (in caches below
//! 8 MiB, of a page more for each size class). Where either is short, entries are evicted, of the lowest priority first; where only
//! pages are short, entries also move together. An entry that is evicted for one of the same size leaves its slot to that one:
//! in a full cache nearly every put is such a trade, which changes no count. Where pages are short, the policy's choice goes if
//! its slot is of the size that the put needs, otherwise the next one that has such a slot.
//!
//! In the exact policies there is one shard, and nobody goes before his turn: where pages are short, more go than bytes ask for,
//! but in order. The keys that [`Policy::S3Fifo`] remembers lie in memory of the index and are charged as entries are.
//!
//! The modules, lowest first:
//!
//! | module | what it holds |
//! |---|---|
//! | `sync` | the door to the index's atomics |
//! | `key` | a key's image, as it stands before its value |
//! | `hash` | the keyed hash and its parts |
//! | `clock` | where the time comes from |
//! | `sketch` | how often a key was asked for of late |
//! | `policy` | who goes when room is needed, checkable without a cache |
//! | `growth` | when parts of a shard split and join |
//! | `pages` | memory of the index, in units of 4 KiB |
//! | `bucket` | a cache line of the index: cells and their tags |
//! | `stash` | cells that found no place in their bucket |
//! | `segments` | from a hash to places, without a lock |
//! | `moves` | how cells come, go and move, a segment at a time |
//! | `sketches` | the sketches of a shard, as many as it needs |
//! | `ghosts` | keys that left of late |
//! | `wheel` | when entries end |
//! | `entry` | what stands in the pile: neighbours, times, key, value |
//! | `read` | an entry's value, without a lock |
//! | `budget` | what an entry costs, what may be used |
//! | `shortage` | sizes that the pile had no room for when it was last asked |
//! | `leases` | keys whose values are being made |
//! | `stats`, `options`, `record` | figures, settings, and what the cache knows of a table |
//! | `shard`, `lookup` | one lock's part of it all, and reading it without the lock |
//! | `value` | bytes in one piece or in several |
//! | `request` | a put on its way |
//! | `locked`, `charge` | under the lock: who leaves, bytes and who is evicted for them |
//! | `trade`, `change` | puts that take the place of entries that leave, and all puts |
//! | `core` | the cache behind its tables |
//! | `room` | room that a put's own shard cannot give |
//! | `calls`, `exchange` | what callers ask of a table |
//! | `ahead` | asking memory for entries ahead of their use |
//! | `walk` | walks over all entries |
//! | `validate` | the check that walks everything |
//! | `lease` | the right to make a key's value |
//! | `flight` | one factory for each key |
//! | `cache` | caches and tables, as callers see them |

#![forbid(unsafe_code)]

mod sync;

mod key;

mod hash;

mod clock;

mod sketch;

mod policy;

mod growth;

mod pages;

mod bucket;

mod stash;

mod segments;

mod moves;

mod sketches;

mod ghosts;

mod wheel;

mod entry;

mod read;

mod budget;

mod shortage;

mod leases;

mod stats;

mod options;

mod record;

mod shard;

mod lookup;

mod value;

mod request;

mod locked;

mod charge;

mod trade;

mod change;

mod core;

mod room;

mod calls;

mod exchange;

mod ahead;

mod walk;

mod validate;

mod lease;

mod flight;

mod cache;

#[cfg(test)]
mod tests;

pub use ahead::Foreseen;
pub use cache::{Cache, Table};
pub use clock::{Clock, ManualClock, SystemClock};
pub use core::{Departure, Listener};
pub use exchange::Former;
pub use flight::Deadlock;
pub use gabion_pile::{Long, ReadBuf, Reading, RunIdentity};
pub use lease::Lease;
pub use options::{CacheOptions, PutOptions, PutResult, Span, TableOptions};
pub use policy::Policy;
pub use shard::Reason;
pub use stats::CacheStats;
pub use value::Value;
