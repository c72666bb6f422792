//! The pixels, shared by an Image object and the views of it.

use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};

use gabion_image::{Format, Image, ImageError, Mode, Overlap};
use pyo3::prelude::*;

use super::refusal;
use crate::memory::{MemoryRange, Record, Traced, record, trace};

/// Up to this many bytes of pixels, what goes over them once does so with the interpreter in hand.
pub(super) const BRIEF: u64 = 64 << 10;

/// An image whose memory stays where it is: nobody has it except for reading and for `write`, which moves no pixels.
/// Equations: the places are those of the image's parts, in their order; `shape` is rows, columns, channels and
/// `strides` their distances in bytes, as if all lay in one piece.
pub(super) struct Picture {
    image: RwLock<Image>,
    places: Box<[MemoryRange]>,
    pub mode: Mode,
    pub size: (u32, u32),
    pub format: Option<Format>,
    /// For buffers, which refer to them as long as they hold the picture.
    pub shape: [isize; 3],
    pub strides: [isize; 3],
    /// How many see its bytes in place: as many as there are `Shown` of it.
    shown: AtomicUsize,
    /// True while another picture is made that is to take its place.
    pub leaving: AtomicBool,
    record: OnceLock<Record>,
    traced: OnceLock<Traced>,
}

impl Picture {
    /// Takes an image over. To be followed by `note`, when the interpreter is at hand.
    pub(super) fn new(mut image: Image) -> Arc<Self> {
        let (mode, size, format) = (image.mode(), image.size(), image.format());
        let (channels, row) = (mode.channels() as isize, image.row_bytes() as isize);
        // Addresses to write to come from a reference to write by.
        let places: Box<[MemoryRange]> = image
            .parts_mut()
            .map(|part| MemoryRange { start: NonNull::from(&mut *part).cast(), length: part.len() })
            .collect();
        Arc::new(Self {
            places,
            mode,
            size,
            format,
            shape: [size.1 as isize, size.0 as isize, channels],
            strides: [row, channels, 1],
            shown: AtomicUsize::new(0),
            leaving: AtomicBool::new(false),
            record: OnceLock::new(),
            traced: OnceLock::new(),
            image: RwLock::new(image),
        })
    }

    /// Writes down where it was made, if anybody wants to know. Once for each picture.
    pub(super) fn note(&self, py: Python<'_>) -> PyResult<()> {
        if let Some(record) = record(py, "Image", self.len())? {
            let _ = self.record.set(record);
        }
        if let Some(traced) = trace(py, self.places.first().map(|place| place.start), self.len()) {
            let _ = self.traced.set(traced);
        }
        Ok(())
    }

    /// The image, for reading. Waits for a change to end: to be called behind the gate, without the interpreter.
    pub(super) fn read(&self) -> RwLockReadGuard<'_, Image> {
        // A panic in the midst of a change leaves pixels, whichever they are.
        self.image.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has `work` use the image, or, where somebody sees its bytes in place, a copy: who sees them may write them at
    /// any time, also without the interpreter, and `work` counts on what it has read once. Nobody begins to see them
    /// meanwhile. Waits as `read` does.
    pub(super) fn with_stable<T>(&self, work: impl FnOnce(&Image) -> Result<T, ImageError>) -> Result<T, ImageError> {
        self.with_stable_locked(self.read(), work)
    }

    /// As `with_stable`, of an image that was locked already.
    pub(super) fn with_stable_locked<T>(
        &self,
        image: impl Deref<Target = Image>,
        work: impl FnOnce(&Image) -> Result<T, ImageError>,
    ) -> Result<T, ImageError> {
        if !self.is_shown() {
            return work(&image);
        }
        let copy = self.copy_of(&image, false)?;
        drop(image);
        work(&copy)
    }

    /// A copy of the image, which the caller has locked. A byte that somebody writes meanwhile arrives as it was or as
    /// it gets.
    pub(super) fn copy_of(&self, image: &Image, in_one_piece: bool) -> Result<Image, ImageError> {
        image.rewritten(in_one_piece, |y, row| {
            let place = self.row(y);
            assert!(place.length == row.len(), "the same size and mode");
            // SAFETY: as many bytes, of another image. They stay in place as long as the picture; nothing refers to
            // them.
            unsafe { place.start.as_ptr().copy_to_nonoverlapping(row.as_mut_ptr(), row.len()) };
        })
    }

    /// Copies all rows without gaps, as `copy_of` does. To be called with the image locked.
    ///
    /// # Safety
    /// `to` is other memory, of as many bytes; nothing refers to them, and they need not be initialised.
    pub(super) unsafe fn copy_to(&self, _: &Image, to: MemoryRange) {
        assert!(to.length == self.len(), "as many bytes");
        let mut end = to.start;
        for part in self.places() {
            // SAFETY: the parts are as long as the picture, and so is what is there (duty of the caller). See
            // `copy_of`.
            unsafe {
                part.start.copy_to_nonoverlapping(end, part.length);
                end = end.add(part.length);
            }
        }
    }

    /// Copies bytes of another picture over those of this one. To be called with this one locked for writing, the other
    /// for reading. Others may read and write the bytes of both: nothing refers to them.
    pub(super) fn take_over(&self, other: &Self, overlap: Overlap) {
        let Overlap { rows, bytes, to, from } = overlap;
        for number in 0..rows {
            let (mine, its) = (self.row(to.0 + number), other.row(from.0 + number));
            assert!(to.1 + bytes <= mine.length && from.1 + bytes <= its.length, "bytes of both rows");
            // SAFETY: inside both rows, as was just seen, and these are of two pictures.
            unsafe {
                let (source, target) = (its.start.as_ptr().add(from.1), mine.start.as_ptr().add(to.1));
                source.copy_to_nonoverlapping(target, bytes);
            }
        }
    }

    /// Whether another picture of this mode and size has the same bytes. To be called with both locked. A byte that
    /// somebody writes meanwhile is compared as it was or as it gets.
    pub(super) fn has_pixels_of(&self, _: &Image, other: &Self, _: &Image) -> bool {
        (0..self.size.1 as usize).all(|y| {
            let (mine, its) = (self.row(y), other.row(y));
            assert!(mine.length == its.length, "the same size and mode");
            // SAFETY: as many bytes of both, which stay in place as long as the pictures; nothing refers to them.
            unsafe { libc::memcmp(mine.start.as_ptr().cast(), its.start.as_ptr().cast(), mine.length) == 0 }
        })
    }

    /// As `read`, but None while it is being changed: does not wait.
    pub(super) fn try_read(&self) -> Option<RwLockReadGuard<'_, Image>> {
        match self.image.try_read() {
            Ok(image) => Some(image),
            Err(TryLockError::Poisoned(image)) => Some(image.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The image, to change pixels or metadata, nothing that moves or resizes. As `read`, it waits.
    pub(super) fn write(&self) -> RwLockWriteGuard<'_, Image> {
        self.image.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nobody has the image locked at this moment.
    pub(super) fn is_unused(&self) -> bool {
        !matches!(self.image.try_write(), Err(TryLockError::WouldBlock))
    }

    /// Whether anybody sees its bytes in place, by a view or by whatever may make one.
    pub(super) fn is_shown(&self) -> bool {
        // Acquire: what was written by a view that is gone is there. See `Shown::drop`.
        self.shown.load(Ordering::Acquire) > 0
    }

    pub(super) fn places(&self) -> &[MemoryRange] {
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
    pub(super) fn whole(&self, py: Python<'_>) -> PyResult<MemoryRange> {
        self.whole_or(py, "")
    }

    /// As `whole`. `way` is what else the caller may do, with a comma, or nothing.
    pub(super) fn whole_or(&self, py: Python<'_>, way: &str) -> PyResult<MemoryRange> {
        match self.places() {
            [whole] => Ok(*whole),
            parts => {
                let text = format!(
                    "this image lies in {} blocks: {way}open or make it with contiguous=True, call make_contiguous() \
                     first, or use its rows() or blocks",
                    parts.len()
                );
                Err(refusal::buffer_error(py, &text))
            }
        }
    }

    /// Row `y`, which is below the height.
    pub(super) fn row(&self, y: usize) -> MemoryRange {
        let length = self.row_bytes();
        // Every part but the last holds as many rows.
        let rows = self.places[0].length / length;
        let part = self.places[y / rows];
        let offset = y % rows * length;
        assert!(offset + length <= part.length, "a row of this picture");
        // SAFETY: the assertion has shown that the row lies inside the part.
        MemoryRange { start: unsafe { part.start.add(offset) }, length }
    }
}

impl Drop for Picture {
    fn drop(&mut self) {
        // Before the image, which is dropped after this.
        drop(self.traced.take());
    }
}

/// A picture whose bytes somebody sees in place, so that no other one may take its place unseen.
pub(super) struct Shown(Arc<Picture>);

impl Shown {
    pub(super) fn of(picture: Arc<Picture>) -> Self {
        // Relaxed: made under the lock of the Image's slot, or from another one, or of a picture that nobody else has.
        picture.shown.fetch_add(1, Ordering::Relaxed);
        Self(picture)
    }

    pub(super) fn picture(&self) -> &Arc<Picture> {
        &self.0
    }

    /// For C: to be taken back by `from_raw`, once.
    pub(super) fn into_raw(self) -> *const Picture {
        let shown = ManuallyDrop::new(self);
        Arc::as_ptr(&shown.0)
    }

    /// # Safety
    /// `raw` is what `into_raw` gave, and is given back for the first time.
    pub(super) unsafe fn from_raw(raw: *const Picture) -> Self {
        // SAFETY: the reference that `into_raw` did not drop (duty of the caller).
        Self(unsafe { Arc::from_raw(raw) })
    }
}

impl Deref for Shown {
    type Target = Picture;

    fn deref(&self) -> &Picture {
        &self.0
    }
}

impl Clone for Shown {
    fn clone(&self) -> Self {
        Self::of(Arc::clone(&self.0))
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        // Release: what was written through it comes before. See `Picture::is_shown`.
        self.0.shown.fetch_sub(1, Ordering::Release);
    }
}
