//! Numbers of a file that are asked for, for the first time: what they stand for is looked for then, and not before.
//! See `types` for what may be built, and `fit` for classes that have changed.

use std::collections::HashSet;

use super::fit;
use super::found::Found;
use super::known::Known;
use super::layout::Entry;
use super::record::{Record, Shape, shown};
use super::registry::Registry;
use super::standard;
use super::types::Inside;
use pyo3::prelude::*;

use crate::codec::object::{Own, PASS_TYPES, Raise, Raised, WHEN_OPENED, refuse};
use crate::ffi;

/// The entry of a number of which a record alone was known. If several threads ask at one time, the first that finds it
/// wins. `needed` gives the numbers of all that the same encoding refers to, for an error.
///
/// # Errors
/// `CodecError` when it may not be built, or what the name leads to will not do; those of an import.
#[cold]
pub fn met<'a>(
    registry: &'a Registry,
    known: &Known,
    id: u32,
    record: &Record,
    needed: impl FnOnce() -> Vec<u32>,
) -> Raise<&'a Entry> {
    let (object, found) = match sought(registry, record)? {
        Sought::There(object, found) => (object, found),
        Sought::NotAllowed(inside) => return Err(not_allowed(registry, record, &inside, &needed())),
    };
    let entry = fit::entry(known, id, record, object, found)?;
    Ok(registry.meet(id, entry))
}

/// What a record stands for, or what a module that was passed has under its name, where that is nothing.
enum Sought {
    There(Own, Found),
    NotAllowed(Inside),
}

fn sought(registry: &Registry, record: &Record) -> Raise<Sought> {
    let types = registry.types();
    if let Some((object, found)) = types.named(&record.path).or_else(|| registry.own(&record.path)) {
        return Ok(Sought::There(object, found));
    }
    let inside = types.inside(record)?;
    if let Inside::There(object, found) = inside {
        return Ok(Sought::There(object, found));
    }
    let found = if types.everything { Some(imported(record)?) } else { standard::find(record)? };
    Ok(found.map_or(Sought::NotAllowed(inside), |(object, found)| Sought::There(object, found)))
}

/// Whether a record stands for nothing that the program lets be built. Imports nothing.
fn is_lacking(registry: &Registry, record: &Record) -> Raise<bool> {
    let types = registry.types();
    let is_known = types.named(&record.path).is_some() || registry.own(&record.path).is_some();
    Ok(!is_known && !matches!(types.inside(record)?, Inside::There(..)) && !standard::knows(record)?)
}

/// What is to be passed for all of these that may not be built, and is not `but`: each name once.
fn lacking(registry: &Registry, needed: &[u32], but: &Record) -> Vec<String> {
    const MOST: usize = 200;
    let mut names: Vec<String> = Vec::new();
    let mut seen = HashSet::from([but.as_type()]);
    for record in needed.iter().filter_map(|&id| registry.record(id)) {
        match is_lacking(registry, &record) {
            Ok(true) if seen.insert(record.as_type()) => names.push(record.as_type()),
            Ok(_) => {}
            // SAFETY: attached, with an error set: a module's own code has raised it, and there is another one to tell.
            Err(Raised) => unsafe { ffi::PyErr_Clear() },
        }
    }
    if names.len() > MOST {
        let rest = names.split_off(MOST).len();
        names.push(format!("... and {rest} more, which `gabion inspect` lists"));
    }
    names
}

/// What the name leads to, wherever that is.
fn imported(record: &Record) -> Raise<(Own, Found)> {
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
             {PASS_TYPES}[\"*\", {{\"{key}\": {short}}}])",
            what = what(record),
            title = record.title(),
            error = error.value(py),
            key = record.key(),
            short = record.short(),
        )))
    })
}

/// The error of a name that may not be built, which tells of all others that the same object `needed`.
#[cold]
fn not_allowed(registry: &Registry, record: &Record, inside: &Inside, needed: &[u32]) -> Raised {
    let (what, title, key, short) = (what(record), record.title(), record.key(), record.short());
    let lacking = lacking(registry, needed, record);
    let others = if lacking.is_empty() {
        String::new()
    } else {
        format!("; the stored object needs more names that are not among the types=: [{}]", lacking.join(", "))
    };
    if matches!(inside, Inside::Nothing | Inside::Object) {
        let has = match inside {
            Inside::Object => {
                let own = record.as_type();
                format!(" but an object: if that is meant, pass it as well, {PASS_TYPES}[{own}])")
            }
            _ => String::new(),
        };
        return refuse(&format!(
            "cannot rebuild {what} {title}: the module is among the types= of this pile, and defines nothing of that name{has}; where \
             it is now, say so: {PASS_TYPES}{{\"{key}\": {short}}}){others}"
        ));
    }
    if let Some(namesake) = registry.types().namesake(record) {
        let namesake = shown(namesake);
        return refuse(&format!(
            "cannot rebuild {what} {key}: it was stored under this name, and this pile may build {namesake}, which is another name; if \
             that class is the same, say so {WHEN_OPENED}{PASS_TYPES}{{\"{key}\": {short}}}){others}"
        ));
    }
    let own = record.as_type();
    if !lacking.is_empty() {
        let (count, lacking) = (lacking.len() + 1, lacking.join(", "));
        return refuse(&format!(
            "cannot rebuild {what} {title}: this pile may not build it, as anybody can write a name into a file; if it is to, pass all \
             {count} names that the stored object needs, beside those that you pass already, {WHEN_OPENED}\
             {PASS_TYPES}[{own}, {lacking}]), with {{\"{key}\": {short}}} among them if that is another one by now"
        ));
    }
    refuse(&format!(
        "cannot rebuild {what} {title}: this pile may not build it, as anybody can write a name into a file; if it is to, pass it \
         {WHEN_OPENED}{PASS_TYPES}[{own}]), or types={{\"{key}\": {short}}} if that is another one by now"
    ))
}

fn what(record: &Record) -> &'static str {
    match record.shape {
        Shape::Object(_) | Shape::NamedTuple(_) => "an object of",
        Shape::Enum => "a member of",
        Shape::Global => "what refers to",
    }
}
