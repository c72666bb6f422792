//! Classes and functions that were defined anew: from then on their names lead to others, and as with pickle, what is
//! built is what the name leads to at that time. How that is noticed: see the tables at the head of `registry`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use pyo3::prelude::*;

use super::fit;
use super::found::Found;
use super::global::repr;
use super::known::Known;
use super::layout::{Entry, Layout};
use super::record::Record;
use super::registry::Registry;
use crate::codec::format::reader::damaged;
use crate::codec::object::{Own, Raise, Raised, refuse};
use crate::errors::Errors;
use crate::ffi;

/// The entry of a number, after the name of what it stands for was looked up again. Where the name leads to nothing, or
/// to no class in place of a class, it stays as it is.
///
/// # Errors
/// Those of [`fit::entry`].
#[cold]
pub fn renewed<'a>(registry: &'a Registry, known: &Known, id: u32) -> Raise<&'a Entry> {
    let entry = registry.entry(id).ok_or_else(|| damaged("an unknown class or function"))?;
    let mut tries = 1;
    loop {
        let Some(now) = entry.about().map(|(_, at)| at.now(|object| entry.takes(object))) else { return Ok(entry) };
        let Some((object, found)) = now? else { return Ok(entry) };
        let new = if entry.is_of(&object) {
            Ok(entry.found_at(found))
        } else {
            entry.record(registry, id).and_then(|record| fit::entry(known, id, &record, object.clone(), found))
        };
        match new {
            Err(Raised) if tries < MOST_TRIES && entry.has_moved_on(&object) => tries += 1,
            new => return Ok(registry.replace(id, new?)),
        }
    }
}

/// How often a name is looked up where it leads to yet another class by the time that the one before was looked at.
const MOST_TRIES: usize = 8;

impl Entry {
    /// What was stored, as a file describes it.
    fn record(&self, registry: &Registry, id: u32) -> Raise<Arc<Record>> {
        if let Some(record) = registry.record(id) {
            return Ok(record);
        }
        let mut described = Vec::new();
        self.describe(&mut described)?;
        Record::read(&described).map(|(record, _)| Arc::new(record))
    }

    /// Whether the name leads to another object than this one by now, after an error of the codec's, which is dropped
    /// then.
    fn has_moved_on(&self, tried: &Own) -> bool {
        // SAFETY: called by code of the interpreter's, which is attached.
        let py = unsafe { Python::assume_attached() };
        // SAFETY: attached, with an error set; the class is held.
        let ours = |errors: &Errors| unsafe { ffi::PyErr_ExceptionMatches(errors.codec.as_ptr()) != 0 };
        if !Errors::get(py).is_ok_and(ours) {
            return false;
        }
        let error = PyErr::fetch(py);
        match self.about().map_or(Ok(None), |(_, found)| found.now(|object| self.takes(object))) {
            Ok(Some((other, _))) if other.ptr() != tried.ptr() => true,
            Ok(_) => {
                error.restore(py);
                false
            }
            Err(Raised) => false,
        }
    }
}

impl Layout {
    /// The same, found in another way.
    fn found_at(&self, found: Found) -> Layout {
        Layout {
            id: self.id,
            class: self.class.clone(),
            names: self.names.clone(),
            offsets: self.offsets.clone(),
            indices: self.indices.clone(),
            plain_at: AtomicU32::new(self.plain_at.load(Ordering::Relaxed)), // Relaxed: see the field.
            found,
            former_slots: self.former_slots,
            listed: self.listed,
            has_dict: self.has_dict,
            declared: self.declared.clone(),
            changes: self.changes.clone(),
        }
    }
}

impl Entry {
    /// The same, found in another way.
    fn found_at(&self, found: Found) -> Entry {
        match self {
            Entry::Object(layout) => Entry::Object(layout.found_at(found)),
            Entry::Stated(layout) => Entry::Stated(layout.found_at(found)),
            Entry::NamedTuple { id, class, len, names, called, arranged, .. } => Entry::NamedTuple {
                id: *id,
                class: class.clone(),
                len: *len,
                names: names.clone(),
                found,
                called: *called,
                arranged: arranged.clone(),
            },
            Entry::Enum { id, class, members, .. } => {
                Entry::Enum { id: *id, class: class.clone(), members: members.clone(), found }
            }
            Entry::Global { id, object, .. } => Entry::Global { id: *id, object: object.clone(), found },
            Entry::Unmet(record) => Entry::Unmet(Arc::clone(record)),
        }
    }

    /// Whether an object may be in the place of the one before at all.
    fn takes(&self, object: &Own) -> bool {
        // SAFETY: the caller holds the object.
        matches!(self, Entry::Global { .. }) || unsafe { ffi::PyType_Check(object.ptr()) != 0 }
    }
}

/// Raises the error of a member of an enum that the class had when it was stored.
#[cold]
pub fn no_member(class: &Own, name: &Own) -> Raised {
    refuse(&format!(
        "cannot rebuild {} of {}: the class was defined anew, and has no member of that name; add it, or replace what is \
         stored",
        repr(name),
        repr(class)
    ))
}
