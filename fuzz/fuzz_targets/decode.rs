//! Any bytes, given to the decoder: an object or an error, never a crash, in bounded memory.
//!
//! Bytes come as they are, or as changes to the encoding of a value, of which there is one for every kind that the
//! codec knows.

#![no_main]

mod interpreter;

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;

struct State {
    codec: Py<PyAny>,
    error: Py<PyAny>,
    encodings: Vec<Vec<u8>>,
}

static STATE: OnceLock<State> = OnceLock::new();

fn prepare(py: Python<'_>) -> PyResult<State> {
    let values = py.import("values")?;
    let native = py.import("gabion._native")?;
    let codec = native.getattr("_Codec")?.call0()?;
    let mut encodings = Vec::new();
    for value in values.getattr("values")?.call0()?.try_iter()? {
        let encoding = codec.call_method1("encode", (value?,))?;
        codec.call_method1("decode", (&encoding,))?;
        encodings.push(encoding.extract()?);
    }
    Ok(State { codec: codec.unbind(), error: native.getattr("CodecError")?.unbind(), encodings })
}

/// Changes to bytes, four bytes of input each: where, and what.
fn change(bytes: &mut Vec<u8>, others: &[Vec<u8>], changes: &[u8]) {
    for change in changes.chunks_exact(4) {
        let at = usize::from(u16::from_le_bytes([change[0], change[1]])) % (bytes.len() + 1);
        let value = change[2];
        match change[3] % 6 {
            0 if at < bytes.len() => bytes[at] = value,
            1 => bytes.insert(at, value),
            2 => bytes.truncate(at),
            3 => {
                let other = &others[usize::from(value) % others.len()];
                let from = at.min(other.len());
                bytes.splice(at.min(bytes.len()).., other[from..].iter().copied());
            }
            4 if at < bytes.len() => drop(bytes.remove(at)),
            5 if at < bytes.len() => bytes[at] ^= 1 << (value % 8),
            _ => {}
        }
    }
}

fn run(py: Python<'_>, state: &State, bytes: &[u8]) {
    let codec = state.codec.bind(py);
    codec.call_method1("raw_view", (bytes,)).expect("an answer, whatever the bytes");
    let _ = codec.call_method1("fields", (bytes, "a", "number"));
    match codec.call_method1("decode", (bytes,)) {
        // What was read can be written: whatever it is, that must not crash either.
        Ok(object) => drop(codec.call_method1("encode", (object,))),
        Err(error) => {
            let known = error.is_instance(py, state.error.bind(py)) || error.is_instance_of::<PyMemoryError>(py);
            assert!(known, "{error}");
        }
    }
}

fuzz_target!(
    init: {
        assert!(STATE.set(interpreter::with_package(prepare)).is_ok());
    },
    |data: &[u8]| {
        let Some((&first, rest)) = data.split_first() else { return };
        let state = STATE.get().expect("set at the start");
        Python::attach(|py| {
            if first == 0 {
                run(py, state, rest);
            } else {
                let mut bytes = state.encodings[usize::from(first) % state.encodings.len()].clone();
                change(&mut bytes, &state.encodings, rest);
                run(py, state, &bytes);
            }
        });
    }
);
