//! Entries for classes as they are now. A class may have changed since its instances were stored, because it was
//! defined anew, or a file is of an earlier program; its fields are matched by their names.
//!
//! ```text
//!   the class                       a stored field            a field that was not stored
//!   has a `__setstate__`            is in its state, as with pickle; the class does what it likes
//!   declares the field, has a       goes there                —
//!   slot or an item for it
//!   is a dataclass, declared the    is dropped                gets its default, or what its factory returns; is left unset
//!   field and does so no more                                 without either
//!   has a `__dict__`                goes there                —
//!   has slots only                  is dropped; without any   is left unset
//!                                   slot for one, the object
//!                                   is refused
//!   is a number, text or container  (the object is refused: what it is besides its fields was not stored)
//!   is a named tuple                is dropped                gets its default; without one the object is refused
//!   is an enum                      (a member that is gone is refused)
//! ```
//! A field that was declared when it was stored, and is not set in the object, stays unset: it was so then.

use std::sync::atomic::AtomicU32;

use super::changes::{Arranged, Changes, Filling, Item, Names};
use super::found::Found;
use super::global::repr;
use super::inline;
use super::inspect::{Field, Inspect, Room, names_of};
use super::known::Known;
use super::layout::{Entry, Layout};
use super::plan::{is_plain, look_for_setters};
use super::record::{Fields, Record, Shape, same_names};
use crate::codec::object::{Own, PASS_TYPES, Raise, Raised, in_class, intern, refuse};
use crate::codec::room;
use crate::ffi;

/// The entry of a number that a record describes, for what its name leads to.
///
/// # Errors
/// `CodecError` where that is of another kind than what was stored, or lacks an item that it cannot do without; what
/// code of the class's metaclass raises.
pub fn entry(known: &Known, id: u32, record: &Record, object: Own, found: Found) -> Raise<Entry> {
    if matches!(record.shape, Shape::Global) {
        return Ok(Entry::Global { id, object, found });
    }
    // SAFETY: held by the caller.
    if unsafe { ffi::PyType_Check(object.ptr()) == 0 } {
        return Err(refuse(&format!(
            "cannot rebuild an object of {}: its class is stored, and the name leads to {} by now",
            record.title(),
            repr(&object)
        )));
    }
    // SAFETY: a class, as was just seen, held.
    let class = unsafe { Inspect::new(known, object.ptr().cast()) };
    match &record.shape {
        Shape::Object(fields) => of_object(&class, id, fields, found),
        Shape::NamedTuple(names) => named_tuple(known, &class, id, names, found),
        Shape::Enum | Shape::Global => match class.members()? {
            Some(members) => Ok(Entry::Enum { id, class: object, members, found }),
            None => Err(refuse(&format!(
                "cannot rebuild a member of {}: {} is no enum, and does not have the members that were stored",
                record.title(),
                repr(&object)
            ))),
        },
    }
}

/// Refuses a class whose instances would come back without anything of what was stored.
fn refuse_empty(class: &Inspect<'_>, room: &Room, stored: &Fields) -> Raise<()> {
    const CONTENTS: std::ffi::c_ulong = ffi::Py_TPFLAGS_LONG_SUBCLASS
        | ffi::Py_TPFLAGS_LIST_SUBCLASS
        | ffi::Py_TPFLAGS_TUPLE_SUBCLASS
        | ffi::Py_TPFLAGS_BYTES_SUBCLASS
        | ffi::Py_TPFLAGS_UNICODE_SUBCLASS
        | ffi::Py_TPFLAGS_DICT_SUBCLASS;
    if room.sets_state {
        return Ok(());
    }
    // SAFETY: live class, and the interpreter's.
    let has_contents = unsafe {
        ffi::PyType_GetFlags(class.class()) & CONTENTS != 0
            || [
                &raw mut ffi::PyFloat_Type,
                &raw mut ffi::PyComplex_Type,
                &raw mut ffi::PySet_Type,
                &raw mut ffi::PyFrozenSet_Type,
                &raw mut ffi::PyByteArray_Type,
            ]
            .into_iter()
            .any(|base| ffi::PyType_IsSubtype(class.class(), base) != 0)
    };
    let why = if has_contents {
        "it is a number, a text or a container by now, and what is in those was not stored"
    } else if !room.has_dict
        && class.declared()?.is_none()
        && !stored.names.is_empty()
        && !stored.names.iter().any(|name| room.slots.iter().any(|slot| slot.ptr() == name.ptr()))
    {
        "it has room for none of the fields that were stored"
    } else {
        return Ok(());
    };
    Err(refuse(&format!(
        "cannot rebuild an object of {}: {why}; give it a __setstate__, or of a file, say which class takes them: \
         {PASS_TYPES}{{name: class}})",
        repr(class.held())
    )))
}

fn of_object(class: &Inspect<'_>, id: u32, stored: &Fields, found: Found) -> Raise<Entry> {
    let room = class.room()?;
    refuse_empty(class, &room, stored)?;
    let changes = if room.sets_state { None } else { changes(class, &room, stored)? };
    let place_of = |name: &Own| room.slots.iter().position(|slot| slot.ptr() == name.ptr());
    let (slots, _) = stored.names.split_at(stored.slots);
    let places: Option<Vec<usize>> = slots.iter().map(place_of).collect();
    let (offsets, former_slots) = match (&room.offsets, places) {
        (Some(offsets), Some(places)) if changes.is_none() => {
            (room::list(places.into_iter().map(|place| offsets[place]))?, 0)
        }
        _ => (Vec::new(), slots.len()),
    };
    let filled = room.offsets.is_some() && changes.is_none();
    let mut layout = Layout {
        id,
        class: class.held().clone(),
        names: room::list(stored.names.iter().cloned())?,
        offsets,
        indices: Vec::new(),
        plain_at: AtomicU32::new(0),
        found,
        former_slots,
        listed: stored.listed,
        has_dict: stored.has_dict,
        declared: stored.declared.clone(),
        changes,
    };
    if !filled {
        return Ok(Entry::Stated(layout));
    }
    look_for_setters(&layout);
    layout.indices = indices(class, &layout)?;
    Ok(Entry::Object(layout))
}

/// Where an instance has the attributes of a layout, in the keys that all of them share, if that is known: as instances
/// are built from here on, one is, and is asked. Runs no code.
fn indices(class: &Inspect<'_>, layout: &Layout) -> Raise<Vec<u8>> {
    /// Shared keys are no more.
    const MOST: usize = 30;
    let names = &layout.names[layout.slots()..];
    let mut indices = Vec::new();
    // SAFETY: a live class, which makes its instances as `object` does, where fields are set without a word to it; a
    // tuple and names, all held; a new reference or null with an error; nobody else sees the instance, whose view is of
    // attributes that were set, one for each index.
    unsafe {
        let told = (*class.class()).tp_finalize.is_some() || (*class.class()).tp_del.is_some();
        let quiet = is_plain(layout) && layout.former_slots == 0 && !told;
        if !quiet || names.is_empty() || names.len() > MOST || !inline::usable(class.class()) {
            return Ok(indices);
        }
        let Some(new) = (*class.class()).tp_new else { return Ok(indices) };
        let nothing = Own::take(ffi::PyTuple_New(0))?;
        let sample = Own::take(ffi::call_new(new, class.class(), nothing.ptr(), std::ptr::null_mut()))?;
        for name in names {
            if ffi::PyObject_GenericSetAttr(sample.ptr(), name.ptr(), ffi::Py_None()) < 0 {
                return Err(Raised);
            }
        }
        let Some(view) = inline::view(sample.ptr()).filter(|view| view.len == names.len()) else { return Ok(indices) };
        for (i, name) in names.iter().enumerate() {
            let index = view.index(i);
            if inline::key(class.class(), index) != name.ptr() {
                return Ok(Vec::new());
            }
            room::push(&mut indices, index)?;
        }
    }
    Ok(indices)
}

/// What became of the fields, of which the class is not told. `None` where instances are made as `object` makes them,
/// and all fields go where they were, or into `__dict__`.
fn changes(class: &Inspect<'_>, room: &Room, stored: &Fields) -> Raise<Option<Box<Changes>>> {
    let (slots, attributes) = stored.names.split_at(stored.slots);
    let is_slot = |name: &Own| room.slots.iter().any(|slot| slot.ptr() == name.ptr());
    let (dropped, added) = match class.declared()? {
        Some(fields) => declared_otherwise(&fields, stored, is_slot)?,
        None => (Vec::new(), Vec::new()),
    };
    let was_slot = |name: &Own| slots.iter().any(|slot| slot.ptr() == name.ptr());
    let stay = room.offsets.is_some()
        && dropped.is_empty()
        && added.is_empty()
        && (room.has_dict || (!stored.has_dict && attributes.is_empty()))
        && slots.iter().all(|name| room.has_dict || is_slot(name))
        // Names of attributes that stand in an encoding may be those of slots by now.
        && !attributes.iter().any(is_slot)
        && (!stored.has_dict || room.slots.iter().all(was_slot));
    if stay {
        return Ok(None);
    }
    let offsets = |i: usize| room.offsets.as_ref().map_or(0, |offsets| offsets[i]);
    let changes = Changes {
        quiet: room.offsets.is_some(),
        has_dict: room.has_dict,
        slots: room::list(room.slots.iter().enumerate().map(|(i, name)| (name.clone(), offsets(i))))?,
        dropped: Names::new(dropped)?,
        added,
    };
    room::boxed(changes).map(Some)
}

/// Fields that a dataclass declares no more, and those with a value that it did not declare when the object was stored.
#[expect(clippy::type_complexity, reason = "two lists")]
fn declared_otherwise(
    fields: &[Field],
    stored: &Fields,
    is_slot: impl Fn(&Own) -> bool,
) -> Raise<(Vec<Own>, Vec<(Own, Filling)>)> {
    let before = stored.declared.as_ref().map_or(&[] as &[Own], |declared| declared);
    let slots = &stored.names[..stored.slots];
    let is_in = |names: &[Own], name: &Own| names.iter().any(|other| other.ptr() == name.ptr());
    let gone = |name: &&Own| !fields.iter().any(|field| field.name.ptr() == name.ptr()) && !is_slot(name);
    let dropped = room::list(before.iter().filter(gone).cloned())?;
    let mut added = Vec::new();
    for field in fields.iter().filter(|field| !is_in(before, &field.name) && !is_in(slots, &field.name)) {
        let filling = match (&field.default, &field.factory) {
            (Some(value), _) => Filling::Value(value.clone()),
            (None, Some(factory)) => Filling::Made(factory.clone()),
            (None, None) => continue,
        };
        room::push(&mut added, (field.name.clone(), filling))?;
    }
    Ok((dropped, added))
}

fn named_tuple(known: &Known, class: &Inspect<'_>, id: u32, stored: &[Own], found: Found) -> Raise<Entry> {
    // SAFETY: live class; what makes its instances is held.
    let takes_items = unsafe {
        ffi::PyType_GetFlags(class.class()) & ffi::Py_TPFLAGS_TUPLE_SUBCLASS != 0
            || class.lookup(&known.names.new).is_some_and(|new| ffi::PyCFunction_Check(new.ptr()) == 0)
    };
    if !takes_items {
        return Err(refuse(&format!(
            "cannot rebuild a named tuple: its class {} is no tuple by now, and has no __new__ for the items; give it \
             one, or of a file, say which class takes them: {PASS_TYPES}{{name: class}})",
            repr(class.held())
        )));
    }
    let plain = class.only_items()?;
    let called = plain.is_none();
    let names = match plain {
        Some(names) => Some(names),
        // One with a way of its own to make instances has names, too.
        None => class.lookup(&known.names.fields).map_or(Ok(None), |fields| names_of(&fields))?,
    };
    let same = names.as_ref().is_none_or(|names| same_names(names, stored));
    let arranged = match names {
        Some(names) if !same => Some(room::boxed(arranged(class, &names, stored, called)?)?),
        _ => None,
    };
    Ok(Entry::NamedTuple {
        id,
        class: class.held().clone(),
        len: stored.len(),
        names: room::list(stored.iter().cloned())?,
        found,
        called: called || arranged.is_some(),
        arranged,
    })
}

/// Where the class, which has these items by now, gets them from. Where it makes instances in a way of its own, that
/// may know what the last ones are.
fn arranged(class: &Inspect<'_>, names: &[Own], stored: &[Own], own_way: bool) -> Raise<Arranged> {
    // SAFETY: a live class.
    let defaults = unsafe { in_class(class.class(), intern(c"_field_defaults")?.ptr()) };
    let place_of = |name: &Own| stored.iter().position(|other| other.ptr() == name.ptr());
    let mut items = Vec::new();
    for (at, name) in names.iter().enumerate() {
        let item = if let Some(index) = place_of(name) {
            Item::Stored(index)
        } else if let Some(value) = default(defaults.as_ref(), name)? {
            Item::Default(value)
        } else if own_way && names[at..].iter().all(|name| place_of(name).is_none()) {
            break;
        } else {
            return Err(refuse(&format!(
                "cannot rebuild an object of {}: the class has an item {} by now that was not stored, and has no default; give it \
                 one",
                repr(class.held()),
                repr(name)
            )));
        };
        room::push(&mut items, item)?;
    }
    Ok(Arranged(items))
}

fn default(defaults: Option<&Own>, name: &Own) -> Raise<Option<Own>> {
    let Some(defaults) = defaults else { return Ok(None) };
    // SAFETY: both are held; a dict, and a new reference or null with an error or without.
    unsafe {
        if ffi::PyDict_Check(defaults.ptr()) == 0 {
            return Ok(None);
        }
        let mut value = std::ptr::null_mut();
        if ffi::compat::PyDict_GetItemRef(defaults.ptr(), name.ptr(), &raw mut value) < 0 {
            return Err(Raised);
        }
        Ok(Own::take(value).ok())
    }
}
