//! The sketches of one shard: as many as its entries need.
//!
//! Sketches split and merge in turn, as segments do, but by their own numbers. A new sketch begins as a copy of the one
//! that it was split from, so that what was known of its keys stays known. All keys of a shard age at one time, or
//! equals would win over equals: a sketch is halved when it is next written to, and until then who reads it halves what
//! he reads.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

use gabion_blocks::{BlockError, prefetch, zero_counts};

use super::growth::{Parts, bounds, partner};
use super::pages::{Pages, Strip, UNIT_BYTES, Unit};
use super::sketch::{self, SAMPLE};
use crate::key::{KEPT_BITS, SEGMENT_BITS};

/// Entries for each sketch that make sketches split: some three slots for each. No more than fit into the bytes that an
/// entry is charged for the index.
pub(crate) const FULL: u64 = 688;

// On a line of its own: readers count here.
#[repr(align(64))]
pub(crate) struct Sketches {
    strip: Strip,
    /// How many there are: [`Parts`].
    parts: AtomicU64,
    /// How often each sketch was halved.
    eras: Box<[AtomicU32]>,
    /// How often all sketches of the shard were to be halved.
    era: AtomicU32,
    /// Keys noted since.
    noted: AtomicU64,
    /// The latest hit, which is noted when the next one comes: 0, or what is kept of the hash and [`WAITS`].
    late: AtomicU64,
    /// With fewer entries there are too many sketches, and with more too few. For the lock's holder.
    least: AtomicU64,
    most: AtomicU64,
}

/// A hit that waits to be noted: set so that it is never 0.
const WAITS: u64 = 1 << 63;
const _: () = assert!(KEPT_BITS < 63);

/// A key's sketch. For the lock's holder, until the next put.
#[derive(Clone, Copy)]
pub(crate) struct Ahead<'a> {
    index: usize,
    words: Option<&'a Unit>,
}

impl Sketches {
    /// # Errors
    /// That there is no memory for the tables.
    pub fn new(pages: &Arc<Pages>, most_entries: u64) -> Result<Self, BlockError> {
        let strip = Strip::new(pages, (most_entries / (FULL / 3) + 2).min(1 << SEGMENT_BITS) as usize)?;
        let eras = zero_counts(strip.most())?;
        let zero = || AtomicU64::new(0);
        let (parts, noted, late, least, most) = (zero(), zero(), zero(), zero(), zero());
        Ok(Self { strip, parts, eras, era: AtomicU32::new(0), noted, late, least, most })
    }

    /// Bytes of all sketches.
    pub fn bytes(&self) -> u64 {
        self.parts().count() * UNIT_BYTES
    }

    /// Bytes of the tables that lead to the sketches.
    pub fn table_bytes(&self) -> u64 {
        self.strip.table_bytes() + size_of_val(&*self.eras) as u64
    }

    #[inline]
    fn parts(&self) -> Parts {
        // Acquire: pairs with the split that made the sketch.
        Parts::from_bits(self.parts.load(Acquire))
    }

    /// The sketch that a key is counted in, which is there unless there is none at all.
    #[inline]
    fn index(&self, kept: u64) -> usize {
        self.parts().address(kept)
    }

    /// Changes when all counts are halved.
    #[inline]
    pub fn era(&self) -> u32 {
        self.era.load(Relaxed)
    }

    /// Asks for a key's counters ahead of their use.
    #[inline]
    pub fn prefetch(&self, kept: u64) {
        self.ahead(kept);
    }

    /// As [`Sketches::prefetch`], for [`Sketches::note_put`].
    #[inline]
    pub fn ahead(&self, kept: u64) -> Ahead<'_> {
        let index = self.index(kept);
        let words = self.strip.get(index);
        if let Some(words) = words {
            prefetch(sketch::bucket_of(words, kept));
        }
        Ahead { index, words }
    }

    /// Notes that a key was hit, one hit late: memory answers for this one's counters until the next hit comes. No lock
    /// is needed.
    #[inline]
    pub fn note_hit(&self, kept: u64) {
        self.prefetch(kept);
        // Relaxed, and not a read-modify-write: of hits that come at one time one may be lost, or noted twice. What
        // matters is that sketches know roughly how often keys were asked for.
        let earlier = self.late.load(Relaxed);
        self.late.store(kept | WAITS, Relaxed);
        if earlier != 0 {
            self.note(earlier & !WAITS);
        }
    }

    /// Notes that a key was asked for. No lock is needed.
    #[inline]
    fn note(&self, kept: u64) {
        if let Some(words) = self.strip.get(self.index(kept)) {
            self.note_in(words, kept);
        }
    }

    #[inline]
    fn note_in(&self, words: &Unit, kept: u64) {
        // Relaxed, and not a read-modify-write: a lost count does not matter.
        let noted = self.noted.load(Relaxed);
        if sketch::note(words, kept, noted) {
            self.noted.store(noted + 1, Relaxed);
        }
    }

    /// How often a key was asked for of late.
    #[inline(never)]
    pub fn frequency(&self, kept: u64) -> u8 {
        let index = self.index(kept);
        let Some(words) = self.strip.get(index) else { return 0 };
        let behind = self.era.load(Relaxed).wrapping_sub(self.eras[index].load(Relaxed));
        sketch::estimate(words, kept) >> behind.min(7)
    }

    /// Notes that a key was put. First halves all counts and makes sketches more or fewer, when it is time, and brings
    /// the key's sketch up to date. Under the shard's lock.
    #[inline]
    pub fn note_put<'a>(&'a self, entries: u64, kept: u64, mut ahead: Ahead<'a>) {
        let noted = self.noted.load(Relaxed);
        if noted >= SAMPLE * entries.max(64) {
            self.noted.store(noted / 2, Relaxed);
            self.era.store(self.era.load(Relaxed).wrapping_add(1), Relaxed);
        }
        let count = self.parts().count();
        if count == 0 || entries > self.most.load(Relaxed) || entries < self.least.load(Relaxed) {
            self.resize(entries, count);
            ahead = self.ahead(kept);
        }
        if let Some(words) = ahead.words {
            self.age(ahead.index);
            self.note_in(words, kept);
        }
    }

    /// Brings a sketch up to date.
    #[inline(always)]
    fn age(&self, index: usize) {
        let (now, then) = (self.era.load(Relaxed), self.eras[index].load(Relaxed));
        if now != then
            && let Some(words) = self.strip.get(index)
        {
            sketch::halve(words, now.wrapping_sub(then));
            self.eras[index].store(now, Relaxed);
        }
    }

    /// Gives all sketches back: no key is known any more. Under the shard's lock.
    pub fn clear(&self) {
        let count = self.parts().count();
        for figure in [&self.noted, &self.late, &self.least, &self.most] {
            figure.store(0, Relaxed);
        }
        // Nobody is led there before they are given back. Release: as whenever there are others.
        self.parts.store(Parts::of(0).to_bits(), Release);
        (0..count as usize).for_each(|index| self.strip.give(index));
    }

    /// Gives back the sketches that are more than that many entries need. Returns how many. Under the shard's lock.
    #[cold]
    pub fn shrink(&self, entries: u64) -> u64 {
        let before = self.parts().count();
        while entries < self.least.load(Relaxed) {
            self.resize(entries, self.parts().count());
        }
        before - self.parts().count()
    }

    #[cold]
    fn resize(&self, entries: u64, count: u64) {
        let count = self.resized(entries, count);
        let (least, most) = if count > 0 { bounds(count, FULL) } else { (0, 0) };
        self.least.store(least, Relaxed);
        self.most.store(most, Relaxed);
        // Release: a thread that is led to a sketch that was just made finds it filled.
        self.parts.store(Parts::of(count).to_bits(), Release);
    }

    /// Makes a sketch more, or one fewer. Returns how many there are to be.
    fn resized(&self, entries: u64, count: u64) -> u64 {
        if count == 0 {
            let made = self.strip.put(0, |words| words.iter().for_each(|word| word.store(0, Relaxed)));
            // Without memory nobody is known for now.
            return u64::from(made.is_ok());
        }
        if entries > self.most.load(Relaxed) {
            let from = partner(count) as usize;
            self.age(from);
            let Some(known) = self.strip.get(from) else { return count };
            let copy = |words: &Unit| {
                words.iter().zip(known).for_each(|(into, from)| into.store(from.load(Relaxed), Relaxed));
            };
            if self.strip.put(count as usize, copy).is_err() {
                return count;
            }
            self.eras[count as usize].store(self.era.load(Relaxed), Relaxed);
            return count + 1;
        }
        let (last, into) = (count as usize - 1, partner(count - 1) as usize);
        self.age(last);
        self.age(into);
        if let (Some(into), Some(from)) = (self.strip.get(into), self.strip.get(last)) {
            sketch::merge(into, from);
        }
        // Nobody is led there before it is given back. Release: a thread that is led to the other one finds both
        // merged.
        self.parts.store(Parts::of(last as u64).to_bits(), Release);
        self.strip.give(last);
        last as u64
    }
}

#[cfg(test)]
mod tests {
    use gabion_blocks::{Budget, PAGE_BYTES};

    use super::*;

    #[test]
    fn a_hit_is_noted_when_the_next_one_comes() {
        let memory = Arc::new(Budget::new(PAGE_BYTES as u64));
        let sketches = Sketches::new(&Arc::new(Pages::new(&memory).unwrap()), 100).unwrap();
        let (one, other) = (7, (1 << KEPT_BITS) - 1);
        sketches.note_hit(one);
        assert_eq!(sketches.frequency(one), 0, "there is no sketch yet");
        sketches.note_put(1, other, sketches.ahead(other));
        assert_eq!((sketches.frequency(one), sketches.frequency(other)), (0, 1));
        sketches.note_hit(other);
        assert_eq!((sketches.frequency(one), sketches.frequency(other)), (1, 1));
        (0..3).for_each(|_| sketches.note_hit(one));
        assert_eq!((sketches.frequency(one), sketches.frequency(other)), (3, 2));
    }
}
