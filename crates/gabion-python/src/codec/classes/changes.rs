//! What became of classes since their instances were stored, where these are not as they were.

use std::collections::HashMap;

use pyo3::PyTraverseError;
use pyo3::gc::PyVisit;

use crate::codec::format::reader::damaged;
use crate::codec::object::{Own, Raise, as_py};
use crate::codec::room;
use crate::ffi;

/// Where the fields of a stored object go in an instance of a class that has changed.
#[derive(Clone)]
pub struct Changes {
    /// Instances are made as `object` makes them. Else `__new__` makes them. They are filled without a word to the
    /// class, in any case.
    pub quiet: bool,
    pub has_dict: bool,
    /// Slots of the class as it is now, and where they lie; nowhere if it is not `quiet`.
    pub slots: Vec<(Own, isize)>,
    /// Fields that the class declared when they were stored, and does not declare any more.
    pub dropped: Names,
    /// Fields that the class did not declare then, and has a value for.
    pub added: Vec<(Own, Filling)>,
}

/// What a field gets that was not stored.
#[derive(Clone)]
pub enum Filling {
    Value(Own),
    /// What this returns, called anew for each object.
    Made(Own),
}

impl Filling {
    fn is_equivalent(&self, other: &Self) -> bool {
        match (self, other) {
            (Filling::Value(one), Filling::Value(other)) | (Filling::Made(one), Filling::Made(other)) => {
                one.ptr() == other.ptr()
            }
            _ => false,
        }
    }

    /// The value for one object.
    ///
    /// # Errors
    /// What the function raises.
    pub fn value(&self) -> Raise<Own> {
        match self {
            Filling::Value(value) => Ok(value.clone()),
            // SAFETY: held; a new reference or null with an error.
            Filling::Made(factory) => unsafe { Own::take(ffi::PyObject_CallNoArgs(factory.ptr())) },
        }
    }
}

/// Interned names, by their addresses.
#[derive(Clone, Default)]
pub struct Names(HashMap<usize, Own>);

impl Names {
    /// # Errors
    /// `MemoryError`.
    pub fn new(names: Vec<Own>) -> Raise<Names> {
        let mut by_address = HashMap::new();
        names.into_iter().try_for_each(|name| room::insert(&mut by_address, name.ptr() as usize, name))?;
        Ok(Names(by_address))
    }

    fn is_equivalent(&self, other: &Self) -> bool {
        self.0.len() == other.0.len() && self.0.keys().all(|name| other.0.contains_key(name))
    }

    /// Whether this interned name is one of them.
    pub fn contains(&self, name: &Own) -> bool {
        self.0.contains_key(&(name.ptr() as usize))
    }
}

impl Changes {
    /// Whether fields go to the same places, and those that were not stored get the same.
    pub fn is_equivalent(&self, other: &Self) -> bool {
        let same_slots = |one: &[(Own, isize)], other: &[(Own, isize)]| {
            one.len() == other.len()
                && one.iter().zip(other).all(|(one, other)| one.0.ptr() == other.0.ptr() && one.1 == other.1)
        };
        let same_added = |one: &[(Own, Filling)], other: &[(Own, Filling)]| {
            one.len() == other.len()
                && one
                    .iter()
                    .zip(other)
                    .all(|(one, other)| one.0.ptr() == other.0.ptr() && one.1.is_equivalent(&other.1))
        };
        (self.quiet, self.has_dict) == (other.quiet, other.has_dict)
            && same_slots(&self.slots, &other.slots)
            && self.dropped.is_equivalent(&other.dropped)
            && same_added(&self.added, &other.added)
    }

    /// Where a field has a place as a slot.
    pub fn slot(&self, name: &Own) -> Option<isize> {
        self.slots.iter().find(|(slot, _)| slot.ptr() == name.ptr()).map(|&(_, offset)| offset)
    }

    /// Whether a field that was stored has a place.
    pub fn takes(&self, name: &Own) -> bool {
        !self.dropped.contains(name) && (self.has_dict || self.slot(name).is_some())
    }

    pub fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.added.iter().try_for_each(|(_, filling)| match filling {
            Filling::Value(value) | Filling::Made(value) => visit.call(as_py(value)),
        })
    }
}

/// An item of a named tuple whose class has changed.
#[derive(Clone)]
pub enum Item {
    /// The stored one of this index.
    Stored(usize),
    Default(Own),
}

/// The items of a named tuple whose class has other fields by now, in the order of those.
#[derive(Clone)]
pub struct Arranged(pub Vec<Item>);

impl Arranged {
    /// Whether the items come from the same places.
    pub fn is_equivalent(&self, other: &Self) -> bool {
        self.0.len() == other.0.len()
            && self.0.iter().zip(&other.0).all(|(one, other)| match (one, other) {
                (Item::Stored(one), Item::Stored(other)) => one == other,
                (Item::Default(one), Item::Default(other)) => one.ptr() == other.ptr(),
                _ => false,
            })
    }

    /// The items that an instance gets for those that were stored.
    ///
    /// # Errors
    /// `MemoryError`.
    pub fn of(&self, stored: &Own) -> Raise<Own> {
        // SAFETY: a new tuple or null with an error; each of its places is filled once, before anybody else sees it,
        // unless it is dropped; items are borrowed from a tuple that is held, where there are so many.
        unsafe {
            let len = if ffi::PyTuple_Check(stored.ptr()) != 0 { ffi::PyTuple_Size(stored.ptr()) as usize } else { 0 };
            let made = Own::take(ffi::PyTuple_New(self.0.len() as isize))?;
            for (i, item) in self.0.iter().enumerate() {
                let value = match item {
                    Item::Default(value) => value.clone(),
                    &Item::Stored(index) if index < len => {
                        Own::share(ffi::PyTuple_GetItem(stored.ptr(), index as isize))
                    }
                    Item::Stored(_) => return Err(damaged("an item is missing")),
                };
                ffi::PyTuple_SetItem(made.ptr(), i as isize, value.into_ptr());
            }
            Ok(made)
        }
    }

    pub fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.0.iter().try_for_each(|item| match item {
            Item::Default(value) => visit.call(as_py(value)),
            Item::Stored(_) => Ok(()),
        })
    }
}
