//! A `bytes` that grows, and the bytes of anything that has some.

use std::ptr;

use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyMemoryView, PyString};

use super::chunk::Window;
use super::refusal;
use crate::content::Content;
use crate::errors::class_name;
use crate::ffi;

impl<'py> Content<'py> {
    /// The bytes of a bytes-like object; TypeError for anything else.
    pub(crate) fn of(object: &Bound<'py, PyAny>) -> PyResult<Self> {
        Self::shown(object, false).map_err(|error| not_text(object, error))
    }

    /// As `of`, for writing. TypeError, as Python's own files raise, also for what shows its bytes but not to be
    /// written.
    pub(super) fn writable(object: &Bound<'py, PyAny>) -> PyResult<Self> {
        let py = object.py();
        Self::shown(object, true).map_err(|error| {
            if error.is_instance_of::<PyBufferError>(py) || error.is_instance_of::<PyTypeError>(py) {
                let given = class_name(object);
                return refusal::type_error(
                    py,
                    &format!("a contiguous bytes-like object that can be written is needed, not {given}"),
                );
            }
            error
        })
    }

    /// Copies all of them into a chunk, from `at` on.
    pub(super) fn copy_to(&self, window: &mut Window, at: usize) {
        // SAFETY: the exporter keeps `len` bytes in place until this is dropped.
        unsafe { window.copy_in(at, self.start(), self.len()) };
    }
}

#[cold]
fn not_text(object: &Bound<'_, PyAny>, error: PyErr) -> PyErr {
    let py = object.py();
    if object.is_instance_of::<PyString>() && error.is_instance_of::<PyTypeError>(py) {
        return refusal::type_error(py, "bytes are needed, not text: open the file in binary mode, or encode()");
    }
    error
}

/// A `bytes` in the making: `len` of `room` bytes are written.
pub(super) struct Growing<'py> {
    object: *mut ffi::PyObject,
    len: usize,
    room: usize,
    py: Python<'py>,
}

impl<'py> Growing<'py> {
    pub(super) fn with_room(py: Python<'py>, room: usize) -> PyResult<Self> {
        // The empty and the one-byte bytes are shared objects, which must not be written into.
        let room = room.max(2);
        // SAFETY: attached; null asks for bytes that are not initialised; a new reference or null with an error set.
        let object = unsafe { ffi::PyBytes_FromStringAndSize(ptr::null(), room as isize) };
        if object.is_null() { Err(PyErr::fetch(py)) } else { Ok(Self { object, len: 0, room, py }) }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn as_slice(&self) -> &[u8] {
        // SAFETY: `len` written bytes of an object that nobody else knows; whoever may write to it has it as `&mut`.
        unsafe { std::slice::from_raw_parts(ffi::PyBytes_AsString(self.object).cast(), self.len) }
    }

    /// Appends bytes of a chunk, and grows by half at least when there is no room for them.
    pub(super) fn take(&mut self, window: &Window, from: usize, to: usize) -> PyResult<()> {
        let more = to - from;
        if more > self.room - self.len {
            self.resize((self.len + more).max(self.room + self.room / 2))?;
        }
        // SAFETY: there is room for `more` bytes behind the `len` written ones, in an object that nobody else knows.
        unsafe { window.copy_out(from, to, ffi::PyBytes_AsString(self.object).cast::<u8>().add(self.len)) };
        self.len += more;
        Ok(())
    }

    /// Room behind what is written, and how much of it there is; some at least. What is written there counts by
    /// `wrote`.
    pub(super) fn spare(&mut self) -> PyResult<(*mut u8, usize)> {
        if self.len == self.room {
            self.resize(self.room + self.room / 2)?;
        }
        // SAFETY: bytes that nobody else knows, `len` of `room` written.
        let start = unsafe { ffi::PyBytes_AsString(self.object).cast::<u8>().add(self.len) };
        Ok((start, self.room - self.len))
    }

    /// Counts bytes that were written into the room behind the others.
    pub(super) fn wrote(&mut self, more: usize) {
        assert!(more <= self.room - self.len, "within the room");
        self.len += more;
    }

    pub(super) fn finish(mut self) -> PyResult<Bound<'py, PyAny>> {
        if self.len < self.room {
            self.resize(self.len)?;
        }
        let object = std::mem::replace(&mut self.object, ptr::null_mut());
        // SAFETY: attached, and the reference is this one's own.
        Ok(unsafe { Bound::from_owned_ptr(self.py, object) })
    }

    fn resize(&mut self, room: usize) -> PyResult<()> {
        // SAFETY: attached; bytes with one reference. On failure it is set to null, with an error.
        if unsafe { ffi::_PyBytes_Resize(&raw mut self.object, room as isize) } != 0 {
            return Err(PyErr::fetch(self.py));
        }
        self.room = room;
        Ok(())
    }
}

impl Drop for Growing<'_> {
    fn drop(&mut self) {
        // SAFETY: attached; null, or a reference of this one's own.
        unsafe { ffi::Py_XDECREF(self.object) };
    }
}

/// A copy of bytes of a chunk.
pub(super) fn bytes_of<'py>(py: Python<'py>, window: &Window, from: usize, to: usize) -> PyResult<Bound<'py, PyAny>> {
    assert!(from <= to && to <= window.len(), "bytes of this chunk");
    // SAFETY: attached; `to - from` bytes of the chunk; a new reference or null with an error set.
    unsafe {
        let start = window.start().add(from).cast();
        Bound::from_owned_ptr_or_err(py, ffi::PyBytes_FromStringAndSize(start, (to - from) as isize))
    }
}

/// The items `from..to` of a memoryview. (PyO3's way to make a slice leaks its numbers.)
pub(super) fn items<'py>(view: &Bound<'py, PyMemoryView>, from: usize, to: usize) -> PyResult<Bound<'py, PyAny>> {
    let sequence = view.as_ptr();
    // SAFETY: attached, a live object; a new reference or null with an error set.
    unsafe { Bound::from_owned_ptr_or_err(view.py(), ffi::PySequence_GetSlice(sequence, from as isize, to as isize)) }
}
