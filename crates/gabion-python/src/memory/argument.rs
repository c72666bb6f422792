//! Counts and rows as callers write them.

use pyo3::exceptions::{PyIndexError, PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyBool;

use super::refusal::{type_error, value_error};
use crate::errors::{exception, shown};

/// How many of something `name` says: a whole number, NumPy's too.
pub(super) fn count(name: &str, value: &Bound<'_, PyAny>) -> PyResult<usize> {
    let py = value.py();
    if value.is_instance_of::<PyBool>() {
        return Err(type_error(py, &format!("{name} must be a whole number, not bool")));
    }
    value.extract().map_err(|error: PyErr| {
        if error.is_instance_of::<PyOverflowError>(py) {
            value_error(py, &format!("{name}={}: out of range", shown(value)))
        } else if error.is_instance_of::<PyTypeError>(py) {
            type_error(py, &format!("{name} must be a whole number, not {}", shown(value)))
        } else {
            error
        }
    })
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
