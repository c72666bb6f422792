//! The image itself: pixels on the pool, in rows.

use std::fmt;
use std::thread;

use gabion_blocks::limits::processors;
use gabion_blocks::{Buffer, Group, GroupRequest, Invalid, Pool, Request};

use crate::error::{ImageError, Result};
use crate::format::Format;
use crate::limits::{Limits, pixel_bytes};
use crate::metadata::{Metadata, fault_of_profile};
use crate::mode::Mode;

/// A picture on the pool.
///
/// ```text
/// │ row 0 │ row 1 │ row 2 │   a part: at most 4 MiB, as many whole rows as fit
/// │ row 3 │ row 4 │ row 5 │   a part
/// │ row 6 │ row 7 │           the last part
/// ```
///
/// Rows never cross the seam between two parts, and lie side by side within one. An image that must be one piece is
/// made so by [`Image::make_contiguous`]. The memory goes back to the pool when the image is dropped.
///
/// ```
/// use gabion_image::{Image, Mode};
/// # let pool = gabion_blocks::Pool::global();
/// let mut image = Image::new(pool, Mode::RGB, 640, 480, &[255, 0, 0])?;
/// image.row_mut(7).unwrap()[..3].copy_from_slice(&[0, 0, 255]);
/// assert_eq!(&image.row(7).unwrap()[..6], [0, 0, 255, 255, 0, 0]);
/// # Ok::<(), gabion_image::ImageError>(())
/// ```
pub struct Image {
    pool: Pool,
    mode: Mode,
    width: u32,
    height: u32,
    memory: Memory,
    format: Option<Format>,
    metadata: Metadata,
}

/// Where the rows lie.
enum Memory {
    Parts(Group),
    Whole(Buffer),
}

impl Image {
    /// An image of one colour: a byte for each channel.
    ///
    /// # Errors
    /// [`ImageError::Setting`] when a side is 0 or the colour has another number of channels, [`ImageError::Memory`]
    /// when the pool has none.
    pub fn new(pool: &Pool, mode: Mode, width: u32, height: u32, color: &[u8]) -> Result<Self> {
        check_color(mode, color)?;
        let black = color.iter().all(|&channel| channel == 0);
        let mut image = Self::rented(pool, mode, width, height, black)?;
        if !black {
            image.fill(color)?;
        }
        Ok(image)
    }

    /// An image of these pixels, row after row without gaps.
    ///
    /// # Errors
    /// As [`Image::new`]; [`ImageError::Setting`] when there are more or fewer bytes than pixels need.
    pub fn from_bytes(pool: &Pool, mode: Mode, width: u32, height: u32, bytes: &[u8]) -> Result<Self> {
        let need = pixel_bytes(mode, width, height);
        if bytes.len() as u64 != need {
            let got = bytes.len();
            return Err(ImageError::setting(format!("{width} × {height} {mode} pixels need {need} bytes, not {got}")));
        }
        let mut image = Self::blank(pool, mode, width, height)?;
        for (row, from) in image.rows_mut().zip(bytes.chunks_exact(width as usize * mode.channels())) {
            row.copy_from_slice(from);
        }
        Ok(image)
    }

    /// An image whose pixels are whatever its memory held before. Every row is to be written.
    pub(crate) fn blank(pool: &Pool, mode: Mode, width: u32, height: u32) -> Result<Self> {
        Self::rented(pool, mode, width, height, false)
    }

    fn rented(pool: &Pool, mode: Mode, width: u32, height: u32, clean: bool) -> Result<Self> {
        Limits::none().check_size(width, height)?;
        let row_bytes = width as usize * mode.channels();
        let bytes = row_bytes * height as usize;
        let group = pool.rent_group(&GroupRequest { bytes, row_bytes: Some(row_bytes), clean, timeout: None })?;
        Ok(Self {
            pool: pool.clone(),
            mode,
            width,
            height,
            memory: Memory::Parts(group),
            format: None,
            metadata: Metadata::default(),
        })
    }

    /// Another image that comes from the same file, its pixels not yet written. In another colour space it has no
    /// profile.
    pub(crate) fn blank_like(&self, mode: Mode, width: u32, height: u32) -> Result<Self> {
        let mut image = Self::blank(&self.pool, mode, width, height)?;
        image.format = self.format;
        image.metadata = self.metadata.clone();
        image.metadata.fit(mode);
        Ok(image)
    }

    /// A second image with the same pixels and metadata.
    ///
    /// # Errors
    /// [`ImageError::Memory`] when the pool has none.
    pub fn copy(&self) -> Result<Self> {
        let mut image = self.blank_like(self.mode, self.width, self.height)?;
        for (row, from) in image.rows_mut().zip(self.rows()) {
            row.copy_from_slice(from);
        }
        Ok(image)
    }

    /// An image of this mode, size and metadata, whose rows `write` writes; in one piece if need be. For copies of
    /// pixels that others may be writing, and that nothing may refer to.
    ///
    /// # Errors
    /// [`ImageError::Memory`] when the pool has none, or no such piece.
    pub fn rewritten(&self, in_one_piece: bool, mut write: impl FnMut(usize, &mut [u8])) -> Result<Self> {
        let mut image = self.blank_like(self.mode, self.width, self.height)?;
        if in_one_piece && !image.is_contiguous() {
            image.memory = Memory::Whole(self.pool.rent(&Request::new(self.len()))?);
        }
        image.rows_mut().enumerate().for_each(|(y, row)| write(y, row));
        Ok(image)
    }

    /// As [`Image::copy`], with all rows in one piece.
    ///
    /// # Errors
    /// [`ImageError::Memory`] when the pool has no such piece.
    pub fn copy_contiguous(&self) -> Result<Self> {
        let mut whole = self.pool.rent(&Request::new(self.len()))?;
        self.copy_to(whole.as_mut_slice())?;
        Ok(Self {
            pool: self.pool.clone(),
            mode: self.mode,
            width: self.width,
            height: self.height,
            memory: Memory::Whole(whole),
            format: self.format,
            metadata: self.metadata.clone(),
        })
    }

    /// The pool that the pixels lie on.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// What the bytes of a pixel mean.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Pixels in a row, at least 1.
    pub fn width(&self) -> u32 {
        self.width
    }

    /// Rows, at least 1.
    pub fn height(&self) -> u32 {
        self.height
    }

    /// Width and height.
    pub fn size(&self) -> (u32, u32) {
        (self.width, self.height)
    }

    /// Bytes in a row.
    pub fn row_bytes(&self) -> usize {
        self.width as usize * self.mode.channels()
    }

    /// Bytes of all rows.
    pub fn len(&self) -> usize {
        self.row_bytes() * self.height as usize
    }

    /// Never: an image has at least one pixel.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The format of the file that the image came from; `None` for a new one.
    pub fn format(&self) -> Option<Format> {
        self.format
    }

    /// EXIF and ICC profile, as far as they were kept.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// EXIF and ICC profile, to change what is saved.
    pub fn metadata_mut(&mut self) -> &mut Metadata {
        &mut self.metadata
    }

    /// Gives the image another ICC profile, or none. What is told by `metadata_mut` is not looked at, this is.
    ///
    /// # Errors
    /// [`ImageError::Setting`] for what is no profile, is cut off, or is of another colour space than the pixels.
    pub fn set_profile(&mut self, icc: Option<Vec<u8>>) -> Result<()> {
        if let Some(fault) = icc.as_deref().and_then(|icc| fault_of_profile(icc, self.mode)) {
            return Err(ImageError::setting(fault));
        }
        self.metadata.icc = icc;
        Ok(())
    }

    /// Says which format of file the image is taken to come from: for who makes one anew from its parts.
    pub fn set_format(&mut self, format: Format) {
        self.format = Some(format);
    }

    /// The parts in their order: whole rows each, without gaps.
    pub fn parts(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.buffers().iter().map(Buffer::as_slice)
    }

    /// The parts in their order, for writing.
    pub fn parts_mut(&mut self) -> impl ExactSizeIterator<Item = &mut [u8]> {
        self.buffers_mut().iter_mut().map(Buffer::as_mut_slice)
    }

    fn buffers(&self) -> &[Buffer] {
        match &self.memory {
            Memory::Parts(group) => group.parts(),
            Memory::Whole(buffer) => std::slice::from_ref(buffer),
        }
    }

    fn buffers_mut(&mut self) -> &mut [Buffer] {
        match &mut self.memory {
            Memory::Parts(group) => group.parts_mut(),
            Memory::Whole(buffer) => std::slice::from_mut(buffer),
        }
    }

    /// Row `y`, or `None` when there is none. Constant time.
    #[inline]
    pub fn row(&self, y: u32) -> Option<&[u8]> {
        match &self.memory {
            Memory::Parts(group) => group.row(y as usize),
            Memory::Whole(buffer) => buffer.as_slice().chunks_exact(self.row_bytes()).nth(y as usize),
        }
    }

    /// Row `y` for writing, or `None` when there is none. Constant time.
    #[inline]
    pub fn row_mut(&mut self, y: u32) -> Option<&mut [u8]> {
        let row_bytes = self.row_bytes();
        match &mut self.memory {
            Memory::Parts(group) => group.row_mut(y as usize),
            Memory::Whole(buffer) => buffer.as_mut_slice().chunks_exact_mut(row_bytes).nth(y as usize),
        }
    }

    /// All rows, top to bottom.
    pub fn rows(&self) -> impl Iterator<Item = &[u8]> {
        let row_bytes = self.row_bytes();
        self.buffers().iter().flat_map(move |part| part.as_slice().chunks_exact(row_bytes))
    }

    /// All rows, top to bottom, for writing.
    pub fn rows_mut(&mut self) -> impl Iterator<Item = &mut [u8]> {
        let row_bytes = self.row_bytes();
        self.buffers_mut().iter_mut().flat_map(move |part| part.as_mut_slice().chunks_exact_mut(row_bytes))
    }

    /// Calls `work(y, row)` for every row, from up to `threads` threads at a time; 0 means one for each processor. Each
    /// thread takes a run of adjacent rows.
    ///
    /// # Panics
    /// When `work` does, after all threads have ended.
    pub fn process_rows(&mut self, threads: usize, work: impl Fn(u32, &mut [u8]) + Sync) {
        let threads = if threads == 0 { processors() } else { threads }.min(self.height as usize);
        if threads == 1 {
            (0..).zip(self.rows_mut()).for_each(|(y, row)| work(y, row));
            return;
        }
        let run = (self.height as usize).div_ceil(threads);
        let row_bytes = self.row_bytes();
        thread::scope(|scope| {
            for run in self.runs_mut(run) {
                let work = &work;
                scope.spawn(move || {
                    for (top, rows) in run {
                        (top..).zip(rows.chunks_exact_mut(row_bytes)).for_each(|(y, row)| work(y, row));
                    }
                });
            }
        });
    }

    /// The rows, so many of them at a time: of each piece of such a run its first row's number, and its bytes.
    fn runs_mut(&mut self, run: usize) -> Vec<Vec<(u32, &mut [u8])>> {
        let row_bytes = self.row_bytes();
        let (mut runs, mut y, mut missing) = (vec![Vec::new()], 0, run);
        for part in self.parts_mut() {
            let mut rest = part;
            while !rest.is_empty() {
                if missing == 0 {
                    runs.push(Vec::new());
                    missing = run;
                }
                let rows = missing.min(rest.len() / row_bytes);
                let (piece, after) = rest.split_at_mut(rows * row_bytes);
                if let Some(last) = runs.last_mut() {
                    last.push((y, piece));
                }
                (y, missing, rest) = (y + rows as u32, missing - rows, after);
            }
        }
        runs
    }

    /// Gives every pixel the same colour: a byte for each channel.
    ///
    /// # Errors
    /// [`ImageError::Setting`] when the colour has another number of channels.
    pub fn fill(&mut self, color: &[u8]) -> Result<()> {
        check_color(self.mode, color)?;
        for part in self.buffers_mut() {
            fill_with(part.as_mut_slice(), color);
        }
        Ok(())
    }

    /// Whether all rows lie in one piece, without gaps.
    pub fn is_contiguous(&self) -> bool {
        self.buffers().len() == 1
    }

    /// All rows in one piece, if they lie so.
    pub fn as_contiguous(&self) -> Option<&[u8]> {
        match self.buffers() {
            [whole] => Some(whole.as_slice()),
            _ => None,
        }
    }

    /// All rows in one piece for writing; they are moved together first, if need be.
    ///
    /// # Errors
    /// [`ImageError::Memory`] when the pool has no such piece; the image is as before then.
    pub fn make_contiguous(&mut self) -> Result<&mut [u8]> {
        if !self.is_contiguous() {
            let mut whole = self.pool.rent(&Request::new(self.len()))?;
            self.copy_to(whole.as_mut_slice())?;
            self.memory = Memory::Whole(whole);
        }
        match self.buffers_mut() {
            [whole] => Ok(whole.as_mut_slice()),
            _ => unreachable!("one part, as was just seen to"),
        }
    }

    /// Copies all rows into `out`, without gaps.
    ///
    /// # Errors
    /// [`ImageError::Setting`] when `out` has another length than [`Image::len`].
    pub fn copy_to(&self, out: &mut [u8]) -> Result<()> {
        if out.len() != self.len() {
            return Err(ImageError::setting(format!("the pixels have {} bytes, the target {}", self.len(), out.len())));
        }
        let mut rest = out;
        for part in self.parts() {
            let (head, tail) = rest.split_at_mut(part.len());
            head.copy_from_slice(part);
            rest = tail;
        }
        Ok(())
    }

    /// All rows without gaps, in memory of their own.
    ///
    /// # Errors
    /// [`ImageError::Io`] of the kind *out of memory* when there is none.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(self.len()).map_err(|_| std::io::Error::from(std::io::ErrorKind::OutOfMemory))?;
        self.parts().for_each(|part| bytes.extend_from_slice(part));
        Ok(bytes)
    }

    /// Checks that the memory is what the size and the mode need.
    ///
    /// # Errors
    /// Which equation does not hold.
    pub fn validate(&self) -> std::result::Result<(), Invalid> {
        let row_bytes = self.row_bytes();
        let total: usize = self.parts().map(<[u8]>::len).sum();
        if total != self.len() {
            return Err(Invalid(format!(
                "{total} bytes in the parts, {} in {} × {}",
                self.len(),
                self.width,
                self.height
            )));
        }
        if let Some(part) = self.parts().position(|part| part.is_empty() || part.len() % row_bytes != 0) {
            return Err(Invalid(format!("part {part} does not hold whole rows of {row_bytes} bytes")));
        }
        Ok(())
    }
}

fn check_color(mode: Mode, color: &[u8]) -> Result<()> {
    if color.len() == mode.channels() {
        return Ok(());
    }
    Err(ImageError::setting(format!("a colour of {mode} has {} channels, not {}", mode.channels(), color.len())))
}

/// Repeats `color` over `bytes`, doubling what is there: a copy of long pieces is faster than many short ones.
fn fill_with(bytes: &mut [u8], color: &[u8]) {
    if color.iter().all(|&channel| channel == color[0]) {
        bytes.fill(color[0]);
        return;
    }
    let mut done = color.len().min(bytes.len());
    bytes[..done].copy_from_slice(&color[..done]);
    while done < bytes.len() {
        // What fits the first-level cache is copied from there again and again.
        let step = done.min(bytes.len() - done).min(12 << 10);
        let (from, to) = bytes.split_at_mut(done);
        to[..step].copy_from_slice(&from[..step]);
        done += step;
    }
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Image({} {} × {}, {} parts)", self.mode, self.width, self.height, self.buffers().len())
    }
}
