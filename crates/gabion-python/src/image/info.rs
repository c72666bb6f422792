//! What a file says of its picture, as Python sees it.

use std::hash::{DefaultHasher, Hash, Hasher};

use gabion_image::Probe;
use pyo3::prelude::*;

use crate::figures::{part, reduced, shown};
use crate::result;

/// What Image.probe() finds: what a file says of its picture, before anything is decoded.
#[pyclass(frozen, eq, get_all, module = "gabion")]
#[derive(PartialEq, Eq, Hash)]
pub(super) struct ImageInfo {
    /// The format that the first bytes tell: "JPEG", "PNG", "WebP", "TIFF", "BMP" or "GIF".
    format: String,
    /// The mode that the picture has when it is opened: "L", "LA", "RGB", "RGBA" or "CMYK".
    mode: String,
    /// (width, height) when it is opened, turned as its EXIF block says.
    size: (u32, u32),
    /// (width, height) as they are stored: with open(upright=False).
    stored_size: (u32, u32),
    /// How it is to be turned, in the numbers of EXIF: 1, upright, to 8.
    orientation: u16,
    /// How many pictures the file has, frames or pages, of which open() gives the first. None where it does not tell,
    /// or is damaged or cut off there.
    frames: Option<u32>,
    /// Whether the file has an EXIF block.
    has_exif: bool,
    /// Whether the file has an ICC profile of its own colour space: one that open() keeps.
    has_icc_profile: bool,
}

impl ImageInfo {
    pub fn of(found: &Probe) -> Self {
        Self {
            format: found.format.name().to_owned(),
            mode: found.mode.name().to_owned(),
            size: found.size,
            stored_size: found.stored_size,
            orientation: found.orientation.value(),
            frames: found.frames,
            has_exif: found.exif,
            has_icc_profile: found.profile,
        }
    }

    /// Everything by its name, as pickle stores it.
    fn state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let state = result::dict(py)?;
        state.set_item(result::text(py, "format")?, result::text(py, &self.format)?)?;
        state.set_item(result::text(py, "mode")?, result::text(py, &self.mode)?)?;
        state.set_item(result::text(py, "size")?, self.size)?;
        state.set_item(result::text(py, "stored_size")?, self.stored_size)?;
        state.set_item(result::text(py, "orientation")?, self.orientation)?;
        state.set_item(result::text(py, "frames")?, self.frames)?;
        state.set_item(result::text(py, "has_exif")?, self.has_exif)?;
        state.set_item(result::text(py, "has_icc_profile")?, self.has_icc_profile)?;
        Ok(state.into_any())
    }
}

#[pymethods]
impl ImageInfo {
    fn __repr__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        shown(slf.as_any(), &slf.get().state(slf.py())?)
    }

    /// What pickle and copy make it anew from.
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        reduced(slf.as_any(), slf.get().state(slf.py())?)
    }

    #[staticmethod]
    fn _of(state: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Self {
            format: part(state, "format")?.extract()?,
            mode: part(state, "mode")?.extract()?,
            size: part(state, "size")?.extract()?,
            stored_size: part(state, "stored_size")?.extract()?,
            orientation: part(state, "orientation")?.extract()?,
            frames: part(state, "frames")?.extract()?,
            has_exif: part(state, "has_exif")?.extract()?,
            has_icc_profile: part(state, "has_icc_profile")?.extract()?,
        })
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }
}
