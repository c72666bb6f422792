//! Sizes as callers write them: whole bytes, or text such as `"4 GiB"`.

use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::argument::index;
use crate::errors::{class_name, shown, type_error, value_error};

/// Unit names and what they stand for, longest first within a letter. A letter alone is of 1024, as in most tools.
const UNITS: [(&str, u64); 19] = [
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
    ("k", 1 << 10),
    ("m", 1 << 20),
    ("g", 1 << 30),
    ("t", 1 << 40),
    ("p", 1 << 50),
    ("bytes", 1),
    ("byte", 1),
    ("b", 1),
    ("", 1),
];

/// What text says.
enum Said {
    Bytes(u64),
    /// So many, as they are shown: not a whole number.
    Broken(f64),
}

/// Reads a size argument called `name`: a whole number, NumPy's too, or text of a number and a unit (B, KiB to PiB, K
/// to P, kB to PB).
pub(crate) fn parse(name: &str, value: &Bound<'_, PyAny>) -> PyResult<u64> {
    if let Some(number) = index(value)? {
        // Beyond 64 bits, or below 0.
        let is_negative = || number.lt(0).unwrap_or(true);
        return number.extract().map_err(|_| if is_negative() { refused(name, value) } else { too_many(name, value) });
    }
    let Ok(text) = value.cast::<PyString>() else {
        let given = class_name(value);
        let text = format!("{name} must be an int (bytes) or text such as \"4 GiB\", not {given}");
        return Err(type_error(value.py(), &text));
    };
    match said(text.to_str()?) {
        Some(Said::Bytes(bytes)) => Ok(bytes),
        Some(Said::Broken(bytes)) => {
            let text = format!(
                "{name}={}: {bytes} bytes, which is no whole number; pass a whole number of bytes, or text that gives one",
                shown(value)
            );
            Err(value_error(value.py(), &text))
        }
        None => Err(refused(name, value)),
    }
}

/// As [`parse`], for `max_bytes`, the limit on what holds `things`. One below `least`, which is what holding anything
/// takes, is meant as a count of them, or as a number of MiB. 0 is for the caller to judge.
pub(crate) fn limit(value: &Bound<'_, PyAny>, things: &str, least: usize) -> PyResult<u64> {
    let bytes = parse("max_bytes", value)?;
    if bytes != 0 && bytes < least as u64 {
        let text = format!(
            "max_bytes={} counts bytes, not {things}: the least is {least}; write a size such as \"64 MiB\"",
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
    usize::try_from(bytes).ok().filter(|bytes| isize::try_from(*bytes).is_ok()).ok_or_else(|| too_many(name, value))
}

fn too_many(name: &str, value: &Bound<'_, PyAny>) -> PyErr {
    let text = format!("{name}={}: more bytes than any machine can address; ask for less", shown(value));
    value_error(value.py(), &text)
}

fn refused(name: &str, value: &Bound<'_, PyAny>) -> PyErr {
    let text = format!(
        "{name}={}: not a size; pass bytes (0 or more) or text such as \"4 GiB\" (B, KiB to PiB or K to P of 1024, or kB \
         to PB of 1000)",
        shown(value)
    );
    value_error(value.py(), &text)
}

fn said(text: &str) -> Option<Said> {
    let text = text.trim().to_ascii_lowercase();
    let (unit, factor) = UNITS.iter().find(|(unit, _)| text.ends_with(unit))?;
    let (digits, power) = decimal(text[..text.len() - unit.len()].trim_end())?;
    let bytes = digits.checked_mul(u128::from(*factor))?;
    let Ok(places) = u32::try_from(power) else {
        let part = 10_u128.checked_pow(power.unsigned_abs())?;
        // Who counts in KiB or more does not care for a part of a byte; who counts bytes has made a mistake.
        if bytes % part != 0 && (*factor == 1 || bytes < part) {
            return Some(Said::Broken(bytes as f64 / part as f64));
        }
        return u64::try_from(bytes / part).ok().map(Said::Bytes);
    };
    u64::try_from(bytes.checked_mul(10_u128.checked_pow(places)?)?).ok().map(Said::Bytes)
}

/// A number as Python writes it, not below 0: its digits, and the power of ten that they are to be taken with. What
/// has more digits than any size is none.
fn decimal(text: &str) -> Option<(u128, i32)> {
    let text = text.strip_prefix('+').unwrap_or(text);
    let (number, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    // As in Python, underscores stand between digits.
    let apart =
        |part: &str| part.split('_').all(|group| group.bytes().all(|byte| byte.is_ascii_digit()) && !group.is_empty());
    if !(whole.is_empty() || apart(whole)) || !(fraction.is_empty() || apart(fraction)) {
        return None;
    }
    let digits: String = whole.chars().chain(fraction.chars()).filter(|digit| *digit != '_').collect();
    let places = fraction.len() - fraction.matches('_').count();
    Some((
        digits.parse().ok()?,
        exponent.parse::<i16>().ok()?.checked_sub_unsigned(u16::try_from(places).ok()?)?.into(),
    ))
}
