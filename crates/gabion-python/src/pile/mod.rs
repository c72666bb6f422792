//! `gabion.Pile`: the pile of live Python objects.
//!
//! | module | what it holds |
//! |---|---|
//! | `refusal` | what a call can fail with, and how Python is told |
//! | `each` | going through an iterable |
//! | `number` | pointers as Python passes them: ints, arrays, iterables |
//! | `stats` | `gabion.PileStats` |
//! | `registry` | all piles that are open |
//! | `view` | what stands behind the memoryview of `Pile.view` |
//! | `file` | what a pile in a file keeps beside its objects |
//! | `contents` | what is in a pile's file, told without building objects |
//! | `state` | the class and what its methods are made of |
//! | `save` | a pile saved to a file |
//! | `iterator` | iteration over pointers, objects, or both |
//! | `many` | many objects in one call |
//! | `class` | the everyday methods |
//! | `hot` | `put`, `get`, `fields`, `replace`, `remove`, written against the C API |

mod refusal;

mod each;

mod number;

mod stats;

mod registry;

mod view;

mod file;

mod contents;

mod state;

mod save;

mod iterator;

mod many;

mod class;

mod hot;

pub(crate) use class::shards;
pub(crate) use refusal::not_made;

use pyo3::prelude::*;

use crate::once::make_class;
use crate::yield_budget;

/// Adds the classes to the extension module.
pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<state::Pile>()?;
    m.add_class::<stats::PileStats>()?;
    m.add_function(wrap_pyfunction!(registry::_piles, m)?)?;
    m.add_function(wrap_pyfunction!(contents::_pile_contents, m)?)?;
    many::array_maker(m.py())?;
    yield_budget::nothing(m.py())?;
    class::shards(m.py())?;
    make_class::<iterator::PileIterator>(m);
    make_class::<view::PileView>(m);
    hot::install(&m.py().get_type::<state::Pile>())
}
