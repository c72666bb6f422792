//! Classes and functions that were defined anew: from then on their names lead to others, and as with pickle, what is
//! built is what the name leads to at that time. How that is noticed: see the tables at the head of `registry`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use pyo3::prelude::*;

use super::found::Found;
use super::global::repr;
use super::inspect::Inspect;
use super::known::Known;
use super::layout::{Entry, Layout};
use super::plan::{Kind, look_for_setters};
use super::registry::Registry;
use super::{analyse, fit};
use crate::codec::format::reader::damaged;
use crate::codec::object::{Own, Raise, Raised, refuse};
use crate::errors::Errors;
use crate::ffi;

/// The entry of a number, after the name of what it stands for was looked up again. Where the name leads to nothing, or
/// to no class in place of a class, it stays as it is.
///
/// # Errors
/// `CodecError` when the class is another one by now, with no room for the fields of the one before.
#[cold]
pub fn renewed<'a>(registry: &'a Registry, known: &Known, id: u32) -> Raise<&'a Entry> {
    let entry = registry.entry(id).ok_or_else(|| damaged("an unknown class or function"))?;
    // Fields of a file go where the class has them, whenever it changes.
    let record = registry.record(id);
    let mut tries = 1;
    loop {
        let Some(now) = entry.about().map(|(_, at)| at.now(|object| entry.takes(object))) else { return Ok(entry) };
        let Some((object, found)) = now? else { return Ok(entry) };
        let new = match &record {
            Some(record) if !entry.is_of(&object) => fit::entry(known, id, record, object.clone(), found),
            _ => entry.made_of(registry, known, object.clone(), found),
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
    /// The entry of what the name leads to now.
    fn made_of(&self, registry: &Registry, known: &Known, object: Own, found: Found) -> Raise<Entry> {
        Ok(match self {
            same if same.is_of(&object) => same.found_at(found),
            Entry::Object(layout) | Entry::Stated(layout) => filled(known, layout, object, found)?,
            Entry::NamedTuple { id, len, names, .. } => {
                let class = object.ptr().cast();
                // SAFETY: a live class, held.
                let plan = unsafe { analyse::plan(registry, known, class)? };
                // SAFETY: as above.
                let items = unsafe { Inspect::new(known, class) }.items()?;
                if items.is_some_and(|items| items.len() != *len) {
                    return Err(refuse(&format!("{} {len} items of the stored ones", unlike(&object))));
                }
                let called = !matches!(plan.kind, Kind::NamedTuple { .. });
                let names = names.clone();
                Entry::NamedTuple { id: *id, class: object, len: *len, names, found, called, arranged: None }
            }
            Entry::Enum { id, .. } => {
                // SAFETY: as above.
                let plan = unsafe { analyse::plan(registry, known, object.ptr().cast())? };
                if !matches!(plan.kind, Kind::Enum(_)) {
                    return Err(refuse(&format!("{} members of the stored ones", unlike(&object))));
                }
                // The number that the plan has may have gone over to another class.
                // SAFETY: a class, held; a new reference or null with an error.
                let members = unsafe { Own::take(ffi::PyObject_GetAttr(object.ptr(), known.names.member_map.ptr()))? };
                Entry::Enum { id: *id, class: object, members, found }
            }
            Entry::Global { id, .. } => Entry::Global { id: *id, object, found },
            Entry::Unmet(_) => return Err(damaged("an unknown class")),
        })
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

fn unlike(class: &Own) -> String {
    format!(
        "cannot rebuild an object of {}: the class was defined anew, and the new one does not have the",
        repr(class)
    )
}

/// How instances of the new class take the fields of the one before. Where it has a say in that, as pickle has it: it
/// makes them, and is given their state. Else they are filled: what was in slots goes where the new class has it, the
/// rest into `__dict__`.
fn filled(known: &Known, old: &Layout, class: Own, found: Found) -> Raise<Entry> {
    let (slots, attributes) = old.names.split_at(old.stored_slots());
    // SAFETY: a class, held.
    let room = unsafe { Inspect::new(known, class.ptr().cast()) }.room()?;
    let place_of = |name: &Own| room.slots.iter().position(|slot| slot.ptr() == name.ptr());
    let places: Option<Vec<usize>> = slots.iter().map(place_of).collect();
    let has_room = room.has_dict || (attributes.is_empty() && places.is_some());
    if !room.sets_state && !has_room {
        let (there, missing): (Vec<&Own>, Vec<&Own>) = old.names.iter().partition(|name| place_of(name).is_some());
        // Attributes that are slots now have no place, either.
        let missing = if missing.is_empty() { there } else { missing };
        let names: Vec<String> = missing.iter().map(|name| repr(name)).collect();
        let text =
            format!("{} fields of the stored ones, as attributes or slots: {}", unlike(&class), names.join(", "));
        return Err(refuse(&text));
    }
    let (offsets, former_slots) = match (&room.offsets, places) {
        (Some(offsets), Some(places)) => (places.into_iter().map(|place| offsets[place]).collect(), 0),
        _ => (Vec::new(), slots.len()),
    };
    let layout = Layout {
        id: old.id,
        class,
        names: old.names.clone(),
        offsets,
        indices: Vec::new(),
        plain_at: AtomicU32::new(0),
        found,
        former_slots,
        listed: old.listed,
        has_dict: old.has_dict,
        declared: old.declared.clone(),
        changes: None,
    };
    if room.offsets.is_none() {
        return Ok(Entry::Stated(layout));
    }
    look_for_setters(&layout);
    Ok(Entry::Object(layout))
}
