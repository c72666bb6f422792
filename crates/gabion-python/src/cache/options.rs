//! What the keywords of puts say: spans, moments, priorities.

use std::time::Duration;

use gabion_cache::{Policy, PutOptions, Span};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyType};

use crate::argument::whole;
use crate::errors::{full_name, shown, type_error, value_error};
use crate::fastcall::{Keywords, unexpected};
use crate::{ffi, time};

/// Spans from here on never end: more milliseconds than 64 bits hold.
const ENDLESS: Duration = Duration::from_secs(18_000_000_000_000_000);

/// Refuses what `gabion.Cache` has no parameter for, which caches of other libraries may have. A subclass has what
/// parameters it likes.
pub(super) fn check_settings(class: &Bound<'_, PyType>, keywords: &Bound<'_, PyDict>) -> PyResult<()> {
    const KNOWN: &[&str] = &["max_bytes", "ttl", "idle", "name", "policy"];
    for name in keywords.keys() {
        let name = name.cast::<PyString>()?.to_str()?;
        if !KNOWN.contains(&name) && full_name(class)? == "gabion.cache.Cache" {
            let takes = "max_bytes, as in Cache(\"64 MiB\"), which counts bytes and not entries, and ttl, idle, name and policy";
            return Err(type_error(class.py(), &format!("Cache() has no {name}: it takes {takes}")));
        }
    }
    Ok(())
}

/// What a keyword says of a span; `None` means the table's.
#[inline]
pub(super) fn span(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Span> {
    if value.is_none() {
        return Ok(Span::Table);
    }
    let span = time::duration(name, value)?;
    Ok(if span < ENDLESS { Span::Of(span) } else { Span::Never })
}

/// A table's own span; `None` when there is none, or it never ends.
pub(super) fn of_table(name: &str, value: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Duration>> {
    let Some(value) = value else { return Ok(None) };
    Ok(if let Span::Of(span) = span(name, value)? { Some(span) } else { None })
}

pub(super) fn priority(value: &Bound<'_, PyAny>) -> PyResult<i8> {
    Ok(whole("priority", value, -128..=127, " from -128 to 127")? as i8)
}

/// What a put's keywords say.
#[inline]
pub(super) fn of_put(py: Python<'_>, function: &str, keywords: &Keywords<'_, '_>) -> PyResult<PutOptions> {
    let mut options = PutOptions::default();
    if !keywords.is_empty() {
        keywords.each(|name, value| {
            let known = set(&mut options, name, value)?;
            known.ok_or_else(|| unexpected(py, function, name, "ttl, idle, expires_at and priority"))
        })?;
    }
    Ok(options)
}

/// What the keywords of a call that makes a value say: those of a put, and how long it waits for what another makes.
#[inline]
pub(super) fn of_making(
    py: Python<'_>,
    function: &str,
    keywords: &Keywords<'_, '_>,
) -> PyResult<(PutOptions, Option<Duration>)> {
    let (mut options, mut timeout) = (PutOptions::default(), None);
    if !keywords.is_empty() {
        keywords.each(|name, value| {
            if name == "timeout" {
                timeout = self::timeout(name, value)?;
                return Ok(());
            }
            let known = set(&mut options, name, value)?;
            known.ok_or_else(|| unexpected(py, function, name, "ttl, stale, idle, expires_at, priority and timeout"))
        })?;
    }
    Ok((options, timeout))
}

/// How long a call may wait; `None` means without end.
pub(super) fn timeout(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Option<Duration>> {
    Ok(if let Span::Of(span) = span(name, value)? { Some(span) } else { None })
}

/// Whether Python's part looks at the keywords first: a time to be stale, or a `ttl` that is a function of the value.
#[inline]
pub(super) fn are_of_python(keywords: &Keywords<'_, '_>) -> PyResult<bool> {
    let mut found = false;
    if !keywords.is_empty() {
        keywords.each(|name, value| {
            found |= name == "stale" || name == "ttl" && value.is_callable();
            Ok(())
        })?;
    }
    Ok(found)
}

/// As [`of_put`], for keywords that were looked at before, and a value that was made: its time to live may be a
/// function of it. `None` where that says that it is not to be kept.
pub(super) fn of_made(keywords: &Bound<'_, PyDict>, made: &Bound<'_, PyAny>) -> PyResult<Option<PutOptions>> {
    let (mut options, mut is_kept) = (PutOptions::default(), true);
    for (name, value) in keywords {
        let name = name.cast::<PyString>()?.to_str()?;
        if name == "ttl" && value.is_callable() {
            // SAFETY: attached; both are held over the call; a new reference, or null with an error set.
            let ttl = unsafe {
                let ttl = ffi::PyObject_CallOneArg(value.as_ptr(), made.as_ptr());
                Bound::from_owned_ptr_or_err(made.py(), ttl)?
            };
            options.ttl = span("what ttl returned", &ttl)?;
            is_kept = options.ttl != Span::Of(Duration::ZERO);
        } else {
            set(&mut options, name, &value)?;
        }
    }
    Ok(is_kept.then_some(options))
}

/// Sets what a keyword says; `None` when it is none of a put's.
#[inline]
fn set(options: &mut PutOptions, name: &str, value: &Bound<'_, PyAny>) -> PyResult<Option<()>> {
    match name {
        "ttl" => options.ttl = span(name, value)?,
        "idle" => options.idle = span(name, value)?,
        "expires_at" if value.is_none() => options.expires_at = None,
        "expires_at" => options.expires_at = Some(time::moment(name, value)?),
        "priority" => options.priority = priority(value)?,
        _ => return Ok(None),
    }
    Ok(Some(()))
}

/// Whether a put says itself when its value ends.
#[inline]
pub(super) fn is_timed(options: &PutOptions) -> bool {
    options.ttl != Span::Table || options.idle != Span::Table || options.expires_at.is_some()
}

pub(super) fn policy(value: &Bound<'_, PyAny>) -> PyResult<Policy> {
    let text = || format!("policy={}: pass 'default', 'lru', 'fifo' or 's3fifo'", shown(value));
    let Ok(name) = value.cast::<PyString>() else { return Err(type_error(value.py(), &text())) };
    match name.to_str()? {
        "default" => Ok(Policy::Sketch),
        "lru" => Ok(Policy::Lru),
        "fifo" => Ok(Policy::Fifo),
        "s3fifo" => Ok(Policy::S3Fifo),
        _ => Err(value_error(value.py(), &text())),
    }
}
