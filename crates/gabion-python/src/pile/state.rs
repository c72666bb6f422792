//! The state of a `gabion.Pile`, and what its methods are made of.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gabion_pile::{Pointer, ReadBuf, Reading, Value, with_read_buf};
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::file::PileFile;
use super::refusal::{self, Failure};
use super::registry;
use crate::argument::changed;
use crate::codec::Codec;
use crate::scratch::with_encoded_apart;

/// A pile of live Python objects, kept outside the heap that the garbage collector walks.
///
/// put() copies an object graph into the pile and returns a pointer, a plain int; get() builds an equal object from
/// it. A stored object costs its encoding and little more (see docs/pile.md), no reference counts, no collector pauses,
/// and its pointers fit into an array('Q') or a NumPy array. Any object that pickle can store can be put, without a
/// schema.
///
/// max_bytes (int, or text such as "4 GiB") bounds what the pile takes, counted in pages of 64 KiB; by default it is
/// what the process may use at all: physical memory, or the limit of its cgroup (of a pile in a file, 4 TiB). Less than
/// a page is refused with ValueError. A put that would exceed it raises LimitError and leaves the pile as it was;
/// pile.max_bytes can be set later. Making a pile raises MemoryError where there is no memory for a new one.
///
/// With a path, the pile lies in a file, which is made where it is not there; with create=False that is a
/// FileNotFoundError. Whatever a call had done when it returned is there for the next process that opens the file,
/// however this one ends, and pointers stay valid. types says what may be built of what others have put there: classes,
/// functions and modules, objects that pickle stores by name, a mapping of stored names to classes, or "*" for whatever
/// the names lead to; without it, only what this program puts itself and harmless classes of the standard library.
/// Whoever wrote the file chose what they are called with, so allow what holds values. With read_only=True, nothing of
/// it can be changed, and any number of processes may have it open. Raises BlockingIOError where another has it open,
/// CorruptFileError for what is no file of gabion's or damaged, FormatError for a file of a version with another
/// format, and the system's OSError. See docs/pile.md, "Piles in files".
///
/// name is shown by repr() and tells the pile from others in `gabion top`.
///
/// A pointer stays valid until its object is removed, whatever replace() puts behind it, and is refused with
/// PointerError for ever after; so are pointers of other piles and numbers that are no live pointer of this one. They
/// are checked, but no secrets: who has seen one can guess others, so do not let clients name objects by them. All
/// methods may be called from any thread at any time; readers take no lock. `Pile[Person]` names the class of its
/// objects for type checkers.
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
    /// Of a pile in a file.
    pub(super) file: Option<Box<PileFile>>,
    pub(super) name: Option<Py<PyString>>,
    /// In the registry of open piles.
    number: u64,
    closed: AtomicBool,
}

impl Pile {
    /// A pile that was just made or opened.
    pub(super) fn made(
        py: Python<'_>,
        pile: gabion_pile::Pile,
        codec: Codec,
        file: Option<PileFile>,
        name: Option<Bound<'_, PyString>>,
    ) -> PyResult<Self> {
        let pile = Arc::new(pile);
        let number = registry::enter(py, &pile, file.as_ref().map(|file| (file.path(py), file.id)), name.as_ref())?;
        let (file, name) = (file.map(Box::new), name.map(Bound::unbind));
        Ok(Self { pile, codec, file, name, number, closed: AtomicBool::new(false) })
    }

    /// The pile, unless it was closed.
    #[inline]
    pub(super) fn open(&self, py: Python<'_>) -> PyResult<&gabion_pile::Pile> {
        match &self.file {
            _ if self.is_closed() => Err(refusal::closed(py, self.file.is_some())),
            Some(_) if self.pile.is_parted() => Err(refusal::parted(py)),
            _ => Ok(&self.pile),
        }
    }

    /// The pile, for a change, unless it was closed or may not be changed.
    #[inline]
    pub(super) fn open_to_change(&self, py: Python<'_>) -> PyResult<&gabion_pile::Pile> {
        match &self.file {
            Some(file) if file.read_only && !self.is_closed() => Err(refusal::read_only(py)),
            _ => self.open(py),
        }
    }

    /// True after `close`.
    #[inline]
    pub(super) fn is_closed(&self) -> bool {
        // Relaxed: a call that runs beside `close` may come before or after it.
        self.closed.load(Ordering::Relaxed)
    }

    /// Closes; true when it was open.
    pub(super) fn close(&self) -> bool {
        let open = !self.closed.swap(true, Ordering::AcqRel);
        if open {
            registry::remove(self.number);
        }
        open
    }

    /// The object that is stored behind a pointer, out of its encoding.
    #[inline]
    pub(super) fn decode(&self, py: Python<'_>, pointer: Pointer, encoding: &[u8]) -> PyResult<Py<PyAny>> {
        self.codec.decode(py, encoding).map_err(|error| refusal::not_built(py, error, pointer))
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
            Some(encoding) => Ok((self.decode(py, pointer, encoding)?, encoding.len())),
            None => self.build_longer(py, pointer, buffer),
        })
    }

    /// Calls `work` with the thread's buffer, which may come to hold a run. The pile may be closed meanwhile, which
    /// leaves its file to the last reader: that this is over is seen to here.
    pub(super) fn with_run<R>(&self, work: impl FnOnce(&mut ReadBuf) -> R) -> R {
        with_read_buf(|buffer| self.then_let_go(buffer, work))
    }

    fn then_let_go<R>(&self, buffer: &mut ReadBuf, work: impl FnOnce(&mut ReadBuf) -> R) -> R {
        let done = work(buffer);
        buffer.let_go();
        self.pile.go_on_leaving();
        done
    }

    #[inline(never)]
    fn build_longer(
        &self,
        py: Python<'_>,
        pointer: Pointer,
        buffer: &mut ReadBuf,
    ) -> Result<(Py<PyAny>, usize), Failure> {
        self.then_let_go(buffer, |buffer| self.build_of_run(py, pointer, buffer))
    }

    fn build_of_run(
        &self,
        py: Python<'_>,
        pointer: Pointer,
        buffer: &mut ReadBuf,
    ) -> Result<(Py<PyAny>, usize), Failure> {
        match self.pile.read_or_find(pointer, buffer)? {
            Reading::Whole(encoding) => return Ok((self.decode(py, pointer, encoding)?, encoding.len())),
            Reading::Long(long) => {
                let built =
                    self.codec.decode_long(py, &long).map_err(|error| refusal::not_built(py, error, pointer))?;
                if let Some(object) = built {
                    return Ok((object, long.len()));
                }
            }
        }
        let encoding = self.pile.read(pointer, buffer)?;
        Ok((self.decode(py, pointer, encoding)?, encoding.len()))
    }

    /// Puts what a function makes of an object in its place, unless it was replaced meanwhile: then `None`.
    pub(super) fn change_once<'py>(
        &self,
        py: Python<'py>,
        pointer: Pointer,
        function: &Bound<'py, PyAny>,
        buffer: &mut ReadBuf,
    ) -> Result<Option<Bound<'py, PyAny>>, Failure> {
        let object = self.decode(py, pointer, self.open_to_change(py)?.read(pointer, buffer)?)?;
        let new = changed(function, object.bind(py), "replace(ptr, None)")?;
        drop(object);
        let replace = |pile: &gabion_pile::Pile, value: Value<'_>| {
            pile.replace_unchanged(pointer, buffer, value).map_err(|error| Failure::Refused(error).raise(py))
        };
        let replaced = self.encoded(&new, replace)?;
        Ok(replaced.then_some(new))
    }

    /// Encodes an object and hands the pile and the encoding on: in pieces, where large values were left out of it. The
    /// pile is asked for only after the object's own code has run, which may have closed it.
    #[inline]
    pub(super) fn encoded<R>(
        &self,
        object: &Bound<'_, PyAny>,
        work: impl FnOnce(&gabion_pile::Pile, Value<'_>) -> PyResult<R>,
    ) -> PyResult<R> {
        let py = object.py();
        self.open_to_change(py)?;
        with_encoded_apart(|encoding, apart| {
            // SAFETY: held by the caller over the call.
            unsafe { self.codec.encode_apart(py, object.as_ptr(), encoding, Some(apart))? };
            let pile = self.open_to_change(py)?;
            if let Some(file) = &self.file {
                file.describe(py, &self.codec, pile)?;
            }
            if apart.is_empty() {
                return work(pile, Value::Whole(encoding));
            }
            work(pile, Value::Pieces(&apart.pieces(py, encoding)?))
        })
    }
}
