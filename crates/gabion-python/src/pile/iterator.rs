//! Iteration over a pile: its pointers, its objects, or both.

use std::sync::{Mutex, PoisonError};

use gabion_pile::{Cursor, Pointer};
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::refusal::type_error;
use super::state::Pile;
use crate::result;

/// What an iterator gives of each object.
#[derive(Clone, Copy)]
pub(super) enum Gives {
    Pointer,
    Object,
    Both,
}

/// Goes over a pile beside running writers: every object that is there from beginning to end is seen exactly once. One
/// that is removed between the look at its pointer and its own is passed over.
#[pyclass(frozen, module = "gabion")]
pub(super) struct PileIterator {
    pile: Py<Pile>,
    gives: Gives,
    // Two threads may share an iterator; each pointer goes to one of them.
    cursor: Mutex<Cursor>,
}

impl PileIterator {
    pub(super) fn new(pile: &Bound<'_, Pile>, gives: Gives) -> Self {
        Self { pile: pile.clone().unbind(), gives, cursor: Mutex::new(Cursor::default()) }
    }

    fn next_pointer(&self, py: Python<'_>) -> PyResult<Option<Pointer>> {
        let pile = self.pile.get().open(py)?;
        // No Python code runs under this lock, and the thread stays attached: it cannot be waited for in a circle.
        let mut cursor = self.cursor.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(pile.next_pointer(&mut cursor))
    }
}

#[pymethods]
impl PileIterator {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        while let Some(pointer) = self.next_pointer(py)? {
            if matches!(self.gives, Gives::Pointer) {
                return result::number(py, pointer.to_bits()).map(Some);
            }
            let object = match self.pile.get().build(py, pointer) {
                Ok(object) => object.into_bound(py),
                Err(failure) if failure.is_dead_pointer() => continue,
                Err(failure) => return Err(failure.raise(py)),
            };
            return match self.gives {
                Gives::Both => Ok(Some(result::pair(result::number(py, pointer.to_bits())?, object)?.into_any())),
                _ => Ok(Some(object)),
            };
        }
        Ok(None)
    }

    fn __repr__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyString>> {
        let of = match self.gives {
            Gives::Pointer => "pointers",
            Gives::Object => "objects",
            Gives::Both => "pointers and objects",
        };
        result::text(py, &format!("<iterator over the {of} of a gabion.Pile>"))
    }

    /// Refuses, for pickle and copy.
    #[pyo3(signature = (_protocol, /))]
    fn __reduce_ex__(&self, py: Python<'_>, _protocol: &Bound<'_, PyAny>) -> PyResult<()> {
        let text = "an iterator over a gabion.Pile cannot be pickled or copied: list() what it gives";
        Err(type_error(py, text))
    }

    fn __traverse__(&self, visit: pyo3::gc::PyVisit<'_>) -> Result<(), pyo3::gc::PyTraverseError> {
        visit.call(&self.pile)
    }
}
