//! The class that `gabion.Table` and `gabion.Cache` are made of.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gabion_cache::{Cache, CacheOptions, Departure, Mode, PutOptions, PutResult, Span, Table, TableOptions};
use pyo3::exceptions::{PyAssertionError, PyKeyError, PyOverflowError, PyTypeError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList};

use super::shared::Shared;
use super::stats::CacheStats;
use super::{key, sweeper};
use crate::codec::Codec;
use crate::errors::{Errors, exception};
use crate::pile::gate::detached;
use crate::pile::scratch::{with_encoded, with_payload};
use crate::size;

/// The members of gabion.PutResult, in the order of [`PutResult`].
static RESULTS: PyOnceLock<[Py<PyAny>; 3]> = PyOnceLock::new();

/// One table of a cache. gabion.Table and gabion.Cache are subclasses.
#[pyclass(frozen, subclass, weakref, module = "gabion._native")]
pub(super) struct CacheTable {
    shared: Arc<Shared>,
    table: Table,
}

/// Seconds as a float or int, or a timedelta; infinity means without end.
fn span(name: &str, value: Option<&Bound<'_, PyAny>>) -> PyResult<Span> {
    let Some(value) = value else { return Ok(Span::Table) };
    let py = value.py();
    let seconds = match value.getattr_opt("total_seconds")? {
        Some(total) => total.call0()?.extract::<f64>()?,
        None => value.extract::<f64>().map_err(|_| {
            exception(&py.get_type::<PyTypeError>(), &format!("{name} is seconds or a timedelta, not {value}"))
        })?,
    };
    if seconds == f64::INFINITY {
        return Ok(Span::Never);
    }
    let span = Duration::try_from_secs_f64(seconds)
        .map_err(|_| exception(&py.get_type::<PyValueError>(), &format!("{name}={value}: pass 0 seconds or more")))?;
    Ok(Span::Of(span))
}

/// A datetime, or seconds since 1970.
fn moment(value: &Bound<'_, PyAny>) -> PyResult<Duration> {
    let py = value.py();
    let seconds = match value.getattr_opt("timestamp")? {
        Some(timestamp) => timestamp.call0()?.extract::<f64>()?,
        None => value.extract::<f64>().map_err(|_| {
            let text = format!("expires_at is a datetime or seconds since 1970, not {value}");
            exception(&py.get_type::<PyTypeError>(), &text)
        })?,
    };
    if seconds.is_nan() {
        return Err(exception(&py.get_type::<PyValueError>(), "expires_at is not a number"));
    }
    Ok(Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX))
}

fn of(span: Span) -> Option<Duration> {
    if let Span::Of(span) = span { Some(span) } else { None }
}

/// What a put's keywords say.
fn put_options(
    ttl: Option<&Bound<'_, PyAny>>,
    idle: Option<&Bound<'_, PyAny>>,
    expires_at: Option<&Bound<'_, PyAny>>,
    priority: i64,
) -> PyResult<PutOptions> {
    let priority = i8::try_from(priority).map_err(|_| {
        PyErr::new::<PyValueError, _>(format!("priority={priority}: a priority is a number from -128 to 127"))
    })?;
    let expires_at = expires_at.map(moment).transpose()?;
    Ok(PutOptions { ttl: span("ttl", ttl)?, idle: span("idle", idle)?, expires_at, priority })
}

impl CacheTable {
    #[inline]
    fn open(&self, py: Python<'_>) -> PyResult<()> {
        // Relaxed: a call that runs beside close() may come before or after it.
        if self.shared.closed.load(Ordering::Relaxed) || self.table.is_dropped() {
            return Err(self.closed_error(py));
        }
        Ok(())
    }

    #[cold]
    fn closed_error(&self, py: Python<'_>) -> PyErr {
        let what = if self.table.is_dropped() { "table was dropped" } else { "cache was closed" };
        match Errors::get(py) {
            Err(error) => error,
            Ok(errors) => {
                exception(errors.closed.bind(py), &format!("this {what}: what it held is gone; make a new one"))
            }
        }
    }

    /// A key's object, built anew.
    #[inline]
    fn build(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<Option<Py<PyAny>>> {
        self.open(py)?;
        with_key(key, |key| {
            with_payload(|buf| match self.table.get(key, buf) {
                Some(value) => self.shared.codec.decode(py, value).map(Some),
                None => Ok(None),
            })
        })
    }

    /// Stores an object; `None` when the key is there and `absent` is asked for.
    #[inline]
    fn store(
        &self,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        options: &PutOptions,
        absent: bool,
    ) -> PyResult<Option<PutResult>> {
        let py = key.py();
        self.open(py)?;
        with_key(key, |key| {
            with_encoded(|encoding| {
                // SAFETY: the caller holds the object over the call.
                unsafe { self.shared.codec.encode(py, value.as_ptr(), encoding)? };
                // The object's own code may have closed the cache.
                self.open(py)?;
                let result = if absent {
                    self.table.add(key, encoding, options)
                } else {
                    Some(self.table.put(key, encoding, options))
                };
                if options.ttl != Span::Table || options.idle != Span::Table || options.expires_at.is_some() {
                    self.watch();
                }
                Ok(result)
            })
        })
    }

    /// Has the sweeper look at the cache.
    fn watch(&self) {
        if !self.shared.watched.swap(true, Ordering::Relaxed) {
            sweeper::watch(Arc::downgrade(&self.shared));
        } else if !sweeper::runs() {
            sweeper::begin();
        }
    }
}

/// Calls `work` with a key's bytes.
#[inline]
fn with_key<R>(key: &Bound<'_, PyAny>, work: impl FnOnce(&[u8]) -> PyResult<R>) -> PyResult<R> {
    thread_local!(static KEY: Cell<Option<Vec<u8>>> = const { Cell::new(None) });
    // Code that runs meanwhile on the same thread finds the place empty and makes a buffer of its own.
    let mut buffer = KEY.try_with(Cell::take).ok().flatten().unwrap_or_default();
    buffer.clear();
    let result = key::write(key, &mut buffer).and_then(|()| work(&buffer));
    if buffer.capacity() <= 1 << 16 {
        let _ = KEY.try_with(|place| place.set(Some(buffer)));
    }
    result
}

fn result_of(py: Python<'_>, result: PutResult) -> PyResult<Py<PyAny>> {
    let results = RESULTS.get(py).ok_or_else(|| PyErr::new::<PyTypeError, _>("gabion.PutResult is not there"))?;
    let at = match result {
        PutResult::Inserted => 0,
        PutResult::Replaced => 1,
        _ => 2,
    };
    Ok(results[at].clone_ref(py))
}

fn mode_of(py: Python<'_>, policy: &str) -> PyResult<Mode> {
    match policy {
        "default" => Ok(Mode::Sketch),
        "lru" => Ok(Mode::Lru),
        "fifo" => Ok(Mode::Fifo),
        "s3fifo" => Ok(Mode::S3Fifo),
        other => {
            let text = format!("policy={other:?}: pass 'default', 'lru', 'fifo' or 's3fifo'");
            Err(exception(&py.get_type::<PyValueError>(), &text))
        }
    }
}

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
        let (ttl, idle) = (of(span("ttl", ttl)?), of(span("idle", idle)?));
        let made = if let Some(parent) = parent {
            let shared = &parent.get().shared;
            parent.get().open(py)?;
            let options = TableOptions { max_bytes, ttl, idle };
            let table = shared.cache.table(name.unwrap_or(""), options);
            let too_many =
                || exception(&py.get_type::<PyOverflowError>(), "a cache has at most 65535 tables in its life");
            Self { shared: Arc::clone(shared), table: table.ok_or_else(too_many)? }
        } else {
            let Some(max_bytes) = max_bytes else {
                return Err(exception(&py.get_type::<PyTypeError>(), "a cache needs max_bytes, such as '64 MiB'"));
            };
            Codec::prepare(py)?;
            let shards = crate::pile::shards(py)?;
            let table = TableOptions { max_bytes: None, ttl, idle };
            let options =
                CacheOptions { max_bytes, mode: mode_of(py, policy)?, shards, table, ..CacheOptions::default() };
            let cache = Cache::with_options(&options).map_err(|error| crate::pile::no_pile(py, &error))?;
            let (closed, watched) = (AtomicBool::new(false), AtomicBool::new(false));
            let table = (*cache).clone();
            let shared = Shared { cache, codec: Codec::new(), closed, watched, callback: Mutex::new(None) };
            Self { shared: Arc::new(shared), table }
        };
        if ttl.is_some() || idle.is_some() {
            made.watch();
        }
        Ok(made)
    }

    /// Tells the class of the results of put(): its three members in order.
    #[staticmethod]
    fn _results(py: Python<'_>, results: [Py<PyAny>; 3]) {
        let _ = RESULTS.set(py, results);
    }

    /// get(key, default=None)
    ///
    /// The key's value, built anew at every call, or default. An expired value is none.
    #[pyo3(signature = (key, default = None, /))]
    fn get(&self, key: &Bound<'_, PyAny>, default: Option<Py<PyAny>>) -> PyResult<Py<PyAny>> {
        let py = key.py();
        Ok(self.build(py, key)?.unwrap_or_else(|| default.unwrap_or_else(|| py.None())))
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
        if self.discard(key)? {
            return Ok(());
        }
        Err(PyErr::from_type(py.get_type::<PyKeyError>(), (key.clone().unbind(),)))
    }

    fn __contains__(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.open(key.py())?;
        with_key(key, |key| with_payload(|buf| Ok(self.table.peek(key, buf).is_some())))
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.open(py)?;
        Ok(self.table.len() as usize)
    }

    /// True, even when it is empty: `if cache:` asks whether there is one.
    fn __bool__(&self) -> bool {
        true
    }

    /// put(key, value, *, ttl=None, idle=None, expires_at=None, priority=0)
    ///
    /// Store a copy of value and return a PutResult: INSERTED, REPLACED, or REJECTED when there is no room for it: it is
    /// larger than the limit, or only values of higher priority could have made room. After REJECTED the key holds
    /// nothing, so that its earlier value is not taken for the new one.
    ///
    /// ttl and idle are seconds or a timedelta; None means the table's, float("inf") without end. expires_at is a
    /// datetime or seconds since 1970. priority is -128 to 127: a put evicts values of its own priority and below only,
    /// the lowest first.
    #[pyo3(signature = (key, value, /, *, ttl = None, idle = None, expires_at = None, priority = 0))]
    fn put(
        &self,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        ttl: Option<&Bound<'_, PyAny>>,
        idle: Option<&Bound<'_, PyAny>>,
        expires_at: Option<&Bound<'_, PyAny>>,
        priority: i64,
    ) -> PyResult<Py<PyAny>> {
        let options = put_options(ttl, idle, expires_at, priority)?;
        let result = self.store(key, value, &options, false)?;
        result_of(key.py(), result.unwrap_or(PutResult::Rejected))
    }

    /// add(key, value, *, ttl=None, idle=None, expires_at=None, priority=0)
    ///
    /// Store value only if the key has none. Returns whether it was stored.
    #[pyo3(signature = (key, value, /, *, ttl = None, idle = None, expires_at = None, priority = 0))]
    fn add(
        &self,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        ttl: Option<&Bound<'_, PyAny>>,
        idle: Option<&Bound<'_, PyAny>>,
        expires_at: Option<&Bound<'_, PyAny>>,
        priority: i64,
    ) -> PyResult<bool> {
        let options = put_options(ttl, idle, expires_at, priority)?;
        Ok(matches!(self.store(key, value, &options, true)?, Some(PutResult::Inserted | PutResult::Replaced)))
    }

    /// Remove the key's value. Returns whether there was one.
    #[pyo3(signature = (key, /))]
    fn discard(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.open(key.py())?;
        with_key(key, |key| Ok(self.table.remove(key)))
    }

    /// Get and remove in one step; `None` when there is nothing, else a tuple of the value.
    #[pyo3(signature = (key, /))]
    fn _pop(&self, key: &Bound<'_, PyAny>) -> PyResult<Option<(Py<PyAny>,)>> {
        let py = key.py();
        self.open(py)?;
        with_key(key, |key| {
            with_payload(|buf| match self.table.pop(key, buf) {
                Some(value) => Ok(Some((self.shared.codec.decode(py, value)?,))),
                None => Ok(None),
            })
        })
    }

    /// touch(key, ttl=None)
    ///
    /// Restart the time of the key's value: ttl seconds, or the time that it was put with, or the table's. Its idle time
    /// restarts too. Returns whether there is a value.
    #[pyo3(signature = (key, ttl = None, /))]
    fn touch(&self, key: &Bound<'_, PyAny>, ttl: Option<&Bound<'_, PyAny>>) -> PyResult<bool> {
        self.open(key.py())?;
        let span = span("ttl", ttl)?;
        if span != Span::Table {
            self.watch();
        }
        with_key(key, |key| Ok(self.table.touch(key, span)))
    }

    /// The values of many keys, as a dict of those that there are.
    #[pyo3(signature = (keys, /))]
    fn get_many<'py>(&self, keys: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
        let found = PyDict::new(keys.py());
        for key in keys.try_iter()? {
            let key = key?;
            if let Some(value) = self.build(keys.py(), &key)? {
                found.set_item(key, value)?;
            }
        }
        Ok(found)
    }

    /// Remove many keys. Returns how many there were.
    #[pyo3(signature = (keys, /))]
    fn remove_many(&self, keys: &Bound<'_, PyAny>) -> PyResult<u64> {
        let mut removed = 0;
        for key in keys.try_iter()? {
            removed += u64::from(self.discard(&key?)?);
        }
        Ok(removed)
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
        with_key(key, |key| Ok(pyo3::types::PyBytes::new(py, key).into_any()))
    }

    #[getter]
    fn name(&self) -> &str {
        self.table.name()
    }

    #[getter]
    fn _table_names(&self) -> Vec<String> {
        self.shared.cache.tables().iter().map(|table| table.name().to_owned()).collect()
    }

    fn _clear_table(&self, py: Python<'_>) -> PyResult<u64> {
        self.open(py)?;
        Ok(self.shared.apart(py, || self.table.clear()))
    }

    fn _clear_all(&self, py: Python<'_>) -> PyResult<u64> {
        self.open(py)?;
        Ok(self.shared.apart(py, || self.shared.cache.clear_all()))
    }

    #[pyo3(signature = (name, /))]
    fn _drop_table(&self, py: Python<'_>, name: &str) -> PyResult<bool> {
        self.open(py)?;
        Ok(self.shared.apart(py, || self.shared.cache.drop_table(name)))
    }

    fn _expire(&self, py: Python<'_>) -> PyResult<u64> {
        self.open(py)?;
        Ok(self.shared.apart(py, || self.shared.cache.expire()))
    }

    fn _table_stats(&self, py: Python<'_>) -> PyResult<CacheStats> {
        self.open(py)?;
        Ok(self.table.stats().into())
    }

    fn _total_stats(&self, py: Python<'_>) -> PyResult<CacheStats> {
        self.open(py)?;
        Ok(self.shared.cache.total_stats().into())
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
        let tell = move |gone: &Departure<'_>| {
            if let Some(shared) = shared.upgrade() {
                shared.tell(gone);
            }
        };
        self.shared.cache.on_departure(listens.then(|| Arc::new(tell) as _));
        Ok(())
    }

    fn _close(&self, py: Python<'_>) {
        if !self.shared.closed.swap(true, Ordering::AcqRel) {
            self.shared.apart(py, || self.shared.cache.clear_all());
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
        detached(py, || self.shared.cache.validate())
            .map_err(|wrong| exception(&py.get_type::<PyAssertionError>(), &wrong))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // What is shared belongs to the last handle alone, or it would be counted once for each.
        if Arc::strong_count(&self.shared) > 1 {
            return Ok(());
        }
        self.shared.codec.traverse(&visit)?;
        match self.shared.callback.try_lock() {
            Ok(callback) => visit.call(&*callback),
            Err(_) => Ok(()),
        }
    }

    fn __clear__(&self) {
        if Arc::strong_count(&self.shared) > 1 {
            return;
        }
        self.shared.codec.clear();
        let callback = self.shared.callback.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(callback);
    }
}
