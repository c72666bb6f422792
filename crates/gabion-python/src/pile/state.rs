//! The state of a `gabion.Pile`, and what its methods are made of.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gabion_pile::{Pointer, ReadBuf, Reading, with_read_buf};
use pyo3::prelude::*;

use super::refusal::{self, Failure};
use crate::codec::{Apart, Codec};
use crate::ffi;
use crate::scratch::with_encoded_apart;

/// A pile of live Python objects, kept outside the heap that the garbage collector walks.
///
/// put() copies an object graph into the pile and returns a pointer, a plain int; get() builds an equal object from
/// it. A stored object costs its encoding and little more (see docs/pile.md), no reference counts, no collector pauses, and its
/// pointers fit into an array('Q') or a NumPy array. Any object that pickle can store can be put, without a schema.
///
/// max_bytes (int, or text such as "4 GiB") bounds what the pile takes, counted in pages of 64 KiB; by default it is
/// what the process may use at all: physical memory, or the limit of its cgroup. Less than a page is refused with
/// ValueError. A put that would exceed it raises LimitError and leaves the pile as it was; pile.max_bytes can be
/// set later. Making a pile raises MemoryError where there is no memory for a new one.
///
/// A pointer stays valid until its object is removed, whatever replace() puts behind it, and is refused with
/// PointerError for ever after; so are pointers of other piles and made-up numbers. All methods may be called from any
/// thread at any time; readers take no lock. `Pile[Person]` names the class of its objects for type checkers.
///
/// >>> import gabion
/// >>> with gabion.Pile() as pile:
/// ...     pointer = pile.put({"name": "Ada", "born": 1815})
/// ...     pile.get(pointer)
/// {'name': 'Ada', 'born': 1815}
#[pyclass(frozen, generic, weakref, module = "gabion", name = "Pile")]
pub(super) struct Pile {
    pub(super) pile: Arc<gabion_pile::Pile>,
    pub(super) codec: Codec,
    closed: AtomicBool,
}

impl Pile {
    /// A pile with nothing in it.
    pub(super) fn empty(pile: gabion_pile::Pile, codec: Codec) -> Self {
        Self { pile: Arc::new(pile), codec, closed: AtomicBool::new(false) }
    }

    /// The pile, unless it was closed.
    #[inline]
    pub(super) fn open(&self, py: Python<'_>) -> PyResult<&gabion_pile::Pile> {
        if self.is_closed() { Err(refusal::closed(py)) } else { Ok(&self.pile) }
    }

    /// True after `close`.
    #[inline]
    pub(super) fn is_closed(&self) -> bool {
        // Relaxed: a call that runs beside `close` may come before or after it.
        self.closed.load(Ordering::Relaxed)
    }

    /// Closes; true when it was open.
    pub(super) fn close(&self) -> bool {
        !self.closed.swap(true, Ordering::AcqRel)
    }

    /// Builds the object behind a pointer.
    #[inline]
    pub(super) fn build(&self, py: Python<'_>, pointer: Pointer) -> Result<Py<PyAny>, Failure> {
        Ok(self.build_sized(py, pointer)?.0)
    }

    /// As [`Pile::build`], with the length of the object's encoding.
    #[inline]
    pub(super) fn build_sized(&self, py: Python<'_>, pointer: Pointer) -> Result<(Py<PyAny>, usize), Failure> {
        let pile = self.open(py)?;
        with_read_buf(|buffer| match pile.read_brief(pointer, buffer) {
            Some(encoding) => Ok((self.codec.decode(py, encoding)?, encoding.len())),
            None => self.build_longer(py, pointer, buffer),
        })
    }

    #[inline(never)]
    fn build_longer(
        &self,
        py: Python<'_>,
        pointer: Pointer,
        buffer: &mut ReadBuf,
    ) -> Result<(Py<PyAny>, usize), Failure> {
        match self.pile.read_or_find(pointer, buffer)? {
            Reading::Whole(encoding) => return Ok((self.codec.decode(py, encoding)?, encoding.len())),
            Reading::Long(long) => {
                if let Some(object) = self.codec.decode_long(py, &long)? {
                    return Ok((object, long.len()));
                }
            }
        }
        let encoding = self.pile.read(pointer, buffer)?;
        Ok((self.codec.decode(py, encoding)?, encoding.len()))
    }

    /// Encodes an object and hands the pile and the encoding on, with what was left out of it. The pile is asked for only after
    /// the object's own code has run, which may have closed it.
    ///
    /// # Safety
    /// `object` is alive and stays so over the call.
    #[inline]
    pub(super) unsafe fn encoded<R>(
        &self,
        py: Python<'_>,
        object: *mut ffi::PyObject,
        work: impl FnOnce(&gabion_pile::Pile, &[u8], &Apart) -> PyResult<R>,
    ) -> PyResult<R> {
        self.open(py)?;
        with_encoded_apart(|encoding, apart| {
            // SAFETY: as the caller promised.
            unsafe { self.codec.encode_apart(py, object, encoding, Some(apart))? };
            work(self.open(py)?, encoding, apart)
        })
    }
}
