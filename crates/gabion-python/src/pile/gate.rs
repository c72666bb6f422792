//! The gate between long work and `os.fork`.
//!
//! A thread that is attached to the interpreter never stops while it holds a lock of a pile, so no lock is held when
//! another thread forks. Work that runs detached may be stopped anywhere: it goes through this gate, and a fork waits
//! until nobody is inside. So a child always starts with free locks.

use std::cell::Cell;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::detached::{self, Detached};

static GATE: RwLock<()> = RwLock::new(());

thread_local! {
    /// Held by the forking thread from before the fork until after it, in the parent and in the child.
    static CLOSED: Cell<Option<RwLockWriteGuard<'static, ()>>> = const { Cell::new(None) };
    /// How many forks this thread is just about: more than one where a hook of somebody else's forks again, or where the
    /// module was imported anew, and its hooks are there twice.
    static FORKS: Cell<usize> = const { Cell::new(0) };
}

/// Goes inside. Whoever forks has the gate already, and others' hooks, which run meanwhile, may use piles.
fn enter() -> Option<RwLockReadGuard<'static, ()>> {
    // Poison says nothing here: the lock guards no data.
    (FORKS.get() == 0).then(|| GATE.read().unwrap_or_else(PoisonError::into_inner))
}

/// Runs `work` without the interpreter, inside the gate.
pub(crate) fn detached<R: Send>(py: Python<'_>, work: impl FnOnce() -> R + Send) -> R {
    detached::detached(py, || {
        let _inside = enter();
        work()
    })
}

/// Runs `work` of a thread that was never with the interpreter, inside the gate.
pub(crate) fn inside<R>(work: impl FnOnce() -> R) -> R {
    let _inside = enter();
    work()
}

#[pyfunction]
fn before_fork(_py: Python<'_>) {
    FORKS.set(FORKS.get() + 1);
    if FORKS.get() > 1 {
        return;
    }
    let closed = match GATE.try_write() {
        Ok(closed) => closed,
        Err(TryLockError::Poisoned(closed)) => closed.into_inner(),
        Err(TryLockError::WouldBlock) => {
            // Whoever is inside may need the interpreter to get out; nobody waits for the gate with it in hand. The gate is
            // kept until the interpreter is back, or others would be inside again by then, and for ever.
            // SAFETY: attached, and nothing of the interpreter's is used until the end of the block.
            let _away = unsafe { Detached::begin() };
            GATE.write().unwrap_or_else(PoisonError::into_inner)
        }
    };
    CLOSED.set(Some(closed));
}

#[pyfunction]
fn after_fork() {
    FORKS.set(FORKS.get().saturating_sub(1));
    if FORKS.get() == 0 {
        CLOSED.take();
    }
}

/// Has the interpreter close the gate around every fork.
pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    let hooks = PyDict::new(m.py());
    hooks.set_item("before", wrap_pyfunction!(before_fork, m)?)?;
    let after = wrap_pyfunction!(after_fork, m)?;
    hooks.set_item("after_in_parent", &after)?;
    hooks.set_item("after_in_child", after)?;
    m.py().import("os")?.call_method("register_at_fork", (), Some(&hooks))?;
    Ok(())
}
