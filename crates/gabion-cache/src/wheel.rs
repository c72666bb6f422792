//! When entries end: a hierarchical timer wheel.
//!
//! Five rings of 64 buckets: 64 ms, 4 s, 4 min, 5 h and 12 days wide. An entry hangs in the bucket of its deadline on the
//! finest ring that reaches so far; when a coarse bucket's time comes, its entries move to finer rings (G. Varghese,
//! T. Lauck, "Hashed and hierarchical timing wheels", SOSP 1987). An entry whose deadline was put off meanwhile is hung
//! up again when its bucket comes due, so that a use of an entry with an idle time is one store.
//!
//! Deadlines are milliseconds since the cache was made. The wheel frees memory in time; whether a value may still be
//! given out is asked of the deadline itself, by each get.
//!
//! ```text
//! word 0   previous in the bucket (26) │ next (26) │ bucket (12)
//! word 1   deadline (42) │ idle time (22: 17 bits, shifted by 5 bits)
//! ```

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use gabion_blocks::BlockError;

use crate::pages::{Pages, Strip};
use crate::segments::{ID_BITS, MOST_IDS};

const RINGS: usize = 5;
const BUCKETS: u64 = 64;
/// A bucket of the finest ring is 2⁶ ms wide, each coarser one 64 times as wide.
const RING_BITS: u32 = 6;

const NO_ID: u32 = (1 << ID_BITS) - 1;
const ID: u64 = NO_ID as u64;
const DEADLINE_BITS: u32 = 42;
const DEADLINE: u64 = (1 << DEADLINE_BITS) - 1;
const MANTISSA_BITS: u32 = 17;
/// The end of time: 139 years.
pub(crate) const NEVER: u64 = DEADLINE;

/// A deadline and an idle time, both in milliseconds. The idle time loses what 17 bits cannot hold, downwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Due(u64);

impl Due {
    pub fn new(deadline: u64, idle: Option<u64>) -> Self {
        let code = idle.map_or(0, |idle| {
            let idle = idle.clamp(1, DEADLINE);
            let shift = (u64::BITS - idle.leading_zeros()).saturating_sub(MANTISSA_BITS);
            idle >> shift | u64::from(shift) << MANTISSA_BITS
        });
        Self(deadline.min(DEADLINE) | code << DEADLINE_BITS)
    }

    #[inline]
    pub fn deadline(self) -> u64 {
        self.0 & DEADLINE
    }

    #[inline]
    pub fn idle(self) -> Option<u64> {
        let code = self.0 >> DEADLINE_BITS;
        (code != 0).then(|| (code & ((1 << MANTISSA_BITS) - 1)) << (code >> MANTISSA_BITS))
    }

    /// With another deadline.
    pub fn until(self, deadline: u64) -> Self {
        Self(self.0 & !DEADLINE | deadline.min(DEADLINE))
    }
}

fn ring_shift(ring: usize) -> u32 {
    RING_BITS + RING_BITS * ring as u32
}

/// The deadlines of one shard's entries.
pub(crate) struct Dues {
    strip: Strip,
}

/// What only the lock's holder has of the wheel.
pub(crate) struct Wheel {
    heads: Box<[u32]>,
    /// The first entry of the bucket that is being looked through. Its entries still carry the number of the bucket that
    /// they were taken out of, so who is first is told by looking here first.
    due: u32,
    /// The next tick of each ring that was not looked at to its end.
    ticks: [u64; RINGS],
    /// The latest time that was seen.
    now: u64,
    /// Entries that hang here.
    pub entries: u64,
}

impl Default for Wheel {
    fn default() -> Self {
        Self { heads: Box::default(), due: NO_ID, ticks: [0; RINGS], now: 0, entries: 0 }
    }
}

impl Dues {
    pub fn new(pages: &Arc<Pages>, most: u64) -> Self {
        Self { strip: Strip::new(pages, 2, most.min(u64::from(MOST_IDS)) as usize) }
    }

    pub fn bytes(&self) -> u64 {
        self.strip.bytes()
    }

    /// Room for an entry's deadline.
    pub fn ensure(&self, id: u32) -> Result<(), BlockError> {
        self.strip.ensure(id as usize)
    }

    /// Gives back the room of ids from `end` on.
    pub fn shrink(&self, end: u32) {
        self.strip.shrink(end as usize);
    }

    /// What was set for an id last.
    #[inline]
    pub fn get(&self, id: u32) -> Due {
        // Acquire: pairs with `set`, so that a deadline is seen with the pointer that it belongs to, or an older one.
        self.strip.get(id as usize).get(1).map_or(Due(0), |word| Due(word.load(Acquire)))
    }

    /// Sets a deadline. Under the lock.
    pub fn set(&self, id: u32, due: Due) {
        // Release: see `get`.
        self.strip.get(id as usize)[1].store(due.0, Release);
    }

    /// Puts a deadline off, unless it was changed meanwhile.
    #[inline]
    pub fn put_off(&self, id: u32, seen: Due, deadline: u64) {
        if let Some(word) = self.strip.get(id as usize).get(1) {
            // Relaxed: the time of the latest use, which nothing else depends on.
            let _ = word.compare_exchange(seen.0, seen.until(deadline).0, Relaxed, Relaxed);
        }
    }

    fn links(&self, id: u32) -> (u32, u32, usize) {
        let word = self.strip.get(id as usize)[0].load(Relaxed);
        ((word & ID) as u32, (word >> ID_BITS & ID) as u32, (word >> (2 * ID_BITS)) as usize)
    }

    fn set_links(&self, id: u32, previous: u32, next: u32, bucket: usize) {
        let word = u64::from(previous) | u64::from(next) << ID_BITS | (bucket as u64) << (2 * ID_BITS);
        self.strip.get(id as usize)[0].store(word, Relaxed);
    }
}

impl Wheel {
    /// Hangs an entry up by its deadline.
    pub fn hang(&mut self, dues: &Dues, id: u32) {
        if self.heads.is_empty() {
            self.heads = vec![NO_ID; RINGS * BUCKETS as usize].into_boxed_slice();
        }
        let deadline = dues.get(id).deadline().max(self.now);
        let reaches = |ring: usize| (deadline >> ring_shift(ring)) - (self.now >> ring_shift(ring)) < BUCKETS;
        let ring = (0..RINGS - 1).find(|&ring| reaches(ring)).unwrap_or(RINGS - 1);
        // What lies beyond the coarsest ring is looked at again when that has gone round.
        let tick = (deadline >> ring_shift(ring)).min((self.now >> ring_shift(ring)) + BUCKETS - 1);
        let bucket = ring * BUCKETS as usize + (tick % BUCKETS) as usize;
        let next = self.heads[bucket];
        dues.set_links(id, NO_ID, next, bucket);
        if next != NO_ID {
            let (_, after, _) = dues.links(next);
            dues.set_links(next, id, after, bucket);
        }
        self.heads[bucket] = id;
        self.entries += 1;
    }

    /// Where the list begins that `id` is the first of.
    fn head(&mut self, id: u32, bucket: usize) -> &mut u32 {
        if self.due == id { &mut self.due } else { &mut self.heads[bucket] }
    }

    /// Takes an entry down.
    pub fn take(&mut self, dues: &Dues, id: u32) {
        let (previous, next, bucket) = dues.links(id);
        if previous == NO_ID {
            *self.head(id, bucket) = next;
        } else {
            let (before, _, _) = dues.links(previous);
            dues.set_links(previous, before, next, bucket);
        }
        if next != NO_ID {
            let (_, after, _) = dues.links(next);
            dues.set_links(next, previous, after, bucket);
        }
        self.entries -= 1;
    }

    /// Entry `from` is now known as `to`.
    pub fn renumber(&mut self, dues: &Dues, from: u32, to: u32) -> Result<(), BlockError> {
        dues.ensure(to)?;
        let (previous, next, bucket) = dues.links(from);
        dues.set(to, dues.get(from));
        dues.set_links(to, previous, next, bucket);
        if previous == NO_ID {
            *self.head(from, bucket) = to;
        } else {
            let (before, _, _) = dues.links(previous);
            dues.set_links(previous, before, to, bucket);
        }
        if next != NO_ID {
            let (_, after, _) = dues.links(next);
            dues.set_links(next, to, after, bucket);
        }
        Ok(())
    }

    /// The next entry whose deadline has passed, taken down. Looks at `steps` entries and buckets at most, and counts
    /// down; a time before the latest one seen changes nothing.
    pub fn next_due(&mut self, dues: &Dues, now: u64, steps: &mut usize) -> Option<u32> {
        if self.entries == 0 {
            self.catch_up(now);
            return None;
        }
        self.now = self.now.max(now);
        while *steps > 0 {
            *steps -= 1;
            let id = self.due;
            if id == NO_ID {
                if !self.turn() {
                    return None;
                }
                continue;
            }
            self.take(dues, id);
            if dues.get(id).deadline() <= self.now {
                return Some(id);
            }
            self.hang(dues, id);
        }
        None
    }

    /// Takes the next bucket whose time has come, coarse rings first; false when there is none.
    fn turn(&mut self) -> bool {
        for ring in (0..RINGS).rev() {
            let tick = self.now >> ring_shift(ring);
            // The finest ring's bucket of this moment also holds what is still to come.
            let end = if ring == 0 { tick } else { tick + 1 };
            self.ticks[ring] = self.ticks[ring].max(end.saturating_sub(BUCKETS));
            if self.ticks[ring] < end {
                let bucket = ring * BUCKETS as usize + (self.ticks[ring] % BUCKETS) as usize;
                self.due = std::mem::replace(&mut self.heads[bucket], NO_ID);
                self.ticks[ring] += 1;
                return true;
            }
        }
        false
    }

    fn catch_up(&mut self, now: u64) {
        self.now = self.now.max(now);
        for ring in 0..RINGS {
            self.ticks[ring] = self.now >> ring_shift(ring);
        }
    }

    /// Checks the lists; returns the ids that hang here.
    pub fn validate(&self, dues: &Dues) -> Result<Vec<u32>, String> {
        let mut found = Vec::new();
        for (bucket, &head) in self.heads.iter().chain([&self.due]).enumerate() {
            let (mut previous, mut id) = (NO_ID, head);
            while id != NO_ID {
                let (before, next, place) = dues.links(id);
                let elsewhere = place != bucket && bucket < self.heads.len();
                if before != previous || elsewhere || found.len() as u64 >= self.entries {
                    return Err(format!("entry {id} is not where bucket {bucket} has it"));
                }
                found.push(id);
                (previous, id) = (id, next);
            }
        }
        if found.len() as u64 == self.entries {
            Ok(found)
        } else {
            Err(format!("the wheel counts {} entries, {} found", self.entries, found.len()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_blocks::Budget;

    #[test]
    fn idle_times_keep_their_length() {
        for idle in [1, 2, 1000, 131_071, 131_072, 90_000_000, 31_536_000_000] {
            let due = Due::new(5, Some(idle));
            let kept = due.idle().unwrap();
            assert!(kept <= idle && idle - kept <= idle >> 16, "{idle} became {kept}");
            assert_eq!((due.deadline(), due.until(7).deadline(), due.until(7).idle()), (5, 7, Some(kept)));
        }
        assert_eq!(Due::new(u64::MAX, None).deadline(), NEVER);
    }

    #[test]
    fn everything_comes_due_in_time_and_nothing_before() {
        let pages = Arc::new(Pages::new(Arc::new(Budget::new(1 << 30))).unwrap());
        let (dues, mut wheel) = (Dues::new(&pages, 1 << 16), Wheel::default());
        let mut random = 88_172_645_463_325_252_u64;
        let mut deadlines = Vec::new();
        for id in 0..3000 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            // From milliseconds to decades.
            let deadline = random >> (22 + random % 42);
            dues.ensure(id).unwrap();
            dues.set(id, Due::new(deadline, None));
            wheel.hang(&dues, id);
            deadlines.push(deadline.min(NEVER));
        }
        let (mut now, mut came) = (0_u64, vec![false; 3000]);
        while wheel.entries > 0 {
            now += now / 50 + 13;
            while let Some(id) = wheel.next_due(&dues, now, &mut 1_000_000) {
                assert!(!std::mem::replace(&mut came[id as usize], true));
                assert!(deadlines[id as usize] <= now);
            }
            wheel.validate(&dues).unwrap();
            let late = |id: usize| !came[id] && deadlines[id] + 64 < now;
            assert_eq!((0..3000).find(|&id| late(id)), None, "at {now}");
            // A clock that steps back does no harm.
            assert_eq!(wheel.next_due(&dues, now / 2, &mut 1_000_000), None);
        }
    }
}
