//! Memory of the pool as memoryviews, and who still has one.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use gabion_blocks::pool::{self, Pool, Request};
use pyo3::prelude::*;

use super::refusal;
use crate::ffi;
use crate::memory::patiently;
use crate::size;

/// The longest chunk: the pool's largest piece.
const LONGEST: usize = 1 << 20;

/// The usual chunk: what is read into it is still in a processor's own cache when it is written. The case `steps` of
/// the benchmark `streams` shows what shorter and longer ones cost.
const USUAL: usize = 256 << 10;

/// Reads the argument `chunk`.
pub(super) fn length(chunk: Option<&Bound<'_, PyAny>>) -> PyResult<usize> {
    let Some(chunk) = chunk else { return Ok(USUAL) };
    let bytes = size::parse("chunk", chunk)?;
    if (1..=LONGEST as u64).contains(&bytes) {
        return Ok(bytes as usize);
    }
    let text = format!("chunk={bytes}: pass 1 to {LONGEST} bytes (\"1 MiB\"); more at a time is slower");
    Err(refusal::value_error(chunk.py(), &text))
}

/// `length`, or what is left if that is less.
pub(super) fn within(length: usize, left: u64) -> usize {
    usize::try_from(left).map_or(length, |left| left.min(length))
}

/// A piece of the pool that Python objects refer to. It goes back with the last of them.
#[pyclass(frozen, module = "gabion.streams", name = "_Chunk")]
pub(super) struct Chunk {
    memory: pool::Buffer,
    /// How many `Part`s are alive.
    parts: AtomicUsize,
}

/// Some bytes of a chunk, for one memoryview and what is made of it.
#[pyclass(frozen, module = "gabion.streams", name = "_Part")]
pub(super) struct Part {
    chunk: Py<Chunk>,
    from: usize,
    length: usize,
    readonly: bool,
}

#[pymethods]
impl Part {
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let this = slf.get();
        // SAFETY: `offer` has checked that the part lies inside the chunk. The bytes stay in place as long as the view
        // does, which holds this part and by it the chunk; the structure is the interpreter's to fill.
        let failed = unsafe {
            let start = this.chunk.get().memory.as_non_null().as_ptr().add(this.from).cast::<c_void>();
            ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, this.length as isize, this.readonly.into(), flags)
        };
        if failed == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // Release: what the view's users did comes before the use that finds it gone.
        self.chunk.get().parts.fetch_sub(1, Ordering::Release);
    }
}

/// The chunk that a stream works with. Equation: `chunk.parts = views lent out and alive`.
pub(super) struct Window {
    chunk: Py<Chunk>,
}

impl Window {
    /// Rents a chunk.
    pub(super) fn rent(py: Python<'_>, bytes: usize) -> PyResult<Self> {
        let request = Request::new(bytes);
        let memory = match Pool::global().rent_warm(&request) {
            Some(memory) => memory,
            None => patiently(py, request.bytes, |pool, go_on| pool.rent_while(&request, go_on))?,
        };
        Self::of(py, memory)
    }

    /// A chunk of memory that was rented.
    pub(super) fn of(py: Python<'_>, memory: pool::Buffer) -> PyResult<Self> {
        Ok(Self { chunk: Py::new(py, Chunk { memory, parts: AtomicUsize::new(0) })? })
    }

    /// Leaves the chunk to those who have views of it, at once: also where PyO3 does not count, as in `fastcall`.
    pub(super) fn release_now(self, py: Python<'_>) {
        self.chunk.drop_ref(py);
    }

    fn chunk(&self) -> &Chunk {
        self.chunk.get()
    }

    pub(super) fn len(&self) -> usize {
        self.chunk().memory.len()
    }

    /// The first byte. Views may be in other hands: the bytes are read and written by copies only.
    pub(super) fn start(&self) -> *mut u8 {
        self.chunk().memory.as_non_null().as_ptr()
    }

    /// The bytes `from..to`, writable, for a file to read into; a new view each time, as a file may release it.
    pub(super) fn room<'py>(&self, py: Python<'py>, from: usize, to: usize) -> PyResult<Bound<'py, PyAny>> {
        self.offer(py, from, to, false)
    }

    /// The bytes `from..to`, read-only, for a file to write.
    pub(super) fn part<'py>(&self, py: Python<'py>, from: usize, to: usize) -> PyResult<Bound<'py, PyAny>> {
        self.offer(py, from, to, true)
    }

    fn offer<'py>(&self, py: Python<'py>, from: usize, to: usize, readonly: bool) -> PyResult<Bound<'py, PyAny>> {
        assert!(from <= to && to <= self.len(), "bytes of this chunk");
        // Relaxed: counted by the thread that has the stream's lock, which is the one that asks.
        self.chunk().parts.fetch_add(1, Ordering::Relaxed);
        let part = Bound::new(py, Part { chunk: self.chunk.clone_ref(py), from, length: to - from, readonly })?;
        // SAFETY: attached; a new reference or null with an error set.
        unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyMemoryView_FromObject(part.as_ptr())) }
    }

    /// True when a view that was lent out is alive: its bytes are somebody else's now.
    pub(super) fn is_kept(&self) -> bool {
        // Acquire: pairs with the Release of the last user.
        self.chunk().parts.load(Ordering::Acquire) > 0
    }

    /// Copies bytes out.
    ///
    /// # Safety
    /// There is room for `to - from` bytes at `target`.
    pub(super) unsafe fn copy_out(&self, from: usize, to: usize, target: *mut u8) {
        assert!(from <= to && to <= self.len(), "bytes of this chunk");
        // SAFETY: inside the chunk by the assertion; the caller answers for the target. It may lie in this very chunk,
        // when a file has kept its view.
        unsafe { ptr::copy(self.start().add(from), target, to - from) };
    }

    /// Copies bytes in.
    ///
    /// # Safety
    /// There are `length` bytes at `source`, which others may be writing: such a byte arrives as it was or as it gets.
    #[inline]
    pub(super) unsafe fn copy_in(&mut self, at: usize, source: *const u8, length: usize) {
        assert!(length <= self.len() && at <= self.len() - length, "room in this chunk");
        // SAFETY: inside the chunk by the assertion; the caller answers for the source. It may be a view of this very
        // chunk in wrong hands.
        unsafe { ptr::copy(source, self.start().add(at), length) };
    }
}
