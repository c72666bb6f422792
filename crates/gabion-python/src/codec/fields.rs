//! Parts of an object without the whole.

use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::reader::Reader;
use super::{Codec, RawView, tags};

/// See [`Codec::decode_fields`].
pub fn decode_fields<'py>(
    codec: &Codec,
    py: Python<'py>,
    bytes: &[u8],
    names: &[Bound<'py, PyAny>],
) -> PyResult<Bound<'py, PyTuple>> {
    let whole = codec.decode(py, bytes)?.into_bound(py);
    let found: Vec<Bound<'py, PyAny>> = names
        .iter()
        .map(|name| {
            if whole.is_instance_of::<pyo3::types::PyDict>() {
                whole.get_item(name)
            } else {
                whole.getattr(name.cast::<pyo3::types::PyString>()?)
            }
        })
        .collect::<PyResult<_>>()?;
    PyTuple::new(py, found)
}

/// See [`Codec::raw_view`].
pub fn raw_view(bytes: &[u8]) -> Option<RawView> {
    let (&format, &tag) = (bytes.first()?, bytes.get(1)?);
    if format != tags::FORMAT || !matches!(tag, tags::BYTES | tags::BYTEARRAY | tags::ARRAY) {
        return None;
    }
    let mut reader = Reader::new(bytes, 2);
    let code = if tag == tags::ARRAY { reader.byte().ok()? } else { b'B' };
    let len = reader.varint().ok()?;
    let offset = if tag == tags::ARRAY { reader.at.next_multiple_of(8) } else { reader.at };
    (offset.checked_add(len)? <= bytes.len()).then_some(RawView { offset, len, format: code })
}
