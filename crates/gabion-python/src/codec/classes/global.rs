//! Classes and functions by reference: what can be found again under its module and qualified name.

use pyo3::prelude::*;

use super::found::Found;
use super::known::Known;
use super::record::may_be_described;
use crate::codec::object::{
    Own, Raise, Raised, attribute, attribute_or_none, class_name, in_class, intern, is_of_pickling, refuse,
};
use crate::ffi::{self, PyObject};

/// Checks that the object is what its module and qualified name lead to, and says how.
///
/// # Errors
/// `CodecError` when it is not: a local class, a lambda, a class that was replaced by another of its name.
pub fn check(known: &Known, object: &Own) -> Raise<Found> {
    // SAFETY: held by the caller; every other object is held here.
    unsafe {
        let name = match attribute_or_none(object.ptr(), c"__qualname__")? {
            Some(name) => name,
            None => attribute(object.ptr(), c"__name__")?,
        };
        check_name(known, object.ptr(), name.ptr())
    }
}

/// As [`check`], under a name that a reducer gave.
///
/// # Safety
/// Both are live objects.
pub unsafe fn check_name(known: &Known, object: *mut PyObject, name: *mut PyObject) -> Raise<Found> {
    // SAFETY: live by the caller's word; the rest is held here.
    unsafe {
        let way = |module: &Own| format!("{}.{}", text(module), text(&Own::share(name)));
        let module = module_of(known, object, name)?;
        let is_text = |name: &Own| ffi::PyUnicode_Check(name.ptr()) != 0;
        let names = [&module, &Own::share(name)];
        if names.into_iter().all(is_text) && !may_be_described(names) {
            let object = class_name(object);
            return Err(refuse(&format!(
                "cannot store an object of class {object} by reference: its name is too long"
            )));
        }
        match Found::follow(module.ptr(), name) {
            Ok((leads_to, found)) if leads_to.ptr() == object => Ok(found),
            Ok(_) => Err(refuse(&format!(
                "cannot store {} by reference: {} is another object by now, because it was defined anew, or by a \
                 decorator; use that one, or make new instances of it",
                repr(&Own::share(object)),
                way(&module)
            ))),
            Err(Raised) => {
                let py = Python::assume_attached();
                let error = PyErr::fetch(py);
                if !is_of_pickling(py, &error) {
                    error.restore(py);
                    return Err(Raised);
                }
                // As pandas makes one for each itertuples().
                let row = is_named_tuple(object);
                let instead = if row { "store tuple(row) or row._asdict(), or " } else { "" };
                Err(refuse(&format!(
                    "cannot store {} by reference: it is not found as {}; {instead}define it at the top level of a module",
                    repr(&Own::share(object)),
                    way(&module)
                )))
            }
        }
    }
}

/// Whether an object is the class of a named tuple.
///
/// # Safety
/// A live object.
unsafe fn is_named_tuple(object: *mut PyObject) -> bool {
    // SAFETY: live by the caller's word; the name is held here; a class, where it is looked into.
    unsafe {
        ffi::PyType_Check(object) != 0
            && ffi::PyType_HasFeature(object.cast(), ffi::Py_TPFLAGS_TUPLE_SUBCLASS) != 0
            && intern(c"_fields").map_or_else(
                |Raised| {
                    ffi::PyErr_Clear();
                    false
                },
                |name| in_class(object.cast(), name.ptr()).is_some(),
            )
    }
}

/// The module that an object says it is of; where it says nothing, one that has it under that name.
///
/// # Safety
/// Both are live objects.
unsafe fn module_of(known: &Known, object: *mut PyObject, name: *mut PyObject) -> Raise<Own> {
    // SAFETY: live by the caller's word; what is told is held here.
    unsafe {
        // Not left to pickle: from 3.14 on it looks the object up as well, and refuses it in other words.
        if let Some(module) = attribute_or_none(object, c"__module__")?
            && module.ptr() != ffi::Py_None()
        {
            return Ok(module);
        }
        let found = Own::take(ffi::call(known.which_module.ptr(), [object, name]));
        found.or_else(|Raised| {
            let py = Python::assume_attached();
            let error = PyErr::fetch(py);
            if is_of_pickling(py, &error) {
                // Before 3.14 this is what pickle says where no module has it.
                return Own::take(ffi::PyUnicode_FromString(c"__main__".as_ptr()));
            }
            error.restore(py);
            Err(Raised)
        })
    }
}

/// `repr()`, or the class's name when that fails.
pub fn repr(object: &Own) -> String {
    // SAFETY: a held object; a new reference or null with an error, which is dropped.
    unsafe {
        if let Ok(found) = Own::take(ffi::PyObject_Repr(object.ptr())) {
            return text(&found);
        }
        ffi::PyErr_Clear();
        class_name(object.ptr())
    }
}

fn text(string: &Own) -> String {
    // SAFETY: a held object, whatever its class; a failure gives null and an error, which is dropped; the bytes live
    // with the string, which nobody changes.
    unsafe {
        let mut len = 0;
        let data = ffi::PyUnicode_AsUTF8AndSize(string.ptr(), &raw mut len);
        if data.is_null() {
            ffi::PyErr_Clear();
            return "?".into();
        }
        String::from_utf8_lossy(std::slice::from_raw_parts(data.cast(), len as usize)).into_owned()
    }
}
