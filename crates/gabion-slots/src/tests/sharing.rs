//! Several threads and the same slots: remote frees, threads that end, and releases.

use std::sync::Barrier;
use std::sync::mpsc::channel;
use std::thread;

use gabion_blocks::BLOCK_BYTES;

use super::{MIB, Shared, drop_last, give, layout, on_twin, take};
use crate::{Affinity, AffinitySettings, Slots, seat};

const A: Affinity = Affinity::NODES;

fn many(slots: &Slots, count: usize, size: usize) -> Vec<Shared> {
    (0..count).map(|_| Shared(take(slots, A, size))).collect()
}

fn give_all(slots: &Slots, places: Vec<Shared>) {
    for place in places {
        give(slots, place.0);
    }
}

/// Runs in another thread, which has ended when this returns.
fn elsewhere<T: Send + 'static>(slots: &Slots, act: impl FnOnce(&Slots) -> T + Send + 'static) -> T {
    let slots = slots.clone();
    thread::spawn(move || act(&slots)).join().unwrap()
}

#[test]
fn what_others_free_is_used_again() {
    let (slots, _twin) = on_twin();
    for size in [40, 4000] {
        for _ in 0..20 {
            let places = many(&slots, 20_000_000 / size / 20, size);
            elsewhere(&slots, |slots| give_all(slots, places));
            assert_eq!(slots.stats().total().live_objects, 0);
        }
        let blocks = slots.stats().total().blocks;
        assert!(blocks <= 2, "{size} bytes: {blocks} blocks");
        slots.trim();
        slots.validate().unwrap();
        assert_eq!(slots.stats().total().mapped_bytes, 0);
    }
}

#[test]
fn a_new_thread_adopts_what_an_ended_one_has_left() {
    let (slots, _twin) = on_twin();
    for round in 0..10 {
        let places = elsewhere(&slots, |slots| many(slots, 10_000, 48));
        let stats = slots.stats();
        assert_eq!((stats.total().live_objects, stats.arenas, stats.ownerless_arenas), (10_000, 0, 1), "{round}");
        elsewhere(&slots, |slots| {
            slots.validate().unwrap();
            give_all(slots, places);
            slots.validate().unwrap();
        });
        assert_eq!(slots.stats().total().live_objects, 0);
    }
    slots.trim();
    assert_eq!(slots.stats().total().mapped_bytes, 0);
    assert_eq!((slots.stats().arenas, slots.stats().ownerless_arenas), (1, 0));
}

/// Each thread had its blocks mapped and touched anew, which took a hundred times as long as its allocations.
#[test]
fn threads_one_after_the_other_use_the_same_warm_memory() {
    let (slots, twin) = on_twin();
    let mut mapped = Vec::new();
    for _ in 0..10 {
        elsewhere(&slots, |slots| {
            let places = [48, 400, 4000].map(|size| many(slots, 100, size));
            slots.validate().unwrap();
            for places in places {
                give_all(slots, places);
            }
        });
        mapped.push(twin.maps());
        slots.validate().unwrap();
    }
    // The calling thread's own arena came in the first round, by its check.
    assert!(mapped[1..].iter().all(|&maps| maps == mapped[1]), "{mapped:?}");
    assert_eq!(slots.stats().total().live_objects, 0);
    slots.trim();
    assert_eq!(slots.stats().total().mapped_bytes, 0);
}

#[test]
fn of_many_threads_that_end_at_one_time_few_keep_memory() {
    let (slots, _twin) = on_twin();
    let (all, none) = (Barrier::new(16), Barrier::new(16));
    thread::scope(|scope| {
        let run = || {
            let places = many(&slots, 1000, 48);
            all.wait();
            give_all(&slots, places);
            none.wait();
        };
        // Joined one by one: a scope does not wait for what threads do at their very end.
        (0..16).map(|_| scope.spawn(run)).collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
    });
    assert_eq!((slots.stats().ownerless_arenas, slots.stats().total().blocks), (16, 4));
    slots.validate().unwrap();
}

#[test]
fn what_ended_threads_keep_is_given_back_to_who_needs_it() {
    let (slots, _twin) = on_twin();
    slots.configure(A, AffinitySettings { alignment: 8, max_blocks: Some(1) }).unwrap();
    for size in [48, 4000, 3 * MIB] {
        elsewhere(&slots, |slots| give_all(slots, many(slots, 100, 48)));
        assert_eq!(slots.stats().total().blocks, 1);
        let at = take(&slots, A, size);
        slots.validate().unwrap();
        give(&slots, at);
        slots.trim();
    }
}

#[test]
fn blocks_of_ended_threads_come_back_before_others_are_mapped() {
    let (slots, twin) = on_twin();
    // Two threads at once, so that there are two arenas without an owner.
    let (send, receive) = channel();
    let (done, wait) = channel::<()>();
    let other = {
        let slots = slots.clone();
        thread::spawn(move || {
            send.send(many(&slots, 200_000, 64)).unwrap();
            wait.recv().unwrap();
        })
    };
    let places = receive.recv().unwrap();
    let mine = take(&slots, A, 64);
    done.send(()).unwrap();
    other.join().unwrap();
    let full = twin.mapped();
    give_all(&slots, places);
    slots.flush();
    let again = many(&slots, 200_000, 64);
    assert!(twin.mapped() <= full + BLOCK_BYTES as u64, "{} mapped, {full} before", twin.mapped());
    give_all(&slots, again);
    give(&slots, mine);
    slots.validate().unwrap();
}

/// Of chunks, too, and before so many were freed that whoever frees them looks for it.
#[test]
fn chunks_of_ended_threads_come_back_before_a_block_is_mapped() {
    let (slots, twin) = on_twin();
    let (size, mine) = (100_000, take(&slots, Affinity::DATA, 64));
    let places = elsewhere(&slots, move |slots| many(slots, 40, size));
    let full = twin.mapped();
    give_all(&slots, places);
    let again = many(&slots, 40, size);
    assert_eq!((twin.mapped(), slots.stats().total().live_objects), (full, 41));
    slots.validate().unwrap();
    give_all(&slots, again);
    give(&slots, mine);
    slots.validate().unwrap();
    drop_last(slots, twin);
}

#[test]
fn a_release_forgets_what_is_still_on_its_way() {
    let (slots, twin) = on_twin();
    let kept = take(&slots, Affinity::DATA, 24);
    let (give_way, go) = channel::<()>();
    let (ready, wait) = channel();
    let places = many(&slots, 5000, 24);
    let larger = many(&slots, 500, 3000);
    let other = {
        let slots = slots.clone();
        thread::spawn(move || {
            // Some of it stays in this thread's buffer, while the affinity is released.
            for place in places.into_iter().step_by(2).chain(larger.into_iter().step_by(3)) {
                give(&slots, place.0);
            }
            ready.send(()).unwrap();
            go.recv().unwrap();
            slots.flush();
            take(&slots, A, 24);
        })
    };
    wait.recv().unwrap();
    // SAFETY: nobody uses the nodes any more.
    let bytes = unsafe { slots.release(A) };
    assert!(bytes > 0);
    let nodes = slots.stats().affinities[2].clone();
    assert_eq!((nodes.live_objects, nodes.mapped_bytes), (0, BLOCK_BYTES as u64));
    slots.validate().unwrap();
    // The same memory, used again: nothing of it may be freed by what was on its way.
    let fresh = many(&slots, 5000, 24);
    give_way.send(()).unwrap();
    other.join().unwrap();
    assert_eq!(slots.stats().affinities[2].live_objects, 5001);
    assert_eq!(slots.stats().total().late_double_frees, 0);
    // SAFETY: the other thread has ended.
    unsafe { slots.validate_all() }.unwrap();
    give_all(&slots, fresh);
    give(&slots, kept);
    // SAFETY: as above.
    unsafe { slots.release(A) };
    drop_last(slots, twin);
}

#[test]
fn a_release_costs_blocks_and_not_objects() {
    let (slots, _twin) = on_twin();
    for _ in 0..500_000 {
        take(&slots, A, 8);
    }
    let before = slots.stats();
    assert_eq!(before.affinities[2].live_objects, 500_000);
    // SAFETY: nobody uses the nodes.
    let bytes = unsafe { slots.release(A) };
    assert_eq!(bytes, before.affinities[2].mapped_bytes);
    let after = slots.stats().affinities[2].clone();
    assert_eq!((after.live_objects, after.mapped_bytes, after.blocks), (0, BLOCK_BYTES as u64, 1));
    slots.validate().unwrap();
    // SAFETY: as above; there is nothing left.
    assert_eq!(unsafe { slots.release(A) }, 0);
    slots.trim();
    assert_eq!(slots.stats().affinities[2].mapped_bytes, 0);
}

#[test]
fn a_scratch_that_is_released_again_and_again_keeps_its_memory() {
    let (slots, twin) = on_twin();
    let frame = |slots: &Slots| {
        let all: Vec<_> = (0..10_000).map(|_| take(slots, A, 64)).collect();
        slots.validate().unwrap();
        // SAFETY: nobody uses the nodes.
        unsafe { slots.release(A) };
        slots.validate().unwrap();
        all[0]
    };
    let first = frame(&slots);
    let (mapped, populated) = (twin.mapped(), twin.populated());
    assert!(mapped > 0 && populated > 0);
    for _ in 0..3 {
        assert_eq!(frame(&slots), first);
        assert_eq!((twin.mapped(), twin.populated()), (mapped, populated), "no page is touched for the first time");
    }
    slots.trim();
    assert_eq!(twin.mapped(), 0);
}

#[test]
fn threads_that_are_ending_may_still_allocate_and_free() {
    struct Late(Slots, Vec<Shared>);
    impl Drop for Late {
        fn drop(&mut self) {
            give_all(&self.0, std::mem::take(&mut self.1));
            let more = many(&self.0, 100, 32);
            give_all(&self.0, more);
        }
    }
    thread_local! {
        static LATE: std::cell::RefCell<Option<Late>> = const { std::cell::RefCell::new(None) };
    }
    let (slots, _twin) = on_twin();
    elsewhere(&slots, |slots| {
        // Before the first use of the slots, so that it is destroyed after their entry.
        LATE.with(|late| *late.borrow_mut() = Some(Late(slots.clone(), Vec::new())));
        let places = many(slots, 1000, 32);
        LATE.with(|late| late.borrow_mut().as_mut().unwrap().1 = places);
    });
    assert_eq!(slots.stats().total().live_objects, 0);
    slots.validate().unwrap();
}

#[test]
fn one_thread_uses_several_slots_in_turn() {
    let all: Vec<_> = (0..3).map(|_| on_twin().0).collect();
    let mut places: Vec<_> = all.iter().map(|slots| many(slots, 100, 24)).collect();
    for round in 0..100 {
        for (slots, places) in all.iter().zip(&mut places) {
            give(slots, places.remove(round % places.len()).0);
            places.push(Shared(take(slots, A, 24)));
        }
    }
    for (index, slots) in all.iter().enumerate() {
        let foreign = places[(index + 1) % 3][0].0;
        assert!(!slots.owns(foreign.as_ptr()));
        // SAFETY: refused before it is touched.
        assert_eq!(unsafe { slots.free(foreign) }, Err(crate::FreeError::Foreign));
        slots.validate().unwrap();
        assert_eq!(slots.stats().total().live_objects, 100);
        // SAFETY: live, and nobody else uses it.
        assert_eq!(unsafe { slots.alloc(A, layout(24)).and_then(|at| Ok(slots.free(at)?)) }, Ok(()));
    }
}

#[test]
fn a_block_that_its_owner_gives_back_meanwhile_outlives_a_release() {
    let (slots, twin) = on_twin();
    let at = take(&slots, A, 24);
    give(&slots, at);
    // The first step of a trim, which another thread's release may come upon: the block is off its row, and still
    // counts.
    let mine = seat::existing(&slots.shared).unwrap();
    slots.shared.let_warm_go(mine, A);
    // SAFETY: nobody uses the nodes.
    unsafe { slots.release(A) };
    assert_eq!((slots.stats().total().live_objects, slots.stats().total().blocks), (0, 1));
    let kept = take(&slots, A, 24);
    slots.validate().unwrap();
    // The second step, if the allocation has not done it.
    slots.shared.return_queued(mine);
    assert_eq!((slots.stats().total().live_objects, slots.stats().total().blocks), (1, 1));
    slots.validate().unwrap();
    give(&slots, kept);
    slots.trim();
    assert_eq!((slots.stats().total().mapped_bytes, twin.mapped()), (0, 0));
}
