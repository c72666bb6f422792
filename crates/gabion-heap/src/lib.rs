//! The heap inside blocks: where small and middle-sized things lie, and what is free.
//!
//! ```text
//! block (4 MiB)   │ header 1 KiB │ page 0 … │ page 1 │ page 2 │ … │ page 63 │        each page 64 KiB
//! page of slots   │ head bits │ body bits │ slot 0 │ slot 1 │ … │ slot n-1 │          one size class, no headers
//! block of chunks │ header 1 KiB │ tag chunk │ tag chunk │ … │ end tag │               any size, split and coalesced
//! ```
//!
//! * Up to 1 KiB a thing takes a *slot* in a page of its size class. Slots carry no header; a pointer is checked by
//!   dividing its offset by the slot size. Two bits per slot say what is taken: the slot's first word (its *head*) and
//!   the rest (its *body*) are let separately, because an object that moves away keeps its head and leaves its body.
//! * Above, it takes a *chunk* behind an 8-byte *tag*, from segregated bins with a bitmap: allocation, freeing and
//!   coalescing take constant time (after TLSF, Masmano et al., 2004).
//!
//! Everything else (lists, counts, bins) is derived from what stands in the blocks and can be rebuilt by a scan.
//! A [`Heap`] is used by one thread at a time; readers look into blocks beside it.
//!
//! The modules, lowest first:
//!
//! | module | what it holds |
//! |---|---|
//! | `loc`, `class`, `descriptor` | where something lies; size classes; what a page is |
//! | `error`, `page`, `ground` | what fails; a page of slots; what all parts stand on |
//! | `shelf`, `slots` | lists of pages by fullness; things up to 1 KiB |
//! | `chunks`, `heap` | things up to 1 MiB behind tags; the heap of one shard |

#![forbid(unsafe_code)]

mod loc;

mod class;

mod descriptor;

mod error;

mod page;

mod ground;

mod shelf;

mod slots;

mod chunks;

mod heap;

#[cfg(test)]
mod tests;

pub use chunks::{ChunkPage, Chunks, Found, MOST_WORDS as MOST_CHUNK_WORDS, chunk_length};
pub use class::{BLOCK_HEADER_WORDS, CLASSES, MAX_SLOT_WORDS, class_for_words, slot_words};
pub use descriptor::{Descriptor, FLOOR_WORD, Kind, OWNER_WORD};
pub use error::{Damage, HeapError};
pub use ground::{Ground, Turns, shard_of};
pub use heap::{Heap, HeapCounts, Recovery};
pub use loc::Loc;
pub use page::{PageSlot, Taken, outside_slots, slot_in_copy, slots_from, slots_in_page};
pub use slots::{BlockPages, Freed, SparsePage, Unlisted};
