//! What the pool can refuse with, and how Python is told.

use gabion_blocks::BlockError;
use pyo3::exceptions::{PyBufferError, PyMemoryError, PyTypeError, PyValueError};
use pyo3::prelude::*;

use crate::errors::{Errors, exception};

/// The exception for a refusal of the pool: its class by kind, its text as the pool says it.
#[cold]
pub(crate) fn refused(py: Python<'_>, error: &BlockError) -> PyErr {
    let errors = match Errors::get(py) {
        Ok(errors) => errors,
        Err(error) => return error,
    };
    match error {
        BlockError::Refused { .. } | BlockError::NoMemory { .. } | BlockError::Exhausted { .. } => {
            exception(&py.get_type::<PyMemoryError>(), &error.to_string())
        }
        BlockError::Setting { .. } => value_error(py, &error.to_string()),
        _ => exception(errors.limit.bind(py), &error.to_string()),
    }
}

/// A `ClosedError`: `what` was released before.
#[cold]
pub(super) fn released(py: Python<'_>, what: &str) -> PyErr {
    match Errors::get(py) {
        Err(error) => error,
        Ok(errors) => {
            exception(errors.closed.bind(py), &format!("this {what} was released: its memory is gone; rent another"))
        }
    }
}

/// A `BufferError` for a release while views are alive.
#[cold]
pub(super) fn exported(py: Python<'_>, what: &str, views: usize) -> PyErr {
    let (views, are) = if views == 1 { ("1 view".to_owned(), "is") } else { (format!("{views} views"), "are") };
    let text = format!(
        "this {what} cannot be released: {views} of its memory {are} alive; release them or let go of them \
         (memoryviews, arrays and tensors made of it count)"
    );
    buffer_error(py, &text)
}

#[cold]
pub(super) fn buffer_error(py: Python<'_>, text: &str) -> PyErr {
    exception(&py.get_type::<PyBufferError>(), text)
}

#[cold]
pub(super) fn type_error(py: Python<'_>, text: &str) -> PyErr {
    exception(&py.get_type::<PyTypeError>(), text)
}

#[cold]
pub(super) fn value_error(py: Python<'_>, text: &str) -> PyErr {
    exception(&py.get_type::<PyValueError>(), text)
}
