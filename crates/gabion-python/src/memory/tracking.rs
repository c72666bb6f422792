//! Where memory was rented, written down while at least one `track()` is open.
//!
//! Without one, a rent costs one load more. With one, each rent stores its call stack as plain text, so that a record
//! refers to no Python object and may be removed on any thread.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::errors::legible;
use crate::once::{at_fork, of_module};

/// A call: file, line, function.
type Frame = (String, u32, String);

/// Frames kept of a stack, innermost first.
const DEEPEST: usize = 32;

/// How many `track()` are open.
static OPEN: AtomicUsize = AtomicUsize::new(0);
/// The number of the next rent.
static NEXT: AtomicU64 = AtomicU64::new(1);
/// What was rented under a `track()` and is alive, by number.
type Live = Mutex<BTreeMap<u64, Entry>>;
static FIRST: Live = Mutex::new(BTreeMap::new());
/// The list in use: another one only in a child that was forked while a thread, which it lacks, held the list's lock.
static LIVE: AtomicPtr<Live> = AtomicPtr::new((&raw const FIRST).cast_mut());

/// One rent.
#[derive(Clone)]
struct Entry {
    kind: &'static str,
    nbytes: usize,
    stack: Vec<Frame>,
}

/// A rent's number in the list. Removed when it is released or dropped.
pub(crate) struct Record(u64);

impl Record {
    /// The memory is no longer in use.
    pub(super) fn remove(&self) {
        let removed = live().remove(&self.0);
        drop(removed); // outside the lock
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.remove();
    }
}

fn live() -> MutexGuard<'static, BTreeMap<u64, Entry>> {
    // SAFETY: `FIRST`, or a list that was leaked; written only in a process of one thread.
    let live = unsafe { &*LIVE.load(Ordering::Relaxed) };
    // No code that may panic runs under the lock.
    live.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes down a rent if a `track()` is open.
#[inline]
pub(crate) fn record(py: Python<'_>, kind: &'static str, nbytes: usize) -> PyResult<Option<Record>> {
    // Relaxed: a rent beside the opening of a track() may belong to it or not.
    if OPEN.load(Ordering::Relaxed) == 0 { Ok(None) } else { enter(py, kind, nbytes).map(Some) }
}

#[cold]
fn enter(py: Python<'_>, kind: &'static str, nbytes: usize) -> PyResult<Record> {
    let stack = stack(py)?;
    // Relaxed: only the number counts.
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    live().insert(number, Entry { kind, nbytes, stack });
    Ok(Record(number))
}

/// The Python calls that led here, innermost first. None for a thread without Python code.
fn stack(py: Python<'_>) -> PyResult<Vec<Frame>> {
    let mut frames = Vec::new();
    let mut frame = match of_module(py, c"sys", c"_getframe")?.call0() {
        Ok(frame) => frame,
        Err(error) if error.is_instance_of::<PyValueError>(py) => return Ok(frames),
        Err(error) => return Err(error),
    };
    while frames.len() < DEEPEST && !frame.is_none() {
        let code = frame.getattr("f_code")?;
        // A frame between two lines has no number.
        let line = frame.getattr("f_lineno")?.extract().unwrap_or(0);
        frames.push((legible(&code.getattr("co_filename")?)?, line, legible(&code.getattr("co_name")?)?));
        frame = frame.getattr("f_back")?;
    }
    Ok(frames)
}

/// Opens a `track()`; returns the number of the first rent that belongs to it.
#[pyfunction]
fn _track_begin() -> u64 {
    // Relaxed: see record().
    OPEN.fetch_add(1, Ordering::Relaxed);
    NEXT.load(Ordering::Relaxed)
}

/// Closes a `track()`; returns what was rented since `first` and is alive: kind, bytes, stack, in the order of rents.
#[pyfunction]
fn _track_end(first: u64) -> Vec<(&'static str, usize, Vec<Frame>)> {
    let (found, forgotten) = {
        let mut live = live();
        let found: Vec<Entry> = live.range(first..).map(|(_, entry)| entry.clone()).collect();
        // Relaxed: see record().
        let others = OPEN.fetch_sub(1, Ordering::Relaxed) - 1;
        (found, if others == 0 { std::mem::take(&mut *live) } else { BTreeMap::new() })
    };
    drop(forgotten);
    found.into_iter().map(|entry| (entry.kind, entry.nbytes, entry.stack)).collect()
}

/// In a forked child: takes a new list when the old one's lock belongs to a thread that is not here.
#[pyfunction]
fn after_fork() {
    // SAFETY: as in live().
    let old = unsafe { &*LIVE.load(Ordering::Relaxed) };
    if matches!(old.try_lock(), Err(TryLockError::WouldBlock)) {
        // Relaxed: there is one thread.
        LIVE.store(Box::leak(Box::default()), Ordering::Relaxed);
    }
}

/// Adds the functions to the extension module.
pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(_track_begin, m)?)?;
    m.add_function(wrap_pyfunction!(_track_end, m)?)?;
    at_fork(m, None, None, Some(wrap_pyfunction!(after_fork, m)?))
}
