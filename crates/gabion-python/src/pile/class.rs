//! The everyday methods of `gabion.Pile`.

use std::sync::Arc;

use gabion_blocks::PAGE_BYTES;
use gabion_pile::PileOptions;
use pyo3::exceptions::{PyAssertionError, PyRuntimeError, PyTypeError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};

use super::file::{self, Opening, PileFile};
use super::iterator::{Gives, PileIterator};
use super::refusal::{Failure, or_default};
use super::state::Pile;
use super::stats::PileStats;
use super::view::PileView;
use super::{many, number, refusal};
use crate::argument::{CHANGES, Given};
use crate::codec::Codec;
use crate::errors::{class_name, exception, value_error};
use crate::figures::Figure;
use crate::gate::through_gate;
use crate::once::{import, intern, once};
use crate::{ffi, result, size};

/// How many shards a new pile has. Without a global lock every processor may write at one time; with one, a second
/// shard would only cost memory.
pub(crate) fn shards(py: Python<'_>) -> PyResult<Option<usize>> {
    static SHARDS: PyOnceLock<Option<usize>> = PyOnceLock::new();
    let shards = once(py, &SHARDS, || {
        let locked = match import(py, c"sys")?.getattr_opt("_is_gil_enabled")? {
            Some(asked) => asked.call0()?.is_truthy()?,
            None => true,
        };
        Ok(locked.then_some(1))
    })?;
    Ok(*shards)
}

/// How often `pop` builds an object that others replace meanwhile.
const POPS: usize = 100;

/// Formats that a memoryview can show.
const VIEWABLE: &[u8] = b"BbHhIiLlQqfd";

/// A `max_bytes` as callers write it; `None` for the default.
fn limit(max_bytes: Option<&Bound<'_, PyAny>>) -> PyResult<Option<u64>> {
    let Some(value) = max_bytes else { return Ok(None) };
    let bytes = size::limit(value, "objects", PAGE_BYTES)?;
    if bytes == 0 {
        // Elsewhere 0 is no limit. Here it would be a pile that every put fails on.
        let text = "max_bytes=0: such a pile could hold nothing; leave max_bytes out, or pass None, for as much as this process \
                    may use, or say what the pile may take";
        return Err(value_error(value.py(), text));
    }
    Ok(Some(bytes))
}

/// A `name` as callers write it.
fn named<'py>(name: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyString>> {
    let py = name.py();
    if !name.is_instance_of::<PyString>() {
        return Err(refusal::type_error(py, &format!("name must be a str, not {}", class_name(name))));
    }
    // Nothing of a subclass: the registry holds it, too.
    // SAFETY: attached; a str, which is alive; a new reference to a plain one, or null with an error set.
    let plain = unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyUnicode_FromObject(name.as_ptr()))? };
    Ok(plain.cast_into()?)
}

#[pymethods]
impl Pile {
    #[new]
    #[pyo3(
        signature = (
            *others, max_bytes = None, path = None, types = None, read_only = Given::Absent, create = Given::Absent,
            name = None, **unknown
        ),
        text_signature = "(*, max_bytes=None, path=None, types=None, read_only=False, create=True, name=None)"
    )]
    #[expect(clippy::too_many_arguments, reason = "keywords of a call in Python")]
    fn new(
        others: &Bound<'_, PyTuple>,
        max_bytes: Option<&Bound<'_, PyAny>>,
        path: Option<&Bound<'_, PyAny>>,
        types: Option<&Bound<'_, PyAny>>,
        read_only: Given<'_>,
        create: Given<'_>,
        name: Option<&Bound<'_, PyAny>>,
        unknown: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let py = others.py();
        if let Some((name, _)) = unknown.and_then(|unknown| unknown.iter().next()) {
            let takes = "max_bytes, as in Pile(max_bytes=\"4 GiB\"), name, and path with types, read_only and create";
            let text = format!("Pile() has no {name}: it takes {takes}");
            return Err(exception(&py.get_type::<PyTypeError>(), &text));
        }
        if let Ok(first) = others.get_item(0) {
            return Err(refusal::by_position(&first));
        }
        let (read_only, create) = (read_only.flag("read_only", false)?, create.flag("create", true)?);
        let (max_bytes, shards, name) = (limit(max_bytes)?, shards(py)?, name.map(named).transpose()?);
        if let Some(path) = path {
            let opening = Opening { max_bytes, shards, types, create, read_only };
            let (pile, codec, file) = PileFile::open(path, &opening)?;
            return Self::made(py, pile, codec, Some(file), name);
        }
        if types.is_some() || read_only || !create {
            let text = "types=, read_only= and create= are for a pile in a file: give its path, as in Pile(path=\"people.pile\")";
            return Err(value_error(py, text));
        }
        let options = PileOptions { max_bytes, shards, os: None };
        let pile = gabion_pile::Pile::with_options(options).map_err(|error| refusal::not_made(py, "pile", &error))?;
        let codec = Codec::new(py, Some(Arc::clone(pile.budget())))?;
        Self::made(py, pile, codec, None, name)
    }

    /// Look through the pile in a file, without a change of it, and return its figures as a PileStats.
    ///
    /// What is checked is the structure: that everything in the file makes sense, that no two objects share room, and
    /// that all adds up. No object is built. Raises CorruptFileError with the first place that does not hold,
    /// BlockingIOError while the file is open to write, and the system's OSError. Takes time linear in the pile.
    #[staticmethod]
    #[pyo3(signature = (path, /))]
    fn check(path: &Bound<'_, PyAny>) -> PyResult<PileStats> {
        let (stats, types) = file::check(path)?;
        Ok(PileStats::new(&stats, Figure(types as u64)))
    }

    /// Wait until all that was done before is on the disk, where it outlives the machine, too.
    ///
    /// A pile in a file outlives its process without this, however that ends. When the *machine* goes down, what was
    /// changed since the last flush may be there in part, and in any order: then opening the file may raise
    /// CorruptFileError. close() flushes. Other threads go on meanwhile. Raises OSError when the disk fails, ValueError
    /// when the pile has no file.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        let pile = self.open(py)?;
        match &self.file {
            Some(file) => file.flush(py, pile),
            None => {
                Err(value_error(py, "this pile lies in memory alone, and ends with it: give Pile() a path to keep it"))
            }
        }
    }

    /// Save the pile, as it is at one moment of the call, in a file of its own: gabion.Pile(path=...) opens it, with
    /// all objects under the same pointers, and the root. The pile stays where it is, in memory or in its own file.
    ///
    /// The file is written aside and gets its name when it is complete and on the disk, so what has the name is the one
    /// before or the new one, whatever happens. It may replace a pile's file that nobody has open to write; those who
    /// read that one read on. Takes time linear in the pile. get() goes on meanwhile, and so do writers, except while
    /// what they changed since the beginning is looked for; view(), size_of(), stats() and get() of objects over 1 MiB
    /// wait then, too, and while any of them but stats() waits, so do all threads that need the GIL. In the file are
    /// names of classes, not classes: see docs/pile.md, "What may be built".
    ///
    /// Raises BlockingIOError for a file that is open to write, such as the pile's own, CorruptFileError for one that
    /// is no pile's, and the system's OSError; what was there before stays then.
    ///
    /// >>> import gabion, os, tempfile
    /// >>> path = os.path.join(tempfile.mkdtemp(), "saved.pile")
    /// >>> pile = gabion.Pile()
    /// >>> ptr = pile.put({"name": "Ada"})
    /// >>> pile.save(path)
    /// >>> with gabion.Pile(path=path) as saved:
    /// ...     saved.get(ptr)
    /// {'name': 'Ada'}
    #[pyo3(signature = (path, /))]
    fn save(&self, path: &Bound<'_, PyAny>) -> PyResult<()> {
        self.save_to(path)
    }

    /// The pointer that was set last, or None: where a program finds the first of its objects, that of a dict of
    /// pointers say, when it opens the file again. It is not looked at: when its object is removed, get() refuses it as
    /// any other. Only a live pointer can be set, or None.
    ///
    /// >>> import gabion
    /// >>> pile = gabion.Pile()
    /// >>> pile.root = pile.put({"people": []})
    /// >>> pile.get(pile.root)
    /// {'people': []}
    #[getter]
    fn root<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.open(py)?.root().map(|root| result::number(py, root.to_bits())).transpose()
    }

    #[setter]
    fn set_root(&self, py: Python<'_>, root: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        self.open_to_change(py)?;
        let set = || {
            let root = root.map(number::pointer).transpose()?;
            Ok(self.open_to_change(py)?.set_root(root)?)
        };
        or_default(py, set(), None)
    }

    /// The path of the pile's file, as a str; None for a pile in memory alone.
    #[getter]
    fn path<'py>(&self, py: Python<'py>) -> Option<&Bound<'py, PyAny>> {
        self.file.as_ref().map(|file| file.path(py))
    }

    /// What the pile was named, or an empty text.
    #[getter]
    fn name<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyString>> {
        self.name.as_ref().map_or_else(|| result::text(py, ""), |name| Ok(name.bind(py).clone()))
    }

    /// Whether the pile was opened with read_only=True.
    #[getter]
    fn read_only(&self) -> bool {
        self.file.as_ref().is_some_and(|file| file.read_only)
    }

    /// Get and remove in one step: of several threads that pop the same pointer, one gets the object. With a default,
    /// that is returned when the pointer is not live; without (the ... of the signature), PointerError is raised. An
    /// object that cannot be built stays in the pile, and so does one that is replaced again and again while it is
    /// built: RuntimeError.
    ///
    /// >>> import gabion
    /// >>> pile = gabion.Pile()
    /// >>> pile.pop(pile.put("once"))
    /// 'once'
    #[pyo3(signature = (ptr, /, default = Given::Absent), text_signature = "($self, ptr, /, default=...)")]
    fn pop(&self, ptr: &Bound<'_, PyAny>, default: Given<'_>) -> PyResult<Py<PyAny>> {
        let py = ptr.py();
        let pop = || -> Result<Py<PyAny>, Failure> {
            let pointer = number::pointer(ptr)?;
            self.with_run(|buffer| {
                for _ in 0..POPS {
                    let object = self.decode(py, pointer, self.open(py)?.read(pointer, buffer)?)?;
                    if self.open_to_change(py)?.remove_unchanged(pointer, buffer)? {
                        return Ok(object);
                    }
                }
                let text = format!("the object was replaced each of the {POPS} times that pop() built it; it stays");
                Err(Failure::Raised(exception(&py.get_type::<PyRuntimeError>(), &text)))
            })
        };
        self.open_to_change(py)?;
        or_default(py, pop(), default.value().map(|default| default.clone().unbind()))
    }

    /// Put function(object) in the object's place, in one step, and return it. The pointer stays valid.
    ///
    /// No change by another thread is lost: where one comes between, function is called again, with the object that is
    /// there then, so it should be quick and do nothing else. What it is given is its own, as from get(): it may change
    /// that and return it. Where it returns None for something else, as a function does that only changes what it is
    /// given, that is a TypeError: replace(ptr, None) stores None. What it raises changes nothing. Raises what get()
    /// and replace() raise, and RuntimeError where function itself replaces the object each time.
    ///
    /// >>> import gabion
    /// >>> pile = gabion.Pile()
    /// >>> ptr = pile.put({"visits": 1})
    /// >>> pile.change(ptr, lambda page: page | {"visits": page["visits"] + 1})
    /// {'visits': 2}
    #[pyo3(signature = (ptr, function, /))]
    fn change(&self, ptr: &Bound<'_, PyAny>, function: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let py = ptr.py();
        if !function.is_callable() {
            let class = class_name(function);
            let text = format!("change() takes a function of the object that is stored, not {class}");
            return Err(refusal::type_error(py, &text));
        }
        self.open_to_change(py)?;
        let pointer = or_default(py, number::pointer(ptr), None)?;
        for _ in 0..CHANGES {
            let changed = self.with_run(|buffer| self.change_once(py, pointer, function, buffer));
            if let Some(object) = or_default(py, changed, None)? {
                return Ok(object.unbind());
            }
        }
        let text = format!(
            "the object was replaced each of the {CHANGES} times that change() called the function: it must not replace it \
             itself, and must be quick"
        );
        Err(exception(&py.get_type::<PyRuntimeError>(), &text))
    }

    /// Remove the object if the pointer is live. Returns whether it was; never raises PointerError.
    #[pyo3(signature = (ptr, /))]
    fn discard(&self, ptr: &Bound<'_, PyAny>) -> PyResult<bool> {
        let py = ptr.py();
        self.open_to_change(py)?;
        let removed = number::pointer(ptr).and_then(|pointer| Ok(self.open_to_change(py)?.remove(pointer)?));
        or_default(py, removed.map(|()| true), Some(false))
    }

    /// Bytes of the object's encoding. What it takes in the pile is somewhat more: see docs/pile.md, "Memory". Constant
    /// time. Raises PointerError when the pointer is not live.
    #[pyo3(signature = (ptr, /))]
    fn size_of<'py>(&self, ptr: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = ptr.py();
        self.open(py)?;
        let size = number::pointer(ptr).and_then(|pointer| Ok(self.open(py)?.size_of(pointer)?));
        result::number(py, or_default(py, size, None)? as u64)
    }

    /// A read-only memoryview of a stored bytes, bytearray or array.array, without a copy.
    ///
    /// The view goes on to show what was stored when it was made: replace() puts the new object elsewhere, and after
    /// remove() or close() the memory stays until the last view of it is gone. A view of an array has the array's
    /// format, others are bytes. Raises PointerError when the pointer is not live, TypeError when the object is of
    /// another type: of an array of NumPy, put array.tobytes() and read numpy.frombuffer(pile.view(ptr), dtype).
    ///
    /// >>> import gabion
    /// >>> pile = gabion.Pile()
    /// >>> view = pile.view(pile.put(b"stone"))
    /// >>> view.tobytes()
    /// b'stone'
    #[pyo3(signature = (ptr, /))]
    fn view<'py>(&self, ptr: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = ptr.py();
        self.open(py)?;
        let view = number::pointer(ptr).and_then(|pointer| {
            self.open(py)?;
            Ok(self.pile.view(pointer)?)
        });
        let view = or_default(py, view, None)?;
        let raw = Codec::raw_view(&view).filter(|raw| VIEWABLE.contains(&raw.format));
        let Some(raw) = raw else {
            return Err(refusal::not_viewable(py, Codec::plain_name(&view)));
        };
        let owner = Bound::new(py, PileView::new(view, raw.offset, raw.len))?;
        let bytes = result::memoryview(&owner)?;
        if raw.format == b'B' {
            return Ok(bytes);
        }
        let format = result::text(py, char::from(raw.format).encode_utf8(&mut [0; 4]))?;
        result::call(&bytes.getattr(intern!(py, "cast")?)?, [&format])
    }

    /// Store every object of an iterable and return their pointers in order, as an array('Q'). All or nothing: when
    /// one cannot be stored, or a signal's handler raises (Ctrl-C), those before it are removed again and the error is
    /// raised; a note of it says which object it is about, counted from 0. Other threads run meanwhile. A dict, which
    /// gives its keys, and a DataFrame, which gives the names of its columns, are a TypeError: pass values(), or rows.
    ///
    /// >>> import gabion
    /// >>> pile = gabion.Pile()
    /// >>> pointers = pile.put_many(["a", "b", "c"])
    /// >>> pile.get_many(pointers)
    /// ['a', 'b', 'c']
    #[pyo3(signature = (iterable, /))]
    fn put_many<'py>(&self, iterable: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        many::put_many(self, iterable)
    }

    /// Build the objects behind many pointers, as a list in their order. Faster than single calls when the pointers are
    /// random, because memory is prefetched. With a default, that takes the place of objects whose pointers are not
    /// live; without (the ... of the signature), the first such pointer raises PointerError. Raises CodecError when an
    /// object cannot be built. Notes of these errors say which one it is. ptrs is an array('Q'), a NumPy array of
    /// 64-bit ints, or an iterable of ints.
    #[pyo3(signature = (ptrs, /, default = Given::Absent), text_signature = "($self, ptrs, /, default=...)")]
    fn get_many<'py>(&self, ptrs: &Bound<'py, PyAny>, default: Given<'py>) -> PyResult<Bound<'py, PyList>> {
        many::get_many(self, ptrs, default.value())
    }

    /// Remove the objects behind many pointers. Returns how many there were; pointers that are not live are ignored.
    /// ptrs is as for get_many(). When a signal's handler raises meanwhile, some are removed: the same call again
    /// removes the others.
    #[pyo3(signature = (ptrs, /))]
    fn remove_many(&self, ptrs: &Bound<'_, PyAny>) -> PyResult<Figure> {
        many::remove_many(self, ptrs)
    }

    /// The pile's figures as a PileStats: objects, used_bytes, reserved_bytes, overhead_bytes, blocks, types and more.
    /// The cost does not depend on the number of objects.
    fn stats(&self, py: Python<'_>) -> PyResult<PileStats> {
        let pile = self.open(py)?;
        // Somebody may be at a shard for long, such as a `clear` of a file.
        let stats = through_gate(py, || pile.stats());
        Ok(PileStats::new(&stats, Figure(self.codec.type_count() as u64)))
    }

    /// The most bytes that the pile may take. It can be set, while other threads go on, to what the constructor takes:
    /// an int, text such as "4 GiB", or None for all that this process may use. Where more than that is in use already,
    /// everything stays, and puts that need more memory raise LimitError until enough was removed; empty memory for
    /// which there is no room goes back to the system.
    ///
    /// >>> import gabion
    /// >>> pile = gabion.Pile(max_bytes="1 MiB")
    /// >>> pile.max_bytes = "2 GiB"
    /// >>> pile.max_bytes
    /// 2147483648
    #[getter]
    fn max_bytes(&self, py: Python<'_>) -> PyResult<Figure> {
        Ok(Figure(self.open(py)?.max_bytes()))
    }

    #[setter]
    fn set_max_bytes(&self, py: Python<'_>, value: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        self.open(py)?;
        let max_bytes = limit(value)?;
        // The value's own code may have closed the pile.
        let pile = self.open(py)?;
        through_gate(py, || pile.set_max_bytes(max_bytes));
        Ok(())
    }

    /// Remove all objects. Their memory stays warm for what is put next: gabion.memory.stats() counts it as held_idle,
    /// not as idle. Their pointers are refused from now on. Takes time in proportion to the blocks; or to the objects
    /// while there are views, and of a file: other threads go on meanwhile, and what they put may stay or not.
    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        let pile = self.open_to_change(py)?;
        through_gate(py, || pile.clear());
        Ok(())
    }

    /// Move objects that outgrew their slot back where they fit again, those of 1 KiB to 1 MiB closer together, and
    /// give empty memory back to the system. Pointers and views stay valid. Returns how many bytes were given back: 0
    /// of a file, which stays as long as it is, and whose room serves what is put next. Takes time linear in the pile;
    /// other threads can go on meanwhile.
    fn compact(&self, py: Python<'_>) -> PyResult<Figure> {
        let pile = self.open_to_change(py)?;
        Ok(Figure(through_gate(py, || pile.compact())))
    }

    /// Check every equation of the pile's structure; raises AssertionError with the first that does not hold. For
    /// tests.
    fn validate(&self, py: Python<'_>) -> PyResult<()> {
        let pile = self.open(py)?;
        through_gate(py, || pile.validate())
            .map_err(|wrong| exception(&py.get_type::<PyAssertionError>(), &wrong.to_string()))
    }

    /// Remove all objects, let go of their classes, and refuse every further call with ClosedError. Closing twice does
    /// nothing. Views that are alive stay valid.
    ///
    /// A pile in a file keeps its objects there: they are flushed to the disk, and the file is free for others to open,
    /// with the last view of it. Raises OSError when the disk fails; the pile is closed then, too.
    #[pyo3(name = "close")]
    fn close_file_or_clear(&self, py: Python<'_>) -> PyResult<()> {
        if !self.close() {
            // One that could not let its file go may do so by now.
            return self.file.as_ref().map_or(Ok(()), |file| file.release_file(py, &self.pile));
        }
        let Some(file) = &self.file else {
            through_gate(py, || self.pile.clear());
            self.codec.end();
            return Ok(());
        };
        // What a forked child has of its parent's file is not for the disk.
        let flushed = if self.pile.is_parted() { Ok(()) } else { file.flush(py, &self.pile) };
        let released = file.release_file(py, &self.pile);
        self.codec.end();
        flushed.and(released)
    }

    /// True after close().
    #[getter]
    fn closed(&self) -> bool {
        self.is_closed()
    }

    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        slf.get().open(slf.py())?;
        Ok(slf)
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close_file_or_clear(py)
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.open(py)?.len() as usize)
    }

    /// A pile is true, even when it is empty: `if pile:` asks whether there is one.
    fn __bool__(&self) -> bool {
        true
    }

    fn __contains__(&self, ptr: &Bound<'_, PyAny>) -> PyResult<bool> {
        let py = ptr.py();
        self.open(py)?;
        let found = number::pointer(ptr).and_then(|pointer| Ok(self.open(py)?.contains(pointer)));
        or_default(py, found, Some(false))
    }

    fn __iter__(slf: Bound<'_, Self>) -> PyResult<PileIterator> {
        slf.get().open(slf.py())?;
        Ok(PileIterator::new(&slf, Gives::Pointer))
    }

    /// An iterator over all objects, which builds each when its turn comes. The loop and other threads may put, replace
    /// and remove meanwhile: every object that is there from beginning to end is given exactly once, one that is
    /// removed may be missed. Of those that are put after the first step none is given, unless it takes the place of
    /// one that was removed after it. Iterators have no len(): that is the pile's.
    ///
    /// >>> import gabion
    /// >>> pile = gabion.Pile()
    /// >>> pointers = pile.put_many(["a", "b"])
    /// >>> sorted(pile.values())
    /// ['a', 'b']
    fn values(slf: &Bound<'_, Self>) -> PyResult<PileIterator> {
        slf.get().open(slf.py())?;
        Ok(PileIterator::new(slf, Gives::Object))
    }

    /// An iterator over all pointers and their objects, as pairs; otherwise as values().
    fn items(slf: &Bound<'_, Self>) -> PyResult<PileIterator> {
        slf.get().open(slf.py())?;
        Ok(PileIterator::new(slf, Gives::Both))
    }

    fn __repr__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyString>> {
        let place = match &self.file {
            Some(file) => format!(" in {}", file.path(py).repr()?),
            None => String::new(),
        };
        let named = match &self.name {
            Some(name) => format!(" {}", name.bind(py).repr()?),
            None => String::new(),
        };
        if self.is_closed() || self.pile.is_parted() {
            return result::text(py, &format!("<gabion.Pile{named}{place}, closed>"));
        }
        // As for `stats`.
        let stats = through_gate(py, || self.pile.stats());
        let plural = if stats.objects == 1 { "" } else { "s" };
        let bytes = if stats.used_bytes == 1 { "" } else { "s" };
        let text = format!(
            "<gabion.Pile{named} of {} object{plural}, {} byte{bytes} ({} reserved){place}>",
            stats.objects, stats.used_bytes, stats.reserved_bytes
        );
        result::text(py, &text)
    }

    /// Refuses, for pickle and copy.
    #[pyo3(signature = (_protocol, /))]
    fn __reduce_ex__(&self, py: Python<'_>, _protocol: &Bound<'_, PyAny>) -> PyResult<()> {
        let text = if self.file.is_some() {
            "a gabion.Pile cannot be pickled or copied: open its file in the other process, by gabion.Pile(path=...)"
        } else {
            "a gabion.Pile cannot be pickled or copied: it is memory of this process, and its pointers mean nothing in another; \
             pickle the objects that get() returns"
        };
        Err(refusal::type_error(py, text))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.codec.traverse(&visit)
    }

    fn __clear__(&self) {
        self.codec.clear();
    }
}
