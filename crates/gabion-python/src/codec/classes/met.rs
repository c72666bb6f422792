//! Numbers of a file that are asked for, for the first time: what they stand for is looked for then, and not before. See `types` for
//! what may be built, and `fit` for classes that have changed.

use super::fit;
use super::found::Found;
use super::known::Known;
use super::layout::Entry;
use super::record::{Record, Shape};
use super::registry::Registry;
use super::standard;
use super::types::Inside;
use crate::codec::object::{Own, Raise, Raised, refuse};
use crate::ffi;
use crate::once::Importing;

/// The entry of a number of which a record alone was known. If several threads ask at one time, the first that finds it wins.
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
        None => Err(not_allowed(record, &inside)),
    }
}

/// What the name leads to, wherever that is.
fn imported(record: &Record) -> Raise<(Own, Found)> {
    let _importing = Importing::begin();
    // SAFETY: two strings, held; an error is set, which is compared with classes of the interpreter.
    unsafe {
        Found::follow(record.module.ptr(), record.name.ptr()).map_err(|Raised| {
            let kinds = [ffi::PyExc_ImportError, ffi::PyExc_AttributeError];
            if kinds.into_iter().all(|kind| ffi::PyErr_ExceptionMatches(kind) == 0) {
                return Raised;
            }
            let py = pyo3::Python::assume_attached();
            let why = pyo3::PyErr::fetch(py).value(py).to_string();
            let title = record.title();
            refuse(&format!(
                "cannot rebuild {what} {title}: it was looked for by this name, and {why}; if it has another name by now, say which: \
                 gabion.Pile(path=..., types=[\"*\", {{\"{title}\": {short}}}])",
                what = what(record),
                short = short(&title),
            ))
        })
    }
}

#[cold]
fn not_allowed(record: &Record, inside: &Inside) -> Raised {
    let (what, title) = (what(record), record.title());
    if matches!(inside, Inside::Nothing) {
        let short = short(&title);
        return refuse(&format!(
            "cannot rebuild {what} {title}: the module is among the types= of this pile, and defines nothing of that name; where it is \
             now, say so: gabion.Pile(path=..., types={{\"{title}\": {short}}})"
        ));
    }
    refuse(&format!(
        "cannot rebuild {what} {title}: this pile may not build it, as anybody can write a name into a file; if it is to, pass it when \
         you open the pile: gabion.Pile(path=..., types=[{title}])"
    ))
}

fn what(record: &Record) -> &'static str {
    match record.shape {
        Shape::Object(_) | Shape::NamedTuple(_) => "an object of",
        Shape::Enum => "a member of",
        Shape::Global => "what refers to",
    }
}

/// The last of a name's parts.
fn short(title: &str) -> &str {
    title.rsplit('.').next().unwrap_or(title)
}
