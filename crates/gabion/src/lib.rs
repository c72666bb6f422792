//! **gabion** for Rust programs: the parts of the workspace behind one name. `docs/rust.md` is the guide.
//!
//! ```
//! use gabion::{Pile, ReadBuf};
//!
//! let pile = Pile::new()?;
//! let pointers: Vec<_> = (0..1000_u32).map(|n| pile.put(&n.to_le_bytes())).collect::<Result<_, _>>()?;
//! let mut buf = ReadBuf::new();
//! assert_eq!(pile.read(pointers[7], &mut buf)?, 7_u32.to_le_bytes());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Warm memory for pixels and arrays comes from the same place:
//!
//! ```
//! use gabion::{Pool, Request};
//!
//! let mut buffer = Pool::global().rent(&Request::new(8 << 20))?;
//! buffer.as_mut_slice()[..5].copy_from_slice(b"stone");
//! drop(buffer); // back to the pool, whichever thread does it
//! Pool::global().trim(true); // to the system, at once
//! # Ok::<(), gabion::BlockError>(())
//! ```
//!
//! Small objects of one kind lie together in slots, by themselves or under the collections that a program has:
//!
//! ```
//! use gabion::{Affinity, Slots};
//!
//! let slots = Slots::global();
//! let leaf = slots.within(Affinity::NODES).boxed([1_u64, 2, 3])?;
//! assert_eq!(leaf.iter().sum::<u64>(), 6);
//! # Ok::<(), gabion::SlotsError>(())
//! ```
//!
//! A cache holds to its bytes, whatever is put into it:
//!
//! ```
//! use gabion::{Cache, PutOptions, ReadBuf};
//!
//! let cache = Cache::new(64 << 20)?;
//! cache.put(b"key", b"value", &PutOptions::default());
//! assert_eq!(cache.get(b"key", &mut ReadBuf::new()), Some(&b"value"[..]));
//! # Ok::<(), gabion::BlockError>(())
//! ```
//!
//! | name | what it is |
//! |---|---|
//! | [`Pile`] | byte objects behind 64-bit [`Pointer`]s with generations, in memory or in a file ([`Pile::open`]) |
//! | [`View`] | a stored payload in place, without a copy |
//! | [`Cache`], [`Table`] | bytes behind keys, within a limit, with expiry and priorities |
//! | [`Pool`] | warm memory with arenas, trimming and limits |
//! | [`Buffer`], [`Group`] | contiguous memory, and memory in blocks, owned until dropped |
//! | [`Slots`], [`Affinity`] | objects packed by kind: allocated, freed, released by affinity |
//! | [`Within`], [`WithinOwned`], [`WithinGlobal`] | one affinity as the `Allocator` of `allocator-api2`; `Slots` are one themselves |
//! | [`SlotBox`], [`unsize!`] | one value in a slot, owned; as a trait object or a slice |
//! | [`allocator_api2`] | its vectors and boxes, in the version that fits |
//! | [`Global`] | slots under a whole program, chosen at run time |
//! | [`blocks`], [`pile`], [`slots`], [`cache`] | the whole parts: the 4 MiB blocks that everything is built from; piles for owners with an index of their own; clocks and more of caches |

#![forbid(unsafe_code)]

/// The first page, so that its example is compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Page;

/// The page of slots, whose example is for programs that depend on this crate.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/slots.md")]
struct PageOfSlots;

/// The guide for Rust, whose examples are programs of this crate alone.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/rust.md")]
struct Guide;

pub use gabion_blocks as blocks;
pub use gabion_blocks::file::{FileError, FileSummary};
pub use gabion_blocks::{BlockError, Buffer, Change, Group, GroupRequest, Pool, PoolStats, Request, Settings};
pub use gabion_cache as cache;
pub use gabion_cache::{
    Cache, CacheOptions, CacheStats, Deadlock, Departure, Lease, Listener, Policy, PutOptions, PutResult, Reason, Span,
    Table, TableOptions, Terms, WeakCache,
};
pub use gabion_pile as pile;
pub use gabion_pile::{
    Cursor, Long, Noted, OpenOptions, Pile, PileError, PileOptions, PileStats, Pointer, PointerFault, Pointers,
    ReadBuf, Reading, RunIdentity, Saving, View, with_read_buf,
};
pub use gabion_slots as slots;
pub use gabion_slots::allocator_api2;
pub use gabion_slots::{
    Affinity, AffinitySettings, AffinityStats, Backing, FreeError, Global, Invalid, MOST_AFFINITIES, Report, SlotBox,
    Slots, SlotsError, SlotsStats, Within, WithinGlobal, WithinOwned, unsize,
};
