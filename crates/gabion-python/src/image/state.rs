//! The object: a picture until it is closed, and the steps that its methods are made of.
//!
//! ```text
//!   who                       takes, in this order                              may wait for
//!   reads (`map`, `kept`)     slot; lock to read; works on a copy if shown      who changes or replaces
//!   sees the bytes (`shown`)  slot, counted in `shown` there; lock to write,    who has the lock from before
//!                             for a moment, if it is taken. But if `leaving`:
//!                             slot; lock to read, for a moment; from the top    who replaces
//!   changes (`paste_from`)    slots; both locks, this one to write, the lower   who reads, changes or replaces
//!                             address first; slot: still in its place?
//!   replaces (`replace`)      slot; lock to write; slot, `leaving` set there    who reads, changes or replaces
//!                             if still in its place; slot, given up there
//!   keeps (`keep`)            slot; lock to write; slot: still in its place?    who reads, changes or replaces
//!   closes (`take`)           slot                                              nobody
//! ```
//! The slot is `Image::picture`, the lock that of the picture. Nobody waits for a lock with a slot in hand, or with the
//! interpreter; who has a lock waits for slots only, which are free at once, or for a second lock in the order of
//! addresses: so nobody waits for ever. Whoever sees bytes holds no lock: reads and replacements look at `shown`.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gabion_image::{ImageError, Metadata};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::picture::{BRIEF, Picture, Shown};
use super::{refusal, view};
use crate::argument::function;
use crate::content::Content;
use crate::gate::through_gate;
use crate::result;

/// A picture whose pixels lie on the pool of gabion.memory, outside the heap of Python and of malloc.
///
/// Made by Image.open(), Image.new(), Image.from_array(), Image.from_bytes() and Image.from_pillow(). mode is "L"
/// (grey), "LA", "RGB", "RGBA" or "CMYK", a byte for each channel. Rows lie in blocks of at most 4 MiB and are never
/// cut; an image that fits one block is contiguous, and so is every other after make_contiguous().
///
/// resize(), convert(), crop(), rotate(), flip() and copy() give new images. thumbnail(), paste(), process_rows() and
/// make_contiguous() change this one. Codecs run without the interpreter, and so does all work on more than a few
/// pixels, so that threads work side by side. Any thread may use an image; changes and new views wait for
/// reading calls to end, which work on a copy while there are views.
///
/// row(), rows() and blocks show the pixels in place, as writable memoryviews. A contiguous image also speaks the
/// buffer protocol, __array_interface__, DLPack and the Arrow C data interface: numpy.asarray(image) is no copy. NumPy
/// gets a read-only copy of any other.
///
/// Images are equal that have the same mode, size and pixels, wherever these lie; format and metadata do not count. A
/// closed image equals itself only. As pixels may change, images cannot be keys of a dict.
///
/// close(), or the end of a with statement, ends the use: every later one raises ClosedError. Views, arrays and tensors
/// made before keep the pixels alive, and their memory goes back to the pool with the last of them; without them, at
/// once. An image that is not closed goes with its last reference.
///
/// Errors: ImageError (a ValueError) for what is damaged, unknown or makes no sense, LimitError (also a MemoryError)
/// for what is too large, OSError for files.
///
/// Images can be pickled, and so sent to another process, with their format, EXIF block and ICC profile.
///
/// What makes or changes a picture takes time linear in the pixels that it reads and writes; all else is constant.
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

/// Why another picture did not take a picture's place.
pub(super) enum Refusal {
    /// The object is closed.
    Closed,
    /// Somebody sees the bytes where they are.
    Shown,
    /// The core refused.
    Core(ImageError),
}

impl From<ImageError> for Refusal {
    fn from(error: ImageError) -> Self {
        Self::Core(error)
    }
}

impl Refusal {
    pub fn into_error(self, py: Python<'_>) -> PyErr {
        match self {
            Self::Closed => refusal::closed(py),
            Self::Shown => refusal::buffer_error(
                py,
                "this image cannot be moved while views of its rows or blocks are alive; let go of them",
            ),
            Self::Core(error) => refusal::refused(py, error, None),
        }
    }
}

/// While it is alive, a picture is leaving its place.
struct Leaving<'a>(&'a Picture);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        // Relaxed: whoever has seen it set waits for the picture's lock, which is let go of after this.
        self.0.leaving.store(false, Ordering::Relaxed);
    }
}

impl Image {
    /// The object of an image that was just made.
    pub fn made(py: Python<'_>, image: Result<gabion_image::Image, ImageError>) -> PyResult<Self> {
        let picture = Picture::new(image.map_err(|error| refusal::refused(py, error, None))?);
        picture.note(py)?;
        Ok(Self { picture: Mutex::new(Some(picture)) })
    }

    fn slot(&self) -> MutexGuard<'_, Option<Arc<Picture>>> {
        self.picture.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the picture out: closes.
    pub fn take(&self) -> Option<Arc<Picture>> {
        self.slot().take()
    }

    /// The picture, unless closed.
    pub fn peek(&self) -> Option<Arc<Picture>> {
        self.slot().clone()
    }

    /// The picture, or ClosedError.
    pub fn open_picture(&self, py: Python<'_>) -> PyResult<Arc<Picture>> {
        self.peek().ok_or_else(|| refusal::closed(py))
    }

    /// The picture for somebody who will see its bytes in place. Waits while another one is made to take its place.
    pub fn shown(&self, py: Python<'_>) -> PyResult<Shown> {
        loop {
            let slot = self.slot();
            let leaving = match &*slot {
                // Relaxed: set under this lock. See `Leaving`.
                Some(picture) if !picture.leaving.load(Ordering::Relaxed) => {
                    let shown = Shown::of(Arc::clone(picture));
                    drop(slot);
                    // Those who come from here on see that it is shown, because they take the lock later than this.
                    // Those who came before have the bytes to themselves until they have done.
                    if !shown.is_unused() {
                        through_gate(py, || drop(shown.write()));
                    }
                    return Ok(shown);
                }
                other => other.clone(),
            };
            // Before any Python code may run, or this thread waits.
            drop(slot);
            let leaving = leaving.ok_or_else(|| refusal::closed(py))?;
            through_gate(py, || drop(leaving.read()));
        }
    }

    /// Whether this picture is the object's.
    pub fn has(&self, picture: &Arc<Picture>) -> bool {
        self.slot().as_ref().is_some_and(|mine| Arc::ptr_eq(mine, picture))
    }

    /// A new image, made of this one without the interpreter.
    pub fn map(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&gabion_image::Image) -> Result<gabion_image::Image, ImageError> + Send,
    ) -> PyResult<Self> {
        let picture = self.open_picture(py)?;
        let image = through_gate(py, || picture.with_stable(work));
        Self::made(py, image)
    }

    /// As [`Image::map`], for work that is done in about the time in which the pixels are read once. Of a few pixels it
    /// keeps the interpreter: to let it go and to queue for it again takes longer.
    pub fn map_brief(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&gabion_image::Image) -> Result<gabion_image::Image, ImageError> + Send,
    ) -> PyResult<Self> {
        let picture = self.open_picture(py)?;
        // Whoever changes it does so without the interpreter, and may take long.
        let image = if picture.len() as u64 <= BRIEF { picture.try_read() } else { None };
        let Some(image) = image else {
            drop(image);
            return self.map(py, work);
        };
        // Lets go of the lock, before any Python code may run.
        let made = picture.with_stable_locked(image, work);
        Self::made(py, made)
    }

    /// Puts what `work` makes of the picture in its place, unless it makes nothing. Nobody changes the picture
    /// meanwhile, and nobody begins to see its bytes. Those who see them already go on to see the old ones, or are a
    /// reason to refuse.
    pub fn replace(
        &self,
        py: Python<'_>,
        though_shown: bool,
        work: impl Fn(&gabion_image::Image) -> Result<Option<gabion_image::Image>, ImageError> + Send + Sync,
    ) -> PyResult<()> {
        let replaced = through_gate(py, || {
            loop {
                let picture = self.peek().ok_or(Refusal::Closed)?;
                // Whoever puts another picture in the place of one, or changes one, has it locked for writing.
                let image = picture.write();
                if let Some(_leaving) = self.leaving(&picture, though_shown)? {
                    // The lock is held on, and only borrowed here.
                    return picture.with_stable_locked(&*image, &work)?.map(|new| self.give_place(new)).transpose();
                }
            }
        });
        match replaced {
            Ok(Some(new)) => new.note(py),
            Ok(None) => Ok(()),
            Err(refusal) => Err(refusal.into_error(py)),
        }
    }

    /// From here on nobody begins to see the picture's bytes. None when another picture has taken its place already.
    fn leaving<'a>(&self, picture: &'a Arc<Picture>, though_shown: bool) -> Result<Option<Leaving<'a>>, Refusal> {
        match &*self.slot() {
            None => Err(Refusal::Closed),
            Some(mine) if !Arc::ptr_eq(mine, picture) => Ok(None),
            Some(_) if picture.is_shown() && !though_shown => Err(Refusal::Shown),
            Some(_) => {
                // Relaxed: read under the slot's lock, which is held here.
                picture.leaving.store(true, Ordering::Relaxed);
                Ok(Some(Leaving(picture)))
            }
        }
    }

    fn give_place(&self, new: gabion_image::Image) -> Result<Arc<Picture>, Refusal> {
        let new = Picture::new(new);
        match &mut *self.slot() {
            // Closed meanwhile.
            None => Err(Refusal::Closed),
            Some(mine) => {
                *mine = Arc::clone(&new);
                Ok(new)
            }
        }
    }

    /// Copies `other` over this image. Without the interpreter: it waits for both.
    pub fn paste_from(&self, other: &Self, x: i64, y: i64) -> Result<(), Refusal> {
        loop {
            let (mine, its) = (self.peek().ok_or(Refusal::Closed)?, other.peek().ok_or(Refusal::Closed)?);
            let its = if Arc::ptr_eq(&mine, &its) {
                let copy = its.copy_of(&its.read(), false)?;
                Picture::new(copy)
            } else {
                its
            };
            let (to, from);
            // Two locks at one time are always taken in the order of their addresses, so that nobody waits for ever.
            if Arc::as_ptr(&mine) < Arc::as_ptr(&its) {
                to = mine.write();
                from = its.read();
            } else {
                from = its.read();
                to = mine.write();
            }
            // What is written into a picture that has lost its place would be lost without a word.
            if self.has(&mine) || self.peek().is_none() {
                if let Some(overlap) = to.overlap(&from, x, y)? {
                    mine.take_over(&its, overlap);
                }
                return Ok(());
            }
        }
    }

    /// Calls a function of Python's for each row, with its number and a view of it. The bytes that it returns, if any,
    /// become the row.
    pub fn process(&self, r#fn: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = r#fn.py();
        function(r#fn, "process_rows() takes a function of a row's number and its bytes")?;
        let picture = self.shown(py)?;
        for y in 0..picture.size.1 as usize {
            // Closed or made smaller by the function itself, or by another thread.
            if !self.has(picture.picture()) {
                self.open_picture(py)?;
                let text = format!("process_rows(): the image got another size before row {y}");
                return Err(refusal::buffer_error(py, &text));
            }
            let place = picture.row(y);
            let result = r#fn.call1((y, view::memoryview(py, &picture, place)?))?;
            if result.is_none() {
                continue;
            }
            let bytes = Content::of(&result)?;
            if bytes.len() != place.length {
                let text = format!("process_rows(): {} bytes for row {y}, which has {}", bytes.len(), place.length);
                return Err(refusal::value_error(py, &text));
            }
            // SAFETY: as many bytes as the row has, in the picture, which is held. The result may be the row itself.
            unsafe { std::ptr::copy(bytes.start(), place.start.as_ptr(), place.length) };
        }
        Ok(())
    }

    /// Whether both are open and of the same mode, size and pixels.
    pub fn is_like(&self, py: Python<'_>, other: &Self) -> bool {
        let (Some(mine), Some(its)) = (self.peek(), other.peek()) else { return false };
        if (mine.mode, mine.size) != (its.mode, its.size) {
            return false;
        }
        // As `map_brief` does.
        if mine.len() as u64 <= BRIEF
            && let (Some(one), Some(two)) = (mine.try_read(), its.try_read())
        {
            return mine.has_pixels_of(&one, &its, &two);
        }
        through_gate(py, || {
            // In the order of their addresses: see `paste_from`.
            let (first, second) = if Arc::as_ptr(&mine) < Arc::as_ptr(&its) { (&mine, &its) } else { (&its, &mine) };
            let (one, other) = (first.read(), second.read());
            first.has_pixels_of(&one, second, &other)
        })
    }

    /// Changes what is kept of the file's metadata, if `change` does not refuse.
    pub fn keep(
        &self,
        py: Python<'_>,
        change: impl FnOnce(&mut gabion_image::Image) -> Result<(), ImageError> + Send,
    ) -> PyResult<()> {
        let changed = through_gate(py, || {
            loop {
                let picture = self.peek().ok_or(Refusal::Closed)?;
                let mut image = picture.write();
                if self.has(&picture) {
                    return Ok(change(&mut image)?);
                }
            }
        });
        changed.map_err(|refusal| match refusal {
            Refusal::Core(ImageError::Setting { what }) => refusal::value_error(py, &what),
            refusal => refusal.into_error(py),
        })
    }

    /// What is kept of the file's metadata.
    pub fn kept<'py>(
        &self,
        py: Python<'py>,
        which: impl FnOnce(&Metadata) -> Option<Vec<u8>> + Send,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let picture = self.open_picture(py)?;
        let kept = through_gate(py, || which(picture.read().metadata()));
        kept.map(|bytes| result::bytes(py, &bytes)).transpose()
    }
}
