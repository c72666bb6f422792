//! The everyday methods of `gabion.Table` and `gabion.Cache`.

use std::cmp::Reverse;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gabion_cache::{Cache, CacheOptions, Departure, PutOptions, ReadBuf, Span, TableOptions};
use pyo3::exceptions::{PyAssertionError, PyOverflowError, PyRuntimeError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple, PyType};

use super::flights::{self, CacheLease};
use super::making::{self, Making};
use super::shared::{Shared, Store};
use super::state::{CacheTable, Inner, former, missing, not_built, nothing, set_results, tell_key};
use super::stats::{CacheStats, cache_stats};
use super::{arguments, key, many, options, saving};
use crate::argument::{CHANGES, changed};
use crate::codec::Codec;
use crate::errors::{exception, value_error};
use crate::figures::Figure;
use crate::gate::through_gate;
use crate::scratch::with_key;
use crate::yield_budget::YieldBudget;
use crate::{result, size, time};

/// Smaller limits are refused: the caller probably meant a number of entries. The index alone takes 4 KiB for the
/// first.
const LEAST: usize = 4 << 10;

/// How None is put, for whoever means it.
const PUT_NONE: &str = "put(key, None)";

#[pymethods]
impl CacheTable {
    /// Empty, for __init__ to set up.
    #[new]
    #[classmethod]
    #[pyo3(signature = (*_args, **keywords))]
    fn new(
        cls: &Bound<'_, PyType>,
        _args: &Bound<'_, PyTuple>,
        keywords: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        if let Some(keywords) = keywords {
            options::check_settings(cls, keywords)?;
        }
        Ok(Self::empty())
    }

    /// Sets it up as a cache.
    fn _set_up(
        &self,
        py: Python<'_>,
        max_bytes: &Bound<'_, PyAny>,
        ttl: Option<&Bound<'_, PyAny>>,
        idle: Option<&Bound<'_, PyAny>>,
        policy: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let max_bytes = size::limit(max_bytes, "entries", LEAST)?;
        let table = options_of(None, ttl, idle)?;
        let codec = Codec::new(py, None)?;
        let (policy, shards) = (options::policy(policy)?, crate::pile::shards(py)?);
        let settings = CacheOptions { max_bytes, policy, shards, table, ..CacheOptions::default() };
        let cache = Cache::with_options(&settings).map_err(|error| crate::pile::not_made(py, "cache", &error))?;
        let (closed, watched) = (AtomicBool::new(false), AtomicBool::new(false));
        let table = cache.default_table().clone();
        let store = Arc::new(Store { cache, heard: AtomicBool::new(false) });
        let (callback, logged_tables) = (Mutex::new(None), Mutex::default());
        let shared = Shared { store, codec, closed, watched, callback, logged_tables };
        self.begin(py, Inner { shared: Arc::new(shared), table, root: None })
    }

    /// Sets it up as a table of a cache.
    fn _set_up_in(
        &self,
        cache: &Bound<'_, CacheTable>,
        name: &str,
        max_bytes: Option<&Bound<'_, PyAny>>,
        ttl: Option<&Bound<'_, PyAny>>,
        idle: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let py = cache.py();
        let above = cache.get().open(py)?;
        let table = above.shared.store.cache.table(name, options_of(max_bytes, ttl, idle)?);
        let too_many = "a cache has at most 65535 tables at one time, dropped ones that are still held included: drop those \
                        that are not needed";
        let too_many = || exception(&py.get_type::<PyOverflowError>(), too_many);
        let table = table.ok_or_else(too_many)?;
        let (shared, root) = (Arc::clone(&above.shared), Some(cache.clone().unbind()));
        self.begin(py, Inner { shared, table, root })
    }

    /// Tells the class of the results of put(), when it was just made: its three members in order.
    #[staticmethod]
    fn _results(py: Python<'_>, results: [Py<PyAny>; 3]) {
        // SAFETY: called by `gabion.cache` right below the class, and other threads wait for the end of its import.
        unsafe { set_results(py, results) };
    }

    /// Raises what put() would raise for these keywords; a ttl may be a function.
    #[staticmethod]
    fn _check_put(
        ttl: &Bound<'_, PyAny>,
        idle: &Bound<'_, PyAny>,
        expires_at: &Bound<'_, PyAny>,
        priority: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        if !ttl.is_callable() {
            options::span("ttl", ttl)?;
        }
        options::span("idle", idle)?;
        if !expires_at.is_none() {
            time::moment("expires_at", expires_at)?;
        }
        options::priority(priority)?;
        Ok(())
    }

    /// The seconds that a call may wait; None without end.
    #[staticmethod]
    #[pyo3(signature = (name, value, /))]
    fn _seconds(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Option<f64>> {
        Ok(options::timeout(name, value)?.map(|timeout| timeout.as_secs_f64()))
    }

    fn __getitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let py = key.py();
        self.open(py)?.build(py, key)?.ok_or_else(|| missing(key))
    }

    fn __setitem__(&self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.open(key.py())?.store(key, value, &PutOptions::default(), false).map(drop)
    }

    fn __delitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = key.py();
        if self.open(py)?.remove(key)? {
            return Ok(());
        }
        Err(missing(key))
    }

    fn __contains__(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.open(key.py())?.has(key)
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.open(py)?.table.len() as usize)
    }

    /// True, even when it is empty: `if cache:` asks whether there is one.
    fn __bool__(&self) -> bool {
        true
    }

    /// As _look(), for whoever makes the value: a table that was dropped has none.
    #[pyo3(signature = (key, default, /))]
    fn _look_making(&self, key: &Bound<'_, PyAny>, default: Py<PyAny>) -> PyResult<Py<PyAny>> {
        Ok(self.making(key.py())?.look(key.py(), key)?.unwrap_or(default))
    }

    /// The key's value or default; counts neither as a hit nor as a miss.
    #[pyo3(signature = (key, default, /))]
    fn _look(&self, key: &Bound<'_, PyAny>, default: Py<PyAny>) -> PyResult<Py<PyAny>> {
        Ok(self.open(key.py())?.look(key.py(), key)?.unwrap_or(default))
    }

    /// A lease of a key, whose value is about to be made.
    #[pyo3(signature = (key, /))]
    fn _lease(&self, key: &Bound<'_, PyAny>) -> PyResult<CacheLease> {
        flights::lease(self.making(key.py())?, key)
    }

    /// Store a value that was made under a lease, if that holds; as_put are the keywords of put(). Returns the value as
    /// bytes, for _rebuild(), if they are wanted.
    #[pyo3(signature = (key, value, lease, as_put, wanted, /))]
    fn _keep<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        value: &Bound<'py, PyAny>,
        lease: &CacheLease,
        as_put: &Bound<'py, PyDict>,
        wanted: bool,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let (inner, options) = (self.making(key.py())?, options::of_made(as_put, value)?);
        key::with(key, |key| flights::keep(inner, key, value, (lease, wanted), options.as_ref()))
    }

    /// The value that _keep() made bytes of, built anew.
    #[pyo3(signature = (encoding, /))]
    fn _rebuild(&self, encoding: &Bound<'_, PyBytes>) -> PyResult<Py<PyAny>> {
        let py = encoding.py();
        self.making(py)?.shared.codec.decode(py, encoding.as_bytes())
    }

    /// What change() does for a key that has a value. Returns the new one, kept or not; `missing` when there was none.
    #[pyo3(signature = (key, function, missing, /))]
    fn _change(&self, key: &Bound<'_, PyAny>, function: &Bound<'_, PyAny>, missing: Py<PyAny>) -> PyResult<Py<PyAny>> {
        let py = key.py();
        let inner = self.open(py)?;
        let (table, codec) = (&inner.table, &inner.shared.codec);
        key::with(key, |name| {
            let mut buf = ReadBuf::new();
            for _ in 0..CHANGES {
                inner.check(py)?;
                let Some(old) = table.peek(name, &mut buf) else {
                    return Ok(nothing(py, &buf)?.unwrap_or(missing));
                };
                let value = codec.decode(py, old).map_err(|error| not_built(error, key))?;
                let length = old.len();
                let new = changed(function, value.bind(py), PUT_NONE)?;
                let former = former(&mut buf, length);
                let changed = inner.encoded(&new, |new| Ok(table.replace_if(name, former.clone(), new)))?;
                if changed.is_some() {
                    inner.check_after_put(py, name)?;
                    return Ok(new.unbind());
                }
            }
            let text = format!(
                "the key's value was replaced each of the {CHANGES} times that change() called the function: it must not put \
                 anything under the key itself, and must be quick"
            );
            Err(exception(&py.get_type::<PyRuntimeError>(), &text))
        })
    }

    /// What change() puts for a key without a value: what the function makes of the default.
    #[staticmethod]
    #[pyo3(signature = (function, default, /))]
    fn _changed<'py>(function: &Bound<'py, PyAny>, default: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        changed(function, default, PUT_NONE)
    }

    /// Notes which key of put_many() an error is about.
    #[staticmethod]
    #[pyo3(signature = (error, key, /))]
    fn _tell_key(error: &Bound<'_, PyAny>, key: &Bound<'_, PyAny>) {
        let error = PyErr::from_value(error.clone());
        tell_key(&error, key, |key| format!("key {key}, of those passed to put_many()"));
    }

    /// Restart the time of the key's value with ttl (seconds, text such as '5 min', or a timedelta), this once; by
    /// default with the one that it was put with, or the table's. Its idle time restarts too. A value that was put with
    /// expires_at, or without a time to live, keeps the end that it has if no ttl is given here. False when there is no
    /// value, or no room for the end of one that had none; it stays as it was then.
    #[pyo3(signature = (key, /, ttl = None))]
    fn touch(&self, key: &Bound<'_, PyAny>, ttl: Option<&Bound<'_, PyAny>>) -> PyResult<bool> {
        let inner = self.open(key.py())?;
        let span = ttl.map_or(Ok(Span::Table), |ttl| options::span("ttl", ttl))?;
        inner.watch(span != Span::Table);
        key::with(key, |key| Ok(inner.table.touch(key, span)))
    }

    /// Bytes that the key's entry takes of max_bytes: key, value, header, rounding, and its part of the index. Those of
    /// all entries add up to stats().bytes. Counts as no use. Raises KeyError when there is no value.
    ///
    /// >>> import gabion
    /// >>> cache = gabion.Cache("64 MiB")
    /// >>> cache["stone"] = b"x" * 1000
    /// >>> 1000 < cache.size_of("stone") == cache.stats().bytes
    /// True
    #[pyo3(signature = (key, /))]
    fn size_of(&self, key: &Bound<'_, PyAny>) -> PyResult<Figure> {
        let inner = self.open(key.py())?;
        let size = key::with(key, |key| Ok(inner.table.size_of(key)))?;
        size.map(Figure).ok_or_else(|| missing(key))
    }

    /// The values of many keys, as a dict without the missing ones, each built anew. Faster than single gets in a cache
    /// that is larger than the processor's, because memory is prefetched. Takes time linear in the keys and values.
    ///
    /// >>> import gabion
    /// >>> cache = gabion.Cache("64 MiB")
    /// >>> cache.put_many({"one": 1, "two": 2})
    /// 2
    /// >>> cache.get_many(["one", "two", "three"])
    /// {'one': 1, 'two': 2}
    #[pyo3(signature = (keys, /))]
    fn get_many<'py>(&self, keys: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
        many::get(self, keys)
    }

    /// Remove many keys. Returns how many there were.
    #[pyo3(signature = (keys, /))]
    fn remove_many(&self, keys: &Bound<'_, PyAny>) -> PyResult<Figure> {
        many::remove(self, keys)
    }

    /// The keys, as a list.
    fn _keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let (mut keys, inner) = (Vec::new(), self.open(py)?);
        inner.shared.apart(py, || inner.table.for_each_key(|key| keys.push(key.to_vec())));
        let (list, mut yields) = (result::list(py)?, YieldBudget::new());
        for bytes in keys {
            list.append(key::read(py, &bytes)?)?;
            yields.step(py, bytes.len())?;
        }
        Ok(list)
    }

    /// A key as bytes, equal for equal keys.
    #[pyo3(signature = (key, /))]
    fn _key<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        let py = key.py();
        key::with(key, |key| result::bytes(py, key))
    }

    /// What get_or_put() does for a key that is not there, for any factory; as_put are the keywords of put(). One miss
    /// is counted already; nothing more is.
    #[pyo3(signature = (key, factory, as_put, deadline, /))]
    fn _make(
        slf: &Bound<'_, Self>,
        key: &Bound<'_, PyAny>,
        factory: &Bound<'_, PyAny>,
        as_put: &Bound<'_, PyDict>,
        deadline: Py<PyAny>,
    ) -> PyResult<Py<PyAny>> {
        key::with(key, |key| making::make(slf, key, factory, deadline, |made| options::of_made(as_put, made)))
    }

    /// What makes the value of a key that has none: its begin(), keep() and end() are called around the factory.
    #[pyo3(signature = (key, deadline, /))]
    fn _making(slf: &Bound<'_, Self>, key: &Bound<'_, PyAny>, deadline: Py<PyAny>) -> PyResult<Making> {
        key::with(key, |key| Making::new(slf, key, deadline, false))
    }

    /// As _making(), for _call_key(args, kwargs).
    #[pyo3(signature = (args, kwargs, deadline, /))]
    fn _making_call(
        slf: &Bound<'_, Self>,
        args: &Bound<'_, PyAny>,
        kwargs: &Bound<'_, PyAny>,
        deadline: Py<PyAny>,
    ) -> PyResult<Making> {
        with_key(|key| {
            arguments::write(args, kwargs, key)?;
            Making::new(slf, key, deadline, true)
        })
    }

    /// The key of a call with these arguments: an object that stands for them. If kwargs is None, args is what a
    /// function of the arguments returned, and that stands for them.
    #[staticmethod]
    #[pyo3(signature = (args, kwargs, /))]
    fn _call_key<'py>(args: &Bound<'py, PyAny>, kwargs: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let mut bytes = Vec::new();
        arguments::write(args, kwargs, &mut bytes)?;
        key::read(args.py(), &bytes)
    }

    /// The table's name; "" for the cache's own entries.
    #[getter]
    fn name<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyString>> {
        result::text(py, self.made(py)?.table.name())
    }

    /// How the table was made: its limit in bytes, and its ttl and idle time in seconds.
    fn _settings<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        settings(py, &self.open(py)?.table.options())
    }

    /// As _settings(), of a table that would be made with these.
    #[staticmethod]
    fn _settings_of<'py>(
        py: Python<'py>,
        max_bytes: Option<&Bound<'py, PyAny>>,
        ttl: Option<&Bound<'py, PyAny>>,
        idle: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        settings(py, &options_of(max_bytes, ttl, idle)?)
    }

    /// Calls `begin` with the names and settings of all tables but the cache's own and those whose names begin with
    /// `leave_out`, and then hands out each entry of these and of the cache's own with all that stands with it: see
    /// `saving`. Returns how many were taken.
    #[pyo3(signature = (leave_out, begin, take, refuse, /))]
    fn _each(
        &self,
        leave_out: &str,
        begin: &Bound<'_, PyAny>,
        take: &Bound<'_, PyAny>,
        refuse: &Bound<'_, PyAny>,
    ) -> PyResult<Figure> {
        let py = take.py();
        let inner = self.open(py)?;
        let mut tables = inner.shared.store.cache.tables();
        tables.retain(|table| !table.name().starts_with(leave_out));
        let described = result::list(py)?;
        // The first is the cache's own.
        for table in &tables[1..] {
            described.append((result::text(py, table.name())?, settings(py, &table.options())?))?;
        }
        begin.call1((described,))?;
        saving::each(inner, &tables, take, refuse).map(Figure)
    }

    /// Takes in what _each() has handed out, and returns whether it was stored.
    #[pyo3(signature = (entry, /))]
    fn _take_in(&self, entry: &Bound<'_, PyAny>) -> PyResult<bool> {
        saving::take_in(self.open(entry.py())?, entry)
    }

    /// The names of all tables; the first is the cache's own, "".
    fn _table_names<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let (tables, names) = (self.made(py)?.shared.store.cache.tables(), result::list(py)?);
        tables.iter().try_for_each(|table| names.append(result::text(py, table.name())?))?;
        Ok(names)
    }

    fn _clear_table(&self, py: Python<'_>) -> PyResult<Figure> {
        let Inner { shared, table, .. } = self.open(py)?;
        Ok(Figure(shared.apart(py, || table.clear())))
    }

    fn _clear_all(&self, py: Python<'_>) -> PyResult<Figure> {
        let shared = &self.open(py)?.shared;
        Ok(Figure(shared.apart(py, || shared.store.cache.clear())))
    }

    #[pyo3(signature = (name, /))]
    fn _drop_table(&self, py: Python<'_>, name: &str) -> PyResult<bool> {
        let shared = &self.open(py)?.shared;
        Ok(shared.apart(py, || shared.store.cache.drop_table(name)))
    }

    fn _expire(&self, py: Python<'_>) -> PyResult<Figure> {
        let shared = &self.open(py)?.shared;
        Ok(Figure(shared.apart(py, || shared.store.cache.expire())))
    }

    fn _set_max_bytes(&self, py: Python<'_>, max_bytes: &Bound<'_, PyAny>) -> PyResult<()> {
        self.open(py)?;
        let max_bytes = size::limit(max_bytes, "entries", LEAST)?;
        // The value's own code may have closed the cache.
        let shared = &self.open(py)?.shared;
        let set = shared.apart(py, || shared.store.cache.set_max_bytes(max_bytes));
        set.map_err(|error| {
            let made_for = shared.store.cache.made_for();
            let text = if max_bytes > made_for {
                format!(
                    "max_bytes={max_bytes}: the cache was made with {made_for} and takes no more than that; make it \
                     with the most that it may ever take, and set less at once"
                )
            } else {
                format!(
                    "max_bytes={max_bytes}: the tables that lead to the index of a cache made with {made_for} take more \
                     than that: {error}"
                )
            };
            value_error(py, &text)
        })
    }

    fn _table_stats(&self, py: Python<'_>) -> PyResult<CacheStats> {
        Ok(cache_stats(&self.open(py)?.table.stats()))
    }

    /// Names and figures of so many tables with the most bytes, without the cache's own, the largest first.
    #[pyo3(signature = (most, /))]
    fn _largest_tables<'py>(&self, py: Python<'py>, most: usize) -> PyResult<Bound<'py, PyList>> {
        let tables = self.open(py)?.shared.store.cache.tables().into_iter().filter(|table| !table.name().is_empty());
        let mut tables: Vec<_> = tables.map(|table| (table.stats(), table)).collect();
        tables.sort_by_key(|(stats, _)| Reverse(stats.bytes));
        let largest = result::list(py)?;
        for (stats, table) in tables.into_iter().take(most) {
            let stats = Bound::new(py, cache_stats(&stats))?.into_any();
            largest.append(result::pair(result::text(py, table.name())?.into_any(), stats)?)?;
        }
        Ok(largest)
    }

    fn _total_stats(&self, py: Python<'_>) -> PyResult<CacheStats> {
        Ok(cache_stats(&self.open(py)?.shared.store.cache.stats()))
    }

    #[pyo3(signature = (callback, /))]
    fn _on_evict(&self, py: Python<'_>, callback: Option<Py<PyAny>>) -> PyResult<()> {
        let shared = &self.open(py)?.shared;
        let listens = callback.is_some();
        let weak = Arc::downgrade(shared);
        let notify = move |gone: &Departure<'_>| Shared::notify_evicted(&weak, gone);
        let listener = listens.then(|| Arc::new(notify) as _);
        let mut place = shared.callback.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *place, callback);
        // In one step: of two threads that call this, both would have their way in part.
        shared.store.heard.store(listens, Ordering::Relaxed);
        shared.store.cache.on_departure(listener);
        drop(place);
        // Whose end may run anything, and so call this.
        drop(before);
        Ok(())
    }

    /// Closing what was never set up does nothing, as closing twice does: __del__ and finally may call it in any case.
    fn _close(&self, py: Python<'_>) {
        let Some(Inner { shared, .. }) = self.inner() else { return };
        if !shared.closed.swap(true, Ordering::AcqRel) {
            shared.apart(py, || shared.store.cache.clear());
            // Nothing is left that classes would be needed for.
            shared.codec.end();
        }
    }

    /// Raises what a call would that needs the cache.
    fn _check(&self, py: Python<'_>) -> PyResult<()> {
        self.open(py).map(drop)
    }

    /// True after close(), or when the table was dropped.
    #[getter]
    fn closed(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.made(py)?.is_closed())
    }

    /// Check every equation of the cache's structure; raises AssertionError with the first that does not hold. For
    /// tests.
    fn validate(&self, py: Python<'_>) -> PyResult<()> {
        let store = &self.open(py)?.shared.store;
        through_gate(py, || store.cache.validate())
            .map_err(|wrong| exception(&py.get_type::<PyAssertionError>(), &wrong.0))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        let Some(Inner { shared, root, .. }) = self.inner() else { return Ok(()) };
        if let Some(root) = root {
            return visit.call(root);
        }
        shared.codec.traverse(&visit)?;
        match shared.callback.try_lock() {
            Ok(callback) => visit.call(&*callback),
            Err(_) => Ok(()),
        }
    }

    fn __clear__(&self) {
        // A table keeps its cache; the cache is what ends a cycle.
        if let Some(Inner { shared, root: None, .. }) = self.inner() {
            shared.codec.clear();
            let callback = shared.callback.lock().unwrap_or_else(PoisonError::into_inner).take();
            drop(callback);
        }
    }
}

/// What a table is to be made with.
fn options_of(
    max_bytes: Option<&Bound<'_, PyAny>>,
    ttl: Option<&Bound<'_, PyAny>>,
    idle: Option<&Bound<'_, PyAny>>,
) -> PyResult<TableOptions> {
    let max_bytes = max_bytes.map(|value| size::limit(value, "entries", LEAST)).transpose()?;
    let (ttl, idle) = (options::of_table("ttl", ttl)?, options::of_table("idle", idle)?);
    Ok(TableOptions { max_bytes, ttl, idle })
}

/// What a table was made with, as Python sees it.
fn settings<'py>(py: Python<'py>, options: &TableOptions) -> PyResult<Bound<'py, PyTuple>> {
    let none = || py.None().into_bound(py);
    let span = |span: Option<Duration>| match span {
        Some(span) => PyResult::Ok(result::float(py, span.as_secs_f64())?.into_any()),
        None => Ok(none()),
    };
    let limit = options.max_bytes.map_or_else(|| Ok(none()), |bytes| result::number(py, bytes))?;
    result::tuple(py, [limit, span(options.ttl)?, span(options.idle)?].into_iter())
}

impl CacheTable {
    /// Sets it up; the sweeper looks at it if its values end by themselves.
    fn begin(&self, py: Python<'_>, inner: Inner) -> PyResult<()> {
        let TableOptions { ttl, idle, .. } = inner.table.options();
        self.set_up(py, inner)?;
        self.made(py)?.watch(ttl.is_some() || idle.is_some());
        Ok(())
    }
}
