//! Many keys in one call. Other threads run meanwhile, and signals are handled.

use std::collections::VecDeque;

use gabion_cache::Foreseen;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyIterator};

use super::key;
use super::state::CacheTable;
use crate::argument::not_iterable;
use crate::figures::Figure;
use crate::result;
use crate::yield_budget::YieldBudget;

/// How many keys ahead the index is asked for, and how many ahead entries: each enough to cover a memory access with
/// the building of values.
const AHEAD: usize = 16;
const ENTRIES_AHEAD: usize = 8;

/// Goes through keys.
fn each<'py>(keys: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyIterator>> {
    keys.try_iter().map_err(|error| not_iterable(error, keys, "keys are passed as an iterable of them"))
}

/// `Table.get_many`
pub(super) fn get<'py>(this: &CacheTable, keys: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
    let py = keys.py();
    let table = &this.open(py)?.table;
    let found = result::dict(py)?;
    let mut waiting: VecDeque<(Bound<'py, PyAny>, Option<Foreseen>)> = VecDeque::with_capacity(AHEAD + 1);
    let mut yields = YieldBudget::new();
    let mut take = |key: Bound<'py, PyAny>| {
        let Some((value, length)) = this.open(py)?.build_sized(py, &key)? else { return yields.step(py, 0) };
        found.set_item(key, value)?;
        yields.step(py, length)
    };
    for key in each(keys)? {
        let key = key?;
        let foreseen = key::with_short(&key, |bytes| table.foresee(bytes));
        waiting.push_back((key, foreseen));
        if let Some(&(_, Some(next))) = waiting.get(ENTRIES_AHEAD) {
            table.foresee_entry(next);
        }
        if waiting.len() > AHEAD
            && let Some((key, _)) = waiting.pop_front()
        {
            take(key)?;
        }
    }
    for &next in waiting.iter().filter_map(|(_, foreseen)| foreseen.as_ref()) {
        table.foresee_entry(next);
    }
    for (key, _) in waiting {
        take(key)?;
    }
    yields.end(py)?;
    Ok(found)
}

/// `Table.remove_many`
pub(super) fn remove(this: &CacheTable, keys: &Bound<'_, PyAny>) -> PyResult<Figure> {
    let (py, mut removed, mut yields) = (keys.py(), 0, YieldBudget::new());
    this.open(py)?;
    for key in each(keys)? {
        removed += u64::from(this.open(py)?.remove(&key?)?);
        yields.step(py, 0)?;
    }
    Ok(Figure(removed))
}
