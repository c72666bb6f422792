//! `gabion.memory.MemoryStats` and `ArenaStats`.

use gabion_blocks::pool::{self, PoolStats, Settings};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// The pool's figures at one moment: `mapped = in_use + idle`, as exactly as threads that go on meanwhile allow.
///
/// Sizes are bytes; the others count since the process began. Returned by `stats()`; `as_dict()` gives the same as a
/// dict.
#[pyclass(frozen, get_all, module = "gabion.memory")]
pub(super) struct MemoryStats {
    /// Bytes that live buffers and groups take, rounded up to what they were served from.
    in_use: u64,
    /// Bytes that are mapped and lent to nobody.
    idle: u64,
    /// Bytes mapped for buffers and groups.
    mapped: u64,
    /// The most that `mapped` has been.
    peak: u64,
    /// Bytes of `idle` that lie in threads' own caches.
    cached: u64,
    /// Bytes lent to piles, which count apart from all the others.
    held: u64,
    /// Pieces of memory that are alive: a buffer is one, and each block of a group.
    live: u64,
    /// Pieces of memory asked for.
    requests: u64,
    /// Served from a thread's own cache.
    hits_cache: u64,
    /// Served by a piece of a block that was already cut.
    hits_piece: u64,
    /// Served by an idle block.
    hits_block: u64,
    /// Served by an idle run, which is what more than 4 MiB in one piece is.
    hits_run: u64,
    /// Mappings made.
    fresh: u64,
    /// Idle memory that an arena took from another one.
    stolen: u64,
    /// Bytes given back to the system while the pool went on: trimming, eviction, pressure.
    trimmed: u64,
    /// Requests refused, for whatever reason.
    refused: u64,
    /// Requests that waited for room.
    waited: u64,
    /// Attempts made again because the system was out of memory.
    retries: u64,
    /// What the pool keeps mapped at most when it is not all in use.
    pool_bytes: u64,
    /// The most that one request may ask for, or None.
    allocation_limit: Option<u64>,
    /// The most that may be mapped for buffers and groups, or None.
    total_limit: Option<u64>,
    /// Seconds after which idle memory that nobody needed goes back to the system.
    trim_period: f64,
    /// One ArenaStats for each arena in use.
    arenas: Py<PyTuple>,
}

/// One arena's part in MemoryStats.
#[pyclass(frozen, get_all, module = "gabion.memory")]
pub(super) struct ArenaStats {
    /// Pieces of memory lent through this arena.
    rented: u64,
    /// Pieces that came back through it.
    returned: u64,
    /// Idle memory taken from other arenas.
    stolen: u64,
    /// Bytes of this arena that are lent, or in threads' caches.
    out: u64,
    /// Bytes of whole blocks and runs that are idle here.
    idle: u64,
}

/// A limit as Python shows it: None when there is none.
fn limit(bytes: u64) -> Option<u64> {
    Some(bytes).filter(|bytes| *bytes != u64::MAX)
}

impl MemoryStats {
    pub(super) fn new(py: Python<'_>, stats: &PoolStats, settings: &Settings) -> PyResult<Self> {
        let arenas: PyResult<Vec<_>> =
            stats.arenas.iter().map(|arena| Bound::new(py, ArenaStats::new(arena))).collect();
        Ok(Self {
            in_use: stats.in_use,
            idle: stats.idle,
            mapped: stats.mapped,
            peak: stats.peak,
            cached: stats.cached,
            held: stats.held,
            live: stats.live,
            requests: stats.requests,
            hits_cache: stats.hits_cache,
            hits_piece: stats.hits_piece,
            hits_block: stats.hits_block,
            hits_run: stats.hits_run,
            fresh: stats.fresh,
            stolen: stats.stolen,
            trimmed: stats.trimmed,
            refused: stats.refused,
            waited: stats.waited,
            retries: stats.retries,
            pool_bytes: settings.pool_bytes,
            allocation_limit: limit(settings.allocation_limit),
            total_limit: limit(settings.total_limit),
            trim_period: settings.trim_period.as_secs_f64(),
            arenas: PyTuple::new(py, arenas?)?.unbind(),
        })
    }

    fn fields(&self) -> [(&'static str, u64); 19] {
        [
            ("in_use", self.in_use),
            ("idle", self.idle),
            ("mapped", self.mapped),
            ("peak", self.peak),
            ("cached", self.cached),
            ("held", self.held),
            ("live", self.live),
            ("requests", self.requests),
            ("hits_cache", self.hits_cache),
            ("hits_piece", self.hits_piece),
            ("hits_block", self.hits_block),
            ("hits_run", self.hits_run),
            ("fresh", self.fresh),
            ("stolen", self.stolen),
            ("trimmed", self.trimmed),
            ("refused", self.refused),
            ("waited", self.waited),
            ("retries", self.retries),
            ("pool_bytes", self.pool_bytes),
        ]
    }
}

#[pymethods]
impl MemoryStats {
    /// The figures as a dict, in the order of their names above; arenas as a list of dicts.
    fn as_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (name, value) in self.fields() {
            dict.set_item(name, value)?;
        }
        dict.set_item("allocation_limit", self.allocation_limit)?;
        dict.set_item("total_limit", self.total_limit)?;
        dict.set_item("trim_period", self.trim_period)?;
        let arenas = self.arenas.bind(py).iter();
        let arenas: PyResult<Vec<_>> = arenas.map(|arena| arena.cast::<ArenaStats>()?.get().as_dict(py)).collect();
        dict.set_item("arenas", arenas?)?;
        Ok(dict)
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let fields: Vec<_> = self.fields().iter().map(|(name, value)| format!("{name}={value}")).collect();
        format!("MemoryStats({}, arenas: {})", fields.join(", "), self.arenas.bind(py).len())
    }
}

impl ArenaStats {
    fn new(arena: &pool::ArenaStats) -> Self {
        Self { rented: arena.rented, returned: arena.returned, stolen: arena.stolen, out: arena.out, idle: arena.idle }
    }

    fn fields(&self) -> [(&'static str, u64); 5] {
        [
            ("rented", self.rented),
            ("returned", self.returned),
            ("stolen", self.stolen),
            ("out", self.out),
            ("idle", self.idle),
        ]
    }
}

#[pymethods]
impl ArenaStats {
    /// The figures as a dict, in the order of their names above.
    fn as_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (name, value) in self.fields() {
            dict.set_item(name, value)?;
        }
        Ok(dict)
    }

    fn __repr__(&self) -> String {
        let fields: Vec<_> = self.fields().iter().map(|(name, value)| format!("{name}={value}")).collect();
        format!("ArenaStats({})", fields.join(", "))
    }
}
