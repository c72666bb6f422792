//! Single bytes and slices of a buffer, as of a `bytearray` that keeps its length. What is read is a copy, so that no
//! view stays.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PySlice};

use super::lease::MemoryRange;
use super::{argument, refusal};
use crate::content::Content;
use crate::errors::class_name;
use crate::ffi;

/// What of a buffer's bytes is meant: all of it lies within the place that it was read for.
#[derive(Clone, Copy)]
pub(super) enum Items {
    One(usize),
    /// That many bytes, from `first` on, each `step` behind the one before.
    Slice {
        first: usize,
        step: isize,
        count: usize,
    },
}

impl Items {
    /// Those that `key` names, of that many bytes.
    pub(super) fn of(key: &Bound<'_, PyAny>, length: usize) -> PyResult<Self> {
        if let Ok(slice) = key.cast::<PySlice>() {
            let named = slice.indices(length as isize)?;
            // An empty slice may begin behind the end, or, backwards, before the start.
            let first = usize::try_from(named.start).unwrap_or(0).min(length);
            return Ok(Self::Slice { first, step: named.step, count: named.slicelength });
        }
        // SAFETY: attached, a live object.
        if unsafe { ffi::PyIndex_Check(key.as_ptr()) } == 0 {
            let text = format!("a byte of a buffer is named by an int, several by a slice, not by {}", class_name(key));
            return Err(refusal::type_error(key.py(), &text));
        }
        argument::place("byte", key, length, "a buffer").map(Self::One)
    }
}

/// An int, or a `bytes` of a slice.
///
/// # Safety
/// The place is alive, and the items are of its length.
pub(super) unsafe fn read(py: Python<'_>, place: MemoryRange, items: Items) -> PyResult<Py<PyAny>> {
    let start = place.start.as_ptr();
    match items {
        // SAFETY: within the place, as the caller promised. Others may write into it, as into every buffer of Python's.
        Items::One(at) => Ok(unsafe { start.add(at).read() }.into_pyobject(py)?.into_any().unbind()),
        // SAFETY: attached; `count` bytes of the place, as above; a new reference or null with an error set.
        Items::Slice { first, step: 1, count } => unsafe {
            let bytes = ffi::PyBytes_FromStringAndSize(start.add(first).cast(), count as isize);
            Ok(Bound::from_owned_ptr_or_err(py, bytes)?.unbind())
        },
        Items::Slice { first, step, count } => {
            let made = PyBytes::new_with(py, count, |bytes| {
                for (number, byte) in bytes.iter_mut().enumerate() {
                    // SAFETY: as above.
                    *byte = unsafe { start.add(first).offset(number as isize * step).read() };
                }
                Ok(())
            })?;
            Ok(made.into_any().unbind())
        }
    }
}

/// What is to be written.
pub(super) enum Replacement<'py> {
    One(u8),
    Slice(Content<'py>),
}

impl<'py> Replacement<'py> {
    /// A value for these items: an int from 0 to 255 for one, for a slice the bytes of anything that has as many.
    pub(super) fn of(value: &Bound<'py, PyAny>, items: Items) -> PyResult<Self> {
        let py = value.py();
        let Items::Slice { step, count, .. } = items else {
            return argument::byte(value).map(Self::One);
        };
        let bytes = Content::shown(value, false).map_err(|error| not_bytes(value, error))?;
        if bytes.len() != count {
            let given = bytes.len();
            let text = format!("{given} bytes for a slice of {count}: a buffer keeps its length, so pass as many");
            return Err(refusal::value_error(py, &text));
        }
        if step == 1 {
            return Ok(Self::Slice(bytes));
        }
        // They may be bytes of the same buffer, and change while others are written.
        // SAFETY: attached; `count` bytes; a new reference or null with an error set.
        let copy = unsafe {
            Bound::from_owned_ptr_or_err(py, ffi::PyBytes_FromStringAndSize(bytes.start().cast(), count as isize))?
        };
        Content::shown(&copy, false).map(Self::Slice)
    }
}

#[cold]
fn not_bytes(value: &Bound<'_, PyAny>, error: PyErr) -> PyErr {
    if !error.is_instance_of::<PyTypeError>(value.py()) {
        return error;
    }
    let text = format!("a slice of a buffer takes bytes, or an object that has some, not {}", class_name(value));
    refusal::type_error(value.py(), &text)
}

/// Writes what was read for these items.
///
/// # Safety
/// As [`read`].
pub(super) unsafe fn write(place: MemoryRange, items: Items, new: &Replacement<'_>) {
    let start = place.start.as_ptr();
    match (items, new) {
        // SAFETY: within the place, as the caller promised. Others may write into it, as into every buffer of Python's.
        (Items::One(at), Replacement::One(byte)) => unsafe { start.add(at).write(*byte) },
        // SAFETY: `count` bytes of the place, and of what is written, as `Replacement::of` has seen. It may be bytes of
        // this very place.
        (Items::Slice { first, step: 1, count }, Replacement::Slice(bytes)) => unsafe {
            start.add(first).copy_from(bytes.start(), count);
        },
        (Items::Slice { first, step, count }, Replacement::Slice(bytes)) => {
            for number in 0..count {
                // SAFETY: as above.
                unsafe {
                    let byte = bytes.start().add(number).read();
                    start.add(first).offset(number as isize * step).write(byte);
                }
            }
        }
        _ => unreachable!("read for the same items"),
    }
}
