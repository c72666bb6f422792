//! Streams and pictures over files that do whatever the input says. The files are Python's, in
//! `tests/hostile_files.py`.

#![no_main]

mod interpreter;

use std::sync::OnceLock;

use gabion_blocks::Pool;
use libfuzzer_sys::fuzz_target;
use pyo3::prelude::*;

struct State {
    play: Py<PyAny>,
    collect: Py<PyAny>,
}

static STATE: OnceLock<State> = OnceLock::new();

fn prepare(py: Python<'_>) -> PyResult<State> {
    let hostile = py.import("hostile_files")?;
    // A Writer that goes says what it could not write.
    py.run(c"import sys; sys.unraisablehook = lambda _: None", None, None)?;
    Ok(State { play: hostile.getattr("play")?.unbind(), collect: py.import("gc")?.getattr("collect")?.unbind() })
}

fuzz_target!(
    init: {
        assert!(STATE.set(interpreter::with_package(prepare)).is_ok());
    },
    |data: &[u8]| {
        let state = STATE.get().expect("set at the start");
        Python::attach(|py| {
            if let Err(error) = state.play.call1(py, (data,)) {
                error.print(py);
                panic!("a file came to harm");
            }
            // Cycles of a file and its stream.
            state.collect.call0(py).expect("collected");
        });
        assert_eq!(Pool::global().stats().in_use, 0, "all chunks are given back");
    }
);
