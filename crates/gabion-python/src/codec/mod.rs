//! The codec: any picklable graph of Python objects to bytes and back.
//!
//! ```text
//!   encoding   = format byte | value | [table of reference targets, when the format byte says so]
//!   value      = tag byte | what the tag says (a count, bytes, the values inside, in order)
//!   class      = a number of the registry, which holds the class and where its fields lie
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | `object` | owned references, raised errors |
//! | `room` | room for lists and maps, or a MemoryError |
//! | `format` | tags, and the bytes behind them |
//! | `classes` | what is known about classes |
//! | `datetime` | the packed forms of the family of `datetime`, and the objects made from them |
//! | `apart` | long values that are left out of an encoding |
//! | `encode`, `decode` | objects to bytes; bytes to objects |
//! | `fields` | parts of an object without the whole |
//! | `kinds` | what an encoding is of, without building it |
//! | `codec` | all of it, for owners |
//! | `python` | the same as a class of Python, for tests |
//!
//! What holds: a value's bytes start with its tag and say where it ends, without knowledge of what surrounds it; a
//! reference leads to an earlier position; nothing in an encoding is an address.

#![allow(
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "the interpreter counts in isize what Rust counts in usize; no object is larger than either"
)]

mod object;
mod room;
mod format;
mod classes;
mod datetime;
mod apart;
mod encode;
mod decode;
mod fields;
mod kinds;
#[expect(clippy::module_inception, reason = "what the folder is named after")]
mod codec;
mod python;

pub(crate) use apart::Apart;
pub use classes::types::Types;
pub use codec::Codec;
pub(crate) use encode::quick::{is_ascii, small as small_int, two_digits as two_digit_int};
pub(crate) use kinds::{Kind, kind_of};
pub(crate) use object::{Own, add_note, as_py};
pub(crate) use python::register;
