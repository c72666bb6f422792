//! Pointers as Python passes them.

use gabion_pile::Pointer;
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;

use super::each::{each, iterator, room_for};
use super::refusal::{self, Failure};
use crate::codec::{small_int, two_digit_int};
use crate::ffi;
use crate::meanwhile::Meanwhile;

/// Reads a pointer out of an int, or out of what turns into one without loss (`__index__`: NumPy integers).
#[inline]
pub(super) fn pointer(value: &Bound<'_, PyAny>) -> Result<Pointer, Failure> {
    // SAFETY: the object is alive; `small_int` is defined for every exact int.
    let small = unsafe { (ffi::PyLong_CheckExact(value.as_ptr()) != 0).then(|| small_int(value.as_ptr())) };
    // A pointer is below 2⁶⁰, so every one that a pile gave out takes this way.
    if let Some(Some(number)) = small
        && number > 0
        && let Some(pointer) = Pointer::from_bits(number as u64)
    {
        return Ok(pointer);
    }
    unusual(value)
}

/// A pointer as an int; null with an error set when there is no memory for it.
///
/// # Safety
/// Attached.
#[inline(always)]
pub(super) unsafe fn object(pointer: Pointer) -> *mut ffi::PyObject {
    // SAFETY: attached (duty of the caller); a pointer that a pile gave out has 40 to 60 bits.
    unsafe { two_digit_int(pointer.to_bits()) }
}

#[cold]
fn unusual(value: &Bound<'_, PyAny>) -> Result<Pointer, Failure> {
    let py = value.py();
    // SAFETY: attached; the call is defined for every object.
    if unsafe { ffi::PyIndex_Check(value.as_ptr()) } == 0 {
        return Err(Failure::Raised(refusal::not_an_int(value)));
    }
    // SAFETY: the object is alive and the thread attached; the result is a new reference or null with an error set.
    let index = unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyNumber_Index(value.as_ptr()))? };
    let pointer = index.extract().ok().and_then(Pointer::from_bits);
    pointer.ok_or_else(|| Failure::Impossible(index.unbind()))
}

/// The pointer of a number, or the number as it came.
#[inline]
fn number_of(py: Python<'_>, number: u64) -> Result<Pointer, Py<PyAny>> {
    Pointer::from_bits(number).ok_or_else(|| {
        let Ok(number) = number.into_pyobject(py);
        number.into_any().unbind()
    })
}

/// Reads many pointers: out of an array('Q') or any other buffer of unsigned 64-bit numbers at once, otherwise one by
/// one out of an iterable. Ints that no pointer can be come as they are.
pub(super) fn pointers(values: &Bound<'_, PyAny>) -> PyResult<Vec<Result<Pointer, Py<PyAny>>>> {
    let py = values.py();
    if let Ok(buffer) = PyBuffer::<u64>::get(values)
        && !matches!(buffer.format().to_bytes().first(), Some(b'>' | b'!'))
    {
        let mut many = Vec::new();
        room_for(py, &mut many, buffer.item_count())?;
        match buffer.as_slice(py) {
            Some(numbers) => many.extend(numbers.iter().map(|bits| number_of(py, bits.get()))),
            None => many.extend(buffer.to_vec(py)?.into_iter().map(|bits| number_of(py, bits))),
        }
        return Ok(many);
    }
    let iterator = iterator(values, "pointers are passed as an array('Q') or another iterable of ints")?;
    let mut many = Vec::new();
    each(py, &iterator, &mut Meanwhile::new(), |value| {
        // SAFETY: a live object, borrowed over the call.
        let value = unsafe { Borrowed::from_ptr(py, value.ptr()) };
        room_for(py, &mut many, 1)?;
        many.push(match pointer(&value) {
            Ok(pointer) => Ok(pointer),
            Err(Failure::Impossible(number)) => Err(number),
            Err(failure) => return Err(failure.raise(py)),
        });
        Ok(0)
    })?;
    Ok(many)
}
