//! Looking at the clock and at the system: what the policy does with both.

use std::time::Duration;

use super::policy::QUARTERS;
use super::pressure::Readings;
use super::settings::default_pool_bytes;
use super::shared::Shared;
use crate::ending::malloc_has;
use crate::sync::{Ordering, lock};

/// More than is taken of malloc to read what the system says.
const READING_BYTES: usize = 64 << 10;

impl Shared {
    /// Time since the pool was made.
    pub fn now(&self) -> Duration {
        self.born.elapsed()
    }

    /// Gives back what the policy has no use for at the time `now`; all that is idle, when memory is short. Returns
    /// bytes.
    pub fn look(&self, now: Duration) -> u64 {
        let tick = self.ticks.fetch_add(1, Ordering::Relaxed) + 1;
        // Memory is short then, and to ask the system how short would take some.
        if !malloc_has(READING_BYTES) {
            return self.give_all();
        }
        let period = self.follow_limits();
        if self.is_short() {
            self.trim_malloc(0, true);
            return self.give_all();
        }
        self.flush_unused_caches();
        let (quarters, before) = self.end_quarters(now, period, tick);
        self.trim_malloc(quarters, false);
        let freed = self.trim_excess();
        // What was not used for a whole period; nothing new can have become so within a quarter.
        if quarters > 0 { freed + self.decommit_pieces(before) } else { freed }
    }

    /// Whether the system is short of memory; notes whether it may soon be.
    pub fn is_short(&self) -> bool {
        if !malloc_has(READING_BYTES) {
            return true;
        }
        let readings = Readings::read(&self.root);
        // Relaxed: a hint for the trimmer.
        self.trimmer.near.store(readings.near(), Ordering::Relaxed);
        readings.tight()
    }

    /// Ends the policy's quarters that are over. Returns how many, and the tick of one period ago.
    fn end_quarters(&self, now: Duration, period: Duration, tick: u64) -> (u64, u64) {
        let mut watch = lock(&self.watch);
        let quarters = watch.quarters.ended(now, period);
        if quarters > 0 {
            let taken = self.taken();
            watch.demand.roll(quarters, self.ledger.next_mark(taken), taken);
            self.ledger.set_past(watch.demand.highest());
        }
        let before = watch.ends[watch.ends.len() - 1];
        for _ in 0..quarters.min(u64::from(QUARTERS)) {
            watch.ends.rotate_right(1);
            watch.ends[0] = tick;
        }
        (quarters, before)
    }

    /// Lets the pool's size follow the limits of this process, unless it was set. Returns the trim period.
    fn follow_limits(&self) -> Duration {
        let (follows, period) = {
            let settings = lock(&self.settings);
            (settings.follows, settings.trim_period)
        };
        if follows {
            let bytes = default_pool_bytes();
            let mut settings = lock(&self.settings);
            if settings.follows {
                settings.pool_bytes = bytes;
                self.publish(&settings);
            }
        }
        self.shrink();
        period
    }

    /// Gives back what is idle beyond the pool's size. Returns bytes.
    pub fn shrink(&self) -> u64 {
        let surplus = self.ledger.kept().saturating_sub(self.pool_bytes());
        if surplus == 0 {
            return 0;
        }
        self.flush_caches();
        self.evict(surplus)
    }

    /// Empties the caches that their threads have not used since the last look.
    fn flush_unused_caches(&self) {
        for cache in self.all_caches() {
            // An empty one is not opened: its thread would have to bias its lock again.
            if !cache.was_used() && cache.bytes() > 0 {
                self.flush(cache);
            }
        }
    }
}
