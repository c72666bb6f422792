//! Images to files, and to Pillow.

use std::path::Path;
use std::ptr::NonNull;

use gabion_image::{Format, Resampling, SaveOptions, save_atomically};
use pyo3::exceptions::PyModuleNotFoundError;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyBytes, PyDict, PyNone};

use super::export::{in_one_piece, shape};
use super::picture::{Picture, Shown};
use super::refusal::{image_error, refused, type_error, value_error};
use super::{argument, source, view};
use crate::argument::path;
use crate::errors::{class_name, exception};
use crate::ffi;
use crate::gate::through_gate;
use crate::memory::MemoryRange;
use crate::once::import;
use crate::result::bytes;
use crate::streams::{Sink, Spool};

/// The options of save(), as keywords.
pub(super) fn options(
    quality: Option<&Bound<'_, PyAny>>,
    more: Option<&Bound<'_, PyDict>>,
    py: Python<'_>,
) -> PyResult<SaveOptions> {
    let mut options = SaveOptions::default();
    if let Some(quality) = quality {
        options.quality = argument::quality(quality)?;
    }
    for (name, value) in more.into_iter().flatten() {
        let name: String = name.extract()?;
        match name.as_str() {
            "subsampling" => options.subsampling = argument::subsampling(&value)?,
            "progressive" => options.progressive = argument::flag("progressive", &value)?,
            "optimize" => options.optimized = argument::flag("optimize", &value)?,
            "lossless" => options.lossless = argument::flag("lossless", &value)?,
            "compression" => options.compression = argument::compression(&value)?,
            "metadata" => (options.exif, options.profile) = argument::metadata(&value)?,
            _ => {
                let known = "subsampling, progressive, optimize, lossless, compression, metadata";
                let text = format!("save() has no option {name:?}; there are quality, {known}");
                return Err(type_error(py, &text));
            }
        }
    }
    Ok(options)
}

/// Saves to a path, aside and then renamed; to a device, a pipe, or a file object.
pub(super) fn save(
    target: &Bound<'_, PyAny>,
    picture: &Picture,
    format: Option<Format>,
    options: &SaveOptions,
) -> PyResult<()> {
    let py = target.py();
    if let Some(path) = path(target)? {
        let format = named(py, format, &path)?;
        if source::is_special(py, &path) {
            return source::with_file(target, "wb", |file| {
                pour(py, &Sink::new("file", file)?, picture, format, options)
            });
        }
        let saved = through_gate(py, || {
            save_atomically(&path, |out| picture.with_stable(|image| image.encode(format, options, out)))
        });
        return saved.map_err(|error| refused(py, error, Some(target)));
    }
    if !target.hasattr("write")? {
        let given = class_name(target);
        return Err(type_error(py, &format!("Image.save() takes a path or a binary file with write(), not {given}")));
    }
    let sink = Sink::new("file", target)?;
    let name = target.getattr_opt("name")?.and_then(|name| name.extract::<String>().ok());
    let format = match (format, &name) {
        (None, None) => return Err(image_error(py, "this file has no name that tells the format: pass format=")),
        (format, name) => named(py, format, Path::new(name.as_deref().unwrap_or_default()))?,
    };
    pour(py, &sink, picture, format, options)
}

fn pour(py: Python<'_>, sink: &Sink, picture: &Picture, format: Format, options: &SaveOptions) -> PyResult<()> {
    let mut spool = Spool::default();
    match through_gate(py, || picture.with_stable(|image| image.encode(format, options, &mut spool))) {
        Ok(()) => spool.pour(py, sink),
        Err(error) => Err(spool.refusal(py).unwrap_or_else(|| refused(py, error, None))),
    }
}

/// The format that was passed, or else the one that a name tells.
fn named(py: Python<'_>, format: Option<Format>, path: &Path) -> PyResult<Format> {
    format.map_or_else(|| Format::to_write(path), Ok).map_err(|error| refused(py, error, None))
}

/// All rows without gaps, as bytes.
pub(super) fn pixels<'py>(py: Python<'py>, picture: &Picture) -> PyResult<Bound<'py, PyBytes>> {
    let length = picture.len();
    // SAFETY: attached; null asks for bytes that are not initialised; a new reference or null with an error set. They
    // are written, all of them, before anybody else knows the object.
    unsafe {
        let bytes = ffi::PyBytes_FromStringAndSize(std::ptr::null(), length as isize);
        let bytes = Bound::from_owned_ptr_or_err(py, bytes)?.cast_into_unchecked::<PyBytes>();
        let to = MemoryRange { start: NonNull::new_unchecked(ffi::PyBytes_AsString(bytes.as_ptr()).cast()), length };
        through_gate(py, || picture.copy_to(&picture.read(), to));
        Ok(bytes)
    }
}

/// The longest side of what a notebook shows.
const SHOWN: u32 = 512;

/// A PNG for notebooks. Of the metadata it has the profile, without which colours may look different.
pub(super) fn png<'py>(py: Python<'py>, picture: &Picture) -> PyResult<Bound<'py, PyBytes>> {
    let file = through_gate(py, || {
        let small = picture.with_stable(|image| image.thumbnail(SHOWN, SHOWN, Resampling::default()))?;
        let mut small = small.held_by(Format::Png)?;
        small.metadata_mut().exif = None;
        let mut file = Vec::new();
        small.encode(Format::Png, &SaveOptions::default(), &mut file)?;
        Ok(file)
    });
    let file = file.map_err(|error| refused(py, error, None))?;
    bytes(py, &file)
}

/// A Pillow image, with EXIF block and ICC profile where Pillow keeps those of files.
pub(super) fn pillow<'py>(py: Python<'py>, picture: &Shown) -> PyResult<Bound<'py, PyAny>> {
    let image = pillow_pixels(py, picture)?;
    let metadata = through_gate(py, || picture.read().metadata().clone());
    let info = image.getattr("info")?;
    if let Some(exif) = metadata.exif {
        info.set_item("exif", bytes(py, &[source::EXIF_PREFIX, &exif].concat())?)?;
    }
    if let Some(icc) = metadata.icc {
        info.set_item("icc_profile", bytes(py, &icc)?)?;
    }
    Ok(image)
}

/// A Pillow image of the pixels alone. It shares them where Pillow keeps them as they are here: L, RGBA and CMYK in one
/// piece.
fn pillow_pixels<'py>(py: Python<'py>, picture: &Shown) -> PyResult<Bound<'py, PyAny>> {
    let module = import(py, c"PIL.Image").map_err(|error| {
        let text = "to_pillow() needs Pillow, which is not installed: pip install pillow";
        let missing = error.get_type(py);
        if missing.is(py.get_type::<PyModuleNotFoundError>()) { exception(&missing, text) } else { error }
    })?;
    let (mode, size) = (picture.mode.name(), picture.size);
    if picture.is_contiguous() {
        let bytes = view::memoryview(py, picture, picture.whole(py)?)?;
        return module.call_method1("frombuffer", (mode, size, bytes, "raw", mode, 0, 1));
    }
    let image = module.call_method1("new", (mode, size, PyNone::get(py)))?;
    let (mut top, row) = (0, picture.row_bytes());
    for place in picture.places() {
        let rows = (place.length / row) as u32;
        let bytes = view::memoryview(py, picture, *place)?;
        let strip = module.call_method1("frombuffer", (mode, (size.0, rows), bytes, "raw", mode, 0, 1))?;
        image.call_method1("paste", (strip, (0, top)))?;
        top += rows;
    }
    Ok(image)
}

/// A NumPy array: of the same memory in one piece, else of a read-only copy.
pub(super) fn array<'py>(
    py: Python<'py>,
    picture: &Shown,
    dtype: Option<&Bound<'py, PyAny>>,
    copy: Option<bool>,
) -> PyResult<Bound<'py, PyAny>> {
    let shared = picture.is_contiguous();
    if !shared && copy == Some(false) {
        let text = format!(
            "this image lies in {} blocks and cannot be an array without a copy: call make_contiguous() first",
            picture.places().len()
        );
        return Err(value_error(py, &text));
    }
    let whole = if shared { picture.clone() } else { in_one_piece(py, picture.picture())? };
    let bytes = view::memoryview(py, &whole, whole.whole(py)?)?;
    let shape = shape(py, &whole)?;
    let numpy = import(py, c"numpy")?;
    let mut array = numpy.call_method1("frombuffer", (bytes, "uint8"))?.call_method1("reshape", (shape,))?;
    if shared && copy == Some(true) {
        array = array.call_method0("copy")?;
    } else if !shared && copy != Some(true) {
        // What is written into a copy would be lost without a word.
        array.getattr("flags")?.setattr("writeable", false)?;
    }
    match dtype {
        Some(dtype) => array.call_method("astype", (dtype,), Some(&[("copy", false)].into_py_dict(py)?)),
        None => Ok(array),
    }
}
