//! What is asked of the interpreter once.
//!
//! `PyOnceLock::get_or_init` lets the interpreter go and has it back when the cell is its own already: another thread that
//! forks just then leaves a child with a cell in the hands of a thread that it does not have, and whoever asks the child's
//! cell waits for ever. So values are made outside of their cells here, and put there while the thread stays attached.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyString, PyType};

/// What is in a cell; what `make` gives, the first time.
pub(crate) fn once<'a, T>(
    py: Python<'_>,
    cell: &'a PyOnceLock<T>,
    make: impl FnOnce() -> PyResult<T>,
) -> PyResult<&'a T> {
    if let Some(found) = cell.get(py) {
        return Ok(found);
    }
    // Another thread may be faster: all go on with its value.
    let _ = cell.set(py, make()?);
    Ok(cell.get(py).expect("a cell that was just filled"))
}

/// As [`once`], a class of a module.
pub(crate) fn class<'py>(
    py: Python<'py>,
    cell: &'static PyOnceLock<Py<PyType>>,
    module: &str,
    name: &str,
) -> PyResult<&'py Bound<'py, PyType>> {
    let found = once(py, cell, || Ok(py.import(module)?.getattr(name)?.cast_into::<PyType>()?.unbind()))?;
    Ok(found.bind(py))
}

/// As [`once`], an interned string: see `intern`.
#[inline]
pub(crate) fn text<'py>(
    py: Python<'py>,
    cell: &'static PyOnceLock<Py<PyString>>,
    text: &str,
) -> &'py Bound<'py, PyString> {
    if cell.get(py).is_none() {
        let _ = cell.set(py, PyString::intern(py, text).unbind());
    }
    cell.get(py).expect("a cell that was just filled").bind(py)
}

/// An interned string, made at its first use.
macro_rules! intern {
    ($py:expr, $text:expr) => {{
        static TEXT: pyo3::sync::PyOnceLock<pyo3::Py<pyo3::types::PyString>> = pyo3::sync::PyOnceLock::new();
        $crate::once::text($py, &TEXT, $text)
    }};
}

pub(crate) use intern;
