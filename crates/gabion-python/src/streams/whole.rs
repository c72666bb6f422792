//! A file's bytes, all of them, in memory of the pool.

use pyo3::prelude::*;

use super::chunk::Window;
use super::classes::Classes;
use super::file::{Source, position, refuse_closed, set_back};
use super::held::Held;
use super::refusal;
use crate::content::Content;
use crate::errors::{answered, limit_error};

/// What is taken at first where a file is not asked how long it is, or says that it has nothing, as those of /proc do.
const FIRST: usize = 256 << 10;

/// A file's bytes.
pub(crate) enum Whole<'py> {
    /// Those of a `BytesIO`, where they are.
    Held(Held<'py>),
    Read(Gathered),
}

impl Whole<'_> {
    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            Self::Held(held) => held.as_slice(),
            Self::Read(gathered) => gathered.as_slice(),
        }
    }
}

/// Bytes that were read. Nobody else has a view of them.
pub(crate) struct Gathered {
    window: Window,
    length: usize,
}

/// Reads a file from where it stands to its end, `most` bytes at most: callers know that as `max_bytes`.
///
/// # Errors
/// What the file raises; BlockingIOError when it has nothing now; LimitError when it is longer than `most`, before
/// memory is taken for it where it is one of open(); what the pool refuses.
pub(crate) fn whole<'py>(file: &Bound<'py, PyAny>, most: u64) -> PyResult<Whole<'py>> {
    let source = Source::new("file", file, false)?;
    refuse_closed("file", file)?;
    if let Some(held) = Held::of(file)? {
        refuse_long(file.py(), held.as_slice().len(), most)?;
        held.seek_to_end()?;
        return Ok(Whole::Held(held));
    }
    gather(file, &source, most).map(Whole::Read)
}

/// A copy of bytes that others may be writing, `most` of them at most. A byte that changes meanwhile arrives as it was
/// or as it gets.
///
/// # Errors
/// LimitError when there are more; what the pool refuses.
pub(crate) fn copy_of<'py>(py: Python<'py>, content: &Content<'py>, most: u64) -> PyResult<Whole<'py>> {
    refuse_long(py, content.len(), most)?;
    let mut copy = Gathered { window: Window::rent(py, content.len())?, length: content.len() };
    content.copy_to(&mut copy.window, 0);
    Ok(Whole::Read(copy))
}

fn gather(file: &Bound<'_, PyAny>, source: &Source, most: u64) -> PyResult<Gathered> {
    let py = file.py();
    // One byte more, so that the end is met without growing.
    let length = length(file)?;
    refuse_long(py, length.unwrap_or(0), most)?;
    let room = length.filter(|length| *length > 0).map_or(FIRST, |length| length.saturating_add(1));
    let mut whole = Gathered { window: Window::rent(py, room)?, length: 0 };
    while let Some(read) = whole.read(py, source, most)? {
        whole.length += read;
        if let Err(error) = refuse_long(py, whole.length, most) {
            // It stands where it stood, if it can.
            set_back(file, whole.length)?;
            return Err(error);
        }
    }
    if whole.window.is_kept() {
        whole.window = whole.moved(py, whole.length)?;
    }
    Ok(whole)
}

impl Gathered {
    fn as_slice(&self) -> &[u8] {
        // SAFETY: `length` bytes of the chunk were written by `read`; `gather` has made sure that no view of it is
        // alive.
        unsafe { std::slice::from_raw_parts(self.window.start(), self.length) }
    }

    /// One read of a file that is to have `most` bytes at most; None at the end.
    fn read(&mut self, py: Python<'_>, source: &Source, most: u64) -> PyResult<Option<usize>> {
        py.check_signals()?;
        if self.length == self.window.len() {
            // A byte more shows that there is too much.
            let enough = usize::try_from(most).map_or(usize::MAX, |most| most.saturating_add(1));
            self.window = self.moved(py, self.length.saturating_mul(2).min(enough))?;
        }
        let room = self.window.len() - self.length;
        match source.read(py, &mut self.window, self.length, room)? {
            None => {
                let text = "the file has nothing to read now: wait until it has, or make it blocking";
                Err(refusal::would_block(py, text, 0))
            }
            Some(0) => Ok(None),
            read => Ok(read),
        }
    }

    /// The bytes in a longer chunk.
    fn moved(&self, py: Python<'_>, room: usize) -> PyResult<Window> {
        let mut longer = Window::rent(py, room)?;
        // SAFETY: `length` bytes of the chunk were written by `read`. A file that has kept a view may still be writing
        // them.
        unsafe { longer.copy_in(0, self.window.start(), self.length) };
        Ok(longer)
    }
}

fn refuse_long(py: Python<'_>, length: usize, most: u64) -> PyResult<()> {
    if length as u64 <= most {
        return Ok(());
    }
    let text = format!(
        "the file has at least {length} bytes, more than max_bytes={most} allows: raise max_bytes if its source is trusted"
    );
    Err(limit_error(py, "max_bytes", length as u64, most, &text))
}

/// How many bytes lie before the end of a file of open(). `None` of any other: that of an archive decompresses all that
/// is before its end to get there, and may be of any length.
fn length(file: &Bound<'_, PyAny>) -> PyResult<Option<usize>> {
    if !Classes::get(file.py())?.is_of_system(file)? {
        return Ok(None);
    }
    let Some(at) = position(file)? else { return Ok(None) };
    // What cannot go there, as a terminal, stands where it stood.
    let Some(end) = answered(file.py(), file.call_method1("seek", (0, 2)))? else { return Ok(None) };
    file.call_method1("seek", (at,))?;
    Ok(usize::try_from(end.extract::<u64>()?.saturating_sub(at)).ok())
}
