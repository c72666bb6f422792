//! Time that passes for tests: what `gabion.testing` stands on.

use gabion_cache::testing::advance;
use pyo3::prelude::*;

use crate::errors::{shown, value_error};
use crate::time;

/// Lets time pass for all caches that there are.
#[pyfunction]
#[pyo3(signature = (seconds, /))]
pub(super) fn _advance(seconds: &Bound<'_, PyAny>) -> PyResult<()> {
    if advance(time::duration("seconds", seconds)?) {
        return Ok(());
    }
    let text = format!("seconds={}: no more than a hundred years can pass in one process", shown(seconds));
    Err(value_error(seconds.py(), &text))
}
