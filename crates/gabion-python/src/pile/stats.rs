//! `gabion.PileStats`.

use pyo3::prelude::*;

use crate::figures::{Figure, as_dict, figure_methods, figures};

figures! {
    /// A pile's figures at one moment: `reserved_bytes = used_bytes + overhead_bytes`.
    ///
    /// All sizes are bytes. Returned by `Pile.stats()`; `as_dict()` gives the same as a dict.
    #[pyclass(frozen, get_all, module = "gabion")]
    pub(super) struct PileStats from gabion_pile::PileStats {
        /// Live objects.
        objects,
        /// Bytes of all encoded objects.
        used_bytes,
        /// Bytes taken for the pile: pages of 64 KiB in use, and the runs of objects over 1 MiB.
        reserved_bytes,
        /// The part of the reserved bytes that is not payload: words, headers, rounding, free room.
        overhead_bytes,
        /// The most that `reserved_bytes` may become.
        max_bytes,
        /// Blocks of 4 MiB mapped.
        blocks,
        /// Objects that lie outside their own slot, because they outgrew it or are over 1 KiB, their reserve included.
        away_objects,
        /// Objects over 1 MiB.
        large_objects,
    } and {
        /// Classes that the pile knows.
        types: Figure,
    }
}

/// A pile's own figures by their names: all but what its codec knows.
pub(super) fn store_figures<'py>(py: Python<'py>, stats: &gabion_pile::PileStats) -> PyResult<Bound<'py, PyAny>> {
    as_dict(py, PileStats::new(stats, Figure(0)).figures())
}

figure_methods! {
    PileStats {
        /// The figures as a dict, in the order of their names above.
        fn as_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
            self.state(py)
        }
    }
}
