//! What is empty goes back, or to whoever needs it.

use std::cell::RefCell;
use std::iter::from_fn;
use std::sync::Barrier;
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use gabion_blocks::BLOCK_BYTES;

use super::{MIB, Shared, drop_last, give, give_all, layout, on_twin, resize, take};
use crate::sync::{AtomicBool, Ordering::Relaxed, lock};
use crate::{Affinity, AffinitySettings, Slots, SlotsError, seat};

const A: Affinity = Affinity::NODES;

fn mapped(slots: &Slots) -> u64 {
    slots.stats().total().mapped_bytes
}

#[test]
fn a_budget_refuses_nothing_while_nothing_is_allocated() {
    let (slots, twin) = on_twin();
    slots.configure(A, AffinitySettings { alignment: 8, max_blocks: Some(1) }).unwrap();
    // Each leaves something behind that the next has no use for: a block of pages, one of chunks, a tray.
    for round in 0..3 {
        for size in [8, 2000, 2 * MIB, 100_000, 1000, MIB, 4 * MIB, 24] {
            give(&slots, take(&slots, A, size));
            let total = slots.stats().total();
            assert!(total.live_objects == 0 && total.mapped_bytes <= 4 << 20, "{size} in round {round}: {total:?}");
            slots.validate().unwrap();
        }
    }
    let kept = take(&slots, A, 24);
    assert!(matches!(slots.alloc(A, layout(2000)), Err(SlotsError::Budget { .. })), "what is in use stays");
    slots.validate().unwrap();
    give(&slots, kept);
    give(&slots, take(&slots, A, 2000));
    // Pages that are empty serve other sizes, in the last block, too.
    let mut all = Vec::new();
    for size in (1..=63).map(|step| step * 16) {
        give(&slots, take(&slots, A, size));
    }
    for _ in 0..63 * 64 {
        all.push(take(&slots, A, 1024));
    }
    assert!(slots.alloc(A, layout(1024)).is_err());
    slots.validate().unwrap();
    give_all(&slots, all);
    drop_last(slots, twin);
}

#[test]
fn a_thread_without_memory_uses_what_it_keeps_elsewhere() {
    let (slots, twin) = on_twin();
    for affinity in [Affinity::OBJECTS, Affinity::DATA] {
        for size in [24, 5000] {
            give(&slots, take(&slots, affinity, size));
        }
    }
    let kept = twin.mapped();
    twin.refuse_some_after(0, 2);
    let at = take(&slots, A, 24);
    assert!(twin.mapped() < kept);
    slots.validate().unwrap();
    give(&slots, at);
    drop_last(slots, twin);
}

#[test]
fn room_that_an_object_need_not_have_takes_nothing_that_is_kept() {
    let (slots, twin) = on_twin();
    slots.configure(A, AffinitySettings { alignment: 8, max_blocks: Some(16) }).unwrap();
    give(&slots, take(&slots, A, 100));
    assert_eq!(slots.stats().total().blocks, 1, "kept warm");
    let old = take(&slots, A, 26 * MIB);
    // With the quarter more that it would get, it would not be within the budget.
    let new = resize(&slots, A, old, (26 * MIB, 30 * MIB), true).unwrap();
    assert_eq!(slots.stats().total().blocks, 1);
    give(&slots, new);
    drop_last(slots, twin);
}

#[test]
fn a_release_gives_the_blocks_of_chunks_back() {
    let (slots, twin) = on_twin();
    for round in 0..3 {
        let other = take(&slots, Affinity::DATA, 5000);
        let before = twin.mapped();
        let all: Vec<_> = (0..100).map(|n| take(&slots, A, if n % 2 == 0 { 500_000 } else { 3000 })).collect();
        let (others, elsewhere) = (slots.clone(), all.iter().step_by(3).map(|&at| Shared(at)).collect::<Vec<_>>());
        thread::spawn(move || {
            for at in elsewhere {
                give(&others, at.0);
            }
            // In an arena of its own.
            take(&others, A, 700_000);
        })
        .join()
        .unwrap();
        let taken = slots.stats().affinities[usize::from(A.index())].mapped_bytes;
        // SAFETY: nobody uses the nodes any more.
        let bytes = unsafe { slots.release(A) };
        assert_eq!((bytes, twin.mapped()), (taken, before), "round {round}");
        assert!(all.iter().all(|at| !slots.owns(at.as_ptr())));
        // SAFETY: what was released is known as nobody's, and refused.
        assert!(unsafe { slots.free(all[0]) }.is_err());
        // SAFETY: there is no other thread.
        unsafe { slots.validate_all() }.unwrap();
        give(&slots, other);
        slots.trim();
    }
    assert_eq!(mapped(&slots), 0);
    drop_last(slots, twin);
}

#[test]
fn a_trim_tells_what_it_gives_back() {
    let (slots, twin) = on_twin();
    let told = || {
        let before = mapped(&slots);
        let bytes = slots.trim();
        assert_eq!(bytes, before - mapped(&slots));
        slots.validate().unwrap();
        bytes
    };
    for (sizes, most) in [(&[5000][..], MIB as u64), (&[24], 4 << 20), (&[300_000, 24, 2000], 5 << 20)] {
        give_all(&slots, sizes.iter().map(|&size| take(&slots, A, size)).collect());
        assert!((1..=most).contains(&told()), "{sizes:?}");
    }
    // Of this thread's, freed by another: blocks of chunks that are found empty when remote frees are collected.
    let all: Vec<_> = (0..6).map(|_| Shared(take(&slots, A, MIB))).collect();
    let full = mapped(&slots);
    let others = slots.clone();
    thread::spawn(move || all.iter().for_each(|at| give(&others, at.0))).join().unwrap();
    assert_eq!(mapped(&slots), full);
    assert_eq!(told(), full);
    drop_last(slots, twin);
}

#[test]
fn empty_pages_of_many_sizes_keep_no_blocks() {
    for backwards in [false, true] {
        let (slots, twin) = on_twin();
        let mut all = Vec::new();
        for size in (1..=32).map(|step| step * 32) {
            all.extend((0..(5 << 20) / size).map(|_| take(&slots, A, size)));
        }
        assert!(mapped(&slots) > 160 << 20);
        if backwards {
            all.reverse();
        }
        give_all(&slots, all);
        slots.validate().unwrap();
        let total = slots.stats().total();
        assert!(total.live_objects == 0 && total.blocks <= 2, "{} blocks", total.blocks);
        drop_last(slots, twin);
    }
}

#[test]
fn pages_that_emptied_last_serve_before_another_block_does() {
    let (slots, twin) = on_twin();
    // One page of each size, all active.
    let all = (1..=60).map(|step| take(&slots, A, step * 16)).collect();
    give_all(&slots, all);
    let many: Vec<_> = (0..60 * 64).map(|_| take(&slots, A, 1024)).collect();
    assert_eq!(slots.stats().total().blocks, 1);
    slots.validate().unwrap();
    give_all(&slots, many);
    drop_last(slots, twin);
}

#[test]
fn what_a_thread_that_has_ended_had_goes_back_when_others_have_freed_it() {
    for size in [96, 5000] {
        let (slots, twin) = on_twin();
        // So that this thread has an arena, and does not adopt the other's.
        give(&slots, take(&slots, Affinity::DATA, 8));
        slots.trim();
        let maker = slots.clone();
        let all =
            thread::spawn(move || (0..(40 << 20) / size).map(|_| Shared(take(&maker, A, size))).collect::<Vec<_>>());
        let all = all.join().unwrap();
        let full = mapped(&slots);
        for at in all {
            give(&slots, at.0);
        }
        // Without a word to the slots: by frees alone.
        let left = mapped(&slots);
        assert!(left < full / 4, "{size}: {left} of {full}");
        slots.flush();
        assert_eq!(slots.stats().total().live_objects, 0);
        assert!(mapped(&slots) <= 4 << 20, "{size}: one block of each kind is kept");
        slots.validate().unwrap();
        slots.trim();
        assert_eq!(mapped(&slots), 0);
        drop_last(slots, twin);
    }
}

/// Uses slots when its thread's variables are destroyed, after the slots' own.
struct Late(RefCell<Option<LateWork>>);

struct LateWork {
    slots: Slots,
    places: Vec<Shared>,
    late: Sender<bool>,
}

impl Drop for Late {
    fn drop(&mut self) {
        let Some(LateWork { slots, places, late }) = self.0.take() else { return };
        let is_late = seat::existing(&slots.shared).is_none();
        for at in places {
            give(&slots, at.0);
        }
        for n in 0..3000 {
            let at = take(&slots, A, 8 + n % 2000);
            if n % 2 == 0 {
                give(&slots, at);
            }
        }
        late.send(is_late).unwrap();
    }
}

thread_local! {
    static LATE: Late = const { Late(RefCell::new(None)) };
}

#[test]
fn a_thread_that_is_ending_can_go_on() {
    let (slots, twin) = on_twin();
    for n in 0..100 {
        slots.affinity(&format!("kind {n}"), AffinitySettings::default()).unwrap();
    }
    let (to, from) = channel();
    let mine: Vec<_> = (0..2000).map(|_| Shared(take(&slots, A, 40))).collect();
    let others = slots.clone();
    thread::spawn(move || {
        LATE.with(|late| {
            let mut places = mine;
            places.extend((0..3000).map(|_| Shared(take(&others, A, 24))));
            *late.0.borrow_mut() = Some(LateWork { slots: others, places, late: to });
        });
    })
    .join()
    .unwrap();
    assert!(from.recv().unwrap());
    // The thread's last handle goes after what it has said.
    let stats = slots.stats();
    assert_eq!((stats.arenas, stats.ownerless_arenas), (1, 1));
    slots.trim();
    slots.validate().unwrap();
    assert_eq!(slots.stats().total().live_objects, 1500);
    // SAFETY: nobody uses the nodes any more.
    unsafe { slots.release(A) };
    assert_eq!(mapped(&slots), 0);
    slots.validate().unwrap();
    drop_last(slots, twin);
}

/// Fills a budget with slots in another thread, which stays and has nothing more to do. Returns what it made.
fn built_elsewhere(slots: &Slots, affinity: Affinity) -> (Vec<Shared>, (Sender<()>, JoinHandle<()>)) {
    let (slots, (ready, made), (end, ended)) = (slots.clone(), channel(), channel());
    let thread = thread::spawn(move || {
        let all: Vec<_> = from_fn(|| slots.alloc(affinity, layout(256)).ok()).map(Shared).collect();
        ready.send(all).unwrap();
        ended.recv().unwrap();
        // Its lists are as they should be, and it goes on with them.
        slots.validate().unwrap();
        let more: Vec<_> = (0..1000).map(|_| take(&slots, affinity, 256)).collect();
        give_all(&slots, more);
        slots.validate().unwrap();
    });
    (made.recv().unwrap(), (end, thread))
}

#[test]
fn a_budget_serves_whoever_asks_when_its_objects_are_freed() {
    let (slots, _twin) = on_twin();
    let level = AffinitySettings { max_blocks: Some(4), ..AffinitySettings::default() };
    let level = slots.affinity("level", level).unwrap();
    let (all, (end, thread)) = built_elsewhere(&slots, level);
    assert!(all.len() > 60_000, "{}", all.len());
    give_all(&slots, all.iter().map(|at| at.0).collect());
    slots.flush();
    // All but the block that the other thread's next object will be in.
    let next: Vec<_> = from_fn(|| slots.alloc(level, layout(256)).ok()).collect();
    assert!(next.len() * 4 == all.len() * 3, "{} of {}", next.len(), all.len());
    slots.validate().unwrap();
    give_all(&slots, next);
    slots.trim();
    end.send(()).unwrap();
    thread.join().unwrap();
    slots.trim();
    assert_eq!(slots.stats().total().mapped_bytes, 0);
}

#[test]
fn a_trim_gives_back_what_an_idle_thread_has_nothing_in() {
    let (slots, _twin) = on_twin();
    let level = AffinitySettings { max_blocks: Some(6), ..AffinitySettings::default() };
    slots.configure(A, level).unwrap();
    let (all, (end, thread)) = built_elsewhere(&slots, A);
    give_all(&slots, all[1..].iter().map(|at| at.0).collect());
    // The other thread keeps the block with an object in it, the one of its next object, and one for the next page.
    assert_eq!(slots.trim(), 3 * BLOCK_BYTES as u64);
    let stats = slots.stats().total();
    assert_eq!((stats.live_objects, stats.blocks), (1, 3));
    give(&slots, all[0].0);
    assert_eq!(slots.trim(), BLOCK_BYTES as u64);
    end.send(()).unwrap();
    thread.join().unwrap();
    slots.trim();
    assert_eq!(slots.stats().total().mapped_bytes, 0);
}

/// Each of them was waited for as long as all together are now, one after the other, and all who were refused with it.
#[test]
fn a_request_that_is_refused_waits_for_all_that_are_at_work_together() {
    let (slots, _twin) = on_twin();
    let (all, done) = (Barrier::new(17), AtomicBool::new(false));
    thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                give(&slots, take(&slots, A, 40));
                let _lists = lock(&seat::existing(&slots.shared).unwrap().lists);
                all.wait();
                while !done.load(Relaxed) {
                    thread::sleep(Duration::from_millis(1));
                }
            });
        }
        all.wait();
        let takes = || {
            let start = Instant::now();
            slots.shared.take_empty(None, None, true);
            start.elapsed()
        };
        let least = (0..5).map(|_| takes()).min();
        done.store(true, Relaxed);
        assert!(least < Some(Duration::from_millis(100)), "{least:?}");
    });
}
