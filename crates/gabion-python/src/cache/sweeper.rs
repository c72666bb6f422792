//! A thread that removes what has expired, where nobody else comes by.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError, Weak};
use std::time::Duration;

use super::shared::Shared;
use crate::pile::gate;

/// How often it looks.
const PERIOD: Duration = Duration::from_secs(1);

static CACHES: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());
/// The process whose sweeper runs; a forked child has none of its own yet.
static RUNNING: AtomicU32 = AtomicU32::new(0);

/// Has the thread look at a cache that now holds entries with an end.
pub(super) fn watch(cache: Weak<Shared>) {
    CACHES.lock().unwrap_or_else(PoisonError::into_inner).push(cache);
    begin();
}

/// Begins the thread if this process has none.
pub(super) fn begin() {
    let own = std::process::id();
    // Acquire and release: whoever loses the race finds the thread begun.
    if RUNNING.swap(own, Ordering::AcqRel) != own
        && std::thread::Builder::new().name("gabion-sweeper".into()).spawn(run).is_err()
    {
        RUNNING.store(0, Ordering::Release);
    }
}

/// Whether this process has a sweeper.
#[inline]
pub(super) fn runs() -> bool {
    RUNNING.load(Ordering::Relaxed) == std::process::id()
}

fn run() {
    loop {
        std::thread::sleep(PERIOD);
        gate::inside(|| {
            let caches = {
                let mut caches = CACHES.lock().unwrap_or_else(PoisonError::into_inner);
                caches.retain(|cache| cache.strong_count() > 0);
                caches.clone()
            };
            for cache in caches.iter().filter_map(Weak::upgrade) {
                // Somebody who listens is called with the interpreter, on threads of the program's own.
                if !cache.is_heard() {
                    cache.cache.expire();
                }
            }
        });
    }
}
