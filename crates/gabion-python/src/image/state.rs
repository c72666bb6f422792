//! The object: a picture until it is closed, and the steps that its methods are made of.

use std::sync::{Arc, Mutex, PoisonError};

use gabion_image::{ImageError, Metadata};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::picture::Picture;
use super::refusal;
use crate::detached::detached;

/// A picture whose pixels lie on the pool of gabion.memory, outside the heap of Python and of malloc.
///
/// Made by Image.open(), Image.new(), Image.from_array() and Image.from_pillow(). mode is "L" (grey), "LA", "RGB", "RGBA"
/// or "CMYK", a byte for each channel. Rows lie in blocks of at most 4 MiB and are never cut; an image that fits one block
/// is contiguous, and so is every other after make_contiguous().
///
/// resize(), convert(), crop(), rotate(), flip() and copy() give new images. thumbnail(), paste(), process_rows() and
/// make_contiguous() change this one. All pixel work and all codecs run without the interpreter, so that threads work side
/// by side. Any thread may use an image; changes wait for reading calls to end.
///
/// row(), rows() and blocks show the pixels in place, as writable memoryviews. A contiguous image also speaks the buffer
/// protocol, __array_interface__, DLPack and the Arrow C data interface: numpy.asarray(image) is no copy. NumPy gets a
/// read-only copy of any other.
///
/// close(), or the end of a with statement, ends the use: every later one raises ClosedError. Views, arrays and tensors made
/// before keep the pixels alive, and their memory goes back to the pool with the last of them; without them, at once. An
/// image that is not closed goes with its last reference.
///
/// Errors: ImageError for what is damaged, unknown or makes no sense, LimitError (also a MemoryError) for what is too
/// large, OSError for files.
///
/// >>> import gabion
/// >>> with gabion.Image.new("RGB", (640, 480), (200, 30, 30)) as image:
/// ...     image.row(0)[:3] = bytes([0, 0, 255])
/// ...     small = image.resize((64, 48))
/// >>> small
/// <gabion.Image RGB 64 × 48>
#[pyclass(frozen, weakref, module = "gabion")]
pub(super) struct Image {
    /// None when closed. The lock is held for a clone or an exchange, never while anything else is done.
    pub picture: Mutex<Option<Arc<Picture>>>,
}

impl Image {
    /// The object of an image that was just made.
    pub fn made(py: Python<'_>, image: Result<gabion_image::Image, ImageError>) -> PyResult<Self> {
        let image = image.map_err(|error| refusal::refused(py, error, None))?;
        Ok(Self { picture: Mutex::new(Some(Picture::new(py, image)?)) })
    }

    /// Puts something else in the picture's place.
    pub fn exchange(&self, new: Option<Arc<Picture>>) -> Option<Arc<Picture>> {
        std::mem::replace(&mut *self.picture.lock().unwrap_or_else(PoisonError::into_inner), new)
    }

    /// The picture, unless closed.
    pub fn peek(&self) -> Option<Arc<Picture>> {
        self.picture.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The picture, or ClosedError.
    pub fn open_picture(&self, py: Python<'_>) -> PyResult<Arc<Picture>> {
        self.peek().ok_or_else(|| refusal::closed(py))
    }

    /// A new image, made of this one without the interpreter.
    pub fn map(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&gabion_image::Image) -> Result<gabion_image::Image, ImageError> + Send,
    ) -> PyResult<Self> {
        let picture = self.open_picture(py)?;
        let image = detached(py, || work(&picture.read()));
        Self::made(py, image)
    }

    /// Puts another image in the place of this one. Views keep showing the old pixels.
    pub fn become_(&self, py: Python<'_>, new: Self) -> PyResult<()> {
        self.open_picture(py)?;
        let old = self.exchange(new.exchange(None));
        detached(py, || drop(old));
        Ok(())
    }

    /// What is kept of the file's metadata.
    pub fn kept<'py>(
        &self,
        py: Python<'py>,
        which: impl FnOnce(&Metadata) -> Option<Vec<u8>> + Send,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let picture = self.open_picture(py)?;
        let kept = detached(py, || which(picture.read().metadata()));
        Ok(kept.map(|bytes| PyBytes::new(py, &bytes)))
    }
}
