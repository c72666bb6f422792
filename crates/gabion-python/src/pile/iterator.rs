//! Iteration over the pointers of a pile.

use std::sync::{Mutex, PoisonError};

use gabion_pile::Cursor;
use pyo3::prelude::*;

use super::state::Pile;
use crate::result;

/// Iterates over pointers beside running writers: every object that is there from begin to end is seen exactly once.
#[pyclass(frozen, module = "gabion")]
pub(super) struct PileIterator {
    pile: Py<Pile>,
    // Two threads may share an iterator; each pointer goes to one of them.
    cursor: Mutex<Cursor>,
}

impl PileIterator {
    pub(super) fn new(pile: &Bound<'_, Pile>) -> Self {
        Self { pile: pile.clone().unbind(), cursor: Mutex::new(Cursor::default()) }
    }
}

#[pymethods]
impl PileIterator {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let pile = self.pile.get().open(py)?;
        // No Python code runs under this lock, and the thread stays attached: it cannot be waited for in a circle.
        let mut cursor = self.cursor.lock().unwrap_or_else(PoisonError::into_inner);
        let pointer = pile.next_pointer(&mut cursor);
        drop(cursor);
        pointer.map(|pointer| result::number(py, pointer.to_bits())).transpose()
    }

    fn __traverse__(&self, visit: pyo3::gc::PyVisit<'_>) -> Result<(), pyo3::gc::PyTraverseError> {
        visit.call(&self.pile)
    }
}
