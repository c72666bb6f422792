//! The extension module `gabion._native`: the boundary between Python and the Rust rooms.
//!
//! | room | what it holds |
//! |---|---|
//! | `errors` | the exception classes, one tree under `gabion.GabionError` |
//! | `size` | sizes as callers write them: 4096, "4 GiB" |
//! | `codec` | any picklable graph of Python objects to bytes and back |
//! | `pile` | `gabion.Pile` |

mod errors;

mod size;

mod codec;

mod pile;

use pyo3::prelude::*;

#[pymodule]
fn _native(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add("__version__", env!("CARGO_PKG_VERSION"))?;
    errors::register(m)?;
    codec::register(m)?;
    pile::register(m)
}
