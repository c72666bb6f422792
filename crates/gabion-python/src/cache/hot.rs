//! `get`, `put`, `add`, `get_or_put`, `pop`, `expires_in`, `discard`, and how memoized functions look: the calls that a
//! program makes millions of times.
//!
//! They are written against the C API: see `fastcall`.

use std::ffi::c_int;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use gabion_cache::PutResult;
use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyType};

use super::state::{CacheTable, missing, result_of};
use super::{arguments, key, making, options};
use crate::fastcall::{self, Keywords, Method, call, call_with_keywords, none, one_and_default, wrong_count};
use crate::once::intern;
use crate::result;
use crate::scratch::with_key;

static METHODS: [Method; 9] = [
    Method::with_keywords(
        c"get",
        get,
        c"get($self, key, /, default=None)\n--\n\n\
The key's value, built anew at every call, or default. An expired value is none.\n\n\
Takes no lock, and time linear in the value. Raises CodecError when the value's class refuses to build it: at each get,\n\
until it ends or is discarded.\n\n\
>>> import gabion\n\
>>> cache = gabion.Cache('64 MiB')\n\
>>> cache['stone'] = [4, 'MiB']\n\
>>> cache.get('stone')\n\
[4, 'MiB']\n\
>>> cache.get('gravel', 'none')\n\
'none'\n",
    ),
    Method::with_keywords(
        c"put",
        put,
        c"put($self, key, value, /, *, ttl=None, idle=None, expires_at=None, priority=0)\n--\n\n\
Store a copy of value and return a PutResult: INSERTED, REPLACED, or REJECTED when there is no room, because the value\n\
is larger than the limit or only values of a higher priority could make room. After REJECTED the key has no value, so\n\
that the earlier one is not taken for the new one.\n\n\
ttl and idle are seconds, text such as '5 min', or a timedelta; None means the table's, float('inf') without end.\n\
expires_at, which takes the place of the table's ttl, is a datetime (local time if it has no time zone) or seconds since\n\
1970; what ends first counts, of that, a ttl given here, and the idle time. The clock on the wall is read once, now: one\n\
that is set later changes nothing. While the machine is suspended, times stand still. priority is -128 to 127: a put\n\
evicts only values of its own priority or a lower one, lowest first.\n\n\
Raises TypeError for a key that is no str, bytes, int, float, date, UUID, None or tuple of them, CodecError when the\n\
value cannot be stored; the earlier value stays then. As an expires_at, a number from above 0 to below 10**8, which is in 1970 to 1973,\n\
is a ValueError: seconds from now are a ttl.\n",
    ),
    Method::with_keywords(
        c"add",
        add,
        c"add($self, key, value, /, *, ttl=None, idle=None, expires_at=None, priority=0)\n--\n\n\
Store value only if the key has none; keywords are those of put(). Returns whether it was stored.\n",
    ),
    Method::with_keywords(
        c"_add",
        try_add,
        c"_add($self, key, value, /, *, ttl=None, idle=None, expires_at=None, priority=0)\n--\n\n\
As add(), but where the key has a value this is None, and False only where there was no room.\n",
    ),
    Method::with_keywords(
        c"get_or_put",
        get_or_put,
        c"get_or_put($self, key, factory, *, ttl=None, stale=None, idle=None, expires_at=None, priority=0, timeout=None)\n--\n\n\
Return the key's value, or call factory(), store what it returns, and return that.\n\n\
However many threads ask for a key that is not there, one factory runs; the others wait for its value. If it raises,\n\
nothing is stored, and those who wait get the same error, unless it is no Exception, as KeyboardInterrupt: then one\n\
after the other tries. Who asks after that runs a factory anew. No lock is held meanwhile. The value is returned\n\
even when there is no room to keep it. If the key is put, discarded or cleared while the factory runs, its value is\n\
returned, but not kept, and who asks after that runs a factory of their own.\n\n\
ttl, idle, expires_at and priority are those of put(), for a value that is made now. ttl may also be a function of the\n\
value that returns one: None is the table's own, and a value whose ttl is 0 is returned, but not kept. timeout (as a\n\
ttl; None is without end, 0 no wait at all) is how long to wait for a value that another call makes; then it is a\n\
TimeoutError. The call's own factory is not bounded by it.\n\n\
stale (as a ttl) is how long a value still serves when its ttl is over (HTTP's stale-while-revalidate): the first call\n\
that finds it so runs its factory, and the others have the old value at once until that ends. If the factory raises, its\n\
call has the old value, too, and the error goes to the log 'gabion.cache'. The value lies in the cache for ttl + stale,\n\
for get() as well; one that has stale or less left counts as over. Not with idle times or expires_at.\n\n\
With a coroutine function as factory this returns a coroutine to be awaited, and tasks take the places of\n\
threads. Both kinds of callers may wait for each other's factories. Under asyncio the factory runs in a task of its\n\
own, in a copy of its first caller's context: a caller that is cancelled leaves it to the others, and with the last\n\
one it is cancelled, too.\n\n\
Raises RuntimeError instead of waiting for ever: for a factory that asks for its own key, factories that wait\n\
for each other, and a plain call on the thread whose event loop runs the key's factory. What a factory starts\n\
with asyncio counts as the factory: its tasks, and what it hands to asyncio.to_thread(). Other threads do not, unless\n\
they run in its context: if a factory waits for one that asks for the key, both wait for ever. Hand an executor\n\
contextvars.copy_context().run and the function, or wait with a timeout.\n\n\
>>> import gabion\n\
>>> cache = gabion.Cache('64 MiB')\n\
>>> cache.get_or_put('report', lambda: ['slow', 'query'], ttl=60)\n\
['slow', 'query']\n\
>>> cache.get_or_put('report', lambda: 'not called again')\n\
['slow', 'query']\n",
    ),
    Method::with_keywords(
        c"pop",
        pop,
        c"pop($self, key, /, default=...)\n--\n\n\
Get and remove in one step. Without a default, a key that is not there is a KeyError. Takes time linear in the value.\n\n\
A value that cannot be built stays. Where another one comes between each time it is built, it is removed first, and put\n\
back if it cannot be built: unless the key has a newer one by then, or there is no room any more.\n\n\
>>> import gabion\n\
>>> cache = gabion.Cache('64 MiB')\n\
>>> cache['stone'] = 4\n\
>>> cache.pop('stone'), cache.pop('stone', None)\n\
(4, None)\n",
    ),
    Method::with_keywords(
        c"expires_in",
        expires_in,
        c"expires_in($self, key, /, default=...)\n--\n\n\
The seconds until the key's value ends if nobody asks for it until then, as a float; inf when it has no end. Without a\n\
default, a key that is not there is a KeyError. Counts as no use: neither as a hit, nor against an idle time.\n\n\
>>> import gabion\n\
>>> cache = gabion.Cache('64 MiB')\n\
>>> cache['stone'] = 4\n\
>>> cache.expires_in('stone'), cache.expires_in('gravel', None)\n\
(inf, None)\n\
>>> cache.touch('stone', ttl=60)\n\
True\n\
>>> 0 < cache.expires_in('stone') <= 60\n\
True\n",
    ),
    Method::fast(
        c"discard",
        discard,
        c"discard($self, key, /)\n--\n\nRemove the key's value. Returns whether there was one.\n",
    ),
    Method::fast(
        c"_recall",
        recall,
        c"_recall($self, args, kwargs, default, /)\n--\n\nThe value that get(_call_key(args, kwargs), default) returns.\n",
    ),
];

/// Adds the methods to the class.
pub(super) fn install(class: &Bound<'_, PyType>) -> PyResult<()> {
    fastcall::install(class, &METHODS)
}

unsafe extern "C" fn get(
    slf: *mut PyObject,
    args: *const *mut PyObject,
    count: isize,
    names: *mut PyObject,
) -> *mut PyObject {
    let work = |py: Python<'_>, this: &CacheTable, args: &[Bound<'_, PyAny>], keywords: Keywords<'_, '_>| {
        let (key, default) = one_and_default(py, ("get", "get(key, default=None)"), args, &keywords)?;
        Ok(match this.open(py)?.build(py, key)? {
            Some(object) => object.into_ptr(),
            None => default.map_or_else(|| none(py), |default| default.clone().into_ptr()),
        })
    };
    // SAFETY: called by the interpreter.
    unsafe { call_with_keywords(slf, args, count, names, work) }
}

unsafe extern "C" fn get_or_put(
    slf: *mut PyObject,
    args: *const *mut PyObject,
    count: isize,
    names: *mut PyObject,
) -> *mut PyObject {
    let work = |py: Python<'_>, this: &CacheTable, args: &[Bound<'_, PyAny>], keywords: Keywords<'_, '_>| {
        // SAFETY: the object whose method is called, borrowed for the call.
        let table = unsafe { Borrowed::from_ptr(py, slf) };
        let (key, factory) = match args {
            [key, factory] if is_plain(factory)? && !options::are_of_python(&keywords)? => (key, factory),
            _ => {
                let args = result::tuple(py, args.iter().cloned())?;
                return table
                    .call_method(intern!(py, "_gabion_get_or_put")?, args, Some(&keywords.to_dict(py)?))
                    .map(Bound::into_ptr);
            }
        };
        let (options, timeout) = options::of_making(py, "get_or_put", &keywords)?;
        if let Some(object) = this.open(py)?.build(py, key)? {
            return Ok(object.into_ptr());
        }
        // SAFETY: an instance of the class whose method this is.
        let table = unsafe { table.cast_unchecked::<CacheTable>() };
        let deadline = making::deadline(py, timeout)?;
        key::with(key, |key| making::make(&table, key, factory, deadline, |_| Ok(Some(options)))).map(Py::into_ptr)
    };
    // SAFETY: called by the interpreter.
    unsafe { call_with_keywords(slf, args, count, names, work) }
}

/// Whether an object is a function that was written with `def` or `lambda`, makes no coroutine, and was not marked as
/// one that does: attributes of its own are looked into by `is_asynchronous` in Python, which decides all other cases.
fn is_plain(factory: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = factory.py();
    // SAFETY: alive, and a function by the first look. The field is null or a dict; where there is no global lock,
    // another thread may set it: then either is right.
    unsafe {
        if ffi::Py_TYPE(factory.as_ptr()) != &raw mut ffi::PyFunction_Type {
            return Ok(false);
        }
        let own = &raw mut (*factory.as_ptr().cast::<ffi::PyFunctionObject>()).func_dict;
        // Relaxed: only whether there is one.
        if !AtomicPtr::from_ptr(own).load(Relaxed).is_null() {
            return Ok(false);
        }
    }
    // Not borrowed: another thread may give the function other code.
    let code = factory.getattr(intern!(py, "__code__")?)?;
    Ok(code.getattr(intern!(py, "co_flags")?)?.extract::<c_int>()? & ffi::CO_COROUTINE == 0)
}

unsafe extern "C" fn pop(
    slf: *mut PyObject,
    args: *const *mut PyObject,
    count: isize,
    names: *mut PyObject,
) -> *mut PyObject {
    let work = |py: Python<'_>, this: &CacheTable, args: &[Bound<'_, PyAny>], keywords: Keywords<'_, '_>| {
        let (key, default) = one_and_default(py, ("pop", "pop(key, default=...)"), args, &keywords)?;
        match (this.open(py)?.take(py, key)?, default) {
            (Some(object), _) => Ok(object.into_ptr()),
            (None, Some(default)) => Ok(default.clone().into_ptr()),
            (None, None) => Err(missing(key)),
        }
    };
    // SAFETY: called by the interpreter.
    unsafe { call_with_keywords(slf, args, count, names, work) }
}

unsafe extern "C" fn expires_in(
    slf: *mut PyObject,
    args: *const *mut PyObject,
    count: isize,
    names: *mut PyObject,
) -> *mut PyObject {
    let work = |py: Python<'_>, this: &CacheTable, args: &[Bound<'_, PyAny>], keywords: Keywords<'_, '_>| {
        let usage = ("expires_in", "expires_in(key, default=...)");
        let (key, default) = one_and_default(py, usage, args, &keywords)?;
        match (this.open(py)?.expires_in(key)?, default) {
            (Some(Duration::MAX), _) => Ok(result::float(py, f64::INFINITY)?.into_any().into_ptr()),
            (Some(left), _) => Ok(result::float(py, left.as_secs_f64())?.into_any().into_ptr()),
            (None, Some(default)) => Ok(default.clone().into_ptr()),
            (None, None) => Err(missing(key)),
        }
    };
    // SAFETY: called by the interpreter.
    unsafe { call_with_keywords(slf, args, count, names, work) }
}

unsafe extern "C" fn put(
    slf: *mut PyObject,
    args: *const *mut PyObject,
    count: isize,
    names: *mut PyObject,
) -> *mut PyObject {
    let work = |py: Python<'_>, this: &CacheTable, args: &[Bound<'_, PyAny>], keywords: Keywords<'_, '_>| {
        let [key, value] = args else {
            return Err(wrong_count(py, "put(key, value, *, ttl, idle, expires_at, priority)", args.len()));
        };
        let options = options::of_put(py, "put", &keywords)?;
        let result = this.open(py)?.store(key, value, &options, false)?;
        result_of(py, result.unwrap_or(PutResult::Rejected)).map(Py::into_ptr)
    };
    // SAFETY: called by the interpreter.
    unsafe { call_with_keywords(slf, args, count, names, work) }
}

unsafe extern "C" fn add(
    slf: *mut PyObject,
    args: *const *mut PyObject,
    count: isize,
    names: *mut PyObject,
) -> *mut PyObject {
    let work = |py: Python<'_>, this: &CacheTable, args: &[Bound<'_, PyAny>], keywords: Keywords<'_, '_>| {
        Ok(truth(py, added(py, this, args, &keywords)? == Some(true)))
    };
    // SAFETY: called by the interpreter.
    unsafe { call_with_keywords(slf, args, count, names, work) }
}

unsafe extern "C" fn try_add(
    slf: *mut PyObject,
    args: *const *mut PyObject,
    count: isize,
    names: *mut PyObject,
) -> *mut PyObject {
    let work = |py: Python<'_>, this: &CacheTable, args: &[Bound<'_, PyAny>], keywords: Keywords<'_, '_>| {
        Ok(added(py, this, args, &keywords)?.map_or_else(|| none(py), |added| truth(py, added)))
    };
    // SAFETY: called by the interpreter.
    unsafe { call_with_keywords(slf, args, count, names, work) }
}

/// Whether there was room for a value of a key that had none; `None` where the key has one.
fn added<'py>(
    py: Python<'py>,
    this: &CacheTable,
    args: &[Bound<'py, PyAny>],
    keywords: &Keywords<'_, 'py>,
) -> PyResult<Option<bool>> {
    let [key, value] = args else {
        return Err(wrong_count(py, "add(key, value, *, ttl, idle, expires_at, priority)", args.len()));
    };
    let options = options::of_put(py, "add", keywords)?;
    let result = this.open(py)?.store(key, value, &options, true)?;
    Ok(result.map(|result| result != PutResult::Rejected))
}

unsafe extern "C" fn discard(slf: *mut PyObject, args: *mut *mut PyObject, count: isize) -> *mut PyObject {
    let work = |py: Python<'_>, this: &CacheTable, args: &[Bound<'_, PyAny>]| {
        let [key] = args else { return Err(wrong_count(py, "discard(key)", args.len())) };
        Ok(truth(py, this.open(py)?.remove(key)?))
    };
    // SAFETY: called by the interpreter.
    unsafe { call(slf, args, count, work) }
}

unsafe extern "C" fn recall(slf: *mut PyObject, args: *mut *mut PyObject, count: isize) -> *mut PyObject {
    let work = |py: Python<'_>, this: &CacheTable, args: &[Bound<'_, PyAny>]| {
        let [args, named, default] = args else {
            return Err(wrong_count(py, "_recall(args, kwargs, default)", args.len()));
        };
        let inner = this.open(py)?;
        let found = with_key(|key| {
            arguments::write(args, named, key)?;
            inner.build_at(py, key)
        })?;
        Ok(found.map_or_else(|| default.clone().into_ptr(), Py::into_ptr))
    };
    // SAFETY: called by the interpreter.
    unsafe { call(slf, args, count, work) }
}

/// True or False, as a new reference.
fn truth(py: Python<'_>, value: bool) -> *mut PyObject {
    PyBool::new(py, value).to_owned().into_any().into_ptr()
}
