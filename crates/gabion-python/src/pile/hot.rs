//! `put`, `get`, `fields`, `replace`, `remove`: the calls that a program makes millions of times.
//!
//! They are written against the C API (fast call, no argument tuple, no wrapper) and added to the class when the
//! module is made. Each function's duty towards the interpreter is the same: arguments are borrowed, the result is a
//! new reference, or null with an error set.

use std::ffi::{CStr, c_char};
use std::ptr;

use gabion_pile::Pile as Store;
use pyo3::exceptions::{PyOverflowError, PySystemError, PyValueError};
use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;
use pyo3::types::{PyTuple, PyType};

use super::number;
use super::refusal::{Failure, or_default, type_error};
use super::scratch::with_payload;
use super::state::Pile;
use crate::errors::exception;

/// A method table entry whose strings live for ever.
struct Method(ffi::PyMethodDef);

// SAFETY: the entry is never written after it is made, and points to static strings and functions.
unsafe impl Sync for Method {}

const FAST: i32 = ffi::METH_FASTCALL;
const FAST_KEYWORDS: i32 = ffi::METH_FASTCALL | ffi::METH_KEYWORDS;

static METHODS: [Method; 5] = [
    Method::with_keywords(
        c"put",
        put,
        c"put($self, obj, /, *, reserve=0)\n--\n\n\
Store a copy of an object graph and return its pointer, an int below 2**60.\n\n\
Everything that obj refers to is copied: containers, instances with __dict__ or __slots__, dataclasses, named\n\
tuples, enums, dates, decimals, arrays, and whatever else pickle can store. Shared references and cycles keep their\n\
identity within the one call. None is an object like any other.\n\n\
reserve (bytes) is kept free behind the object, so that replace() can grow it by so much in place even when the pile\n\
is full.\n\n\
Raises CodecError when something in the graph cannot be stored, LimitError when the pile or the system has no room;\n\
the pile is unchanged then. Takes time linear in the graph.\n\n\
>>> import gabion\n\
>>> pile = gabion.Pile()\n\
>>> pointer = pile.put([1, 'two', {3.0}])\n\
>>> pile.get(pointer)\n\
[1, 'two', {3.0}]\n",
    ),
    Method::fast(
        c"get",
        get,
        c"get($self, ptr, default=..., /)\n--\n\n\
Build and return the object behind a pointer: equal to what was put, and new at every call.\n\n\
With a default, that is returned when the pointer is not live. Without, PointerError says what is wrong: the object\n\
was removed, the pointer is another pile's, or no pile's. Takes no lock and time linear in the object.\n\n\
>>> import gabion\n\
>>> pile = gabion.Pile()\n\
>>> pointer = pile.put('stone')\n\
>>> pile.remove(pointer)\n\
>>> pile.get(pointer, 'gone')\n\
'gone'\n",
    ),
    Method::fast(
        c"fields",
        fields,
        c"fields($self, ptr, /, *names)\n--\n\n\
Some fields of a stored object as a tuple, without building the object: attributes of an instance, fields of a\n\
named tuple, values of a dict by str key. The others are skipped over.\n\n\
Raises AttributeError (KeyError for a dict) when there is no such field, PointerError when the pointer is not live.\n\n\
>>> import gabion\n\
>>> pile = gabion.Pile()\n\
>>> pile.fields(pile.put({'name': 'Ada', 'born': 1815}), 'born')\n\
(1815,)\n",
    ),
    Method::fast(
        c"replace",
        replace,
        c"replace($self, ptr, obj, /)\n--\n\n\
Put another object behind a pointer. The pointer stays valid, whatever the new object's type and size.\n\n\
Readers see the old object or the new one. Raises PointerError when the pointer is not live, CodecError when the\n\
object cannot be stored, LimitError when there is no room; the old object stays then.\n\n\
>>> import gabion\n\
>>> pile = gabion.Pile()\n\
>>> pointer = pile.put('a stone')\n\
>>> pile.replace(pointer, ['a', 'wall'])\n\
>>> pile.get(pointer)\n\
['a', 'wall']\n",
    ),
    Method::fast(
        c"remove",
        remove,
        c"remove($self, ptr, /)\n--\n\n\
Remove the object behind a pointer, which is refused from now on. Constant time.\n\n\
Raises PointerError when the pointer is not live; discard() does not.\n",
    ),
];

type Fast = unsafe extern "C" fn(*mut PyObject, *mut *mut PyObject, isize) -> *mut PyObject;
type FastKeywords = unsafe extern "C" fn(*mut PyObject, *const *mut PyObject, isize, *mut PyObject) -> *mut PyObject;

impl Method {
    const fn fast(name: &'static CStr, function: Fast, doc: &'static CStr) -> Self {
        Self::new(name, ffi::PyMethodDefPointer { PyCFunctionFast: function }, FAST, doc)
    }

    const fn with_keywords(name: &'static CStr, function: FastKeywords, doc: &'static CStr) -> Self {
        Self::new(name, ffi::PyMethodDefPointer { PyCFunctionFastWithKeywords: function }, FAST_KEYWORDS, doc)
    }

    const fn new(name: &'static CStr, function: ffi::PyMethodDefPointer, flags: i32, doc: &'static CStr) -> Self {
        let (ml_name, ml_doc): (*const c_char, *const c_char) = (name.as_ptr(), doc.as_ptr());
        Self(ffi::PyMethodDef { ml_name, ml_meth: function, ml_flags: flags, ml_doc })
    }
}

/// Adds the methods to the class.
pub(super) fn install(class: &Bound<'_, PyType>) -> PyResult<()> {
    let py = class.py();
    for method in &METHODS {
        // SAFETY: the class is a type object, the entry is static; the interpreter only reads it. The result is a new
        // reference or null with an error set.
        let descriptor = unsafe {
            let entry = ptr::from_ref(&method.0).cast_mut();
            Bound::from_owned_ptr_or_err(py, ffi::PyDescr_NewMethod(class.as_type_ptr(), entry))?
        };
        // SAFETY: every name above is a static C string.
        let name = unsafe { CStr::from_ptr(method.0.ml_name) };
        class.setattr(name.to_str()?, descriptor)?;
    }
    Ok(())
}

/// Runs a method: `work` gets the pile and its arguments; its result becomes the interpreter's.
///
/// # Safety
/// Called by the interpreter as a method of `Pile`: the thread is attached, `slf` is a `Pile`, `args` points to
/// `count` borrowed objects (and those of the keywords).
#[inline(always)]
unsafe fn call(
    slf: *mut PyObject,
    args: *const *mut PyObject,
    count: isize,
    work: impl for<'py> FnOnce(Python<'py>, &Pile, &[Bound<'py, PyAny>]) -> PyResult<*mut PyObject>,
) -> *mut PyObject {
    // SAFETY: attached (duty of the caller).
    let py = unsafe { Python::assume_attached() };
    // SAFETY: the method descriptor has checked that `slf` is an instance of the class; it is borrowed for the call.
    // `Bound` has the layout of an object pointer, and borrowed ones are not dropped through a slice.
    let (slf, args) = unsafe {
        let args =
            if count == 0 { &[] } else { std::slice::from_raw_parts(args.cast::<Bound<'_, PyAny>>(), count as usize) };
        (Borrowed::from_ptr(py, slf), args)
    };
    // SAFETY: as above; the class is frozen, so a shared reference is all that exists.
    let slf = unsafe { slf.cast_unchecked::<Pile>() };
    let pile = slf.get();
    // A panic must not cross into C: it would be a bug, and becomes an exception.
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(py, pile, args)));
    match result {
        Ok(Ok(object)) => object,
        Ok(Err(error)) => {
            error.restore(py);
            ptr::null_mut()
        }
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().copied().unwrap_or("panic");
            exception(&py.get_type::<PySystemError>(), &format!("a bug in gabion: {text}")).restore(py);
            ptr::null_mut()
        }
    }
}

#[cold]
fn wrong_count(py: Python<'_>, usage: &str, given: isize) -> PyErr {
    type_error(py, &format!("{usage}: {given} positional arguments given"))
}

fn none(py: Python<'_>) -> *mut PyObject {
    py.None().into_ptr()
}

unsafe extern "C" fn put(
    slf: *mut PyObject,
    args: *const *mut PyObject,
    count: isize,
    names: *mut PyObject,
) -> *mut PyObject {
    let keywords = if names.is_null() {
        0
    } else {
        // SAFETY: the interpreter passes a tuple of names.
        unsafe { ffi::PyTuple_GET_SIZE(names) }
    };
    let work = |py: Python<'_>, this: &Pile, all: &[Bound<'_, PyAny>]| {
        let (positional, values) = all.split_at(count as usize);
        let [object] = positional else { return Err(wrong_count(py, "put(obj, *, reserve=0)", count)) };
        // SAFETY: `names` is a tuple of str when there are keywords.
        let reserve = if keywords == 0 { 0 } else { unsafe { reserve(py, names, values)? } };
        let put = |pile: &Store, encoding: &[u8]| {
            let pointer = pile.put(encoding, reserve).map_err(|error| Failure::Refused(error).raise(py))?;
            // SAFETY: attached; a new reference, or null with an error set, as this function's own result.
            let number = unsafe { number::object(pointer) };
            if number.is_null() {
                // No memory for the number: nobody would ever have the pointer.
                let _ = pile.remove(pointer);
            }
            Ok(number)
        };
        // SAFETY: the interpreter holds the argument over the call.
        unsafe { this.encoded(py, object.as_ptr(), put) }
    };
    // SAFETY: called by the interpreter; the values of keywords follow the positional arguments.
    unsafe { call(slf, args, count + keywords, work) }
}

/// Reads put()'s keywords.
///
/// # Safety
/// `names` is a tuple of str.
#[cold]
unsafe fn reserve(py: Python<'_>, names: *mut PyObject, values: &[Bound<'_, PyAny>]) -> PyResult<usize> {
    // SAFETY: borrowed from the interpreter for the call.
    let names = unsafe { Borrowed::from_ptr(py, names).cast_unchecked::<PyTuple>() };
    let mut reserve = 0;
    for (name, value) in names.iter().zip(values) {
        let name: String = name.extract()?;
        if name != "reserve" {
            let text = format!("put() got an unexpected keyword argument '{name}'; it takes reserve");
            return Err(type_error(py, &text));
        }
        reserve = value.extract().map_err(|error: PyErr| {
            if !error.is_instance_of::<PyOverflowError>(py) {
                return error;
            }
            let text = format!("reserve={value}: not a number of bytes; pass 0 or more");
            exception(&py.get_type::<PyValueError>(), &text)
        })?;
    }
    Ok(reserve)
}

unsafe extern "C" fn get(slf: *mut PyObject, args: *mut *mut PyObject, count: isize) -> *mut PyObject {
    let work = |py: Python<'_>, this: &Pile, args: &[Bound<'_, PyAny>]| {
        let (ptr, default) = match args {
            [ptr] => (ptr, None),
            [ptr, default] => (ptr, Some(default)),
            _ => return Err(wrong_count(py, "get(ptr[, default])", count)),
        };
        this.open(py)?;
        match number::pointer(ptr).and_then(|pointer| this.build(py, pointer)) {
            Ok(object) => Ok(object.into_ptr()),
            failed => or_default(py, failed, default.map(|default| default.clone().unbind())).map(Py::into_ptr),
        }
    };
    // SAFETY: called by the interpreter.
    unsafe { call(slf, args, count, work) }
}

unsafe extern "C" fn fields(slf: *mut PyObject, args: *mut *mut PyObject, count: isize) -> *mut PyObject {
    let work = |py: Python<'_>, this: &Pile, args: &[Bound<'_, PyAny>]| {
        let Some((ptr, names)) = args.split_first() else { return Err(wrong_count(py, "fields(ptr, *names)", count)) };
        let pile = this.open(py)?;
        let fields = || -> Result<_, Failure> {
            let pointer = number::pointer(ptr)?;
            with_payload(|buffer| Ok(this.codec.decode_fields(py, pile.read(pointer, buffer)?, names)?))
        };
        Ok(or_default(py, fields(), None)?.into_any().into_ptr())
    };
    // SAFETY: called by the interpreter.
    unsafe { call(slf, args, count, work) }
}

unsafe extern "C" fn replace(slf: *mut PyObject, args: *mut *mut PyObject, count: isize) -> *mut PyObject {
    let work = |py: Python<'_>, this: &Pile, args: &[Bound<'_, PyAny>]| {
        let [ptr, object] = args else { return Err(wrong_count(py, "replace(ptr, obj)", count)) };
        this.open(py)?;
        let pointer = or_default(py, number::pointer(ptr), None)?;
        let replace = |pile: &Store, encoding: &[u8]| {
            pile.replace(pointer, encoding).map_err(|error| Failure::Refused(error).raise(py))?;
            Ok(none(py))
        };
        // SAFETY: the interpreter holds the argument over the call.
        unsafe { this.encoded(py, object.as_ptr(), replace) }
    };
    // SAFETY: called by the interpreter.
    unsafe { call(slf, args, count, work) }
}

unsafe extern "C" fn remove(slf: *mut PyObject, args: *mut *mut PyObject, count: isize) -> *mut PyObject {
    let work = |py: Python<'_>, this: &Pile, args: &[Bound<'_, PyAny>]| {
        let [ptr] = args else { return Err(wrong_count(py, "remove(ptr)", count)) };
        let pile = this.open(py)?;
        or_default(py, number::pointer(ptr).and_then(|pointer| Ok(pile.remove(pointer)?)), None)?;
        Ok(none(py))
    };
    // SAFETY: called by the interpreter.
    unsafe { call(slf, args, count, work) }
}
