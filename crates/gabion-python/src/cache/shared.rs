//! A cache and what its tables share.

use std::cell::Cell;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError};

use gabion_cache::{Cache, Departure, Reason};
use pyo3::prelude::*;

use super::key;
use crate::codec::Codec;
use crate::pile::gate::detached;

thread_local! {
    /// This thread is between letting the interpreter go and having it back.
    static APART: Cell<bool> = const { Cell::new(false) };
}

/// A cache, and what its tables share besides.
pub(super) struct Shared {
    pub cache: Cache,
    pub codec: Codec,
    pub closed: AtomicBool,
    /// Whether the sweeper knows the cache.
    pub watched: AtomicBool,
    pub callback: Mutex<Option<Py<PyAny>>>,
}

impl Shared {
    /// Runs long work: without the interpreter, unless somebody listens and is to be called on the way.
    pub fn apart<R: Send>(&self, py: Python<'_>, work: impl FnOnce() -> R + Send) -> R {
        if self.is_heard() {
            return work();
        }
        APART.set(true);
        let result = detached(py, work);
        APART.set(false);
        result
    }

    /// Whether somebody listens to evictions.
    pub fn is_heard(&self) -> bool {
        self.callback.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    fn callback(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.callback.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|callback| callback.clone_ref(py))
    }

    /// Tells the callback of an entry that left. What it raises goes to sys.unraisablehook: the caller's own call has
    /// done its work.
    pub fn tell(&self, gone: &Departure<'_>) {
        // Work without the interpreter began while nobody listened; who came meanwhile hears from the next call on.
        if APART.get() {
            return;
        }
        let _ = Python::try_attach(|py| {
            let Some(callback) = self.callback(py) else { return };
            let told = || -> PyResult<()> {
                let (key, value) = (key::read(py, gone.key)?, self.codec.decode(py, gone.value)?);
                let reason = if gone.reason == Reason::Expired { "expired" } else { "evicted" };
                callback.call1(py, (key, value, reason)).map(drop)
            };
            if let Err(error) = told() {
                error.write_unraisable(py, Some(callback.bind(py)));
            }
        });
    }
}
