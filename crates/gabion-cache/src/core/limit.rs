//! Another limit while the cache is in use.

use std::sync::atomic::Ordering::Relaxed;

use gabion_blocks::{BlockError, PAGE_BYTES};

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

    /// Gives pages up until the cache takes no more of them than the limit leaves: first what the pile keeps warm, then
    /// those whose entries find room in others, and then those of entries that go, about a page's worth at a time.
    fn shed_pages(&self) {
        let (memory, used) = (&self.ground().memory, &self.ground().ledger.used);
        let is_over = || memory.used() > memory.limit();
        while is_over() {
            self.pile().release_warm();
            // Anew each time: what was cleared or moved has freed a page.
            let mut effort = Effort::default();
            if self.move_sparse(&mut effort) || self.clear_any_page(&mut effort) || self.shrink_index() > 0 {
                continue;
            }
            let before = used.used();
            if !self.evict_in_turn(|| is_over() && used.used() + PAGE_BYTES as u64 > before) {
                return;
            }
        }
    }

    /// Has each shard give up what it does not use, and evict some entries of the lowest priority that there is, while
    /// `more` says so. False when there was nothing.
    fn evict_in_turn(&self, more: impl Fn() -> bool) -> bool {
        // Relaxed: any shard is as good as another.
        let (start, count) = (self.next.fetch_add(1, Relaxed), self.shard_count());
        let mut gave = false;
        for shard in (0..count).map(|step| (start + step) % count) {
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
