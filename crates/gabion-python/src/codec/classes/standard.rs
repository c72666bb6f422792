//! What a file may name without anybody's permission: classes of the standard library and of NumPy that hold values,
//! and the functions that their own pickles call. Whoever writes a file chooses which of them are called, and with
//! what.
//!
//! What is in the table does no more than make a value out of its arguments: it opens no file that it is told to, runs
//! nothing that it is given, reaches no attribute by name and imports nothing. So `eval`, `exec`, `getattr`,
//! `__import__`, `open`, `type`, `operator`, `functools`, `os` and `subprocess` are not in it, and builtin functions
//! are not, whatever they do. Some of what is there takes a function and calls it later (`defaultdict`), or a class
//! (`_reconstructor`): those, too, are named in the file, and stand here or are allowed.

use std::ffi::CStr;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCFunction, PyTuple};

use super::found::Found;
use super::record::{Record, Shape};
use crate::codec::object::{Own, PASS_TYPES, Raise, Raised, intern, refuse};
use crate::ffi;
use crate::once::{of_module, once};

/// Some names of one module.
struct Group {
    /// What the module is called in a file, by one version or another.
    stored: &'static [&'static str],
    /// Where the names are looked for; the first that can be imported counts.
    modules: &'static [&'static CStr],
    names: &'static [&'static str],
}

const GROUPS: &[Group] = &[
    // Values and containers. Not `memoryview`, which has no pickle; not `type`, which makes classes.
    Group {
        stored: &["builtins"],
        modules: &[c"builtins"],
        names: &[
            "bool",
            "bytearray",
            "bytes",
            "complex",
            "dict",
            "float",
            "frozenset",
            "int",
            "list",
            "object",
            "range",
            "set",
            "slice",
            "str",
            "tuple",
        ],
    },
    // How pickle makes instances of classes, which are named in the file as well. `__newobj__` is written as a tag of
    // its own.
    Group { stored: &["copyreg"], modules: &[c"copyreg"], names: &["_reconstructor"] },
    Group { stored: &["array"], modules: &[c"array"], names: &["array", "_array_reconstructor"] },
    Group {
        stored: &["collections"],
        modules: &[c"collections"],
        names: &["ChainMap", "Counter", "OrderedDict", "UserDict", "UserList", "UserString", "defaultdict", "deque"],
    },
    Group {
        stored: &["datetime"],
        modules: &[c"datetime"],
        names: &["date", "datetime", "time", "timedelta", "timezone", "tzinfo"],
    },
    // A context has the kinds of its signals in it.
    Group {
        stored: &["decimal"],
        modules: &[c"decimal"],
        names: &[
            "Clamped",
            "Context",
            "Decimal",
            "DecimalTuple",
            "DivisionByZero",
            "FloatOperation",
            "Inexact",
            "InvalidOperation",
            "Overflow",
            "Rounded",
            "Subnormal",
            "Underflow",
        ],
    },
    Group { stored: &["fractions"], modules: &[c"fractions"], names: &["Fraction"] },
    Group {
        stored: &["ipaddress"],
        modules: &[c"ipaddress"],
        names: &["IPv4Address", "IPv4Interface", "IPv4Network", "IPv6Address", "IPv6Interface", "IPv6Network"],
    },
    // A path is a text: it opens nothing by itself. 3.13 has the classes in a module of their own.
    Group {
        stored: &["pathlib", "pathlib._local"],
        modules: &[c"pathlib"],
        names: &["Path", "PosixPath", "PurePath", "PurePosixPath", "PureWindowsPath", "WindowsPath"],
    },
    Group { stored: &["types"], modules: &[c"types"], names: &["SimpleNamespace"] },
    Group { stored: &["uuid"], modules: &[c"uuid"], names: &["SafeUUID", "UUID"] },
    // Reads the system's data of time zones, by a key that it checks. Its pickle asks it for `_unpickle`: see
    // `getattr`.
    Group { stored: &["zoneinfo"], modules: &[c"zoneinfo"], names: &["ZoneInfo"] },
    // What arrays, their types and their items are made of. NumPy 2 has other names for its modules. States are looked
    // at before NumPy gets them, and other functions called in the place of some: see `guard`.
    Group { stored: &["numpy"], modules: &[c"numpy"], names: &["dtype", "ndarray", "recarray", "record"] },
    Group { stored: &["numpy.rec"], modules: &[c"numpy"], names: &["recarray"] },
    Group {
        stored: &["numpy.core.multiarray", "numpy._core.multiarray"],
        modules: &[c"numpy._core.multiarray", c"numpy.core.multiarray"],
        names: &["_reconstruct", "scalar"],
    },
    Group {
        stored: &["numpy.core.numeric", "numpy._core.numeric"],
        modules: &[c"numpy._core.numeric", c"numpy.core.numeric"],
        names: &["_frombuffer"],
    },
    Group {
        stored: &["numpy._core._internal"],
        modules: &[c"numpy._core._internal"],
        names: &["_convert_to_stringdtype_kwargs"],
    },
];

/// What a record stands for, if that may be met without permission.
///
/// # Errors
/// Those of the import.
pub fn find(record: &Record) -> Raise<Option<(Own, Found)>> {
    // Names of the table are ASCII, and have no point.
    let Some((module, name)) = parts(record) else { return Ok(None) };
    if module == "builtins" {
        if name == "getattr" && matches!(record.shape, Shape::Global) {
            return limited_getattr().map(|function| Some((function, Found::nowhere())));
        }
        if let Some(found) = exception(record)? {
            return Ok(Some(found));
        }
    }
    in_table(record)
}

/// Whether [`find`] would find it: that it may be met without permission. Imports nothing.
///
/// # Errors
/// Memory.
pub fn knows(record: &Record) -> Raise<bool> {
    let Some((module, name)) = parts(record) else { return Ok(false) };
    let is_builtin = module == "builtins"
        && (name == "getattr" && matches!(record.shape, Shape::Global) || exception(record)?.is_some());
    Ok(is_builtin || group(module, name).is_some())
}

fn group(module: &str, name: &str) -> Option<&'static Group> {
    GROUPS.iter().find(|group| group.stored.contains(&module) && group.names.contains(&name))
}

/// What a record of the table stands for in the versions that are installed.
///
/// # Errors
/// Those of the import.
pub fn in_table(record: &Record) -> Raise<Option<(Own, Found)>> {
    let Some((module, name)) = parts(record) else { return Ok(None) };
    let Some(group) = group(module, name) else { return Ok(None) };
    let mut modules = group.modules.iter().peekable();
    while let Some(module) = modules.next() {
        let module = intern(module)?;
        // SAFETY: two strings, held.
        match unsafe { Found::follow(module.ptr(), record.name.ptr()) } {
            Ok(found) => return Ok(Some(found)),
            Err(Raised) if modules.peek().is_none() => return Err(Raised),
            // SAFETY: an error is set, which is compared with a class of the interpreter.
            Err(Raised) => unsafe {
                if ffi::PyErr_ExceptionMatches(ffi::PyExc_ImportError) == 0 {
                    return Err(Raised);
                }
                ffi::PyErr_Clear();
            },
        }
    }
    Ok(None)
}

fn parts(record: &Record) -> Option<(&str, &str)> {
    std::str::from_utf8(&record.path).ok()?.rsplit_once('.')
}

/// A class of exceptions among the builtin ones, if that is what a record of that module stands for.
fn exception(record: &Record) -> Raise<Option<(Own, Found)>> {
    // SAFETY: two strings, held; an error is set where there is no such name; a class is compared with one of the
    // interpreter's.
    unsafe {
        let Ok((object, found)) = Found::follow(record.module.ptr(), record.name.ptr()) else {
            if ffi::PyErr_ExceptionMatches(ffi::PyExc_AttributeError) == 0 {
                return Err(Raised);
            }
            ffi::PyErr_Clear();
            return Ok(None);
        };
        let of_exceptions = ffi::PyType_Check(object.ptr()) != 0
            && ffi::PyType_IsSubtype(object.ptr().cast(), ffi::PyExc_BaseException.cast()) != 0;
        Ok(of_exceptions.then_some((object, found)))
    }
}

/// Whether this is the interpreter's `getattr`.
pub fn is_getattr(function: &Own) -> bool {
    // SAFETY: codec functions run attached.
    let py = unsafe { Python::assume_attached() };
    match of_module(py, c"builtins", c"getattr") {
        Ok(getattr) => getattr.as_ptr() == function.ptr(),
        Err(error) => {
            drop(error);
            false
        }
    }
}

/// In the place of `getattr`, by which pickle names methods of classes that are not written in Python: of them all, one
/// is needed here.
///
/// # Errors
/// Memory.
pub fn limited_getattr() -> Raise<Own> {
    static FUNCTION: PyOnceLock<Py<PyCFunction>> = PyOnceLock::new();
    // SAFETY: codec functions run attached.
    let py = unsafe { Python::assume_attached() };
    let made = once(py, &FUNCTION, || Ok(pyo3::wrap_pyfunction!(getattr, py)?.unbind()));
    match made {
        // SAFETY: held by the cell.
        Ok(function) => Ok(unsafe { Own::share(function.as_ptr()) }),
        Err(error) => {
            error.restore(py);
            Err(Raised)
        }
    }
}

/// `getattr`, of `ZoneInfo._unpickle` alone.
#[pyfunction]
#[pyo3(signature = (*arguments))]
fn getattr<'py>(py: Python<'py>, arguments: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
    if arguments.len() == 2 {
        let (class, name) = (arguments.get_item(0)?, arguments.get_item(1)?);
        let (zones, unpickle) = (of_module(py, c"zoneinfo", c"ZoneInfo")?, crate::once::intern!(py, "_unpickle")?);
        if class.is(&zones) && name.eq(unpickle)? {
            return class.getattr(unpickle);
        }
    }
    let Raised = refuse(&format!(
        "cannot rebuild the stored object: it asks for an attribute by its name (getattr), which this pile may not do: whoever wrote \
         the file could reach anything; if you trust the file, pass {PASS_TYPES}[getattr]), with its classes",
    ));
    Err(PyErr::fetch(py))
}
