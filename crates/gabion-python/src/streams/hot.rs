//! `Reader.read`, `readinto`, `readline`, iteration, and `Writer.write`: the calls that a program makes millions of
//! times; and the finalizer, for which there is no other way in.
//!
//! They are written against the C API: see `fastcall`. What is in the chunk, or fits into it, is copied without taking
//! the lock.

use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;

use super::reader::{Reader, wanted};
use super::writer::Writer;
use crate::content::Content;
use crate::fastcall::{self, Method, call, none, wrong_count};

static READER: [Method; 3] = [
    Method::fast(
        c"read",
        read,
        c"read($self, size=-1, /)\n--\n\n\
Read and return size bytes, fewer at the end of the file only; all that is left for None and negative sizes. None\n\
when a non-blocking file has nothing now.",
    ),
    Method::fast(
        c"readinto",
        readinto,
        c"readinto($self, buffer, /)\n--\n\n\
Read bytes into a writable bytes-like object until it is full, or the file ends; return their number.",
    ),
    Method::fast(
        c"readline",
        readline,
        c"readline($self, size=-1, /)\n--\n\n\
Read and return one line with its end, size bytes at most; b\"\" at the end of the file. None when a non-blocking\n\
file has nothing now.",
    ),
];

static WRITER: [Method; 2] = [
    Method::fast(
        c"write",
        write,
        c"write($self, data, /)\n--\n\n\
Take the bytes of a bytes-like object; return their number.\n\n\
They are gathered, or written when they do not fit behind what is gathered. All of them are taken, or none when\n\
what was gathered before cannot be written; of those that go past the chunk, the error's bytes_taken says how many.",
    ),
    Method::fast(c"__del__", finalize, c"__del__($self, /)\n--\n\nHand over what is gathered."),
];

/// Adds the methods to the classes.
pub(super) fn install(py: Python<'_>) -> PyResult<()> {
    let reader = py.get_type::<Reader>();
    fastcall::install(&reader, &READER)?;
    // SAFETY: a class of the heap, which is being made: there is no instance yet, and no subclass ever. PyO3 filled the
    // slot with a function of the same duties.
    unsafe { (*reader.as_type_ptr()).tp_iternext = Some(next) };
    fastcall::install(&py.get_type::<Writer>(), &WRITER)
}

/// The one argument of `usage`: a size, or nothing for all.
#[inline(always)]
fn size(py: Python<'_>, args: &[Bound<'_, PyAny>], usage: &str) -> PyResult<usize> {
    match args {
        [] => Ok(usize::MAX),
        [size] => size.extract().map(wanted),
        _ => Err(wrong_count(py, usage, args.len())),
    }
}

/// A count as a new reference; null with an error set where there is no memory for it.
#[inline(always)]
fn number(count: usize) -> *mut PyObject {
    // SAFETY: the callers are attached.
    unsafe { ffi::PyLong_FromSsize_t(count as isize) }
}

unsafe extern "C" fn read(slf: *mut PyObject, args: *mut *mut PyObject, count: isize) -> *mut PyObject {
    let work = |py: Python<'_>, this: &Reader, args: &[Bound<'_, PyAny>]| {
        let wanted = size(py, args, "read(size=-1)")?;
        // SAFETY: bytes are made, which runs no Python code.
        let here = unsafe { this.ahead.briefly(py, |ahead| ahead.bytes_here(py, wanted)) };
        match here.flatten() {
            Some(bytes) => bytes.map(Bound::into_ptr),
            None => Ok(this.read_all(py, wanted)?.map_or_else(|| none(py), Bound::into_ptr)),
        }
    };
    // SAFETY: called by the interpreter.
    unsafe { call(slf, args, count, work) }
}

unsafe extern "C" fn readline(slf: *mut PyObject, args: *mut *mut PyObject, count: isize) -> *mut PyObject {
    let work = |py: Python<'_>, this: &Reader, args: &[Bound<'_, PyAny>]| {
        let line = this.line(py, size(py, args, "readline(size=-1)")?)?;
        Ok(line.map_or_else(|| none(py), Bound::into_ptr))
    };
    // SAFETY: called by the interpreter.
    unsafe { call(slf, args, count, work) }
}

unsafe extern "C" fn next(slf: *mut PyObject) -> *mut PyObject {
    let work = |py: Python<'_>, this: &Reader, _: &[Bound<'_, PyAny>]| {
        // Null without an error says that there is no more.
        Ok(this.next(py)?.map_or(std::ptr::null_mut(), Bound::into_ptr))
    };
    // SAFETY: called by the interpreter, without arguments.
    unsafe { call(slf, std::ptr::null(), 0, work) }
}

unsafe extern "C" fn readinto(slf: *mut PyObject, args: *mut *mut PyObject, count: isize) -> *mut PyObject {
    let work = |py: Python<'_>, this: &Reader, args: &[Bound<'_, PyAny>]| {
        let [target] = args else { return Err(wrong_count(py, "readinto(buffer)", args.len())) };
        let content = Content::writable(target)?;
        // SAFETY: bytes are copied, which runs no Python code.
        if unsafe { this.ahead.briefly(py, |ahead| ahead.fill_here(&content)) } == Some(true) {
            return Ok(number(content.len()));
        }
        Ok(this.read_into(target, &content, false)?.map_or_else(|| none(py), number))
    };
    // SAFETY: called by the interpreter.
    unsafe { call(slf, args, count, work) }
}

unsafe extern "C" fn write(slf: *mut PyObject, args: *mut *mut PyObject, count: isize) -> *mut PyObject {
    let work = |py: Python<'_>, this: &Writer, args: &[Bound<'_, PyAny>]| {
        let [data] = args else { return Err(wrong_count(py, "write(data)", args.len())) };
        this.write(data).map(number)
    };
    // SAFETY: called by the interpreter.
    unsafe { call(slf, args, count, work) }
}

unsafe extern "C" fn finalize(slf: *mut PyObject, args: *mut *mut PyObject, count: isize) -> *mut PyObject {
    let work = |py: Python<'_>, this: &Writer, _: &[Bound<'_, PyAny>]| {
        this.finalize(py);
        Ok(none(py))
    };
    // SAFETY: called by the interpreter.
    unsafe { call(slf, args, count, work) }
}
