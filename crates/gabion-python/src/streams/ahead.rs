//! What a Reader has read ahead of its caller.

use pyo3::prelude::*;

use super::bytes::{Growing, bytes_of};
use super::chunk::Window;
use super::file::Source;
use super::refusal;
use crate::content::Content;
use crate::result;

/// Equations: the unread bytes of the window are `start..end`; without a window both are 0. The file stands behind
/// `end`, or both are 0.
pub(super) struct Ahead {
    /// None when closed or detached; there is no window then.
    pub source: Option<Source>,
    pub window: Option<Window>,
    pub start: usize,
    pub end: usize,
}

impl Ahead {
    pub(super) fn of(source: Source) -> Self {
        Self { source: Some(source), window: None, start: 0, end: 0 }
    }

    pub(super) fn source(&self, py: Python<'_>) -> PyResult<&Source> {
        self.source.as_ref().ok_or_else(|| refusal::closed(py, "Reader"))
    }

    #[inline(always)]
    pub(super) fn unread(&self) -> usize {
        self.end - self.start
    }

    /// Forgets what was read ahead: before the file is moved by other ways than `fill`.
    pub(super) fn forget(&mut self) {
        (self.start, self.end) = (0, 0);
    }

    /// Lets go of the file and the chunk. False when that was done before.
    pub(super) fn close(&mut self) -> bool {
        self.forget();
        self.window = None;
        self.source.take().is_some()
    }

    /// Fills the empty window by one read of the file. None when the file has nothing now, 0 at its end.
    pub(super) fn fill(&mut self, py: Python<'_>, chunk: usize) -> PyResult<Option<usize>> {
        debug_assert_eq!(self.unread(), 0);
        py.check_signals()?;
        if self.window.is_none() {
            self.window = Some(Window::rent(py, chunk)?);
        }
        self.forget();
        let (Some(source), Some(window)) = (&self.source, &mut self.window) else {
            return Err(refusal::closed(py, "Reader"));
        };
        let whole = window.len();
        let read = source.read(py, window, 0, whole)?;
        self.end = read.unwrap_or(0);
        Ok(read)
    }

    /// Has the bytes that were passed last come again, because the read that was to follow them has failed. If they are
    /// more than a chunk, they are lost.
    ///
    /// # Safety
    /// There are `length` bytes at `bytes`, which others may be writing.
    pub(super) unsafe fn take_back(&mut self, bytes: *const u8, length: usize) {
        debug_assert_eq!(self.unread(), 0);
        if let Some(window) = self.window.as_mut().filter(|window| length <= window.len()) {
            // SAFETY: duty of the caller.
            unsafe { window.copy_in(0, bytes, length) };
            (self.start, self.end) = (0, length);
        }
    }

    /// As `fill`, for more than `gathered`, which comes again where it fails.
    pub(super) fn fill_after(
        &mut self,
        py: Python<'_>,
        chunk: usize,
        gathered: &Growing<'_>,
    ) -> PyResult<Option<usize>> {
        self.fill(py, chunk).inspect_err(|_| {
            let bytes = gathered.as_slice();
            // SAFETY: these bytes.
            unsafe { self.take_back(bytes.as_ptr(), bytes.len()) };
        })
    }

    /// The next unread bytes, `most` at most, which count as read.
    #[inline(always)]
    pub(super) fn pass(&mut self, most: usize) -> (usize, usize) {
        let from = self.start;
        self.start += most.min(self.unread());
        (from, self.start)
    }

    /// As `pass`, as `bytes`.
    pub(super) fn passed<'py>(&mut self, py: Python<'py>, most: usize) -> PyResult<Bound<'py, PyAny>> {
        let (from, to) = self.pass(most);
        match &self.window {
            Some(window) => bytes_of(py, window, from, to).inspect_err(|_| self.start = from),
            None => Ok(result::bytes(py, b"")?.into_any()),
        }
    }

    /// Moves the next unread bytes to the end of `target`.
    pub(super) fn pass_to(&mut self, target: &mut Growing<'_>, most: usize) -> PyResult<()> {
        let (from, to) = self.pass(most);
        match &self.window {
            Some(window) => target.take(window, from, to),
            None => Ok(()),
        }
    }

    /// The next `wanted` bytes if all of them are here. Runs no Python code.
    #[inline(always)]
    pub(super) fn bytes_here<'py>(&mut self, py: Python<'py>, wanted: usize) -> Option<PyResult<Bound<'py, PyAny>>> {
        let window = self.window.as_ref().filter(|_| wanted <= self.unread())?;
        let made = bytes_of(py, window, self.start, self.start + wanted);
        if made.is_ok() {
            self.start += wanted;
        }
        Some(made)
    }

    /// Fills a target with the next bytes if enough of them are here. Runs no Python code.
    #[inline(always)]
    pub(super) fn fill_here(&mut self, target: &Content<'_>) -> bool {
        let wanted = target.len();
        let Some(window) = self.window.as_ref().filter(|_| wanted <= self.unread()) else { return false };
        // SAFETY: the target has room for `wanted` bytes and is held in place.
        unsafe { window.copy_out(self.start, self.start + wanted, target.start()) };
        self.start += wanted;
        true
    }

    /// The next line, `most` bytes of it at most, if all of it is here. Runs no Python code.
    #[inline(always)]
    pub(super) fn line_here<'py>(&mut self, py: Python<'py>, most: usize) -> Option<PyResult<Bound<'py, PyAny>>> {
        let length = self.newline(most).or_else(|| (most <= self.unread()).then_some(most))?;
        self.bytes_here(py, length)
    }

    /// Where the next line ends in the unread bytes.
    #[inline(always)]
    fn newline(&self, most: usize) -> Option<usize> {
        let window = self.window.as_ref()?;
        // SAFETY: `start..end` lies in the chunk and was written. Views of it may be in other hands: a byte that
        // changes is found or not. What is found lies behind the place where the search began.
        unsafe {
            let unread = window.start().add(self.start);
            let found = libc::memchr(unread.cast(), b'\n'.into(), self.unread().min(most)).cast::<u8>();
            (!found.is_null()).then(|| found.offset_from(unread) as usize + 1)
        }
    }

    /// A line, `most` bytes of it at most, with reads of the file as they are needed. Empty at the file's end. Where
    /// the file has nothing now: what there is of the line, None if that is nothing.
    pub(super) fn line<'py>(
        &mut self,
        py: Python<'py>,
        most: usize,
        chunk: usize,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        if let Some(line) = self.line_here(py, most) {
            return line.map(Some);
        }
        let mut line = Growing::with_room(py, self.unread() + 128)?;
        loop {
            let left = most - line.len();
            let length = self.newline(left);
            self.pass_to(&mut line, length.unwrap_or(left))?;
            if length.is_some() || line.len() == most {
                return line.finish().map(Some);
            }
            match self.fill_after(py, chunk, &line)? {
                None if line.len() == 0 => return Ok(None),
                None | Some(0) => return line.finish().map(Some),
                Some(_) => {}
            }
        }
    }
}
