//! The key of a call: its arguments as bytes, those of the tuple `((argument, …), ((name, argument), …))`; or what
//! `key=` made of them, as it is where it is a key, and otherwise as an argument.
//!
//! Calls with equal arguments have equal keys, and no others do. Named ones stand in the order of their names. What is
//! no key by itself stands for one:
//!
//! ```text
//! (item, …)        ((), "tuple", (item, …)), so that it is no other argument's stand-in
//! frozenset        ((), "set", (item, …)), in the order of the items' bytes
//! a dataclass      ((), "fields", (its class's number, field, …))
//! a class, an Enum ((), "other", what `gabion._standins` says), and so for others
//! ```

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyFrozenSet, PyInt, PyList, PyString, PyTuple};

use super::key::{self, DEEPEST, item};
use crate::once::{of_module, once};

/// Appends the key of a call: of its arguments, or where those with names are None, of what `key=` returned for it.
///
/// # Errors
/// `NoKeyError`, a `TypeError`, for an argument that there is no key for.
pub(super) fn write(args: &Bound<'_, PyAny>, named: &Bound<'_, PyAny>, into: &mut Vec<u8>) -> PyResult<()> {
    if named.is_none() { write_own(args, into) } else { write_call(args.cast()?, named.cast()?, into) }
}

/// Appends a key that the program made. A tuple is written as one: it is no argument's stand-in, which begins with
/// `()`, because an item that is `()` has one itself.
fn write_own(key: &Bound<'_, PyAny>, into: &mut Vec<u8>) -> PyResult<()> {
    let py = key.py();
    if let Ok(tuple) = key.cast::<PyTuple>()
        && key::like::<PyTuple>(tuple)?
    {
        key::begin_tuple(into);
        return tuple.iter().try_for_each(|value| item(py, into, |into| argument(&value, into, 1)));
    }
    argument(key, into, 0)
}

fn write_call(args: &Bound<'_, PyTuple>, named: &Bound<'_, PyDict>, into: &mut Vec<u8>) -> PyResult<()> {
    let py = args.py();
    key::begin_tuple(into);
    item(py, into, |into| {
        key::begin_tuple(into);
        // Two tuples are around an argument.
        args.iter_borrowed().try_for_each(|arg| item(py, into, |into| argument(&arg, into, 2)))
    })?;
    item(py, into, |into| {
        key::begin_tuple(into);
        if named.is_empty() { Ok(()) } else { write_named(named, into) }
    })
}

fn write_named(named: &Bound<'_, PyDict>, into: &mut Vec<u8>) -> PyResult<()> {
    let py = named.py();
    let mut sorted = Vec::with_capacity(named.len());
    for (name, value) in named {
        let mut bytes = Vec::new();
        key::write(&name, &mut bytes, 3)?;
        sorted.push((bytes, value));
    }
    sorted.sort_by(|(one, _), (other, _)| one.cmp(other));
    sorted.iter().try_for_each(|(name, value)| {
        item(py, into, |into| {
            key::begin_tuple(into);
            raw(py, name, into)?;
            item(py, into, |into| argument(value, into, 3))
        })
    })
}

/// Appends one argument, around which there are that many tuples.
#[inline]
fn argument(value: &Bound<'_, PyAny>, into: &mut Vec<u8>, depth: usize) -> PyResult<()> {
    let is_plain = value.is_exact_instance_of::<PyString>() || value.is_exact_instance_of::<PyInt>();
    if is_plain { key::write(value, into, depth) } else { rarer(value, into, depth) }
}

#[inline(never)]
fn rarer(value: &Bound<'_, PyAny>, into: &mut Vec<u8>, depth: usize) -> PyResult<()> {
    let py = value.py();
    if let Ok(tuple) = value.cast::<PyTuple>()
        && key::like::<PyTuple>(tuple)?
    {
        several(py, b"tuple", tuple.iter(), into, depth)
    } else if let Ok(set) = value.cast_exact::<PyFrozenSet>() {
        frozen_set(set, into, depth)
    } else if key::may_be(value)? {
        key::write(value, into, depth)
    } else {
        other(value, into, depth)
    }
}

/// Appends a stand-in that is made of other arguments.
fn several<'py>(
    py: Python<'py>,
    name: &[u8],
    mut values: impl Iterator<Item = Bound<'py, PyAny>>,
    into: &mut Vec<u8>,
    depth: usize,
) -> PyResult<()> {
    stand_in(py, name, into, depth)?;
    item(py, into, |into| {
        key::begin_tuple(into);
        values.try_for_each(|value| item(py, into, |into| argument(&value, into, depth + 2)))
    })
}

fn frozen_set(set: &Bound<'_, PyFrozenSet>, into: &mut Vec<u8>, depth: usize) -> PyResult<()> {
    let py = set.py();
    if depth + 1 >= DEEPEST {
        return Err(key::too_deep(py));
    }
    let mut sorted = Vec::new();
    for value in set.try_iter()? {
        let mut bytes = Vec::new();
        argument(&value?, &mut bytes, depth + 2)?;
        sorted.push(bytes);
    }
    sorted.sort();
    stand_in(py, b"set", into, depth)?;
    item(py, into, |into| {
        key::begin_tuple(into);
        sorted.iter().try_for_each(|bytes| raw(py, bytes, into))
    })
}

/// What Python knows a stand-in for: a number that equals it, a tuple that is a key, or a list of arguments.
fn other(value: &Bound<'_, PyAny>, into: &mut Vec<u8>, depth: usize) -> PyResult<()> {
    static STAND_FOR: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = value.py();
    let stand_for = once(py, &STAND_FOR, || Ok(of_module(py, c"gabion._standins", c"stand_for")?.unbind()))?;
    let found = stand_for.bind(py).call1((value,))?;
    if let Ok(fields) = found.cast_exact::<PyList>() {
        return several(py, b"fields", fields.iter(), into, depth);
    }
    if !found.is_exact_instance_of::<PyTuple>() {
        return argument(&found, into, depth);
    }
    stand_in(py, b"other", into, depth)?;
    item(py, into, |into| key::write(&found, into, depth + 1))
}

/// Appends a tuple that begins with `()` and a name; more items may follow. Around it there are that many tuples, as
/// many as [`key::write`] takes: what a thread looks for by these bytes, a task looks for by the key that is read from
/// them.
fn stand_in(py: Python<'_>, name: &[u8], into: &mut Vec<u8>, depth: usize) -> PyResult<()> {
    if depth + 1 >= DEEPEST {
        return Err(key::too_deep(py));
    }
    key::begin_tuple(into);
    item(py, into, |into| {
        key::begin_tuple(into);
        Ok(())
    })?;
    raw(py, name, into)
}

/// Appends an item whose bytes are known.
fn raw(py: Python<'_>, bytes: &[u8], into: &mut Vec<u8>) -> PyResult<()> {
    item(py, into, |into| {
        into.extend_from_slice(bytes);
        Ok(())
    })
}
