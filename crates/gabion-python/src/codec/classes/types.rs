//! What a program lets be built of what a file names: its `types=`.
//!
//! | it passes | what may be built |
//! |---|---|
//! | nothing | what stands in `standard` |
//! | `[shop.Person, shop.connect]` | as well, these classes and functions, by the names that they have, whether or not those lead to them |
//! | `[shop.MISSING]` | as well, an object that pickle stores by its name, and that is found by it; it is not called |
//! | `[shop.models]` | as well, classes, static methods and functions that are defined in a module, by names in it |
//! | `{"shop.Person": Customer}` | as well, a class under its own name, and for what was stored under another; may stand in a list |
//! | `"*"` | whatever the names lead to, imported as pickle imports; may stand in a list, next to new names |
//!
//! The main script is `__main__`, and in a worker of `multiprocessing`, which runs it once more, `__mp_main__`: what
//! was stored under one of these names may be built where the other leads to it.
//!
//! A class that its name does not lead to (a local one) can be passed, and is built; its objects are stored no more
//! than elsewhere.
//!
//! In all cases the program may get back what it has put itself: a class of which it stored an object since the file
//! was opened. A name that has two meanings here has the one that was passed for it, then that of the program's own
//! objects, of modules, of the standard library, of whatever it leads to.

use std::collections::HashMap;

use pyo3::PyTraverseError;
use pyo3::exceptions::{PyException, PyTypeError};
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyModule, PyString, PyTuple};

use super::found::Found;
use super::global;
use super::known::Known;
use super::record::{self, Record};
use crate::codec::object::{self, Own, Raise, Raised, as_py, is_same_text};
use crate::errors::{class_name, shown, type_error};
use crate::ffi::{self, PyObject};
use crate::once::intern;

unsafe extern "C" {
    static mut PyStaticMethod_Type: ffi::PyTypeObject;
}

/// The protocol that a reducer is asked for.
const PROTOCOL: i32 = 5;

/// See the head of this file.
#[derive(Default)]
pub struct Types {
    pub everything: bool,
    named: HashMap<Box<[u8]>, Allowed>,
    modules: HashMap<Box<[u8]>, Own>,
    /// Names under which an object was passed, by its address: it is held above.
    paths: HashMap<usize, Vec<Box<[u8]>>>,
}

/// A class or function that was passed.
struct Allowed {
    object: Own,
    /// Where it was found when it was passed, if it was found by its own name.
    found: Found,
    /// It was passed without another name.
    by_own_name: bool,
}

/// What a module that was passed has under a name.
pub enum Inside {
    /// No such module was passed.
    Unasked,
    /// Nothing of its own.
    Nothing,
    /// An object that is no class and no function.
    Object,
    There(Own, Found),
}

impl Types {
    /// What was passed as `types`.
    ///
    /// # Errors
    /// `TypeError` for everything else than what the head of this file says.
    pub fn read(value: Option<&Bound<'_, PyAny>>) -> PyResult<Types> {
        let mut types = Types::default();
        let Some(value) = value else { return Ok(types) };
        if is_star(value) {
            types.everything = true;
        } else if value.is_instance_of::<PyString>() || is_one(value) || value.is_instance_of::<PyModule>() {
            return Err(other(value));
        } else if let Some(names) = items(value)? {
            types.rename(&names)?;
        } else {
            let items = value
                .try_iter()
                .map_err(|error| if error.is_instance_of::<PyTypeError>(value.py()) { other(value) } else { error })?;
            for item in items {
                types.add(&item?)?;
            }
        }
        Ok(types)
    }

    fn add(&mut self, item: &Bound<'_, PyAny>) -> PyResult<()> {
        if is_star(item) {
            self.everything = true;
            return Ok(());
        }
        if let Ok(module) = item.cast::<PyModule>() {
            let (name, module) = (own(module.name()?.as_any()), own(item));
            if let Some(other) = raised(item, other_main(&name, |other| is_module(other, &module)))? {
                let path = raised(item, record::utf8(&other))?.into_boxed_slice();
                self.modules.entry(path).or_insert_with(|| module.clone());
            }
            self.modules.insert(raised(item, record::utf8(&name))?.into_boxed_slice(), module);
            return Ok(());
        }
        if let Some(names) = if is_one(item) { None } else { items(item)? } {
            return self.rename(&names);
        }
        let (names, found) = place_of(item)?;
        // What is no class and no plain function is one by its name alone: `list[int]` has that of another.
        let Some((module, name)) = names.filter(|_| is_one(item) || found.names().is_some()) else {
            return Err(other(item));
        };
        raised(item, self.allow_own((&module, &name), &own(item), &found))
    }

    /// Lets something be built by its own name, and by that which it has elsewhere.
    fn allow_own(&mut self, (module, name): (&Own, &Own), object: &Own, found: &Found) -> Raise<()> {
        let allowed = || Allowed { object: object.clone(), found: found.clone(), by_own_name: true };
        self.allow(record::path(module, name)?, allowed());
        let leads_here = |other: &Own| Ok(loaded(other)?.is_none() || found_by(other, name, object)?.names().is_some());
        if let Some(other) = other_main(module, leads_here)? {
            let path = record::path(&other, name)?;
            if !self.named.contains_key(&*path) {
                self.allow(path, allowed());
            }
        }
        Ok(())
    }

    fn rename(&mut self, items: &Bound<'_, PyList>) -> PyResult<()> {
        for pair in items.iter() {
            let pair = pair.cast_into::<PyTuple>().map_err(|error| other(error.into_inner().as_any()))?;
            let (name, object) = (pair.get_item(0)?, pair.get_item(1)?);
            let path =
                if name.is_instance_of::<PyString>() { raised(&name, record::utf8(&own(&name)))? } else { Vec::new() };
            if !path.contains(&b'.') {
                return Err(mistaken(name.py(), &format!("{} for a stored name, module and all", shown(&name))));
            }
            let (names, found) = place_of(&object)?;
            if !object.is_callable() && found.names().is_none() {
                return Err(mistaken(name.py(), &format!("{} for the class of {}", shown(&object), shown(&name))));
            }
            self.allow(path, Allowed { object: own(&object), found: found.clone(), by_own_name: false });
            // What is stored from now on has its own name.
            if let Some((module, qualname)) = names.filter(|_| found.names().is_some()) {
                raised(&object, self.allow_own((&module, &qualname), &own(&object), &found))?;
            }
        }
        Ok(())
    }

    /// A name that was given to something counts before that which it has by itself, and the later of two.
    fn allow(&mut self, path: Vec<u8>, allowed: Allowed) {
        let path = path.into_boxed_slice();
        if allowed.by_own_name && self.named.get(&path).is_some_and(|before| !before.by_own_name) {
            return;
        }
        let address = allowed.object.ptr() as usize;
        if let Some(before) = self.named.insert(path.clone(), allowed)
            && let Some(paths) = self.paths.get_mut(&(before.object.ptr() as usize))
        {
            paths.retain(|known| *known != path);
        }
        self.paths.entry(address).or_default().push(path);
    }

    /// What was passed for a stored name.
    pub fn named(&self, path: &[u8]) -> Option<(Own, Found)> {
        self.named.get(path).map(|allowed| (allowed.object.clone(), allowed.found.clone()))
    }

    /// What a module that was passed has under a stored name, if it is defined there. A name with points leads through
    /// classes alone, and to a class or a static method: any other method would change whatever it is called with, and
    /// that may be a class of the program. Nor is a class of classes meant, as its instances are such.
    ///
    /// # Errors
    /// What the module's own code raises, except that there is no such attribute.
    pub fn inside(&self, record: &Record) -> Raise<Inside> {
        let Some(module) = self.modules.get(&*record::utf8(&record.module)?) else { return Ok(Inside::Unasked) };
        // SAFETY: all are held; items are borrowed from a list that is; new references or null with an error.
        unsafe {
            let parts = Own::take(ffi::PyUnicode_Split(record.name.ptr(), object::intern(c".")?.ptr(), -1))?;
            let (mut object, mut is_method) = (module.clone(), false);
            for i in 0..ffi::PyList_Size(parts.ptr()) {
                if i > 0 && ffi::PyType_Check(object.ptr()) == 0 {
                    return Ok(Inside::Nothing);
                }
                let name = ffi::PyList_GetItem(parts.ptr(), i);
                let Some(next) = get(&object, name)? else { return Ok(Inside::Nothing) };
                is_method = i > 0 && ffi::PyType_Check(next.ptr()) == 0 && !is_static(&object, name)?;
                object = next;
            }
            let is_of_classes = ffi::PyType_Check(object.ptr()) != 0
                && ffi::PyType_IsSubtype(object.ptr().cast(), &raw mut ffi::PyType_Type) != 0;
            if is_method || is_of_classes {
                return Ok(Inside::Nothing);
            }
            let own = get(&object, object::intern(c"__module__")?.ptr())?;
            // An object of a class in the module says the same of itself: it is no definition, and others have it.
            let is_own = |own: Own| {
                Ok(is_same_text(&own, &record.module)
                    || other_main(&own, |other| Ok(is_same_text(other, &record.module)))?.is_some())
            };
            if !is_definition(object.ptr()) {
                return Ok(Inside::Object);
            }
            if !own.map_or(Ok(false), is_own)? {
                return Ok(Inside::Nothing);
            }
            let found = found_by(&record.module, &record.name, &object)?;
            Ok(Inside::There(object, found))
        }
    }

    /// Whether a class or function that has a name may be what a file means by it. It may not where another was passed
    /// for the name.
    pub fn lets(&self, path: &[u8], object: *mut PyObject) -> bool {
        self.named.get(path).is_none_or(|allowed| allowed.by_own_name || allowed.object.ptr() == object)
    }

    /// The name of something that was passed, and is called as this record but for the module.
    pub fn namesake(&self, record: &Record) -> Option<&[u8]> {
        let is_so = |path: &[u8]| path.strip_suffix(record.name_in_path()).is_some_and(|rest| rest.ends_with(b"."));
        let own = self.named.iter().filter(|(path, allowed)| allowed.by_own_name && is_so(path));
        own.map(|(path, _)| &**path).min()
    }

    /// Names under which this object was passed.
    pub fn paths_of(&self, object: *mut PyObject) -> &[Box<[u8]>] {
        self.paths.get(&(object as usize)).map_or(&[], Vec::as_slice)
    }

    /// Whether this was passed for a stored name and has none itself: it can only be meant to be called.
    pub fn is_for_calls(&self, object: *mut PyObject) -> bool {
        let allowed = self.paths_of(object).iter().filter_map(|path| self.named.get(path));
        allowed.map(|allowed| &allowed.found).any(|found| found.names().is_none())
    }

    pub fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.modules.values().try_for_each(|module| visit.call(as_py(module)))?;
        self.named.values().try_for_each(|allowed| {
            visit.call(as_py(&allowed.object))?;
            allowed.found.visit(visit)
        })
    }
}

/// The other name of the main module, if this is one of its two and the other `is_it`, too.
fn other_main(module: &Own, is_it: impl FnOnce(&Own) -> Raise<bool>) -> Raise<Option<Own>> {
    let (program, worker) = (object::intern(c"__main__")?, object::intern(c"__mp_main__")?);
    if !object::is_text(module) {
        return Ok(None);
    }
    let other = match (is_same_text(module, &program), is_same_text(module, &worker)) {
        (true, _) => worker,
        (_, true) => program,
        _ => return Ok(None),
    };
    Ok(is_it(&other)?.then_some(other))
}

/// Whether this module, or none at all, was loaded under a name.
fn is_module(name: &Own, module: &Own) -> Raise<bool> {
    loaded(name).map(|loaded| loaded.is_none_or(|loaded| loaded.ptr() == module.ptr()))
}

/// The module that was loaded under a name.
fn loaded(name: &Own) -> Raise<Option<Own>> {
    // SAFETY: held by the caller; a new reference, or null with an error or without.
    unsafe {
        match Own::take(ffi::PyImport_GetModule(name.ptr())) {
            Ok(module) => Ok(Some(module)),
            Err(Raised) if ffi::PyErr_Occurred().is_null() => Ok(None),
            Err(Raised) => Err(Raised),
        }
    }
}

/// Where an object is found by these names, which are its own; nowhere if they lead to nothing, or to another. Imports
/// nothing.
fn found_by(module: &Own, name: &Own, object: &Own) -> Raise<Found> {
    let led = match loaded(module) {
        Ok(None) => return Ok(Found::nowhere()),
        // SAFETY: both are held.
        Ok(Some(_)) => unsafe { Found::follow(module.ptr(), name.ptr()) },
        Err(Raised) => Err(Raised),
    };
    // SAFETY: attached; where there is an error, it is set.
    unsafe {
        match led {
            Ok((leads_to, found)) if leads_to.ptr() == object.ptr() => Ok(found),
            Ok(_) => Ok(Found::nowhere()),
            Err(Raised) if ffi::PyErr_ExceptionMatches(ffi::PyExc_Exception) != 0 => {
                ffi::PyErr_Clear();
                Ok(Found::nowhere())
            }
            Err(Raised) => Err(Raised),
        }
    }
}

/// An attribute, if there is one.
///
/// # Safety
/// A live string.
unsafe fn get(object: &Own, name: *mut PyObject) -> Raise<Option<Own>> {
    // SAFETY: held, and live by the caller's word; a new reference or null with an error.
    unsafe {
        match Own::take(ffi::PyObject_GetAttr(object.ptr(), name)) {
            Ok(value) => Ok(Some(value)),
            Err(Raised) if ffi::PyErr_ExceptionMatches(ffi::PyExc_AttributeError) != 0 => {
                ffi::PyErr_Clear();
                Ok(None)
            }
            Err(Raised) => Err(Raised),
        }
    }
}

/// Whether a class's attribute is a static method of its own, and not one that the interpreter calls (`__new__`).
///
/// # Safety
/// A live class, held by the caller, and a live string.
unsafe fn is_static(class: &Own, name: *mut PyObject) -> Raise<bool> {
    // SAFETY: live by the caller's word; a class written in Python has a dict, from which the item is borrowed.
    unsafe {
        let of: *mut ffi::PyTypeObject = class.ptr().cast();
        if ffi::PyType_HasFeature(of, ffi::Py_TPFLAGS_HEAPTYPE) == 0
            || ffi::PyUnicode_Tailmatch(name, object::intern(c"__")?.ptr(), 0, 2, -1) != 0
        {
            return Ok(false);
        }
        let found = ffi::PyDict_GetItemWithError((*of).tp_dict, name);
        if found.is_null() {
            return if ffi::PyErr_Occurred().is_null() { Ok(false) } else { Err(Raised) };
        }
        Ok(ffi::Py_TYPE(found) == &raw mut PyStaticMethod_Type)
    }
}

fn own(object: &Bound<'_, PyAny>) -> Own {
    // SAFETY: bound, hence live.
    unsafe { Own::share(object.as_ptr()) }
}

fn raised<T>(object: &Bound<'_, PyAny>, result: Raise<T>) -> PyResult<T> {
    result.map_err(|Raised| PyErr::fetch(object.py()))
}

/// Pairs of a mapping: of what has keys, as `dict()` sees it.
fn items<'py>(value: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyList>>> {
    let py = value.py();
    if !value.is_instance_of::<PyDict>() && value.getattr_opt(intern!(py, "keys")?)?.is_none() {
        return Ok(None);
    }
    // SAFETY: attached; bound, hence live; a new list, or null with an error set.
    let items = unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyMapping_Items(value.as_ptr()))? };
    Ok(Some(items.cast_into()?))
}

fn is_star(value: &Bound<'_, PyAny>) -> bool {
    value.cast::<PyString>().is_ok_and(|text| text.to_str().is_ok_and(|text| text == "*"))
}

/// Whether this is a class or a plain function.
fn is_one(value: &Bound<'_, PyAny>) -> bool {
    // SAFETY: bound, hence live.
    unsafe { is_definition(value.as_ptr()) }
}

/// As [`is_one`].
///
/// # Safety
/// A live object.
unsafe fn is_definition(object: *mut PyObject) -> bool {
    // SAFETY: live by the caller's word.
    unsafe {
        ffi::PyFunction_Check(object) != 0 || ffi::PyCFunction_Check(object) != 0 || ffi::PyType_Check(object) != 0
    }
}

/// Module and qualified name, as the object says them itself.
fn names(object: &Bound<'_, PyAny>) -> PyResult<Option<(Own, Own)>> {
    let text = |name: &Bound<'_, PyString>| match object.getattr(name) {
        Ok(value) => Ok(value.is_instance_of::<PyString>().then(|| own(&value))),
        Err(error) if error.is_instance_of::<PyException>(object.py()) => Ok(None),
        Err(error) => Err(error),
    };
    let py = object.py();
    Ok(text(intern!(py, "__module__")?)?.zip(text(intern!(py, "__qualname__")?)?))
}

/// The names of an object, and where it is found by them.
fn place_of(object: &Bound<'_, PyAny>) -> PyResult<(Option<(Own, Own)>, Found)> {
    let names = names(object)?;
    let found = match &names {
        Some((module, name)) => raised(object, found_by(module, name, &own(object)))?,
        None => Found::nowhere(),
    };
    if is_one(object) || found.names().is_some() {
        return Ok((names, found));
    }
    match by_reducer(object)? {
        Some(found) => Ok((found.names().map(|(module, name)| (module.clone(), name.clone())), found)),
        None => Ok((names, found)),
    }
}

/// Where pickle finds an object again whose reducer returns a name: of a module there is one such object.
fn by_reducer(object: &Bound<'_, PyAny>) -> PyResult<Option<Found>> {
    let py = object.py();
    let passed = |error: PyErr| if error.is_instance_of::<PyException>(py) { Ok(None) } else { Err(error) };
    let name = match object.call_method1(intern!(py, "__reduce_ex__")?, (PROTOCOL,)) {
        Ok(reduced) => reduced,
        Err(error) => return passed(error),
    };
    if !name.is_instance_of::<PyString>() {
        return Ok(None);
    }
    // SAFETY: both are bound, hence live.
    let found = Known::get(py).and_then(|known| unsafe { global::check_name(known, object.as_ptr(), name.as_ptr()) });
    raised(object, found).map_or_else(passed, |found| Ok(Some(found)))
}

#[cold]
fn other(value: &Bound<'_, PyAny>) -> PyErr {
    if is_one(value) || value.is_instance_of::<PyModule>() {
        return mistaken(value.py(), &format!("{} alone, which belongs into a list", shown(value)));
    }
    let what = if value.is_instance_of::<PyString>() {
        shown(value)
    } else {
        format!("{} ({})", shown(value), class_name(value))
    };
    mistaken(value.py(), &what)
}

#[cold]
fn mistaken(py: Python<'_>, what: &str) -> PyErr {
    let text = format!(
        "types= takes the classes, functions and modules whose objects the pile may build, as in types=[shop.Person, shop.models]; \
         what stored names stand for now, as in types={{\"shop.Person\": Customer}}; or \"*\", for whatever they lead to; not {what}"
    );
    type_error(py, &text)
}
