//! `gabion.streams.Reader`.

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use super::ahead::Ahead;
use super::bytes::{Growing, bytes_of};
use super::chunk;
use super::descriptor::Rest;
use super::file::{Source, call_if_there, gives_what_it_has, plain_bytes, refuse_closed, refuse_unreadable, says};
use super::owned_lock::{End, Guard, OwnedLock};
use super::refusal;
use crate::content::Content;
use crate::ffi;
use crate::once::intern;
use crate::result;

/// A binary file read through a chunk of the pool, with the methods of io.BufferedReader.
///
/// file is anything with readinto() or read(): an open file, a socket's, a pipe's, an archive member, an object of your
/// own. One that is not readable() is an io.UnsupportedOperation at once. chunk is how many bytes are asked of it at a
/// time, "1 MiB" at most. After the first read, no operation allocates memory except for the bytes that it returns. A
/// large readinto() does not go through the chunk.
///
/// It counts as an io.BufferedIOBase: json, pickle and io.TextIOWrapper take it. read(), readinto() and readline() wait
/// for all they were asked for, or the end; read1(), readinto1() and peek() ask the file once at most. A non-blocking
/// file that has nothing now makes them return what there is, and None if there is nothing (peek(): b""); iteration
/// then raises BlockingIOError. What the file raises is passed on; what read(), readinto() or readline() had gathered
/// until then comes again with the next call, unless it is more than a chunk.
///
/// close(), and the end of a with statement, close the file, too; detach() does not. When the Reader is garbage
/// collected, the file stays open, behind what was read ahead. A use after close() raises ClosedError. Threads take
/// turns; a file that calls its own Reader gets a RuntimeError.
///
/// >>> import io
/// >>> import gabion.streams
/// >>> with gabion.streams.Reader(io.BytesIO(b"first\nsecond\n")) as reader:
/// ...     reader.readline(), reader.peek()[:3], reader.read()
/// (b'first\n', b'sec', b'second\n')
#[pyclass(frozen, weakref, module = "gabion.streams")]
pub(super) struct Reader {
    file: Py<PyAny>,
    chunk: usize,
    pub ahead: OwnedLock<Ahead>,
}

/// As many bytes as the buffer of `io.BufferedReader` usually has, and so its `peek` returns at most. Whoever peeks
/// often would have a whole chunk copied each time; `pickle` asks for much more than most objects need, once for each.
const PEEK: usize = 8 << 10;

/// A size as the methods of files take it: None and negative numbers stand for "all".
pub(super) fn wanted(size: Option<isize>) -> usize {
    size.and_then(|size| usize::try_from(size).ok()).unwrap_or(usize::MAX)
}

/// Whether a file's `readinto1` gives what there is: that of the buffered files of open(), and that of a Reader.
pub(super) fn gives_soon(file: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(file.is_exact_instance_of::<Reader>() || gives_what_it_has(file)?)
}

/// What iteration raises: it cannot give None, and its end would say that the file is at its end.
#[cold]
fn nothing_now(py: Python<'_>) -> PyErr {
    refusal::would_block(py, "the file has nothing to read now: wait until it has, or make it blocking", 0)
}

/// The length of a `bytes`.
fn length_of(bytes: &Bound<'_, PyAny>) -> usize {
    // SAFETY: a `bytes`, as all that `line` gives.
    unsafe { ffi::Py_SIZE(bytes.as_ptr()) as usize }
}

impl Reader {
    fn open<'py>(&self, py: Python<'py>) -> PyResult<Guard<'_, 'py, Ahead>> {
        let state = self.ahead.lock(py)?;
        if state.source.is_some() { Ok(state) } else { Err(self.ahead.refusal(py)) }
    }

    /// Reads into `target`, whose bytes are `content`, until it is full, or once.
    pub(super) fn read_into(
        &self,
        target: &Bound<'_, PyAny>,
        content: &Content<'_>,
        once: bool,
    ) -> PyResult<Option<usize>> {
        let py = target.py();
        let mut state = self.open(py)?;
        let mut done = 0;
        while done < content.len() {
            if state.unread() == 0 {
                if done > 0 && once {
                    break;
                }
                let straight = done == 0 && content.len() >= self.chunk && state.source(py)?.reads_into();
                let read = if straight {
                    py.check_signals()?;
                    // The file moves on past what is in the window.
                    state.forget();
                    state.source(py)?.read_to(&plain_bytes(target)?, content.len())?
                } else {
                    // SAFETY: the first `done` bytes of the target, which is held in place by `content`.
                    let take_back = |state: &mut Ahead| unsafe { state.take_back(content.start(), done) };
                    state.fill(py, self.chunk).inspect_err(|_| take_back(&mut state))?
                };
                match read {
                    None => return Ok((done > 0).then_some(done)),
                    Some(0) => break,
                    Some(read) if straight => {
                        done = read;
                        continue;
                    }
                    Some(_) => {}
                }
            }
            let (from, to) = state.pass(content.len() - done);
            let window = state.window.as_ref().ok_or_else(|| refusal::closed(py, "Reader"))?;
            // SAFETY: `to - from` is at most what is left of the target, which is held in place by `content`.
            unsafe { window.copy_out(from, to, content.start().add(done)) };
            done += to - from;
        }
        Ok(Some(done))
    }

    /// Size bytes, fewer at the end of the file only; None when the file has nothing now.
    pub(super) fn read_all<'py>(&self, py: Python<'py>, wanted: usize) -> PyResult<Option<Bound<'py, PyAny>>> {
        let mut state = self.open(py)?;
        if wanted <= state.unread() {
            return state.passed(py, wanted).map(Some);
        }
        if wanted == usize::MAX
            && let Some(rest) = Rest::of(self.file.bind(py))?
        {
            let mut all = Growing::with_room(py, state.unread().saturating_add(rest.len()).saturating_add(1))?;
            let from = state.start;
            state.pass_to(&mut all, wanted)?;
            // Where it fails, the file stands where it stood, and what was ahead is ahead again.
            rest.read(self.file.bind(py), &mut all).inspect_err(|_| state.start = from)?;
            state.forget();
            return all.finish().map(Some);
        }
        let mut all = Growing::with_room(py, wanted.min(state.unread() + self.chunk))?;
        state.pass_to(&mut all, wanted)?;
        while all.len() < wanted {
            match state.fill_after(py, self.chunk, &all)? {
                None if all.len() == 0 => return Ok(None),
                None | Some(0) => break,
                Some(_) => {
                    let left = wanted - all.len();
                    state.pass_to(&mut all, left)?;
                }
            }
        }
        all.finish().map(Some)
    }

    /// A line, `most` bytes of it at most; empty at the end of the file, None when it has nothing now.
    #[inline(always)]
    pub(super) fn line<'py>(&self, py: Python<'py>, most: usize) -> PyResult<Option<Bound<'py, PyAny>>> {
        // SAFETY: bytes are searched and made, which runs no Python code.
        let here = unsafe { self.ahead.briefly(py, |ahead| ahead.line_here(py, most)) };
        match here.flatten() {
            Some(line) => line.map(Some),
            None => self.line_from_file(py, most),
        }
    }

    /// The next line; None at the end of the file.
    #[inline(always)]
    pub(super) fn next<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(line) = self.line(py, usize::MAX)? else { return Err(nothing_now(py)) };
        Ok((length_of(&line) > 0).then_some(line))
    }

    #[cold]
    fn line_from_file<'py>(&self, py: Python<'py>, most: usize) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.open(py)?.line(py, most, self.chunk)
    }
}

#[pymethods]
impl Reader {
    #[new]
    #[pyo3(signature = (file, *, chunk = None), text_signature = "(file, *, chunk='256 KiB')")]
    fn new(file: &Bound<'_, PyAny>, chunk: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let chunk = chunk::length(chunk)?;
        let ahead = Ahead::of(Source::new("file", file, gives_soon(file)?)?);
        refuse_closed("file", file)?;
        refuse_unreadable("file", file)?;
        Ok(Self { file: file.clone().unbind(), chunk, ahead: OwnedLock::new("Reader", ahead) })
    }

    /// Read and return up to size bytes with one read of the file at most; what there is, or a chunk, for None and
    /// negative sizes.
    #[pyo3(signature = (size = -1, /), text_signature = "($self, size=-1, /)")]
    fn read1<'py>(&self, py: Python<'py>, size: Option<isize>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let wanted = wanted(size);
        let mut state = self.open(py)?;
        if wanted > 0 && state.unread() == 0 && state.fill(py, self.chunk)?.is_none() {
            return Ok(None);
        }
        state.passed(py, wanted).map(Some)
    }

    /// Read bytes into a writable bytes-like object with one read of the file at most; return their number.
    #[pyo3(signature = (buffer, /))]
    fn readinto1(&self, buffer: &Bound<'_, PyAny>) -> PyResult<Option<usize>> {
        self.read_into(buffer, &Content::writable(buffer)?, true)
    }

    /// Return bytes that are next without passing them: some of those that were read already, or after one read of the
    /// file. 8 KiB of them at most, whatever size says, and at least one unless the file is at its end.
    #[pyo3(signature = (size = 0, /))]
    fn peek<'py>(&self, py: Python<'py>, size: isize) -> PyResult<Bound<'py, PyAny>> {
        let _ = size;
        let mut state = self.open(py)?;
        if state.unread() == 0 {
            state.fill(py, self.chunk)?;
        }
        let end = state.start + state.unread().min(PEEK);
        match &state.window {
            Some(window) => bytes_of(py, window, state.start, end),
            None => Ok(result::bytes(py, b"")?.into_any()),
        }
    }

    /// Read and return a list of lines; if hint is above 0, none further once they have more than hint bytes together.
    /// None when a non-blocking file has nothing now.
    #[pyo3(signature = (hint = -1, /), text_signature = "($self, hint=-1, /)")]
    fn readlines<'py>(&self, py: Python<'py>, hint: Option<isize>) -> PyResult<Option<Bound<'py, PyList>>> {
        let most = hint.filter(|hint| *hint > 0).map_or(usize::MAX, |hint| hint as usize);
        let lines = result::list(py)?;
        let mut bytes = 0;
        while bytes <= most {
            let Some(line) = self.line(py, usize::MAX)? else {
                return Ok(Some(lines).filter(|lines| !lines.is_empty()));
            };
            let length = length_of(&line);
            if length == 0 {
                break;
            }
            lines.append(line)?;
            bytes += length;
        }
        Ok(Some(lines))
    }

    /// Go to a position: offset from the start (whence 0), from here (1) or from the end (2); return it. Within what
    /// was read ahead, the file is not moved.
    #[pyo3(signature = (offset, whence = 0, /))]
    fn seek<'py>(&self, py: Python<'py>, offset: i64, whence: i32) -> PyResult<Bound<'py, PyAny>> {
        let mut state = self.open(py)?;
        let file = self.file.bind(py);
        if !(0..=2).contains(&whence) {
            return Err(refusal::value_error(py, &format!("whence={whence}: pass 0 (start), 1 (here) or 2 (end)")));
        }
        if whence == 2 {
            let at = file.call_method1(intern!(py, "seek")?, (result::signed(py, offset)?, 2))?;
            state.forget();
            return Ok(at);
        }
        let behind: i64 = file.call_method0(intern!(py, "tell")?)?.extract()?;
        let here = behind - state.unread() as i64;
        let target = if whence == 0 { Some(offset) } else { here.checked_add(offset) };
        let Some(target) = target.filter(|target| *target >= 0) else {
            let text = format!("seek({offset}, {whence}) from {here} leads before the start of the file");
            return Err(refusal::value_error(py, &text));
        };
        let moved = usize::try_from(target - (behind - state.end as i64)).ok().filter(|at| *at <= state.end);
        if let Some(at) = moved {
            state.start = at;
            return result::signed(py, target);
        }
        let at = file.call_method1(intern!(py, "seek")?, (result::signed(py, target)?,))?;
        state.forget();
        Ok(at)
    }

    /// The position of the next byte: where the file stands, less what was read ahead.
    fn tell<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let state = self.open(py)?;
        let behind: i64 = self.file.bind(py).call_method0(intern!(py, "tell")?)?.extract()?;
        result::signed(py, behind - state.unread() as i64)
    }

    /// Give the chunk back and return the file, still open. Its position is behind what was read ahead. The Reader
    /// counts as closed.
    fn detach(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let mut state = self.open(py)?;
        state.close();
        state.end(End::Detached);
        Ok(self.file.clone_ref(py))
    }

    /// Give the chunk back and close the file. Closing twice does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let mut state = self.ahead.lock(py)?;
        if !state.close() {
            return Ok(());
        }
        state.end(End::Closed);
        drop(state);
        call_if_there(self.file.bind(py), intern!(py, "close")?)
    }

    /// True after close() and detach().
    #[getter]
    fn closed(&self) -> bool {
        self.ahead.is_over()
    }

    /// The file that is read.
    #[getter]
    fn raw(&self, py: Python<'_>) -> Py<PyAny> {
        self.file.clone_ref(py)
    }

    /// The name of the file, if it has one.
    #[getter]
    fn name(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.file.getattr(py, "name")
    }

    /// The mode of the file, if it has one.
    #[getter]
    fn mode(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.file.getattr(py, "mode")
    }

    /// True.
    fn readable(&self, py: Python<'_>) -> PyResult<bool> {
        self.open(py).map(|_| true)
    }

    /// False.
    fn writable(&self, py: Python<'_>) -> PyResult<bool> {
        self.open(py).map(|_| false)
    }

    /// True when the file says so.
    fn seekable(&self, py: Python<'_>) -> PyResult<bool> {
        drop(self.open(py)?);
        says(self.file.bind(py), intern!(py, "seekable")?)
    }

    /// The file's descriptor, if it has one. Reading from it misses what was read ahead.
    fn fileno(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        drop(self.open(py)?);
        self.file.call_method0(py, "fileno")
    }

    /// True when the file is a terminal.
    fn isatty(&self, py: Python<'_>) -> PyResult<bool> {
        drop(self.open(py)?);
        says(self.file.bind(py), intern!(py, "isatty")?)
    }

    /// Does nothing, as there is nothing to write.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.open(py).map(drop)
    }

    /// Raises io.UnsupportedOperation.
    #[pyo3(signature = (data, /))]
    fn write(&self, data: &Bound<'_, PyAny>) -> PyResult<()> {
        Err(refusal::unsupported(data.py(), "a Reader cannot write: make a Writer of the file"))
    }

    /// Raises io.UnsupportedOperation.
    #[pyo3(signature = (size = None, /))]
    fn truncate(&self, py: Python<'_>, size: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let _ = size;
        Err(refusal::unsupported(py, "a Reader cannot truncate: make a Writer of the file"))
    }

    fn __iter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        drop(slf.get().open(slf.py())?);
        Ok(slf)
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.next(py)
    }

    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        drop(slf.get().open(slf.py())?);
        Ok(slf)
    }

    #[pyo3(signature = (*exception))]
    fn __exit__(&self, py: Python<'_>, exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        refusal::at_exit(py, "Reader", exception, self.close(py))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        if self.ahead.is_detached() {
            return Ok("<gabion.streams.Reader, detached>".to_owned());
        }
        if self.closed() {
            return Ok("<gabion.streams.Reader, closed>".to_owned());
        }
        Ok(format!("<gabion.streams.Reader of {}>", self.file.bind(py).repr()?))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.file)?;
        match self.ahead.idle() {
            Some(Ahead { source: Some(source), .. }) => source.traverse(&visit),
            _ => Ok(()),
        }
    }

    /// Refuses, for pickle and copy.
    #[pyo3(signature = (_protocol, /))]
    fn __reduce_ex__(&self, py: Python<'_>, _protocol: &Bound<'_, PyAny>) -> PyResult<()> {
        Err(refusal::type_error(
            py,
            "a gabion.streams.Reader cannot be pickled or copied: it is a file of this process",
        ))
    }
}
