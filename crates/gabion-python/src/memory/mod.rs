//! `gabion.memory`: rented memory, its lives and its limits, as Python sees them.
//!
//! ```text
//!  Python         Buffer / Group      memoryview · DLPack · Arrow
//!                      │                     │ each holds one export
//!                      └──────► Lease ◄──────┘
//!                                 │ owns until released, or until the last holder is gone
//!                       gabion_blocks::pool::{Buffer, Group}
//! ```
//! | module | what it holds |
//! |---|---|
//! | `refusal` | what the pool can refuse with, and how Python is told |
//! | `argument` | arenas and rows as callers write them |
//! | `garbage` | before a refusal, the collector may bring back what garbage holds |
//! | `seen` | what tracemalloc and sys.getsizeof see of it |
//! | `tracking` | where memory was rented, while somebody wants to know |
//! | `lease` | one buffer or group: exports, release, end |
//! | `waiting` | renting without holding the interpreter, interruptible |
//! | `items` | bytes and slices of a buffer, as of a `bytearray` |
//! | `dlpack` | bytes as a DLPack capsule |
//! | `arrow` | bytes as Arrow C data |
//! | `buffer` | `gabion.memory.Buffer` |
//! | `group` | `gabion.memory.Group` |
//! | `stats` | `gabion.memory.MemoryStats` |
//! | `calls` | the functions of the module |
//! | `malloc` | how much the C library's malloc keeps |
//! | `collect` | a full garbage collection asks the pool to look at its idle memory |

#![allow(rustdoc::broken_intra_doc_links, reason = "docstrings are Python's, whose slices look like links")]

mod refusal;

mod argument;

mod garbage;

mod seen;

mod tracking;

mod lease;

mod waiting;

mod items;

pub(crate) mod dlpack;

pub(crate) mod arrow;

mod buffer;

mod group;

mod stats;

mod calls;

mod malloc;

mod collect;

pub(crate) use argument::row as row_index;
pub(crate) use buffer::array_interface;
pub(crate) use garbage::Garbage;
pub(crate) use lease::MemoryRange;
pub(crate) use refusal::refused;
pub(crate) use seen::{Traced, basic_size, trace};
pub(crate) use tracking::{Record, record};
pub(crate) use waiting::patiently;

use pyo3::prelude::*;

/// Adds the classes and functions to the extension module.
pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<buffer::Buffer>()?;
    m.add_class::<group::Group>()?;
    m.add_class::<stats::MemoryStats>()?;
    m.add_class::<stats::ArenaStats>()?;
    calls::register(m)?;
    malloc::register(m)?;
    garbage::register(m)?;
    tracking::register(m)?;
    collect::register(m)
}
