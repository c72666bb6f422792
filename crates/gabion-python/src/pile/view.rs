//! What stands behind the memoryview of `Pile.view`.

use std::ffi::{c_int, c_void};
use std::ptr;

use gabion_pile::View;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;

use crate::errors::exception;
use crate::ffi;

/// Exports a stored payload, read-only, in place. Lives as long as a memoryview of it.
#[pyclass(frozen, module = "gabion")]
pub(super) struct PileView {
    view: View,
    offset: usize,
    length: usize,
}

impl PileView {
    pub(super) fn new(view: View, offset: usize, length: usize) -> Self {
        Self { view, offset, length }
    }
}

#[pymethods]
impl PileView {
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        if flags & ffi::PyBUF_WRITABLE == ffi::PyBUF_WRITABLE {
            // SAFETY: the interpreter passes a buffer structure to fill; null means "nothing exported".
            unsafe { (*view).obj = ptr::null_mut() };
            let text = "a view of a pile is read-only: put() or replace() a changed copy";
            return Err(exception(&slf.py().get_type::<PyBufferError>(), text));
        }
        let this = slf.get();
        let bytes = &this.view[this.offset..this.offset + this.length];
        // SAFETY: the bytes stay in place and unchanged while `slf` lives, and the export holds a reference to it;
        // the structure is the interpreter's to fill, the flag says read-only.
        let failed = unsafe {
            ffi::PyBuffer_FillInfo(
                view,
                slf.as_ptr(),
                bytes.as_ptr().cast_mut().cast::<c_void>(),
                this.length as isize,
                1,
                flags,
            )
        };
        if failed == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}
