//! What `gabion.Cache` and its tables stand on.
//!
//! | module | what it holds |
//! |---|---|
//! | `key` | keys as bytes, equal where the keys are |
//! | `arguments` | calls as keys |
//! | `shared` | a cache and what its tables share |
//! | `sweeper` | the thread that removes what has expired from caches that no call visits |
//! | `stats` | `gabion.CacheStats` |
//! | `options` | what the keywords of puts say |
//! | `state` | the class that `gabion.Table` and `gabion.Cache` are made of |
//! | `flights` | a value that is being made: in one step, what must not be interrupted |
//! | `making` | the value of a key that has none: who runs the factory, and what becomes of the value |
//! | `many` | many keys in one call |
//! | `saving` | entries that outlast their cache |
//! | `testing` | time that passes for tests |
//! | `table` | the everyday methods |
//! | `hot` | `get`, `put`, `add`, `get_or_put`, `pop`, `expires_in`, `discard`, a memoized function's look; written against the C API |

mod key;

mod arguments;

mod shared;

mod sweeper;

mod stats;

mod options;

mod state;

mod flights;

mod making;

mod many;

mod saving;

mod testing;

mod table;

mod hot;

use pyo3::prelude::*;

use crate::subclass_dealloc::free_with_last_instance;

/// Adds the classes to the extension module.
pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    free_with_last_instance(&m.py().get_type::<state::CacheTable>());
    m.add_class::<state::CacheTable>()?;
    m.add_class::<stats::CacheStats>()?;
    sweeper::register(m)?;
    flights::register(m)?;
    m.add_class::<making::Making>()?;
    m.add_function(wrap_pyfunction!(testing::_advance, m)?)?;
    hot::install(&m.py().get_type::<state::CacheTable>())
}
