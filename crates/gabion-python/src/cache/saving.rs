//! Entries that outlast their cache: handed out with all that stands with them, and taken in.
//!
//! As tuples of plain objects, because they lie in files: `(table, key, value, ends_at, expires_at, idle, touch,
//! priority)`.
//!
//! | field | meaning |
//! |---|---|
//! | `table` | its place in the list of tables that `begin` of `_each()` was given, from 1 on; 0 is the cache's own |
//! | `ends_at` | when the value ends if nobody uses it; None is never |
//! | `expires_at` | of a value with an idle time, when it ends however often it is used; None is never |
//! | `idle` | how long it lives unused; None is without end |
//! | `touch` | the time to live that touch() restarts: None is the table's, -1 none |
//!
//! Times are milliseconds since 1970, spans are milliseconds.

use std::ops::ControlFlow;
use std::time::Duration;

use gabion_cache::{PutResult, ReadBuf, Span, Table, Terms};
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

use super::key;
use super::state::{Inner, nothing};
use crate::result;
use crate::yield_budget::YieldBudget;

/// A touch that restarts no time to live.
const NONE: i64 = -1;

type Entry<'py> =
    (Bound<'py, PyAny>, Bound<'py, PyAny>, Bound<'py, PyAny>, Option<u64>, Option<u64>, Option<u64>, Option<i64>, i8);

/// Calls `take` with each entry of some tables of a cache, which are called by their place among them, and `refuse`
/// with the error of one that cannot be built or taken. Returns how many were taken. Other threads run meanwhile.
pub(super) fn each(
    inner: &Inner,
    tables: &[Table],
    take: &Bound<'_, PyAny>,
    refuse: &Bound<'_, PyAny>,
) -> PyResult<u64> {
    let py = take.py();
    let (mut buf, mut yields, mut taken) = (ReadBuf::new(), YieldBudget::new(), 0);
    let mut attempt = |number: usize, key: &[u8]| -> PyResult<Option<usize>> {
        inner.check(py)?;
        let Some((value, terms)) = tables[number].peek_with_terms(key, &mut buf) else {
            return nothing(py, &buf);
        };
        let (value, length) = (inner.shared.codec.decode(py, value), value.len());
        // A long one counts in the cache's memory as long as it is held.
        buf.let_go();
        take.call1((entry(py, number, key, value?, &terms)?,))?;
        Ok(Some(length))
    };
    let mut one = |number: usize, key: &[u8]| -> PyResult<()> {
        match attempt(number, key) {
            Ok(None) => Ok(()),
            Ok(Some(length)) => {
                taken += 1;
                yields.step(py, length)
            }
            Err(error) => {
                // What a signal's handler raises, such as a task queue's time limit, is none of the entry's: that comes
                // once.
                let is_its_own = error.is_instance_of::<PyException>(py)
                    && attempt(number, key).is_err_and(|again| again.get_type(py).is(error.get_type(py)));
                // Its own code may have closed the cache.
                inner.check(py)?;
                if !is_its_own {
                    return Err(error);
                }
                refuse.call1((error.into_value(py),))?;
                yields.step(py, 0)
            }
        }
    };
    let mut failed = Ok(());
    inner.table.for_each_key_of(tables, |number, key| {
        failed = one(number, key);
        if failed.is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    failed?;
    yields.end(py)?;
    Ok(taken)
}

fn entry<'py>(
    py: Python<'py>,
    number: usize,
    key: &[u8],
    value: Py<PyAny>,
    terms: &Terms,
) -> PyResult<Bound<'py, PyAny>> {
    let millis = |time: Option<Duration>| match time {
        Some(time) => result::number(py, time.as_millis() as u64),
        None => Ok(py.None().into_bound(py)),
    };
    let touch = match terms.touch {
        Span::Table => millis(None)?,
        Span::Never => result::signed(py, NONE)?,
        Span::Of(own) => millis(Some(own))?,
    };
    let (ends, expires, idle) = (millis(terms.ends_at)?, millis(terms.expires_at)?, millis(terms.idle)?);
    let (key, priority) = (key::read(py, key)?, result::signed(py, terms.priority.into())?);
    let all = [result::number(py, number as u64)?, key, value.into_bound(py), ends, expires, idle, touch, priority];
    Ok(result::tuple(py, all.into_iter())?.into_any())
}

/// Stores what [`each`] has handed out, if its key has no value and its time is not over. Whether it was stored.
pub(super) fn take_in(inner: &Inner, entry: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = entry.py();
    let (_, key, value, ends, expires, idle, touch, priority): Entry<'_> = entry.extract()?;
    let span = |millis: Option<u64>| millis.map(Duration::from_millis);
    let touch = match touch {
        None => Span::Table,
        Some(own) => u64::try_from(own).map_or(Span::Never, |own| Span::Of(Duration::from_millis(own))),
    };
    let terms = Terms { ends_at: span(ends), expires_at: span(expires), idle: span(idle), touch, priority };
    key::with(&key, |key| {
        inner.encoded(&value, |value| {
            // The object's own code may have closed the cache.
            inner.check(py)?;
            let result = inner.table.add_with_terms(key, value, &terms);
            inner.watch(ends.is_some() || matches!(touch, Span::Of(_)));
            inner.check_after_put(py, key)?;
            Ok(result.is_some_and(PutResult::is_stored))
        })
    })
}
