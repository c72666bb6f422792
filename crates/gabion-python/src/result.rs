//! Results made so that a lack of memory is a `MemoryError`: the usual conversions panic there. `clippy.toml` names
//! those that must not be called in their place.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyFloat, PyList, PyString, PyTuple};

use crate::ffi;

/// What a call with positional arguments returns.
pub(crate) fn call<'py, const N: usize>(
    callable: &Bound<'py, PyAny>,
    args: [&Bound<'py, PyAny>; N],
) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: attached; a callable and its arguments, all held; a new reference or null with an error set.
    unsafe { Bound::from_owned_ptr_or_err(callable.py(), ffi::call(callable.as_ptr(), args.map(Bound::as_ptr))) }
}

/// A memoryview of an object.
pub(crate) fn memoryview<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: attached; a live object; a new reference or null with an error set.
    unsafe { Bound::from_owned_ptr_or_err(object.py(), ffi::PyMemoryView_FromObject(object.as_ptr())) }
}

/// An int.
pub(crate) fn number(py: Python<'_>, value: u64) -> PyResult<Bound<'_, PyAny>> {
    // SAFETY: attached; a new reference or null with an error set.
    unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyLong_FromUnsignedLongLong(value)) }
}

/// An int that may be below 0.
pub(crate) fn signed(py: Python<'_>, value: i64) -> PyResult<Bound<'_, PyAny>> {
    // SAFETY: attached; a new reference or null with an error set.
    unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyLong_FromLongLong(value)) }
}

/// A float.
pub(crate) fn float(py: Python<'_>, value: f64) -> PyResult<Bound<'_, PyFloat>> {
    // SAFETY: attached; a new float, or null with an error set.
    unsafe { Ok(Bound::from_owned_ptr_or_err(py, ffi::PyFloat_FromDouble(value))?.cast_into_unchecked()) }
}

/// A str.
pub(crate) fn text<'py>(py: Python<'py>, value: &str) -> PyResult<Bound<'py, PyString>> {
    // SAFETY: attached; the characters are copied; a new str, or null with an error set.
    unsafe {
        let made = ffi::PyUnicode_FromStringAndSize(value.as_ptr().cast(), value.len() as isize);
        Ok(Bound::from_owned_ptr_or_err(py, made)?.cast_into_unchecked())
    }
}

/// A bytes.
pub(crate) fn bytes<'py>(py: Python<'py>, value: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    // SAFETY: attached; the bytes are copied; a new bytes, or null with an error set.
    unsafe {
        let made = ffi::PyBytes_FromStringAndSize(value.as_ptr().cast(), value.len() as isize);
        Ok(Bound::from_owned_ptr_or_err(py, made)?.cast_into_unchecked())
    }
}

/// A tuple.
pub(crate) fn tuple<'py>(
    py: Python<'py>,
    items: impl ExactSizeIterator<Item = Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyTuple>> {
    let length = items.len();
    // SAFETY: attached; a new tuple of that many places, or null with an error set. All places are filled, each with a
    // reference that is given away, before anybody else can see the tuple; what is left of it if the iterator was wrong
    // is null, which the interpreter takes as nothing to let go of.
    unsafe {
        let made: Bound<'_, PyTuple> =
            Bound::from_owned_ptr_or_err(py, ffi::PyTuple_New(length as isize))?.cast_into_unchecked();
        let mut filled = 0;
        for item in items.take(length) {
            ffi::PyTuple_SetItem(made.as_ptr(), filled, item.into_ptr());
            filled += 1;
        }
        assert_eq!(filled, length as isize, "as many items as were announced");
        Ok(made)
    }
}

/// A tuple of two.
pub(crate) fn pair<'py>(first: Bound<'py, PyAny>, second: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyTuple>> {
    let py = first.py();
    tuple(py, [first, second].into_iter())
}

/// An empty list.
pub(crate) fn list(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    // SAFETY: attached; a new list, or null with an error set.
    unsafe { Ok(Bound::from_owned_ptr_or_err(py, ffi::PyList_New(0))?.cast_into_unchecked()) }
}

/// An empty dict.
pub(crate) fn dict(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    // SAFETY: attached; a new dict, or null with an error set.
    unsafe { Ok(Bound::from_owned_ptr_or_err(py, ffi::PyDict_New())?.cast_into_unchecked()) }
}
