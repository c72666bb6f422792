//! The codec as a Python class: for tests, not part of the public interface.

use pyo3::PyTraverseError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use super::decode::warm::ArrayMemory;
use super::object::{PASS_TYPES, WHEN_OPENED};
use super::{Codec, Types};
use crate::once::make_class;
use crate::result;

/// A codec with nothing around it. Internal: tests use it; programs use `gabion.Pile`.
#[pyclass(name = "_Codec", module = "gabion._native", frozen)]
struct PyCodec {
    codec: Codec,
}

#[pymethods]
impl PyCodec {
    #[new]
    #[pyo3(signature = (types = None))]
    fn new(py: Python<'_>, types: Option<&Bound<'_, PyAny>>) -> PyResult<PyCodec> {
        Ok(PyCodec { codec: Codec::with_types(py, None, Types::read(types)?)? })
    }

    /// Records of the numbers from one on.
    #[pyo3(signature = (from_ = 0))]
    fn describe<'py>(&self, py: Python<'py>, from_: u32) -> PyResult<Bound<'py, PyBytes>> {
        let mut out = Vec::new();
        self.codec.describe(py, from_, usize::MAX, &mut out)?;
        result::bytes(py, &out)
    }

    /// Takes the numbers over that these records describe.
    fn restore(&self, py: Python<'_>, records: &[u8]) -> PyResult<()> {
        self.codec.restore(py, records)
    }

    /// The encoding of an object.
    fn encode<'py>(&self, obj: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        let mut out = Vec::new();
        // SAFETY: a live object, held by the caller.
        unsafe { self.codec.encode(obj.py(), obj.as_ptr(), &mut out)? };
        result::bytes(obj.py(), &out)
    }

    /// The object of an encoding, built anew.
    fn decode(&self, py: Python<'_>, data: &[u8]) -> PyResult<Py<PyAny>> {
        self.codec.decode(py, data)
    }

    /// Some fields of the object of an encoding.
    #[pyo3(signature = (data, *names))]
    fn fields<'py>(&self, py: Python<'py>, data: &[u8], names: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyTuple>> {
        self.codec.decode_fields(py, data, &names.iter().collect::<Vec<_>>())
    }

    /// Where the buffer of a bytes-like payload lies: offset, length in bytes, type code; or `None`.
    #[staticmethod]
    fn raw_view(data: &[u8]) -> Option<(usize, usize, char)> {
        Codec::raw_view(data).map(|view| (view.offset, view.len, view.format as char))
    }

    /// Layouts, classes and functions that have a number.
    #[getter]
    fn type_count(&self) -> usize {
        self.codec.type_count()
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.codec.traverse(&visit)
    }

    fn __clear__(&self) {
        self.codec.clear();
    }
}

/// Adds the class to the extension module.
pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    make_class::<ArrayMemory>(m);
    m.add("_PASS_TYPES", (WHEN_OPENED, PASS_TYPES))?;
    m.add_class::<PyCodec>()
}
