//! `gabion.PileStats`.

use pyo3::prelude::*;

use super::result::{self, Figure};

/// A pile's figures at one moment: `reserved_bytes = used_bytes + overhead_bytes`.
///
/// All sizes are bytes. Returned by `Pile.stats()`; `as_dict()` gives the same as a dict.
#[pyclass(frozen, get_all, module = "gabion")]
pub(super) struct PileStats {
    /// Live objects.
    objects: Figure,
    /// Bytes of all encoded objects.
    used_bytes: Figure,
    /// Bytes taken for the pile: pages of 64 KiB in use, and the runs of objects over 1 MiB.
    reserved_bytes: Figure,
    /// What of the reserved bytes is not payload: words, headers, rounding, room that waits for its next object.
    overhead_bytes: Figure,
    /// The most that `reserved_bytes` may become.
    limit_bytes: Figure,
    /// Blocks of 4 MiB mapped.
    blocks: Figure,
    /// Objects that lie outside their own slot, because they outgrew it or are over 1 KiB.
    moved_objects: Figure,
    /// Objects over 1 MiB.
    large_objects: Figure,
    /// Classes that the pile knows.
    types: Figure,
}

impl PileStats {
    pub(super) fn new(stats: &gabion_pile::PileStats, types: usize) -> Self {
        Self {
            objects: Figure(stats.objects),
            used_bytes: Figure(stats.used_bytes),
            reserved_bytes: Figure(stats.reserved_bytes),
            overhead_bytes: Figure(stats.overhead_bytes),
            limit_bytes: Figure(stats.limit_bytes),
            blocks: Figure(stats.blocks),
            moved_objects: Figure(stats.moved_objects),
            large_objects: Figure(stats.large_objects),
            types: Figure(types as u64),
        }
    }

    fn fields(&self) -> [(&'static str, Figure); 9] {
        [
            ("objects", self.objects),
            ("used_bytes", self.used_bytes),
            ("reserved_bytes", self.reserved_bytes),
            ("overhead_bytes", self.overhead_bytes),
            ("limit_bytes", self.limit_bytes),
            ("blocks", self.blocks),
            ("moved_objects", self.moved_objects),
            ("large_objects", self.large_objects),
            ("types", self.types),
        ]
    }
}

#[pymethods]
impl PileStats {
    /// The figures as a dict, in the order of their names above.
    fn as_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let dict = result::dict(py)?;
        for (name, value) in self.fields() {
            dict.set_item(result::text(py, name)?, value)?;
        }
        Ok(dict)
    }

    fn __repr__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let fields: Vec<_> = self.fields().iter().map(|(name, value)| format!("{name}={}", value.0)).collect();
        result::text(py, &format!("PileStats({})", fields.join(", ")))
    }
}
