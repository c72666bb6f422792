//! The gate between long work and `os.fork`.
//!
//! A thread that is attached to the interpreter never stops while it holds a lock of a pile, so no lock is held when
//! another thread forks. Work that runs detached may be stopped anywhere: it goes through this gate, and a fork waits
//! until nobody is inside. So a child always starts with free locks.

use std::cell::Cell;
use std::sync::{PoisonError, RwLock, RwLockWriteGuard, TryLockError};

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::detached::{self, Detached};

static GATE: RwLock<()> = RwLock::new(());

thread_local! {
    /// Held by the forking thread from before the fork until after it, in the parent and in the child.
    static CLOSED: Cell<Option<RwLockWriteGuard<'static, ()>>> = const { Cell::new(None) };
}

/// Runs `work` without the interpreter, inside the gate.
pub(crate) fn detached<R: Send>(py: Python<'_>, work: impl FnOnce() -> R + Send) -> R {
    detached::detached(py, || {
        // Poison says nothing here: the lock guards no data.
        let _inside = GATE.read().unwrap_or_else(PoisonError::into_inner);
        work()
    })
}

/// Runs `work` of a thread that was never with the interpreter, inside the gate.
pub(crate) fn inside<R>(work: impl FnOnce() -> R) -> R {
    let _inside = GATE.read().unwrap_or_else(PoisonError::into_inner);
    work()
}

#[pyfunction]
fn before_fork(_py: Python<'_>) {
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
    CLOSED.take();
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
