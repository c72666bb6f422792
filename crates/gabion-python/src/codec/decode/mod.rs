//! Bytes to objects.
//!
//! | module | what it makes |
//! |---|---|
//! | `leaf` | values that hold no others |
//! | `warm`, `array` | memory for large arrays; arrays of NumPy |
//! | `amplification` | nothing: it looks at calls that a few bytes would have take all memory, or all time |
//! | `keys` | nothing: it looks at keys that would take for ever to be hashed |
//! | `guard` | nothing: it looks at states that a file gives |
//! | `nested` | nothing: it looks at what lies in each other too deeply to go again |
//! | `frame` | nothing: it holds values that are half read |
//! | `decoder` | the walk, with its own stack |
//! | `instance`, `rebuild` | ordinary objects; what a reducer took apart |
//! | `changed` | objects of a file whose class has changed since |
//! | `walk`, `needed` | nothing: they move over values, and note what these refer to |
//! | `long` | long values, copied once |

pub mod leaf;
pub mod warm;
mod array;
mod amplification;
mod keys;
mod guard;
mod nested;
mod frame;
mod decoder;
mod instance;
mod rebuild;
mod changed;
pub mod walk;
mod needed;
mod long;

pub use decoder::{decode, decode_part};
pub use long::decode_long;
