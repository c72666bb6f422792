//! Iteration over a pile: its pointers, its objects, or both.

use std::sync::{Mutex, PoisonError};

use gabion_pile::{Cursor, Noted, PileError, Pointer};
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::refusal::{Failure, type_error};
use super::state::Pile;
use crate::result;
use crate::yield_budget::{OtherLoop, STEP};

/// What an iterator gives of each object.
#[derive(Clone, Copy)]
pub(super) enum Gives {
    Pointer,
    Object,
    Both,
}

/// What a step costs that gives a pointer alone, counted in bytes.
const POINTER: usize = STEP / 8;

/// Where an iteration is.
#[derive(Default)]
struct Walk {
    cursor: Cursor,
    /// What there was when the iteration began; `None` before the first step.
    noted: Option<Noted>,
    /// How many of that are still to come, if nothing is removed.
    left: usize,
}

/// Goes over what is in a pile at the first step, beside running writers: every object that is there from beginning to
/// end is seen exactly once. One that is removed between the look at its pointer and its own is passed over.
#[pyclass(frozen, module = "gabion")]
pub(super) struct PileIterator {
    pile: Py<Pile>,
    gives: Gives,
    // Two threads may share an iterator; each pointer goes to one of them.
    walk: Mutex<Walk>,
    yields: OtherLoop,
}

impl PileIterator {
    pub(super) fn new(pile: &Bound<'_, Pile>, gives: Gives) -> Self {
        Self { pile: pile.clone().unbind(), gives, walk: Mutex::default(), yields: OtherLoop::new() }
    }

    fn next_pointer(&self, py: Python<'_>) -> Result<Option<Pointer>, Failure> {
        let pile = self.pile.get().open(py)?;
        // No Python code runs under this lock, and the thread stays attached: it cannot be waited for in a circle.
        let mut walk = self.walk.lock().unwrap_or_else(PoisonError::into_inner);
        let Walk { cursor, noted, left } = &mut *walk;
        let noted = if let Some(noted) = noted {
            noted
        } else {
            *left = pile.len() as usize;
            noted.insert(pile.note().map_err(PileError::Blocks)?)
        };
        let next = pile.next_noted(cursor, noted);
        *left = left.saturating_sub(1);
        if next.is_none() {
            // The end, and it stays so.
            (*noted, *left) = (Noted::default(), 0);
        }
        Ok(next)
    }
}

#[pymethods]
impl PileIterator {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        // Before anything is taken: what a signal's handler raises costs the loop no object.
        self.yields.yield_in_time(py)?;
        while let Some(pointer) = self.next_pointer(py).map_err(|failure| failure.raise(py))? {
            if matches!(self.gives, Gives::Pointer) {
                self.yields.did(POINTER);
                return result::number(py, pointer.to_bits()).map(Some);
            }
            let object = match self.pile.get().build_sized(py, pointer) {
                Ok((object, bytes)) => {
                    self.yields.did(bytes.saturating_add(STEP));
                    object.into_bound(py)
                }
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

    /// About how many are still to come: for list(), and whoever shows progress.
    fn __length_hint__(&self, py: Python<'_>) -> PyResult<usize> {
        let left = {
            let walk = self.walk.lock().unwrap_or_else(PoisonError::into_inner);
            walk.noted.is_some().then_some(walk.left)
        };
        // Not under the lock: to make an exception may run the collector, and with it code that asks the same.
        left.map_or_else(|| Ok(self.pile.get().open(py)?.len() as usize), Ok)
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
