//! The extension module `gabion._native`: the boundary between Python and the parts in Rust.
//!
//! | module | what it holds |
//! |---|---|
//! | `ffi` | the interpreter's C functions, safe to be in when the interpreter ends |
//! | `guards` | the same for what PyO3 calls, put there by the linker |
//! | `result` | results whose making may fail for lack of memory |
//! | `detached` | work without the interpreter |
//! | `once` | what is asked of the interpreter once |
//! | `gate` | between long work and `os.fork` |
//! | `errors` | the exception classes, one tree under `gabion.GabionError` |
//! | `yield_budget` | what others want of the interpreter while a long loop runs |
//! | `immortal` | objects that all threads hand out |
//! | `subclass_dealloc` | instances of subclasses let go of their class |
//! | `fastcall` | methods without the cost of a call |
//! | `figures` | what the calls named `stats` return |
//! | `content` | the bytes of somebody's object, where they lie |
//! | `argument` | flags, whole numbers, functions, iterables as callers write them |
//! | `size` | sizes as callers write them: 4096, "4 GiB" |
//! | `time` | times as callers write them: 0.5, "5 min", a timedelta |
//! | `codec` | any picklable graph of Python objects to bytes and back |
//! | `scratch` | buffers that a thread reuses from call to call |
//! | `pile` | `gabion.Pile` |
//! | `cache` | what `gabion.Cache` and its tables stand on |
//! | `memory` | `gabion.memory`: buffers and groups from the pool |
//! | `streams` | `gabion.streams`: Python files through chunks of the pool |
//! | `image` | `gabion.Image` |
//! | `numpy_hook` | what `gabion.numpy` has NumPy call for the memory of its arrays |

// Docstrings are Python's and follow its habits; sizes and counts cross the boundary as C's signed and unsigned types.
#![allow(
    rustdoc::broken_intra_doc_links,
    clippy::doc_markdown,
    clippy::doc_link_with_quotes,
    clippy::struct_field_names,
    clippy::unused_self,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::cast_lossless,
    clippy::needless_pass_by_value,
    clippy::trivially_copy_pass_by_ref
)]

mod ffi;

#[cfg(linker_guards)]
mod guards;

mod result;

mod detached;

mod once;

mod gate;

mod errors;

mod yield_budget;

mod immortal;

mod subclass_dealloc;

mod fastcall;

mod figures;

mod content;

mod argument;

mod size;

mod time;

mod codec;

mod scratch;

mod pile;

mod cache;

mod memory;

mod streams;

mod image;

mod numpy_hook;

use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;

/// The extension's module. Public for programs that embed an interpreter, as the fuzz targets do.
///
/// # Errors
/// ImportError in a sub-interpreter.
#[pymodule]
pub fn _native(m: &Bound<'_, PyModule>) -> PyResult<()> {
    if !ffi::in_main_interpreter(m.py()) {
        let text = "gabion works in the main interpreter of a process, not in a sub-interpreter: import it there \
                    (mod_wsgi: WSGIApplicationGroup %{GLOBAL})";
        return Err(PyImportError::new_err(text));
    }
    m.add("__version__", env!("CARGO_PKG_VERSION"))?;
    errors::register(m)?;
    codec::register(m)?;
    gate::register(m)?;
    pile::register(m)?;
    cache::register(m)?;
    memory::register(m)?;
    streams::register(m)?;
    image::register(m)?;
    numpy_hook::register(m)?;
    // Last, and so the first that a fork calls: whoever imports may come to the locks that the others take.
    once::register(m)
}
