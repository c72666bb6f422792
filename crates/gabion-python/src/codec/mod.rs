//! The codec: any picklable graph of Python objects to bytes and back.
//!
//! ```text
//!   encoding   = format byte | value | [table of reference targets, when the format byte says so]
//!   value      = tag byte | what the tag says (a count, bytes, the values inside, in order)
//!   class      = a number of the registry, which holds the class and where its fields lie
//! ```
//!
//! Modules, in the order of their layers: `object` (owned references), `tags`, `writer`, `reader` (bytes), `table`, `inline`,
//! `seen`, `known`, `numpy`, `found`, `global`, `layout`, `plan`, `natives`, `memo`, `registry`, `analyse`, `shape`, `anew` (what
//! is known about classes), `apart`, `encode`, `datetime`, `quick`, `encode_leaf`, `encode_container`, `encode_array`, `encode_object`,
//! `reduce` (out), `decode_leaf`, `warm`, `decode_array`, `frame`, `decode`, `decode_object`, `rebuild` (in), `walk`,
//! `decode_long` (one copy less), `fields` (parts of an object), `codec` (all of it, for owners), `python` (for tests).
//!
//! What holds: a value's bytes start with its tag and say where it ends, without knowledge of what surrounds it; a
//! reference leads to an earlier position; nothing in an encoding is an address.

#![allow(
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "the interpreter counts in isize what Rust counts in usize; no object is larger than either"
)]

mod object;
mod tags;
mod writer;
mod reader;
mod table;
mod inline;
mod seen;
mod known;
mod numpy;
mod found;
mod global;
mod layout;
mod plan;
mod natives;
mod memo;
mod registry;
mod analyse;
mod shape;
mod anew;
mod apart;
mod encode;
mod datetime;
mod quick;
mod encode_leaf;
mod encode_container;
mod encode_array;
mod encode_object;
mod reduce;
mod decode_leaf;
mod warm;
mod decode_array;
mod frame;
mod decode;
mod decode_object;
mod rebuild;
mod walk;
mod decode_long;
mod fields;
#[expect(clippy::module_inception, reason = "what the folder is named after")]
mod codec;
mod python;

pub(crate) use apart::Apart;
pub use codec::Codec;
pub(crate) use object::Own;
pub(crate) use python::register;
pub(crate) use quick::{is_ascii, small as small_int, two_digits as two_digit_int};
