//! Arenas and rows as callers write them.

use gabion_blocks::pool::MOST_ARENAS;
use pyo3::exceptions::{PyIndexError, PyOverflowError, PyTypeError};
use pyo3::prelude::*;

use super::refusal::{type_error, value_error};
use crate::argument::{index, whole};
use crate::errors::{class_name, exception, shown};

/// How many arenas: a power of two, of NumPy's too.
pub(super) fn arenas(value: &Bound<'_, PyAny>) -> PyResult<usize> {
    let allowed = format!(", a power of two from 1 to {MOST_ARENAS}");
    let count = whole("arenas", value, 1..=MOST_ARENAS as i64, &allowed)? as usize;
    if count.is_power_of_two() {
        return Ok(count);
    }
    Err(value_error(value.py(), &format!("arenas={}: pass a whole number{allowed}", shown(value))))
}

/// The `IndexError` of a row or block that is not among the `count` that `of` has.
#[cold]
pub(super) fn not_there(what: &str, index: &Bound<'_, PyAny>, of: &str, count: usize) -> PyErr {
    let text = format!("{what} {}: {}", shown(index), there_are(what, of, count));
    exception(&index.py().get_type::<PyIndexError>(), &text)
}

/// Which rows or blocks `of` has.
fn there_are(what: &str, of: &str, count: usize) -> String {
    let (plural, last) = (if count == 1 { "" } else { "s" }, count.saturating_sub(1));
    let range = match count {
        0 => "none".to_owned(),
        _ => format!("0 to {last}, and -{count} to -1 from its end"),
    };
    format!("{of} of {count} {what}{plural} has {range}")
}

/// The row that `y` names, of `rows` that `of` has; a negative one counts from the end.
pub(crate) fn row(y: &Bound<'_, PyAny>, rows: usize, of: &str) -> PyResult<usize> {
    place("row", y, rows, of)
}

/// Which one of `count` an index names, as [`row`].
pub(super) fn place(what: &str, at: &Bound<'_, PyAny>, count: usize, of: &str) -> PyResult<usize> {
    let Some(number) = index(at)? else {
        let text = format!("{what} {}: pass a whole number; {}", shown(at), there_are(what, of, count));
        return Err(type_error(at.py(), &text));
    };
    // One beyond 64 bits is beyond all that a machine has.
    let number: Option<isize> = number.extract().ok();
    number
        .and_then(|number| if number < 0 { number.checked_add_unsigned(count) } else { Some(number) })
        .and_then(|number| usize::try_from(number).ok())
        .filter(|number| *number < count)
        .ok_or_else(|| not_there(what, at, of, count))
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
