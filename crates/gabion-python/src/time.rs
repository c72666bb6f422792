//! Times as callers write them: 0.5, `"5 min"`, a timedelta; and moments: a datetime, seconds since 1970.

use std::time::Duration;

use pyo3::exceptions::{PyException, PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PyString};

use crate::argument::is_of_numpy;
use crate::errors::{class_name, shown, type_error, value_error};
use crate::once::intern;

/// Unit names and their seconds, longest first. A letter alone for minutes is not among them: it may be months.
const UNITS: [(&str, f64); 21] = [
    ("minutes", 60.0),
    ("seconds", 1.0),
    ("minute", 60.0),
    ("second", 1.0),
    ("hours", 3600.0),
    ("weeks", 604_800.0),
    ("days", 86400.0),
    ("hour", 3600.0),
    ("mins", 60.0),
    ("secs", 1.0),
    ("week", 604_800.0),
    ("day", 86400.0),
    ("hrs", 3600.0),
    ("min", 60.0),
    ("sec", 1.0),
    ("hr", 3600.0),
    ("ms", 0.001),
    ("d", 86400.0),
    ("h", 3600.0),
    ("s", 1.0),
    ("", 1.0),
];

/// Reads a span of time called `name`: seconds as any number (NumPy's too), text of a number and a unit, or a timedelta
/// (NumPy's too). What is beyond all clocks, infinity among it, is `Duration::MAX`.
///
/// # Errors
/// `TypeError` for what is no time, `ValueError` for one below 0, NaN, and text that says none.
#[inline]
pub(crate) fn duration(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Duration> {
    let seconds = if let Ok(seconds) = value.cast_exact::<PyFloat>() {
        seconds.value()
    } else if value.is_exact_instance_of::<PyInt>() {
        // What nearly every call says; a float would take longer to make a span of.
        if let Ok(seconds) = value.extract() {
            return Ok(Duration::from_secs(seconds));
        }
        whole(value)?
    } else {
        other(name, value)?
    };
    // Not for NaN either.
    if seconds >= 0.0 {
        Ok(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
    } else {
        Err(refused(name, value))
    }
}

/// An int's seconds. One that no float can be is without end, or below 0.
fn whole(value: &Bound<'_, PyAny>) -> PyResult<f64> {
    match value.extract::<f64>() {
        Err(error) if error.is_instance_of::<PyOverflowError>(value.py()) => {
            Ok(if value.lt(0)? { f64::NEG_INFINITY } else { f64::INFINITY })
        }
        seconds => Ok(seconds?),
    }
}

/// The seconds that a number of another class is; `None` for what is no number.
fn number(value: &Bound<'_, PyAny>) -> PyResult<Option<f64>> {
    if value.is_instance_of::<PyBool>() {
        return Ok(None);
    }
    match value.extract::<f64>() {
        Err(error) if error.is_instance_of::<PyTypeError>(value.py()) => Ok(None),
        seconds => Ok(Some(seconds?)),
    }
}

/// As [`duration`], for all but plain numbers; the seconds are not looked at yet.
#[cold]
fn other(name: &str, value: &Bound<'_, PyAny>) -> PyResult<f64> {
    if let Ok(text) = value.cast::<PyString>() {
        return seconds(text.to_str()?).ok_or_else(|| refused(name, value));
    }
    if let Some(total) = value.getattr_opt(intern!(value.py(), "total_seconds")?)? {
        return total.call0()?.extract();
    }
    if let Some(seconds) = of_numpy(value, "timedelta64")? {
        return Ok(seconds);
    }
    if value.is_instance_of::<PyInt>() && !value.is_instance_of::<PyBool>() {
        return whole(value);
    }
    number(value)?.ok_or_else(|| {
        let given = class_name(value);
        let text = format!("{name} must be seconds, text such as \"5 min\", or a timedelta, not {given}");
        type_error(value.py(), &text)
    })
}

/// The seconds of NumPy's own times, which as mere numbers would be of any unit.
fn of_numpy(value: &Bound<'_, PyAny>, class: &str) -> PyResult<Option<f64>> {
    if !is_of_numpy(value, &[class]) {
        return Ok(None);
    }
    let whole = value.call_method1("astype", (format!("{class}[us]"),))?.call_method1("astype", ("int64",))?;
    let micros: i64 = whole.extract()?;
    // The least is no time at all (NaT).
    Ok(Some(if micros == i64::MIN { f64::NAN } else { micros as f64 / 1e6 }))
}

fn refused(name: &str, value: &Bound<'_, PyAny>) -> PyErr {
    let given = shown(value);
    let text = format!(
        "{name}={given}: not a span of time; pass seconds (0 or more), text such as \"5 min\" (ms; s, sec, seconds; min, \
         mins, minutes; h, hr, hours; d, days; weeks), or a timedelta"
    );
    value_error(value.py(), &text)
}

/// What text says. A bare number is of seconds, as one that is no text.
fn seconds(text: &str) -> Option<f64> {
    let text = text.trim().to_ascii_lowercase();
    let (unit, factor) = UNITS.iter().find(|(unit, _)| text.ends_with(unit))?;
    let seconds = text[..text.len() - unit.len()].trim_end().parse::<f64>().ok()? * factor;
    seconds.is_finite().then_some(seconds)
}

/// Seconds since 1970 below these are meant from now on: no clock shows them. Three years.
const FIRST: f64 = 1e8;

/// Seconds of a year.
const YEAR: f64 = 31_556_952.0;

/// Reads a moment called `name`, a datetime (NumPy's too) or seconds since 1970, as the time since then. What is before
/// that is 0; what is beyond all clocks, infinity among it, is `Duration::MAX`.
///
/// # Errors
/// `TypeError` for what is no moment, `ValueError` for NaN, and for a number that is a span of time.
pub(crate) fn moment(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Duration> {
    let py = value.py();
    let wrong = || {
        let text = format!("{name} must be a datetime or seconds since 1970, not {}", shown(value));
        type_error(py, &text)
    };
    let no_span = |seconds: f64| {
        if seconds > 0.0 && seconds < FIRST { Err(a_span(name, value, seconds)) } else { Ok(seconds) }
    };
    let seconds: f64 = if let Ok(seconds) = value.cast_exact::<PyFloat>() {
        no_span(seconds.value())?
    } else if value.is_exact_instance_of::<PyInt>() {
        no_span(whole(value)?)?
    } else if let Some(timestamp) = value.getattr_opt(intern!(py, "timestamp")?)? {
        let seconds = timestamp.call0().map_err(|error| {
            let text = format!("{name}={}: {}; pass seconds since 1970", shown(value), error.value(py));
            if error.is_instance_of::<PyException>(py) { value_error(py, &text) } else { error }
        })?;
        seconds.extract()?
    } else if let Some(seconds) = of_numpy(value, "datetime64")? {
        seconds
    } else if value.is_instance_of::<PyInt>() && !value.is_instance_of::<PyBool>() {
        no_span(whole(value)?)?
    } else {
        no_span(number(value)?.ok_or_else(wrong)?)?
    };
    if seconds.is_nan() {
        let text = format!("{name}={}: not a moment; pass a datetime or seconds since 1970", shown(value));
        return Err(value_error(py, &text));
    }
    Ok(Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX))
}

/// The error of a number that is passed as a moment and can only be meant as a span.
#[cold]
fn a_span(name: &str, value: &Bound<'_, PyAny>, seconds: f64) -> PyErr {
    let (given, year) = (shown(value), 1970 + (seconds / YEAR) as u32);
    let text = format!("{name}={given} is a moment of {year}; for {given} seconds from now pass ttl={given}");
    value_error(value.py(), &text)
}
