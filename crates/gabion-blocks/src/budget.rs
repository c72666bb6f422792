//! A byte budget that several threads draw on.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::BlockError;

/// Bytes that may be in use at most, and how many are.
///
/// `used ≤ limit` at every instant for what [`Budget::take`] granted; lowering the limit takes nothing back, and what
/// was there before counts all the same.
#[derive(Debug)]
pub struct Budget {
    limit: AtomicU64,
    used: AtomicU64,
}

impl Budget {
    /// A budget of `limit` bytes.
    pub fn new(limit: u64) -> Self {
        Self { limit: AtomicU64::new(limit), used: AtomicU64::new(0) }
    }

    /// Draws `bytes`.
    ///
    /// # Errors
    /// [`BlockError::Limit`] when the budget does not hold them; nothing is drawn then.
    pub fn take(&self, bytes: u64) -> Result<(), BlockError> {
        let limit = self.limit();
        // Relaxed: the number is the whole message, no other memory is published by it.
        let taken = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            used.checked_add(bytes).filter(|&sum| sum <= limit)
        });
        taken.map(|_| ()).map_err(|used| BlockError::Limit { asked: bytes, used, limit })
    }

    /// Adds bytes that are in use already, even beyond the limit.
    pub fn charge(&self, bytes: u64) {
        // Relaxed: as in `take`.
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns `bytes` drawn before.
    pub fn give(&self, bytes: u64) {
        let before = self.used.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "more returned than drawn");
    }

    /// Bytes in use.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Bytes that may still be drawn.
    pub fn room(&self) -> u64 {
        self.limit().saturating_sub(self.used())
    }

    /// The limit in bytes.
    pub fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Sets the limit. What is in use beyond it stays; only further draws are refused.
    pub fn set_limit(&self, limit: u64) {
        self.limit.store(limit, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_to_the_byte_from_many_threads() {
        let budget = Budget::new(1000);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        if budget.take(300).is_ok() {
                            assert!(budget.used() <= 1000);
                            budget.give(300);
                        }
                    }
                });
            }
        });
        assert_eq!(budget.used(), 0);
        assert_eq!(budget.take(1001), Err(BlockError::Limit { asked: 1001, used: 0, limit: 1000 }));
        assert!(budget.take(u64::MAX).is_err());
        assert!(budget.take(1000).is_ok());
    }
}
