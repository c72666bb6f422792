//! Slots: small objects packed by kind.
//!
//! ```text
//!  Slots ── arena of thread 1 ── row "nodes" ── shelf of 24-byte slots ──► page   64 KiB, one class
//!       │                    │              ├── shelf of 48-byte slots ──► page
//!       │                    │              └── chunks, 1 KiB to 1 MiB ──► block of chunks
//!       │                    └── row "data" ── …
//!       ├─ arena of thread 2 ── …              what another thread frees comes back as a remote free
//!       └─ large objects, each with memory of its own
//! ```
//!
//! Objects of one *affinity* lie together, in blocks that hold nothing else, and objects that are allocated one after
//! the other lie one after the other. A slot has no header: its page is found from its address, and a bit says whether
//! it is free. `docs/slots.md` has the pictures, the rules and the reasons.
//!
//! The modules, lowest first:
//!
//! | module | what it holds |
//! |---|---|
//! | `sync` | locks and atomics, which the model checker replaces |
//! | `affinity`, `error`, `checked` | the kinds; what can go wrong; what the checked build does beside |
//! | `record`, `tier` | what a block says about its pages; which kind of memory serves a request |
//! | `territory` | whose memory an address lies in |
//! | `remote`, `remote_buffer` | how a slot that another thread frees comes back |
//! | `arena`, `shared` | what one thread allocates from; what all threads share |
//! | `pages`, `chunks`, `large` | where slots, chunks and large objects come from |
//! | `foreign` | slots freed by other threads |
//! | `release` | giving back: a whole affinity, and what is empty |
//! | `stats`, `validate` | reports, and the check of all equations |
//! | `current`, `seat`, `fork` | which arena a thread has; a child with working locks |
//! | `freeing` | how an object is freed, wherever it belongs |
//! | `slots` | the calls |
//! | `resizing` | how an object gets another size |
//! | `adapters` | the interfaces that Rust programs use already |

mod sync;

mod affinity;

mod error;

mod checked;

mod tier;

mod record;

mod territory;

mod remote;

mod remote_buffer;

mod arena;

mod shared;

mod pages;

mod chunks;

mod large;

mod foreign;

mod release;

mod stats;

mod validate;

mod current;

mod seat;

mod fork;

mod freeing;

mod slots;

mod resizing;

mod adapters;

#[cfg(test)]
mod tests;

pub use adapters::{Backing, Global, SlotBox, Within, WithinGlobal, WithinOwned};
/// The crate whose `Allocator` slots are: with its vectors and boxes, in the version that fits.
pub use allocator_api2;

pub use affinity::{Affinity, AffinitySettings, MOST_AFFINITIES};
pub use error::{FreeError, SlotsError};
pub use gabion_blocks::Invalid;
pub use slots::Slots;
pub use stats::{AffinityStats, Report, SlotsStats};
