//! How often a key was asked for of late: a small hash table of the keys that were, with counts of 4 bits.
//!
//! A key leads to a bucket of eight slots, each with 12 bits of its hash and its count. A key that is not there takes a
//! slot whose key is forgotten or was asked for once; where all were asked for more often, it wears down the count of
//! one of them, the less likely the higher that is. So favourites stay, and the many keys that are asked for once
//! disturb each other only, where a count-min sketch adds them to everybody's counts. Counts stop at 15, and all are
//! halved when 24 times as many keys were noted as there are entries, so that old fame fades. (Gong et al.,
//! "`HeavyKeeper`: an accurate algorithm for finding top-k elephant flows", ATC 2018; the halving after Einziger,
//! Friedman, Manes, "`TinyLFU`: a highly efficient cache admission policy", 2017.)
//!
//! Counts may be lost when two threads note at one time: estimates are all that is wanted.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// 8-byte words of a sketch: 2048 slots.
pub(crate) const SKETCH_WORDS: usize = 512;

type Words = [AtomicU64; SKETCH_WORDS];

/// Words of a bucket. Two lie in one cache line.
const BUCKET_WORDS: usize = 2;
const BUCKET_BITS: u32 = (SKETCH_WORDS / BUCKET_WORDS).trailing_zeros();
const SLOT_BITS: u32 = 16;
const SLOTS: u32 = u128::BITS / SLOT_BITS;
const COUNT_BITS: u32 = 4;
const MOST: u64 = (1 << COUNT_BITS) - 1;
/// How many notes for each entry, before all counts are halved. More of them tell keys apart that are seldom asked for,
/// fewer forget former favourites sooner.
pub(crate) const SAMPLE: u64 = 24;

/// A one in each slot of a bucket.
const EACH: u128 = u128::MAX / ((1 << SLOT_BITS) - 1);
/// What a slot has of its key's hash.
const TAGS: u128 = EACH * 0xFFF0;
/// All but the lowest bit of a count.
const MANY: u128 = EACH * 0x000E;
/// The top bit of each slot.
const TOPS: u128 = EACH * 0x8000;

/// A key's bucket, and what tells it from the others there.
#[derive(Clone, Copy)]
struct Home {
    bucket: usize,
    tag: u64,
}

impl Home {
    #[inline]
    fn of(hash: u64) -> Self {
        // Fibonacci hashing spreads the few bits that keys of one sketch differ in.
        let mixed = (hash ^ hash << 32).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let (bucket, tag) = (mixed >> (64 - BUCKET_BITS), mixed >> (52 - BUCKET_BITS) & 0xFFF);
        // Slots that were never taken have no tag.
        Self { bucket: bucket as usize, tag: tag.max(1) }
    }

    #[inline]
    fn words(self, words: &Words) -> &[AtomicU64; BUCKET_WORDS] {
        let (buckets, _) = words.as_chunks::<BUCKET_WORDS>();
        &buckets[self.bucket % buckets.len()]
    }
}

/// Where in a bucket the slot of a tag begins, in bits.
#[inline]
fn find(bucket: u128, tag: u64) -> Option<u32> {
    first(empty((bucket & TAGS) ^ (EACH * u128::from(tag << COUNT_BITS))))
}

/// The top bits of the slots that are 0.
#[inline]
fn empty(bucket: u128) -> u128 {
    // A slot's lower bits carry into its top bit unless they are 0, and never beyond.
    !(((bucket & !TOPS) + !TOPS) | bucket) & TOPS
}

/// Where the first slot begins whose top bit is there.
#[inline]
fn first(tops: u128) -> Option<u32> {
    (tops != 0).then(|| tops.trailing_zeros() / SLOT_BITS * SLOT_BITS)
}

/// As [`first`], beginning with the slot that begins at `start`, and round.
#[inline]
fn first_from(tops: u128, start: u32) -> Option<u32> {
    first(tops.rotate_right(start)).map(|at| (at + start) % u128::BITS)
}

// Relaxed, as all of the sketch: nothing hangs on an estimate but who goes.
#[inline]
fn load([low, high]: &[AtomicU64; BUCKET_WORDS]) -> u128 {
    u128::from(low.load(Relaxed)) | u128::from(high.load(Relaxed)) << 64
}

#[inline]
fn count_at(bucket: u128, at: u32) -> u64 {
    (bucket >> at) as u64 & MOST
}

/// The bucket of a key.
#[inline]
pub(crate) fn bucket_of(words: &Words, hash: u64) -> &[AtomicU64; BUCKET_WORDS] {
    Home::of(hash).words(words)
}

/// The estimate for a key.
#[inline]
pub(crate) fn estimate(words: &Words, hash: u64) -> u8 {
    let home = Home::of(hash);
    let bucket = load(home.words(words));
    find(bucket, home.tag).map_or(0, |at| count_at(bucket, at)) as u8
}

/// Notes that a key was asked for; `moment` is another number each time. False when it was noted as often as can be.
#[inline]
pub(crate) fn note(words: &Words, hash: u64, moment: u64) -> bool {
    let home = Home::of(hash);
    let place = home.words(words);
    let bucket = load(place);
    let (at, slot) = match find(bucket, home.tag) {
        Some(at) if count_at(bucket, at) == MOST => return false,
        Some(at) => (at, (bucket >> at) as u64 + 1),
        None => make_room(bucket, home.tag, hash ^ moment),
    };
    store(place, at, slot);
    true
}

/// Gives a slot the lowest bits of `slot` for its content.
#[inline]
fn store(place: &[AtomicU64; BUCKET_WORDS], at: u32, slot: u64) {
    let (word, shift) = (&place[(at / u64::BITS) as usize % BUCKET_WORDS], at % u64::BITS);
    // Relaxed, and not a read-modify-write: a lost count does not matter.
    word.store(word.load(Relaxed) & !(0xFFFF << shift) | (slot & 0xFFFF) << shift, Relaxed);
}

/// Which slot of a bucket a key makes its own or, where all others were asked for more often, wears down; and what it
/// holds then.
#[inline]
fn make_room(bucket: u128, tag: u64, seed: u64) -> (u32, u64) {
    let random = seed.wrapping_mul(0xD6E8_FEB8_6659_FD93);
    let start = (random >> 61) as u32 % SLOTS * SLOT_BITS;
    let new = tag << COUNT_BITS | 1;
    // Nobody's slot, then one of a key that was asked for once.
    if let Some(at) = first_from(empty(bucket & !TAGS), start).or_else(|| first_from(empty(bucket & MANY), start)) {
        return (at, new);
    }
    let slot = (bucket >> start) as u64;
    let odds = random >> 32 & ((1 << count_at(bucket, start)) - 1);
    (start, if odds == 0 { slot - 1 } else { slot })
}

/// Halves all counts `times` times.
pub(crate) fn halve(words: &Words, times: u32) {
    let [tags, halves] = [TAGS, EACH * 0x0007].map(|bits| bits as u64);
    let halved = |word: u64| (word & tags) | ((word >> 1) & halves);
    for word in words {
        word.store((0..times.min(COUNT_BITS)).fold(word.load(Relaxed), |word, _| halved(word)), Relaxed);
    }
}

/// Makes `into` know the keys of both, except for the least asked for where a bucket has no room for all.
pub(crate) fn merge(into: &Words, from: &Words) {
    let (into, from) = (into.as_chunks::<BUCKET_WORDS>().0, from.as_chunks::<BUCKET_WORDS>().0);
    for (place, other) in into.iter().zip(from) {
        let other = load(other);
        for at in (0..u128::BITS).step_by(SLOT_BITS as usize) {
            let (slot, bucket) = ((other >> at) as u64, load(place));
            let starts = (0..u128::BITS).step_by(SLOT_BITS as usize);
            let least = starts.min_by_key(|&at| count_at(bucket, at)).unwrap_or(0);
            let to = find(bucket, slot >> COUNT_BITS & 0xFFF).unwrap_or(least);
            if slot & MOST > count_at(bucket, to) {
                store(place, to, slot);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sketch() -> Words {
        std::array::from_fn(|_| AtomicU64::new(0))
    }

    /// Hashes of keys that share a bucket, none the same tag.
    fn neighbours(count: usize) -> Vec<u64> {
        let mut tags = Vec::new();
        let mut found = Vec::new();
        for hash in 0.. {
            let home = Home::of(hash);
            if home.bucket == 7 && !tags.contains(&home.tag) {
                tags.push(home.tag);
                found.push(hash);
            }
            if found.len() == count {
                break;
            }
        }
        found
    }

    #[test]
    fn keys_are_counted_up_to_fifteen_and_halved() {
        let words = sketch();
        let keys = neighbours(8);
        for (times, &key) in (1..).zip(&keys) {
            (0..times * 3).for_each(|_| _ = note(&words, key, 0));
        }
        let counts = || keys.iter().map(|&key| estimate(&words, key)).collect::<Vec<_>>();
        assert_eq!(counts(), [3, 6, 9, 12, 15, 15, 15, 15]);
        assert!(!note(&words, keys[7], 0));
        halve(&words, 1);
        assert_eq!(counts(), [1, 3, 4, 6, 7, 7, 7, 7]);
        halve(&words, 9);
        assert_eq!(counts(), [0; 8]);
        assert!(note(&words, keys[3], 0));
        assert_eq!(counts(), [0, 0, 0, 1, 0, 0, 0, 0]);
    }

    #[test]
    fn a_crowd_of_single_keys_does_not_bury_a_favourite() {
        let words = sketch();
        let keys = neighbours(4000);
        (0..12).for_each(|_| _ = note(&words, keys[0], 0));
        for (moment, &key) in keys.iter().enumerate().skip(1) {
            assert!(note(&words, key, moment as u64));
            assert_eq!(estimate(&words, key), 1, "the newest is known");
        }
        assert_eq!(estimate(&words, keys[0]), 12);
    }

    #[test]
    fn where_all_were_asked_for_often_a_newcomer_wears_one_down() {
        let words = sketch();
        let keys = neighbours(9);
        for &key in &keys[..8] {
            (0..3).for_each(|_| _ = note(&words, key, 0));
        }
        let total = |keys: &[u64]| keys.iter().map(|&key| u32::from(estimate(&words, key))).sum::<u32>();
        let mut moments = 0..;
        let needed = moments.find(|&moment| note(&words, keys[8], moment) && estimate(&words, keys[8]) > 0).unwrap();
        assert!((2..400).contains(&needed), "{needed}");
        assert!(total(&keys[..8]) >= 8 && total(&keys[..8]) <= 20);
    }

    #[test]
    fn a_merge_keeps_those_that_were_asked_for_most() {
        let (into, from) = (sketch(), sketch());
        let keys = neighbours(12);
        let ask = |words: &Words, key, times| (0..times).for_each(|_| _ = note(words, key, 0));
        for (times, &key) in (1..).zip(&keys[..8]) {
            ask(&into, key, times);
        }
        ask(&from, keys[0], 5);
        ask(&from, keys[7], 2);
        for &key in &keys[8..11] {
            ask(&from, key, 4);
        }
        ask(&from, keys[11], 1);
        merge(&into, &from);
        let counts = keys.iter().map(|&key| estimate(&into, key)).collect::<Vec<_>>();
        assert_eq!(counts[..8], [5, 0, 0, 4, 5, 6, 7, 8]);
        let mut others = counts[8..].to_vec();
        others.sort_unstable();
        assert_eq!(others, [0, 0, 4, 4], "as many of the equals as there is room for");
    }

    #[test]
    fn buckets_and_tags_are_spread_for_hashes_of_one_sketch() {
        // Of a thousand sketches, the last: the low bits are the same for all of its keys.
        let mut taken = vec![0_u32; 1 << BUCKET_BITS];
        let mut tags = std::collections::HashSet::new();
        for key in 0..20_480_u64 {
            let home = Home::of(((key * 0x9E37_79B9) & 0x1FF_FFFF) << 10 | 1023);
            taken[home.bucket] += 1;
            tags.insert(home.tag);
        }
        assert!(taken.iter().all(|&keys| (30..150).contains(&keys)), "{taken:?}");
        assert!(tags.len() > 3500, "{}", tags.len());
    }
}
