//! A pile: byte objects outside any heap that a collector walks, behind 64-bit pointers with generations.
//!
//! ```
//! use gabion_pile::{Pile, ReadBuf};
//!
//! let pile = Pile::new()?;
//! let pointer = pile.put(b"a gabion is a cage filled with stones")?;
//! let mut buf = ReadBuf::new();
//! assert_eq!(pile.read(pointer, &mut buf)?, &b"a gabion is a cage filled with stones"[..]);
//! pile.replace(pointer, b"now shorter")?;          // the pointer stays valid
//! pile.remove(pointer)?;
//! assert!(pile.read(pointer, &mut buf).is_err()); // and is refused from now on, for ever
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # How it works
//! A pointer names a *slot*: the place of its first word, and a *generation*. That word says everything:
//!
//! ```text
//! free    │ generation │                            the slot waits for its next object
//! inline  │ generation │ length │ version │         the payload is the slot's body
//! away    │ generation │ place of the body │        the object outgrew its slot: it lives in another slot's body,
//!                                                   in a chunk (over 1 KiB), or in a run of its own (over 1 MiB)
//! busy    │ generation │                            being overwritten; readers wait a moment
//! ```
//!
//! Every change is committed by one 8-byte store to that word. Readers take no lock (except for a run): they read the
//! word, copy the payload, and look at the word again. Writers lock one *shard*; each thread has its own as far as
//! there are enough. When an object moves away, its slot's body becomes an *annex* that another object's payload may
//! move into, so that steady replacement with changing sizes does not grow the pile.
//!
//! The modules, lowest first:
//!
//! | module | what it holds |
//! |---|---|
//! | `pointer`, `word` | what a caller holds; what a slot's first word says |
//! | `error` | what a pile refuses |
//! | `protocol` | how readers and one writer share a payload without a lock |
//! | `large`, `pins` | objects in runs of their own; bodies that views look at |
//! | `buf`, `slot` | room for what is read; from a pointer to its slot, checked |
//! | `shard`, `change` | a heap behind one lock; put, replace and remove under it |
//! | `value` | a payload on its way in, in one piece or in several |
//! | `stats`, `pile` | figures; the pile |
//! | `write` | put, replace, remove |
//! | `long`, `read` | long payloads, copied once; reading without a lock |
//! | `place`, `brief`, `handover` | for owners that keep an index of their own |
//! | `iterate`, `clearing`, `compact`, `validate`, `view` | walks, pages cleared for other uses, compaction, the check of all equations, views |
//! | `recover`, `file`, `save` | what a file's blocks hold, found again; piles in files; piles saved |

#![deny(unsafe_code)]

mod pointer;

mod word;

mod error;

mod protocol;

mod large;

mod pins;

mod buf;

mod slot;

mod shard;

mod change;

mod value;

mod stats;

mod pile;

mod write;

mod long;

mod read;

mod place;

mod brief;

mod handover;

mod iterate;

mod clearing;

mod compact;

mod validate;

mod view;

mod recover;

mod file;

mod save;

#[cfg(test)]
mod tests;

pub use brief::BriefGlance;
pub use buf::{ReadBuf, RunIdentity, with_read_buf};
pub use change::{CHUNK_PAYLOAD, SLOT_PAYLOAD, chunk_bytes};
pub use error::{PileError, PointerFault};
pub use file::OpenOptions;
pub use gabion_blocks::Piece;
pub use iterate::{Cursor, Noted, Pointers};
pub use long::{Long, Reading};
pub use pile::{Pile, PileOptions};
pub use place::{Body, Glance, IndexedPile, Place, SparsePage};
pub use pointer::Pointer;
pub use save::Saving;
pub use stats::PileStats;
pub use value::Value;
pub use view::View;

#[doc(hidden)]
pub mod model {
    //! The protocol alone, for the model checker.
    pub use crate::protocol::{
        Memory, Words, copy_unless_changed, disturb, overwrite, reuse, reuse_in_pieces, second_guard, unchanged_while,
    };
}
