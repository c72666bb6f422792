//! Keys of a cache beside those of a dict: `tests/hostile_keys.py` makes them of the input.

#![no_main]

mod interpreter;

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use pyo3::prelude::*;

static PLAY: OnceLock<Py<PyAny>> = OnceLock::new();

fn prepare(py: Python<'_>) -> PyResult<Py<PyAny>> {
    Ok(py.import("hostile_keys")?.getattr("play")?.unbind())
}

fuzz_target!(
    init: {
        assert!(PLAY.set(interpreter::with_package(prepare)).is_ok());
    },
    |data: &[u8]| {
        Python::attach(|py| {
            if let Err(error) = PLAY.get().expect("set at the start").call1(py, (data,)) {
                error.print(py);
                panic!("keys that differ from those of a dict");
            }
        });
    }
);
