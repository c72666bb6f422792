//! What the numbers in an encoding stand for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use pyo3::PyTraverseError;
use pyo3::gc::PyVisit;

use super::changes::{Arranged, Changes};
use super::found::Found;
use super::record::{self, Declared, FieldsOf, Record, Shape, same_declared, same_names};
use crate::codec::object::{Own, Raise, as_py, refuse};

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
    /// The class's version at which setting an attribute was found to run no user code, or where there are slots only,
    /// at which their names were found to lead to them; 0 when that was not so, or not asked yet.
    /// Relaxed: the number is the whole message, compared with the class's own.
    pub plain_at: AtomicU32,
    pub found: Found,
    /// How many of the names were slots of the class before it was defined anew, if they are not all slots now. They
    /// are set as attributes are, and go where the new class has them.
    pub former_slots: usize,
    /// What pickle stores is the list of the values: a frozen dataclass with slots.
    pub listed: bool,
    /// Instances had a `__dict__` when they were stored: names of attributes may stand in the encoding.
    pub has_dict: bool,
    /// What the class declared then.
    pub declared: Declared,
    /// Of a layout whose class has changed since it was stored: where its fields go now.
    pub changes: Option<Box<Changes>>,
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
    fn is_equivalent(&self, other: &Layout) -> bool {
        self.names.len() == other.names.len()
            && self.names.iter().zip(&other.names).all(|(one, other)| one.ptr() == other.ptr())
            && self.offsets == other.offsets
            && self.indices == other.indices
            && (self.former_slots, self.listed) == (other.former_slots, other.listed)
            && self.declares_as(other)
            && same(self.changes.as_deref(), other.changes.as_deref(), Changes::is_equivalent)
    }

    /// Whether the classes of both had a `__dict__` and declared the same.
    pub fn declares_as(&self, other: &Layout) -> bool {
        self.has_dict == other.has_dict && same_declared(&self.declared, &other.declared)
    }

    fn fields(&self) -> FieldsOf<'_> {
        FieldsOf {
            names: &self.names,
            slots: self.stored_slots(),
            listed: self.listed,
            has_dict: self.has_dict,
            declared: &self.declared,
        }
    }

    /// Slots among them.
    #[inline(always)]
    pub fn slots(&self) -> usize {
        self.offsets.len()
    }
}

/// Whether both say the same, or neither says anything.
fn same<T>(one: Option<&T>, other: Option<&T>, is: impl Fn(&T, &T) -> bool) -> bool {
    match (one, other) {
        (None, None) => true,
        (Some(one), Some(other)) => is(one, other),
        _ => false,
    }
}

/// What a number in an encoding stands for.
pub enum Entry {
    Object(Layout),
    /// As `Object`, of a class that was defined anew and is to be called: its `__new__`, then its `__setstate__`, as
    /// pickle does; or of one whose fields are others by now, by its `changes`. No offsets: the slots come first, as
    /// many as there were.
    Stated(Layout),
    /// `called`: by a class that was defined anew, and makes its instances in a way of its own, perhaps of other items
    /// than those that were stored.
    NamedTuple {
        id: u32,
        class: Own,
        len: usize,
        names: Vec<Own>,
        found: Found,
        called: bool,
        arranged: Option<Box<Arranged>>,
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
    /// Known by its description in a file alone: nobody has asked for the class or function yet.
    Unmet(Arc<Record>),
}

impl Entry {
    /// The class or function, and where it is found; `None` of one that is known by its description alone.
    #[inline(always)]
    pub fn about(&self) -> Option<(&Own, &Found)> {
        Some(match self {
            Entry::Object(layout) | Entry::Stated(layout) => (&layout.class, &layout.found),
            Entry::NamedTuple { class, found, .. } | Entry::Enum { class, found, .. } => (class, found),
            Entry::Global { object, found, .. } => (object, found),
            Entry::Unmet(_) => return None,
        })
    }

    /// Whether it stands for a class or function that was found where it is to be now.
    pub fn is_found(&self, held: impl FnOnce(&Found) -> bool) -> bool {
        self.about().is_some_and(|(_, found)| held(found))
    }

    /// Whether it stands for this class or function.
    pub fn is_of(&self, object: &Own) -> bool {
        self.about().is_some_and(|(own, _)| own.ptr() == object.ptr())
    }

    /// Gives it its number.
    pub fn set_id(&mut self, number: u32) {
        match self {
            Entry::Object(layout) | Entry::Stated(layout) => layout.id = number,
            Entry::NamedTuple { id, .. } | Entry::Enum { id, .. } | Entry::Global { id, .. } => *id = number,
            Entry::Unmet(_) => {}
        }
    }

    /// Whether a record describes what this entry is, whatever its name. Runs no code.
    pub fn is_described(&self, record: &Record) -> bool {
        match (self, &record.shape) {
            (Entry::Object(layout), Shape::Object(fields)) => layout.fields().is_equivalent(fields),
            (Entry::NamedTuple { names, .. }, Shape::NamedTuple(stored)) => same_names(names, stored),
            (Entry::Enum { .. }, Shape::Enum) | (Entry::Global { .. }, Shape::Global) => true,
            _ => false,
        }
    }

    /// Appends its record.
    ///
    /// # Errors
    /// `MemoryError`.
    pub fn describe(&self, out: &mut Vec<u8>) -> Raise<()> {
        if let Entry::Unmet(record) = self {
            return record.append(out);
        }
        let Some(at) = self.about().and_then(|(_, found)| found.names()) else {
            return Err(refuse("a class that has no name cannot be described"));
        };
        match self {
            Entry::Object(layout) | Entry::Stated(layout) => record::write_object(out, at, &layout.fields()),
            Entry::NamedTuple { names, .. } => record::write_named_tuple(out, at, names),
            Entry::Enum { .. } => record::write_enum(out, at),
            Entry::Global { .. } | Entry::Unmet(_) => record::write_global(out, at),
        }
    }

    /// Whether both say the same of one class or function.
    pub fn is_equivalent(&self, other: &Entry) -> bool {
        let (Some((one, found)), Some((object, at))) = (self.about(), other.about()) else { return false };
        one.ptr() == object.ptr()
            && found.is_equivalent(at)
            && match (self, other) {
                (Entry::Object(one), Entry::Object(other)) | (Entry::Stated(one), Entry::Stated(other)) => {
                    one.is_equivalent(other)
                }
                (
                    Entry::NamedTuple { names, called, arranged, .. },
                    Entry::NamedTuple { names: items, called: too, arranged: other, .. },
                ) => {
                    called == too
                        && same_names(names, items)
                        && same(arranged.as_deref(), other.as_deref(), Arranged::is_equivalent)
                }
                (Entry::Enum { members: one, .. }, Entry::Enum { members: other, .. }) => one.ptr() == other.ptr(),
                (Entry::Global { .. }, Entry::Global { .. }) => true,
                _ => false,
            }
    }

    /// Whether both are of one class, and it is known of the first alone where instances have their attributes.
    pub fn is_filled_sooner(&self, other: &Entry) -> bool {
        let (Entry::Object(one), Entry::Object(two)) = (self, other) else { return false };
        one.class.ptr() == two.class.ptr()
            && one.found.is_equivalent(&two.found)
            && one.indices.len() > two.indices.len()
            && one.offsets == two.offsets
            && same_names(&one.names, &two.names)
    }

    /// Takes over what was found out for another that says the same.
    pub fn renew(&self, newer: &Entry) {
        if let (Entry::Object(one), Entry::Object(newer)) = (self, newer) {
            one.plain_at.store(newer.plain_at.load(Ordering::Relaxed), Ordering::Relaxed); // Relaxed: see the field.
        }
    }

    pub fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        let Some((object, found)) = self.about() else { return Ok(()) };
        visit.call(as_py(object))?;
        found.visit(visit)?;
        match self {
            Entry::Enum { members, .. } => visit.call(as_py(members)),
            Entry::NamedTuple { arranged: Some(arranged), .. } => arranged.visit(visit),
            Entry::Stated(Layout { changes: Some(changes), .. }) => changes.visit(visit),
            _ => Ok(()),
        }
    }
}
