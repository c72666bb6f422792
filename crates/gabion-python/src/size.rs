//! Sizes as callers write them: whole bytes, or text such as `"4 GiB"`.

use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::argument::index;
use crate::errors::{class_name, shown, type_error, value_error};

/// Unit names and what they stand for, longest first within a letter.
const UNITS: [(&str, u64); 13] = [
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
    ("pib", 1 << 50),
    ("kb", 1000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
    ("pb", 1_000_000_000_000_000),
    ("bytes", 1),
    ("b", 1),
    ("", 1),
];

/// Reads a size argument called `name`: a whole number, NumPy's too, or text of a number and a unit (B, KiB to PiB, kB
/// to PB).
pub(crate) fn parse(name: &str, value: &Bound<'_, PyAny>) -> PyResult<u64> {
    if let Some(number) = index(value)? {
        return number.extract().map_err(|_| refused(name, value));
    }
    let Ok(text) = value.cast::<PyString>() else {
        let given = class_name(value);
        let text = format!("{name} must be an int (bytes) or text such as \"4 GiB\", not {given}");
        return Err(type_error(value.py(), &text));
    };
    bytes(text.to_str()?).ok_or_else(|| refused(name, value))
}

/// As [`parse`], for a limit on what holds `things`. One below `least`, which is what holding anything takes, is meant
/// as a count of them, or as a number of MiB. 0 is for the caller to judge.
pub(crate) fn limit(name: &str, value: &Bound<'_, PyAny>, things: &str, least: usize) -> PyResult<u64> {
    let bytes = parse(name, value)?;
    if bytes != 0 && bytes < least as u64 {
        let text = format!(
            "{name}={} counts bytes, not {things}: the least is {least}; write a size such as \"64 MiB\"",
            shown(value)
        );
        return Err(value_error(value.py(), &text));
    }
    Ok(bytes)
}

/// As [`parse`], for memory that is asked for at once.
pub(crate) fn length(name: &str, value: &Bound<'_, PyAny>) -> PyResult<usize> {
    let bytes = parse(name, value)?;
    // Sizes beyond the signed range are no sizes to Python's buffers, nor to any allocator.
    usize::try_from(bytes).ok().filter(|bytes| isize::try_from(*bytes).is_ok()).ok_or_else(|| {
        value_error(value.py(), &format!("{name}={bytes}: more bytes than any machine can address; ask for less"))
    })
}

fn refused(name: &str, value: &Bound<'_, PyAny>) -> PyErr {
    let text = format!(
        "{name}={}: not a size; pass bytes (0 or more) or text such as \"4 GiB\" (B, KiB to PiB of 1024, or kB to PB of 1000)",
        shown(value)
    );
    value_error(value.py(), &text)
}

fn bytes(text: &str) -> Option<u64> {
    let text = text.trim().to_ascii_lowercase();
    let (unit, factor) = UNITS.iter().find(|(unit, _)| text.ends_with(unit))?;
    let number = text[..text.len() - unit.len()].trim_end();
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(*factor);
    }
    let number: f64 = number.parse().ok()?;
    let bytes = number * *factor as f64;
    // Up to 2⁵³ a float counts bytes exactly; more than that is beyond every machine.
    (number.is_finite() && (0.0..9.0e15).contains(&bytes)).then_some(bytes as u64)
}
