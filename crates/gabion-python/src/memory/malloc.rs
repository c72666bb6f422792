//! What the C library keeps of the memory that was freed: the pool has no say in it, but can set how much.

use pyo3::exceptions::PyNotImplementedError;
use pyo3::prelude::*;

use super::refusal;
use crate::detached::detached_ungated;
use crate::errors::exception;
use crate::size;

/// What glibc begins with: for both of its thresholds.
const DEFAULT: usize = 128 << 10;

/// Have malloc give back what was freed, too: from now on each of its heaps keeps at most this much at its end.
///
/// keep is an int or text such as "1 MiB", below 2 GiB.
///
/// Python's bytes and what image codecs work in come from malloc, not from the pool. glibc has a heap for each thread,
/// and raises what it keeps at a heap's end to twice the largest block that was ever freed, up to 64 MiB. So a service
/// with many threads stays large after a load. This call sets that threshold (mallopt, M_TRIM_THRESHOLD), has blocks of
/// 128 KiB and more mapped by themselves again (M_MMAP_THRESHOLD), ends the growth of both, and gives back at once what
/// it can (malloc_trim). MALLOC_TRIM_THRESHOLD_ in the environment does the same from the start. Gaps within the heaps
/// are given back later, when images rest: see configure(trim_malloc=...).
///
/// It is for the whole process and cannot be taken back. The price: large blocks of malloc, such as arrays, are mapped
/// anew each time; gabion.numpy.install() has NumPy's come from the pool instead. Call it when the process begins,
/// because a heap is cut only when its own thread frees something. Where another malloc was put in the place of
/// glibc's, nothing changes.
///
/// Raises NotImplementedError on systems without glibc, TypeError or ValueError for what is no size or too large.
///
/// >>> import gabion.memory
/// >>> gabion.memory.trim_malloc(keep="256 KiB")
#[pyfunction]
#[pyo3(signature = (*, keep = None), text_signature = "(*, keep='128 KiB')")]
fn trim_malloc(py: Python<'_>, keep: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
    let keep = keep.map_or(Ok(DEFAULT), |value| size::length("keep", value))?;
    let Ok(threshold) = libc::c_int::try_from(keep) else {
        return Err(refusal::value_error(py, &format!("keep={keep}: malloc's threshold is below 2 GiB")));
    };
    if detached_ungated(py, || set(threshold)) {
        return Ok(());
    }
    let text = "trim_malloc() sets a threshold of glibc's malloc, and this system has another C library";
    Err(exception(&py.get_type::<PyNotImplementedError>(), text))
}

#[cfg(target_env = "gnu")]
fn set(threshold: libc::c_int) -> bool {
    // SAFETY: both may be called at any time, from any thread.
    unsafe {
        let set = libc::mallopt(libc::M_TRIM_THRESHOLD, threshold) == 1;
        // It grows together with the other, and what is below it stays in the heaps, where one small block holds it.
        let mapped = libc::mallopt(libc::M_MMAP_THRESHOLD, DEFAULT as libc::c_int) == 1;
        libc::malloc_trim(0);
        set && mapped
    }
}

#[cfg(not(target_env = "gnu"))]
fn set(_: libc::c_int) -> bool {
    false
}

/// Adds the function to the extension module.
pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(trim_malloc, m)?)
}
