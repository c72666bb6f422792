//! What a file says of its picture, as Python sees it.

use gabion_image::Probe;
use pyo3::prelude::*;

use crate::figures::{figure_methods, figures};

figures! {
    /// What Image.probe() finds: what a file says of its picture, before anything is decoded.
    #[pyclass(frozen, get_all, module = "gabion")]
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
        /// How many pictures the file has, frames or pages, of which open() gives the first. None where it does not
        /// tell, or is damaged or cut off there.
        frames: Option<u32>,
        /// Whether the file has an EXIF block.
        has_exif: bool,
        /// Whether the file has an ICC profile of its own colour space: one that open() keeps.
        has_icc_profile: bool,
    }
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
}

figure_methods! {
    ImageInfo {}
}
