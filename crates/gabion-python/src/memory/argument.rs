//! Arenas and rows as callers write them.

use gabion_blocks::pool::MOST_ARENAS;
use pyo3::exceptions::{PyIndexError, PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyBool;

use super::refusal::{type_error, value_error};
use crate::errors::{class_name, exception, shown};

/// How many arenas: a power of two, of NumPy's too.
pub(super) fn arenas(value: &Bound<'_, PyAny>) -> PyResult<usize> {
    let py = value.py();
    let allowed = format!("a power of two from 1 to {MOST_ARENAS}");
    let no_number = || type_error(py, &format!("arenas={}: a whole number is needed, {allowed}", shown(value)));
    if value.is_instance_of::<PyBool>() {
        return Err(no_number());
    }
    let count = match value.extract::<usize>() {
        Ok(count) => Some(count),
        Err(error) if error.is_instance_of::<PyOverflowError>(py) => None,
        Err(error) if error.is_instance_of::<PyTypeError>(py) => return Err(no_number()),
        Err(error) => return Err(error),
    };
    count
        .filter(|count| count.is_power_of_two() && *count <= MOST_ARENAS)
        .ok_or_else(|| value_error(py, &format!("arenas={}: it must be {allowed}", shown(value))))
}

/// The `IndexError` of a row or block that is not among the `count` that `of` has.
#[cold]
pub(super) fn not_there(what: &str, index: &Bound<'_, PyAny>, of: &str, count: usize) -> PyErr {
    let (plural, last) = (if count == 1 { "" } else { "s" }, count.saturating_sub(1));
    let range = match count {
        0 => "none".to_owned(),
        _ => format!("0 to {last}, and -{count} to -1 from its end"),
    };
    let text = format!("{what} {}: {of} of {count} {what}{plural} has {range}", shown(index));
    exception(&index.py().get_type::<PyIndexError>(), &text)
}

/// The row that `y` names, of `rows` that `of` has; a negative one counts from the end.
pub(crate) fn row(y: &Bound<'_, PyAny>, rows: usize, of: &str) -> PyResult<usize> {
    place("row", y, rows, of)
}

/// Which one of `count` an index names, as [`row`].
pub(super) fn place(what: &str, index: &Bound<'_, PyAny>, count: usize, of: &str) -> PyResult<usize> {
    let py = index.py();
    let number = match index.extract::<isize>() {
        Ok(number) if number < 0 => number.checked_add_unsigned(count),
        Ok(number) => Some(number),
        // An int, beyond all that a machine has.
        Err(error) if error.is_instance_of::<PyOverflowError>(py) => None,
        Err(error) => return Err(error),
    };
    number
        .and_then(|number| usize::try_from(number).ok())
        .filter(|number| *number < count)
        .ok_or_else(|| not_there(what, index, of, count))
}

/// A byte, as an int.
pub(super) fn byte(value: &Bound<'_, PyAny>) -> PyResult<u8> {
    let py = value.py();
    value.extract().map_err(|error: PyErr| {
        if error.is_instance_of::<PyOverflowError>(py) {
            value_error(py, &format!("{}: a byte is an int from 0 to 255", shown(value)))
        } else if error.is_instance_of::<PyTypeError>(py) {
            type_error(py, &format!("a byte is an int from 0 to 255, not {}", class_name(value)))
        } else {
            error
        }
    })
}
