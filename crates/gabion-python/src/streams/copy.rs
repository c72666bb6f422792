//! `gabion.streams.copy`.

use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::chunk::{self, Window, within};
use super::descriptor::Pair;
use super::file::{Sink, Source, Wrote, refuse_closed, refuse_unreadable, refuse_unwritable, set_back};
use super::held::{Held, read_over};
use super::reader::gives_soon;
use super::refusal;
use crate::codec::add_note;
use crate::size;

/// Copy a binary file to another, from where src stands to its end; returns the number of bytes.
///
/// With limit, a number or text such as "10 MiB", that many bytes at most are copied. src is never asked for more than
/// is left to copy, and stands behind the last byte that was copied: so the body of a request can be taken from a
/// connection that stays open. That src ended before the limit is told by the returned number alone.
///
/// The bytes go through one chunk of the pool, which src fills (readinto(), else read()) and dst is given as a
/// read-only memoryview, so that no operation allocates memory, however long the file. Of an io.BytesIO, dst is given
/// what is there, without the detour. From a regular file of open() to another, to a pipe, or to a socket's file, the
/// system copies by itself. chunk is the number of bytes at a time, "1 MiB" at most. A buffered file, or a Reader,
/// gives what it has rather than waiting for a full chunk, so that a pipe is passed on as it comes.
///
/// Neither file is closed or flushed at the end, but both stand behind the bytes that were copied, as after reads and
/// writes.
///
/// What a file raises is passed on with the attribute bytes_copied, the number of bytes that dst has taken, and a note
/// that says so; src stands behind those bytes where it is seekable. A non-blocking file that has nothing now, or takes
/// nothing now, is a BlockingIOError with the same number as characters_written. Raises TypeError for what is no binary
/// file, io.UnsupportedOperation for a src that is not readable() and a dst that is not writable(), ValueError for
/// closed files, for a limit below 0 and where both are the same file.
///
/// >>> import io
/// >>> import gabion.streams
/// >>> target = io.BytesIO()
/// >>> gabion.streams.copy(io.BytesIO(b"stone" * 1000), target)
/// 5000
/// >>> request = io.BytesIO(b"the bodythe next request")
/// >>> gabion.streams.copy(request, target, limit=8), request.read()
/// (8, b'the next request')
#[pyfunction]
#[pyo3(
    signature = (src, dst, *more, limit = None, chunk = None),
    text_signature = "(src, dst, *, limit=None, chunk='256 KiB')"
)]
pub(super) fn copy(
    src: &Bound<'_, PyAny>,
    dst: &Bound<'_, PyAny>,
    more: &Bound<'_, PyTuple>,
    limit: Option<&Bound<'_, PyAny>>,
    chunk: Option<&Bound<'_, PyAny>>,
) -> PyResult<u64> {
    let py = src.py();
    if !more.is_empty() {
        let text = "copy(src, dst) takes no third argument by its place: chunk= is how many bytes are read at a time, \
                    as the third one of shutil.copyfileobj(), limit= how many are copied at most";
        return Err(refusal::type_error(py, text));
    }
    let length = chunk::length(chunk)?;
    let limit = limit.map_or(Ok(u64::MAX), |limit| size::parse("limit", limit))?;
    let source = Source::new("src", src, gives_soon(src)?)?;
    let sink = Sink::new("dst", dst)?;
    refuse_closed("src", src)?;
    refuse_closed("dst", dst)?;
    refuse_unreadable("src", src)?;
    refuse_unwritable("dst", dst)?;
    if src.is(dst) {
        return Err(refusal::same_file(py));
    }
    if limit == 0 {
        return Ok(0);
    }
    // No more is read at a time than may be copied at all.
    let length = within(length, limit);
    if let Some(held) = Held::of(src)? {
        return from_memory(py, held, &sink, length, limit);
    }
    let mut window = Window::rent(py, length)?;
    if let Some(mut pair) = Pair::of(src, dst, limit)? {
        // SAFETY: the chunk is this call's own: no view of it was lent out.
        let bytes = unsafe { std::slice::from_raw_parts_mut(window.start(), window.len()) };
        let result = pair.copy(py, bytes);
        let moved = pair.seek_behind(src, dst);
        return match result.and(moved) {
            Ok(()) => Ok(pair.copied()),
            Err(error) => Err(stopped(py, error, pair.copied())),
        };
    }
    let (over, read) = read_over(src, dst, limit)?;
    let mut copied = over as u64;
    read.map_err(|error| stopped(py, error, copied))?;
    match through(py, &source, &sink, &mut window, limit, &mut copied) {
        Ok(()) => Ok(copied),
        Err((error, unwritten)) => Err(stopped(py, behind_written(src, error, unwritten), copied)),
    }
}

/// Hands over what a `BytesIO` holds, `limit` bytes of it at most, in parts of `length` bytes.
fn from_memory(py: Python<'_>, mut held: Held<'_>, sink: &Sink, length: usize, limit: u64) -> PyResult<u64> {
    let mut copied = 0;
    let result = parts_to(py, &mut held, sink, length, limit, &mut copied);
    match result.and(held.seek_behind()) {
        Ok(()) => Ok(copied),
        Err(error) => Err(stopped(py, error, copied)),
    }
}

fn parts_to(
    py: Python<'_>,
    held: &mut Held<'_>,
    sink: &Sink,
    length: usize,
    limit: u64,
    copied: &mut u64,
) -> PyResult<()> {
    loop {
        py.check_signals()?;
        let (part, count) = held.next(within(length, limit - *copied))?;
        if count == 0 {
            return Ok(());
        }
        let mut done = 0;
        let wrote = sink.write_object(&part, count, &mut done);
        held.pass(done);
        *copied += done as u64;
        if let Wrote::NotNow = wrote? {
            return Err(takes_nothing(py, *copied));
        }
    }
}

fn takes_nothing(py: Python<'_>, copied: u64) -> PyErr {
    refusal::would_block(py, &format!("dst takes nothing now; {copied} bytes were copied"), copied)
}

/// Passes chunks on to the end of the source, or until `limit` bytes are copied. An error comes with the number of
/// bytes that were read and not written.
fn through(
    py: Python<'_>,
    source: &Source,
    sink: &Sink,
    window: &mut Window,
    limit: u64,
    copied: &mut u64,
) -> Result<(), (PyErr, usize)> {
    while *copied < limit {
        // Files written in C run no Python code, so that nobody else would look.
        py.check_signals().map_err(|error| (error, 0))?;
        let most = within(window.len(), limit - *copied);
        let read = match source.read(py, window, 0, most).map_err(|error| (error, 0))? {
            Some(0) => return Ok(()),
            Some(read) => read,
            None => {
                let text = format!("src has nothing to read now; {copied} bytes were copied");
                return Err((refusal::would_block(py, &text, *copied), 0));
            }
        };
        let mut done = 0;
        let wrote = sink.write(py, window, &mut done, read);
        *copied += done as u64;
        match wrote {
            Ok(Wrote::All) => {}
            Ok(Wrote::NotNow) => return Err((takes_nothing(py, *copied), read - done)),
            Err(error) => return Err((error, read - done)),
        }
        if window.is_kept() {
            // dst keeps what it was given: it shall stay as it is.
            *window = Window::rent(py, window.len()).map_err(|error| (error, 0))?;
        }
    }
    Ok(())
}

/// Has the source stand behind what was written, where that can be.
fn behind_written(src: &Bound<'_, PyAny>, error: PyErr, unwritten: usize) -> PyErr {
    if unwritten == 0 {
        return error;
    }
    match set_back(src, unwritten) {
        Ok(true) => error,
        Ok(false) => {
            let note = format!("{unwritten} bytes more were read from src, which is not seekable: they are lost");
            add_note(src.py(), &error, &note);
            error
        }
        // Ctrl-C comes before what it interrupts.
        Err(interrupt) => interrupt,
    }
}

fn stopped(py: Python<'_>, error: PyErr, copied: u64) -> PyErr {
    refusal::with_progress(
        py,
        error,
        "bytes_copied",
        copied,
        &format!("gabion.streams.copy: {copied} bytes were copied before"),
    )
}
