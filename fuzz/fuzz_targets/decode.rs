//! Any bytes, given to the decoder: an object or an error, never a crash, in bounded memory.
//!
//! The codec is compiled into this program, which embeds an interpreter. Bytes come as they are, or as changes to the
//! encoding of a value, of which there is one for every kind that the codec knows.

#![no_main]
#![allow(dead_code, unused_imports, reason = "the extension uses what this program does not")]

#[path = "../../crates/gabion-python/src/codec/mod.rs"]
mod codec;
#[path = "../../crates/gabion-python/src/errors.rs"]
mod errors;
#[path = "../../crates/gabion-python/src/ffi.rs"]
mod ffi;

use std::ffi::CString;
use std::sync::OnceLock;

use codec::Codec;
use libfuzzer_sys::fuzz_target;
use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;
use pyo3::types::{PyModule, PyString};

struct State {
    codec: Codec,
    encodings: Vec<Vec<u8>>,
    names: [Py<PyString>; 2],
}

static STATE: OnceLock<State> = OnceLock::new();

fn prepare(py: Python<'_>) -> PyResult<State> {
    let program = CString::new(include_str!("values.py"))?;
    let module = PyModule::from_code(py, &program, c"values.py", c"values")?;
    py.import("sys")?.getattr("modules")?.set_item("values", &module)?;
    let codec = Codec::new();
    let mut encodings = Vec::new();
    for value in module.getattr("values")?.call0()?.try_iter()? {
        let (value, mut encoding) = (value?, Vec::new());
        // SAFETY: `value` is held over the call.
        unsafe { codec.encode(py, value.as_ptr(), &mut encoding)? };
        codec.decode(py, &encoding)?;
        encodings.push(encoding);
    }
    Ok(State { codec, encodings, names: ["a", "number"].map(|name| PyString::new(py, name).unbind()) })
}

/// Changes to bytes, three bytes of input each: where, and what.
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
    let _ = Codec::raw_view(bytes);
    let names = state.names.each_ref().map(|name| name.bind(py).clone().into_any());
    drop(state.codec.decode_fields(py, bytes, &names));
    match state.codec.decode(py, bytes) {
        // What was read can be written: whatever it is, that must not crash either.
        Ok(object) => {
            let mut again = Vec::new();
            // SAFETY: `object` is held over the call.
            let _ = unsafe { state.codec.encode(py, object.as_ptr(), &mut again) };
        }
        Err(error) => {
            let errors = errors::Errors::get(py).expect("made before");
            let known = error.is_instance(py, errors.codec.bind(py)) || error.is_instance_of::<PyMemoryError>(py);
            assert!(known, "{error}");
        }
    }
}

fuzz_target!(
    init: {
        Python::attach(|py| {
            let state = prepare(py).unwrap_or_else(|error| panic!("{error}"));
            assert!(STATE.set(state).is_ok());
        });
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
