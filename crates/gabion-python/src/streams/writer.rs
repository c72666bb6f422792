//! `gabion.streams.Writer`.

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use super::chunk::{self, Window};
use super::file::{Sink, Wrote, call_if_there, refuse_closed, refuse_unwritable, says};
use super::owned_lock::{End, Guard, OwnedLock};
use super::refusal;
use crate::content::Content;
use crate::once::intern;

/// A binary file written through a chunk of the pool, with the methods of io.BufferedWriter.
///
/// file is anything with write(): an open file, a socket's, a pipe's, an object of your own. One that is not writable()
/// is an io.UnsupportedOperation at once. Bytes are collected in a chunk of up to chunk bytes ("1 MiB" at most) and
/// written when it is full; as much as a chunk or more is written at once. After the first write, no operation
/// allocates memory. If the file keeps the memoryview that its write() was given, the bytes in it stay: the Writer goes
/// on with another chunk.
///
/// It counts as an io.BufferedIOBase: pickle, zipfile and io.TextIOWrapper take it. When the file raises, the error
/// is passed on with the attribute bytes_taken, how many bytes of this call's are written or gathered, and a note; what
/// was gathered before and not yet written stays, and the next flush() goes on behind what the file took. A
/// non-blocking file that takes nothing now is a BlockingIOError with the same number as characters_written.
///
/// flush() writes what is collected. close(), and the end of a with statement, flush and close the file; detach()
/// flushes and does not close. When the Writer is garbage collected, it writes what is collected, and the file stays
/// open. A use after close() raises ClosedError. Threads take turns; a file that calls its own Writer gets a
/// RuntimeError.
///
/// >>> import io
/// >>> import gabion.streams
/// >>> target = io.BytesIO()
/// >>> writer = gabion.streams.Writer(target)
/// >>> writer.write(b"stone"), target.getvalue()
/// (5, b'')
/// >>> writer.flush()
/// >>> target.getvalue()
/// b'stone'
#[pyclass(frozen, weakref, module = "gabion.streams")]
pub(super) struct Writer {
    file: Py<PyAny>,
    chunk: usize,
    state: OwnedLock<State>,
}

/// Equation: the bytes of the window that are gathered and not written are `start..end`; without a window both are 0.
struct State {
    /// None when closed or detached.
    sink: Option<Sink>,
    window: Option<Window>,
    start: usize,
    end: usize,
}

impl State {
    /// Hands what is gathered to the file. What it takes is gone from the window, whatever the result.
    fn flush(&mut self, py: Python<'_>) -> PyResult<Wrote> {
        let (Some(sink), Some(window)) = (&self.sink, &self.window) else { return Ok(Wrote::All) };
        let wrote = sink.write(py, window, &mut self.start, self.end);
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            if window.is_kept()
                && let Some(window) = self.window.take()
            {
                window.release_now(py);
            }
        }
        wrote
    }

    /// Room for bytes to gather.
    fn room(&mut self, py: Python<'_>, chunk: usize) -> PyResult<&mut Window> {
        if self.window.is_none() {
            self.window = Some(Window::rent(py, chunk)?);
        }
        self.window.as_mut().ok_or_else(|| refusal::closed(py, "Writer"))
    }

    /// Hands over what is gathered, for the last time: what an error leaves is lost.
    fn hand_over(&mut self, py: Python<'_>) -> PyResult<()> {
        let handed_over = match self.flush(py) {
            Ok(Wrote::All) => Ok(()),
            Ok(Wrote::NotNow) => {
                let text = format!("{} bytes of a Writer could not be written and are lost", self.gathered());
                Err(refusal::would_block(py, &text, 0))
            }
            Err(error) => Err(error),
        };
        (self.start, self.end) = (0, 0);
        handed_over
    }

    /// As `hand_over`, where an error has nobody to go to but `sys.unraisablehook`.
    fn hand_over_at_the_end(&mut self, py: Python<'_>, file: &Py<PyAny>) {
        if let Err(error) = self.hand_over(py) {
            error.write_unraisable(py, Some(file.bind(py)));
        }
    }

    fn gathered(&self) -> usize {
        self.end - self.start
    }
}

impl Writer {
    fn open<'py>(&self, py: Python<'py>) -> PyResult<Guard<'_, 'py, State>> {
        let state = self.state.lock(py)?;
        if state.sink.is_some() { Ok(state) } else { Err(self.state.refusal(py)) }
    }

    /// Hands over what is gathered, all of it.
    fn flush_all(py: Python<'_>, state: &mut State) -> PyResult<()> {
        py.check_signals()?;
        match state.flush(py)? {
            Wrote::All => Ok(()),
            Wrote::NotNow => {
                let text = format!("the file takes nothing now; {} bytes wait to be written", state.gathered());
                Err(refusal::would_block(py, &text, 0))
            }
        }
    }

    /// Takes bytes: gathers them, or writes them and what was gathered before. `taken` is moved on with what is taken.
    fn take(
        &self,
        state: &mut State,
        data: &Bound<'_, PyAny>,
        content: &Content<'_>,
        taken: &mut usize,
    ) -> PyResult<()> {
        let py = data.py();
        let length = content.len();
        if length > self.chunk - state.end {
            Self::flush_all(py, state)?;
        }
        if length < self.chunk {
            let at = state.end;
            content.copy_to(state.room(py, self.chunk)?, at);
            state.end += length;
            *taken = length;
            return Ok(());
        }
        let sink = state.sink.as_ref().ok_or_else(|| refusal::closed(py, "Writer"))?;
        match sink.write_object(data, length, taken)? {
            Wrote::All => Ok(()),
            Wrote::NotNow => {
                let text = format!("the file takes nothing more now; {taken} of {length} bytes were written");
                Err(refusal::would_block(py, &text, *taken as u64))
            }
        }
    }

    /// Takes the bytes of an object; returns their number.
    #[inline(always)]
    pub(super) fn write(&self, data: &Bound<'_, PyAny>) -> PyResult<usize> {
        let py = data.py();
        if let Ok(bytes) = data.cast_exact::<PyBytes>() {
            let bytes = bytes.as_bytes();
            // SAFETY: these bytes.
            if unsafe { self.gather(py, bytes.as_ptr(), bytes.len()) } {
                return Ok(bytes.len());
            }
        }
        let content = Content::of(data)?;
        // SAFETY: the content's bytes, held in place.
        let gathered = unsafe { self.gather(py, content.start(), content.len()) };
        if gathered { Ok(content.len()) } else { self.write_on(data, &content) }
    }

    /// Gathers bytes, if nothing else is to be done.
    ///
    /// # Safety
    /// There are `length` bytes at `bytes`, which others may be writing.
    #[inline(always)]
    unsafe fn gather(&self, py: Python<'_>, bytes: *const u8, length: usize) -> bool {
        // SAFETY: bytes are copied, those that the caller answers for, into room that was looked for.
        let gathered = unsafe {
            self.state.briefly(py, |state| match &mut state.window {
                Some(window) if length < self.chunk && length <= self.chunk - state.end => {
                    window.copy_in(state.end, bytes, length);
                    state.end += length;
                    true
                }
                _ => false,
            })
        };
        gathered.unwrap_or(false)
    }

    #[cold]
    fn write_on(&self, data: &Bound<'_, PyAny>, content: &Content<'_>) -> PyResult<usize> {
        let py = data.py();
        let mut taken = 0;
        let result = self.take(&mut *self.open(py)?, data, content, &mut taken);
        match result {
            Ok(()) => Ok(taken),
            Err(error) => {
                let note =
                    format!("gabion.streams.Writer: {taken} of {} bytes of this write() were taken", content.len());
                Err(refusal::with_progress(py, error, "bytes_taken", taken as u64, &note))
            }
        }
    }

    /// What the collector calls before it takes a cycle apart: the file is still whole.
    pub(super) fn finalize(&self, py: Python<'_>) {
        // When somebody is inside, it is not the end.
        if let Ok(mut state) = self.state.lock(py) {
            state.hand_over_at_the_end(py, &self.file);
        }
    }

    /// Hands over what is gathered and lets go of the file.
    fn shut(&self, py: Python<'_>) -> PyResult<()> {
        let mut state = self.state.lock(py)?;
        if state.sink.is_none() {
            return Ok(());
        }
        // A signal that has come is answered before the file is called, where its handler's error would take the place
        // of a write or of the closing. That error goes on when all is done.
        let interrupted = py.check_signals();
        let handed_over = state.hand_over(py);
        (state.sink, state.window) = (None, None);
        state.end(End::Closed);
        refusal::both(py, "Writer", interrupted, handed_over)
    }
}

#[pymethods]
impl Writer {
    #[new]
    #[pyo3(signature = (file, *, chunk = None), text_signature = "(file, *, chunk='256 KiB')")]
    fn new(file: &Bound<'_, PyAny>, chunk: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let chunk = chunk::length(chunk)?;
        let sink = Some(Sink::new("file", file)?);
        refuse_closed("file", file)?;
        refuse_unwritable("file", file)?;
        let state = State { sink, window: None, start: 0, end: 0 };
        Ok(Self { file: file.clone().unbind(), chunk, state: OwnedLock::new("Writer", state) })
    }

    /// Take the bytes of each object of an iterable.
    #[pyo3(signature = (lines, /))]
    fn writelines(&self, lines: &Bound<'_, PyAny>) -> PyResult<()> {
        for line in lines.try_iter()? {
            self.write(&line?)?;
        }
        Ok(())
    }

    /// Hand over what is gathered, and flush the file.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        let mut state = self.open(py)?;
        Self::flush_all(py, &mut state)?;
        call_if_there(self.file.bind(py), intern!(py, "flush")?)
    }

    /// Hand over what is gathered and go to a position: offset from the start (whence 0), from here (1) or from the end
    /// (2); return it.
    #[pyo3(signature = (offset, whence = 0, /))]
    fn seek(&self, py: Python<'_>, offset: i64, whence: i32) -> PyResult<Py<PyAny>> {
        let mut state = self.open(py)?;
        Self::flush_all(py, &mut state)?;
        self.file.call_method1(py, "seek", (offset, whence))
    }

    /// The position of the next byte: where the file stands, and what is gathered.
    fn tell(&self, py: Python<'_>) -> PyResult<i64> {
        let state = self.open(py)?;
        let at: i64 = self.file.bind(py).call_method0(intern!(py, "tell")?)?.extract()?;
        Ok(at + state.gathered() as i64)
    }

    /// Hand over what is gathered and have the file end at a position: size, or where it stands; return it.
    #[pyo3(signature = (size = None, /))]
    fn truncate(&self, py: Python<'_>, size: Option<i64>) -> PyResult<Py<PyAny>> {
        let mut state = self.open(py)?;
        Self::flush_all(py, &mut state)?;
        self.file.call_method1(py, "truncate", (size,))
    }

    /// Write what is collected, give the chunk back and return the file, still open. The Writer counts as closed.
    fn detach(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let mut state = self.open(py)?;
        Self::flush_all(py, &mut state)?;
        (state.sink, state.window) = (None, None);
        state.end(End::Detached);
        Ok(self.file.clone_ref(py))
    }

    /// Write what is collected and close the file. If writing fails, the file is closed all the same and the error is
    /// raised. Closing twice does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if self.state.lock(py)?.sink.is_none() {
            return Ok(());
        }
        let shut = self.shut(py);
        let closed = call_if_there(self.file.bind(py), intern!(py, "close")?);
        refusal::both(py, "Writer", shut, closed)
    }

    /// True after close() and detach().
    #[getter]
    fn closed(&self) -> bool {
        self.state.is_over()
    }

    /// The file that is written.
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

    /// False.
    fn readable(&self, py: Python<'_>) -> PyResult<bool> {
        self.open(py).map(|_| false)
    }

    /// True.
    fn writable(&self, py: Python<'_>) -> PyResult<bool> {
        self.open(py).map(|_| true)
    }

    /// True when the file says so.
    fn seekable(&self, py: Python<'_>) -> PyResult<bool> {
        drop(self.open(py)?);
        says(self.file.bind(py), intern!(py, "seekable")?)
    }

    /// The file's descriptor, if it has one. What is written to it comes before what is gathered.
    fn fileno(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        drop(self.open(py)?);
        self.file.call_method0(py, "fileno")
    }

    /// True when the file is a terminal.
    fn isatty(&self, py: Python<'_>) -> PyResult<bool> {
        drop(self.open(py)?);
        says(self.file.bind(py), intern!(py, "isatty")?)
    }

    /// Raises io.UnsupportedOperation.
    #[pyo3(signature = (size = -1, /), text_signature = "($self, size=-1, /)")]
    fn read(&self, py: Python<'_>, size: Option<isize>) -> PyResult<()> {
        let _ = size;
        Err(refusal::unsupported(py, "a Writer cannot read: make a Reader of the file"))
    }

    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        drop(slf.get().open(slf.py())?);
        Ok(slf)
    }

    #[pyo3(signature = (*exception))]
    fn __exit__(&self, py: Python<'_>, exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        refusal::at_exit(py, "Writer", exception, self.close(py))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        if self.state.is_detached() {
            return Ok("<gabion.streams.Writer, detached>".to_owned());
        }
        if self.closed() {
            return Ok("<gabion.streams.Writer, closed>".to_owned());
        }
        Ok(format!("<gabion.streams.Writer of {}>", self.file.bind(py).repr()?))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.file)?;
        match self.state.idle() {
            Some(State { sink: Some(sink), .. }) => sink.traverse(&visit),
            _ => Ok(()),
        }
    }

    /// Refuses, for pickle and copy.
    #[pyo3(signature = (_protocol, /))]
    fn __reduce_ex__(&self, py: Python<'_>, _protocol: &Bound<'_, PyAny>) -> PyResult<()> {
        Err(refusal::type_error(
            py,
            "a gabion.streams.Writer cannot be pickled or copied: it is a file of this process",
        ))
    }
}

impl Drop for Writer {
    /// What is gathered is not lost.
    fn drop(&mut self) {
        let file = &self.file;
        let Some(state) = self.state.last() else { return };
        if state.gathered() > 0 {
            // The end of an object may come while an error is on its way.
            Python::attach(|py| {
                let on_its_way = PyErr::take(py);
                state.hand_over_at_the_end(py, file);
                if let Some(error) = on_its_way {
                    error.restore(py);
                }
            });
        }
    }
}
