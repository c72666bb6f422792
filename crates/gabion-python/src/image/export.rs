//! A picture as a DLPack tensor, as Arrow data, and after NumPy's array interface. Never a copy but where one is asked
//! for.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::patience::Patience;
use super::picture::{Picture, Shown};
use super::refusal;
use crate::gate::through_gate;
use crate::memory::{array_interface, arrow, dlpack};
use crate::result::{number, tuple};

pub(super) use crate::memory::dlpack::DEVICE;

/// The DLPack capsule of a picture in one piece.
pub(super) fn tensor(
    py: Python<'_>,
    picture: Shown,
    stream: Option<&Bound<'_, PyAny>>,
    versioned: bool,
    device: Option<(i32, i32)>,
    copy: Option<bool>,
) -> PyResult<Py<PyAny>> {
    dlpack::check(py, "an image", stream, device)?;
    let copied = copy == Some(true);
    let picture = if copied { Patience::none().run(py, || in_one_piece(py, picture.picture()))? } else { picture };
    let start = picture.whole_or(py, "pass copy=True to from_dlpack() for a copy in one piece, ")?.start.as_ptr();
    let [rows, columns, channels] = picture.shape.map(|side| side as i64);
    // SAFETY: the pixels of the picture in one piece, which it keeps in place.
    unsafe {
        if channels == 1 {
            dlpack::capsule(py, start, [rows, columns], picture, versioned, copied)
        } else {
            dlpack::capsule(py, start, [rows, columns, channels], picture, versioned, copied)
        }
    }
}

/// A copy of a picture, in one piece.
pub(super) fn in_one_piece(py: Python<'_>, picture: &Arc<Picture>) -> PyResult<Shown> {
    let copy = through_gate(py, || picture.copy_of(&picture.read(), true).map(Picture::new));
    let copy = copy.map_err(|error| refusal::refused(py, error, None))?;
    copy.note(py)?;
    Ok(Shown::of(copy))
}

/// The Arrow type of a picture's pixels: uint8, or lists of so many.
pub(super) fn schema(py: Python<'_>, picture: &Picture) -> PyResult<Py<PyAny>> {
    arrow::schema(py, picture.mode.channels())
}

/// The Arrow array of the pixels of a picture in one piece, row after row.
pub(super) fn pixels(py: Python<'_>, picture: Shown) -> PyResult<Py<PyAny>> {
    let place = picture.whole(py)?;
    let (start, channels) = (place.start.as_ptr(), picture.mode.channels());
    // SAFETY: the pixels of the picture in one piece, which it keeps in place.
    unsafe {
        if channels == 1 {
            arrow::array(py, start, place.length, picture)
        } else {
            arrow::lists(py, start, place.length / channels, channels, picture)
        }
    }
}

/// The dict of NumPy's array interface; `data` is a memoryview of the picture.
pub(super) fn interface<'py>(
    py: Python<'py>,
    picture: &Picture,
    data: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyDict>> {
    array_interface(&shape(py, picture)?, data)
}

/// Height, width and channels, without those where there is one.
pub(super) fn shape<'py>(py: Python<'py>, picture: &Picture) -> PyResult<Bound<'py, PyTuple>> {
    let dimensions = if picture.mode.channels() == 1 { 2 } else { 3 };
    let sides = picture.shape[..dimensions].iter().map(|&side| number(py, side as u64));
    tuple(py, sides.collect::<PyResult<Vec<_>>>()?.into_iter())
}
