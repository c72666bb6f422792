//! What the flights of `gabion._flights` do in one step: no signal's handler comes between, and where there is a global lock,
//! no other thread.

use gabion_cache::{Lease, Value};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

use super::state::Inner;
use super::{key, options};
use crate::once::intern;

/// The right to store a value that is being made, until its key changes.
#[pyclass(frozen, module = "gabion._native", name = "_CacheLease")]
pub(super) struct CacheLease(Lease);

/// Takes a lease of a key, whose value is about to be made.
pub(super) fn lease(inner: &Inner, key: &Bound<'_, PyAny>) -> PyResult<CacheLease> {
    key::with(key, |key| Ok(CacheLease(inner.table.lease(key))))
}

/// Stores a value that was made under a lease, if that holds. Returns its bytes, if they are wanted.
pub(super) fn keep<'py>(
    inner: &Inner,
    key: &Bound<'py, PyAny>,
    value: &Bound<'py, PyAny>,
    (lease, wanted): (&CacheLease, bool),
    as_put: &Bound<'py, PyDict>,
) -> PyResult<Option<Bound<'py, PyBytes>>> {
    let py = key.py();
    let options = options::of_dict(as_put)?;
    key::with(key, |key| {
        inner.encoded(value, |encoding| {
            // The object's own code may have closed the cache.
            inner.check(py)?;
            inner.table.put_made(&lease.0, key, encoding, &options);
            inner.watch(options::is_timed(&options));
            wanted.then(|| bytes_of(py, encoding)).transpose()
        })
    })
}

/// The bytes of a value.
fn bytes_of<'py>(py: Python<'py>, value: Value<'_>) -> PyResult<Bound<'py, PyBytes>> {
    let pieces = match value {
        Value::Whole(whole) => &[whole],
        Value::Pieces(pieces) => pieces,
    };
    PyBytes::new_with(py, value.len(), |mut room| {
        for piece in pieces {
            let (place, rest) = room.split_at_mut(piece.len());
            place.copy_from_slice(piece);
            room = rest;
        }
        Ok(())
    })
}

/// Whether a flight's result may still be waited for: it has not ended, and its key was not changed since it began.
fn is_awaitable(flight: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = flight.py();
    if flight.getattr(intern!(py, "ended"))?.is_truthy()? {
        return Ok(false);
    }
    let lease = flight.getattr(intern!(py, "lease"))?;
    Ok(lease.cast::<CacheLease>().map_or(true, |lease| lease.get().0.holds()))
}

/// Takes a flight off the list, if it is there. Where there is no global lock, another may just have taken its place, and go
/// with it: then its key's next caller does not wait for it.
fn forget(flying: &Bound<'_, PyDict>, name: &Bound<'_, PyAny>, flight: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = flying.py();
    if flying.get_item(name)?.is_some_and(|other| other.is(flight)) {
        flying.call_method1(intern!(py, "pop"), (name, py.None()))?;
    }
    Ok(())
}

/// Let `flight` be the one that makes the value of a name. If another does so, whose value is worth waiting for, return
/// that one: it knows from now on that somebody waits.
#[pyfunction]
#[pyo3(signature = (flying, name, flight, /))]
fn enter_flight<'py>(
    flying: &Bound<'py, PyDict>,
    name: &Bound<'py, PyAny>,
    flight: &Bound<'py, PyAny>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = flying.py();
    // Names are tuples of str and bytes, and flights have slots: no Python code runs in here.
    loop {
        let other = flying.call_method1(intern!(py, "setdefault"), (name, flight))?;
        if other.is(flight) {
            return Ok(None);
        }
        if is_awaitable(&other)? {
            other.setattr(intern!(py, "awaited"), true)?;
            return Ok(Some(other));
        }
        forget(flying, name, &other)?;
    }
}

/// End a flight: tell those who wait what was made, and let the next caller make the value of its name. Twice does nothing.
#[pyfunction]
#[pyo3(signature = (flying, name, flight, made, /))]
fn leave_flight(
    flying: &Bound<'_, PyDict>,
    name: &Bound<'_, PyAny>,
    flight: &Bound<'_, PyAny>,
    made: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let py = flying.py();
    // Whatever goes wrong, nobody waits for ever.
    let mut result = forget(flying, name, flight);
    if flight.getattr(intern!(py, "ended"))?.is_truthy()? {
        return result;
    }
    flight.setattr(intern!(py, "made"), made)?;
    flight.setattr(intern!(py, "ended"), true)?;
    flight.setattr(intern!(py, "lease"), py.None())?;
    flight.getattr(intern!(py, "gate"))?.call_method0(intern!(py, "release"))?;
    // Whoever adds a call from here on finds that it has ended.
    let calls = flight.getattr(intern!(py, "calls"))?.cast_into::<PyList>()?;
    while !calls.is_empty() {
        let call = calls.call_method0(intern!(py, "pop"))?;
        // What a signal's handler raises in one is no reason not to wake the others.
        result = result.and(call.call0().map(drop));
    }
    result
}

/// Adds the class and the functions to the extension module.
pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<CacheLease>()?;
    m.add_function(wrap_pyfunction!(enter_flight, m)?)?;
    m.add_function(wrap_pyfunction!(leave_flight, m)?)
}
