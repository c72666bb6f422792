//! `gabion.CacheStats`.

use pyo3::prelude::*;

use crate::figures::{figure_methods, figures};

figures! {
    /// A cache's or table's figures at one moment; a cache's are the sums over its tables.
    ///
    /// Counts are since the cache was made. Returned by `stats()`, `cache_stats()` of a memoized function, and
    /// `as_dict()` gives the same as a dict.
    #[pyclass(frozen, get_all, module = "gabion")]
    pub(super) struct CacheStats from gabion_cache::CacheStats {
        /// Gets that found a value.
        hits,
        /// Gets that found none, or one whose time was over.
        misses,
        /// Puts under a key that had no value.
        inserted,
        /// Puts under a key that had one.
        replaced,
        /// Puts for which there was no room.
        rejected,
        /// Entries that callers removed, one by one or all at once. A pop that fails counts here only when the value
        /// could not stay, because another took its place meanwhile or its room; and it is neither a hit nor a miss.
        removed,
        /// Entries that had to make room for others.
        evicted,
        /// Entries that were removed because their time was over.
        expired,
        /// Entries now, those included whose time is over and that were not yet removed.
        entries,
        /// Bytes of the entries now: values with keys, headers and rounding, and their part of the index. Never more
        /// than max_bytes.
        bytes,
        /// The most that `bytes` may become: the table's own limit, or the cache's where that is less.
        max_bytes,
        /// Memory that the entries lie in, in pages of 64 KiB, and the index. At most max_bytes; where that is below 8
        /// MiB, at most 5 MiB more, and at most 8 MiB in all. Tables share it: 0 in a table's figures.
        reserved_bytes,
        /// The index's part of reserved_bytes: units of 4 KiB, and some KiB that are there from the beginning. Tables
        /// share it: 0 in a table's figures.
        index_bytes,
    } and {
        /// Hits as a share of all gets: 0.0 to 1.0, and 0.0 before the first one.
        hit_rate: f64,
    }
}

/// The figures of a cache or a table.
pub(super) fn cache_stats(stats: &gabion_cache::CacheStats) -> CacheStats {
    let gets = stats.hits + stats.misses;
    CacheStats::new(stats, if gets == 0 { 0.0 } else { stats.hits as f64 / gets as f64 })
}

figure_methods! {
    CacheStats {
        /// The figures as a dict, in the order of their names above.
        fn as_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
            self.state(py)
        }
    }
}
