//! A full garbage collection is a moment at which memory may be short: it has the pool's trimmer look at what is idle.
//! What the trimmer does then, from reading the system's files to unmapping, is no part of the collection's pause.

use gabion_blocks::pool::Pool;
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyString};

use super::garbage;
use crate::once::{import, intern, of_module};

/// The generation that a full collection names.
const FULL: i64 = 2;

/// Called by the interpreter before and after every collection. There may be no memory just then, and none is asked
/// for.
#[pyfunction]
#[pyo3(signature = (phase, info, /))]
fn _after_collection(phase: &Bound<'_, PyString>, info: &Bound<'_, PyAny>) -> PyResult<()> {
    let ends = phase.to_str()? == "stop";
    let generation = || info.get_item(intern!(info.py(), "generation")?)?.extract::<i64>();
    // Without a global lock every collection is a full one, whatever generation it names.
    let full = cfg!(Py_GIL_DISABLED) || generation()? == FULL;
    garbage::collector(!ends, full);
    if full && ends {
        Pool::global().look_soon();
    }
    Ok(())
}

/// Has the interpreter call the pool after full collections, until it ends.
pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = m.py();
    intern!(py, "generation")?;
    let check: Bound<'_, PyCFunction> = wrap_pyfunction!(_after_collection, m)?;
    let callbacks = of_module(py, c"gc", c"callbacks")?;
    callbacks.call_method1("append", (&check,))?;
    let (callbacks, check) = (callbacks.unbind(), check.unbind());
    let end = PyCFunction::new_closure(py, None, None, move |args, _| {
        // Somebody else may have removed it before.
        let _ = callbacks.call_method1(args.py(), "remove", (&check,));
    })?;
    import(py, c"atexit")?.call_method1("register", (end,))?;
    Ok(())
}
