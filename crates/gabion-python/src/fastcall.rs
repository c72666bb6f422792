//! Methods written against the C API: fast call, no argument tuple, no wrapper. For what a program calls millions of
//! times.
//!
//! A table of [`Method`]s is added to a class when the module is made. Each function's duty towards the interpreter is
//! the same: arguments are borrowed, the result is a new reference, or null with an error set.

use std::ffi::{CStr, c_char};
use std::ptr;

use pyo3::PyClass;
use pyo3::exceptions::PySystemError;
use pyo3::ffi::{self, PyObject};
use pyo3::prelude::*;
use pyo3::pyclass::boolean_struct::True;
use pyo3::types::{PyDict, PyTuple, PyType};

use crate::errors::{exception, type_error};
use crate::result;

/// A method table entry whose strings live for ever.
pub(crate) struct Method(ffi::PyMethodDef);

// SAFETY: the entry is never written after it is made, and points to static strings and functions.
unsafe impl Sync for Method {}

/// A function with positional arguments.
pub(crate) type Fast = unsafe extern "C" fn(*mut PyObject, *mut *mut PyObject, isize) -> *mut PyObject;
/// A function with keywords, too.
pub(crate) type FastKeywords =
    unsafe extern "C" fn(*mut PyObject, *const *mut PyObject, isize, *mut PyObject) -> *mut PyObject;

impl Method {
    pub(crate) const fn fast(name: &'static CStr, function: Fast, doc: &'static CStr) -> Self {
        Self::new(name, ffi::PyMethodDefPointer { PyCFunctionFast: function }, ffi::METH_FASTCALL, doc)
    }

    pub(crate) const fn with_keywords(name: &'static CStr, function: FastKeywords, doc: &'static CStr) -> Self {
        let flags = ffi::METH_FASTCALL | ffi::METH_KEYWORDS;
        Self::new(name, ffi::PyMethodDefPointer { PyCFunctionFastWithKeywords: function }, flags, doc)
    }

    const fn new(name: &'static CStr, function: ffi::PyMethodDefPointer, flags: i32, doc: &'static CStr) -> Self {
        let (ml_name, ml_doc): (*const c_char, *const c_char) = (name.as_ptr(), doc.as_ptr());
        Self(ffi::PyMethodDef { ml_name, ml_meth: function, ml_flags: flags, ml_doc })
    }
}

/// Adds methods to a class.
pub(crate) fn install(class: &Bound<'_, PyType>, methods: &'static [Method]) -> PyResult<()> {
    let py = class.py();
    for method in methods {
        // SAFETY: the class is a type object, the entry is static; the interpreter only reads it. The result is a new
        // reference or null with an error set.
        let descriptor = unsafe {
            let entry = ptr::from_ref(&method.0).cast_mut();
            Bound::from_owned_ptr_or_err(py, ffi::PyDescr_NewMethod(class.as_type_ptr(), entry))?
        };
        // SAFETY: every name in a table is a static C string.
        let name = unsafe { CStr::from_ptr(method.0.ml_name) };
        class.setattr(name.to_str()?, descriptor)?;
    }
    Ok(())
}

/// Runs a method: `work` gets what the object holds, and the arguments; its result becomes the interpreter's.
///
/// # Safety
/// Called by the interpreter as a method of the class `T`: the thread is attached, `slf` is an instance of `T`, `args`
/// points to `count` borrowed objects (those of the keywords included).
#[inline(always)]
pub(crate) unsafe fn call<T: PyClass<Frozen = True> + Sync>(
    slf: *mut PyObject,
    args: *const *mut PyObject,
    count: isize,
    work: impl for<'py> FnOnce(Python<'py>, &T, &[Bound<'py, PyAny>]) -> PyResult<*mut PyObject>,
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
    let slf = unsafe { slf.cast_unchecked::<T>() };
    let this = slf.get();
    // A panic must not cross into C: it would be a bug, and becomes an exception.
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(py, this, args)));
    match result {
        Ok(Ok(object)) => object,
        Ok(Err(error)) => {
            error.restore(py);
            ptr::null_mut()
        }
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("panic");
            exception(&py.get_type::<PySystemError>(), &format!("a bug in gabion: {text}")).restore(py);
            ptr::null_mut()
        }
    }
}

/// Runs what drops references of PyO3's own kind (`Py`), for a method that was called by [`call`]. PyO3 gives a
/// reference back at once only on a thread that it has attached itself, and keeps it until some later call otherwise.
pub(crate) fn counted<R>(_py: Python<'_>, work: impl FnOnce() -> R) -> R {
    // SAFETY: attached (`_py`), so the interpreter is there, and to attach once more only counts.
    unsafe { Python::attach_unchecked(|_| work()) }
}

/// As [`call`], for a function with keywords: `work` also gets their names, whose values come after the positional
/// arguments.
///
/// # Safety
/// As [`call`]; `count` positional arguments, and `names` is null or the tuple of the keywords' names.
#[inline(always)]
pub(crate) unsafe fn call_with_keywords<T: PyClass<Frozen = True> + Sync>(
    slf: *mut PyObject,
    args: *const *mut PyObject,
    count: isize,
    names: *mut PyObject,
    work: impl for<'py> FnOnce(Python<'py>, &T, &[Bound<'py, PyAny>], Keywords<'_, 'py>) -> PyResult<*mut PyObject>,
) -> *mut PyObject {
    let keywords = if names.is_null() {
        0
    } else {
        // SAFETY: the interpreter passes null or a tuple of names.
        unsafe { ffi::PyTuple_GET_SIZE(names) }
    };
    let work = |py: Python<'_>, this: &T, all: &[Bound<'_, PyAny>]| {
        let (positional, values) = all.split_at(count as usize);
        // SAFETY: there are keywords, so it is the tuple of their names, borrowed from the interpreter for the call.
        let tuple = || unsafe { Borrowed::from_ptr(py, names).cast_unchecked::<PyTuple>().to_owned() };
        let names = (keywords > 0).then(tuple);
        work(py, this, positional, Keywords { names, values })
    };
    // SAFETY: called by the interpreter; the values of keywords follow the positional arguments.
    unsafe { call(slf, args, count + keywords, work) }
}

/// A call's keywords.
pub(crate) struct Keywords<'a, 'py> {
    names: Option<Bound<'py, PyTuple>>,
    values: &'a [Bound<'py, PyAny>],
}

impl<'py> Keywords<'_, 'py> {
    /// Whether there are none.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The keywords as a dict.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub(crate) fn to_dict(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = result::dict(py)?;
        let names = self.names.iter().flat_map(PyTupleMethods::iter);
        names.zip(self.values).try_for_each(|(name, value)| dict.set_item(name, value))?;
        Ok(dict)
    }

    /// Calls `take` with each keyword.
    ///
    /// # Errors
    /// Those of `take`.
    pub(crate) fn each(&self, mut take: impl FnMut(&str, &Bound<'py, PyAny>) -> PyResult<()>) -> PyResult<()> {
        let Some(names) = &self.names else { return Ok(()) };
        for (name, value) in names.iter().zip(self.values) {
            take(name.cast::<pyo3::types::PyString>()?.to_str()?, value)?;
        }
        Ok(())
    }
}

/// The arguments of a call that takes one thing, and a default by its place or by name. `usage` is for whoever passes
/// others.
///
/// # Errors
/// `TypeError` for any others.
#[inline]
pub(crate) fn one_and_default<'a, 'py>(
    py: Python<'py>,
    (function, usage): (&str, &str),
    args: &'a [Bound<'py, PyAny>],
    keywords: &Keywords<'a, 'py>,
) -> PyResult<(&'a Bound<'py, PyAny>, Option<&'a Bound<'py, PyAny>>)> {
    let (one, default) = match args {
        [one] => (one, None),
        [one, default] => (one, Some(default)),
        _ => return Err(wrong_count(py, usage, args.len())),
    };
    if keywords.is_empty() {
        return Ok((one, default));
    }
    Ok((one, Some(default_of(py, function, keywords, default.is_some())?)))
}

/// The one keyword, where some are given.
#[cold]
fn default_of<'a, 'py>(
    py: Python<'py>,
    function: &str,
    keywords: &Keywords<'a, 'py>,
    given: bool,
) -> PyResult<&'a Bound<'py, PyAny>> {
    keywords.each(|name, _| if name == "default" { Ok(()) } else { Err(unexpected(py, function, name, "default")) })?;
    match keywords.values {
        [default] if !given => Ok(default),
        _ => Err(type_error(py, &format!("{function}() takes default once"))),
    }
}

/// The error of a call with too few or too many arguments.
#[cold]
pub(crate) fn wrong_count(py: Python<'_>, usage: &str, given: usize) -> PyErr {
    type_error(py, &format!("{usage}: {given} positional arguments given"))
}

/// The error of a call with a keyword that the function does not take.
#[cold]
pub(crate) fn unexpected(py: Python<'_>, function: &str, name: &str, takes: &str) -> PyErr {
    type_error(py, &format!("{function}() got an unexpected keyword argument '{name}'; it takes {takes}"))
}

/// None, as a new reference.
pub(crate) fn none(py: Python<'_>) -> *mut PyObject {
    py.None().into_ptr()
}
