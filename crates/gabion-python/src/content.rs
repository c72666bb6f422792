//! The bytes of somebody's object, where they lie.

use std::mem::MaybeUninit;

use pyo3::prelude::*;

use crate::ffi;

/// The contiguous bytes of a Python object, held in place until this is dropped.
pub(crate) struct Content<'py> {
    view: ffi::Py_buffer,
    py: Python<'py>,
}

impl<'py> Content<'py> {
    /// The bytes that an object shows, for writing if it is to.
    ///
    /// # Errors
    /// What the object raises: `TypeError` where it shows none, `BufferError` where they are not in one piece, or not
    /// to be written.
    pub(crate) fn shown(object: &Bound<'py, PyAny>, writable: bool) -> PyResult<Self> {
        let py = object.py();
        let flags = if writable { ffi::PyBUF_WRITABLE } else { ffi::PyBUF_SIMPLE };
        let mut view = MaybeUninit::<ffi::Py_buffer>::uninit();
        // SAFETY: attached, a live object and a structure to fill.
        if unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), view.as_mut_ptr(), flags) } != 0 {
            return Err(PyErr::fetch(py));
        }
        // SAFETY: filled, as the interpreter says by 0. It may be moved: only its shape and strides may point into the
        // structure itself, and they are null where neither PyBUF_ND nor PyBUF_STRIDES is asked for.
        Ok(Self { view: unsafe { view.assume_init() }, py })
    }

    pub(crate) fn len(&self) -> usize {
        self.view.len as usize
    }

    /// The first byte. Whoever else has the object may write into it at any time, some without the interpreter: the
    /// bytes are copied by their addresses, and nothing refers to them. See `as_immutable`.
    pub(crate) fn start(&self) -> *mut u8 {
        self.view.buf.cast()
    }

    /// The bytes where they are, if they stay as they are: those of a `bytes`.
    pub(crate) fn as_immutable(&self) -> Option<&[u8]> {
        // SAFETY: attached (`py`); a filled view holds its exporter, if it has one. The bytes of exactly this class
        // never change, so they may be referred to; `len` of them are kept in place until the view is released by
        // drop().
        unsafe {
            let immutable = !self.view.obj.is_null() && ffi::PyBytes_CheckExact(self.view.obj) != 0;
            immutable.then(|| std::slice::from_raw_parts(self.start(), self.len()))
        }
    }
}

impl Drop for Content<'_> {
    fn drop(&mut self) {
        let _ = self.py;
        // SAFETY: attached (`py`), a view that was filled and is released once.
        unsafe { ffi::PyBuffer_Release(&raw mut self.view) };
    }
}
