//! What is known by a key's hash alone: where entries lie, how often keys were asked for, and which ones left of late.
//!
//! All of it lies in *units* of 4 KiB, cut from blocks and charged one by one. It grows and shrinks a unit at a time,
//! so that no put waits for the whole. Readers look at it without a lock, and may come late: memory that was a unit of
//! one kind never becomes one of another.
//!
//! | module | what it holds |
//! |---|---|
//! | `growth` | when parts split and join |
//! | `pages` | memory, in units |
//! | `bucket` | a cache line: cells and their tags |
//! | `stash` | cells that found no place in their bucket |
//! | `segments` | from a hash to places, without a lock |
//! | `moves` | how cells come, go and move, a segment at a time |
//! | `sketch`, `sketches` | how often a key was asked for of late; a shard's sketches, as many as it needs |
//! | `ghosts` | keys that left of late |

mod growth;

mod pages;

mod bucket;

mod stash;

mod segments;

mod moves;

pub(crate) mod sketch;

mod sketches;

mod ghosts;

pub(crate) use bucket::{Cell, PLACE};
pub(crate) use ghosts::{GHOST_BYTES, Ghosts};
#[cfg(test)]
pub(crate) use growth::Parts;
pub(crate) use growth::partner;
pub(crate) use pages::{Pages, UNIT_BYTES, Unit};
pub(crate) use segments::{FULL as SEGMENT_FULL, Glimpse, Segments, Spot};
pub(crate) use sketches::{FULL as SKETCH_FULL, Sketches};
pub(crate) use stash::Stash;
