//! The pile's errors as Python exceptions.

use gabion_pile::PileError;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use crate::errors::Errors;

/// The exception for a refusal: its class by kind, its text as the pile says it.
#[cold]
pub(super) fn raise(py: Python<'_>, error: &PileError) -> PyErr {
    let text = error.to_string();
    match (Errors::get(py), error) {
        (Err(error), _) => error,
        (Ok(errors), PileError::Pointer { .. }) => PyErr::from_type(errors.pointer.bind(py).clone(), text),
        (Ok(errors), _) => PyErr::from_type(errors.limit.bind(py).clone(), text),
    }
}

/// For an int that no pointer can be: negative, or beyond 64 bits.
#[cold]
pub(super) fn impossible(py: Python<'_>, number: &Bound<'_, PyAny>) -> PyErr {
    let text = format!("{number} is not a pointer: no pile gives out such a number; pass what put() returned");
    match Errors::get(py) {
        Err(error) => error,
        Ok(errors) => PyErr::from_type(errors.pointer.bind(py).clone(), text),
    }
}

/// For what is not an int at all.
#[cold]
pub(super) fn not_an_int(value: &Bound<'_, PyAny>) -> PyErr {
    let given = value.get_type().name().map_or_else(|_| "?".to_owned(), |name| name.to_string());
    PyTypeError::new_err(format!("a pointer is an int, as put() returned it, not {given}"))
}

/// For a pile that was closed.
#[cold]
pub(super) fn closed(py: Python<'_>) -> PyErr {
    match Errors::get(py) {
        Err(error) => error,
        Ok(errors) => PyErr::from_type(
            errors.closed.bind(py).clone(),
            "this pile was closed: its objects are gone; make a new gabion.Pile()",
        ),
    }
}

/// For a pile that could not be made.
#[cold]
pub(super) fn no_pile(py: Python<'_>, error: &gabion_blocks::BlockError) -> PyErr {
    match Errors::get(py) {
        Err(error) => error,
        Ok(errors) => PyErr::from_type(errors.limit.bind(py).clone(), format!("no new pile: {error}")),
    }
}
