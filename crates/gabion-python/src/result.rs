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

/// An empty dict.
pub(crate) fn dict(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    // SAFETY: attached; a new reference or null with an error set.
    unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyDict_New()) }
}
