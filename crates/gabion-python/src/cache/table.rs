//! The everyday methods of `gabion.Table` and `gabion.Cache`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use gabion_cache::{Cache, CacheOptions, Departure, PutOptions, ReadBuf, Span, TableOptions};
use pyo3::exceptions::{PyAssertionError, PyKeyError, PyOverflowError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use super::shared::{Shared, Store};
use super::state::{CacheTable, set_results};
use super::stats::CacheStats;
use super::{key, many, options};
use crate::codec::Codec;
use crate::errors::{exception, type_error};
use crate::ffi;
use crate::pile::gate::detached;
use crate::pile::scratch::{with_encoded, with_payload};
use crate::size;

#[pymethods]
impl CacheTable {
    #[new]
    #[pyo3(signature = (max_bytes = None, *, ttl = None, idle = None, name = None, policy = "default", parent = None))]
    fn new(
        py: Python<'_>,
        max_bytes: Option<&Bound<'_, PyAny>>,
        ttl: Option<&Bound<'_, PyAny>>,
        idle: Option<&Bound<'_, PyAny>>,
        name: Option<&str>,
        policy: &str,
        parent: Option<&Bound<'_, CacheTable>>,
    ) -> PyResult<Self> {
        let max_bytes = max_bytes.map(|value| size::parse("max_bytes", value)).transpose()?;
        let (ttl, idle) = (options::of_table("ttl", ttl)?, options::of_table("idle", idle)?);
        let made = if let Some(parent) = parent {
            let above = parent.get();
            above.open(py)?;
            let options = TableOptions { max_bytes, ttl, idle };
            let table = above.shared.store.cache.table(name.unwrap_or(""), options);
            let too_many =
                || exception(&py.get_type::<PyOverflowError>(), "a cache has at most 65535 tables in its life");
            let root = above.root.as_ref().map_or_else(|| parent.clone().unbind(), |root| root.clone_ref(py));
            Self { shared: Arc::clone(&above.shared), table: table.ok_or_else(too_many)?, root: Some(root) }
        } else {
            let Some(max_bytes) = max_bytes else {
                return Err(type_error(py, "a cache needs max_bytes, such as '64 MiB'"));
            };
            Codec::prepare(py)?;
            let shards = crate::pile::shards(py)?;
            let table = TableOptions { max_bytes: None, ttl, idle };
            let settings =
                CacheOptions { max_bytes, mode: options::mode(py, policy)?, shards, table, ..CacheOptions::default() };
            let cache = Cache::with_options(&settings).map_err(|error| crate::pile::no_pile(py, &error))?;
            let (closed, watched) = (AtomicBool::new(false), AtomicBool::new(false));
            let table = (*cache).clone();
            let store = Arc::new(Store { cache, heard: AtomicBool::new(false) });
            let shared = Shared { store, codec: Codec::new(), closed, watched, callback: Mutex::new(None) };
            Self { shared: Arc::new(shared), table, root: None }
        };
        if ttl.is_some() || idle.is_some() {
            made.watch(true);
        }
        Ok(made)
    }

    /// Tells the class of the results of put(): its three members in order.
    #[staticmethod]
    fn _results(py: Python<'_>, results: [Py<PyAny>; 3]) {
        set_results(py, results);
    }

    fn __getitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let py = key.py();
        self.build(py, key)?.ok_or_else(|| PyErr::from_type(py.get_type::<PyKeyError>(), (key.clone().unbind(),)))
    }

    fn __setitem__(&self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.store(key, value, &PutOptions::default(), false).map(drop)
    }

    fn __delitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = key.py();
        if self.remove(key)? {
            return Ok(());
        }
        Err(PyErr::from_type(py.get_type::<PyKeyError>(), (key.clone().unbind(),)))
    }

    fn __contains__(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.has(key)
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.open(py)?;
        Ok(self.table.len() as usize)
    }

    /// True, even when it is empty: `if cache:` asks whether there is one.
    fn __bool__(&self) -> bool {
        true
    }

    /// The key's value or default; counts neither as a hit nor as a miss.
    #[pyo3(signature = (key, default, /))]
    fn _look(&self, key: &Bound<'_, PyAny>, default: Py<PyAny>) -> PyResult<Py<PyAny>> {
        Ok(self.look(key.py(), key)?.unwrap_or(default))
    }

    /// Get and remove in one step; `None` when there is nothing, else a tuple of the value.
    #[pyo3(signature = (key, /))]
    fn _pop(&self, key: &Bound<'_, PyAny>) -> PyResult<Option<(Py<PyAny>,)>> {
        let py = key.py();
        self.open(py)?;
        let codec = &self.shared.codec;
        key::with(key, |key| {
            with_payload(|buf| {
                // Built before it is removed, so that a value that cannot be built is not lost.
                let seen = self.table.peek(key, buf);
                let built = seen.map(|value| codec.decode(py, value)).transpose()?;
                let mut taken = ReadBuf::new();
                let Some(value) = self.table.pop(key, &mut taken) else { return Ok(None) };
                if let Some(object) = built.filter(|_| seen == Some(value)) {
                    return Ok(Some((object,)));
                }
                // Another value came between.
                let object = codec.decode(py, value).inspect_err(|_| {
                    self.table.add(key, value, &PutOptions::default());
                })?;
                Ok(Some((object,)))
            })
        })
    }

    /// Change a value in one step: function(value) makes the new one, which keeps the old one's end and priority. Returns
    /// a tuple of the new value; `None` when there is none, or no room for it. The function may be called again when
    /// another value comes between.
    #[pyo3(signature = (key, function, /))]
    fn _change(&self, key: &Bound<'_, PyAny>, function: &Bound<'_, PyAny>) -> PyResult<Option<(Py<PyAny>,)>> {
        let (py, codec) = (key.py(), &self.shared.codec);
        key::with(key, |key| {
            let mut buf = ReadBuf::new();
            loop {
                self.open(py)?;
                let Some(old) = self.table.peek(key, &mut buf) else { return Ok(None) };
                let value = codec.decode(py, old)?;
                // SAFETY: attached; both are held over the call; a new reference, or null with an error set.
                let new = unsafe {
                    let new = ffi::PyObject_CallOneArg(function.as_ptr(), value.as_ptr());
                    Bound::from_owned_ptr_or_err(py, new)?
                };
                let changed = with_encoded(|encoding| {
                    // SAFETY: `new` holds the object over the call.
                    unsafe { codec.encode(py, new.as_ptr(), encoding)? };
                    PyResult::Ok(self.table.replace_if(key, old, encoding))
                })?;
                match changed {
                    Some(true) => return Ok(Some((new.unbind(),))),
                    Some(false) => {}
                    None => return Ok(None),
                }
            }
        })
    }

    /// Restart the time of the key's value: ttl seconds, or the time that it was put with, or the table's. Its idle time
    /// restarts too. Returns whether there is a value.
    #[pyo3(signature = (key, /, ttl = None))]
    fn touch(&self, key: &Bound<'_, PyAny>, ttl: Option<&Bound<'_, PyAny>>) -> PyResult<bool> {
        self.open(key.py())?;
        let span = ttl.map_or(Ok(Span::Table), |ttl| options::span("ttl", ttl))?;
        self.watch(span != Span::Table);
        key::with(key, |key| Ok(self.table.touch(key, span)))
    }

    /// The values of many keys, as a dict of those that there are, each built anew. Faster than single gets where the cache is
    /// larger than the processor's own: memory is asked for some keys ahead. Time linear in the keys and values.
    ///
    /// >>> import gabion
    /// >>> cache = gabion.Cache("64 MiB")
    /// >>> cache.put_many({"one": 1, "two": 2})
    /// >>> cache.get_many(["one", "two", "three"])
    /// {'one': 1, 'two': 2}
    #[pyo3(signature = (keys, /))]
    fn get_many<'py>(&self, keys: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
        many::get(self, keys)
    }

    /// Remove many keys. Returns how many there were.
    #[pyo3(signature = (keys, /))]
    fn remove_many(&self, keys: &Bound<'_, PyAny>) -> PyResult<u64> {
        many::remove(self, keys)
    }

    /// The keys, as a list.
    fn _keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.open(py)?;
        let mut keys = Vec::new();
        self.table.for_each_key(|key| keys.push(key.to_vec()));
        let list = PyList::empty(py);
        for bytes in keys {
            list.append(key::read(py, &bytes)?)?;
        }
        Ok(list)
    }

    /// A key as bytes, equal for equal keys.
    #[pyo3(signature = (key, /))]
    fn _key<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = key.py();
        key::with(key, |key| Ok(pyo3::types::PyBytes::new(py, key).into_any()))
    }

    /// The table's name; "" for the cache's own entries.
    #[getter]
    fn name(&self) -> &str {
        self.table.name()
    }

    /// How the table was made: its limit in bytes, and its ttl and idle time in seconds.
    #[getter]
    fn _settings(&self) -> (Option<u64>, Option<f64>, Option<f64>) {
        let TableOptions { max_bytes, ttl, idle } = self.table.options();
        (max_bytes, ttl.map(|ttl| ttl.as_secs_f64()), idle.map(|idle| idle.as_secs_f64()))
    }

    #[getter]
    fn _table_names(&self) -> Vec<String> {
        self.shared.store.cache.tables().iter().map(|table| table.name().to_owned()).collect()
    }

    fn _clear_table(&self, py: Python<'_>) -> PyResult<u64> {
        self.open(py)?;
        Ok(self.shared.apart(py, || self.table.clear()))
    }

    fn _clear_all(&self, py: Python<'_>) -> PyResult<u64> {
        self.open(py)?;
        Ok(self.shared.apart(py, || self.shared.store.cache.clear_all()))
    }

    #[pyo3(signature = (name, /))]
    fn _drop_table(&self, py: Python<'_>, name: &str) -> PyResult<bool> {
        self.open(py)?;
        Ok(self.shared.apart(py, || self.shared.store.cache.drop_table(name)))
    }

    fn _expire(&self, py: Python<'_>) -> PyResult<u64> {
        self.open(py)?;
        Ok(self.shared.apart(py, || self.shared.store.cache.expire()))
    }

    fn _table_stats(&self, py: Python<'_>) -> PyResult<CacheStats> {
        self.open(py)?;
        Ok(CacheStats::new(&self.table.stats()))
    }

    fn _total_stats(&self, py: Python<'_>) -> PyResult<CacheStats> {
        self.open(py)?;
        Ok(CacheStats::new(&self.shared.store.cache.total_stats()))
    }

    #[pyo3(signature = (callback, /))]
    fn _on_evict(&self, py: Python<'_>, callback: Option<Py<PyAny>>) -> PyResult<()> {
        self.open(py)?;
        let listens = callback.is_some();
        let before = {
            let mut place = self.shared.callback.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *place, callback)
        };
        drop(before);
        let shared = Arc::downgrade(&self.shared);
        let tell = move |gone: &Departure<'_>| Shared::tell(&shared, gone);
        self.shared.store.heard.store(listens, Ordering::Relaxed);
        self.shared.store.cache.on_departure(listens.then(|| Arc::new(tell) as _));
        Ok(())
    }

    fn _close(&self, py: Python<'_>) {
        if !self.shared.closed.swap(true, Ordering::AcqRel) {
            self.shared.apart(py, || self.shared.store.cache.clear_all());
        }
    }

    /// True after close(), or when the table was dropped.
    #[getter]
    fn closed(&self) -> bool {
        self.shared.closed.load(Ordering::Relaxed) || self.table.is_dropped()
    }

    /// Check every equation of the cache's structure; raises AssertionError with the first that does not hold. For tests.
    fn validate(&self, py: Python<'_>) -> PyResult<()> {
        self.open(py)?;
        detached(py, || self.shared.store.cache.validate())
            .map_err(|wrong| exception(&py.get_type::<PyAssertionError>(), &wrong))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        if let Some(root) = &self.root {
            return visit.call(root);
        }
        self.shared.codec.traverse(&visit)?;
        match self.shared.callback.try_lock() {
            Ok(callback) => visit.call(&*callback),
            Err(_) => Ok(()),
        }
    }

    fn __clear__(&self) {
        // A table keeps its cache; the cache is what ends a cycle.
        if self.root.is_none() {
            self.shared.codec.clear();
            let callback = self.shared.callback.lock().unwrap_or_else(PoisonError::into_inner).take();
            drop(callback);
        }
    }
}
