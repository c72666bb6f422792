//! `gabion.CacheStats`.

use pyo3::prelude::*;

use crate::figures::{as_dict, figures, listed};
use crate::result;

figures! {
    /// A cache's or table's figures at one moment. `as_dict()` gives the same as a dict.
    ///
    /// hits and misses count gets; inserted, replaced and rejected count puts; removed, evicted and expired count entries
    /// that left. entries and bytes are what is there now; bytes are payloads with keys, headers and rounding, and their
    /// part of the index, and never exceed max_bytes. reserved_bytes is the memory that they lie in, in pages of 64 KiB,
    /// and index_bytes the index's part of it; tables share both, so they are 0 in the figures of a table.
    #[pyclass(frozen, get_all, module = "gabion")]
    pub(super) struct CacheStats from gabion_cache::CacheStats {
        hits,
        misses,
        inserted,
        replaced,
        rejected,
        removed,
        evicted,
        expired,
        entries,
        bytes,
        max_bytes,
        reserved_bytes,
        index_bytes,
    }
}

#[pymethods]
impl CacheStats {
    /// The figures as a dict.
    fn as_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        as_dict(py, self.figures())
    }

    fn __repr__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        result::text(py, &format!("CacheStats({})", listed(self.figures())))
    }
}
