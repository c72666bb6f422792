//! The class that `gabion.Table` and `gabion.Cache` are made of, and what its methods are made of.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use gabion_blocks::BlockError;
use gabion_cache::{Former, Long, PutOptions, PutResult, ReadBuf, Reading, Table, Value};
use gabion_pile::with_read_buf;
use pyo3::exceptions::{PyException, PyKeyError, PyMemoryError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use super::shared::Shared;
use super::{key, options, sweeper};
use crate::codec::add_note;
use crate::errors::{Errors, exception, own_error, shown, type_error};
use crate::immortal::immortalize;
use crate::result;
use crate::scratch::with_encoded_apart;

/// How often a pop builds a value before it removes it, when others put new ones meanwhile. A few times only: then it
/// removes the value first, and puts it back if it cannot be built. A pile's pop cannot do so, as a pointer that was
/// removed is never valid again: it builds more often, and raises at last.
const POPS: u32 = 4;

/// The members of gabion.PutResult, in the order of [`PutResult`].
static RESULTS: PyOnceLock<[Py<PyAny>; 3]> = PyOnceLock::new();

/// One table of a cache. gabion.Table and gabion.Cache are subclasses.
///
/// It is made empty, whatever the arguments, and set up by `__init__`: so a subclass has an `__init__` of its own
/// parameters, as those of Python's own classes do. Until then every call is refused.
#[pyclass(frozen, generic, subclass, weakref, module = "gabion._native")]
pub(super) struct CacheTable {
    inner: OnceLock<Inner>,
}

/// What a table is once it was set up.
pub(super) struct Inner {
    pub shared: Arc<Shared>,
    pub table: Table,
    /// The cache, for a table of it. What is shared belongs to the cache alone, or the collector would count it once
    /// for each table.
    pub root: Option<Py<CacheTable>>,
}

impl CacheTable {
    pub(super) fn empty() -> Self {
        Self { inner: OnceLock::new() }
    }

    /// Fills it, for ever.
    pub(super) fn set_up(&self, py: Python<'_>, inner: Inner) -> PyResult<()> {
        self.inner.set(inner).map_err(|_| {
            let text = "this cache was set up before: call __init__() once, and make another cache";
            exception(&py.get_type::<PyRuntimeError>(), text)
        })
    }

    /// What it is, if it was set up; for the garbage collector.
    pub(super) fn inner(&self) -> Option<&Inner> {
        self.inner.get()
    }

    /// What it is, closed or not; an error when it was not set up.
    #[inline]
    pub(super) fn made(&self, py: Python<'_>) -> PyResult<&Inner> {
        self.inner.get().ok_or_else(|| Self::empty_error(py))
    }

    /// What it is; an error when it was not set up, the cache was closed or the table dropped.
    #[inline]
    pub(super) fn open(&self, py: Python<'_>) -> PyResult<&Inner> {
        let inner = self.made(py)?;
        inner.check(py)?;
        Ok(inner)
    }

    /// As [`CacheTable::open`], for whoever makes a value: after a drop the table has none, and keeps none.
    pub(super) fn making(&self, py: Python<'_>) -> PyResult<&Inner> {
        let inner = self.made(py)?;
        inner.check_cache(py)?;
        Ok(inner)
    }

    #[cold]
    fn empty_error(py: Python<'_>) -> PyErr {
        let text = "this cache is not set up: an __init__() of a subclass of gabion.Cache calls \
                    super().__init__(max_bytes) before anything else, as in super().__init__('64 MiB', ttl=300)";
        exception(&py.get_type::<PyRuntimeError>(), text)
    }
}

impl Inner {
    /// An error when the cache was closed or the table dropped.
    #[inline]
    pub fn check(&self, py: Python<'_>) -> PyResult<()> {
        if self.is_closed() { Err(self.closed_error(py)) } else { Ok(()) }
    }

    /// An error when the cache was closed.
    pub fn check_cache(&self, py: Python<'_>) -> PyResult<()> {
        if self.is_cache_closed() { Err(self.closed_error(py)) } else { Ok(()) }
    }

    #[inline]
    pub fn is_closed(&self) -> bool {
        self.is_cache_closed() || self.table.is_dropped()
    }

    #[inline]
    fn is_cache_closed(&self) -> bool {
        // Relaxed: a call that runs beside close() may come before or after it.
        self.shared.closed.load(Ordering::Relaxed)
    }

    #[cold]
    fn closed_error(&self, py: Python<'_>) -> PyErr {
        let what = if self.table.is_dropped() { "table was dropped" } else { "cache was closed" };
        own_error(py, |errors| &errors.closed, &format!("this {what}: what it held is gone; make a new one"))
    }

    /// A key's object, built anew.
    #[inline]
    pub fn build(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<Option<Py<PyAny>>> {
        key::with(key, |bytes| self.build_at(py, bytes).map_err(|error| not_built(error, key)))
    }

    /// As [`Inner::build`], for a key's bytes.
    #[inline]
    pub fn build_at(&self, py: Python<'_>, key: &[u8]) -> PyResult<Option<Py<PyAny>>> {
        Ok(self.build_sized_at(py, key)?.map(|built| built.0))
    }

    /// As [`Inner::build`], with the length of what it was built of.
    #[inline]
    pub fn build_sized(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<Option<(Py<PyAny>, usize)>> {
        key::with(key, |bytes| self.build_sized_at(py, bytes).map_err(|error| not_built(error, key)))
    }

    #[inline]
    fn build_sized_at(&self, py: Python<'_>, key: &[u8]) -> PyResult<Option<(Py<PyAny>, usize)>> {
        with_read_buf(|buf| match self.table.get_or_find(key, buf) {
            Some(Reading::Whole(value)) => Ok(Some((self.shared.codec.decode(py, value)?, value.len()))),
            Some(Reading::Long(long)) => self.build_long(py, key, &long),
            None => nothing(py, buf),
        })
    }

    #[inline(never)]
    fn build_long(&self, py: Python<'_>, key: &[u8], long: &Long<'_>) -> PyResult<Option<(Py<PyAny>, usize)>> {
        let built = match self.shared.codec.decode_long(py, long)? {
            // The get was counted, and the policy has heard of it.
            None => self.look_at(py, key)?,
            built => built,
        };
        Ok(built.map(|built| (built, long.len())))
    }

    /// As [`Inner::build`], but neither counted nor seen by the eviction policy.
    pub fn look(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<Option<Py<PyAny>>> {
        key::with(key, |bytes| self.look_at(py, bytes).map_err(|error| not_built(error, key)))
    }

    /// As [`Inner::look`], for a key's bytes.
    pub fn look_at(&self, py: Python<'_>, key: &[u8]) -> PyResult<Option<Py<PyAny>>> {
        with_read_buf(|buf| {
            let Some(value) = self.table.peek(key, buf) else { return nothing(py, buf) };
            self.shared.codec.decode(py, value).map(Some)
        })
    }

    /// A key's object, built anew, which the key has no more.
    pub fn take(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<Option<Py<PyAny>>> {
        key::with(key, |bytes| self.take_at(py, bytes).map_err(|error| not_built(error, key)))
    }

    /// As [`Inner::take`], for a key's bytes.
    fn take_at(&self, py: Python<'_>, key: &[u8]) -> PyResult<Option<Py<PyAny>>> {
        let (table, codec) = (&self.table, &self.shared.codec);
        with_read_buf(|buf| {
            for _ in 0..POPS {
                // Built before it is removed, so that a value that cannot be built stays as it was.
                let Some(value) = table.peek(key, buf) else {
                    nothing::<()>(py, buf)?;
                    break;
                };
                let (built, length) = (codec.decode(py, value)?, value.len());
                if table.pop_if(key, former(buf, length)) {
                    return Ok(Some(built));
                }
                built.drop_ref(py);
                // Another value came between, or the object's own code has closed the cache.
                self.check(py)?;
            }
            self.take_at_once(py, key, buf)
        })
    }

    /// As [`Inner::take`], but removed before it is built: no other value can come between. One that cannot be built
    /// goes back, unless the key has a newer one by then, or there is no room any more: only then the failed pop is
    /// counted, as a removal. Where there is none, it ends the key's leases, as a removal does: what is made of older
    /// facts is not to be stored behind it.
    #[cold]
    fn take_at_once(&self, py: Python<'_>, key: &[u8], buf: &mut ReadBuf) -> PyResult<Option<Py<PyAny>>> {
        let Some((value, standing)) = self.table.pop_for_now(key, buf) else {
            self.check(py)?;
            return nothing(py, buf);
        };
        let built = self.shared.codec.decode(py, value).map(Some);
        if built.is_ok() || self.is_cache_closed() {
            // A closed cache holds nothing.
            self.table.popped(standing);
        } else {
            self.table.put_back(key, value, standing);
        }
        built
    }

    /// How long a key's value lives on; [`Duration::MAX`] when it has no end.
    pub fn expires_in(&self, key: &Bound<'_, PyAny>) -> PyResult<Option<Duration>> {
        key::with(key, |key| Ok(self.table.expires_in(key)))
    }

    /// Whether a key has a value.
    #[inline]
    pub fn has(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        key::with(key, |key| Ok(self.table.contains(key)))
    }

    /// Stores an object; `None` when the key is there and `absent` is asked for.
    #[inline]
    pub fn store(
        &self,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        options: &PutOptions,
        absent: bool,
    ) -> PyResult<Option<PutResult>> {
        let py = key.py();
        key::with(key, |key| {
            // Memory answers while the value is written.
            self.table.foresee_put(key);
            self.encoded(value, |value| {
                // The object's own code may have closed the cache.
                self.check(py)?;
                let result = if absent {
                    self.table.add(key, value, options)
                } else {
                    Some(self.table.put(key, value, options))
                };
                self.watch(options::is_timed(options));
                self.check_after_put(py, key)?;
                Ok(result)
            })
        })
    }

    /// An error when the cache was closed while a key's value was put: by a callback that heard of what went for it, or
    /// by another thread. Nothing stays in what is closed.
    #[inline]
    pub fn check_after_put(&self, py: Python<'_>, key: &[u8]) -> PyResult<()> {
        self.check(py).inspect_err(|_| {
            self.table.remove(key);
        })
    }

    /// Encodes an object and hands the encoding on: in pieces, where large values were left out of it. Nothing is left
    /// out where callbacks hear of what goes: they come before the pieces are copied, and may change whatever those are
    /// part of.
    #[inline]
    pub fn encoded<R>(&self, object: &Bound<'_, PyAny>, work: impl FnOnce(Value<'_>) -> PyResult<R>) -> PyResult<R> {
        with_encoded_apart(|encoding, apart| {
            let room = (!self.shared.is_heard()).then_some(&mut *apart);
            // SAFETY: the caller holds the object over the call.
            unsafe { self.shared.codec.encode_apart(object.py(), object.as_ptr(), encoding, room)? };
            if apart.is_empty() {
                return work(Value::Whole(encoding));
            }
            work(Value::Pieces(&apart.pieces(object.py(), encoding)?))
        })
    }

    /// Removes a key's value; false when there is none.
    #[inline]
    pub fn remove(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        key::with(key, |key| Ok(self.table.remove(key)))
    }

    /// Has the sweeper look at the cache once some value has an end.
    #[inline]
    pub fn watch(&self, timed: bool) {
        // Relaxed: who comes a moment late finds it watched, and is not needed.
        let watched = self.shared.watched.load(Ordering::Relaxed);
        if (timed && !watched) || (watched && !sweeper::runs()) {
            self.begin_watching();
        }
    }

    #[cold]
    fn begin_watching(&self) {
        if self.shared.watched.swap(true, Ordering::Relaxed) {
            sweeper::begin();
        } else {
            sweeper::watch(Arc::downgrade(&self.shared.store));
        }
    }
}

/// A value of a length that was read into a buffer, for whoever goes on from it. A long one counts in the cache's
/// memory as long as the buffer holds it, and there may not be room for it and another: the buffer lets it go.
pub(super) fn former(buf: &mut ReadBuf, length: usize) -> Former<'_> {
    match buf.let_go_of_run() {
        Some(run) => Former::Run(run),
        None => Former::Bytes(&buf.payload()[buf.payload().len() - length..]),
    }
}

/// What a key without a value gives; an error where there was only no memory to copy its value to.
#[inline]
pub(super) fn nothing<T>(py: Python<'_>, buf: &ReadBuf) -> PyResult<Option<T>> {
    #[cold]
    fn refused(py: Python<'_>, refusal: BlockError) -> PyErr {
        own_error(py, |errors| &errors.limit, &format!("no memory to read the key's value into: {refusal}"))
    }
    buf.refusal().map_or(Ok(None), |refusal| Err(refused(py, refusal)))
}

/// Notes which key an error is about.
#[cold]
pub(super) fn tell_key(error: &PyErr, key: &Bound<'_, PyAny>, note: impl FnOnce(String) -> String) {
    let py = key.py();
    // What is no error of the value's, and where there is no memory for a note.
    let about_all = error.is_instance_of::<PyMemoryError>(py)
        || !error.is_instance_of::<PyException>(py)
        || Errors::get(py).is_ok_and(|errors| error.is_instance(py, errors.closed.bind(py)));
    if !about_all {
        add_note(py, error, &note(shown(key)));
    }
}

/// For a value that could not be built: notes its key.
#[cold]
pub(super) fn not_built(error: PyErr, key: &Bound<'_, PyAny>) -> PyErr {
    tell_key(&error, key, |key| format!("the value of key {key}"));
    error
}

/// The error of a key that has no value.
#[cold]
pub(super) fn missing(key: &Bound<'_, PyAny>) -> PyErr {
    let class = key.py().get_type::<PyKeyError>();
    // At once: PyO3 would make it when it is raised, and panic where there is no memory then.
    result::call(&class, [key]).map_or_else(|error| error, PyErr::from_value)
}

/// Keeps the members of the class of the results of put(), which every put hands out.
///
/// # Safety
/// The class was just made: no other thread knows it yet.
pub(super) unsafe fn set_results(py: Python<'_>, results: [Py<PyAny>; 3]) {
    if RESULTS.set(py, results).is_ok() {
        for result in RESULTS.get(py).into_iter().flatten() {
            // SAFETY: as the caller promised.
            unsafe { immortalize(result.bind(py)) };
        }
    }
}

/// A result of put() as Python sees it.
#[inline]
pub(super) fn result_of(py: Python<'_>, result: PutResult) -> PyResult<Py<PyAny>> {
    let results = RESULTS.get(py).ok_or_else(|| type_error(py, "gabion.PutResult is not there"))?;
    let at = match result {
        PutResult::Inserted => 0,
        PutResult::Replaced => 1,
        _ => 2,
    };
    Ok(results[at].clone_ref(py))
}
