//! The pixels, shared by an Image object and the views of it.

use std::ptr::NonNull;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use gabion_image::{Format, Image, Mode};
use pyo3::prelude::*;

use super::refusal;
use crate::memory::{Record, record};

/// Bytes of a picture.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub start: NonNull<u8>,
    pub length: usize,
}

// SAFETY: a place is an address and a length, without any right to use them; those who use them hold the picture.
unsafe impl Send for Place {}
// SAFETY: as above; it is never changed.
unsafe impl Sync for Place {}

/// An image whose memory stays where it is: nobody has it but for reading and for `change`, which moves no pixels.
/// Equations: the places are those of the image's parts, in their order; `shape` is rows, columns, channels and `strides`
/// their distances in bytes, as if all lay in one piece.
pub(super) struct Picture {
    image: RwLock<Image>,
    places: Box<[Place]>,
    pub mode: Mode,
    pub size: (u32, u32),
    pub format: Option<Format>,
    /// For buffers, which refer to them as long as they hold the picture.
    pub shape: [isize; 3],
    pub strides: [isize; 3],
    _record: Option<Record>,
}

impl Picture {
    /// Takes an image over.
    pub(super) fn new(py: Python<'_>, mut image: Image) -> PyResult<Arc<Self>> {
        let (mode, size, format) = (image.mode(), image.size(), image.format());
        let (channels, row) = (mode.channels() as isize, image.row_bytes() as isize);
        // Addresses to write to come from a reference to write by.
        let places: Box<[Place]> = image
            .parts_mut()
            .map(|part| Place { start: NonNull::from(&mut *part).cast(), length: part.len() })
            .collect();
        Ok(Arc::new(Self {
            places,
            mode,
            size,
            format,
            shape: [size.1 as isize, size.0 as isize, channels],
            strides: [row, channels, 1],
            _record: record(py, "Image", image.len())?,
            image: RwLock::new(image),
        }))
    }

    /// The image, for reading. Waits for a change to end: not to be called with the interpreter in hand.
    pub(super) fn read(&self) -> RwLockReadGuard<'_, Image> {
        // A panic in the midst of a change leaves pixels, whichever they are.
        self.image.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes pixels or metadata, nothing that moves or resizes. As `read`, it waits.
    pub(super) fn change<R>(&self, work: impl FnOnce(&mut Image) -> R) -> R {
        work(&mut self.image.write().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn places(&self) -> &[Place] {
        &self.places
    }

    pub(super) fn len(&self) -> usize {
        self.row_bytes() * self.size.1 as usize
    }

    pub(super) fn row_bytes(&self) -> usize {
        self.size.0 as usize * self.mode.channels()
    }

    pub(super) fn is_contiguous(&self) -> bool {
        self.places.len() == 1
    }

    /// All pixels in one piece, if they lie so.
    pub(super) fn whole(&self, py: Python<'_>) -> PyResult<Place> {
        match self.places() {
            [whole] => Ok(*whole),
            parts => Err(refusal::buffer_error(
                py,
                &format!(
                    "this image lies in {} blocks: call make_contiguous() first, or use its rows() or blocks",
                    parts.len()
                ),
            )),
        }
    }

    /// Row `y`, which is below the height.
    pub(super) fn row(&self, y: usize) -> Place {
        let length = self.row_bytes();
        // Every part but the last holds as many rows.
        let rows = self.places[0].length / length;
        let part = self.places[y / rows];
        let offset = y % rows * length;
        assert!(offset + length <= part.length, "a row of this picture");
        // SAFETY: the assertion has shown that the row lies inside the part.
        Place { start: unsafe { part.start.add(offset) }, length }
    }
}
