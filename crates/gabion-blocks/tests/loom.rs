//! What is done without a lock, under the model checker: every interleaving that the memory model allows.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p gabion-blocks --release --test loom`
//!
//! The modules are the pool's own files, with the checker's locks and atomics in place of the system's.
#![cfg(loom)]
#![allow(dead_code, reason = "the pool uses the rest")]

use std::time::Duration;

use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::sync::atomic::Ordering::SeqCst;
use loom::thread;

#[path = "../src/pool/admission.rs"]
mod admission;
#[path = "../src/pool/duty.rs"]
mod duty;
#[path = "../src/pool/ledger.rs"]
mod ledger;

/// The crate's door to locks and atomics, opened to the checker.
mod sync {
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
    pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard};

    pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().unwrap()
    }
}

use admission::Admission;
use duty::Duty;
use ledger::Ledger;

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
        let waiter = self.admission.queue_up();
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
