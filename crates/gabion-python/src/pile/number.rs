//! Pointers as Python passes them.

use gabion_pile::Pointer;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;

use super::refusal;
use crate::codec::small_int;

/// Reads a pointer out of an int, or out of what turns into one without loss (`__index__`: NumPy integers).
#[inline]
pub(super) fn pointer(value: &Bound<'_, PyAny>) -> PyResult<Pointer> {
    // SAFETY: the object is alive; `small_int` is defined for every exact int.
    let small = unsafe { (ffi::PyLong_CheckExact(value.as_ptr()) != 0).then(|| small_int(value.as_ptr())) };
    // A pointer is below 2⁶⁰, so every one that a pile gave out takes this way.
    if let Some(Some(number)) = small
        && number >= 0
    {
        return Ok(Pointer::from_bits(number as u64));
    }
    unusual(value)
}

#[cold]
fn unusual(value: &Bound<'_, PyAny>) -> PyResult<Pointer> {
    let py = value.py();
    // SAFETY: the object is alive and the thread attached; the result is a new reference or null with an error set.
    let index = unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyNumber_Index(value.as_ptr())) };
    match index {
        Ok(index) => index.extract().map(Pointer::from_bits).map_err(|_| refusal::impossible(py, &index)),
        Err(error) if error.is_instance_of::<PyTypeError>(py) => Err(refusal::not_an_int(value)),
        Err(error) => Err(error),
    }
}

/// Reads many pointers: out of an array('Q') or any other buffer of unsigned 64-bit numbers at once, otherwise one by
/// one out of an iterable.
pub(super) fn pointers(values: &Bound<'_, PyAny>) -> PyResult<Vec<Pointer>> {
    if let Ok(buffer) = PyBuffer::<u64>::get(values) {
        return Ok(buffer.to_vec(values.py())?.into_iter().map(Pointer::from_bits).collect());
    }
    let many = values.try_iter().map_err(|_| {
        let given = values.get_type().name().map_or_else(|_| "?".to_owned(), |name| name.to_string());
        PyTypeError::new_err(format!("pointers are passed as an array('Q') or another iterable of ints, not {given}"))
    })?;
    many.map(|value| pointer(&value?)).collect()
}
