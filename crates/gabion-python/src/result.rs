//! Results made so that a lack of memory is a `MemoryError`: the usual conversions panic there.

use pyo3::prelude::*;

use crate::ffi;

/// An int.
pub(crate) fn number(py: Python<'_>, value: u64) -> PyResult<Bound<'_, PyAny>> {
    // SAFETY: attached; a new reference or null with an error set.
    unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyLong_FromUnsignedLongLong(value)) }
}

/// A str.
pub(crate) fn text<'py>(py: Python<'py>, value: &str) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: attached; the characters are copied; a new reference or null with an error set.
    unsafe {
        let made = ffi::PyUnicode_FromStringAndSize(value.as_ptr().cast(), value.len() as isize);
        Bound::from_owned_ptr_or_err(py, made)
    }
}

/// A tuple of two.
pub(crate) fn pair<'py>(first: Bound<'py, PyAny>, second: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = first.py();
    // SAFETY: attached; a new tuple of two places, or null with an error set. Both places are filled, each with a reference
    // that is given away, before anybody else can see the tuple.
    unsafe {
        let pair = Bound::from_owned_ptr_or_err(py, ffi::PyTuple_New(2))?;
        ffi::PyTuple_SetItem(pair.as_ptr(), 0, first.into_ptr());
        ffi::PyTuple_SetItem(pair.as_ptr(), 1, second.into_ptr());
        Ok(pair)
    }
}

/// An empty dict.
pub(crate) fn dict(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    // SAFETY: attached; a new reference or null with an error set.
    unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyDict_New()) }
}
