//! Sizes and times as callers write them.

use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDelta, PyFloat, PyInt, PyString};

use super::refusal::{type_error, value_error};
use crate::ffi;
use crate::size;

/// A size: whole bytes (also NumPy's integers), or text such as "4 GiB".
pub(super) fn bytes(name: &str, value: &Bound<'_, PyAny>) -> PyResult<usize> {
    let bytes = if value.is_instance_of::<PyInt>() || value.is_instance_of::<PyString>() {
        size::parse(name, value)?
    } else {
        size::parse(name, &index(value)?)?
    };
    // Sizes beyond the signed range are no sizes to Python's buffers, nor to any allocator.
    usize::try_from(bytes).ok().filter(|bytes| isize::try_from(*bytes).is_ok()).ok_or_else(|| {
        value_error(value.py(), &format!("{name}={bytes}: more bytes than any machine can address; ask for less"))
    })
}

/// The value as an int where it says that it is one (`__index__`), else the value, for the error to name.
fn index<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = value.py();
    // SAFETY: attached, the value is alive.
    if unsafe { ffi::PyIndex_Check(value.as_ptr()) } == 0 {
        return Ok(value.clone());
    }
    // SAFETY: attached; a new reference or null with an error set.
    unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyNumber_Index(value.as_ptr())) }
}

/// A span of time: seconds, or a timedelta. Infinity is `Duration::MAX`.
pub(super) fn duration(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Duration> {
    let py = value.py();
    let number =
        value.is_instance_of::<PyFloat>() || (value.is_instance_of::<PyInt>() && !value.is_instance_of::<PyBool>());
    let seconds: f64 = if number {
        match value.extract() {
            Ok(seconds) => seconds,
            Err(_) if value.lt(0)? => -1.0, // an int beyond every float
            Err(_) => f64::INFINITY,
        }
    } else if value.is_instance_of::<PyDelta>() {
        value.call_method0("total_seconds")?.extract()?
    } else {
        let given = value.get_type().name()?;
        let text = format!("{name} must be seconds (int or float) or a timedelta, not {given}");
        return Err(type_error(py, &text));
    };
    if seconds.is_nan() || seconds < 0.0 {
        return Err(value_error(py, &format!("{name}={seconds}: not a span of time; pass 0 or more seconds")));
    }
    Ok(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
}
