//! The right to make a key's value, and to store it unless the key is changed meanwhile.

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

use crate::core::Core;
use crate::key::KeyHash;
use crate::record::Record;

/// The right to store a value that is being made: [`Table::lease`](crate::Table::lease) takes it,
/// [`Table::put_made`](crate::Table::put_made) uses it.
///
/// It ends when another puts, replaces or removes the key's value, clears the table, or takes a newer lease of the key;
/// what is evicted or expires ends nothing. It lies outside of the cache's limit, some 60 bytes until it is dropped.
#[must_use = "it ends when it is dropped"]
pub struct Lease {
    core: Arc<Core>,
    taken: (KeyHash, u64),
}

// As the table that it is of.
impl UnwindSafe for Lease {}
impl RefUnwindSafe for Lease {}

impl Lease {
    pub(crate) fn new(core: &Arc<Core>, record: &Record, key: &[u8]) -> Self {
        Self { core: Arc::clone(core), taken: core.lease(record, key) }
    }

    /// The number to show for it, to the cache that it is of.
    pub(crate) fn number(&self, core: &Arc<Core>) -> Option<u64> {
        Arc::ptr_eq(&self.core, core).then_some(self.taken.1)
    }

    /// Whether nothing has ended it yet.
    pub fn holds(&self) -> bool {
        self.core.holds(self.taken)
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("holds", &self.holds()).finish_non_exhaustive()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.core.end_lease(self.taken);
    }
}
