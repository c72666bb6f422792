//! What the numbers in an encoding stand for.

use std::sync::atomic::{AtomicU32, Ordering};

use pyo3::PyTraverseError;
use pyo3::gc::PyVisit;

use super::found::Found;
use crate::codec::object::{Own, as_py};

/// How instances of one class lie in an encoding: slot values, then attribute values, in this order.
pub struct Layout {
    /// Number in the registry.
    pub id: u32,
    pub class: Own,
    /// Names of the slots, then of the attributes in `__dict__`.
    pub names: Vec<Own>,
    /// Byte offset of each slot in the instance.
    pub offsets: Vec<isize>,
    /// For each attribute its index in the class's shared keys; empty when unknown.
    pub indices: Vec<u8>,
    /// The class's version at which setting an attribute was found to run no user code, or where there are slots only, at which
    /// their names were found to lead to them; 0 when that was not so, or not asked yet.
    /// Relaxed: the number is the whole message, compared with the class's own.
    pub plain_at: AtomicU32,
    pub found: Found,
    /// How many of the names were slots of the class before it was defined anew, if they are not all slots now. They are set
    /// as attributes are, and go where the new class has them.
    pub former_slots: usize,
    /// What pickle stores is the list of the values: a frozen dataclass with slots.
    pub listed: bool,
}

impl Layout {
    /// Values in an encoding.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Slots among them when they were stored.
    pub fn stored_slots(&self) -> usize {
        if self.former_slots > 0 { self.former_slots } else { self.slots() }
    }

    /// Whether fields lie and go to the same places, of one class.
    fn is(&self, other: &Layout) -> bool {
        self.names.len() == other.names.len()
            && self.names.iter().zip(&other.names).all(|(one, other)| one.ptr() == other.ptr())
            && self.offsets == other.offsets
            && self.indices == other.indices
            && (self.former_slots, self.listed) == (other.former_slots, other.listed)
    }

    /// Slots among them.
    #[inline(always)]
    pub fn slots(&self) -> usize {
        self.offsets.len()
    }
}

/// What a number in an encoding stands for.
pub enum Entry {
    Object(Layout),
    /// As `Object`, of a class that was defined anew and is to be called: its `__new__`, then its `__setstate__`, as pickle does.
    /// No offsets: the slots come first, as many as there were.
    Stated(Layout),
    /// `called`: by a class that was defined anew, and makes its instances in a way of its own.
    NamedTuple {
        id: u32,
        class: Own,
        len: usize,
        found: Found,
        called: bool,
    },
    Enum {
        id: u32,
        class: Own,
        members: Own,
        found: Found,
    },
    Global {
        id: u32,
        object: Own,
        found: Found,
    },
}

impl Entry {
    /// The class or function, and where it is found.
    pub fn about(&self) -> (&Own, &Found) {
        match self {
            Entry::Object(layout) | Entry::Stated(layout) => (&layout.class, &layout.found),
            Entry::NamedTuple { class, found, .. } | Entry::Enum { class, found, .. } => (class, found),
            Entry::Global { object, found, .. } => (object, found),
        }
    }

    /// Whether both say the same of one class or function.
    pub fn is(&self, other: &Entry) -> bool {
        let ((one, found), (object, at)) = (self.about(), other.about());
        one.ptr() == object.ptr()
            && found.is(at)
            && match (self, other) {
                (Entry::Object(one), Entry::Object(other)) | (Entry::Stated(one), Entry::Stated(other)) => {
                    one.is(other)
                }
                (Entry::NamedTuple { len, called, .. }, Entry::NamedTuple { len: items, called: too, .. }) => {
                    (len, called) == (items, too)
                }
                (Entry::Enum { members: one, .. }, Entry::Enum { members: other, .. }) => one.ptr() == other.ptr(),
                (Entry::Global { .. }, Entry::Global { .. }) => true,
                _ => false,
            }
    }

    /// Takes over what was found out for another that says the same.
    pub fn renew(&self, newer: &Entry) {
        if let (Entry::Object(one), Entry::Object(newer)) = (self, newer) {
            one.plain_at.store(newer.plain_at.load(Ordering::Relaxed), Ordering::Relaxed); // Relaxed: see the field.
        }
    }

    pub fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        let (object, found) = self.about();
        visit.call(as_py(object))?;
        found.visit(visit)?;
        match self {
            Entry::Enum { members, .. } => visit.call(as_py(members)),
            _ => Ok(()),
        }
    }
}
