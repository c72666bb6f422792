//! From file to file, in one go.

use std::path::{Path, PathBuf};

use gabion_blocks::Pool;
use gabion_blocks::limits::processors;
use gabion_image::{Format, Formats, Image, Limits, OpenOptions, Probe, SaveOptions, save_atomically};
use pyo3::prelude::*;

use super::{argument, refusal};
use crate::detached::detached_ungated;

/// Makes a smaller file of a picture without the interpreter, for the command line; returns the new size. The picture
/// is never whole in memory, and the new file gets its name when it is complete. It has no EXIF block.
#[pyfunction]
#[pyo3(signature = (
    source, target, width, height, *, quality, max_pixels = None, profile = true, partial = false, fit = None,
    background = None
))]
#[expect(clippy::too_many_arguments, reason = "keywords of Python's")]
pub(super) fn _thumbnail(
    py: Python<'_>,
    source: PathBuf,
    target: PathBuf,
    width: u32,
    height: u32,
    quality: u8,
    max_pixels: Option<u64>,
    profile: bool,
    partial: bool,
    fit: Option<&Bound<'_, PyAny>>,
    background: Option<&Bound<'_, PyAny>>,
) -> PyResult<(u32, u32)> {
    let mut limits = Limits::default();
    limits.max_pixels = max_pixels.unwrap_or(limits.max_pixels);
    let fit = argument::fit(py, fit, background)?.unwrap_or_default();
    let open = OpenOptions { limits, profile, partial, fit, ..OpenOptions::thumbnail(width, height) };
    let save = SaveOptions { quality, ..SaveOptions::default() };
    let format = Format::to_write(&target).map_err(|error| refusal::refused(py, error, None))?;
    let about = |path: &Path| path.as_os_str().into_pyobject(py);
    let opened = detached_ungated(py, || Image::open(Pool::global(), &source, &open)?.held_by(format));
    let image = match opened {
        Ok(image) => image,
        Err(error) => return Err(refusal::unopened(py, error, Some(about(&source)?.as_any()), partial)),
    };
    match detached_ungated(py, || save_atomically(&target, |out| image.encode(format, &save, out))) {
        Ok(()) => Ok(image.size()),
        Err(error) => Err(refusal::refused(py, error, Some(about(&target)?.as_any()))),
    }
}

/// Width and height of a file's picture, upright, without decoding it; for the command line.
#[pyfunction]
pub(super) fn _image_size(py: Python<'_>, path: PathBuf) -> PyResult<(u32, u32)> {
    let size = detached_ungated(py, || {
        Probe::open(Pool::global(), &path, Formats::ALL, &Limits::default()).map(|found| found.size)
    });
    size.or_else(|error| Err(refusal::refused(py, error, Some(path.as_os_str().into_pyobject(py)?.as_any()))))
}

/// The name of the format that the first bytes of a file tell, if they tell one; for the command line.
#[pyfunction]
pub(super) fn _image_format(first: &[u8]) -> Option<&'static str> {
    Format::of_bytes(first).map(Format::name)
}

/// How many processors this process may keep busy, by its affinity and by its control group; for the command line.
#[pyfunction]
pub(super) fn _processors() -> usize {
    processors()
}

/// The formats that can be opened or saved, each with its extension and whether it can be saved; for the command line.
#[pyfunction]
pub(super) fn _image_formats() -> Vec<(&'static str, &'static str, bool)> {
    Format::ALL.into_iter().map(|format| (format.name(), format.extension(), format.can_write())).collect()
}
