//! Classes of Python that make a difference: of the module `io`, and `gabion.streams.Writer`.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

use crate::once::{import, intern, of_module, once};

/// The classes, found once. Whether a file is of one means exactly of it, unless it says otherwise: a subclass may do
/// anything in a way of its own.
pub(super) struct Classes {
    pub any: Py<PyType>,
    pub raw: Py<PyType>,
    pub text: Py<PyType>,
    file_io: Py<PyType>,
    buffered_reader: Py<PyType>,
    buffered_random: Py<PyType>,
    buffered_writer: Py<PyType>,
    bytes_io: Py<PyType>,
    /// Of a module above.
    writer: Py<PyType>,
}

fn is(file: &Bound<'_, PyAny>, class: &Py<PyType>) -> bool {
    file.get_type().is(class.bind(file.py()))
}

impl Classes {
    pub(super) fn get(py: Python<'_>) -> PyResult<&'static Self> {
        static CLASSES: PyOnceLock<Classes> = PyOnceLock::new();
        once(py, &CLASSES, || {
            let io = import(py, c"io")?;
            let class = |name| PyResult::Ok(io.getattr(name)?.cast_into::<PyType>()?.unbind());
            Ok(Self {
                any: class("IOBase")?,
                raw: class("RawIOBase")?,
                text: class("TextIOBase")?,
                file_io: class("FileIO")?,
                buffered_reader: class("BufferedReader")?,
                buffered_random: class("BufferedRandom")?,
                buffered_writer: class("BufferedWriter")?,
                bytes_io: class("BytesIO")?,
                writer: of_module(py, c"gabion._native", c"Writer")?.cast_into::<PyType>()?.unbind(),
            })
        })
    }

    /// Whether a file is neither text nor raw by its very class; to find that out from the bases takes longer than many
    /// a read.
    pub(super) fn is_known(&self, file: &Bound<'_, PyAny>) -> bool {
        self.is_buffered(file) || self.is_bytes_io(file)
    }

    /// Whether a file is a buffered one of `open()`, or of `socket.makefile()`.
    pub(super) fn is_buffered(&self, file: &Bound<'_, PyAny>) -> bool {
        self.is_buffered_to_read(file) || is(file, &self.buffered_writer)
    }

    /// As [`Classes::is_buffered`], of those that can be read.
    pub(super) fn is_buffered_to_read(&self, file: &Bound<'_, PyAny>) -> bool {
        is(file, &self.buffered_reader) || is(file, &self.buffered_random)
    }

    pub(super) fn is_bytes_io(&self, file: &Bound<'_, PyAny>) -> bool {
        is(file, &self.bytes_io)
    }

    /// Whether a file is a `gabion.streams.Writer`.
    pub(super) fn is_writer(&self, file: &Bound<'_, PyAny>) -> bool {
        is(file, &self.writer)
    }

    /// What a file of `open()` or `socket.makefile()` has below its buffer; the file itself where it has none.
    pub(super) fn unbuffered<'py>(&self, file: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        if self.is_buffered(file) { file.getattr(intern!(file.py(), "raw")?) } else { Ok(file.clone()) }
    }

    /// Whether a file is one of `open()`, buffered or not, so that its bytes are the system's.
    pub(super) fn is_of_system(&self, file: &Bound<'_, PyAny>) -> PyResult<bool> {
        Ok(is(&self.unbuffered(file)?, &self.file_io))
    }
}
