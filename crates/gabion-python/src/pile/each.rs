//! Going through an iterable.

use pyo3::prelude::*;

use crate::argument::not_iterable;
use crate::codec::{Own, as_py};
use crate::ffi;
use crate::yield_budget::YieldBudget;

/// An iterable's iterator. `passed` is for whoever passes something else: see [`not_iterable`].
pub(super) fn iterator(iterable: &Bound<'_, PyAny>, passed: &str) -> PyResult<Own> {
    // SAFETY: attached; held by the caller; a new reference, or null with an error set.
    let iterator = unsafe { Own::take(ffi::PyObject_GetIter(iterable.as_ptr())) };
    iterator.map_err(|_| not_iterable(PyErr::fetch(iterable.py()), iterable, passed))
}

/// Calls `take` with each item of an iterator, until there is none left or an error is raised. `take` says how many
/// bytes it went over. Other code may run between two items, whatever the iterator.
#[inline]
pub(super) fn each<'py>(
    py: Python<'py>,
    iterator: &Own,
    yields: &mut YieldBudget,
    mut take: impl FnMut(&Bound<'py, PyAny>) -> PyResult<usize>,
) -> PyResult<()> {
    // SAFETY: attached; an iterator; a new reference, or null: with an error set, or without one at the end.
    while let Ok(item) = unsafe { Own::take(ffi::PyIter_Next(iterator.ptr())) } {
        let bytes = take(as_py(&item).bind(py))?;
        yields.step(py, bytes)?;
    }
    PyErr::take(py).map_or(Ok(()), Err)
}

/// Makes room for more in a list, which ends the process where it grows by itself and there is no memory.
#[inline]
pub(super) fn room_for<T>(py: Python<'_>, list: &mut Vec<T>, more: usize) -> PyResult<()> {
    list.try_reserve(more).map_err(|_| {
        // SAFETY: attached; sets the error that is taken.
        unsafe { ffi::PyErr_NoMemory() };
        PyErr::fetch(py)
    })
}

/// How many items an iterable says it holds; 0 when it does not say.
///
/// # Errors
/// Whatever its `__len__` raises, but a `TypeError`: as the interpreter's own `list()` does.
pub(super) fn announced(iterable: &Bound<'_, PyAny>) -> PyResult<usize> {
    // SAFETY: attached; the object is held by the caller; an error is set with a negative result.
    unsafe {
        let length = ffi::PyObject_Size(iterable.as_ptr());
        if length < 0 {
            if ffi::PyErr_ExceptionMatches(ffi::PyExc_TypeError) == 0 {
                return Err(PyErr::fetch(iterable.py()));
            }
            ffi::PyErr_Clear();
        }
        Ok(usize::try_from(length).unwrap_or(0))
    }
}
