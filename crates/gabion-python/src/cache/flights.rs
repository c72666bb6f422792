//! What the flights of `gabion._flights` do in one step: no signal's handler comes between, and where there is a global
//! lock, no other thread.

use gabion_cache::{Lease, PutOptions, Table, Value};
use pyo3::exceptions::{PyException, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};

use super::state::Inner;
use super::{key, options};
use crate::once::{intern, of_module, once};
use crate::{ffi, result};

/// The right to store a value that is being made, until its key changes.
#[pyclass(frozen, module = "gabion._native", name = "_CacheLease")]
pub(super) struct CacheLease(Lease);

impl CacheLease {
    /// Of a key's bytes, whose value is about to be made.
    pub fn new(table: &Table, key: &[u8]) -> Self {
        Self(table.lease(key))
    }
}

/// Takes a lease of a key, whose value is about to be made.
pub(super) fn lease(inner: &Inner, key: &Bound<'_, PyAny>) -> PyResult<CacheLease> {
    key::with(key, |key| Ok(CacheLease::new(&inner.table, key)))
}

/// Stores a value that was made under a lease of a key's bytes, if that holds. Without options it is not to be kept,
/// and what the key had until then goes: it is older. Returns its bytes, if they are wanted.
pub(super) fn keep<'py>(
    inner: &Inner,
    key: &[u8],
    value: &Bound<'py, PyAny>,
    (lease, wanted): (&CacheLease, bool),
    options: Option<&PutOptions>,
) -> PyResult<Option<Bound<'py, PyBytes>>> {
    let py = value.py();
    if options.is_none() {
        inner.table.remove_made(&lease.0, key);
        if !wanted {
            return Ok(None);
        }
    }
    let mut refused = None;
    let encoded = inner.encoded(value, |encoding| {
        // The object's own code may have closed the cache. A table that was dropped has ended the lease.
        inner.check_cache(py)?;
        // First, because the callbacks of what goes for it may change what is in pieces.
        let bytes = wanted.then(|| bytes_of(py, encoding)).transpose()?;
        if let Some(options) = options {
            let result = inner.table.put_made(&lease.0, key, encoding, options);
            refused = result.filter(|result| !result.is_stored()).map(|_| encoding.len() as u64);
            inner.watch(options::is_timed(options));
            // A callback may have closed it. Whoever asked has the value all the same.
            if inner.is_closed() {
                inner.table.remove(key);
            }
        }
        Ok(bytes)
    });
    let made = match encoded {
        // Nothing of it was to be kept, so nobody asked whether it can be: those who wait make their own.
        Err(error) if options.is_none() && error.is_instance_of::<PyException>(py) => None,
        encoded => encoded?,
    };
    if let Some(length) = refused {
        tell_of_refusal(py, inner, key, length)?;
    }
    Ok(made)
}

/// Logs, once per table (and so per memoized function), that a value over half the table's limit was not stored. It is
/// made anew at each call, which the caller cannot see.
#[cold]
fn tell_of_refusal(py: Python<'_>, inner: &Inner, key: &[u8], length: u64) -> PyResult<()> {
    let limit = inner.table.stats().max_bytes;
    // With 0 a program turns the cache off.
    let is_too_large = limit > 0 && length > limit / 2;
    if !is_too_large || !inner.shared.is_first_refusal(inner.table.name()) {
        return Ok(());
    }
    let (table, key) = (result::text(py, inner.table.name())?, key::read(py, key)?);
    let (length, limit) = (result::number(py, length)?, result::number(py, limit)?);
    of_module(py, c"gabion._making", c"tell_of_refusal")?.call1((table, key, length, limit)).map(drop)
}

/// The bytes of a value.
fn bytes_of<'py>(py: Python<'py>, value: Value<'_>) -> PyResult<Bound<'py, PyBytes>> {
    let pieces = match value {
        Value::Whole(whole) => &[whole.into()],
        Value::Pieces(pieces) => pieces,
    };
    PyBytes::new_with(py, value.len(), |mut room| {
        for piece in pieces {
            let (place, rest) = room.split_at_mut(piece.len());
            piece.copy_to(place);
            room = rest;
        }
        Ok(())
    })
}

/// Whether a flight's result may still be waited for: it has not ended, and its key was not changed since it began.
fn can_be_joined(flight: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = flight.py();
    if flight.getattr(intern!(py, "ended")?)?.is_truthy()? {
        return Ok(false);
    }
    let lease = flight.getattr(intern!(py, "lease")?)?;
    Ok(lease.cast::<CacheLease>().map_or(true, |lease| lease.get().0.holds()))
}

/// Takes a flight off the list, if it is there. Where there is no global lock, another may just have taken its place,
/// and go with it: then its key's next caller does not wait for it.
fn forget(in_flight: &Bound<'_, PyDict>, name: &Bound<'_, PyAny>, flight: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = in_flight.py();
    if in_flight.get_item(name)?.is_some_and(|other| other.is(flight)) {
        in_flight.call_method1(intern!(py, "pop")?, (name, py.None()))?;
    }
    Ok(())
}

/// Let `flight` be the one that makes the value of a name. If another does so, whose value is worth waiting for, return
/// that one: it is noted from now on that this one's caller waits.
#[pyfunction]
#[pyo3(signature = (in_flight, name, flight, /))]
pub(super) fn enter_flight<'py>(
    in_flight: &Bound<'py, PyDict>,
    name: &Bound<'py, PyAny>,
    flight: &Bound<'py, PyAny>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = in_flight.py();
    stop_waiting(flight)?;
    // Names are tuples of str and bytes, and flights have slots: no Python code runs in here.
    loop {
        let other = in_flight.call_method1(intern!(py, "setdefault")?, (name, flight))?;
        if other.is(flight) {
            return Ok(None);
        }
        if can_be_joined(&other)? {
            // Found now: a wait may be thrown away at the interpreter's end, when nothing is imported any more.
            missing(py)?;
            waiters(&other)?.append(flight)?;
            flight.setattr(intern!(py, "awaiting")?, &other)?;
            return Ok(Some(other));
        }
        forget(in_flight, name, &other)?;
    }
}

/// The flights, not begun, of the callers that wait for one.
fn waiters<'py>(flight: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
    Ok(flight.getattr(intern!(flight.py(), "waiters")?)?.cast_into()?)
}

/// Whether somebody waits for a flight that another one makes.
pub(super) fn is_awaited(flight: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(!waiters(flight)?.is_empty())
}

/// What `made` is of a flight that made nothing.
fn missing(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static MISSING: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    Ok(once(py, &MISSING, || Ok(of_module(py, c"gabion._flights", c"MISSING")?.unbind()))?.bind(py))
}

/// Note that the caller of a flight waits for no other one any more. If nobody waits for that, what it made is let go
/// of, because an error leads to all frames that it came through; and if it has not ended, its task is cancelled.
#[pyfunction]
#[pyo3(signature = (flight, /))]
pub(super) fn stop_waiting(flight: &Bound<'_, PyAny>) -> PyResult<()> {
    let (py, awaiting) = (flight.py(), intern!(flight.py(), "awaiting")?);
    let other = flight.getattr(awaiting)?;
    if other.is_none() {
        return Ok(());
    }
    flight.setattr(awaiting, py.None())?;
    let waiters = waiters(&other)?;
    // In a child that was forked it is not there. Flights are compared by identity.
    drop(waiters.call_method1(intern!(py, "remove")?, (flight,)));
    if !waiters.is_empty() {
        return Ok(());
    }
    if other.getattr(intern!(py, "ended")?)?.is_truthy()? {
        other.setattr(intern!(py, "made")?, missing(py)?)
    } else if other.getattr(intern!(py, "task")?)?.is_none() {
        Ok(())
    } else {
        other.call_method0(intern!(py, "abandon")?).map(drop)
    }
}

/// Whether what a flight made is an error that says something of its own caller alone: that it must not wait.
fn is_refusal(made: &Bound<'_, PyTuple>) -> PyResult<bool> {
    let (py, error) = (made.py(), made.get_item(0)?);
    // Of no other class: one may have attributes that are code.
    let plain = error.get_type().is(py.get_type::<PyRuntimeError>());
    Ok(plain && error.hasattr(intern!(py, "_gabion_refusal")?)?)
}

/// End a flight: tell those who wait what was made, and let the next caller make the value of its name. Twice does
/// nothing.
#[pyfunction]
#[pyo3(signature = (in_flight, name, flight, made, /))]
pub(super) fn leave_flight(
    in_flight: &Bound<'_, PyDict>,
    name: &Bound<'_, PyAny>,
    flight: &Bound<'_, PyAny>,
    made: &Bound<'_, PyAny>,
) -> PyResult<()> {
    // Whatever goes wrong, nobody waits for ever.
    forget(in_flight, name, flight).and(end_flight(flight, made)).and(stop_waiting(flight))
}

/// End a flight wherever it is listed, as its factory's end does or for one that never comes. The next caller who finds
/// it on the list takes it off. Twice does nothing.
#[pyfunction]
#[pyo3(signature = (flight, made, /))]
pub(super) fn end_flight(flight: &Bound<'_, PyAny>, made: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = flight.py();
    // One step, also where there is no global lock: those who find it stranded and its own factory may end it at one
    // time.
    let right = flight.getattr(intern!(py, "right_to_end")?)?.cast_into::<PyList>()?;
    if flight.getattr(intern!(py, "ended")?)?.is_truthy()? || right.call_method0(intern!(py, "pop")?).is_err() {
        return Ok(());
    }
    let mut result = Ok(());
    let told = match made.cast::<PyTuple>() {
        Ok(failure) => is_awaited(flight)? && !is_refusal(failure)?,
        Err(_) => true,
    };
    if told {
        flight.setattr(intern!(py, "made")?, made)?;
    }
    flight.setattr(intern!(py, "ended")?, true)?;
    flight.setattr(intern!(py, "lease")?, py.None())?;
    flight.getattr(intern!(py, "gate")?)?.call_method0(intern!(py, "release")?)?;
    // Whoever adds a call from here on finds that it has ended.
    let calls = flight.getattr(intern!(py, "calls")?)?.cast_into::<PyList>()?;
    while !calls.is_empty() {
        let call = calls.call_method0(intern!(py, "pop")?)?;
        // What a signal's handler raises in one is no reason not to wake the others, nor the one who waits for it: that
        // one is called once more, which does nothing where it was done.
        let called = call.call0().map(drop);
        if called.is_err() {
            drop(call.call0());
        }
        result = result.and(called);
    }
    result
}

/// The context variable that says which flight's factory code runs in.
fn running(py: Python<'_>) -> PyResult<*mut ffi::PyObject> {
    static RUNNING: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    Ok(once(py, &RUNNING, || Ok(of_module(py, c"gabion._flights", c"_running")?.unbind()))?.as_ptr())
}

/// The first of a flight and those around it that has not ended, or None.
fn not_ended(mut flight: Bound<'_, PyAny>) -> PyResult<Bound<'_, PyAny>> {
    let py = flight.py();
    while !flight.is_none() && flight.getattr(intern!(py, "ended")?)?.is_truthy()? {
        flight = flight.getattr(intern!(py, "outer")?)?;
    }
    Ok(flight)
}

/// Wait until a lock is free, and leave it so.
#[pyfunction]
#[pyo3(signature = (gate, /))]
pub(super) fn pass_gate(gate: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = gate.py();
    gate.call_method0(intern!(py, "acquire")?)?;
    gate.call_method0(intern!(py, "release")?).map(drop)
}

/// Mark the code from here on as the flight's factory. Returns the token that resets the mark.
#[pyfunction]
#[pyo3(signature = (flight, /))]
pub(super) fn run_flight<'py>(flight: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let (py, name) = (flight.py(), intern!(flight.py(), "outer")?);
    let running = running(py)?;
    let mut outer = std::ptr::null_mut();
    // SAFETY: attached; a context variable with a default, so that a value is found; a new reference.
    let outer = unsafe {
        if ffi::PyContextVar_Get(running, std::ptr::null_mut(), &raw mut outer) < 0 {
            return Err(PyErr::fetch(py));
        }
        Bound::from_owned_ptr(py, outer)
    };
    // A thread may have begun with what is another's.
    let outer = if outer.is_none() { outer } else { of_module(py, c"gabion._flights", c"_innermost")?.call0()? };
    let outer = not_ended(outer)?;
    if !outer.is_none() {
        // What has ended is let go of, also behind one that goes on: tasks may start others for ever.
        outer.setattr(name, not_ended(outer.getattr(name)?)?)?;
    }
    flight.setattr(name, outer)?;
    // SAFETY: attached; a context variable and a live object; a new reference or null with an error set.
    unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyContextVar_Set(running, flight.as_ptr())) }
}

/// Take the mark of `run_flight` away, by its token: the flight that the code runs in is the one from before. In
/// another context than the one that it was made in there is none: so where a coroutine that is thrown away is closed.
#[pyfunction]
#[pyo3(signature = (token, /))]
pub(super) fn reset_current(token: &Bound<'_, PyAny>) {
    let py = token.py();
    // SAFETY: attached; the variable that the token is of; what is raised is taken here.
    let failed = running(py).is_ok_and(|running| unsafe { ffi::PyContextVar_Reset(running, token.as_ptr()) } < 0);
    if failed {
        drop(PyErr::take(py));
    }
}

/// Adds the class and the functions to the extension module.
pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<CacheLease>()?;
    m.add_function(wrap_pyfunction!(pass_gate, m)?)?;
    m.add_function(wrap_pyfunction!(run_flight, m)?)?;
    m.add_function(wrap_pyfunction!(reset_current, m)?)?;
    m.add_function(wrap_pyfunction!(enter_flight, m)?)?;
    m.add_function(wrap_pyfunction!(leave_flight, m)?)?;
    m.add_function(wrap_pyfunction!(stop_waiting, m)?)?;
    m.add_function(wrap_pyfunction!(end_flight, m)?)
}
