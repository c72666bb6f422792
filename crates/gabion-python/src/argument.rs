//! Arguments of the plain kinds as callers write them: flags, whole numbers, functions, iterables. Sizes and times have
//! modules of their own. What is refused is told in one form: the argument, what was given for it, what to pass.

use std::convert::Infallible;
use std::ffi::{CStr, OsString};
use std::ops::RangeInclusive;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use pyo3::exceptions::{PyAttributeError, PyMemoryError, PyTypeError, PyUnicodeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes};

use crate::errors::{class_name, exception, full_name, shown, type_error, value_error};
use crate::{ffi, result};

/// The path that a str or an os.PathLike stands for; `None` for other objects.
pub(crate) fn path(value: &Bound<'_, PyAny>) -> PyResult<Option<PathBuf>> {
    let (py, mut encoded) = (value.py(), std::ptr::null_mut::<ffi::PyObject>());
    // SAFETY: attached; live objects; a new reference or null with an error set; a bytes, whose characters live as long
    // as it.
    unsafe {
        if ffi::PyUnicode_Check(value.as_ptr()) == 0 {
            let method = ffi::PyObject_GetAttrString(value.as_ptr(), c"__fspath__".as_ptr());
            match Bound::from_owned_ptr_or_err(py, method) {
                Ok(_) => {}
                Err(error) if error.is_instance_of::<PyAttributeError>(py) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        if ffi::PyUnicode_FSConverter(value.as_ptr(), (&raw mut encoded).cast()) == 0 {
            let error = PyErr::fetch(py);
            // Where it is no str, its own code may have raised.
            let text = ffi::PyUnicode_Check(value.as_ptr()) != 0;
            let null = text && error.is_instance_of::<PyValueError>(py) && !error.is_instance_of::<PyUnicodeError>(py);
            return Err(if null { value_error(py, "the path holds a null byte") } else { error });
        }
        let encoded = Bound::from_owned_ptr(py, encoded).cast_into_unchecked::<PyBytes>();
        let bytes = encoded.as_bytes();
        let mut path = Vec::new();
        path.try_reserve_exact(bytes.len())
            .map_err(|_| exception(&py.get_type::<PyMemoryError>(), "no memory for a path"))?;
        path.extend_from_slice(bytes);
        Ok(Some(OsString::from_vec(path).into()))
    }
}

/// Whether a value is of a class of NumPy's own with one of these names. No subclass: that may be in a way of its own.
pub(crate) fn is_of_numpy(value: &Bound<'_, PyAny>, names: &[&str]) -> bool {
    let class = value.get_type_ptr();
    // SAFETY: attached; an object's class is alive as long as it, and its name as long as the class. What Python code
    // defines is on the heap, whatever it is called.
    unsafe {
        if ffi::PyType_GetFlags(class) & ffi::Py_TPFLAGS_HEAPTYPE != 0 {
            return false;
        }
        let name = CStr::from_ptr((*class).tp_name).to_bytes();
        name.strip_prefix(b"numpy.").is_some_and(|name| names.iter().any(|known| known.as_bytes() == name))
    }
}

/// A path as a str.
pub(crate) fn shown_path<'py>(py: Python<'py>, path: &Path) -> PyResult<Bound<'py, PyAny>> {
    let bytes = path.as_os_str().as_bytes();
    // SAFETY: attached; the characters are copied; a new reference, or null with an error set.
    unsafe {
        let text = ffi::PyUnicode_DecodeFSDefaultAndSize(bytes.as_ptr().cast(), bytes.len() as isize);
        Bound::from_owned_ptr_or_err(py, text)
    }
}

/// How often change() calls a function whose object others replace meanwhile. Threads that only compete for an object
/// come nowhere near.
pub(crate) const CHANGES: u32 = 10_000;

/// What the function that change() was given makes of an object. `none` is the call that stores None.
///
/// # Errors
/// What it raises; `TypeError` where it returns None for something else, as a function does that changes what it is
/// given and returns nothing: the object would be lost.
pub(crate) fn changed<'py>(
    function: &Bound<'py, PyAny>,
    object: &Bound<'py, PyAny>,
    none: &str,
) -> PyResult<Bound<'py, PyAny>> {
    let py = function.py();
    let made = result::call(function, [object])?;
    if made.is_none() && !object.is_none() {
        let class = class_name(object);
        let text = format!(
            "the function that change() called with an object of class {class} returned None, so nothing was put: it must return the \
             changed object, and not only change what it is given; {none} stores None"
        );
        return Err(type_error(py, &text));
    }
    Ok(made)
}

/// What was given for an argument that may be left out, where `None` is a value like any other, so that `Option` will
/// not do.
pub(crate) enum Given<'py> {
    Absent,
    Value(Bound<'py, PyAny>),
}

impl<'py> FromPyObject<'_, 'py> for Given<'py> {
    type Error = Infallible;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> Result<Self, Infallible> {
        Ok(Self::Value(object.to_owned()))
    }
}

impl<'py> Given<'py> {
    /// The value, if there is one.
    pub fn value(&self) -> Option<&Bound<'py, PyAny>> {
        match self {
            Self::Absent => None,
            Self::Value(value) => Some(value),
        }
    }

    /// The flag called `name`; `default` where it was left out.
    pub fn flag(&self, name: &str, default: bool) -> PyResult<bool> {
        self.value().map_or(Ok(default), |value| flag(name, value))
    }
}

/// Yes or no: a bool, NumPy's too, or 0 and 1. A word is refused: `"no"` would count as yes.
pub(crate) fn flag(name: &str, value: &Bound<'_, PyAny>) -> PyResult<bool> {
    if let Ok(answer) = value.cast::<PyBool>() {
        return Ok(answer.is_true());
    }
    match index(value)?.map(|number| number.extract::<u8>()) {
        Some(Ok(number @ (0 | 1))) => Ok(number == 1),
        None if is_bool_of_numpy(value)? => value.is_truthy(),
        _ => Err(type_error(value.py(), &format!("{name}={}: pass True or False", shown(value)))),
    }
}

fn is_bool_of_numpy(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    // The first from NumPy 2 on.
    Ok(matches!(full_name(&value.get_type())?.as_str(), "numpy.bool" | "numpy.bool_"))
}

/// The int that a value is, or that it stands for without loss (`__index__`: NumPy's integers). `None` for everything
/// else, floats and bools among it: a bool is an answer, and stands where a number is meant by mistake only.
pub(crate) fn index<'py>(value: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = value.py();
    // SAFETY: attached; the call is defined for every object.
    if value.is_instance_of::<PyBool>() || unsafe { ffi::PyIndex_Check(value.as_ptr()) } == 0 {
        return Ok(None);
    }
    // SAFETY: attached; the value is alive; a new reference or null with an error set.
    match unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyNumber_Index(value.as_ptr())) } {
        Ok(number) => Ok(Some(number)),
        // So say arrays of several.
        Err(error) if error.is_instance_of::<PyTypeError>(py) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads a whole number called `name`: see [`index`].
///
/// # Errors
/// `TypeError` for what is none, `ValueError` for one outside of the range; both say which are `allowed`.
pub(crate) fn whole(name: &str, value: &Bound<'_, PyAny>, range: RangeInclusive<i64>, allowed: &str) -> PyResult<i64> {
    let text = || format!("{name}={}: pass a whole number{allowed}", shown(value));
    let Some(number) = index(value)? else { return Err(type_error(value.py(), &text())) };
    // One beyond 64 bits is beyond every range.
    let number = number.extract().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| value_error(value.py(), &text()))
}

/// Refuses what cannot be called. `passed` says which function is passed for what.
pub(crate) fn function(value: &Bound<'_, PyAny>, passed: &str) -> PyResult<()> {
    if value.is_callable() { Ok(()) } else { Err(other_was_passed(value, passed)) }
}

/// In place of the interpreter's own error for what is not iterable. `passed` says what is passed, and as what.
#[cold]
pub(crate) fn not_iterable(error: PyErr, value: &Bound<'_, PyAny>, passed: &str) -> PyErr {
    if error.is_instance_of::<PyTypeError>(value.py()) { other_was_passed(value, passed) } else { error }
}

#[cold]
fn other_was_passed(value: &Bound<'_, PyAny>, passed: &str) -> PyErr {
    type_error(value.py(), &format!("{passed}, not {}", class_name(value)))
}
