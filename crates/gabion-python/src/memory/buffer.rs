//! `gabion.memory.Buffer`.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;

use gabion_blocks::pool::Request;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::items::{self, Items, Replacement};
use super::lease::{Hold, Lease, Memory, MemoryRange, Refused};
use super::{arrow, dlpack, refusal, seen, tracking, waiting};
use crate::detached::detached_ungated;
use crate::errors::on_its_way;
use crate::ffi;
use crate::result::{dict, memoryview};

/// The dict of NumPy's array interface, version 3, for writable bytes of this shape. Its users keep `data`, the object
/// that has them.
pub(crate) fn array_interface<'py>(
    shape: &Bound<'py, PyTuple>,
    data: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyDict>> {
    let dict = dict(shape.py())?;
    dict.set_item("version", 3)?;
    dict.set_item("typestr", "|u1")?;
    dict.set_item("shape", shape)?;
    dict.set_item("data", data)?;
    Ok(dict)
}

/// Rented memory: contiguous, writable bytes outside the heap of Python and of malloc.
///
/// Made by rent(), or as one block of a Group. buffer[7] is an int and buffer[2:5] a copy, bytes; both can be assigned
/// to, a slice only as many bytes as it has. It speaks the buffer protocol (memoryview(buffer), numpy.frombuffer(),
/// file.readinto()), DLPack (numpy.from_dlpack(), torch.from_dlpack()), __array_interface__ and the Arrow C data
/// interface (pyarrow.array(), as uint8), always without a copy.
///
/// release(), the end of a with statement, or the end of the last reference gives the memory back to the pool, exactly
/// once. While views, arrays or tensors made of it are alive, release() raises BufferError; when only the Buffer object
/// goes, they keep the memory. So they do when an exception leaves the with statement, which goes on as it is. A use
/// after release() raises ClosedError. Buffers compare by identity and cannot be pickled or copied; pickle or copy what
/// is in them.
///
/// Any thread may use and release a buffer. Threads that write into the same bytes have to agree on an order
/// themselves. Without a global lock (free-threaded Python), an object whose last reference another thread drops may
/// live until the thread that made it runs Python code again; release() acts at once.
///
/// >>> import gabion.memory
/// >>> with gabion.memory.rent(16, clean=True) as buffer:
/// ...     buffer[:5] = b"stone"
/// ...     buffer[0], buffer[:6]
/// (115, b'stone\x00')
#[pyclass(frozen, weakref, sequence, module = "gabion.memory")]
pub(super) struct Buffer {
    lease: Arc<Lease>,
    place: MemoryRange,
    /// True for a block of a group, which is released with the group.
    part: bool,
}

impl Buffer {
    /// The buffer of memory that was just rented.
    pub(super) fn new(py: Python<'_>, memory: gabion_blocks::pool::Buffer) -> PyResult<Self> {
        let place = MemoryRange::of(&memory);
        let record = tracking::record(py, "Buffer", place.length)?;
        let traced = seen::trace(py, Some(place.start), place.length);
        Ok(Self { lease: Lease::new(Memory::Buffer(memory), record, traced), place, part: false })
    }

    /// Some bytes of a group.
    pub(super) fn part(lease: &Arc<Lease>, place: MemoryRange) -> Self {
        Self { lease: Arc::clone(lease), place, part: true }
    }

    fn what(&self) -> &'static str {
        if self.part { "block's group" } else { "buffer" }
    }

    #[cold]
    fn refused(&self, py: Python<'_>, refused: Refused) -> PyErr {
        match refused {
            Refused::Released => refusal::released(py, self.what()),
            Refused::Exported(views) => refusal::exported(py, self.what(), views),
        }
    }

    /// Refuses what was released.
    fn open(&self, py: Python<'_>) -> PyResult<MemoryRange> {
        if self.lease.is_released() { Err(self.refused(py, Refused::Released)) } else { Ok(self.place) }
    }

    fn hold(&self, py: Python<'_>) -> PyResult<Hold> {
        Hold::new(&self.lease).map_err(|refused| self.refused(py, refused))
    }

    /// A copy of the bytes in memory of its own.
    fn copied(&self, py: Python<'_>) -> PyResult<(MemoryRange, Hold)> {
        let held = self.hold(py)?;
        let source = self.place;
        let request = Request::new(source.length);
        let copy = waiting::patiently(py, request.bytes, |pool, go_on| {
            let mut copy = pool.rent_while(&request, go_on)?;
            // SAFETY: the source is alive (`held`) and `length` bytes long, as is the fresh copy; nothing is in
            // both. Other threads may write into the source meanwhile, as into every buffer of Python's.
            unsafe { source.copy_to(copy.as_mut_ptr()) };
            Ok(copy)
        })?;
        drop(held);
        let copy = Self::new(py, copy)?;
        Ok((copy.place, copy.hold(py)?))
    }
}

/// Gives memory back to the pool; without the interpreter in hand where that may take long.
fn give_back(py: Python<'_>, memory: Option<Memory>) {
    match memory {
        Some(Memory::Buffer(memory)) if memory.drops_warm() => drop(memory),
        memory => detached_ungated(py, || drop(memory)),
    }
}

#[pymethods]
impl Buffer {
    /// Give the memory back to the pool. Releasing twice does nothing.
    ///
    /// Raises BufferError, and changes nothing, while views of the memory are alive.
    ///
    /// >>> import gabion.memory
    /// >>> buffer = gabion.memory.rent("1 MiB")
    /// >>> view = memoryview(buffer)
    /// >>> buffer.release()
    /// Traceback (most recent call last):
    ///     ...
    /// BufferError: this buffer cannot be released: 1 view of its memory is alive; ...
    /// >>> view.release()
    /// >>> buffer.release()
    /// >>> buffer.released
    /// True
    pub(super) fn release(&self, py: Python<'_>) -> PyResult<()> {
        if self.part {
            let text = "this is a block of a group: it is released with the group, by Group.release()";
            return Err(refusal::buffer_error(py, text));
        }
        let memory = self.lease.release().map_err(|refused| self.refused(py, refused))?;
        give_back(py, memory);
        Ok(())
    }

    /// True after release(), or after that of the group.
    #[getter]
    fn released(&self) -> bool {
        self.lease.is_released()
    }

    /// How many bytes it has: what was asked for.
    #[getter]
    fn nbytes(&self) -> usize {
        self.place.length
    }

    /// The address of the first byte. It is valid until the buffer is released or garbage collected; a memoryview that
    /// you keep prevents both.
    #[getter]
    fn address(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.open(py)?.start.addr().get())
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.open(py)?.length)
    }

    fn __getitem__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let items = Items::of(key, self.place.length)?;
        // Last, because an `__index__` may have released it.
        let _held = self.hold(py)?;
        // SAFETY: alive (`_held`), and items of its length.
        unsafe { items::read(py, self.place, items) }
    }

    fn __setitem__(&self, py: Python<'_>, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let items = Items::of(key, self.place.length)?;
        let new = Replacement::of(value, items)?;
        let _held = self.hold(py)?;
        // SAFETY: as above; the bytes were read for these items.
        unsafe { items::write(self.place, items, &new) };
        Ok(())
    }

    fn __delitem__(&self, py: Python<'_>, _key: &Bound<'_, PyAny>) -> PyResult<()> {
        Err(refusal::type_error(py, "a buffer keeps its length: its bytes can be written, not deleted"))
    }

    /// Its bytes, as ints.
    fn __iter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.get().open(slf.py())?;
        // SAFETY: attached, a live object; a new reference or null with an error set.
        unsafe { Bound::from_owned_ptr_or_err(slf.py(), ffi::PySeqIter_New(slf.as_ptr())) }
    }

    /// A buffer is true, even one of 0 bytes.
    fn __bool__(&self) -> bool {
        true
    }

    /// With the bytes, unless they are a group's, or released.
    fn __sizeof__(slf: &Bound<'_, Self>) -> usize {
        let this = slf.get();
        seen::basic_size(slf) + if this.part || this.lease.is_released() { 0 } else { this.place.length }
    }

    fn __repr__(&self) -> String {
        let what = if self.part { "block of a gabion.memory.Group" } else { "gabion.memory.Buffer" };
        if self.lease.is_released() {
            format!("<{what}, released>")
        } else {
            format!("<{what}, {} bytes at {:#x}>", self.place.length, self.place.start.addr())
        }
    }

    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        slf.get().open(slf.py())?;
        Ok(slf)
    }

    #[pyo3(signature = (*exception))]
    fn __exit__(&self, py: Python<'_>, exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        if self.part {
            // It goes with its group.
            return Ok(());
        }
        if on_its_way(exception).is_none() {
            return self.release(py);
        }
        // The traceback keeps the block's views alive, which is no mistake of the block's.
        give_back(py, self.lease.leave());
        Ok(())
    }

    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let this = slf.get();
        if let Err(refused) = this.lease.begin_export() {
            // SAFETY: the interpreter passes a structure to fill; null means "nothing exported".
            unsafe { (*view).obj = ptr::null_mut() };
            return Err(this.refused(slf.py(), refused));
        }
        let (start, length) = (this.place.start.as_ptr().cast::<c_void>(), this.place.length as isize);
        // SAFETY: the bytes stay in place while the export counted above lasts, and the view holds a reference to
        // `slf`, which holds the lease; the structure is the interpreter's to fill.
        let failed = unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, length, 0, flags) };
        if failed == 0 {
            return Ok(());
        }
        this.lease.end_export();
        Err(PyErr::fetch(slf.py()))
    }

    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {
        self.lease.end_export();
    }

    /// A dict after version 3 of NumPy's array interface: one dimension of uint8, writable. Its data is a memoryview,
    /// which keeps the memory: for the dict, and for the arrays that are made of it.
    #[getter]
    fn __array_interface__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyDict>> {
        let py = slf.py();
        array_interface(&(slf.get().place.length,).into_pyobject(py)?, &memoryview(slf)?)
    }

    /// The kind and number of the device that the memory belongs to, in DLPack's numbers: (1, 0), the CPU.
    fn __dlpack_device__(&self) -> (i32, i32) {
        dlpack::DEVICE
    }

    /// A DLPack capsule of the bytes, one dimension of uint8. Versioned when max_version is (1, 0) or higher. With
    /// copy=True of a copy, rented for the consumer alone. BufferError for another device or a stream.
    #[pyo3(signature = (*, stream = None, max_version = None, dl_device = None, copy = None))]
    fn __dlpack__(
        &self,
        py: Python<'_>,
        stream: Option<&Bound<'_, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Py<PyAny>> {
        dlpack::check(py, "a buffer", stream, dl_device)?;
        let copied = copy == Some(true);
        let (place, hold) = if copied { self.copied(py)? } else { (self.place, self.hold(py)?) };
        let versioned = max_version.is_some_and(|(major, _)| major >= 1);
        // SAFETY: the buffer's bytes, which are lent as long as there is a hold.
        unsafe { dlpack::capsule(py, place.start.as_ptr(), [place.length as i64], hold, versioned, copied) }
    }

    /// The Arrow type of the buffer, as a capsule: uint8.
    fn __arrow_c_schema__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        arrow::schema(py, 1)
    }

    /// The bytes as an Arrow array of uint8: capsules of its type and of itself. Arrow's users take arrays for
    /// immutable: do not write into the buffer while they read. requested_schema is not followed.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_array__(
        &self,
        py: Python<'_>,
        requested_schema: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<(Py<PyAny>, Py<PyAny>)> {
        let _ = requested_schema;
        let (start, length) = (self.place.start.as_ptr(), self.place.length);
        // SAFETY: the buffer's bytes, which are lent as long as there is a hold.
        let array = unsafe { arrow::array(py, start, length, self.hold(py)?)? };
        Ok((arrow::schema(py, 1)?, array))
    }

    /// Refuses, for pickle and copy.
    #[pyo3(signature = (_protocol, /))]
    fn __reduce_ex__(&self, py: Python<'_>, _protocol: &Bound<'_, PyAny>) -> PyResult<()> {
        let text = "a gabion.memory.Buffer cannot be pickled or copied: it is memory of this process; pickle bytes(buffer), \
                    or pickle.PickleBuffer(buffer) with protocol 5";
        Err(refusal::type_error(py, text))
    }
}
