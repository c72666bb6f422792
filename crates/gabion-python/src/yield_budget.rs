//! What others want of the interpreter while a long loop runs.
//!
//! Between the bytecodes of Python code the interpreter handles signals, lets threads that have waited long enough take
//! its lock, and stops where the collector wants all threads to stop, as each version of it does. A loop in Rust is one
//! bytecode. So a long one calls a Python function that does nothing every now and then. To let go of the lock by hand
//! would not do: who takes it back at once has it before the others are awake, and they begin to wait anew.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use crate::once::once;
use crate::result;

/// What a step costs beside its bytes, counted in bytes.
pub(crate) const STEP: usize = 256;
/// How much is done from one yield to the next: some ten microseconds.
const ENOUGH: usize = 256 * STEP;

/// Counts the steps of a loop.
pub(crate) struct YieldBudget {
    left: usize,
    yielded: bool,
}

impl YieldBudget {
    /// For a loop that begins now.
    pub(crate) fn new() -> Self {
        Self { left: ENOUGH, yielded: false }
    }

    /// A step is done that went over that many bytes. Any Python code may run: no lock may be held, and what the loop
    /// works on may be another afterwards.
    ///
    /// # Errors
    /// What a signal's handler raises.
    #[inline(always)]
    pub(crate) fn step(&mut self, py: Python<'_>, bytes: usize) -> PyResult<()> {
        match self.left.checked_sub(bytes.saturating_add(STEP)) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => self.yield_now(py),
        }
    }

    /// The loop is over: its result is lost if a signal that came meanwhile is handled after it. Nothing for a short
    /// loop.
    ///
    /// # Errors
    /// As [`YieldBudget::step`].
    pub(crate) fn end(&mut self, py: Python<'_>) -> PyResult<()> {
        if self.yielded { self.yield_now(py) } else { Ok(()) }
    }

    #[cold]
    fn yield_now(&mut self, py: Python<'_>) -> PyResult<()> {
        *self = Self { left: ENOUGH, yielded: true };
        do_nothing(py)
    }
}

/// As [`YieldBudget`], for the steps of a loop that runs elsewhere, such as that of `list()`: each step is a call of
/// its own, maybe of another thread.
pub(crate) struct OtherLoop {
    left: AtomicUsize,
}

impl OtherLoop {
    pub(crate) fn new() -> Self {
        Self { left: AtomicUsize::new(ENOUGH) }
    }

    /// A step is done that cost so many bytes.
    #[inline(always)]
    pub(crate) fn did(&self, bytes: usize) {
        // Relaxed, and in two: where several threads take steps at one time, some need not count.
        self.left.store(self.left.load(Relaxed).saturating_sub(bytes), Relaxed);
    }

    /// To be called before a step. As of [`YieldBudget::step`], any Python code may run.
    ///
    /// # Errors
    /// As [`YieldBudget::step`].
    #[inline(always)]
    pub(crate) fn yield_in_time(&self, py: Python<'_>) -> PyResult<()> {
        // Relaxed: as above.
        if self.left.load(Relaxed) > 0 {
            return Ok(());
        }
        self.left.store(ENOUGH, Relaxed);
        do_nothing(py)
    }
}

/// Calls the function that does nothing.
#[cold]
fn do_nothing(py: Python<'_>) -> PyResult<()> {
    let nothing = nothing(py)?;
    result::call(nothing.bind(py), []).map(drop)
}

/// The function that does nothing. Asked for once when the module is made.
pub(crate) fn nothing(py: Python<'_>) -> PyResult<&'static Py<PyAny>> {
    static NOTHING: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    // With globals of its own. It would have those of the module `__main__` otherwise, and keep them for ever: nothing
    // that the program's names refer to would end with the interpreter, and files left open would lose what they had
    // gathered.
    once(py, &NOTHING, || Ok(py.eval(c"lambda: None", Some(&result::dict(py)?), None)?.unbind()))
}
