//! A pile of Python objects saved to a file.

use pyo3::prelude::*;

use super::file::place_of;
use super::refusal;
use super::state::Pile;
use crate::gate::through_gate;

impl Pile {
    /// Saves the pile to a file of this path, whether it lies in memory or in another file.
    pub(super) fn save_to(&self, path: &Bound<'_, PyAny>) -> PyResult<()> {
        let (py, place) = (path.py(), place_of(path)?);
        let failed = |error| refusal::of_file(error, path);
        let store = self.open(py)?;
        let saving = through_gate(py, || store.begin_save(&place, None));
        // What was saved is whole if the pile is still open: it is closed first, and cleared after that.
        self.open(py)?;
        let saving = saving.map_err(failed)?;
        // All numbers, after the last encoding that refers to one.
        let mut records = Vec::new();
        self.codec.describe(py, 0, &mut records)?;
        through_gate(py, || saving.finish(&records)).map_err(failed)
    }
}
