//! What `gabion.numpy` has NumPy call for the memory of its arrays (NEP 49).
//!
//! NumPy asks a *handler* for memory: a struct of four functions, in a capsule. Each array keeps the capsule that it
//! was made with, and gives its memory back to that. Which handler makes new arrays is a context variable, whose
//! default is NumPy's own, and new threads start with the default.
//!
//! ```text
//!  install()   the functions in NumPy's own handler are replaced, in place: every thread, every context
//!  pooled()    the context variable is set to a handler of ours: this thread, this task
//! ```
//! Both call the same functions: at least `min_bytes` come from the pool, less from what NumPy had before; memory goes
//! back to where it came from, which the pool knows by its address. So arrays may be older than `install()` and
//! younger than `uninstall()`. The functions are never taken out again: a thread that is just making a pooled array may
//! finish after any moment at which none seemed to be left.
//!
//! | module | what it holds |
//! |---|---|
//! | `api` | NumPy's table of C functions, its handler struct |
//! | `handler` | the functions, of either way |
//! | `calls` | `install`, `uninstall`, `pooled` |

mod api;

mod handler;

mod calls;

use pyo3::prelude::*;

/// Adds the functions to the extension module.
pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    calls::register(m)
}
