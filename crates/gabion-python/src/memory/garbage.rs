//! What total_limit refuses may be held by garbage: objects in reference cycles, which only Python's collector ends.
//! The collector counts objects, not bytes, and so it may not run for long in a program with few objects and large
//! buffers. Before such a call is refused, or begins to wait, it has the collector run once.
//!
//! A full collection goes over all objects of the process, with the interpreter in hand: of a large program it takes
//! seconds. So it is not run
//! - for a call that gets what it asks for: nothing here is on that way;
//! - where nothing is lent: there is none to come back;
//! - where the program has switched the collector off (`gc.disable()`), which is the collector's own rule here;
//! - from inside of a collection, by a finalizer that rents: the collector does not run within itself. Another thread's
//!   is waited for, up to a second: what it has looked at already may be garbage since;
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

use crate::detached::detached_ungated;
use crate::ffi;
use crate::once::at_fork;

/// How many full collections have begun, whoever began them, and which of them was the last to end.
static BEGUN: AtomicUsize = AtomicUsize::new(0);
static ENDED: AtomicUsize = AtomicUsize::new(0);
/// The thread in which the collector is running, as `this_thread` gives it, or 0; and whether one of our own
/// collections is about to run, or running.
static RUNNING: AtomicUsize = AtomicUsize::new(0);
static COLLECTING: AtomicBool = AtomicBool::new(false);
/// When the next collection of ours may begin, in nanoseconds since `BEGIN`.
static NEXT_ALLOWED: AtomicU64 = AtomicU64::new(0);
static BEGIN: OnceLock<Instant> = OnceLock::new();

// Relaxed everywhere: flags and numbers alone, and nobody follows them to anything else. A collection too many or too
// few costs time, or a refusal as it was before.

/// A rest is so many times as long as what was in vain, and at least so long.
const SHARE: u32 = 20;
const LEAST: Duration = Duration::from_millis(100);
/// How long another thread's collection is waited for, and how long at a time.
const PATIENCE: Duration = Duration::from_secs(1);
const NAP: Duration = Duration::from_millis(1);

fn now() -> u64 {
    let passed = BEGIN.get_or_init(Instant::now).elapsed();
    u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX)
}

/// A number that no other thread has at this time.
fn this_thread() -> usize {
    thread_local!(static HERE: u8 = const { 0 });
    HERE.with(|here| std::ptr::from_ref(here) as usize)
}

/// To be told of each collection, when it begins and when it ends. The interpreter runs one at a time.
pub(super) fn collector(begins: bool, full: bool) {
    RUNNING.store(if begins { this_thread() } else { 0 }, Ordering::Relaxed);
    match (full, begins) {
        (true, true) => _ = BEGUN.fetch_add(1, Ordering::Relaxed),
        (true, false) => ENDED.store(BEGUN.load(Ordering::Relaxed), Ordering::Relaxed),
        (false, _) => {}
    }
}

/// What one call does about garbage, once.
pub(crate) struct Garbage {
    /// How many full collections had begun before it.
    before: usize,
    done: bool,
    /// How long it has waited for another thread's.
    waited: Duration,
    /// How long its own took.
    took: Option<Duration>,
}

impl Garbage {
    /// For a call that begins now.
    pub(crate) fn new() -> Self {
        Self { before: BEGUN.load(Ordering::Relaxed), done: false, waited: Duration::ZERO, took: None }
    }

    /// Has the collector run, if it has not for this call yet, and if that may help one that asks for so many bytes.
    /// Whether what was refused is worth another try. Any Python code may run: no lock may be held.
    pub(crate) fn collect(&mut self, py: Python<'_>, asked: u64) -> bool {
        if self.done {
            return false;
        }
        if self.has_ended() {
            // Another thread's, while this one was at work, or waited for the interpreter.
            self.done = true;
            return true;
        }
        let running = RUNNING.load(Ordering::Relaxed);
        if running == this_thread() {
            return false;
        }
        if running != 0 {
            return self.wait(py);
        }
        let lent = Pool::global().stats().in_use;
        if lent == 0 || now() < NEXT_ALLOWED.load(Ordering::Relaxed) {
            return false;
        }
        if COLLECTING.swap(true, Ordering::Relaxed) {
            return self.wait(py);
        }
        let start = Instant::now();
        // SAFETY: attached (`py`); it saves and restores what error is set, and those of finalizers are told of there.
        unsafe { ffi::PyGC_Collect() };
        COLLECTING.store(false, Ordering::Relaxed);
        self.done = true;
        self.took = Some(start.elapsed());
        // Others may have given back or taken some meanwhile: a guess, which costs a collection or a refusal.
        let back = lent.saturating_sub(Pool::global().stats().in_use);
        if back < asked / 2 {
            self.back_off();
        }
        back > 0
    }

    /// Whether a full collection has ended that began after this call: one that began before may have passed over what
    /// is garbage by now.
    fn has_ended(&self) -> bool {
        ENDED.load(Ordering::Relaxed) > self.before
    }

    /// Waits for another thread's collection, for a moment. False once that has taken too long: its finalizers may wait
    /// for this thread.
    fn wait(&mut self, py: Python<'_>) -> bool {
        if self.waited >= PATIENCE {
            return false;
        }
        self.waited += NAP;
        detached_ungated(py, || std::thread::sleep(NAP));
        true
    }

    /// The call was refused all the same: there is a rest before the next collection.
    pub(crate) fn back_off(&self) {
        if let Some(took) = self.took {
            let rest = took.saturating_mul(SHARE).max(LEAST);
            NEXT_ALLOWED
                .store(now().saturating_add(u64::try_from(rest.as_nanos()).unwrap_or(u64::MAX)), Ordering::Relaxed);
        }
    }
}

/// In a forked child: what another thread had begun does not end here.
#[pyfunction]
fn after_fork() {
    RUNNING.store(0, Ordering::Relaxed);
    COLLECTING.store(false, Ordering::Relaxed);
}

/// Has the interpreter tell of every fork.
pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    at_fork(m, None, None, Some(wrap_pyfunction!(after_fork, m)?))
}
