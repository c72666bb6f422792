//! Bytes of large arrays, in warm memory of the pool: what `malloc` gives for them is new to the process each time, and
//! its pages are faulted in one by one.

use std::ffi::{c_int, c_void};

use gabion_blocks::pool::{self, Pool, Request};
use pyo3::prelude::*;

use crate::codec::object::Own;
use crate::ffi;

/// The memory of an array that was rebuilt; it goes back to the pool with the last array and view that lie in it.
#[pyclass(frozen, module = "gabion._native", name = "_ArrayMemory")]
pub struct ArrayMemory(pool::Buffer);

#[pymethods]
impl ArrayMemory {
    fn __len__(&self) -> usize {
        self.0.len()
    }

    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let memory = &slf.get().0;
        let (start, len) = (memory.as_non_null().as_ptr().cast::<c_void>(), memory.len() as isize);
        // SAFETY: the bytes stay in place as long as the object, to which the view holds a reference; the structure is
        // the interpreter's to fill.
        let failed = unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, len, 0, flags) };
        if failed == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}

/// A writable buffer of `len` bytes, and where they are to be written before anyone knows of it; `None` where the pool,
/// or the interpreter, has no room for it.
pub fn memory(py: Python<'_>, len: usize) -> Option<(Own, *mut u8)> {
    let memory = Pool::global().rent(&Request::new(len)).ok()?;
    let room = memory.as_non_null().as_ptr();
    let object = Py::new(py, ArrayMemory(memory)).ok()?;
    // SAFETY: a new reference.
    let object = unsafe { Own::take(object.into_ptr()) }.ok()?;
    Some((object, room))
}
