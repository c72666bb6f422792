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
//! A key's hash leads to a *shard*, and in it to a *segment* of cells, which name *entries*. An entry holds a pointer into
//! one pile, where the *payload* lies: table, key, times, value. So the index knows hashes only, keys cost the collector
//! and malloc nothing, and a hit is believed because the payload itself begins with the key.
//!
//! ```text
//! key ─hash─► shard ─► segment: 512 cells (tag, id) ─► entry: pointer, weight, links, state ─► payload in the pile
//!                      and a frequency sketch                     and its deadline, if it has one
//! ```
//!
//! Readers take no lock: they follow the cells, read the payload (which the pile checks), and look at the entry's
//! pointer again. Cells move only when a segment is split, merged or rebuilt; a version tells a reader that found
//! nothing to look again. Writers lock one shard.
//!
//! Bytes are counted twice. What entries are charged (rounded payloads, their part of the index) never exceeds
//! `max_bytes`; and memory, in pages of pile and index together, is taken from one budget of the same size (8 MiB for
//! smaller caches). Where either is short, entries are evicted, of the lowest priority first.
//!
//! The rooms, lowest first:
//!
//! | room | what it holds |
//! |---|---|
//! | `key` | a key's image, and what a payload holds |
//! | `hash` | the keyed hash and its parts |
//! | `clock` | where the time comes from |
//! | `sketch` | how often a key was asked for of late |
//! | `policy` | who goes when room is needed, checkable without a cache |
//! | `pages` | memory of the index |
//! | `segments` | from a hash to ids, growing a segment at a time |
//! | `entries` | what the index knows of an entry |
//! | `wheel` | when entries end |
//! | `budget` | what an entry costs, what may be used |
//! | `stats`, `options`, `record` | figures, settings, and what the cache knows of a table |
//! | `shard` | one lock's part of it all, and reading without it |
//! | `change` | put, remove, evict, expire, under the lock |
//! | `core` | the cache behind its tables |
//! | `validate` | the check that walks everything |
//! | `flight` | one factory for each key |
//! | `cache` | caches and tables, as callers see them |

#![forbid(unsafe_code)]

mod key;

mod hash;

mod clock;

mod sketch;

mod policy;

mod pages;

mod segments;

mod entries;

mod wheel;

mod budget;

mod stats;

mod options;

mod record;

mod shard;

mod change;

mod core;

mod validate;

mod flight;

mod cache;

#[cfg(test)]
mod tests;

pub use cache::{Cache, Table};
pub use clock::{Clock, ManualClock, SystemClock};
pub use core::{Departure, Listener};
pub use flight::{Begin, Deadlock, Flights, Runner, Ticket, Waiting, this_thread};
pub use gabion_pile::ReadBuf;
pub use options::{CacheOptions, PutOptions, PutResult, Span, TableOptions};
pub use policy::Mode;
pub use shard::Reason;
pub use stats::CacheStats;
