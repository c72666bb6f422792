//! The bytes that an `io.BytesIO` holds, without a copy of them.
//!
//! Its value is a `bytes` that it shares until it is written to, when it goes on with a copy. So what is handed out stays
//! as it is, whoever keeps it.

use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyMemoryView, PyType};

use super::bytes::items;

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
        static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
        if !file.get_type().is(CLASS.import(file.py(), "io", "BytesIO")?) {
            return Ok(None);
        }
        let at: usize = file.call_method0("tell")?.extract()?;
        let end: usize = file.call_method1("seek", (0, 2))?.extract()?;
        file.call_method1("seek", (at,))?;
        // Changes nothing, but is refused as long as there is a view.
        match file.call_method1("truncate", (end,)) {
            Err(error) if error.is_instance_of::<PyBufferError>(file.py()) => return Ok(None),
            done => done?,
        };
        let bytes = file.call_method0("getvalue")?.cast_into::<PyBytes>()?;
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
    pub(super) fn settle(&self) -> PyResult<()> {
        self.file.call_method1("seek", (self.at,)).map(drop)
    }

    /// Has the file stand at its end; the bytes are those from where it stood.
    pub(super) fn settle_at_end(&self) -> PyResult<()> {
        self.file.call_method1("seek", (self.at.max(self.end),)).map(drop)
    }
}
