//! Keys that left of late, for the policy that asks: in memory of the index, and so under the cache's limit.
//!
//! Each ghost is a word in a ring, oldest first: its hash, and what its entry weighed. An index like that of the
//! entries leads from a hash to the ring. A ghost that is taken leaves a hole; when there are many, the ring is closed
//! up.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use gabion_blocks::{BlockError, Invalid};
use gabion_pile::Place;

use super::pages::{Pages, Strip, UNIT_BYTES, UNIT_WORDS};
use super::segments::{FULL, Segments};
use super::stash::Stash;
use crate::key::{KEPT_BITS, SEGMENT_BITS};

/// Bytes that a ghost is charged: a word of the ring, and its share of a segment.
pub(crate) const GHOST_BYTES: u64 = 24;
/// Words of the ring beyond a quarter more than there are ghosts that may be holes.
const HOLES: u64 = 2 * UNIT_WORDS as u64;

const KEPT: u64 = (1 << KEPT_BITS) - 1;
/// Weights are kept in eights of bytes, as entries are rounded to.
const MOST_WEIGHT: u64 = 1 << (u64::BITS - KEPT_BITS);

/// The ghosts of a shard. For its lock's holder.
pub(crate) struct Ghosts {
    index: Segments,
    stash: Stash,
    ring: Strip,
    /// Positions in the ring, which only rise: of the oldest ghost, and of the next one.
    oldest: u64,
    next: u64,
    /// What the entries of all ghosts weighed.
    weight: u64,
}

impl Ghosts {
    /// # Errors
    /// That there is no memory for the tables.
    pub fn new(pages: &Arc<Pages>, most: u64) -> Result<Self, BlockError> {
        // More than the index has segments for, whatever the limit.
        let most = most.min(FULL << SEGMENT_BITS);
        let ring = Strip::new(pages, ((most + most / 4 + HOLES) / UNIT_WORDS as u64 + 2) as usize)?;
        let stash = Stash::default();
        Ok(Self { index: Segments::new(pages, most)?, stash, ring, oldest: 0, next: 0, weight: 0 })
    }

    /// How many there are.
    #[inline]
    pub fn len(&self) -> u64 {
        self.stash.entries
    }

    /// Bytes that they are charged.
    #[inline]
    pub fn charged(&self) -> u64 {
        self.len() * GHOST_BYTES
    }

    /// Memory that they lie in.
    pub fn bytes(&self) -> u64 {
        let words = UNIT_WORDS as u64;
        self.index.bytes() + (self.next.div_ceil(words) - self.oldest / words) * UNIT_BYTES
    }

    /// Bytes of the tables that lead to their memory.
    pub fn table_bytes(&self) -> u64 {
        self.index.table_bytes() + self.ring.table_bytes()
    }

    /// The index's cells say where in the ring a ghost is: never 0, which is no cell.
    fn place(&self, position: u64) -> Place {
        Place::from_bits(position % (self.ring.most() * UNIT_WORDS) as u64 + 1)
    }

    fn unit(&self, position: u64) -> usize {
        (position / UNIT_WORDS as u64) as usize % self.ring.most()
    }

    fn word(&self, position: u64) -> &AtomicU64 {
        let unit = self.ring.get(self.unit(position)).expect("the ring has memory for its ghosts");
        &unit[position as usize % UNIT_WORDS]
    }

    fn find(&self, kept: u64) -> Option<Place> {
        self.index.find_all(&self.stash, kept, |cell| Some(cell.place()))
    }

    /// Strikes a ghost out of the index.
    fn strike(&mut self, word: u64, place: Place) {
        let spot = self.index.spot(&self.stash, word & KEPT, place);
        self.index.remove(&mut self.stash, spot);
        self.index.shrink(&mut self.stash);
        self.weight -= weight_of(word);
    }

    /// Forgets the oldest ghost; false when there is none.
    pub fn forget(&mut self) -> bool {
        while self.oldest < self.next {
            let position = self.oldest;
            let word = self.word(position).load(Relaxed);
            self.oldest += 1;
            if self.oldest.is_multiple_of(UNIT_WORDS as u64) {
                self.ring.give(self.unit(position));
            }
            if word != 0 {
                self.strike(word, self.place(position));
                return true;
            }
        }
        false
    }

    /// Whether a key left of late. It is no ghost any more.
    pub fn take(&mut self, kept: u64) -> bool {
        let Some(place) = self.find(kept) else { return false };
        let word = self.word(place.to_bits() - 1).swap(0, Relaxed);
        self.strike(word, place);
        if self.next - self.oldest > self.len() + self.len() / 4 + HOLES {
            self.close_up();
        }
        true
    }

    /// Remembers a key whose entry weighed so much, and forgets the oldest as long as all weigh more than `capacity`.
    /// Where there is no memory, the oldest make room.
    pub fn add(&mut self, kept: u64, weight: u64, capacity: u64) {
        let word = kept | (weight / 8).min(MOST_WEIGHT / 2) << KEPT_BITS;
        if weight > capacity || self.find(kept).is_some() {
            return;
        }
        while self.weight + weight_of(word) > capacity && self.forget() {}
        if !self.has_word() {
            return;
        }
        let place = self.place(self.next);
        if self.index.insert(&mut self.stash, kept, place).is_err() {
            return;
        }
        self.word(self.next).store(word, Relaxed);
        self.next += 1;
        self.weight += weight_of(word);
    }

    /// Sees to it that the ring has memory for its next word; false when there is none.
    fn has_word(&mut self) -> bool {
        let words = UNIT_WORDS as u64;
        while self.next - self.oldest >= (self.ring.most() as u64 - 1) * words && self.forget() {}
        let unit = self.unit(self.next);
        if self.ring.get(unit).is_some() || self.ring.put(unit, |_| {}).is_ok() {
            return true;
        }
        (0..words).for_each(|_| _ = self.forget());
        self.ring.put(unit, |_| {}).is_ok()
    }

    /// Moves all ghosts to the end of the ring, so that no holes are between them.
    fn close_up(&mut self) {
        let mut to = self.next;
        for from in (self.oldest..self.next).rev() {
            let word = self.word(from).load(Relaxed);
            if word != 0 {
                to -= 1;
                self.word(to).store(word, Relaxed);
                self.index.cell_of(&self.stash, word & KEPT, self.place(from)).lead_to(self.place(to));
            }
        }
        let (first, last) = (self.oldest / UNIT_WORDS as u64, to / UNIT_WORDS as u64);
        (first..last).for_each(|unit| self.ring.give(self.unit(unit * UNIT_WORDS as u64)));
        self.oldest = to;
    }

    /// Checks the equations.
    pub fn validate(&self) -> Result<(), Invalid> {
        let (mut count, mut weight) = (0, 0);
        for position in self.oldest..self.next {
            let word = self.word(position).load(Relaxed);
            if word != 0 {
                if self.find(word & KEPT) != Some(self.place(position)) {
                    return Err(Invalid(format!("the ghost at {position} is not found there")));
                }
                (count, weight) = (count + 1, weight + weight_of(word));
            }
        }
        if (count, weight) != (self.len(), self.weight) {
            return Err(Invalid(format!("{} ghosts of {} bytes counted: {count}, {weight}", self.len(), self.weight)));
        }
        self.index.validate(&self.stash, |_, _| Ok(()))
    }
}

fn weight_of(word: u64) -> u64 {
    (word >> KEPT_BITS) * 8
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use gabion_blocks::Budget;

    use super::*;

    fn ghosts(memory: u64) -> (Ghosts, Arc<Budget>) {
        let memory = Arc::new(Budget::new(memory));
        let pages = Arc::new(Pages::new(&memory).unwrap());
        (Ghosts::new(&pages, 50_000).unwrap(), memory)
    }

    /// A hash with a tag, as the cache's have.
    fn hash(n: u64) -> u64 {
        (n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20) & KEPT | 1 << (KEPT_BITS - 1)
    }

    #[test]
    fn they_are_what_a_plain_queue_has() {
        let (mut ghosts, memory) = ghosts(8 << 20);
        let mut plain: VecDeque<(u64, u64)> = VecDeque::new();
        let mut random = 0x2545_F491_4F6C_DD1D_u64;
        for step in 0..60_000_u64 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let (kept, weight) = (hash((random >> 30) % 2000), 56 + random % 100 * 8);
            // By turns many are taken, few are, and few are kept.
            let capacity = if step % 20_000 < 16_000 { 300_000 } else { 20_000 };
            if random % 8 < step / 1000 % 8 {
                let there = plain.iter().position(|ghost| ghost.0 == kept);
                assert_eq!(ghosts.take(kept), there.map(|at| plain.remove(at)).is_some());
            } else {
                ghosts.add(kept, weight, capacity);
                if !plain.iter().any(|ghost| ghost.0 == kept) {
                    while plain.iter().map(|ghost| ghost.1).sum::<u64>() + weight > capacity {
                        plain.pop_front();
                    }
                    plain.push_back((kept, weight));
                }
            }
            assert_eq!(ghosts.len(), plain.len() as u64);
            if step % 500 == 0 {
                ghosts.validate().unwrap();
                assert_eq!(ghosts.bytes().next_multiple_of(UNIT_BYTES), ghosts.bytes());
                assert!(ghosts.bytes() <= memory.used());
                assert!(ghosts.bytes() <= ghosts.charged() * 3 / 2 + 5 * UNIT_BYTES, "{} ghosts", ghosts.len());
            }
        }
        while ghosts.forget() {}
        assert_eq!((ghosts.len(), ghosts.weight), (0, 0));
        ghosts.validate().unwrap();
    }

    #[test]
    fn where_memory_is_short_the_oldest_go() {
        let (mut ghosts, memory) = ghosts(1 << 16);
        for n in 0..100_000 {
            ghosts.add(hash(n), 56, u64::MAX);
            assert!(memory.used() <= 1 << 16);
        }
        ghosts.validate().unwrap();
        assert!(ghosts.len() > 1500, "{}", ghosts.len());
        assert!(ghosts.take(hash(99_999)) && !ghosts.take(hash(5)));
    }
}
