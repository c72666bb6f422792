//! What the benchmarks rent memory from, all behind one interface and called directly: none of them is the program's
//! own allocator, so that threads, channels and bookkeeping cost the same whoever is measured.
//!
//! | room | what it holds |
//! |---|---|
//! | [`region`] | memory of one owner: fresh, written, filled; nothing is read that was not written |
//! | [`source`] | the interface, and gabion's pool behind it |
//! | [`heap`] | the C allocators behind it |
//! | [`floor`] | the floor behind it: buffers that stay warm |
//! | [`process`] | what the system says of this process: CPU time, resident memory |

pub mod region;

pub mod source;

pub mod heap;

pub mod floor;

pub mod process;

pub use floor::Floor;
pub use heap::{CHeap, Malloc};
#[cfg(feature = "peers")]
pub use heap::{Jemalloc, Mimalloc};
pub use region::{Filled, Fresh, Region, Touch, Written};
pub use source::{Groups, Source};
