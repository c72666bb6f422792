//! Pointers as Python passes them.

use gabion_pile::Pointer;
use pyo3::buffer::{Element, PyBuffer};
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

/// Pointers, and ints that no pointer can be as they came.
type Many = Vec<Result<Pointer, Py<PyAny>>>;

/// A whole number of 64 bits, as buffers hold it.
trait Number: Element {
    /// The pointer of a number, or the number as it came.
    fn pointer(self, py: Python<'_>) -> Result<Pointer, Py<PyAny>>;
}

impl Number for u64 {
    #[inline]
    fn pointer(self, py: Python<'_>) -> Result<Pointer, Py<PyAny>> {
        Pointer::from_bits(self).ok_or_else(|| {
            let Ok(number) = self.into_pyobject(py);
            number.into_any().unbind()
        })
    }
}

impl Number for i64 {
    #[inline]
    fn pointer(self, py: Python<'_>) -> Result<Pointer, Py<PyAny>> {
        u64::try_from(self).ok().and_then(Pointer::from_bits).ok_or_else(|| {
            let Ok(number) = self.into_pyobject(py);
            number.into_any().unbind()
        })
    }
}

/// The pointers in a buffer of such numbers. `None` for what is none.
fn buffered<T: Number>(values: &Bound<'_, PyAny>) -> PyResult<Option<Many>> {
    let py = values.py();
    let Ok(buffer) = PyBuffer::<T>::get(values) else { return Ok(None) };
    if matches!(buffer.format().to_bytes().first(), Some(b'>' | b'!')) {
        return Ok(None);
    }
    let mut many = Vec::new();
    room_for(py, &mut many, buffer.item_count())?;
    match buffer.as_slice(py) {
        Some(numbers) => many.extend(numbers.iter().map(|number| number.get().pointer(py))),
        None => many.extend(buffer.to_vec(py)?.into_iter().map(|number| number.pointer(py))),
    }
    Ok(Some(many))
}

/// Reads many pointers: out of an array('Q') or any other buffer of 64-bit ints at once, otherwise one by one out of an
/// iterable.
pub(super) fn pointers(values: &Bound<'_, PyAny>) -> PyResult<Many> {
    let py = values.py();
    if let Some(many) = buffered::<u64>(values)? {
        return Ok(many);
    }
    if let Some(many) = buffered::<i64>(values)? {
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
