//! What can go wrong with images, and how Python is told.

use std::fmt::Display;

use gabion_image::{Format, ImageError, LimitKind};
use pyo3::prelude::*;

use crate::errors::{self, full_name, legible, limit_error, own_error, system_error};
use crate::memory;

pub(super) use crate::errors::{buffer_error, type_error, value_error};

/// The kind of what is damaged or cut off.
const CORRUPT: &str = "corrupt";

/// The exception for an error of the core. `name` is the file that it is about.
#[cold]
pub(super) fn refused(py: Python<'_>, error: ImageError, name: Option<&Bound<'_, PyAny>>) -> PyErr {
    let text = about(name, &error);
    match error {
        ImageError::Io(error) => system_error(py, &error, name),
        ImageError::Memory(error) => memory::refused(py, &error),
        ImageError::Limit { kind, asked, limit } => {
            let name = match kind {
                LimitKind::Pixels => "max_pixels",
                LimitKind::Side => "side",
                _ => "max_bytes",
            };
            limit_error(py, name, asked, limit, &text)
        }
        ImageError::Corrupt { .. } => errors::image_error(py, CORRUPT, &text),
        ImageError::Unsupported { .. } => errors::image_error(py, "unsupported", &text),
        _ => image_error(py, &text),
    }
}

/// The same for a file that was to be opened. `partial` says whether the caller takes what can be decoded of a damaged
/// one.
#[cold]
pub(super) fn unopened(py: Python<'_>, error: ImageError, name: Option<&Bound<'_, PyAny>>, partial: bool) -> PyErr {
    let ImageError::Corrupt { format, what } = &error else { return refused(py, error, name) };
    // Of WebP nothing is decoded unless the file is whole.
    let text = if *format == Format::WebP && !partial {
        format!("not a sound {format} image: {what}; get the file anew")
    } else if partial {
        format!("not a sound {format} image: {what}, and nothing of it can be decoded; get the file anew")
    } else {
        format!("not a sound {format} image: {what}; get the file anew, or pass partial=True for what can be decoded")
    };
    errors::image_error(py, CORRUPT, &about(name, &text))
}

fn about(name: Option<&Bound<'_, PyAny>>, text: &dyn Display) -> String {
    match name {
        Some(name) => format!("{}: {text}", legible(name).unwrap_or_else(|_| "?".to_owned())),
        None => text.to_string(),
    }
}

#[cold]
pub(super) fn closed(py: Python<'_>) -> PyErr {
    own_error(py, |errors| &errors.closed, "this image was closed: its pixels are gone; open or make another")
}

#[cold]
pub(super) fn not_made(py: Python<'_>) -> PyErr {
    let text = "Image() makes no image: call Image.open(source), Image.new(mode, size), Image.from_array(array), \
                Image.from_bytes(mode, size, data) or Image.from_pillow(image)";
    type_error(py, text)
}

/// The error of something else than an image of this package where one was to be pasted.
#[cold]
pub(super) fn no_image(given: &Bound<'_, PyAny>) -> PyErr {
    let class = match full_name(&given.get_type()) {
        Ok(class) => class,
        Err(error) => return error,
    };
    let text = format!(
        "paste() takes a gabion.Image, not {class}: make one by Image.from_pillow(picture) or Image.from_array(array)"
    );
    type_error(given.py(), &text)
}

/// What cannot be done with this image, or with these pixels.
#[cold]
pub(super) fn image_error(py: Python<'_>, text: &str) -> PyErr {
    errors::image_error(py, "unfit", text)
}
