//! Memoryviews of rows, of blocks and of the whole.

use std::ffi::{c_int, c_void};
use std::ptr;

use pyo3::prelude::*;

use super::picture::Shown;
use super::refusal;
use crate::ffi;
use crate::memory::MemoryRange;

/// Some bytes of a picture, for a memoryview.
#[pyclass(frozen, module = "gabion", name = "_ImagePart")]
pub(super) struct Part {
    picture: Shown,
    place: MemoryRange,
}

#[pymethods]
impl Part {
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let place = slf.get().place;
        let _alive = &slf.get().picture;
        // SAFETY: the bytes stay in place as long as the picture, which this part holds as long as the view holds the
        // part; the structure is the interpreter's to fill.
        let failed = unsafe {
            let start = place.start.as_ptr().cast::<c_void>();
            ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, place.length as isize, 0, flags)
        };
        if failed == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}

/// A writable memoryview of bytes of a picture.
pub(super) fn memoryview<'py>(py: Python<'py>, picture: &Shown, place: MemoryRange) -> PyResult<Bound<'py, PyAny>> {
    let part = Bound::new(py, Part { picture: picture.clone(), place })?;
    // SAFETY: attached; a new reference or null with an error set.
    unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyMemoryView_FromObject(part.as_ptr())) }
}

/// The rows of a picture, top to bottom, as memoryviews.
#[pyclass(frozen, module = "gabion", name = "_Rows")]
pub(super) struct Rows {
    picture: Shown,
    next: std::sync::atomic::AtomicUsize,
}

impl Rows {
    pub(super) fn of(picture: Shown) -> Self {
        Self { picture, next: 0.into() }
    }
}

#[pymethods]
impl Rows {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        // Relaxed: only the number counts. Undone at the end, so that calls after the last row cannot overflow it.
        let y = self.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        if y >= self.picture.size.1 as usize {
            self.next.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
            return Ok(None);
        }
        memoryview(py, &self.picture, self.picture.row(y)).map(Some)
    }

    fn __length_hint__(&self) -> usize {
        let done = self.next.load(std::sync::atomic::Ordering::Relaxed);
        (self.picture.size.1 as usize).saturating_sub(done)
    }
}

/// Fills a buffer with the whole picture: rows, columns and, except for grey, channels, of bytes.
///
/// # Safety
/// `view` is a structure of the interpreter's to fill, `owner` the object that was asked.
pub(super) unsafe fn fill(
    owner: &Bound<'_, PyAny>,
    picture: Shown,
    view: *mut ffi::Py_buffer,
    flags: c_int,
) -> PyResult<()> {
    let py = owner.py();
    let place = match picture.whole(py) {
        // What Fortran orders is what C orders, only where one dimension is longer than 1: not worth the question.
        Ok(_) if flags & ffi::PyBUF_F_CONTIGUOUS == ffi::PyBUF_F_CONTIGUOUS => {
            Err(refusal::buffer_error(py, "the rows of an image lie one after the other: ask for C order"))
        }
        place => place,
    };
    // SAFETY: the structure is the interpreter's to fill (duty of the caller); null means "nothing exported".
    let place = place.inspect_err(|_| unsafe { (*view).obj = ptr::null_mut() })?;
    let dimensions = if picture.shape[2] == 1 { 2 } else { 3 };
    let wants = |what: c_int| flags & what == what;
    // SAFETY: as above. Shape and strides lie in the picture, which `internal` holds until `release`. The format is
    // static.
    unsafe {
        *view = ffi::Py_buffer::new();
        (*view).buf = place.start.as_ptr().cast();
        (*view).obj = owner.clone().into_ptr();
        (*view).len = place.length as isize;
        (*view).itemsize = 1;
        (*view).readonly = 0;
        (*view).format = if wants(ffi::PyBUF_FORMAT) { c"B".as_ptr().cast_mut() } else { ptr::null_mut() };
        (*view).ndim = if wants(ffi::PyBUF_ND) { dimensions } else { 1 };
        (*view).shape = if wants(ffi::PyBUF_ND) { picture.shape.as_ptr().cast_mut() } else { ptr::null_mut() };
        (*view).strides = if wants(ffi::PyBUF_STRIDES) { picture.strides.as_ptr().cast_mut() } else { ptr::null_mut() };
        (*view).internal = picture.into_raw().cast_mut().cast();
    }
    Ok(())
}

/// Ends a buffer that `fill` filled.
///
/// # Safety
/// As the interpreter calls it: once for each.
pub(super) unsafe fn release(view: *mut ffi::Py_buffer) {
    // SAFETY: `internal` is the reference that `fill` put there.
    drop(unsafe { Shown::from_raw((*view).internal.cast()) });
}
