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

fn payloads(bytes: &[u8]) {
    let Some(found) = payload::parse(bytes) else { return };
    let (image, mut again) = (payload::Image::new(found.table, found.key), Vec::new());
    payload::write(&image, found.times, found.value, &mut again);
    assert_eq!(payload::parse(&again), Some(found));
    assert_eq!(payload::value_of(&image, &again), Some((found.times, found.value)));
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
