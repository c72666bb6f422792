//! The functions of `gabion.memory`.

use std::time::Duration;

use gabion_blocks::pool::{Change, GroupRequest, Pool, Request, Settings};
use pyo3::exceptions::PyAssertionError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::buffer::Buffer;
use super::group::Group;
use super::stats::{MemoryStats, memory_stats};
use super::{argument, refusal, waiting};
use crate::argument::{Given, flag};
use crate::detached::detached_ungated;
use crate::errors::{exception, type_error};
use crate::figures::Figure;
use crate::{size, time};

/// How long a call waits, if it does. One that does not, with 0, does not queue either.
fn patience(timeout: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Duration>> {
    let timeout = timeout.map(|value| time::duration("timeout", value)).transpose()?;
    Ok(timeout.filter(|timeout| !timeout.is_zero()))
}

/// Rent contiguous, writable memory from the process-wide pool; returns a Buffer.
///
/// nbytes is an int, or text such as "4 MiB". If the pool has warm memory, it is used: it was touched before and costs
/// no page faults. Otherwise memory is mapped.
///
/// clean=True makes all bytes zero; otherwise they are whatever an earlier user of this process left. Fresh memory is
/// known to be zero and not cleared again.
///
/// contiguous=False says that the bytes need not lie side by side. Those of a Buffer always do, so this changes
/// nothing; rent_group() gives memory in blocks.
///
/// timeout (seconds, text such as "5 min", or a timedelta) lets the call wait for room when configure(total_limit=...)
/// leaves none. Waiting calls are served in order of arrival, so a small request may stand behind a large one; one that
/// a signal's handler makes goes before the one that it interrupts, and calls without a timeout do not queue. Other
/// threads run meanwhile, and signals such as Ctrl-C are handled; the thread itself stands still, with an event loop or
/// greenlets that it runs. By default, and with 0, the call does not wait.
///
/// Raises LimitError when a limit, or the machine's memory and swap, does not allow it (nothing is touched then),
/// MemoryError when the system is out of memory and giving back the pool's own idle memory did not help, TypeError or
/// ValueError when nbytes is not a size. Before total_limit refuses the call or has it wait, Python's collector runs
/// once, because garbage may hold what is asked for; not if gc.disable() was called, nor soon after it was in vain.
///
/// Constant time when warm, about a microsecond; clearing takes time linear in nbytes.
///
/// >>> import gabion.memory
/// >>> buffer = gabion.memory.rent("64 KiB", clean=True)
/// >>> len(buffer), memoryview(buffer)[100]
/// (65536, 0)
/// >>> buffer.release()
#[pyfunction]
#[pyo3(
    signature = (nbytes, *, clean = Given::Absent, contiguous = Given::Absent, timeout = None),
    text_signature = "(nbytes, *, clean=False, contiguous=True, timeout=None)"
)]
fn rent(
    py: Python<'_>,
    nbytes: &Bound<'_, PyAny>,
    clean: Given<'_>,
    contiguous: Given<'_>,
    timeout: Option<&Bound<'_, PyAny>>,
) -> PyResult<Buffer> {
    let bytes = size::length("nbytes", nbytes)?;
    let clean = clean.flag("clean", false)?;
    contiguous.flag("contiguous", true)?; // a buffer always is
    let may_wait = timeout.is_some();
    let timeout = patience(timeout)?;
    let request = Request { bytes, clean, timeout };
    // In this order: most calls have no timeout, which is known without a look at the request. Memory is read late that
    // was just written in other parts.
    let turn = !may_wait || timeout.is_none() || !Pool::global().someone_waits();
    let warm = if turn { Pool::global().rent_warm(&request) } else { None };
    let memory = match warm {
        Some(memory) => memory,
        None => waiting::patiently(py, request.bytes, |pool, go_on| pool.rent_while(&request, go_on))?,
    };
    Buffer::new(py, memory)
}

/// Rent memory in blocks of up to 4 MiB; returns a Group.
///
/// This is for images and tables: large, worked on row by row, and not worth contiguous memory. Blocks that the pool
/// has warm are used, and only the missing ones are mapped.
///
/// row_bytes is the length of a row in bytes: no row is cut by the end of a block, and Group.row(y) shows one. A row
/// longer than a block gets a run of its own: contiguous memory as long as it is. Where nbytes is no multiple of
/// row_bytes, the last row is shorter, and Group.rows counts it.
///
/// nbytes, clean, timeout and the errors are as with rent().
///
/// >>> import gabion.memory
/// >>> group = gabion.memory.rent_group("9 MiB")
/// >>> [len(block) for block in group]
/// [4194304, 4194304, 1048576]
/// >>> group.release()
#[pyfunction]
#[pyo3(
    signature = (nbytes, *, row_bytes = None, clean = Given::Absent, timeout = None),
    text_signature = "(nbytes, *, row_bytes=None, clean=False, timeout=None)"
)]
fn rent_group(
    py: Python<'_>,
    nbytes: &Bound<'_, PyAny>,
    row_bytes: Option<&Bound<'_, PyAny>>,
    clean: Given<'_>,
    timeout: Option<&Bound<'_, PyAny>>,
) -> PyResult<Group> {
    let bytes = size::length("nbytes", nbytes)?;
    let clean = clean.flag("clean", false)?;
    let row_bytes = row_bytes.map(|value| size::length("row_bytes", value)).transpose()?;
    if row_bytes == Some(0) {
        return Err(refusal::value_error(
            py,
            "row_bytes=0: a row has at least 1 byte; leave row_bytes out for no rows",
        ));
    }
    let timeout = patience(timeout)?;
    let request = GroupRequest { bytes, row_bytes, clean, timeout };
    let memory = waiting::patiently(py, request.bytes, |pool, go_on| pool.rent_group_while(&request, go_on))?;
    Group::new(py, memory, row_bytes)
}

/// An argument of `configure`.
enum Setting<'py> {
    /// Left out: stays as it is.
    Kept,
    /// None: the default.
    Default,
    Given(Bound<'py, PyAny>),
}

impl<'a, 'py> FromPyObject<'a, 'py> for Setting<'py> {
    type Error = PyErr;

    fn extract(value: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        Ok(if value.is_none() {
            Self::Default
        } else if value.is(value.py().Ellipsis()) {
            Self::Kept
        } else {
            Self::Given(value.to_owned())
        })
    }
}

impl<'py> Setting<'py> {
    fn read<T>(self, default: T, read: impl FnOnce(&Bound<'py, PyAny>) -> PyResult<T>) -> PyResult<Option<T>> {
        match self {
            Self::Kept => Ok(None),
            Self::Default => Ok(Some(default)),
            Self::Given(value) => read(&value).map(Some),
        }
    }

    /// A limit in bytes; 0 is none.
    fn limit(self, name: &str) -> PyResult<Option<u64>> {
        self.read(u64::MAX, |value| {
            Ok(Some(size::length(name, value)? as u64).filter(|bytes| *bytes > 0).unwrap_or(u64::MAX))
        })
    }
}

/// Change how the pool behaves, at once and for the whole process. What is left out stays as it is; None stands for the
/// default.
///
/// pool_bytes: how much memory the pool keeps mapped at most when it is not all in use, as int or text such as "1 GiB".
/// What comes back beyond it goes to the system at once; 0 keeps nothing. Default: 1/8 of what this process may use
/// (the limit of its cgroup counts).
///
/// arenas: how many arenas threads are spread over, a power of two from 1 to 256. Default: four for each processor, at
/// least 16. It may be changed at any time.
///
/// trim_period: seconds, text such as "5 min", or a timedelta. Idle memory that neither this period nor the last one
/// needed goes back to the system. Default: 60.
///
/// allocation_limit: the most bytes that one request may ask for, be it for a buffer, a group, an array or an image.
/// total_limit: the most that is mapped for buffers, groups, arrays and images together, idle memory included; whole
/// idle blocks are given back before anything is refused. Refused requests raise LimitError before anything is touched,
/// in NumPy its own MemoryError. Default, and 0: no limit.
///
/// trim_malloc: whether malloc gives back what it keeps of memory that image codecs and Python freed (malloc_trim),
/// once no image was opened or saved for a trim_period, or memory is short. It takes a thread of the pool's some
/// milliseconds, and what the process asks of malloc next comes fresh. With glibc only. Default: True. See also
/// trim_malloc().
///
/// Lowering pool_bytes or total_limit trims at once; what is in use stays.
///
/// The settings are this process's. One that it forks inherits them; one that is started anew (multiprocessing's spawn
/// and forkserver) has the defaults and calls this itself, as in Pool(initializer=...) or torch's
/// DataLoader(worker_init_fn=...).
///
/// >>> import gabion.memory
/// >>> gabion.memory.configure(allocation_limit="1 GiB")
/// >>> gabion.memory.rent("2 GiB")
/// Traceback (most recent call last):
///     ...
/// gabion.LimitError: ...
/// >>> gabion.memory.configure(allocation_limit=None)
#[pyfunction]
#[pyo3(
    signature = (
        *, pool_bytes = Setting::Kept, arenas = Setting::Kept, trim_period = Setting::Kept,
        allocation_limit = Setting::Kept, total_limit = Setting::Kept, trim_malloc = Setting::Kept, **unknown
    ),
    text_signature = "(*, pool_bytes=..., arenas=..., trim_period=..., allocation_limit=..., total_limit=..., \
                      trim_malloc=...)"
)]
#[expect(clippy::too_many_arguments, reason = "keywords of a call in Python")]
fn configure(
    py: Python<'_>,
    pool_bytes: Setting<'_>,
    arenas: Setting<'_>,
    trim_period: Setting<'_>,
    allocation_limit: Setting<'_>,
    total_limit: Setting<'_>,
    trim_malloc: Setting<'_>,
    unknown: Option<&Bound<'_, PyDict>>,
) -> PyResult<()> {
    if let Some((name, _)) = unknown.and_then(|unknown| unknown.iter().next()) {
        let text = format!(
            "configure() has no {name}: it takes pool_bytes, arenas, trim_period, allocation_limit, total_limit and trim_malloc"
        );
        return Err(type_error(py, &text));
    }
    let default = Settings::default();
    let follow = matches!(pool_bytes, Setting::Default);
    let change = Change {
        pool_bytes: pool_bytes.read(default.pool_bytes, |value| Ok(size::length("pool_bytes", value)? as u64))?,
        arenas: arenas.read(default.arenas, argument::arenas)?,
        trim_period: trim_period.read(default.trim_period, |value| time::duration("trim_period", value))?,
        allocation_limit: allocation_limit.limit("allocation_limit")?,
        total_limit: total_limit.limit("total_limit")?,
        trim_malloc: trim_malloc.read(default.trim_malloc, |value| flag("trim_malloc", value))?,
    };
    detached_ungated(py, || {
        Pool::global().configure(&change)?;
        if follow {
            Pool::global().follow_limits();
        }
        Ok(())
    })
    .map_err(|error| refusal::refused(py, &error))
}

/// The pool's figures at this moment, as a MemoryStats: in_use, idle, mapped, peak, per arena and more.
///
/// >>> import gabion.memory
/// >>> figures = gabion.memory.stats()
/// >>> figures.mapped == figures.in_use + figures.idle
/// True
#[pyfunction]
fn stats(py: Python<'_>) -> PyResult<MemoryStats> {
    let (stats, settings) = detached_ungated(py, || (Pool::global().stats(), Pool::global().settings()));
    memory_stats(py, &stats, &settings)
}

/// Give idle memory back to the system: what neither this trim period nor the last one needed, or with all=True
/// everything that is idle, except for free pieces below 16 KiB of blocks that are partly in use. Returns the bytes
/// given back. Larger free pieces of such blocks stay mapped, without memory, and count as idle. The pool does the
/// former by itself, too.
#[pyfunction]
#[pyo3(signature = (all = Given::Absent), text_signature = "(all=False)")]
fn trim(py: Python<'_>, all: Given<'_>) -> PyResult<Figure> {
    let all = all.flag("all", false)?;
    Ok(Figure(detached_ungated(py, || Pool::global().trim(all))))
}

/// A size as the package's own Python code reads it.
#[pyfunction]
fn _size(name: &str, value: &Bound<'_, PyAny>) -> PyResult<usize> {
    size::length(name, value)
}

/// Checks every equation of the pool's books; raises AssertionError with the first that does not hold. For tests, while
/// no other thread uses the pool.
#[pyfunction]
fn _memory_validate(py: Python<'_>) -> PyResult<()> {
    let wrong = detached_ungated(py, || Pool::global().validate());
    wrong.map_err(|wrong| exception(&py.get_type::<PyAssertionError>(), &wrong.0))
}

/// Adds the functions to the extension module.
pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(rent, m)?)?;
    m.add_function(wrap_pyfunction!(rent_group, m)?)?;
    m.add_function(wrap_pyfunction!(configure, m)?)?;
    m.add_function(wrap_pyfunction!(stats, m)?)?;
    m.add_function(wrap_pyfunction!(trim, m)?)?;
    m.add_function(wrap_pyfunction!(_memory_validate, m)?)?;
    m.add_function(wrap_pyfunction!(_size, m)?)
}
