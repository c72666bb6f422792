//! The gate between long work and `os.fork`.
//!
//! A thread that is attached to the interpreter never stops while it holds a lock of a pile, so no lock is held when
//! another thread forks. Work that runs detached may be stopped anywhere: it goes through this gate, and a fork waits
//! until nobody is inside. So a child always starts with free locks.
//!
//! Between the closing of the gate and the fork, others' hooks may wait for any thread: for a lock that it holds, or
//! for its end. So no thread of the interpreter waits at a closed gate: it works attached, which every fork waits for
//! by itself.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock, RwLockWriteGuard, TryLockError};
use std::time::Duration;

use pyo3::prelude::*;

use crate::detached::{Detached, detached_ungated};
use crate::once;

static GATE: RwLock<()> = RwLock::new(());

/// Whether a thread that is about to fork has the gate. Relaxed: it says whether to wait for that thread, and no more.
static CLOSED: AtomicBool = AtomicBool::new(false);

/// How long a thread waits from one look at the gate to the next, while a fork waits for those who are inside.
const MOMENT: Duration = Duration::from_millis(1);

thread_local! {
    /// Held by the forking thread from before the fork until after it, in the parent and in the child.
    static HELD: Cell<Option<RwLockWriteGuard<'static, ()>>> = const { Cell::new(None) };
    /// How many forks this thread is just about: more than one where a hook of somebody else's forks again, or where
    /// the module was imported anew, and its hooks are there twice.
    static FORKS: Cell<usize> = const { Cell::new(0) };
}

/// Runs `work` without the interpreter, inside the gate; with it, while the gate is closed. For all work that takes a
/// lock which a forked child may come to: of a pile, a cache, a picture.
pub(crate) fn through_gate<R: Send>(py: Python<'_>, work: impl FnOnce() -> R + Send) -> R {
    loop {
        let inside = match GATE.try_read() {
            Ok(inside) => inside,
            // Poison says nothing here: the lock guards no data.
            Err(TryLockError::Poisoned(inside)) => inside.into_inner(),
            Err(TryLockError::WouldBlock) if CLOSED.load(Ordering::Relaxed) => return work(),
            Err(TryLockError::WouldBlock) => {
                // Not in the queue: whoever is to fork could get the gate before this thread does, and then wait for
                // it.
                detached_ungated(py, || std::thread::sleep(MOMENT));
                continue;
            }
        };
        // SAFETY: attached (`py`), and `work` has nothing of the interpreter's: it is `Send`.
        let _away = unsafe { Detached::begin() };
        // Goes before the thread is attached again, which may take long.
        let _inside = inside;
        return work();
    }
}

/// Runs `work` of a thread that was never with the interpreter, inside the gate.
pub(crate) fn inside<R>(work: impl FnOnce() -> R) -> R {
    let _inside = GATE.read().unwrap_or_else(PoisonError::into_inner);
    work()
}

#[pyfunction]
fn before_fork(py: Python<'_>) {
    FORKS.set(FORKS.get() + 1);
    if FORKS.get() > 1 {
        return;
    }
    let mut patient = true;
    loop {
        HELD.set(Some(close(py)));
        // While this thread waited for the gate, another may have begun to import something, which the child would wait
        // for.
        if !patient || !once::is_importing_elsewhere() {
            return;
        }
        // With the gate open: what is imported may fork, too.
        open();
        patient = once::wait_for_imports(py);
    }
}

/// Waits until nobody is inside, and lets nobody in.
fn close(_py: Python<'_>) -> RwLockWriteGuard<'static, ()> {
    let closed = match GATE.try_write() {
        Ok(closed) => closed,
        Err(TryLockError::Poisoned(closed)) => closed.into_inner(),
        Err(TryLockError::WouldBlock) => {
            // Others go on meanwhile; nobody waits for the gate with the interpreter in hand. The gate is kept until
            // the interpreter is back, or others would be inside again by then, and for ever.
            // SAFETY: attached, and nothing of the interpreter's is used until the end of the block.
            let _away = unsafe { Detached::begin() };
            let closed = GATE.write().unwrap_or_else(PoisonError::into_inner);
            // Already here: where the interpreter ends, this thread is not attached again.
            CLOSED.store(true, Ordering::Relaxed);
            closed
        }
    };
    CLOSED.store(true, Ordering::Relaxed);
    closed
}

/// Lets others in again, if this thread has the gate.
fn open() {
    if let Some(held) = HELD.take() {
        // First, so that it stays set where another thread closes the gate right after this one opens it.
        CLOSED.store(false, Ordering::Relaxed);
        drop(held);
    }
}

#[pyfunction]
fn after_fork() {
    FORKS.set(FORKS.get().saturating_sub(1));
    if FORKS.get() == 0 {
        open();
    }
}

/// Has the interpreter close the gate around every fork.
pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    let after = wrap_pyfunction!(after_fork, m)?;
    once::at_fork(m, Some(wrap_pyfunction!(before_fork, m)?), Some(after.clone()), Some(after))
}
