//! The index beside readers without a lock, under the model checker: every interleaving that the memory model allows.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p gabion-cache --release --test loom`
//!
//! The modules are the crate's own files, with the checker's atomics in place of the system's, and segments of two
//! buckets.
#![cfg(loom)]
#![allow(dead_code, reason = "the crate uses the rest")]

use gabion_pile::Place;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

#[path = "../src/index/bucket.rs"]
mod bucket;
#[path = "../src/index/growth.rs"]
mod growth;
#[path = "../src/index/moves.rs"]
mod moves;
#[path = "../src/index/segments.rs"]
mod segments;
#[path = "../src/index/stash.rs"]
mod stash;

/// The crate's door to atomics, opened to the checker.
mod sync {
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
}

/// How a hash is divided: as the crate does, except for shorter segments.
mod key {
    pub(crate) const SEGMENT_BITS: u32 = 21;
    pub(crate) const HOME_BITS: u32 = 1;
    pub(crate) const TAG_BITS: u32 = 8;
}

mod policy {
    pub(crate) const MOST_HITS: u8 = 3;
}

/// Room for two segments.
mod pages {
    use std::sync::Arc;

    use gabion_blocks::BlockError;

    use super::sync::Ordering::{Acquire, Relaxed, Release};
    use super::sync::{AtomicBool, AtomicU64};

    pub(crate) const UNIT_WORDS: usize = 16;
    pub(crate) const UNIT_BYTES: u64 = UNIT_WORDS as u64 * 8;

    pub(crate) type Unit = [AtomicU64; UNIT_WORDS];

    pub(crate) struct Pages;

    pub(crate) struct Strip {
        units: [Unit; 2],
        /// Stands for the table's words, and is published as they are.
        there: [AtomicBool; 2],
    }

    impl Strip {
        #[expect(clippy::unnecessary_wraps, reason = "as what it stands for")]
        pub fn new(_: &Arc<Pages>, _most: usize) -> Result<Self, BlockError> {
            let unit = || [(); UNIT_WORDS].map(|()| AtomicU64::new(0));
            Ok(Self { units: [unit(), unit()], there: [AtomicBool::new(false), AtomicBool::new(false)] })
        }

        pub fn table_bytes(&self) -> u64 {
            0
        }

        pub fn get(&self, index: usize) -> Option<&Unit> {
            self.there.get(index)?.load(Acquire).then(|| &self.units[index])
        }

        pub fn put(&self, index: usize, prepare: impl FnOnce(&Unit)) -> Result<(), BlockError> {
            prepare(&self.units[index]);
            self.there[index].store(true, Release);
            Ok(())
        }

        pub fn give(&self, index: usize) {
            self.there[index].store(false, Relaxed);
        }
    }
}

use bucket::{BUCKETS, CELLS};
use key::{HOME_BITS, SEGMENT_BITS};
use segments::{Glimpse, Segments};
use stash::Stash;

/// What is kept of the hash of key `number`: each has a tag of its own, and odd ones go to the second segment once
/// there is one.
fn kept(number: u64) -> u64 {
    number & 1 | (number + 1) << (SEGMENT_BITS + HOME_BITS)
}

/// Where the entry of key `number` lies.
fn place(number: u64) -> Place {
    Place::from_bits(100 + number)
}

/// An index, and the payload of key 2: a number that the checker watches.
struct Index {
    segments: Segments,
    payload: UnsafeCell<u64>,
}

/// With keys 0 and 1 in it.
fn index() -> (Arc<Index>, Stash) {
    let (segments, mut stash) = (Segments::new(&std::sync::Arc::new(pages::Pages), 0).unwrap(), Stash::default());
    insert(&segments, &mut stash, 0);
    insert(&segments, &mut stash, 1);
    (Arc::new(Index { segments, payload: UnsafeCell::new(0) }), stash)
}

fn insert(segments: &Segments, stash: &mut Stash, number: u64) {
    segments.insert(stash, kept(number), place(number)).unwrap();
}

fn remove(segments: &Segments, stash: &mut Stash, number: u64) {
    segments.remove(stash, segments.spot(stash, kept(number), place(number)));
}

/// What a search without a lock comes to, as `lookup.rs` does it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    At(Place),
    Nothing,
    /// Cells moved meanwhile, or may be in the stash: the search begins anew, or asks for the lock.
    Changed,
}

/// The long search.
fn search(segments: &Segments, number: u64) -> Found {
    let Some(version) = segments.version() else { return Found::Changed };
    match segments.find(kept(number), |cell| Some(cell.place())) {
        (Some(place), _) => Found::At(place),
        (None, true) => Found::Changed,
        (None, false) if segments.unmoved(version) => Found::Nothing,
        (None, false) => Found::Changed,
    }
}

/// The short look.
fn look(segments: &Segments, number: u64) -> Found {
    let version = segments.version();
    match segments.first(kept(number)) {
        // What lies there says whose it is.
        Glimpse::Cell(cell) if cell.place() == place(number) => Found::At(cell.place()),
        Glimpse::Cell(_) => Found::Changed,
        Glimpse::Nothing if version.is_some_and(|version| segments.unmoved(version)) => Found::Nothing,
        Glimpse::Nothing | Glimpse::Unclear => Found::Changed,
    }
}

/// Two threads: the interleavings with up to two preemptions, unless `LOOM_MAX_PREEMPTIONS` says more.
fn bounded(check: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = model.preemption_bound.or(Some(2));
    model.check(check);
}

/// Both ways to find a key.
const WAYS: [fn(&Segments, u64) -> Found; 2] = [search, look];

/// Looks for keys 0 and 1 while `change` is at work, which leaves them where they are or moves them.
fn stay_found(prepare: fn(&Segments, &mut Stash), change: fn(&Segments, &mut Stash)) {
    for (way, number) in [(WAYS[0], 1), (WAYS[1], 1), (WAYS[0], 0)] {
        bounded(move || {
            let (index, mut stash) = index();
            prepare(&index.segments, &mut stash);
            let other = Arc::clone(&index);
            let reader = thread::spawn(move || {
                let found = way(&other.segments, number);
                assert!(
                    found == Found::At(place(number)) || found == Found::Changed,
                    "key {number} is there all the time, and was not found: {found:?}"
                );
            });
            change(&index.segments, &mut stash);
            reader.join().unwrap();
            for (number, way) in [(0, search as fn(&Segments, u64) -> Found), (1, search), (0, look), (1, look)] {
                assert_eq!(way(&index.segments, number), Found::At(place(number)));
            }
            index.segments.validate(&stash, |_, _| Ok(())).unwrap();
        });
    }
}

/// Has the next entry that comes split a segment.
fn fill(stash: &mut Stash) {
    stash.most = 0;
}

#[test]
fn what_is_there_is_found_while_a_segment_is_split() {
    stay_found(
        |_, _| {},
        |segments, stash| {
            fill(stash);
            insert(segments, stash, 2);
            assert_eq!(segments.count(), 2);
        },
    );
}

#[test]
fn what_is_there_is_found_while_segments_are_merged() {
    stay_found(
        |segments, stash| {
            fill(stash);
            insert(segments, stash, 2);
        },
        |segments, stash| {
            remove(segments, stash, 2);
            stash.least = u64::MAX;
            segments.shrink(stash);
            assert_eq!(segments.count(), 1);
        },
    );
}

#[test]
fn what_is_there_is_found_while_others_come_and_go() {
    stay_found(
        |segments, stash| insert(segments, stash, 2),
        |segments, stash| {
            let out = segments.spot(stash, kept(2), place(2));
            let segment = segments.segment(kept(4)).unwrap();
            segments.exchange(stash, out, segment, kept(4), place(4));
            remove(segments, stash, 4);
        },
    );
}

#[test]
fn what_is_in_the_stash_is_found_while_it_finds_a_place() {
    let last = (BUCKETS * CELLS) as u64;
    for (way, number) in [(WAYS[0], last), (WAYS[1], last), (WAYS[0], 1), (WAYS[1], 1)] {
        bounded(move || {
            let (index, mut stash) = index();
            stash.most = u64::MAX;
            (2..=last).for_each(|number| insert(&index.segments, &mut stash, number));
            assert_eq!(stash.len(), 1);
            let other = Arc::clone(&index);
            let reader = thread::spawn(move || {
                let found = way(&other.segments, number);
                assert!(found == Found::At(place(number)) || found == Found::Changed, "{number}: {found:?}");
            });
            remove(&index.segments, &mut stash, 3);
            reader.join().unwrap();
            assert_eq!(stash.len(), 0);
            assert_eq!(search(&index.segments, number), Found::At(place(number)));
            index.segments.validate(&stash, |_, _| Ok(())).unwrap();
        });
    }
}

#[test]
fn who_finds_an_entry_finds_it_written() {
    for way in WAYS {
        for splits in [false, true] {
            bounded(move || {
                let (index, mut stash) = index();
                let other = Arc::clone(&index);
                let reader = thread::spawn(move || match way(&other.segments, 2) {
                    Found::At(found) => {
                        assert_eq!(found, place(2));
                        // SAFETY: written before the entry was found, and not again; the checker sees to it.
                        assert_eq!(other.payload.with(|payload| unsafe { *payload }), 7);
                    }
                    Found::Nothing | Found::Changed => {}
                });
                // SAFETY: nobody finds the entry yet; the checker sees to it.
                index.payload.with_mut(|payload| unsafe { *payload = 7 });
                if splits {
                    fill(&mut stash);
                }
                insert(&index.segments, &mut stash, 2);
                reader.join().unwrap();
                assert_eq!(way(&index.segments, 2), Found::At(place(2)));
            });
        }
    }
}

#[test]
fn who_finds_where_an_entry_went_finds_it_written_there() {
    bounded(|| {
        let (index, stash) = index();
        let other = Arc::clone(&index);
        let reader = thread::spawn(move || {
            if search(&other.segments, 1) == Found::At(place(2)) {
                // SAFETY: written before the cell led there, and not again; the checker sees to it.
                assert_eq!(other.payload.with(|payload| unsafe { *payload }), 7);
            }
        });
        // SAFETY: nothing leads there yet; the checker sees to it.
        index.payload.with_mut(|payload| unsafe { *payload = 7 });
        index.segments.cell_of(&stash, kept(1), place(1)).lead_to(place(2));
        index.segments.cell_of(&stash, kept(1), place(2)).set_hits(1);
        reader.join().unwrap();
    });
}
