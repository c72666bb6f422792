//! `gabion.memory.Group`.

use std::sync::Arc;

use gabion_blocks::pool;
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyIterator, PyTuple};

use super::buffer::Buffer;
use super::lease::{Lease, Memory, MemoryRange, Refused};
use super::{argument, refusal, seen, tracking};
use crate::detached::detached_ungated;
use crate::errors::on_its_way;
use crate::once::once;
use crate::result::{self, memoryview};

/// Rented memory in several blocks, each contiguous: for what is too large to be worth a run, and is worked on
/// block by block or row by row.
///
/// Made by rent_group(). A group is a sequence of its blocks: len(), iteration, indexing; each is a Buffer, all but
/// the last of one size. With row_bytes, no row is cut by the end of a block, and row(y) shows one as a memoryview.
///
/// Limits and threads are as with Buffer. release(), the end of a with statement, or the end of the last reference to
/// the group and its blocks gives all of the memory back, exactly once; views of any block keep it, and an exception
/// that leaves the with statement goes on as it is.
///
/// >>> import gabion.memory
/// >>> with gabion.memory.rent_group("10 MiB", row_bytes=3 * 1000, clean=True) as group:
/// ...     group.row(7)[:3] = b"rgb"
/// ...     len(group), group.rows, bytes(group.row(7)[:4])
/// (3, 3496, b'rgb\x00')
#[pyclass(frozen, weakref, sequence, module = "gabion.memory")]
pub(super) struct Group {
    lease: Arc<Lease>,
    places: Box<[MemoryRange]>,
    nbytes: usize,
    /// The length of every block but the last.
    part_bytes: usize,
    row_bytes: Option<usize>,
    blocks: PyOnceLock<Py<PyTuple>>,
}

impl Group {
    /// The group of memory that was just rented.
    pub(super) fn new(py: Python<'_>, memory: pool::Group, row_bytes: Option<usize>) -> PyResult<Self> {
        let (nbytes, part_bytes) = (memory.len(), memory.part_bytes());
        let places: Box<[MemoryRange]> = memory.parts().iter().map(MemoryRange::of).collect();
        let record = tracking::record(py, "Group", nbytes)?;
        let traced = seen::trace(py, places.first().map(|place| place.start), nbytes);
        let lease = Lease::new(Memory::Group(memory), record, traced);
        Ok(Self { lease, places, nbytes, part_bytes, row_bytes, blocks: PyOnceLock::new() })
    }

    #[cold]
    fn refused(py: Python<'_>, refused: Refused) -> PyErr {
        match refused {
            Refused::Released => refusal::released(py, "group"),
            Refused::Exported(views) => refusal::exported(py, "group", views),
        }
    }

    fn open(&self, py: Python<'_>) -> PyResult<&Self> {
        if self.lease.is_released() { Err(Self::refused(py, Refused::Released)) } else { Ok(self) }
    }

    fn all_blocks<'py>(&self, py: Python<'py>) -> PyResult<&Bound<'py, PyTuple>> {
        let made = once(py, &self.open(py)?.blocks, || {
            let blocks: PyResult<Vec<_>> =
                self.places.iter().map(|place| Bound::new(py, Buffer::part(&self.lease, *place))).collect();
            Ok(result::tuple(py, blocks?.into_iter().map(Bound::into_any))?.unbind())
        })?;
        Ok(made.bind(py))
    }

    fn row_count(&self) -> Option<usize> {
        self.row_bytes.map(|row| self.nbytes.div_ceil(row))
    }
}

#[pymethods]
impl Group {
    /// The blocks, a tuple of Buffer. They keep the group's memory alive, and are released with it.
    #[getter]
    fn blocks<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        self.all_blocks(py).cloned()
    }

    /// How many bytes it has in all: what was asked for.
    #[getter]
    fn nbytes(&self) -> usize {
        self.nbytes
    }

    /// The length of a row as it was asked for, or None.
    #[getter]
    fn row_bytes(&self) -> Option<usize> {
        self.row_bytes
    }

    /// How many rows there are, or None without row_bytes. The last may be shorter than the others.
    #[getter]
    fn rows(&self) -> Option<usize> {
        self.row_count()
    }

    /// True after release().
    #[getter]
    fn released(&self) -> bool {
        self.lease.is_released()
    }

    /// Row y as a writable memoryview, in place; negative y counts from the end. Constant time. Raises IndexError when
    /// there is no such row, ValueError for a group that was rented without row_bytes.
    #[pyo3(signature = (y, /))]
    fn row<'py>(&self, y: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = y.py();
        let (Some(row), Some(rows)) = (self.open(py)?.row_bytes, self.row_count()) else {
            let text = "this group has no rows: pass row_bytes to rent_group()";
            return Err(refusal::value_error(py, text));
        };
        let index = argument::row(y, rows, "a group")?;
        // A part holds whole rows, so that a row begins and ends in one.
        let (block, offset) = (self.places[index * row / self.part_bytes], index * row % self.part_bytes);
        let length = row.min(block.length - offset);
        // SAFETY: the subtraction has shown that the row begins inside the block.
        let place = MemoryRange { start: unsafe { block.start.add(offset) }, length };
        let row = Bound::new(py, Buffer::part(&self.lease, place))?;
        memoryview(&row)
    }

    /// Give the memory of all blocks back to the pool. Releasing twice does nothing. Raises BufferError, and changes
    /// nothing, while views of a block or a row are alive.
    fn release(&self, py: Python<'_>) -> PyResult<()> {
        let memory = self.lease.release().map_err(|refused| Self::refused(py, refused))?;
        detached_ungated(py, || drop(memory));
        Ok(())
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.open(py)?.places.len())
    }

    /// A group is true, even one of 0 bytes.
    fn __bool__(&self) -> bool {
        true
    }

    fn __getitem__<'py>(&self, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = index.py();
        self.all_blocks(py)?.as_any().get_item(index).map_err(|error| {
            if !error.is_instance_of::<PyIndexError>(py) {
                return error;
            }
            argument::not_there("block", index, "a group", self.places.len())
        })
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        self.all_blocks(py)?.as_any().try_iter()
    }

    /// With the bytes of all blocks, unless released.
    fn __sizeof__(slf: &Bound<'_, Self>) -> usize {
        let this = slf.get();
        let lent = if this.lease.is_released() { 0 } else { this.nbytes };
        seen::basic_size(slf) + size_of_val(&*this.places) + lent
    }

    fn __repr__(&self) -> String {
        if self.lease.is_released() {
            return "<gabion.memory.Group, released>".to_owned();
        }
        let plural = if self.places.len() == 1 { "" } else { "s" };
        format!("<gabion.memory.Group, {} bytes in {} block{plural}>", self.nbytes, self.places.len())
    }

    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        slf.get().open(slf.py())?;
        Ok(slf)
    }

    #[pyo3(signature = (*exception))]
    fn __exit__(&self, py: Python<'_>, exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        if on_its_way(exception).is_none() {
            return self.release(py);
        }
        // As with a Buffer.
        let memory = self.lease.leave();
        detached_ungated(py, || drop(memory));
        Ok(())
    }

    /// Refuses, for pickle and copy.
    #[pyo3(signature = (_protocol, /))]
    fn __reduce_ex__(&self, py: Python<'_>, _protocol: &Bound<'_, PyAny>) -> PyResult<()> {
        let text = "a gabion.memory.Group cannot be pickled or copied: it is memory of this process; pickle the bytes of \
                    its blocks";
        Err(refusal::type_error(py, text))
    }
}
