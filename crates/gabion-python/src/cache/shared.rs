//! A cache and what its tables share.

use std::cell::Cell;
use std::collections::HashSet;
use std::ffi::{c_int, c_void};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use gabion_cache::{Cache, Departure, Reason};
use pyo3::exceptions::{PyKeyboardInterrupt, PySystemExit};
use pyo3::prelude::*;

use super::key;
use crate::codec::Codec;
use crate::gate::through_gate;
use crate::once::of_module;
use crate::{ffi, result};

thread_local! {
    /// This thread is between letting the interpreter go and having it back, or never has it.
    static APART: Cell<bool> = const { Cell::new(false) };
}

/// Has this thread, which is none of the interpreter's, tell nobody of evictions. It keeps no object alive, so that the
/// collector could take the codec apart while the thread builds a value for whoever listens; and it has the gate of
/// forks, which whoever listens may want to pass.
pub(super) fn stay_apart() {
    APART.set(true);
}

/// A cache without anything of the interpreter's: the sweeper holds it, and may be the last to let go of it.
pub(super) struct Store {
    pub cache: Cache,
    /// Somebody listens to evictions.
    pub heard: AtomicBool,
}

/// A cache, and what its tables share besides. Only threads with the interpreter hold it.
pub(super) struct Shared {
    pub store: Arc<Store>,
    pub codec: Codec,
    pub closed: AtomicBool,
    /// Whether the sweeper knows the cache.
    pub watched: AtomicBool,
    pub callback: Mutex<Option<Py<PyAny>>>,
    /// Names of the tables whose values the log was told of because they are too large. No code of Python's runs while
    /// it is locked.
    pub logged_tables: Mutex<HashSet<Box<str>>>,
}

/// So many tables are remembered. A program that makes new ones without end hears of some again.
const MOST_LOGGED: usize = 1_000;

/// Work of this thread without the interpreter, until it is dropped, also by a panic.
struct Apart;

impl Apart {
    fn begin() -> Self {
        APART.set(true);
        Self
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        APART.set(false);
    }
}

impl Shared {
    /// Whether the log has heard nothing yet of the values of a table; from now on it has.
    pub fn is_first_refusal(&self, table: &str) -> bool {
        let mut logged = self.logged_tables.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.len() >= MOST_LOGGED {
            logged.clear();
        }
        // Without memory it hears nothing.
        logged.try_reserve(1).is_ok() && logged.insert(table.into())
    }

    /// Runs long work: without the interpreter, unless somebody listens and is to be called on the way.
    pub fn apart<R: Send>(&self, py: Python<'_>, work: impl FnOnce() -> R + Send) -> R {
        if self.is_heard() {
            return work();
        }
        let _apart = Apart::begin();
        through_gate(py, work)
    }

    /// Whether somebody listens to evictions.
    pub fn is_heard(&self) -> bool {
        // Relaxed: a call that runs beside on_evict() may come before or after it.
        self.store.heard.load(Relaxed)
    }

    fn callback(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.callback.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|callback| callback.clone_ref(py))
    }

    /// Tells the callback of an entry that left. What it raises goes to sys.unraisablehook: the caller's own call has
    /// done its work. Who pressed Ctrl-C meanwhile, or has the program exit, meant the program, though: that is raised
    /// once more, when that call is over.
    pub fn notify_evicted(shared: &Weak<Self>, gone: &Departure<'_>) {
        // Work without the interpreter began while nobody listened; who came meanwhile hears from the next call on.
        if APART.get() {
            return;
        }
        let _ = Python::try_attach(|py| {
            // Held here only, where it may be the last that is held.
            let Some(shared) = shared.upgrade() else { return };
            let Some(callback) = shared.callback(py) else { return };
            let notified = || -> PyResult<()> {
                let (key, value) = (key::read(py, gone.key)?, shared.codec.decode(py, gone.value)?);
                let reason = result::text(py, if gone.reason == Reason::Expired { "expired" } else { "evicted" })?;
                let table = result::text(py, gone.table)?;
                callback.call1(py, (key, value, reason, table)).map(drop)
            };
            if let Err(error) = notified() {
                let interrupted = error.is_instance_of::<PyKeyboardInterrupt>(py);
                let exits = error.is_instance_of::<PySystemExit>(py).then(|| error.clone_ref(py));
                error.write_unraisable(py, Some(callback.bind(py)));
                if interrupted {
                    // SAFETY: attached.
                    unsafe { ffi::PyErr_SetInterrupt() };
                }
                if let Some(exits) = exits {
                    raise_later(py, exits);
                }
            }
        });
    }
}

/// What is to be raised in the main thread.
static LATER: Mutex<Option<PyErr>> = Mutex::new(None);

/// Raises an error in the main thread, if this is it, as soon as the interpreter handles signals the next time. In
/// another thread it would end that alone, which is for its own code to say.
#[cold]
fn raise_later(py: Python<'_>, error: PyErr) {
    extern "C" fn raise(_: *mut c_void) -> c_int {
        let error = LATER.lock().unwrap_or_else(PoisonError::into_inner).take();
        let raised = error.and_then(|error| Python::try_attach(|py| error.restore(py)));
        if raised.is_some() { -1 } else { 0 }
    }
    let of = |name| of_module(py, c"threading", name)?.call0();
    let is_main = || of(c"current_thread")?.eq(of(c"main_thread")?);
    if !is_main().unwrap_or(false) {
        return;
    }
    let before = LATER.lock().unwrap_or_else(PoisonError::into_inner).replace(error);
    // Not under the lock: its end may run code.
    drop(before);
    // SAFETY: the function takes no argument. Where the interpreter has no place for it, the next one finds the error.
    unsafe { ffi::Py_AddPendingCall(Some(raise), std::ptr::null_mut()) };
}
