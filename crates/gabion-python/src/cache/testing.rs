//! Time that passes for tests: what `gabion.testing` stands on.

use std::time::Duration;

use gabion_cache::testing::advance;
use pyo3::prelude::*;

use crate::errors::{shown, value_error};
use crate::time;

/// The most that can pass at one time: a hundred years. Caches know no times beyond 139.
const MOST: Duration = Duration::from_secs(100 * 366 * 86_400);

/// Lets time pass for all caches that there are.
#[pyfunction]
#[pyo3(signature = (seconds, /))]
pub(super) fn _advance(seconds: &Bound<'_, PyAny>) -> PyResult<()> {
    let by = time::duration("seconds", seconds)?;
    if by > MOST {
        let text = format!("seconds={}: no more than a hundred years can pass at one time", shown(seconds));
        return Err(value_error(seconds.py(), &text));
    }
    advance(by);
    Ok(())
}
