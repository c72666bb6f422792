//! Renting without holding the interpreter, so that other threads go on, and waiting that signals can end.

use gabion_blocks::BlockError;
use gabion_blocks::pool::Pool;
use pyo3::prelude::*;

use super::refusal;
use crate::detached::Detached;

/// Runs `rent` detached from the interpreter. It is handed the question whether to go on waiting, which is asked about
/// every 50 ms and runs the handlers of signals: one that raises ends the waiting with what it raised.
pub(crate) fn patiently<R: Send>(
    py: Python<'_>,
    rent: impl FnOnce(&Pool, &mut dyn FnMut() -> bool) -> Result<R, BlockError> + Send,
) -> PyResult<R> {
    let mut raised = None;
    let rented = {
        // SAFETY: attached (`py`). `rent` has nothing of the interpreter's (it is Send), and the handlers run visiting;
        // what they raise is only moved meanwhile.
        let mut away = unsafe { Detached::begin() };
        rent(Pool::global(), &mut || {
            raised = away.visit(|py| py.check_signals().err());
            raised.is_none()
        })
    };
    match (rented, raised) {
        // What a handler raised comes first; memory that was rented meanwhile goes back.
        (_, Some(error)) => Err(error),
        (Ok(rented), None) => Ok(rented),
        (Err(error), None) => Err(refusal::refused(py, &error)),
    }
}
