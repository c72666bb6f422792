//! What can go wrong with images, and how Python is told.

use std::io::{self, ErrorKind};

use gabion_image::ImageError;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;

use crate::errors::{own_error, system_text};
use crate::memory;

pub(super) use crate::errors::{buffer_error, type_error, value_error};

/// The exception for an error of the core. `name` is the file that it is about.
#[cold]
pub(super) fn refused(py: Python<'_>, error: ImageError, name: Option<&Bound<'_, PyAny>>) -> PyErr {
    let text = match name {
        Some(name) => format!("{}: {error}", name.str().map_or_else(|_| "?".to_owned(), |name| name.to_string())),
        None => error.to_string(),
    };
    match error {
        ImageError::Io(error) => failed(error, name),
        ImageError::Memory(error) => memory::refused(py, &error),
        ImageError::Limit { .. } => own_error(py, |errors| &errors.limit, &text),
        _ => image_error(py, &text),
    }
}

/// An `OSError` of the right subclass, with its number where it is known, and the file's name.
fn failed(error: io::Error, name: Option<&Bound<'_, PyAny>>) -> PyErr {
    let number = error.raw_os_error().or(match error.kind() {
        ErrorKind::NotFound => Some(libc::ENOENT),
        ErrorKind::PermissionDenied => Some(libc::EACCES),
        ErrorKind::IsADirectory => Some(libc::EISDIR),
        ErrorKind::NotADirectory => Some(libc::ENOTDIR),
        ErrorKind::StorageFull => Some(libc::ENOSPC),
        ErrorKind::ReadOnlyFilesystem => Some(libc::EROFS),
        _ => None,
    });
    match (number, name) {
        (Some(number), Some(name)) => PyOSError::new_err((number, system_text(number), name.clone().unbind())),
        (Some(number), None) => PyOSError::new_err((number, system_text(number))),
        (None, _) if error.kind() == ErrorKind::OutOfMemory => {
            pyo3::exceptions::PyMemoryError::new_err(error.to_string())
        }
        (None, _) => PyOSError::new_err(error.to_string()),
    }
}

#[cold]
pub(super) fn closed(py: Python<'_>) -> PyErr {
    own_error(py, |errors| &errors.closed, "this image was closed: its pixels are gone; open or make another")
}

#[cold]
pub(super) fn image_error(py: Python<'_>, text: &str) -> PyErr {
    own_error(py, |errors| &errors.image, text)
}
