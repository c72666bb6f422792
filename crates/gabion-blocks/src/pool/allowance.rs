//! Room below the pool's limits for memory that comes from elsewhere.

use std::fmt;

use super::shared::Shared;
use crate::error::BlockError;

/// Bytes that count for the pool's total limit, and that nothing is mapped for: what a library takes from `malloc`
/// beside the pool's own memory. They are free again when this is dropped.
pub struct Allowance {
    bytes: u64,
    shared: &'static Shared,
}

impl Allowance {
    /// How many bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Shared {
    /// Allows `bytes` bytes. Idle memory goes for them where the total limit asks for it; the pool's size is about
    /// memory of its own.
    ///
    /// # Errors
    /// [`BlockError::Total`].
    pub fn allow(&'static self, bytes: u64) -> Result<Allowance, BlockError> {
        self.draw(bytes, bytes)?;
        self.evict(self.emptied_beyond_limit(0));
        self.ledger.allow(bytes);
        Ok(Allowance { bytes, shared: self })
    }
}

impl fmt::Debug for Allowance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Allowance").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl Drop for Allowance {
    fn drop(&mut self) {
        // In this order: what is mapped is never taken for less than it is.
        self.shared.ledger.disallow(self.bytes);
        self.shared.ledger.give(self.bytes);
        self.shared.admission.room_made();
    }
}
