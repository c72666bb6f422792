//! What a Python file does when it is asked to read or write, brought to three answers: that many bytes, the end, or
//! not now.

use std::ffi::c_int;

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyMemoryView, PyString};

use super::bytes::items;
use super::chunk::Window;
use super::classes::Classes;
use super::refusal;
use crate::content::Content;
use crate::errors::{answered, class_name};
use crate::once::intern;
use crate::{ffi, result};

/// The method, held so that no call looks for it again.
fn method<'py>(file: &Bound<'py, PyAny>, name: &Bound<'py, PyString>) -> PyResult<Option<Bound<'py, PyAny>>> {
    file.getattr_opt(name)
}

/// As [`method`], to read or write by: TypeError for one that is `async def`, before anything is gathered for it.
fn way<'py>(name: &str, file: &Bound<'py, PyAny>, call: &Bound<'py, PyString>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = file.py();
    let Some(way) = method(file, call)? else { return Ok(None) };
    // What of Python code says that a call of it is a coroutine. Other callables are found out when they are called.
    let flags = || -> PyResult<c_int> {
        match way.getattr_opt(intern!(py, "__code__")?)? {
            Some(code) => code.getattr(intern!(py, "co_flags")?)?.extract(),
            None => Ok(0),
        }
    };
    if answered(py, flags())?.is_some_and(|flags| flags & ffi::CO_COROUTINE != 0) {
        return Err(asynchronous(py, name));
    }
    Ok(Some(way))
}

#[cold]
fn asynchronous(py: Python<'_>, name: &str) -> PyErr {
    let text = format!(
        "{name} is an asynchronous file, which is not supported: pass a plain binary file, such as an io.BytesIO, and \
         await what the asynchronous one takes or gives outside of this"
    );
    refusal::type_error(py, &text)
}

fn not_a_file(name: &str, needed: &str, file: &Bound<'_, PyAny>) -> PyErr {
    let given = class_name(file);
    let text = format!("{name} must be a binary file with {needed}, not {given}: open it first, in binary mode");
    refusal::type_error(file.py(), &text)
}

fn refuse_text(name: &str, file: &Bound<'_, PyAny>) -> PyResult<()> {
    let classes = Classes::get(file.py())?;
    if !classes.is_known(file) && file.is_instance(classes.text.bind(file.py()))? {
        let text = format!("{name} is a text file: open it in binary mode, or pass its .buffer");
        return Err(refusal::type_error(file.py(), &text));
    }
    Ok(())
}

/// Whether a file is one of the buffered ones of open(), whose `readinto1` gives what there is instead of waiting for
/// all that was asked for.
pub(super) fn gives_what_it_has(file: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(Classes::get(file.py())?.is_buffered_to_read(file))
}

/// The count that a file's method returned, from 0 to `most`.
fn count(result: &Bound<'_, PyAny>, what: &str, most: usize) -> PyResult<usize> {
    let py = result.py();
    // SAFETY: attached, a live object.
    if unsafe { ffi::PyIndex_Check(result.as_ptr()) } == 0 {
        let given = class_name(result);
        return Err(refusal::type_error(py, &format!("{what} returned {given}, not a number of bytes")));
    }
    // SAFETY: as above; a new reference, or null with an error set; of an int, -1 with an error set where it is too
    // large.
    let count = unsafe {
        let number = Bound::from_owned_ptr_or_err(py, ffi::PyNumber_Index(result.as_ptr()))?;
        let count = ffi::PyLong_AsSsize_t(number.as_ptr());
        // Beyond all sizes, where there is an error.
        if count == -1 && PyErr::take(py).is_some() { None } else { Some(count) }
    };
    count.and_then(|count| usize::try_from(count).ok()).filter(|count| *count <= most).ok_or_else(|| {
        let count = count.map_or_else(|| "a number beyond all sizes".to_owned(), |count| count.to_string());
        let text = format!("{what} returned {count} where 0 to {most} bytes were asked for: the file is at fault");
        refusal::os_error(py, &text)
    })
}

/// A file to read from.
pub(super) struct Source {
    read: Py<PyAny>,
    /// `read` is readinto, or readinto1; else it is read.
    into: bool,
}

impl Source {
    /// Reads by `readinto` where the file has it, else by `read`. With `soon`, by `readinto1`: see
    /// [`gives_what_it_has`].
    pub(super) fn new(name: &str, file: &Bound<'_, PyAny>, soon: bool) -> PyResult<Self> {
        let py = file.py();
        refuse_text(name, file)?;
        let into = if soon { intern!(py, "readinto1")? } else { intern!(py, "readinto")? };
        if let Some(read) = way(name, file, into)? {
            return Ok(Self { read: read.unbind(), into: true });
        }
        match way(name, file, intern!(py, "read")?)? {
            Some(read) => Ok(Self { read: read.unbind(), into: false }),
            None => Err(not_a_file(name, "readinto() or read()", file)),
        }
    }

    /// Shows the collector what is held.
    pub(super) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.read)
    }

    /// True when [`Source::read_to`] may be used.
    pub(super) fn reads_into(&self) -> bool {
        self.into
    }

    /// One read of `most` bytes at most into the chunk, from `at` on. None when the file has nothing now; 0 at its end.
    pub(super) fn read(&self, py: Python<'_>, window: &mut Window, at: usize, most: usize) -> PyResult<Option<usize>> {
        if self.into {
            return self.read_to(&window.room(py, at, at + most)?, most);
        }
        let result = call(self.read.bind(py), &result::number(py, most as u64)?)?;
        if result.is_none() {
            return Ok(None);
        }
        let content = Content::of(&result)?;
        if content.len() > most {
            let text = format!("read({most}) returned {} bytes: the file is at fault", content.len());
            return Err(refusal::os_error(py, &text));
        }
        content.copy_to(window, at);
        Ok(Some(content.len()))
    }

    /// One read into a writable object of `most` bytes.
    pub(super) fn read_to(&self, target: &Bound<'_, PyAny>, most: usize) -> PyResult<Option<usize>> {
        let result = call(self.read.bind(target.py()), target)?;
        if result.is_none() { Ok(None) } else { count(&result, "readinto()", most).map(Some) }
    }
}

fn call<'py>(method: &Bound<'py, PyAny>, arg: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = method.py();
    // SAFETY: attached; both are held; a new reference, or null with an error set.
    awaited_by_nobody(unsafe {
        Bound::from_owned_ptr_or_err(py, ffi::PyObject_CallOneArg(method.as_ptr(), arg.as_ptr()))?
    })
}

/// What a file's method returned; TypeError for a coroutine.
fn awaited_by_nobody(result: Bound<'_, PyAny>) -> PyResult<Bound<'_, PyAny>> {
    let py = result.py();
    // SAFETY: a live object.
    if unsafe { ffi::PyCoro_CheckExact(result.as_ptr()) } != 0 {
        // That nobody will await it is told here and not by a warning.
        result.call_method0(intern!(py, "close")?)?;
        return Err(asynchronous(py, "the file"));
    }
    Ok(result)
}

/// How a write ended.
pub(crate) enum Wrote {
    All,
    /// The file takes no more now.
    NotNow,
}

/// A file to write to.
pub(crate) struct Sink {
    write: Py<PyAny>,
    /// For a raw file, None says that nothing was written; others return it for "done".
    raw: bool,
    /// A `gabion.streams.Writer`: each of its errors says how far the write came.
    is_writer: bool,
}

impl Sink {
    pub(crate) fn new(name: &str, file: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = file.py();
        refuse_text(name, file)?;
        let classes = Classes::get(py)?;
        let raw = !classes.is_known(file) && file.is_instance(classes.raw.bind(py))?;
        let is_writer = classes.is_writer(file);
        match way(name, file, intern!(py, "write")?)? {
            Some(write) => Ok(Self { write: write.unbind(), raw, is_writer }),
            None => Err(not_a_file(name, "write()", file)),
        }
    }

    /// Shows the collector what is held.
    pub(super) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.write)
    }

    /// Writes the bytes `from..to` of the chunk. `from` is moved on with what the file takes, whatever the result.
    pub(super) fn write(&self, py: Python<'_>, window: &Window, from: &mut usize, to: usize) -> PyResult<Wrote> {
        while *from < to {
            let part = window.part(py, *from, to)?;
            match self.write_once(&part, to - *from) {
                Ok(Some(count)) => {
                    *from += count;
                    signals_before_more(py, *from < to)?;
                }
                Ok(None) => return Ok(Wrote::NotNow),
                Err(error) => {
                    *from += self.written_before(py, &error).min(to - *from);
                    return Err(error);
                }
            }
        }
        Ok(Wrote::All)
    }

    /// Writes `length` bytes of an object that has as many. `done` is moved on with what the file takes.
    pub(crate) fn write_object(&self, object: &Bound<'_, PyAny>, length: usize, done: &mut usize) -> PyResult<Wrote> {
        let py = object.py();
        while *done < length {
            let rest = if *done == 0 { plain_bytes(object)? } else { behind(object, *done)? };
            match self.write_once(&rest, length - *done) {
                Ok(Some(count)) => {
                    *done += count;
                    signals_before_more(py, *done < length)?;
                }
                Ok(None) => return Ok(Wrote::NotNow),
                Err(error) => {
                    *done += self.written_before(py, &error).min(length - *done);
                    return Err(error);
                }
            }
        }
        Ok(Wrote::All)
    }

    /// How many bytes an error of `write` says were written before it, else 0. A file around a Writer may pass on the
    /// Writer's number, which is not of its own bytes: only the Writer itself is asked.
    fn written_before(&self, py: Python<'_>, error: &PyErr) -> usize {
        if self.is_writer { refusal::bytes_taken(py, error) } else { refusal::characters_written(py, error) }
    }

    fn write_once(&self, bytes: &Bound<'_, PyAny>, length: usize) -> PyResult<Option<usize>> {
        let py = bytes.py();
        let result = call(self.write.bind(py), bytes)?;
        if result.is_none() {
            return Ok(if self.raw { None } else { Some(length) });
        }
        match count(&result, "write()", length)? {
            0 => Err(refusal::os_error(py, "write() returned 0: the file takes nothing and says not why")),
            count => Ok(Some(count)),
        }
    }
}

/// Looks for signals where a file has taken less than it was given. A signal may be why; it is answered before the file
/// waits again, perhaps for ever.
fn signals_before_more(py: Python<'_>, more: bool) -> PyResult<()> {
    if more { py.check_signals() } else { Ok(()) }
}

/// The object itself where its length is in bytes, else a view of its bytes: a file may tell what it took or filled by
/// `len()`.
pub(super) fn plain_bytes<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let plain = object.is_exact_instance_of::<PyBytes>() || object.is_exact_instance_of::<PyByteArray>();
    if plain { Ok(object.clone()) } else { behind(object, 0) }
}

/// A view of an object's bytes from `start` on.
fn behind<'py>(object: &Bound<'py, PyAny>, start: usize) -> PyResult<Bound<'py, PyAny>> {
    let view = PyMemoryView::from(object)?.call_method1("cast", ("B",))?.cast_into::<PyMemoryView>()?;
    items(&view, start, isize::MAX as usize)
}

/// Where a file stands, or None when it cannot say.
pub(crate) fn position(file: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
    let py = file.py();
    let ask = || -> PyResult<Option<u64>> {
        if !file.call_method0(intern!(py, "seekable")?)?.is_truthy()? {
            return Ok(None);
        }
        file.call_method0(intern!(py, "tell")?)?.extract().map(Some)
    };
    Ok(answered(py, ask())?.flatten())
}

/// Has a file stand so many bytes before where it stands; false where it cannot.
pub(super) fn set_back(file: &Bound<'_, PyAny>, bytes: usize) -> PyResult<bool> {
    let Some(at) = position(file)?.and_then(|at| at.checked_sub(bytes as u64)) else { return Ok(false) };
    stand_at(file, at)
}

/// Has a file stand there; false where it cannot.
pub(crate) fn stand_at(file: &Bound<'_, PyAny>, at: u64) -> PyResult<bool> {
    let py = file.py();
    Ok(answered(py, file.call_method1(intern!(py, "seek")?, (at,)))?.is_some())
}

/// What a file answers; no where it has no such method.
pub(super) fn says(file: &Bound<'_, PyAny>, question: &Bound<'_, PyString>) -> PyResult<bool> {
    method(file, question)?.map_or(Ok(false), |method| method.call0()?.is_truthy())
}

/// Refuses a file that says that it is not open for reading. Others are used: what keeps one from saying so keeps it
/// from reading.
pub(super) fn refuse_unreadable(name: &str, file: &Bound<'_, PyAny>) -> PyResult<()> {
    if says_no(file, intern!(file.py(), "readable")?)? {
        let text = format!("{name} is not open for reading: open it with mode 'rb'");
        return Err(refusal::unsupported(file.py(), &text));
    }
    Ok(())
}

/// Refuses a file that says that it is not open for writing, before anything is gathered for it.
pub(super) fn refuse_unwritable(name: &str, file: &Bound<'_, PyAny>) -> PyResult<()> {
    if says_no(file, intern!(file.py(), "writable")?)? {
        let text = format!("{name} is not open for writing: open it with mode 'wb'");
        return Err(refusal::unsupported(file.py(), &text));
    }
    Ok(())
}

/// Whether a file answers a question with no. One that cannot be asked, or fails, has not said so; nor has one of a
/// program's own class that only inherits the answer of `io.IOBase`.
fn says_no(file: &Bound<'_, PyAny>, question: &Bound<'_, PyString>) -> PyResult<bool> {
    let ask = || -> PyResult<bool> {
        let Some(method) = method(file, question)? else { return Ok(false) };
        if method.call0()?.is_truthy()? {
            return Ok(false);
        }
        let classes = Classes::get(file.py())?;
        // Of the module's own classes, some inherit it and mean it.
        if classes.is_known(file) {
            return Ok(true);
        }
        let inherited = classes.any.bind(file.py()).getattr(question)?;
        Ok(!file.get_type().getattr(question)?.is(&inherited))
    };
    Ok(answered(file.py(), ask())?.unwrap_or(false))
}

/// Calls a method of a file, if it has it.
pub(super) fn call_if_there(file: &Bound<'_, PyAny>, name: &Bound<'_, PyString>) -> PyResult<()> {
    let Some(method) = method(file, name)? else { return Ok(()) };
    awaited_by_nobody(method.call0()?).map(drop)
}

/// Refuses a file that says that it is closed.
pub(super) fn refuse_closed(name: &str, file: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = file.py();
    let Some(closed) = file.getattr_opt(intern!(py, "closed")?)? else { return Ok(()) };
    if answered(py, closed.is_truthy())? == Some(true) {
        return Err(refusal::closed_file(py, name));
    }
    Ok(())
}
