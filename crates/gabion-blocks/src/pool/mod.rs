//! The pool: warm memory for buffers and groups, and the blocks of everything else.
//!
//! ```text
//!   rent 64 KiB         rent 3 MiB      rent 40 MiB         rent_group 36 MiB
//!        │                   │               │                     │
//!    a piece              a block          a run          blocks, warm ones first
//!        │                   │               │                     │
//!  thread's cache            └───────┬───────┴─────────────────────┘
//!        │                           │
//!   cut blocks ── whole again ──► shelves       of the thread's arena, then of its neighbours
//!        └──────────────┬────────────┘
//!                 a fresh mapping               within the limits, after idle memory made room
//! ```
//!
//! A *span* is one mapping. Threads are assigned to arenas in turn; a span goes back to its *home*, the arena that lent
//! it last, whichever thread drops it. What comes back is idle, the last returned on top, and is given back to the
//! system from the cold end: by the policy, under pressure, or when room is needed.
//!
//! Equations: `mapped = in use + idle`; each arena's `idle`, `lent`, `held` and `cut` are the sums over its spans, and
//! so are the parts of `held` that are emptied or gone; the address map knows each byte that is mapped and nothing
//! else. [`Pool::validate`] checks them.
//!
//! No lock is held during a system call, while memory is freed or cleared, or while anybody waits; and no thread holds
//! two of the pool's locks at one time, except to fork, and where what a thread has counted or kept is moved to its
//! arena: then it holds the list of caches, too, so that nobody adds up figures meanwhile, and may wait for the cache's
//! owner (`fork` has the order).
//!
//! The modules, lowest first:
//!
//! | module | what it holds |
//! |---|---|
//! | [`settings`] | what a pool can be told, and what can be asked of it |
//! | `size` | classes of pieces and spans, staggered starts |
//! | `policy` | how much idle memory to keep: a pure function |
//! | `pressure` | whether the system is short of memory |
//! | `ledger`, `admission`, `duty` | what is mapped under which limit; waiting for room; one thread on duty |
//! | `cut`, `span`, `granules`, `addresses` | what is known about each mapping, and which one an address lies in |
//! | `cache`, `shelves`, `shared` | a thread's pieces, an arena's memory, and what all handles share |
//! | `emptied` | pages of held blocks that nothing is in, and that stay warm for their owner |
//! | `room`, `seat`, `pieces`, `whole` | giving back to make room; lending and taking back |
//! | `malloc`, `tick`, `trimmer` | when to trim, malloc as well, and the thread that does |
//! | [`buffer`], [`group`], [`allowance`] | what users hold |
//! | [`stats`], `books` | reports, and the check of all equations |
//! | `fork` | a child with working locks |
//! | `pool`, `held` | the calls on it; memory for block sets and runs of piles |

pub mod settings;

pub mod stats;

mod size;

mod policy;

mod pressure;

mod ledger;

mod admission;

mod duty;

mod cut;

mod span;

mod granules;

mod addresses;

mod cache;

mod shelves;

mod shared;

mod emptied;

mod room;

mod malloc;

mod tick;

mod trimmer;

mod seat;

mod pieces;

mod whole;

pub mod buffer;

pub mod group;

pub mod allowance;

mod books;

mod fork;

#[expect(clippy::module_inception, reason = "what the folder is named after")]
mod pool;

mod held;

#[cfg(test)]
mod tests;

pub use allowance::Allowance;
pub use buffer::Buffer;
pub(crate) use emptied::{HEADER_BYTES, bytes_of};
pub use group::Group;
pub use held::Held;
pub(crate) use held::HeldBlock;
pub use pool::Pool;
pub use settings::{Change, GroupRequest, MOST_ARENAS, Request, Settings};
pub use stats::{ArenaStats, PoolStats};
