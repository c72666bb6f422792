//! What is done without a lock, under the model checker: every interleaving that the memory model allows.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p gabion-blocks --release --test loom`
//!
//! The modules are the pool's own files, with the checker's locks and atomics in place of the system's.
#![cfg(loom)]
#![allow(dead_code, reason = "the pool uses the rest")]

use std::ptr::{self, NonNull};
use std::time::Duration;

use loom::sync::Arc;
use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use loom::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64};
use loom::thread;

#[path = "../src/pool/admission.rs"]
mod admission;
#[path = "../src/bias.rs"]
mod bias;
#[path = "../src/pool/cache.rs"]
mod cache;
#[path = "loom/caches.rs"]
mod caches;
#[path = "../src/pool/duty.rs"]
mod duty;
#[path = "../src/pool/granules.rs"]
mod granules;
#[path = "../src/pool/ledger.rs"]
mod ledger;

/// The crate's door to locks and atomics, opened to the checker.
mod sync {
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence};
    pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard};
    pub(crate) use loom::thread::yield_now;

    pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().unwrap()
    }
}

/// The crate's owner slots. The checker runs all threads in one of the system's, so they are told which is theirs.
mod owner_slot {
    use super::sync::AtomicUsize;

    pub(crate) struct OwnerSlot {
        pub inside: AtomicUsize,
    }

    impl OwnerSlot {
        pub fn new() -> Self {
            Self { inside: AtomicUsize::new(0) }
        }
    }

    pub(crate) fn mine() -> Option<&'static OwnerSlot> {
        None
    }

    pub(crate) fn take() -> Option<&'static OwnerSlot> {
        None
    }
}

/// One class of pieces; a table of all of them would be too long for the checker's stacks.
mod size {
    pub(crate) const PIECE_CLASSES: usize = 1;

    pub(crate) const fn piece_bytes(_class: usize) -> usize {
        64
    }

    pub(crate) fn piece_at(_class: usize, offset: usize) -> usize {
        offset / 64
    }
}

/// A cut block's record, as far as a cache asks it: one block of small pieces.
mod span {
    use std::ptr::NonNull;

    #[derive(Debug)]
    pub(crate) struct Span;

    pub(crate) static SPAN: Span = Span;

    /// Aligned as blocks are: a piece keeps a flag in its address.
    #[repr(align(64))]
    struct Memory([u8; 256]);

    static MEMORY: Memory = Memory([0; 256]);

    impl Span {
        pub fn base(&self) -> NonNull<u8> {
            NonNull::from(&MEMORY.0).cast()
        }

        pub fn piece_class(&self) -> usize {
            0
        }
    }
}

/// The crate's asymmetric fences: both whole, which is what they are when they meet.
mod os {
    use super::sync::{Ordering, fence, yield_now};

    pub(crate) fn nap(_before: u64) {
        yield_now();
    }

    pub(crate) fn can_fence_heavily() -> bool {
        true
    }

    pub(crate) fn heavy_fence() {
        fence(Ordering::SeqCst);
    }

    pub(crate) fn light_fence() {
        fence(Ordering::SeqCst);
    }
}

use admission::Admission;
use bias::Biased;
use duty::Duty;
use granules::{Granules, Leaf};
use ledger::Ledger;
use owner_slot::OwnerSlot;

struct Room {
    ledger: Ledger,
    admission: Admission,
    /// How many have been served.
    served: AtomicU64,
}

const LIMIT: u64 = 10;

impl Room {
    /// A pool with `mapped` of its ten bytes in use.
    fn new(mapped: u64) -> Arc<Self> {
        let room = Self { ledger: Ledger::new(), admission: Admission::new(), served: AtomicU64::new(0) };
        room.ledger.take(mapped, LIMIT).unwrap();
        Arc::new(room)
    }

    fn give(&self, bytes: u64) {
        self.ledger.give(bytes);
        self.admission.room_made();
    }

    /// Waits for `bytes`. The checker's clock stands still: a wake-up that is lost is a deadlock, which it reports.
    fn wait_for(&self, bytes: u64) -> u64 {
        // Each thread has a stack of its own.
        let here = 0_u8;
        let waiter = self.admission.queue_up(ptr::from_ref(&here).addr()).unwrap();
        loop {
            let (seen, first) = waiter.look();
            if first && self.ledger.take(bytes, LIMIT).is_ok() {
                return self.served.fetch_add(1, SeqCst);
            }
            waiter.sleep(seen, Duration::from_secs(1));
        }
    }
}

#[test]
fn no_wake_up_is_lost() {
    loom::model(|| {
        let room = Room::new(LIMIT);
        let other = Arc::clone(&room);
        let giver = thread::spawn(move || other.give(4));
        room.wait_for(4);
        giver.join().unwrap();
        assert_eq!((room.ledger.mapped(), room.admission.anyone()), (LIMIT, false));
    });
}

/// For three threads: the interleavings with up to two preemptions, unless `LOOM_MAX_PREEMPTIONS` says more.
fn bounded(check: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = model.preemption_bound.or(Some(2));
    model.check(check);
}

#[test]
fn room_made_in_two_steps_by_two_threads_is_enough() {
    bounded(|| {
        let room = Room::new(LIMIT);
        let givers = [4, 3].map(|bytes| {
            let room = Arc::clone(&room);
            thread::spawn(move || room.give(bytes))
        });
        room.wait_for(7);
        givers.into_iter().for_each(|giver| giver.join().unwrap());
        assert_eq!(room.ledger.mapped(), LIMIT);
    });
}

#[test]
fn who_has_been_served_lets_the_next_one_in() {
    bounded(|| {
        let room = Room::new(LIMIT);
        let other = Arc::clone(&room);
        let waiting = thread::spawn(move || {
            other.wait_for(10);
            other.give(10);
        });
        room.give(10);
        room.wait_for(10);
        room.give(10);
        waiting.join().unwrap();
        assert_eq!((room.ledger.mapped(), room.ledger.peak()), (0, LIMIT));
    });
}

#[test]
fn the_limit_holds_at_every_instant() {
    loom::model(|| {
        let room = Room::new(4);
        let takers = [5, 6].map(|bytes| {
            let room = Arc::clone(&room);
            thread::spawn(move || u64::from(room.ledger.take(bytes, LIMIT).is_ok()) * bytes)
        });
        let taken: u64 = takers.into_iter().map(|taker| taker.join().unwrap()).sum();
        assert!(taken == 5 || taken == 6, "{taken}");
        assert_eq!((room.ledger.mapped(), room.ledger.peak()), (4 + taken, 4 + taken));
    });
}

#[test]
fn work_is_never_left_without_somebody_on_duty() {
    loom::model(|| {
        // The lock and what is idle under it; who is on duty; how many went on duty.
        let state = Arc::new((sync::Mutex::new(1_u64), Duty::default(), AtomicU64::new(0)));
        assert!(state.1.take());
        let other = Arc::clone(&state);
        let worker = thread::spawn(move || {
            let (work, duty, _) = &*other;
            *sync::lock(work) = 0;
            duty.leave(|| *sync::lock(work) == 0)
        });
        let (work, duty, begun) = &*state;
        *sync::lock(work) += 1;
        if duty.vacant() && duty.take() {
            begun.fetch_add(1, SeqCst);
        }
        let left = worker.join().unwrap();
        let on_duty = u64::from(!left) + begun.load(SeqCst);
        assert!(on_duty <= 1, "two on duty");
        assert!(*sync::lock(work) == 0 || on_duty == 1, "work, and nobody on duty");
    });
}

/// An address map of two leaves with two granules each, and three records of mappings, as the pool keeps them: never
/// freed, each number relaxed.
struct Map {
    granules: Granules<AtomicU64, 2, 2>,
    records: [AtomicU64; 3],
    /// Every leaf that was made, those for nothing too.
    leaves: std::sync::Mutex<Vec<*mut Leaf<AtomicU64, 2>>>,
}

// SAFETY: the table's pointers are to its own records, which are atomic, and to leaves that live as long as the map.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl Map {
    fn new() -> Arc<Self> {
        let granules = Granules::of([(); 2].map(|()| AtomicPtr::new(ptr::null_mut())));
        Arc::new(Self { granules, records: [(); 3].map(|()| AtomicU64::new(0)), leaves: std::sync::Mutex::default() })
    }

    /// What `addresses::enter` does for the mapping of record `index`, which `stands_for` something.
    fn enter(&self, index: usize, granule: usize, stands_for: u64) {
        let record = &self.records[index];
        record.store(stands_for, Relaxed);
        let fresh = || {
            let leaf = Box::into_raw(Box::new(Leaf([(); 2].map(|()| AtomicPtr::new(ptr::null_mut())))));
            self.leaves.lock().unwrap().push(leaf);
            Ok(NonNull::new(leaf).unwrap())
        };
        // SAFETY: the leaf is empty, and lives as long as the map.
        let made = unsafe { self.granules.make(granule, "beyond the table", fresh, |_| {}) };
        made.unwrap();
        self.granules.set(granule, ptr::from_ref(record).cast_mut());
    }

    /// What the record stands for that is found for a granule.
    fn find(&self, granule: usize) -> Option<u64> {
        // SAFETY: null, or one of the map's own records.
        unsafe { self.granules.find(granule).as_ref() }.map(|record| record.load(Relaxed))
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        for leaf in self.leaves.get_mut().unwrap().drain(..) {
            // SAFETY: made by `enter`; nobody is left to look.
            drop(unsafe { Box::from_raw(leaf) });
        }
    }
}

#[test]
fn who_finds_a_mapping_sees_what_is_known_about_it() {
    // In a leaf of its own, and in one that is there already.
    for leaf_is_made in [false, true] {
        loom::model(move || {
            let map = Map::new();
            if leaf_is_made {
                map.enter(1, 0, 5);
            }
            let other = Arc::clone(&map);
            let reader = thread::spawn(move || other.find(1));
            map.enter(0, 1, 7);
            let found = reader.join().unwrap();
            assert!(found.is_none_or(|found| found == 7), "a record was found before what it stands for: {found:?}");
            assert_eq!((map.find(0), map.find(1)), (leaf_is_made.then_some(5), Some(7)));
            assert_eq!((map.find(3), map.find(4)), (None, None));
        });
    }
}

#[test]
fn two_mappings_in_one_leaf_are_both_entered() {
    loom::model(|| {
        let map = Map::new();
        let other = Arc::clone(&map);
        let mapper = thread::spawn(move || other.enter(0, 0, 7));
        map.enter(1, 1, 8);
        mapper.join().unwrap();
        assert_eq!((map.find(0), map.find(1)), (Some(7), Some(8)));
    });
}

#[test]
fn memory_that_has_changed_hands_is_not_taken_for_ours() {
    loom::model(|| {
        let map = Map::new();
        map.enter(0, 0, 7);
        // Mapping orders whoever gets the addresses after whoever gave them back, as this flag does.
        let (other, unmapped) = (Arc::clone(&map), Arc::new(AtomicBool::new(false)));
        let gave_back = Arc::clone(&unmapped);
        let pool = thread::spawn(move || {
            other.granules.set(0, ptr::null_mut());
            gave_back.store(true, Release);
            // The record is used again, for a mapping elsewhere.
            other.enter(0, 2, 9);
        });
        if unmapped.load(Acquire) {
            assert_eq!(map.find(0), None, "somebody else's memory was taken for the pool's");
        }
        let elsewhere = map.find(2);
        assert!(elsewhere.is_none_or(|found| found == 9), "{elsewhere:?}");
        pool.join().unwrap();
        assert_eq!((map.find(0), map.find(2)), (None, Some(9)));
    });
}

/// An owner slot for a thread of one run of the model.
fn owner_slot() -> &'static OwnerSlot {
    Box::leak(Box::new(OwnerSlot::new()))
}

/// A number that the checker watches: two threads that are at it at one time are reported.
fn raise(number: &loom::cell::UnsafeCell<u64>) {
    // SAFETY: whoever is inside the lock is alone; the checker sees to it.
    number.with_mut(|number| unsafe { *number += 1 });
}

#[test]
fn a_biased_lock_lets_one_in_at_a_time() {
    for counts in [[2, 1], [1, 2], [2, 2]] {
        loom::model(move || {
            let lock = Arc::new(Biased::biased_after(loom::cell::UnsafeCell::new(0_u64), 1));
            let own = owner_slot();
            // It is biased to this thread from here on.
            raise(&lock.lock_from(Some(own)));
            let other = thread::spawn({
                let lock = Arc::clone(&lock);
                move || {
                    let own = owner_slot();
                    for _ in 0..counts[1] {
                        raise(&lock.lock_from(Some(own)));
                    }
                }
            });
            for _ in 0..counts[0] {
                raise(&lock.lock_from(Some(own)));
            }
            other.join().unwrap();
            // SAFETY: as above.
            let sum = lock.lock_from(None).with(|number| unsafe { *number });
            assert_eq!(sum, 1 + counts[0] + counts[1]);
        });
    }
}

#[test]
fn a_lock_that_its_owner_has_left_for_another_one_is_left() {
    loom::model(|| {
        let locks: Arc<[_; 2]> =
            Arc::new([(); 2].map(|()| Biased::biased_after(loom::cell::UnsafeCell::new(0_u64), 1)));
        let own = owner_slot();
        // Both are biased to this thread from here on.
        locks.iter().for_each(|lock| raise(&lock.lock_from(Some(own))));
        let other = thread::spawn({
            let locks = Arc::clone(&locks);
            move || raise(&locks[0].lock_from(Some(owner_slot())))
        });
        locks.iter().for_each(|lock| raise(&lock.lock_from(Some(own))));
        other.join().unwrap();
    });
}

#[test]
fn another_thread_and_the_owner_are_never_in_at_one_time() {
    for times in [1, 2] {
        loom::model(move || {
            let lock = Arc::new(Biased::biased_after(loom::cell::UnsafeCell::new(0_u64), 1));
            let own = owner_slot();
            // It is biased to this thread from here on.
            raise(&lock.lock_from(Some(own)));
            let other = thread::spawn({
                let lock = Arc::clone(&lock);
                move || (0..times).for_each(|_| raise(&lock.lock_unbiased()))
            });
            // In as the owner, or round by the gate.
            match lock.try_lock_biased_from(Some(own)) {
                Some(inside) => raise(&inside),
                None => raise(&lock.lock_from(Some(own))),
            }
            raise(&lock.lock_from(Some(own)));
            other.join().unwrap();
            // SAFETY: whoever is inside the lock is alone.
            let sum = lock.lock_unbiased().with(|number| unsafe { *number });
            assert_eq!(sum, 3 + times);
        });
    }
}

/// What a thread's cache and who waits for room owe each other: a piece that comes back is either seen by whoever
/// empties the cache after it has said that it waits, or not kept at all.
#[test]
fn nothing_is_kept_in_a_cache_while_somebody_waits() {
    loom::model(|| {
        let room = Arc::new((Admission::new(), Biased::biased_after(0_u64, 1), AtomicU64::new(0)));
        let own = owner_slot();
        // It is biased to this thread from here on.
        drop(room.1.lock_from(Some(own)));
        let other = Arc::clone(&room);
        let waiting = thread::spawn(move || {
            let (admission, cache, given) = &*other;
            // It waits until the end.
            std::mem::forget(admission.queue_up(1).unwrap());
            let found = std::mem::take(&mut *cache.lock_unbiased());
            given.fetch_add(found, SeqCst);
            found
        });
        let (admission, cache, given) = &*room;
        let kept = {
            let mut cache = cache.lock_from(Some(own));
            let keeps = !admission.anyone();
            *cache += u64::from(keeps);
            keeps
        };
        if !kept {
            given.fetch_add(1, SeqCst);
            admission.room_made();
        }
        let found = waiting.join().unwrap();
        // Kept before anybody waited, and found; or not kept.
        assert_eq!((found, given.load(SeqCst)), (u64::from(kept), 1), "kept, and whoever waits did not find it");
    });
}
