//! When entries end: a hierarchical timer wheel.
//!
//! Five rings of 64 buckets; a bucket of them is 64 ms, 4 s, 4 min, 5 h or 12 days wide. An entry hangs in the bucket
//! of its deadline on the finest ring that reaches so far; when a coarse bucket's time comes, its entries move to finer
//! rings (G. Varghese, T. Lauck, "Hashed and hierarchical timing wheels", SOSP 1987). An entry whose deadline was put
//! off meanwhile is hung up again when its bucket comes due, so that a use of an entry with an idle time is one store,
//! and an entry that is written over one that ends no later takes its place, without a look at its neighbours.
//!
//! Deadlines are milliseconds since the cache was made. The wheel frees memory in time; whether a value may still be
//! given out is asked of the deadline itself, by each get.
//!
//! ```text
//! deadline (42) │ idle time (22: 17 bits, shifted by 5 bits)
//! ```

use gabion_blocks::Invalid;

use crate::policy::{Id, NONE};

const RINGS: usize = 5;
const BUCKETS: u64 = 64;
/// A bucket of the finest ring is 2⁶ ms wide, each coarser one 64 times as wide.
const RING_BITS: u32 = 6;

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

    /// No end: no real one has all bits set, because an idle time shifts by 25 at most.
    pub const NONE: Self = Self(u64::MAX);

    /// Whether its deadline has come.
    #[inline]
    pub fn is_over(self, now: u64) -> bool {
        self.deadline() <= now
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

    #[inline]
    pub fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// With another deadline.
    pub fn until(self, deadline: u64) -> Self {
        Self(self.0 & !DEADLINE | deadline.min(DEADLINE))
    }
}

fn ring_shift(ring: usize) -> u32 {
    RING_BITS + RING_BITS * ring as u32
}

/// Previous and next in the bucket, or [`NONE`], and the bucket.
pub(crate) type Hooks = (Id, Id, usize);

/// What the wheel sees of the entries: deadlines, and links that are its own.
pub(crate) trait Timers {
    fn due(&self, id: Id) -> Due;
    fn hooks(&self, id: Id) -> Hooks;
    fn set_hooks(&self, id: Id, previous: Id, next: Id, bucket: usize);
    fn set_previous(&self, id: Id, previous: Id, bucket: usize);
    fn set_next(&self, id: Id, next: Id);
}

/// What only the lock's holder has of the wheel.
pub(crate) struct Wheel {
    heads: Box<[Id]>,
    /// The first entry of the bucket that is being looked through. Its entries still carry the number of the bucket
    /// that they were taken out of, so who is first is told by looking here first.
    due: Id,
    /// The next tick of each ring that was not looked at to its end.
    ticks: [u64; RINGS],
    /// The latest time that was seen.
    now: u64,
    /// The time at which nothing more was due. What is hung up later comes due later.
    done: u64,
    /// Entries that hang here.
    pub entries: u64,
}

impl Default for Wheel {
    fn default() -> Self {
        Self { heads: Box::default(), due: NONE, ticks: [0; RINGS], now: 0, done: 0, entries: 0 }
    }
}

impl Wheel {
    /// Hangs an entry up by its deadline.
    pub fn hang(&mut self, timers: &impl Timers, id: Id) {
        if self.heads.is_empty() {
            self.heads = vec![NONE; RINGS * BUCKETS as usize].into_boxed_slice();
        }
        let deadline = timers.due(id).deadline().max(self.now);
        let reaches = |ring: usize| (deadline >> ring_shift(ring)) - (self.now >> ring_shift(ring)) < BUCKETS;
        let ring = (0..RINGS - 1).find(|&ring| reaches(ring)).unwrap_or(RINGS - 1);
        // What lies beyond the coarsest ring is looked at again when that has gone round.
        let tick = (deadline >> ring_shift(ring)).min((self.now >> ring_shift(ring)) + BUCKETS - 1);
        let bucket = ring * BUCKETS as usize + (tick % BUCKETS) as usize;
        let next = self.heads[bucket];
        timers.set_hooks(id, NONE, next, bucket);
        if next != NONE {
            timers.set_previous(next, id, bucket);
        }
        self.heads[bucket] = id;
        self.entries += 1;
    }

    /// Where the list begins that `id` is the first of.
    fn head(&mut self, id: Id, bucket: usize) -> &mut Id {
        if self.due == id { &mut self.due } else { &mut self.heads[bucket] }
    }

    /// Whether an entry may stay where it hangs when its end changes so, for which nothing but the entry is touched. If
    /// it was put off, it is hung up again when its bucket comes due.
    #[inline]
    pub fn keeps(old: Due, new: Due) -> bool {
        new.deadline() >= old.deadline()
    }

    /// Takes an entry down.
    pub fn take(&mut self, timers: &impl Timers, id: Id) {
        let (previous, next, bucket) = timers.hooks(id);
        if previous == NONE {
            *self.head(id, bucket) = next;
        } else {
            timers.set_next(previous, next);
        }
        if next != NONE {
            timers.set_previous(next, previous, bucket);
        }
        self.entries -= 1;
    }

    /// Takes all entries down.
    pub fn take_all(&mut self) {
        self.heads.fill(NONE);
        (self.due, self.entries) = (NONE, 0);
    }

    /// The next entry whose deadline has passed, taken down. Looks at `steps` entries and buckets at most, and counts
    /// down; a time before the latest one seen changes nothing.
    pub fn next_due(&mut self, timers: &impl Timers, now: u64, steps: &mut usize) -> Option<Id> {
        if self.entries == 0 {
            self.catch_up(now);
            return None;
        }
        if now <= self.done && self.due == NONE {
            return None;
        }
        self.now = self.now.max(now);
        while *steps > 0 {
            *steps -= 1;
            let id = self.due;
            if id == NONE {
                if !self.turn() {
                    self.done = self.now;
                    return None;
                }
                continue;
            }
            self.take(timers, id);
            if timers.due(id).deadline() <= self.now {
                return Some(id);
            }
            self.hang(timers, id);
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
                self.due = std::mem::replace(&mut self.heads[bucket], NONE);
                self.ticks[ring] += 1;
                return true;
            }
        }
        false
    }

    /// Has [`Wheel::next_due`] look through the bucket of this very moment, too, which otherwise waits until the moment
    /// is over. To be asked for once nothing more was due.
    pub fn open_current(&mut self) {
        if self.entries > 0 && self.due == NONE {
            let bucket = (self.now >> ring_shift(0)) % BUCKETS;
            self.due = std::mem::replace(&mut self.heads[bucket as usize], NONE);
        }
    }

    fn catch_up(&mut self, now: u64) {
        self.now = self.now.max(now);
        for ring in 0..RINGS {
            self.ticks[ring] = self.now >> ring_shift(ring);
        }
    }

    /// Checks the lists; returns the ids that hang here.
    pub fn validate(&self, timers: &impl Timers) -> Result<Vec<Id>, Invalid> {
        let mut found = Vec::new();
        for (bucket, &head) in self.heads.iter().chain([&self.due]).enumerate() {
            let (mut previous, mut id) = (NONE, head);
            while id != NONE {
                let (before, next, place) = timers.hooks(id);
                let elsewhere = place != bucket && bucket < self.heads.len();
                if before != previous || elsewhere || found.len() as u64 >= self.entries {
                    return Err(Invalid(format!("entry {id} is not where bucket {bucket} has it")));
                }
                found.push(id);
                (previous, id) = (id, next);
            }
        }
        if found.len() as u64 == self.entries {
            Ok(found)
        } else {
            Err(Invalid(format!("the wheel counts {} entries, {} found", self.entries, found.len())))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[derive(Default)]
    struct Dues {
        dues: Vec<Due>,
        hooks: RefCell<Vec<Hooks>>,
    }

    impl Timers for Dues {
        fn due(&self, id: Id) -> Due {
            self.dues[id as usize]
        }
        fn hooks(&self, id: Id) -> Hooks {
            self.hooks.borrow()[id as usize]
        }
        fn set_hooks(&self, id: Id, previous: Id, next: Id, bucket: usize) {
            self.hooks.borrow_mut()[id as usize] = (previous, next, bucket);
        }
        fn set_previous(&self, id: Id, previous: Id, bucket: usize) {
            let (_, next, _) = self.hooks(id);
            self.set_hooks(id, previous, next, bucket);
        }
        fn set_next(&self, id: Id, next: Id) {
            let (previous, _, bucket) = self.hooks(id);
            self.set_hooks(id, previous, next, bucket);
        }
    }

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
        let (mut dues, mut wheel) = (Dues::default(), Wheel::default());
        let mut random = 88_172_645_463_325_252_u64;
        let mut deadlines = Vec::new();
        for id in 0..3000 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            // From milliseconds to decades.
            let deadline = random >> (22 + random % 42);
            dues.dues.push(Due::new(deadline, None));
            dues.hooks.borrow_mut().push((NONE, NONE, 0));
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
            if now % 3 == 0 {
                wheel.open_current();
                wheel.validate(&dues).unwrap();
                while let Some(id) = wheel.next_due(&dues, now, &mut 1_000_000) {
                    assert!(!std::mem::replace(&mut came[id as usize], true) && deadlines[id as usize] <= now);
                }
                wheel.validate(&dues).unwrap();
                assert_eq!((0..3000).find(|&id| !came[id] && deadlines[id] <= now), None, "at {now}");
            }
            // A clock that steps back does no harm.
            assert_eq!(wheel.next_due(&dues, now / 2, &mut 1_000_000), None);
        }
    }
}
