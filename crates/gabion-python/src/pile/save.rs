//! A pile of Python objects saved to a file.

use gabion_blocks::file::FileError;
use pyo3::prelude::*;

use super::file::{file_at, not_opened, place_of};
use super::refusal;
use super::state::Pile;
use crate::gate::through_gate;

impl Pile {
    /// Saves the pile to a file of this path, whether it lies in memory or in another file.
    pub(super) fn save_to(&self, path: &Bound<'_, PyAny>) -> PyResult<()> {
        let (py, place) = (path.py(), place_of(path)?);
        let failed = |error| match (&error, &self.file) {
            (FileError::InUse, Some(file)) if !file.read_only && file.id.is_some() && file.id == file_at(&place) => {
                let text = "the file is open already, and is this pile's own: what was put is in it, and flush() waits until \
                            that is on the disk; give save() another path, for a copy";
                refusal::in_use(path, text)
            }
            _ => not_opened(error, path, &place),
        };
        let store = self.open(py)?;
        let saving = through_gate(py, || store.begin_save(&place, None));
        let mut records = Vec::new();
        // What was saved is whole if the pile is still open: it is closed first, and cleared after that. Then all
        // numbers, after the last encoding that refers to one.
        let described = self.open(py).and_then(|_| self.codec.describe(py, 0, usize::MAX, &mut records));
        through_gate(py, || match (saving, described) {
            (Ok(saving), Ok(_)) => saving.finish(&records).map_err(Ok),
            // Dropped here: it takes its time to remove a large file.
            (_, Err(raised)) => Err(Err(raised)),
            (Err(error), _) => Err(Ok(error)),
        })
        .map_err(|error| error.map_or_else(|raised| raised, failed))
    }
}
