//! `gabion.Pile`: the pile of live Python objects.
//!
//! | room | what it holds |
//! |---|---|
//! | `refusal` | the pile's errors as Python exceptions |
//! | `scratch` | buffers that a thread reuses from call to call |
//! | `number` | pointers as Python passes them: ints, arrays, iterables |
//! | `stats` | `gabion.PileStats` |
//! | `view` | what stands behind the memoryview of `Pile.view` |
//! | `class`, with `iterator` and `many` | the class, its everyday methods, iteration, many objects in one call |
//! | `hot` | `put`, `get`, `replace`, `remove`, written against the C API |

mod refusal;

mod scratch;

mod number;

mod stats;

mod view;

mod class;

mod iterator;

mod many;

mod hot;

use pyo3::prelude::*;

/// Adds the classes to the extension module.
pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<class::Pile>()?;
    m.add_class::<stats::PileStats>()?;
    hot::install(&m.py().get_type::<class::Pile>())
}
