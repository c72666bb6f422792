//! Times and rows as callers write them.

use std::time::Duration;

use pyo3::exceptions::{PyIndexError, PyOverflowError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDelta, PyInt};

use super::refusal::{type_error, value_error};
use crate::errors::exception;

/// A span of time: seconds, as any number (also NumPy's), or a timedelta. Infinity is `Duration::MAX`.
pub(super) fn duration(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Duration> {
    let py = value.py();
    let wrong = || -> PyResult<PyErr> {
        let given = value.get_type().name()?;
        Ok(type_error(py, &format!("{name} must be seconds (int or float) or a timedelta, not {given}")))
    };
    let seconds: f64 = if value.is_instance_of::<PyDelta>() {
        value.call_method0("total_seconds")?.extract()?
    } else if value.is_instance_of::<PyBool>() {
        return Err(wrong()?);
    } else {
        match value.extract() {
            Ok(seconds) => seconds,
            // An int beyond every float.
            Err(_) if value.is_instance_of::<PyInt>() => {
                if value.lt(0)? {
                    -1.0
                } else {
                    f64::INFINITY
                }
            }
            Err(_) => return Err(wrong()?),
        }
    };
    if seconds.is_nan() || seconds < 0.0 {
        return Err(value_error(py, &format!("{name}={seconds}: not a span of time; pass 0 or more seconds")));
    }
    Ok(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
}

/// The row that `y` names, of `rows` that `of` has; a negative one counts from the end.
pub(crate) fn row(y: &Bound<'_, PyAny>, rows: usize, of: &str) -> PyResult<usize> {
    let py = y.py();
    let number = match y.extract::<isize>() {
        Ok(number) if number < 0 => number.checked_add_unsigned(rows),
        Ok(number) => Some(number),
        // An int, beyond all the rows that a machine has.
        Err(error) if error.is_instance_of::<PyOverflowError>(py) => None,
        Err(error) => return Err(error),
    };
    number
        .and_then(|number| usize::try_from(number).ok())
        .filter(|number| *number < rows)
        .ok_or_else(|| exception(&py.get_type::<PyIndexError>(), &format!("row {y} of {of} of {rows} rows")))
}
