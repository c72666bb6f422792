//! What the pool can refuse with, and how Python is told.

use gabion_blocks::BlockError;
use pyo3::prelude::*;

use crate::errors::{self, own_error};

pub(super) use crate::errors::{buffer_error, type_error, value_error};

/// The exception for a refusal of the pool, its text as the pool says it.
#[cold]
pub(crate) fn refused(py: Python<'_>, error: &BlockError) -> PyErr {
    errors::refused(py, error, &error.to_string())
}

/// A `ClosedError`: `what` was released before.
#[cold]
pub(super) fn released(py: Python<'_>, what: &str) -> PyErr {
    own_error(py, |errors| &errors.closed, &format!("this {what} was released: its memory is gone; rent another"))
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
