//! How often a key was asked for of late: a count-min sketch of 4-bit counters.
//!
//! A key has four counters in one cache line, one in each quarter; the least of them is the estimate. Counters stop at
//! 15, and all are halved when sixteen times as many keys were noted as there are entries, so that old fame fades.
//! (Cormode, Muthukrishnan, "An improved data stream summary: the count-min sketch and its applications", 2005; the
//! halving after Einziger, Friedman, Manes, "`TinyLFU`", 2017.)
//!
//! Counts may be lost when two threads note at one time: estimates are all that is wanted.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// 8-byte words of a sketch: 8192 counters.
pub(crate) const SKETCH_WORDS: usize = 512;

const LINE_WORDS: usize = 8;
const LINES: usize = SKETCH_WORDS / LINE_WORDS;
const LINE_BITS: u32 = LINES.trailing_zeros();
const MOST: u64 = 15;
/// How many notes for each entry, before all counters are halved. More of them tell keys apart that are seldom asked for, fewer
/// forget former favourites sooner.
pub(crate) const SAMPLE: u64 = 16;
/// The top bit of each counter, cleared by a halving's shift.
const LOW_BITS: u64 = 0x7777_7777_7777_7777;

/// The four counters of a key.
#[derive(Clone, Copy)]
struct Places {
    line: usize,
    mixed: u64,
}

impl Places {
    #[inline]
    fn of(hash: u64) -> Self {
        // Fibonacci hashing spreads the few bits that keys of one sketch differ in.
        let mixed = (hash ^ hash << 32).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        Self { line: (mixed >> (64 - LINE_BITS)) as usize, mixed }
    }

    /// Shift of the counter in a quarter of the line, and which of the quarter's two words it is in.
    #[inline]
    fn at(self, quarter: usize) -> (usize, u32) {
        let bits = (self.mixed >> (20 + 8 * quarter)) as usize & 31;
        (2 * quarter + (bits >> 4), (bits as u32 & 15) * 4)
    }

    /// The line of the four counters.
    #[inline]
    fn line(self, words: &[AtomicU64; SKETCH_WORDS]) -> &[AtomicU64; LINE_WORDS] {
        let (lines, _) = words.as_chunks::<LINE_WORDS>();
        &lines[self.line % LINES]
    }
}

/// The line of a key's counters.
#[inline]
pub(crate) fn line_of(words: &[AtomicU64; SKETCH_WORDS], hash: u64) -> &[AtomicU64; LINE_WORDS] {
    Places::of(hash).line(words)
}

/// The estimate for a key.
#[inline]
pub(crate) fn estimate(words: &[AtomicU64; SKETCH_WORDS], hash: u64) -> u8 {
    let places = Places::of(hash);
    let line = places.line(words);
    let count = |quarter| {
        let (word, shift) = places.at(quarter);
        line[word].load(Relaxed) >> shift & MOST
    };
    count(0).min(count(1)).min(count(2).min(count(3))) as u8
}

/// Notes that a key was asked for: raises those of its counters that are least, because only they can be right
/// (conservative update). True when there was one to raise.
#[inline]
pub(crate) fn note(words: &[AtomicU64; SKETCH_WORDS], hash: u64) -> bool {
    let places = Places::of(hash);
    let line = places.line(words);
    let counters = [0, 1, 2, 3].map(|quarter| {
        let (word, shift) = places.at(quarter);
        let value = line[word].load(Relaxed);
        (word, shift, value, value >> shift & MOST)
    });
    let [(_, _, _, a), (_, _, _, b), (_, _, _, c), (_, _, _, d)] = counters;
    let least = a.min(b).min(c.min(d));
    if least == MOST {
        return false;
    }
    for (word, shift, value, count) in counters {
        // Relaxed, and not a read-modify-write: a lost count does not matter. Without a branch, which nobody could foretell.
        line[word].store(value + (u64::from(count == least) << shift), Relaxed);
    }
    true
}

/// Halves all counters `times` times.
pub(crate) fn halve(words: &[AtomicU64; SKETCH_WORDS], times: u32) {
    for word in words {
        let halved = (0..times.min(4)).fold(word.load(Relaxed), |value, _| value >> 1 & LOW_BITS);
        word.store(halved, Relaxed);
    }
}

/// Makes `into` know the keys of both, each as well as one of them did.
pub(crate) fn merge(into: &[AtomicU64; SKETCH_WORDS], from: &[AtomicU64; SKETCH_WORDS]) {
    for (into, from) in into.iter().zip(from) {
        let (one, other) = (into.load(Relaxed), from.load(Relaxed));
        let most =
            (0..16).fold(0, |word, at| word | (one >> (4 * at) & MOST).max(other >> (4 * at) & MOST) << (4 * at));
        into.store(most, Relaxed);
    }
}
