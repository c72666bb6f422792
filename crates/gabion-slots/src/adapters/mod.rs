//! Slots behind the interfaces that Rust programs use already.
//!
//! | module | what it holds |
//! |---|---|
//! | `fault` | what becomes of a wrong free where nobody can be told |
//! | `within` | slots, and one affinity of them, as `Allocator`s of `allocator-api2`, for vectors, boxes and hash tables |
//! | `slot_box` | one value in a slot, owned |
//! | `forward` | such a value as the iterator, future, error or `dyn Any` that it is |
//! | `global` | slots under a whole program, chosen at run time |

mod fault;

mod within;

mod slot_box;

mod forward;

mod global;

pub use global::{Backing, Global};
pub use slot_box::SlotBox;
pub use within::{Within, WithinGlobal, WithinOwned};
