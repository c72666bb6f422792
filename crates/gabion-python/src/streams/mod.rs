//! `gabion.streams`: Python file objects read and written through chunks of the pool.
//!
//! ```text
//!   copy(src, dst)          Reader(file)            Writer(file)
//!        │                     │ OwnedLock              │ OwnedLock
//!        ├──────────► Window ◄─┴────────────────────────┘
//!        │               │ one chunk, lent out as memoryviews
//!        │        Source · Sink            file.readinto / read, file.write
//!        ├──► Held                         io.BytesIO: nothing to read
//!        └──► Descriptor                   a real file, and one that has a descriptor: the system copies
//! ```
//! A chunk is a piece of the pool of up to 1 MiB: warm, and taken and given back without malloc. What is handed to a
//! file's `write` and kept by it is never written to again: the stream goes on with another chunk.
//!
//! | module | what it holds |
//! |---|---|
//! | `refusal` | what a stream refuses, and the exceptions for it |
//! | `owned_lock` | one thread at a time |
//! | `chunk` | memory of the pool as memoryviews, and who still has one |
//! | `bytes` | a `bytes` that grows, and the bytes of anything that has some |
//! | `classes` | classes of `io` that make a difference |
//! | `file` | what a Python file does when it is asked to read or write |
//! | `descriptor` | real files, copied by the system |
//! | `held` | the bytes that an `io.BytesIO` holds, without a copy of them |
//! | `copy` | `gabion.streams.copy` |
//! | `whole` | a file's bytes, all of them, in memory of the pool |
//! | `spool` | what a Rust writer gives, for a Python file |
//! | `ahead` | what a Reader has read ahead of its caller |
//! | `reader` | `gabion.streams.Reader` |
//! | `writer` | `gabion.streams.Writer` |
//! | `hot` | their calls that programs make millions of times |

mod refusal;

mod owned_lock;

mod chunk;

mod bytes;

mod classes;

mod file;

mod descriptor;

mod held;

mod whole;

mod spool;

mod ahead;

mod reader;

mod copy;

mod writer;

mod hot;

pub(crate) use file::{Sink, position, stand_at};
pub(crate) use spool::Spool;
pub(crate) use whole::{copy_of, whole};

use pyo3::prelude::*;

use crate::once::make_class;

/// Adds the classes and functions to the extension module.
pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<reader::Reader>()?;
    m.add_class::<writer::Writer>()?;
    make_class::<chunk::Chunk>(m);
    make_class::<chunk::Part>(m);
    hot::install(m.py())?;
    owned_lock::register(m)?;
    m.add_function(wrap_pyfunction!(copy::copy, m)?)
}
