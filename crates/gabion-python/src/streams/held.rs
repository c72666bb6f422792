//! The bytes that an `io.BytesIO` holds, without a copy of them.
//!
//! Its value is a `bytes` that it shares until it is written to, when it goes on with a copy. So what is handed out
//! stays as it is, whoever keeps it. What is there to be overwritten is read to in place.

use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView};

use super::bytes::items;
use super::chunk::within;
use super::classes::Classes;
use super::descriptor::Rest;
use crate::content::Content;
use crate::once::intern;

/// Fewer bytes are copied faster than their place is found.
const WORTH_IT: usize = 64 << 10;

/// Reads the rest of a regular file, `limit` bytes of it at most, over what a `BytesIO` has already, from where it
/// stands. Gives the number of bytes, 0 for other files, also where it fails later: then with the error. Both files
/// stand behind them.
///
/// # Errors
/// Before anything is read: what the files raise.
pub(super) fn read_over(src: &Bound<'_, PyAny>, dst: &Bound<'_, PyAny>, limit: u64) -> PyResult<(usize, PyResult<()>)> {
    let nothing = Ok((0, Ok(())));
    if !Classes::get(dst.py())?.is_bytes_io(dst) {
        return nothing;
    }
    let (at, end) = ends(dst)?;
    let there = end.saturating_sub(at);
    if there < WORTH_IT || is_viewed(dst, end)? {
        return nothing;
    }
    let Some(rest) = Rest::of(src)? else { return nothing };
    let room = within(there.min(rest.len()), limit);
    if room < WORTH_IT {
        return nothing;
    }
    let view = dst.call_method0(intern!(dst.py(), "getbuffer")?)?;
    let content = Content::writable(&view)?;
    if content.len() < end {
        // Somebody has made it shorter.
        return nothing;
    }
    // SAFETY: `at + room` is at most `end`. The content holds the bytes in place, and they are the ones to be written.
    let (done, read) = unsafe { rest.fill(src, content.start().add(at), room) };
    drop(content);
    drop(view);
    Ok((done, read.and(dst.call_method1(intern!(dst.py(), "seek")?, (at + done,)).map(drop))))
}

/// Where a `BytesIO` stands, and where it ends.
fn ends(file: &Bound<'_, PyAny>) -> PyResult<(usize, usize)> {
    let at: usize = file.call_method0(intern!(file.py(), "tell")?)?.extract()?;
    let end: usize = file.call_method1(intern!(file.py(), "seek")?, (0, 2))?.extract()?;
    file.call_method1(intern!(file.py(), "seek")?, (at,))?;
    Ok((at, end))
}

/// Whether somebody has a view of a `BytesIO`, which ends there.
fn is_viewed(file: &Bound<'_, PyAny>, end: usize) -> PyResult<bool> {
    // Changes nothing, but is refused as long as there is a view.
    match file.call_method1(intern!(file.py(), "truncate")?, (end,)) {
        Err(error) if error.is_instance_of::<PyBufferError>(file.py()) => Ok(true),
        done => done.map(|_| false),
    }
}

/// The bytes of a `BytesIO` from where it stands to its end: `bytes[at..end]`, none where it stands behind the end.
pub(crate) struct Held<'py> {
    file: Bound<'py, PyAny>,
    bytes: Bound<'py, PyBytes>,
    at: usize,
    end: usize,
}

impl<'py> Held<'py> {
    /// None for what is not exactly an `io.BytesIO`, and where somebody has a view of it, which may be written through.
    pub(super) fn of(file: &Bound<'py, PyAny>) -> PyResult<Option<Self>> {
        if !Classes::get(file.py())?.is_bytes_io(file) {
            return Ok(None);
        }
        let (at, end) = ends(file)?;
        if is_viewed(file, end)? {
            return Ok(None);
        }
        let bytes = file.call_method0(intern!(file.py(), "getvalue")?)?.cast_into::<PyBytes>()?;
        Ok(Some(Self { file: file.clone(), bytes, at, end }))
    }

    pub(super) fn as_slice(&self) -> &[u8] {
        self.bytes.as_bytes().get(self.at..self.end).unwrap_or_default()
    }

    /// A view of the next bytes, `most` at most, and their number; 0 at the end.
    pub(super) fn next(&self, most: usize) -> PyResult<(Bound<'py, PyAny>, usize)> {
        let count = self.as_slice().len().min(most);
        Ok((items(&PyMemoryView::from(&self.bytes)?, self.at, self.at + count)?, count))
    }

    /// Counts bytes as read.
    pub(super) fn pass(&mut self, count: usize) {
        self.at += count;
    }

    /// Has the file stand behind what was read.
    pub(super) fn seek_behind(&self) -> PyResult<()> {
        self.file.call_method1(intern!(self.file.py(), "seek")?, (self.at,)).map(drop)
    }

    /// Has the file stand at its end; the bytes are those from where it stood.
    pub(super) fn seek_to_end(&self) -> PyResult<()> {
        self.file.call_method1(intern!(self.file.py(), "seek")?, (self.at.max(self.end),)).map(drop)
    }
}
