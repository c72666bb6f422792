//! A thread that removes what has expired from caches that no call visits. It ends when no cache is left for it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, Weak};
use std::time::Duration;

use gabion_blocks::Pool;
use gabion_blocks::os::{first_thread_has_ended, out_of_signals_reach};
use pyo3::prelude::*;

use super::shared::{Store, stay_apart};
use crate::gate;
use crate::once::at_fork;

/// How often it looks.
const PERIOD: Duration = Duration::from_secs(1);

static CACHES: Mutex<Vec<Weak<Store>>> = Mutex::new(Vec::new());
/// Whether this process has a sweeper. A forked child has none of its own until a call on a watched cache begins it.
static RUNNING: AtomicBool = AtomicBool::new(false);

/// Has the thread look at a cache that now holds entries with an end.
pub(super) fn watch(cache: Weak<Store>) {
    CACHES.lock().unwrap_or_else(PoisonError::into_inner).push(cache);
    begin();
}

/// Begins the thread if this process has none.
pub(super) fn begin() {
    if first_thread_has_ended() {
        return;
    }
    // Acquire and release: whoever loses the race finds the thread begun.
    if RUNNING.swap(true, Ordering::AcqRel) {
        return;
    }
    let thread = std::thread::Builder::new().name("gabion-sweeper".into());
    if out_of_signals_reach(|| thread.spawn(run)).is_err() {
        RUNNING.store(false, Ordering::Release);
    }
}

/// Whether this process has a sweeper.
#[inline]
pub(super) fn runs() -> bool {
    // Relaxed: only a child that was just forked finds it false again, and there is no other thread yet.
    RUNNING.load(Ordering::Relaxed)
}

#[pyfunction]
fn after_fork_in_child() {
    RUNNING.store(false, Ordering::Relaxed);
}

/// Has the interpreter tell of every fork.
pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    Pool::watch_forks();
    at_fork(m, None, None, Some(wrap_pyfunction!(after_fork_in_child, m)?))
}

fn run() {
    stay_apart();
    loop {
        std::thread::sleep(PERIOD);
        if first_thread_has_ended() {
            return RUNNING.store(false, Ordering::Release);
        }
        let ended = gate::inside(|| {
            let caches = {
                let mut caches = CACHES.lock().unwrap_or_else(PoisonError::into_inner);
                caches.retain(|cache| cache.strong_count() > 0);
                if caches.is_empty() {
                    // Under the lock: whoever adds a cache after this finds that it has to begin a thread. Release, as
                    // in `begin`.
                    RUNNING.store(false, Ordering::Release);
                    return true;
                }
                caches.clone()
            };
            for cache in caches.iter().filter_map(Weak::upgrade) {
                // Somebody who listens is called with the interpreter, on threads of the program's own. Whoever begins
                // to just now hears from the next call on.
                if !cache.heard.load(Ordering::Relaxed) {
                    cache.cache.expire();
                }
            }
            false
        });
        if ended {
            return;
        }
    }
}
