//! The thread that a forked child began with.
//!
//! When the main thread of a program ends, so does the program. A child that another thread has forked begins with that
//! thread; if it ends without `exit`, the process goes on until its last thread has ended. A thread of gabion's own
//! would keep it for ever, so such threads end with the first one.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

static ENDED: AtomicBool = AtomicBool::new(false);
/// What is called when the thread ends.
static TOLD: OnceLock<fn()> = OnceLock::new();

struct Mark;

impl Drop for Mark {
    fn drop(&mut self) {
        // Relaxed: a flag alone. A thread that sleeps finds it after its sleep, or after a lock that `TOLD` takes and
        // it takes.
        ENDED.store(true, Ordering::Relaxed);
        if let Some(told) = TOLD.get() {
            told();
        }
    }
}

thread_local! {
    static MARK: Mark = const { Mark };
}

/// See [`super::watch_first_thread`].
pub(super) fn watch(told: fn()) {
    let _ = TOLD.set(told);
    // Relaxed: this is the only thread.
    ENDED.store(false, Ordering::Relaxed);
    // A thread that forks while it ends is not told of: its child lives as long as its threads.
    let _ = MARK.try_with(|_| ());
}

/// See [`super::first_thread_has_ended`].
pub(super) fn has_ended() -> bool {
    ENDED.load(Ordering::Relaxed)
}
