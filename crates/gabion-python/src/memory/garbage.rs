//! What total_limit refuses may be held by garbage: objects in reference cycles, which only Python's collector ends.
//! The collector counts objects, not bytes, and so it may not run for long in a program with few objects and large
//! buffers. Before such a call is refused, or begins to wait, it has the collector run once.
//!
//! A full collection goes over all objects of the process, with the interpreter in hand: of a large program it takes
//! seconds. So it is not run
//! - for a call that gets what it asks for: nothing here is on that way;
//! - where nothing is lent: there is none to come back;
//! - where the program has switched the collector off (`gc.disable()`), which is the collector's own rule here;
//! - from inside of a collection, by a finalizer that rents: the collector does not run within itself;
//! - soon after one that was in vain. A service that is overloaded refuses call after call, and has no garbage. It
//!   gives a twentieth of its time for this at most. One after which half of what was asked for is no longer in use is
//!   followed by another without a rest: it has done what was needed, and comes again only when as much garbage has
//!   gathered.
//!
//! Not from NumPy's functions: those may be called where no Python code may run.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use gabion_blocks::pool::Pool;
use pyo3::prelude::*;

use crate::ffi;

/// How many full collections have ended, whoever began them.
static COLLECTIONS: AtomicUsize = AtomicUsize::new(0);
/// Whether the collector is running, and whether one of our own collections is.
static RUNNING: AtomicBool = AtomicBool::new(false);
static COLLECTING: AtomicBool = AtomicBool::new(false);
/// Until when there is a rest, in nanoseconds since `BEGIN`.
static REST: AtomicU64 = AtomicU64::new(0);
static BEGIN: OnceLock<Instant> = OnceLock::new();

// Relaxed everywhere: flags and numbers alone, and nobody follows them to anything else. A collection too many or too
// few costs time, or a refusal as it was before.

/// A rest is so many times as long as what was in vain, and at least so long.
const SHARE: u32 = 20;
const LEAST: Duration = Duration::from_millis(100);

fn now() -> u64 {
    let passed = BEGIN.get_or_init(Instant::now).elapsed();
    u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX)
}

/// To be told of each collection, when it begins and when it ends.
pub(super) fn collector(begins: bool, full: bool) {
    RUNNING.store(begins, Ordering::Relaxed);
    if full && !begins {
        COLLECTIONS.fetch_add(1, Ordering::Relaxed);
    }
}

/// What one call does about garbage, once.
pub(crate) struct Garbage {
    /// How many full collections there were when it began.
    before: usize,
    done: bool,
    /// How long its own took.
    took: Option<Duration>,
}

impl Garbage {
    /// For a call that begins now.
    pub(crate) fn new() -> Self {
        Self { before: COLLECTIONS.load(Ordering::Relaxed), done: false, took: None }
    }

    /// Has the collector run, if it has not for this call yet, and if that may help one that asks for so many bytes.
    /// Whether what was refused is worth another try. Any Python code may run: no lock may be held.
    pub(crate) fn collect(&mut self, py: Python<'_>, asked: u64) -> bool {
        if self.done {
            return false;
        }
        if COLLECTIONS.load(Ordering::Relaxed) != self.before {
            // Another thread's, while this one was at work, or waited for the interpreter.
            self.done = true;
            return true;
        }
        if RUNNING.load(Ordering::Relaxed) || now() < REST.load(Ordering::Relaxed) {
            return false;
        }
        let lent = Pool::global().stats().in_use;
        if lent == 0 || COLLECTING.swap(true, Ordering::Relaxed) {
            return false;
        }
        self.done = true;
        let start = Instant::now();
        let _ = py;
        // SAFETY: attached (`py`); it saves and restores what error is set, and those of finalizers are told of there.
        unsafe { ffi::PyGC_Collect() };
        COLLECTING.store(false, Ordering::Relaxed);
        self.took = Some(start.elapsed());
        // Others may have given back or taken some meanwhile: a guess, which costs a collection or a refusal.
        let back = lent.saturating_sub(Pool::global().stats().in_use);
        if back < asked / 2 {
            self.in_vain();
        }
        back > 0
    }

    /// The call was refused all the same: there is a rest before the next collection.
    pub(crate) fn in_vain(&self) {
        if let Some(took) = self.took {
            let rest = took.saturating_mul(SHARE).max(LEAST);
            REST.store(now().saturating_add(u64::try_from(rest.as_nanos()).unwrap_or(u64::MAX)), Ordering::Relaxed);
        }
    }
}

/// In a forked child: what another thread had begun does not end here.
pub(super) fn after_fork() {
    RUNNING.store(false, Ordering::Relaxed);
    COLLECTING.store(false, Ordering::Relaxed);
}
