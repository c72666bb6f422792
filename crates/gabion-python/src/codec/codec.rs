//! The codec, as its owners see it.

use std::collections::BTreeSet;
use std::sync::Arc;

use gabion_blocks::Budget;
use gabion_pile::Long;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use pyo3::{Borrowed, PyTraverseError};

use super::apart::Apart;
use super::classes::known::Known;
use super::classes::record::Record;
use super::classes::registry::Registry;
use super::classes::standard;
use super::classes::types::Types;
use super::decode::leaf::Maker;
use super::encode::quick;
use super::fields::RawView;
use super::kinds::Kind;
use super::object::{Doing, Raise, Raised};
use super::{decode, encode, fields, object, room};
use crate::ffi;

/// Encodes and decodes object graphs; remembers the classes that it met. Any number of threads may use one at once.
///
/// It holds references to classes and functions: an owner must pass on [`Codec::traverse`] and [`Codec::clear`].
pub struct Codec {
    registry: Registry,
}

impl Codec {
    /// A codec that knows no class yet. `room` is what its owner stores encodings in: what code of an object's goes on
    /// to give beyond the limit is refused. The first codec finds what all of them need of the interpreter, for which
    /// it imports modules.
    ///
    /// # Errors
    /// Those of the imports.
    pub fn new(py: Python<'_>, room: Option<Arc<Budget>>) -> PyResult<Codec> {
        Codec::with_types(py, room, Types::default())
    }

    /// As [`Codec::new`], for what lies in a file: `types` says what may be built of what is restored.
    ///
    /// # Errors
    /// As [`Codec::new`].
    pub fn with_types(py: Python<'_>, room: Option<Arc<Budget>>, types: Types) -> PyResult<Codec> {
        // The short ways of encoding rely on it.
        Known::get(py).map_err(|Raised| PyErr::fetch(py))?;
        Ok(Codec { registry: Registry::new(room, types) })
    }

    /// Appends records that describe the numbers from `from` on: all that another process needs to know of them; no
    /// more where they are longer than `most` bytes by then. Returns the number up to which it did, which is where the
    /// next records begin: at most that of [`Codec::type_count`] as it was then. What is said of a number never
    /// changes. The records are to be kept before an encoding that may refer to them is. On failure `out` is as it was.
    ///
    /// # Errors
    /// `MemoryError`.
    pub fn describe(&self, py: Python<'_>, from: u32, most: usize, out: &mut Vec<u8>) -> PyResult<u32> {
        let (_use, start) = (self.registry.begin_use(), out.len());
        self.registry.describe(from, most, out).map_err(|Raised| {
            out.truncate(start);
            PyErr::fetch(py)
        })
    }

    /// Gives a new codec the numbers that were described, in order. Nothing of what they stand for is looked for before
    /// an encoding that refers to it is decoded. A class of the program's that is described here gets its number when
    /// an object of it is encoded.
    ///
    /// # Errors
    /// `CodecError` when the records make no sense, or the codec has numbers already; `MemoryError`. The codec is as it
    /// was.
    pub fn restore(&self, py: Python<'_>, mut records: &[u8]) -> PyResult<()> {
        let _use = self.registry.begin_use();
        let mut restore = || -> Raise<()> {
            let mut read = Vec::new();
            while !records.is_empty() {
                let (record, rest) = Record::read(records)?;
                room::push(&mut read, Arc::new(record))?;
                records = rest;
            }
            self.registry.restore(read)
        };
        restore().map_err(|Raised| PyErr::fetch(py))
    }

    /// Appends the encoding of `obj` to `out`. On failure `out` is as it was.
    ///
    /// # Errors
    /// `LimitError` when the owner cannot have room for it; `CodecError` when the object cannot be stored, with what
    /// the interpreter raised as the cause; whatever else its own code raises.
    ///
    /// # Safety
    /// `obj` is a live object and stays so over the call.
    #[inline]
    pub unsafe fn encode(&self, py: Python<'_>, obj: *mut ffi::PyObject, out: &mut Vec<u8>) -> PyResult<()> {
        // SAFETY: as the caller promised.
        unsafe { self.encode_apart(py, obj, out, None) }
    }

    /// As [`Codec::encode`], but long values are left out, for [`Apart::pieces`] to put them in again. What they belong
    /// to is not to change before that.
    ///
    /// # Errors
    /// As [`Codec::encode`].
    ///
    /// # Safety
    /// As [`Codec::encode`].
    #[inline]
    pub unsafe fn encode_apart(
        &self,
        py: Python<'_>,
        obj: *mut ffi::PyObject,
        out: &mut Vec<u8>,
        mut apart: Option<&mut Apart>,
    ) -> PyResult<()> {
        // SAFETY: as the caller promised.
        if unsafe { quick::alone(obj, out, apart.as_deref_mut()) } {
            return Ok(());
        }
        let _use = self.registry.begin_use();
        let result = Known::get(py).and_then(|known| {
            self.registry.check_reducers(known);
            // SAFETY: as the caller promised.
            unsafe { encode::encode(py, &self.registry, known, obj, (out, apart)) }
        });
        // SAFETY: the caller keeps the object alive over the call.
        result.map_err(|Raised| object::explain(py, Doing::Store(unsafe { Borrowed::from_ptr(py, obj) })))
    }

    /// The object that `bytes` encode, built anew.
    ///
    /// # Errors
    /// `CodecError` when the bytes are damaged, or with the cause when a stored class cannot build its object; whatever
    /// else its code raises.
    #[inline]
    pub fn decode(&self, py: Python<'_>, bytes: &[u8]) -> PyResult<Py<PyAny>> {
        let _use = self.registry.begin_use();
        let result = Known::get(py).and_then(|known| decode::decode(py, &self.registry, known, bytes));
        match result {
            // SAFETY: an owned reference.
            Ok(value) => Ok(unsafe { Bound::from_owned_ptr(py, value.into_ptr()) }.unbind()),
            Err(Raised) => Err(object::explain(py, Doing::Rebuild)),
        }
    }

    /// As [`Codec::decode`], for a payload that still lies where it is stored: what it holds is copied once, to where
    /// it stays. `None` when it is not one value of a kind for which that can be done, or changed meanwhile.
    ///
    /// # Errors
    /// As [`Codec::decode`].
    pub fn decode_long(&self, py: Python<'_>, long: &Long<'_>) -> PyResult<Option<Py<PyAny>>> {
        let _use = self.registry.begin_use();
        let result = Known::get(py).and_then(|known| {
            let maker = Maker { py, known, registry: &self.registry, ready: None };
            decode::decode_long(maker, long)
        });
        match result {
            // SAFETY: an owned reference.
            Ok(value) => Ok(value.map(|value| unsafe { Bound::from_owned_ptr(py, value.into_ptr()) }.unbind())),
            Err(Raised) => Err(object::explain(py, Doing::Rebuild)),
        }
    }

    /// Some fields of the object that `bytes` encode: slots, attributes, items of a named tuple by name, values of a
    /// dict by key. Fields that are not asked for are skipped where their encoding allows it; else the whole is built.
    ///
    /// # Errors
    /// As [`Codec::decode`]; `AttributeError` or `KeyError` for a field that is not there.
    pub fn decode_fields<'py>(
        &self,
        py: Python<'py>,
        bytes: &[u8],
        names: &[Bound<'py, PyAny>],
    ) -> PyResult<Bound<'py, PyTuple>> {
        let _use = self.registry.begin_use();
        fields::decode_fields(py, &self.registry, bytes, names)
    }

    /// Where the buffer of an encoded `bytes`, `bytearray` or `array.array` lies; `None` for anything else.
    pub fn raw_view(bytes: &[u8]) -> Option<RawView> {
        fields::raw_view(bytes)
    }

    /// What to call an encoded object that has no raw view, where its first byte tells it; `None` for most classes.
    pub fn plain_name(bytes: &[u8]) -> Option<&'static str> {
        fields::plain_name(bytes)
    }

    /// What to call the objects of a kind: the class that they are of, or what makes them. For a codec whose numbers
    /// were restored.
    pub fn name_of(&self, kind: Kind) -> String {
        let name =
            |id: u32| self.registry.record(id).map_or_else(|| "another object".to_owned(), |record| record.key());
        match kind {
            Kind::Plain(name) => name.to_owned(),
            Kind::Of(id) => name(id),
            Kind::Named(id) => format!("{} itself", name(id)),
        }
    }

    /// The class of a number whose instances have fields, and their names.
    pub fn fields_of(&self, id: u32) -> Option<(String, Vec<String>)> {
        let record = self.registry.record(id)?;
        Some((record.key(), record.field_names()?))
    }

    /// What a program has to pass as `types`, one by one and as code, for all of these numbers to be built; of what
    /// needs no permission, nothing. For a codec whose numbers were restored.
    ///
    /// # Errors
    /// Memory.
    pub fn types_to_allow(&self, py: Python<'_>) -> PyResult<BTreeSet<String>> {
        let mut names = BTreeSet::new();
        for record in (0..self.type_count() as u32).filter_map(|id| self.registry.record(id)) {
            if !standard::knows(&record).map_err(|Raised| PyErr::fetch(py))? {
                names.insert(record.as_type());
            }
        }
        Ok(names)
    }

    /// Layouts, classes and functions that have a number. One load: whoever keeps their records asks at every put.
    pub fn type_count(&self) -> usize {
        self.registry.len()
    }

    /// For the owner's `__traverse__`.
    ///
    /// # Errors
    /// What `visit` reports.
    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.registry.traverse(visit)
    }

    /// For an owner that needs nothing of this any more: drops what was learnt of classes, now or when the last call on
    /// another thread, or around this one, has ended. Without the interpreter's lock, it goes with the codec.
    pub fn end(&self) {
        self.registry.end();
    }

    /// For the owner's `__clear__`: nobody may be encoding or decoding.
    pub fn clear(&self) {
        self.registry.clear();
    }
}
