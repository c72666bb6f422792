//! One cache line of the index: seven cells and their tags. `segments` says what they mean together.

use gabion_pile::Place;

use super::pages::{UNIT_WORDS, Unit};
use crate::key::{HOME_BITS, SEGMENT_BITS, TAG_BITS};
use crate::policy::MOST_HITS;
use crate::sync::AtomicU64;
use crate::sync::Ordering::{Acquire, Relaxed, Release};

pub(crate) const BUCKET_WORDS: usize = 8;
pub(crate) const BUCKETS: usize = UNIT_WORDS / BUCKET_WORDS;
pub(crate) const CELLS: usize = BUCKET_WORDS - 1;
const _: () = assert!(BUCKETS == 1 << HOME_BITS && CELLS == 7 && TAG_BITS == 8);
pub(crate) const PLACE: u64 = (1 << Place::BITS) - 1;
pub(crate) const SEGMENT_SHIFT: u32 = Place::BITS;
pub(crate) const STEP_SHIFT: u32 = SEGMENT_SHIFT + SEGMENT_BITS;
pub(crate) const HITS_SHIFT: u32 = STEP_SHIFT + 2;
const ONE_HIT: u64 = 1 << HITS_SHIFT;
const _: () = assert!(HITS_SHIFT + 2 == u64::BITS);

const EACH: u64 = 0x0001_0101_0101_0101;
pub(crate) const PASSED_SHIFT: u32 = 56;
/// A bucket that so many passed is taken to be passed for ever, until it is split or merged.
pub(crate) const MOST_PASSED: u64 = 0xFF;

/// The high bit of each of the seven low bytes that equals `tag`.
#[inline]
pub(crate) fn equal(tags: u64, tag: u64) -> u64 {
    const LOW: u64 = 0x007F_7F7F_7F7F_7F7F;
    let differ = tags ^ (tag * EACH);
    !(((differ & LOW) + LOW) | differ | LOW) & (EACH << 7)
}

/// The first of the seven low bytes that equals `tag`.
#[inline(always)]
pub(crate) fn first_equal(tags: u64, tag: u64) -> Option<usize> {
    let differ = tags ^ (tag * EACH);
    // What a byte borrows reaches only those above it, so the first that comes out as zero is.
    let zero = differ.wrapping_sub(EACH) & !differ & (EACH << 7);
    (zero != 0).then(|| zero.trailing_zeros() as usize / 8 % CELLS)
}

/// A cell as it was seen.
#[derive(Clone, Copy)]
pub(crate) struct Cell<'a> {
    pub word: &'a AtomicU64,
    pub seen: u64,
}

impl Cell<'_> {
    #[inline]
    pub fn place(&self) -> Place {
        Place::from_bits(self.seen)
    }

    /// Whether the cell still leads to where it did.
    #[inline]
    pub fn stands(&self) -> bool {
        // Acquire: a reader that looks at what it leads to after that finds it no older.
        (self.word.load(Acquire) ^ self.seen) << 2 == 0
    }

    /// Whether hits are counted to the end.
    #[inline]
    pub fn is_worn(&self) -> bool {
        self.seen >> HITS_SHIFT == u64::from(MOST_HITS)
    }

    /// Counts a hit; true when it was not yet counted to the end.
    #[inline]
    pub fn hit(&self) -> bool {
        if self.is_worn() {
            return false;
        }
        // Relaxed: a hint for the policy. One that fails because another came between is as good as counted.
        let _ = self.word.compare_exchange_weak(self.seen, self.seen + ONE_HIT, Relaxed, Relaxed);
        true
    }

    #[inline]
    pub fn hits(&self) -> u8 {
        (self.seen >> HITS_SHIFT) as u8
    }

    /// Under the shard's lock.
    #[inline]
    pub fn set_hits(&self, hits: u8) {
        // A hit that comes between is lost: as good as one that came before. Release: as in `lead_to`; a reader that
        // finds the place by this store has not seen the one that led there first.
        self.word.store(self.seen << 2 >> 2 | u64::from(hits) << HITS_SHIFT, Release);
    }

    /// Leads to another place from now on. Under the shard's lock.
    pub fn lead_to(&self, place: Place) {
        // Release: a reader that finds the place finds the payload written.
        self.word.store(self.seen & !PLACE | place.to_bits(), Release);
    }
}

/// A bucket of a segment.
#[derive(Clone, Copy)]
pub(crate) struct Bucket<'a>(pub &'a [AtomicU64; BUCKET_WORDS]);

impl<'a> Bucket<'a> {
    #[inline]
    pub fn of(segment: &'a Unit, index: usize) -> Self {
        let (buckets, _) = segment.as_chunks::<BUCKET_WORDS>();
        Self(&buckets[index % BUCKETS])
    }

    /// Where a cell lies in its segment.
    #[inline]
    pub fn word_of(index: usize, cell: usize) -> usize {
        index % BUCKETS * BUCKET_WORDS + 1 + cell
    }

    /// The bucket that a word of a segment lies in, and which of its cells it is.
    #[inline]
    pub fn at(segment: &'a Unit, word: usize) -> (Self, usize) {
        (Self::of(segment, word / BUCKET_WORDS), (word % BUCKET_WORDS).wrapping_sub(1) % BUCKET_WORDS)
    }

    #[inline]
    pub fn meta(self) -> u64 {
        // Acquire: a reader that finds a tag finds its cell written.
        self.0[0].load(Acquire)
    }

    #[inline]
    pub fn cell(self, at: usize) -> &'a AtomicU64 {
        &self.0[1 + at]
    }

    /// Which cell leads to a place. Under the shard's lock.
    #[inline]
    pub fn find(self, tag: u64, place: Place) -> Option<usize> {
        let mut candidates = equal(self.meta(), tag);
        while candidates != 0 {
            let at = candidates.trailing_zeros() as usize / 8 % CELLS;
            if self.cell(at).load(Relaxed) & PLACE == place.to_bits() {
                return Some(at);
            }
            candidates &= candidates - 1;
        }
        None
    }

    #[inline]
    pub fn passed(self) -> u64 {
        self.meta() >> PASSED_SHIFT
    }

    /// One cell more went past this bucket, or one less.
    pub fn pass(self, by: i64) {
        let passed = self.passed();
        if passed < MOST_PASSED {
            let meta = self.meta() & !(MOST_PASSED << PASSED_SHIFT);
            // Release: the word has the tags, too, and a reader that finds one in this store finds its cell written.
            self.0[0].store(meta | passed.wrapping_add_signed(by) << PASSED_SHIFT, Release);
        }
    }

    pub fn fill(self, at: usize, cell: u64, tag: u64) {
        // Relaxed: published by the tag.
        self.cell(at).store(cell, Relaxed);
        // Release: see `meta`.
        self.0[0].store(self.meta() | tag << (8 * at), Release);
    }

    pub fn empty(self, at: usize) {
        // Release: for the other tags, as in `pass`.
        self.0[0].store(self.meta() & !(0xFF << (8 * at)), Release);
        // Release: a reader that still found the tag and finds no cell knows that the entry went.
        self.cell(at).store(0, Release);
    }

    /// Leaves each cell that lies in its home bucket, and has the bit not set, where it is; those that have it set go
    /// to the same place of another bucket, which is empty. All others are given to `displaced`. Nothing passes either
    /// bucket then.
    pub fn part(self, other: Self, bit: u64, mut displaced: impl FnMut(u64, u64)) {
        let (mut stay, mut go) = (0, 0);
        for (at, cell, tag) in self.cells() {
            let tag_at = tag << (8 * at);
            if cell & 3 << STEP_SHIFT != 0 {
                displaced(cell, tag);
            } else if cell & bit == 0 {
                stay |= tag_at;
                continue;
            } else {
                go |= tag_at;
                // Relaxed: published by the tags.
                other.cell(at).store(cell, Relaxed);
            }
            // Release: as in `empty`.
            self.cell(at).store(0, Release);
        }
        // Release: see `meta`.
        self.0[0].store(stay, Release);
        other.0[0].store(go, Release);
    }

    pub fn cells(self) -> impl Iterator<Item = (usize, u64, u64)> + 'a {
        let meta = self.meta();
        let taken = (0..CELLS).map(move |at| (at, meta >> (8 * at) & 0xFF)).filter(|&(_, tag)| tag != 0);
        taken.map(move |(at, tag)| (at, self.cell(at).load(Relaxed), tag))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_equal_tag_is_the_first_of_all_equal_ones() {
        let mut random = 1_u64;
        for _ in 0..100_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // Few different tags, and zeros and ones, which borrow from each other.
            let tags = (random >> 8) & 0x0303_0303_0303_0303 ^ if random & 1 == 0 { 0 } else { 0xFEFE_FEFE_FEFE_FEFE };
            for tag in [1, 2, 3, 0xFD, 0xFE, 0xFF] {
                let all = equal(tags, tag);
                let first = (all != 0).then(|| all.trailing_zeros() as usize / 8);
                let plain = (0..CELLS).find(|at| tags >> (8 * at) & 0xFF == tag);
                assert_eq!((first_equal(tags, tag), first), (plain, plain), "{tags:x}, {tag:x}");
            }
        }
    }
}
