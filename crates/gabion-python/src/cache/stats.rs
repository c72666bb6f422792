//! `gabion.CacheStats`.

use pyo3::prelude::*;
use pyo3::types::PyDict;

/// A cache's or table's figures at one moment. `as_dict()` gives the same as a dict.
///
/// hits and misses count gets; inserted, replaced and rejected count puts; removed, evicted and expired count entries
/// that left. entries and bytes are what is there now; bytes are payloads with keys, headers and rounding, and their
/// part of the index, and never exceed max_bytes. reserved_bytes is the memory that they lie in, in pages of 64 KiB,
/// and index_bytes the index's part of it; tables share both, so they are 0 in the figures of a table.
#[pyclass(frozen, get_all, module = "gabion")]
pub(super) struct CacheStats {
    hits: u64,
    misses: u64,
    inserted: u64,
    replaced: u64,
    rejected: u64,
    removed: u64,
    evicted: u64,
    expired: u64,
    entries: u64,
    bytes: u64,
    max_bytes: u64,
    reserved_bytes: u64,
    index_bytes: u64,
}

impl From<gabion_cache::CacheStats> for CacheStats {
    fn from(stats: gabion_cache::CacheStats) -> Self {
        Self {
            hits: stats.hits,
            misses: stats.misses,
            inserted: stats.inserted,
            replaced: stats.replaced,
            rejected: stats.rejected,
            removed: stats.removed,
            evicted: stats.evicted,
            expired: stats.expired,
            entries: stats.entries,
            bytes: stats.bytes,
            max_bytes: stats.max_bytes,
            reserved_bytes: stats.reserved_bytes,
            index_bytes: stats.index_bytes,
        }
    }
}

impl CacheStats {
    fn fields(&self) -> [(&'static str, u64); 13] {
        [
            ("hits", self.hits),
            ("misses", self.misses),
            ("inserted", self.inserted),
            ("replaced", self.replaced),
            ("rejected", self.rejected),
            ("removed", self.removed),
            ("evicted", self.evicted),
            ("expired", self.expired),
            ("entries", self.entries),
            ("bytes", self.bytes),
            ("max_bytes", self.max_bytes),
            ("reserved_bytes", self.reserved_bytes),
            ("index_bytes", self.index_bytes),
        ]
    }
}

#[pymethods]
impl CacheStats {
    /// The figures as a dict.
    fn as_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (name, value) in self.fields() {
            dict.set_item(name, value)?;
        }
        Ok(dict)
    }

    fn __repr__(&self) -> String {
        let fields: Vec<_> = self.fields().iter().map(|(name, value)| format!("{name}={value}")).collect();
        format!("CacheStats({})", fields.join(", "))
    }
}
