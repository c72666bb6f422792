//! Renting without holding the interpreter, so that other threads go on, and waiting that signals can end.

use gabion_blocks::BlockError;
use gabion_blocks::pool::Pool;
use pyo3::prelude::*;

use super::garbage::Garbage;
use super::refusal;
use crate::detached::Detached;

/// Has the interpreter end what this thread alone can end. Without a global lock, that is what it has made and another
/// thread's collection has found to be garbage: the interpreter leaves it to the thread that made it, until that runs
/// Python code again. A thread that waits for memory may have made what holds it.
#[cfg(Py_GIL_DISABLED)]
fn drop_left_over(py: Python<'_>) -> PyResult<()> {
    crate::yield_budget::nothing(py)?.call0(py).map(drop)
}

#[cfg(not(Py_GIL_DISABLED))]
#[expect(clippy::unnecessary_wraps, reason = "without a global lock it can fail")]
fn drop_left_over(_py: Python<'_>) -> PyResult<()> {
    Ok(())
}

/// Runs `rent` detached from the interpreter. It is handed the question whether to go on waiting, which is asked before
/// it rests, and about every 50 ms, and runs the handlers of signals: one that raises ends the waiting with what it
/// raised. Garbage may hold the `bytes` that are asked for: it is collected before a wait, or before a refusal.
pub(crate) fn patiently<R: Send>(
    py: Python<'_>,
    bytes: usize,
    mut rent: impl FnMut(&Pool, &mut dyn FnMut() -> bool) -> Result<R, BlockError> + Send,
) -> PyResult<R> {
    let mut garbage = Garbage::new();
    loop {
        let mut raised = None;
        let rented = {
            // SAFETY: attached (`py`). `rent` has nothing of the interpreter's (it is Send), and the handlers and the
            // collector run visiting; what they raise is only moved meanwhile.
            let mut away = unsafe { Detached::begin() };
            rent(Pool::global(), &mut || {
                raised = away.visit(|py| {
                    // Its place in the queue is kept meanwhile. What comes back is seen by the wait, as if another
                    // thread had given it back.
                    garbage.collect(py, bytes as u64);
                    drop_left_over(py).and_then(|()| py.check_signals()).err()
                });
                raised.is_none()
            })
        };
        match (rented, raised) {
            // What a handler raised comes first; memory that was rented meanwhile goes back.
            (_, Some(error)) => return Err(error),
            (Ok(rented), None) => return Ok(rented),
            (Err(BlockError::Total { asked, limit, .. }), None) if asked <= limit && garbage.collect(py, asked) => {}
            (Err(error), None) => {
                garbage.back_off();
                return Err(refusal::refused(py, &error));
            }
        }
    }
}
