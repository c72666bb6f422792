//! Keys of a cache: any bytes taken for a payload, and for a key of Python's. What can be read is written and read again as
//! the same.

#![no_main]
#![allow(dead_code, unused_imports, reason = "the crates use what this program does not")]

#[path = "../../crates/gabion-python/src/codec/mod.rs"]
mod codec;
#[path = "../../crates/gabion-python/src/errors.rs"]
mod errors;
#[path = "../../crates/gabion-python/src/ffi.rs"]
mod ffi;
#[path = "../../crates/gabion-python/src/cache/key.rs"]
mod key;
#[path = "../../crates/gabion-cache/src/key.rs"]
mod payload;

use libfuzzer_sys::fuzz_target;
use pyo3::prelude::*;

fn word(bytes: &[u8], index: usize) -> u64 {
    let bytes = bytes.get(8 * index..).unwrap_or_default();
    bytes.iter().take(8).rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
}

fn payloads(bytes: &[u8]) {
    let (length, table, prefix_len) = payload::parse_prefix(word(bytes, 0));
    let Some(key) = prefix_len.checked_add(length).and_then(|end| bytes.get(prefix_len..end)) else { return };
    let image = payload::Image::new(table, key);
    let mut again = [&image.prefix()[..image.prefix_len], key].concat();
    assert_eq!(payload::parse_prefix(word(&again, 0)), (length, table, image.prefix_len));
    again.extend_from_slice(b"value");
    assert!(image.matches(image.len(), |index| word(&again, index)));
}

fn keys(py: Python<'_>, bytes: &[u8]) -> PyResult<()> {
    let Ok(found) = key::read(py, bytes) else { return Ok(()) };
    let mut again = Vec::new();
    key::with(&found, |bytes| {
        again.extend_from_slice(bytes);
        Ok(())
    })?;
    assert!(key::read(py, &again)?.eq(&found)?, "{found:?}");
    let mut third = Vec::new();
    key::with(&key::read(py, &again)?, |bytes| {
        third.extend_from_slice(bytes);
        Ok(())
    })?;
    assert_eq!(again, third, "equal keys have the same bytes");
    Ok(())
}

fuzz_target!(|bytes: &[u8]| {
    payloads(bytes);
    Python::attach(|py| {
        let _ = keys(py, bytes);
    });
});
