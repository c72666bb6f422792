//! `gabion.memory.MemoryStats` and `ArenaStats`.

use gabion_blocks::pool::{self, PoolStats, Settings};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::figures::{Figure, figure_methods, figures};
use crate::result;

figures! {
    /// The pool's figures at one moment: `mapped = in_use + idle`, as exactly as threads that go on meanwhile allow.
    ///
    /// Sizes are bytes; the others count since the process began. Returned by `stats()`; `as_dict()` gives the same as
    /// a dict.
    #[pyclass(frozen, get_all, module = "gabion.memory")]
    pub(super) struct MemoryStats from PoolStats {
        /// Bytes that live buffers and groups take, rounded up to what they were served from.
        in_use,
        /// Bytes that are mapped and lent to nobody; also those of free pieces whose memory was given back to the
        /// system while their block is partly in use.
        idle,
        /// Bytes mapped for buffers and groups.
        mapped,
        /// The most that `mapped` has been.
        peak,
        /// Bytes of `idle` that lie in threads' own caches.
        cached,
        /// Bytes lent to piles, caches and slots, or waiting for the next of them; they count apart from all the
        /// others.
        held,
        /// Bytes of `held` that are empty and warm: what piles, caches and slots take next comes from there, and the
        /// rest goes back to the system when `idle` memory would.
        held_idle,
        /// Buffers that are alive, each block of a group among them.
        live,
        /// Buffers asked for, each block of a group among them.
        requests,
        /// Served from a thread's own cache.
        hits_cache,
        /// Served by a piece of a block that was already cut.
        hits_piece,
        /// Served by an idle block.
        hits_block,
        /// Served by an idle run: contiguous memory of more than 4 MiB.
        hits_run,
        /// Mappings made.
        fresh,
        /// Idle memory that an arena took from another one.
        stolen,
        /// Bytes given back to the system while the pool went on: trimming, eviction, pressure.
        trimmed,
        /// Requests refused, for whatever reason.
        refused,
        /// Requests that waited for room.
        waited,
        /// Attempts made again because the system was out of memory.
        retries,
    } and {
        /// What the pool keeps mapped at most when it is not all in use.
        pool_bytes: Figure,
        /// The most that one request may ask for, or None.
        allocation_limit: Option<Figure>,
        /// The most that may be mapped for buffers and groups, or None.
        total_limit: Option<Figure>,
        /// Seconds after which idle memory that nobody needed goes back to the system.
        trim_period: f64,
        /// Whether malloc gives back what it keeps, too, when images have rested for that long.
        trim_malloc: bool,
        /// One ArenaStats for each arena in use.
        arenas: Py<PyTuple>,
    }
}

figures! {
    /// One arena's part in MemoryStats.
    #[pyclass(frozen, get_all, module = "gabion.memory")]
    pub(super) struct ArenaStats from pool::ArenaStats {
        /// Buffers lent through this arena, each block of a group among them.
        rented,
        /// Buffers that came back through it.
        returned,
        /// Idle memory taken from other arenas.
        stolen,
        /// Bytes of this arena that are lent, or in threads' caches.
        out,
        /// Bytes of whole blocks and runs that are idle here.
        idle,
    }
}

/// A limit as Python shows it: None when there is none.
fn limit(bytes: u64) -> Option<Figure> {
    Some(Figure(bytes)).filter(|bytes| bytes.0 != u64::MAX)
}

/// The figures of a pool with these settings.
pub(super) fn memory_stats(py: Python<'_>, stats: &PoolStats, settings: &Settings) -> PyResult<MemoryStats> {
    let arenas: PyResult<Vec<_>> = stats.arenas.iter().map(|arena| Bound::new(py, ArenaStats::new(arena))).collect();
    Ok(MemoryStats::new(
        stats,
        Figure(settings.pool_bytes),
        limit(settings.allocation_limit),
        limit(settings.total_limit),
        settings.trim_period.as_secs_f64(),
        settings.trim_malloc,
        result::tuple(py, arenas?.into_iter().map(Bound::into_any))?.unbind(),
    ))
}

figure_methods! {
    MemoryStats {
        /// The figures as a dict, in the order of their names above; arenas as a list of dicts.
        fn as_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
            let dict = self.state(py)?;
            let (arenas, list) = (self.arenas.bind(py).iter(), result::list(py)?);
            for arena in arenas {
                list.append(arena.cast::<ArenaStats>()?.get().as_dict(py)?)?;
            }
            dict.set_item(result::text(py, "arenas")?, list)?;
            Ok(dict)
        }
    }
}

figure_methods! {
    ArenaStats {
        /// The figures as a dict, in the order of their names above.
        fn as_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
            self.state(py)
        }
    }
}
