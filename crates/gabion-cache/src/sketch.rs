//! How often a key was asked for of late: a count-min sketch of 4-bit counters.
//!
//! A key has four counters in one cache line, one in each quarter; the least of them is the estimate. Counters stop at
//! 15, and all are halved when ten times as many keys were noted as there are entries, so that old fame fades.
//! (Cormode, Muthukrishnan, "An improved data stream summary: the count-min sketch and its applications", 2005; the
//! halving after Einziger, Friedman, Manes, "`TinyLFU`", 2017.)
//!
//! A sketch stands in one segment of the index and serves the keys of that segment, so it grows, shrinks and ages with
//! it in small steps. It is halved when it is next written to; until then, who reads it halves what he reads: all keys
//! of a shard age at one time, or equals would win over equals. Counts may be lost when two threads note at one time: estimates are all that is wanted.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// 8-byte words of a sketch: 3072 counters, 54 bits for each of the 228 entries that a segment has on average.
pub(crate) const SKETCH_WORDS: usize = LINES * LINE_WORDS;

const LINES: usize = 24;
const LINE_WORDS: usize = 8;
const MOST: u64 = 15;
/// How many notes for each key that the sketch is made for, before it is halved.
pub(crate) const SAMPLE: u64 = 10;
/// The top bit of each counter, cleared by a halving's shift.
const LOW_BITS: u64 = 0x7777_7777_7777_7777;

/// The four counters of a key: (word, shift).
#[inline]
fn places(hash: u32) -> [(usize, u32); 4] {
    // Fibonacci hashing spreads the few bits that keys of one segment differ in.
    let mixed = (u64::from(hash) ^ u64::from(hash) << 32).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let line = (((mixed >> 52) as usize * LINES) >> 12) * LINE_WORDS;
    std::array::from_fn(|quarter| {
        let bits = (mixed >> (12 + 8 * quarter)) as usize & 31;
        (line + 2 * quarter + (bits >> 4), (bits as u32 & 15) * 4)
    })
}

/// The estimate for a key.
#[inline]
pub(crate) fn estimate(words: &[AtomicU64], hash: u32) -> u8 {
    let counts = places(hash).map(|(word, shift)| words[word].load(Relaxed) >> shift & MOST);
    counts.into_iter().min().unwrap_or(0) as u8
}

/// Notes that a key was asked for: raises those of its counters that are least, because only they can be right
/// (conservative update). True when there was one to raise.
#[inline]
pub(crate) fn note(words: &[AtomicU64], hash: u32) -> bool {
    let least = u64::from(estimate(words, hash));
    if least == MOST {
        return false;
    }
    for (word, shift) in places(hash) {
        let value = words[word].load(Relaxed);
        if value >> shift & MOST == least {
            // Relaxed, and not a read-modify-write: a lost count does not matter.
            words[word].store(value + (1 << shift), Relaxed);
        }
    }
    true
}

/// Halves all counters `times` times.
pub(crate) fn halve(words: &[AtomicU64], times: u64) {
    for word in &words[..SKETCH_WORDS] {
        let halved = (0..times.min(4)).fold(word.load(Relaxed), |value, _| value >> 1 & LOW_BITS);
        word.store(halved, Relaxed);
    }
}

/// Makes `into` know the keys of both, each as well as one of them did.
pub(crate) fn merge(into: &[AtomicU64], from: &[AtomicU64]) {
    for (into, from) in into.iter().zip(from) {
        let (one, other) = (into.load(Relaxed), from.load(Relaxed));
        let most =
            (0..16).fold(0, |word, at| word | (one >> (4 * at) & MOST).max(other >> (4 * at) & MOST) << (4 * at));
        into.store(most, Relaxed);
    }
}
