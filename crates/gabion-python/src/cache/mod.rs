//! What `gabion.Cache` and its tables stand on.
//!
//! | room | what it holds |
//! |---|---|
//! | `key` | keys as bytes, equal where the keys are |
//! | `shared` | a cache and what its tables share |
//! | `sweeper` | the thread that removes what has expired |
//! | `stats` | `gabion.CacheStats` |
//! | `table` | the class that `gabion.Table` and `gabion.Cache` are made of |

mod key;

mod shared;

mod sweeper;

mod stats;

mod table;

use pyo3::prelude::*;

/// Adds the classes to the extension module.
pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<table::CacheTable>()?;
    m.add_class::<stats::CacheStats>()
}
