//! Another limit while the cache is in use.

use std::sync::atomic::Ordering::Relaxed;

use gabion_blocks::BlockError;

use super::core::Core;
use super::room::Effort;
use crate::budget::{credit_of, memory_of};

/// Entries that leave a shard before it is the next one's turn.
const BATCH: usize = 64;

impl Core {
    /// Sets the limit, and lets entries go until they keep to it.
    ///
    /// # Errors
    /// [`BlockError::Limit`] when it is more than the cache was made for, or less than the tables take that lead to its
    /// index: then nothing is changed.
    pub fn set_limit(&self, limit: u64) -> Result<(), BlockError> {
        let (ground, memory) = (self.ground(), memory_of(limit));
        if limit > self.made_for {
            return Err(BlockError::Limit { asked: limit, used: 0, limit: self.made_for });
        }
        if memory < ground.fixed {
            return Err(BlockError::Limit { asked: ground.fixed, used: 0, limit: memory });
        }
        {
            // All locks at one time, in their order: no put is between its look at the limit and what it takes.
            let mut all: Vec<_> = (0..self.shard_count()).map(|shard| self.lock_only(shard)).collect();
            ground.ledger.used.set_limit(limit);
            // Relaxed: the locks order it, and who reads it without them has what was before.
            ground.most_credit.store(credit_of(limit, ground.shards), Relaxed);
            for locked in &mut all {
                locked.return_credit();
            }
            ground.pile.set_max_bytes(Some(memory));
        }
        self.shed_bytes();
        self.shed_pages();
        Ok(())
    }

    /// Lets entries go until the others keep to the limit in bytes.
    fn shed_bytes(&self) {
        let used = &self.ground().ledger.used;
        let is_over = || used.used() > used.limit();
        while is_over() {
            if !self.evict_in_turn(is_over) && self.forget_ghosts() == 0 {
                // What is charged is in others' hands.
                std::thread::yield_now();
            }
        }
    }

    /// Gives pages up until the cache takes no more of them than the limit leaves: first those whose entries find room
    /// in others, then those of entries that go.
    fn shed_pages(&self) {
        let memory = &self.ground().memory;
        let mut effort = Effort::default();
        while memory.used() > memory.limit() {
            if self.move_sparse(&mut effort) || self.clear_any_page(&mut effort) || self.shrink_index() > 0 {
                continue;
            }
            if !self.evict_in_turn(|| true) {
                return;
            }
            effort.cleared = 0;
        }
    }

    /// Has each shard give up what it does not use, and evict some entries of the lowest priority that there is, while
    /// `more` says so. False when there was nothing.
    fn evict_in_turn(&self, more: impl Fn() -> bool) -> bool {
        let mut gave = false;
        for shard in 0..self.shard_count() {
            let mut locked = self.lock(shard);
            gave |= locked.return_credit() > 0;
            for _ in 0..BATCH {
                let lowest = self.ledger().priorities.lowest(i8::MAX);
                if !more() || !lowest.is_some_and(|lowest| locked.evict(lowest, None)) {
                    break;
                }
                locked.return_credit();
                gave = true;
            }
            self.unlock(locked);
        }
        gave
    }
}
