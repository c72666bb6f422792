//! Pointers as Python passes them.

use gabion_pile::Pointer;
use pyo3::buffer::{Element, PyBuffer, PyUntypedBuffer};
use pyo3::prelude::*;

use super::each::{each, iterator, room_for};
use super::refusal::{self, Failure};
use crate::codec::{small_int, two_digit_int};
use crate::errors::answered;
use crate::yield_budget::YieldBudget;
use crate::{ffi, result};

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

/// The pointers in a buffer of numbers of 64 bits. `None` for what is none.
fn buffered(values: &Bound<'_, PyAny>) -> PyResult<Option<Many>> {
    let py = values.py();
    // SAFETY: attached; the call is defined for every object.
    if unsafe { ffi::PyObject_CheckBuffer(values.as_ptr()) } == 0 {
        return Ok(None);
    }
    let Some(buffer) = answered(py, PyUntypedBuffer::get(values))? else { return Ok(None) };
    // What has rows is no sequence of ints.
    if buffer.dimensions() != 1 || matches!(buffer.format().to_bytes().first(), Some(b'>' | b'!')) {
        return Ok(None);
    }
    if let Ok(numbers) = buffer.as_typed::<u64>() {
        return read(py, numbers, Some, |number| result::number(py, number)).map(Some);
    }
    if let Ok(numbers) = buffer.as_typed::<i64>() {
        return read(py, numbers, |number| number.try_into().ok(), |number| result::signed(py, number)).map(Some);
    }
    Ok(None)
}

/// The pointers of numbers, by their bits, or where there is none the number, as an object.
fn read<'py, T: Element>(
    py: Python<'py>,
    numbers: &PyBuffer<T>,
    bits: impl Fn(T) -> Option<u64>,
    object: impl Fn(T) -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<Many> {
    let mut many = Vec::new();
    room_for(py, &mut many, numbers.item_count())?;
    let mut push = |number: T| {
        many.push(match bits(number).and_then(Pointer::from_bits) {
            Some(pointer) => Ok(pointer),
            None => Err(object(number)?.unbind()),
        });
        PyResult::Ok(())
    };
    match numbers.as_slice(py) {
        Some(numbers) => numbers.iter().try_for_each(|number| push(number.get()))?,
        None => numbers.to_vec(py)?.into_iter().try_for_each(push)?,
    }
    Ok(many)
}

/// Reads many pointers: out of an array('Q') or any other buffer of 64-bit ints at once, otherwise one by one out of an
/// iterable. `call` is what they were passed to.
pub(super) fn pointers(values: &Bound<'_, PyAny>, call: &str) -> PyResult<Many> {
    let py = values.py();
    if let Some(many) = buffered(values)? {
        return Ok(many);
    }
    let iterator = iterator(values, "pointers are passed as an array('Q') or another iterable of ints")?;
    let mut many = Vec::new();
    each(py, &iterator, &mut YieldBudget::new(), |value| {
        room_for(py, &mut many, 1)?;
        many.push(match pointer(value) {
            Ok(pointer) => Ok(pointer),
            Err(Failure::Impossible(number)) => Err(number),
            Err(failure) => {
                let error = failure.raise(py);
                refusal::add_note_which(py, &error, many.len(), call);
                return Err(refusal::no_pointers(values, call).unwrap_or(error));
            }
        });
        Ok(0)
    })?;
    Ok(many)
}
