//! What the numbers in an encoding stand for.

use std::sync::atomic::AtomicU32;

use pyo3::PyTraverseError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;

use super::object::Own;

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
    /// The class's version at which setting an attribute was found to run no user code; 0 when it was found to run some.
    /// Relaxed: the number is the whole message, compared with the class's own.
    pub plain_at: AtomicU32,
}

impl Layout {
    /// Values in an encoding.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.names.len()
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
    NamedTuple { id: u32, class: Own, len: usize },
    Enum { id: u32, class: Own, members: Own },
    Global { id: u32, object: Own },
}

impl Entry {
    pub fn visit(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        match self {
            Entry::Object(layout) => visit.call(as_py(&layout.class)),
            Entry::NamedTuple { class, .. } => visit.call(as_py(class)),
            Entry::Enum { class, members, .. } => {
                visit.call(as_py(class))?;
                visit.call(as_py(members))
            }
            Entry::Global { object, .. } => visit.call(as_py(object)),
        }
    }
}

pub fn as_py(own: &Own) -> &Py<PyAny> {
    // SAFETY: both are transparent over a non-null pointer to an owned object.
    unsafe { &*std::ptr::from_ref(own).cast() }
}
