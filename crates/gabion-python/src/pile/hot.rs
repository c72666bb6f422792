//! `put`, `get`, `fields`, `replace`, `remove`: the calls that a program makes millions of times.
//!
//! They are written against the C API: see `fastcall`.

use gabion_pile::{Pile as Store, Value};
use pyo3::ffi::PyObject;
use pyo3::prelude::*;
use pyo3::types::PyType;

use super::number;
use super::refusal::{self, Failure, or_default};
use super::state::Pile;
use crate::fastcall::{
    self, Keywords, Method, call, call_with_keywords, none, one_and_default, unexpected, wrong_count,
};
use crate::size;

static METHODS: [Method; 5] = [
    Method::with_keywords(
        c"put",
        put,
        c"put($self, obj, /, *, reserve=0)\n--\n\n\
Store a copy of an object graph and return its pointer, an int below 2**60.\n\n\
Everything that obj refers to is copied: containers, instances with __dict__ or __slots__, dataclasses, named\n\
tuples, enums, dates, decimals, arrays, and whatever else pickle can store. References that are shared within obj stay\n\
shared, and cycles stay cycles. None is an object like any other.\n\n\
reserve (bytes, or text such as \"4 KiB\") is kept free behind the object, so that replace() can make it that much larger\n\
in place, even when the pile is full. A reserve that makes both together larger than 1 MiB is cut down to that.\n\n\
Raises CodecError when something in the graph cannot be stored, LimitError when the pile has no room, MemoryError when\n\
the system has none; the pile is unchanged then. Takes time linear in the size of the graph.\n\n\
>>> import gabion\n\
>>> pile = gabion.Pile()\n\
>>> pointer = pile.put([1, 'two', {3.0}])\n\
>>> pile.get(pointer)\n\
[1, 'two', {3.0}]\n",
    ),
    Method::with_keywords(
        c"get",
        get,
        c"get($self, ptr, /, default=...)\n--\n\n\
Build and return the object behind a pointer: equal to what was put, and new at every call.\n\n\
With a default, that is returned when the pointer is not live. Without (the ... of the signature), PointerError says what is wrong: the object\n\
was removed, the pointer is another pile's, or no pile's. Takes time linear in the object, and no lock but for a moment\n\
where it is larger than 1 MiB, or where writers disturb it again and again.\n\n\
Raises CodecError when the object's class refuses to build it or, in a file, is not among types; CorruptFileError when\n\
another program has changed the file; ClosedError after close(). What the class's own code raises otherwise passes.\n\n\
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
named tuple, values of a dict by str key. The other fields are skipped; takes time linear in what is stored. Of a class\n\
that has changed since, a field that is no more can still be read: see docs/pile.md, \"What may be built\".\n\n\
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
object cannot be stored, LimitError or MemoryError when there is no room; the old object stays then.\n\n\
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

/// Adds the methods to the class.
pub(super) fn install(class: &Bound<'_, PyType>) -> PyResult<()> {
    fastcall::install(class, &METHODS)
}

unsafe extern "C" fn put(
    slf: *mut PyObject,
    args: *const *mut PyObject,
    count: isize,
    names: *mut PyObject,
) -> *mut PyObject {
    let work = |py: Python<'_>, this: &Pile, args: &[Bound<'_, PyAny>], keywords: Keywords<'_, '_>| {
        let [object] = args else {
            return Err(wrong_count(py, "put(obj, /, *, reserve=0) takes obj by position", args.len()));
        };
        let reserve = if keywords.is_empty() { 0 } else { reserve(py, &keywords)? };
        let put = |pile: &Store, value: Value<'_>| {
            let pointer = pile.put_pieces(value, reserve).map_err(|error| Failure::Refused(error).raise(py))?;
            // SAFETY: attached; a new reference, or null with an error set, as this function's own result.
            let number = unsafe { number::object(pointer) };
            if number.is_null() {
                // No memory for the number: nobody would ever have the pointer.
                let _ = pile.remove(pointer);
            }
            Ok(number)
        };
        this.encoded(object, put)
    };
    // SAFETY: called by the interpreter.
    unsafe { call_with_keywords(slf, args, count, names, work) }
}

/// Reads put()'s keywords.
#[cold]
fn reserve(py: Python<'_>, keywords: &Keywords<'_, '_>) -> PyResult<usize> {
    let mut reserve = 0;
    keywords.each(|name, value| {
        if name != "reserve" {
            return Err(unexpected(py, "put", name, "reserve"));
        }
        reserve = size::length(name, value)?;
        Ok(())
    })?;
    Ok(reserve)
}

unsafe extern "C" fn get(
    slf: *mut PyObject,
    args: *const *mut PyObject,
    count: isize,
    names: *mut PyObject,
) -> *mut PyObject {
    let work = |py: Python<'_>, this: &Pile, args: &[Bound<'_, PyAny>], keywords: Keywords<'_, '_>| {
        let (ptr, default) = one_and_default(py, ("get", "get(ptr, default=...)"), args, &keywords)?;
        this.open(py)?;
        match number::pointer(ptr).and_then(|pointer| this.build(py, pointer)) {
            Ok(object) => Ok(object.into_ptr()),
            failed => or_default(py, failed, default.map(|default| default.clone().unbind())).map(Py::into_ptr),
        }
    };
    // SAFETY: called by the interpreter.
    unsafe { call_with_keywords(slf, args, count, names, work) }
}

unsafe extern "C" fn fields(slf: *mut PyObject, args: *mut *mut PyObject, count: isize) -> *mut PyObject {
    let work = |py: Python<'_>, this: &Pile, args: &[Bound<'_, PyAny>]| {
        let Some((ptr, names)) = args.split_first() else {
            return Err(wrong_count(py, "fields(ptr, *names)", args.len()));
        };
        this.open(py)?;
        let fields = || -> Result<_, Failure> {
            let pointer = number::pointer(ptr)?;
            this.with_run(|buffer| {
                let found = this.codec.decode_fields(py, this.open(py)?.read(pointer, buffer)?, names);
                Ok(found.map_err(|error| refusal::not_read(py, error, pointer))?)
            })
        };
        Ok(or_default(py, fields(), None)?.into_any().into_ptr())
    };
    // SAFETY: called by the interpreter.
    unsafe { call(slf, args, count, work) }
}

unsafe extern "C" fn replace(slf: *mut PyObject, args: *mut *mut PyObject, count: isize) -> *mut PyObject {
    let work = |py: Python<'_>, this: &Pile, args: &[Bound<'_, PyAny>]| {
        let [ptr, object] = args else { return Err(wrong_count(py, "replace(ptr, obj)", args.len())) };
        this.open_to_change(py)?;
        let pointer = or_default(py, number::pointer(ptr), None)?;
        let replace = |pile: &Store, value: Value<'_>| {
            pile.replace_pieces(pointer, value).map_err(|error| Failure::Refused(error).raise(py))?;
            Ok(none(py))
        };
        this.encoded(object, replace)
    };
    // SAFETY: called by the interpreter.
    unsafe { call(slf, args, count, work) }
}

unsafe extern "C" fn remove(slf: *mut PyObject, args: *mut *mut PyObject, count: isize) -> *mut PyObject {
    let work = |py: Python<'_>, this: &Pile, args: &[Bound<'_, PyAny>]| {
        let [ptr] = args else { return Err(wrong_count(py, "remove(ptr)", args.len())) };
        this.open_to_change(py)?;
        // Asked again: what turns into an int may have closed the pile.
        let removed = number::pointer(ptr).and_then(|pointer| Ok(this.open_to_change(py)?.remove(pointer)?));
        or_default(py, removed, None)?;
        Ok(none(py))
    };
    // SAFETY: called by the interpreter.
    unsafe { call(slf, args, count, work) }
}
