//! Streams over files that do whatever the input says. The files are Python's, in `tests/stream_hostile.py`; the streams
//! are compiled into this program, which embeds an interpreter.

#![no_main]
#![allow(dead_code, unused_imports, reason = "the extension uses what this program does not")]

#[path = "../../crates/gabion-python/src/detached.rs"]
mod detached;
#[path = "../../crates/gabion-python/src/errors.rs"]
mod errors;
#[path = "../../crates/gabion-python/src/fastcall.rs"]
mod fastcall;
#[path = "../../crates/gabion-python/src/ffi.rs"]
mod ffi;
#[path = "../../crates/gabion-python/src/figures.rs"]
mod figures;
#[path = "../../crates/gabion-python/src/memory/mod.rs"]
mod memory;
#[path = "../../crates/gabion-python/src/result.rs"]
mod result;
#[path = "../../crates/gabion-python/src/size.rs"]
mod size;
#[path = "../../crates/gabion-python/src/streams/mod.rs"]
mod streams;

use std::ffi::CString;
use std::sync::OnceLock;

use gabion_blocks::Pool;
use libfuzzer_sys::fuzz_target;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyModule};

struct State {
    play: Py<PyAny>,
    module: Py<PyModule>,
    collect: Py<PyAny>,
    whole: Py<PyAny>,
}

static STATE: OnceLock<State> = OnceLock::new();

/// All of a file, as an image reads it; returns its length.
#[pyfunction]
fn whole(file: &Bound<'_, PyAny>) -> PyResult<usize> {
    Ok(streams::whole("file", file, 100_000)?.as_slice().len())
}

fn prepare(py: Python<'_>) -> PyResult<State> {
    let module = PyModule::new(py, "streams")?;
    errors::register(&module)?;
    streams::register(&module)?;
    let program = CString::new(include_str!("../../tests/stream_hostile.py"))?;
    let hostile = PyModule::from_code(py, &program, c"stream_hostile.py", c"stream_hostile")?;
    // A Writer that goes says what it could not write.
    py.run(c"import sys; sys.unraisablehook = lambda _: None", None, None)?;
    Ok(State {
        play: hostile.getattr("play")?.unbind(),
        module: module.unbind(),
        collect: py.import("gc")?.getattr("collect")?.unbind(),
        whole: wrap_pyfunction!(whole, py)?.into_any().unbind(),
    })
}

fuzz_target!(
    init: {
        Python::attach(|py| {
            let state = prepare(py).unwrap_or_else(|error| panic!("{error}"));
            assert!(STATE.set(state).is_ok());
        });
    },
    |data: &[u8]| {
        let state = STATE.get().expect("set at the start");
        Python::attach(|py| {
            let played = state.play.call1(py, (&state.module, PyBytes::new(py, data), &state.whole));
            if let Err(error) = played {
                error.print(py);
                panic!("a file came to harm");
            }
            // Cycles of a file and its stream.
            state.collect.call0(py).expect("collected");
        });
        assert_eq!(Pool::global().stats().in_use, 0, "all chunks are given back");
    }
);
