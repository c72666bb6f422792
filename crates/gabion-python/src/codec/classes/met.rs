//! Numbers of a file that are asked for, for the first time: what they stand for is looked for then, and not before.
//! See `types` for what may be built, and `fit` for classes that have changed.

use super::fit;
use super::found::Found;
use super::known::Known;
use super::layout::Entry;
use super::record::{Record, Shape, shown};
use super::registry::Registry;
use super::standard;
use super::types::Inside;
use pyo3::prelude::*;

use crate::codec::object::{Own, Raise, Raised, refuse};
use crate::ffi;
use crate::once::Importing;

/// The entry of a number of which a record alone was known. If several threads ask at one time, the first that finds it
/// wins.
///
/// # Errors
/// `CodecError` when it may not be built, or what the name leads to will not do; those of an import.
#[cold]
pub fn met<'a>(registry: &'a Registry, known: &Known, id: u32, record: &Record) -> Raise<&'a Entry> {
    let (object, found) = sought(registry, record)?;
    let entry = fit::entry(known, id, record, object, found)?;
    Ok(registry.meet(id, entry))
}

fn sought(registry: &Registry, record: &Record) -> Raise<(Own, Found)> {
    let types = registry.types();
    if let Some(found) = types.named(&record.path).or_else(|| registry.own(&record.path)) {
        return Ok(found);
    }
    let inside = types.inside(record)?;
    if let Inside::There(object, found) = inside {
        return Ok((object, found));
    }
    if types.everything {
        return imported(record);
    }
    match standard::find(record)? {
        Some(found) => Ok(found),
        None => Err(not_allowed(record, &inside, types.namesake(record))),
    }
}

/// What the name leads to, wherever that is.
fn imported(record: &Record) -> Raise<(Own, Found)> {
    let _importing = Importing::begin();
    // SAFETY: two strings, held.
    unsafe { Found::follow(record.module.ptr(), record.name.ptr()) }.or_else(|Raised| {
        // SAFETY: an error is set, which is compared with classes of the interpreter.
        let missing = unsafe {
            let kinds = [ffi::PyExc_ImportError, ffi::PyExc_AttributeError];
            kinds.into_iter().any(|kind| ffi::PyErr_ExceptionMatches(kind) != 0)
        };
        if !missing {
            return Err(Raised);
        }
        // SAFETY: codec functions run attached.
        let py = unsafe { Python::assume_attached() };
        let error = PyErr::fetch(py);
        // Another version has it elsewhere.
        match standard::in_table(record) {
            Ok(Some(found)) => return Ok(found),
            Ok(None) => {}
            // SAFETY: attached; the first error counts.
            Err(Raised) => unsafe { ffi::PyErr_Clear() },
        }
        Err(refuse(&format!(
            "cannot rebuild {what} {title}: it was looked for by this name, and {error}; if it has another name by now, say which: \
             gabion.Pile(path=..., types=[\"*\", {{\"{key}\": {short}}}])",
            what = what(record),
            title = record.title(),
            error = error.value(py),
            key = record.key(),
            short = record.short(),
        )))
    })
}

#[cold]
fn not_allowed(record: &Record, inside: &Inside, namesake: Option<&[u8]>) -> Raised {
    let (what, title, key, short) = (what(record), record.title(), record.key(), record.short());
    if matches!(inside, Inside::Nothing) {
        return refuse(&format!(
            "cannot rebuild {what} {title}: the module is among the types= of this pile, and defines nothing of that name; where it is \
             now, say so: gabion.Pile(path=..., types={{\"{key}\": {short}}})"
        ));
    }
    if let Some(namesake) = namesake {
        let namesake = shown(namesake);
        return refuse(&format!(
            "cannot rebuild {what} {key}: it was stored under this name, and this pile may build {namesake}, which is another name; if \
             that class is the same, say so when you open the pile: gabion.Pile(path=..., types={{\"{key}\": {short}}})"
        ));
    }
    refuse(&format!(
        "cannot rebuild {what} {title}: this pile may not build it, as anybody can write a name into a file; if it is to, pass it when \
         you open the pile: gabion.Pile(path=..., types=[{title}]), or types={{\"{key}\": {short}}} if that is another one by now"
    ))
}

fn what(record: &Record) -> &'static str {
    match record.shape {
        Shape::Object(_) | Shape::NamedTuple(_) => "an object of",
        Shape::Enum => "a member of",
        Shape::Global => "what refers to",
    }
}
