//! What the keywords of puts say: spans, moments, priorities.

use std::time::Duration;

use gabion_cache::{Mode, PutOptions, Span};
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyFloat, PyInt};

use crate::errors::{type_error, value_error};
use crate::fastcall::{Keywords, unexpected};

/// Spans from here on never end: more milliseconds than 64 bits hold.
const ENDLESS: f64 = 1.8e16;

/// A value as an error shows it.
#[cold]
fn shown(value: &Bound<'_, PyAny>) -> String {
    let text = value.repr().map_or_else(|_| "?".to_owned(), |text| text.to_string());
    // A long one hides what is wrong with it.
    if text.chars().count() > 60 { text.chars().take(57).chain("...".chars()).collect() } else { text }
}

/// Seconds as a float or int, or a timedelta; infinity means without end.
pub(super) fn span(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Span> {
    if value.is_none() {
        return Ok(Span::Table);
    }
    let py = value.py();
    let seconds = if let Ok(seconds) = value.cast_exact::<PyFloat>() {
        seconds.value()
    } else if value.is_exact_instance_of::<PyInt>() {
        // An int that no float can be is without end, or below 0.
        value.extract::<f64>().or_else(|_| Ok::<_, PyErr>(if value.lt(0)? { -1.0 } else { f64::INFINITY }))?
    } else if let Some(total) = value.getattr_opt("total_seconds")? {
        total.call0()?.extract()?
    } else {
        value
            .extract()
            .map_err(|_| type_error(py, &format!("{name} is seconds or a timedelta, not {}", shown(value))))?
    };
    if seconds >= ENDLESS {
        return Ok(Span::Never);
    }
    let span = Duration::try_from_secs_f64(seconds)
        .map_err(|_| value_error(py, &format!("{name}={}: pass 0 seconds or more", shown(value))))?;
    Ok(Span::Of(span))
}

/// A table's own span; `None` when there is none, or it never ends.
pub(super) fn of_table(name: &str, value: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Duration>> {
    let Some(value) = value else { return Ok(None) };
    Ok(if let Span::Of(span) = span(name, value)? { Some(span) } else { None })
}

/// A datetime, or seconds since 1970.
fn moment(value: &Bound<'_, PyAny>) -> PyResult<Duration> {
    let py = value.py();
    let seconds = match value.getattr_opt("timestamp")? {
        Some(timestamp) => timestamp.call0()?.extract::<f64>()?,
        None => value.extract::<f64>().map_err(|_| {
            let text = format!("expires_at is a datetime or seconds since 1970, not {}", shown(value));
            type_error(py, &text)
        })?,
    };
    if seconds.is_nan() {
        return Err(value_error(py, "expires_at=nan: pass a datetime or seconds since 1970"));
    }
    Ok(Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX))
}

fn priority(value: &Bound<'_, PyAny>) -> PyResult<i8> {
    let py = value.py();
    value.extract().map_err(|error: PyErr| {
        let text = || format!("priority={}: pass a whole number from -128 to 127", shown(value));
        if error.is_instance_of::<PyOverflowError>(py) {
            value_error(py, &text())
        } else if error.is_instance_of::<PyTypeError>(py) {
            type_error(py, &text())
        } else {
            error
        }
    })
}

/// What a put's keywords say.
#[inline]
pub(super) fn of_put(py: Python<'_>, function: &str, keywords: &Keywords<'_, '_>) -> PyResult<PutOptions> {
    let mut options = PutOptions::default();
    if !keywords.is_empty() {
        keywords.each(|name, value| {
            match name {
                "ttl" => options.ttl = span(name, value)?,
                "idle" => options.idle = span(name, value)?,
                "expires_at" if value.is_none() => options.expires_at = None,
                "expires_at" => options.expires_at = Some(moment(value)?),
                "priority" => options.priority = priority(value)?,
                other => return Err(unexpected(py, function, other, "ttl, idle, expires_at and priority")),
            }
            Ok(())
        })?;
    }
    Ok(options)
}

/// Whether a put says itself when its value ends.
#[inline]
pub(super) fn is_timed(options: &PutOptions) -> bool {
    options.ttl != Span::Table || options.idle != Span::Table || options.expires_at.is_some()
}

pub(super) fn mode(py: Python<'_>, policy: &str) -> PyResult<Mode> {
    match policy {
        "default" => Ok(Mode::Sketch),
        "lru" => Ok(Mode::Lru),
        "fifo" => Ok(Mode::Fifo),
        "s3fifo" => Ok(Mode::S3Fifo),
        other => {
            let text = format!("policy={other:?}: pass 'default', 'lru', 'fifo' or 's3fifo'");
            Err(value_error(py, &text))
        }
    }
}
