//! Work without the interpreter, so that other threads go on.

use pyo3::prelude::*;

use crate::ffi;

/// A thread that is detached from the interpreter, until this is dropped.
pub(crate) struct Detached {
    state: *mut ffi::PyThreadState,
}

impl Detached {
    /// Detaches this thread.
    ///
    /// # Safety
    /// The thread is attached, and until the result is dropped it uses the interpreter by `visit` only; that includes
    /// that it drops no `Py`.
    pub(crate) unsafe fn begin() -> Self {
        // SAFETY: attached, as the caller promised.
        Self { state: unsafe { ffi::PyEval_SaveThread() } }
    }

    /// Attaches the thread for the time of `work`.
    pub(crate) fn visit<R>(&mut self, work: impl FnOnce(Python<'_>) -> R) -> R {
        self.attach();
        // SAFETY: attached by the line above.
        let result = work(unsafe { Python::assume_attached() });
        // SAFETY: as above; `work` has kept nothing of the interpreter's.
        self.state = unsafe { ffi::PyEval_SaveThread() };
        result
    }

    fn attach(&mut self) {
        // SAFETY: the state that this thread saved last; it is not attached.
        unsafe { ffi::PyEval_RestoreThread(self.state) };
    }
}

impl Drop for Detached {
    fn drop(&mut self) {
        self.attach();
    }
}

/// Runs `work` detached, and lets other threads fork meanwhile: a lock that it holds then stays locked in the child for
/// ever. So this is for work on what nobody else can reach yet or any more, for what sees to forks itself, as the pool
/// does, and for waiting; [`through_gate`](crate::gate::through_gate) for all else. `Send` keeps what belongs to the
/// interpreter out of it.
pub(crate) fn detached_ungated<R: Send>(_py: Python<'_>, work: impl FnOnce() -> R + Send) -> R {
    // SAFETY: attached (`_py`), and `work` has nothing of the interpreter's.
    let _away = unsafe { Detached::begin() };
    work()
}

/// As [`detached_ungated`] where `long` says that it is worth it, else with the interpreter in hand.
pub(crate) fn detached_ungated_if<R: Send>(py: Python<'_>, long: bool, work: impl FnOnce() -> R + Send) -> R {
    if long { detached_ungated(py, work) } else { work() }
}
