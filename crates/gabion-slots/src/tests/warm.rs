//! What is freed and wanted again at once stays warm.

use std::thread;

use gabion_blocks::os::Twin;
use gabion_blocks::{Pool, Settings};

use super::{MIB, Shared, drop_last, give, give_all, layout, resize, take};
use crate::{Affinity, AffinitySettings, Slots};

const A: Affinity = Affinity::OBJECTS;

/// Slots on a pool that keeps what comes back, and what that pool maps through.
fn on_warm_twin() -> (Slots, &'static Twin) {
    let twin: &'static Twin = Box::leak(Box::default());
    let mut settings = Settings::unpooled();
    settings.pool_bytes = 1 << 30;
    let pool = Pool::with_root(twin, settings, "/nonexistent-root".into()).unwrap();
    (Slots::new(&pool).unwrap(), twin)
}

#[test]
fn a_batch_of_chunks_that_comes_again_costs_no_memory_anew() {
    let (slots, twin) = on_warm_twin();
    let batch = |size: usize| {
        let places: Vec<_> = (0..(20 << 20) / size).map(|_| take(&slots, A, size)).collect();
        slots.validate().unwrap();
        give_all(&slots, places);
        slots.validate().unwrap();
    };
    for size in [2000, 30_000, 200_000] {
        // Twice: until one is full, blocks keep to small pages and are not kept.
        batch(size);
        batch(size);
        let (maps, decommitted) = (twin.maps(), twin.decommitted());
        for _ in 0..5 {
            batch(size);
        }
        assert_eq!((twin.maps(), twin.decommitted()), (maps, decommitted), "{size} bytes");
    }
    slots.trim();
    assert_eq!((slots.stats().total().mapped_bytes, slots.stats().total().blocks), (0, 0));
    slots.validate().unwrap();
}

#[test]
fn a_request_that_nothing_could_serve_leaves_what_is_warm() {
    let (slots, _twin) = on_warm_twin();
    let use_some = |slots: &Slots| {
        for size in [48, 4000] {
            give_all(slots, (0..100).map(|_| take(slots, A, size)).collect());
        }
    };
    use_some(&slots);
    let others = slots.clone();
    thread::spawn(move || use_some(&others)).join().unwrap();
    let (small, large) = (take(&slots, A, 40_000), take(&slots, A, 3 * MIB));
    let kept = slots.stats().total().mapped_bytes;
    let all_of_it = |at, old, bytes| {
        slots.alloc(A, layout(bytes)).unwrap_err();
        slots.alloc_zeroed(A, layout(bytes)).unwrap_err();
        resize(&slots, A, at, (old, bytes), true).unwrap_err();
        assert_eq!(slots.stats().total().mapped_bytes, kept, "{bytes} bytes");
    };
    for bytes in [1 << 46, 1 << 50, isize::MAX as usize - 7] {
        all_of_it(small, 40_000, bytes);
        all_of_it(large, 3 * MIB, bytes);
    }
    slots.configure(A, AffinitySettings { alignment: 8, max_blocks: Some(8) }).unwrap();
    all_of_it(small, 40_000, 33 * MIB);
    all_of_it(large, 3 * MIB, 33 * MIB);
    give_all(&slots, vec![small, large]);
    assert!(slots.trim() > 0 && slots.stats().total().mapped_bytes == 0);
}

#[test]
fn blocks_of_chunks_that_other_threads_empty_go_back_too() {
    let (slots, twin) = on_warm_twin();
    let all: Vec<_> = (0..5000).map(|_| Shared(take(&slots, A, 4000))).collect();
    let full = slots.stats().total().mapped_bytes;
    let others = slots.clone();
    thread::spawn(move || {
        for at in all {
            give(&others, at.0);
        }
    })
    .join()
    .unwrap();
    // The owner takes them in with its next chunk, and keeps one block.
    give(&slots, take(&slots, A, 4000));
    let total = slots.stats().total();
    assert!(total.live_objects == 0 && total.mapped_bytes < full / 4, "{total:?} of {full}");
    slots.validate().unwrap();
    slots.trim();
    assert_eq!(slots.stats().total().mapped_bytes, 0);
    slots.shared.pool.trim(true);
    drop_last(slots, twin);
}

#[test]
fn chunks_and_budgets_outlive_blocks_that_went_back() {
    let (slots, _twin) = on_warm_twin();
    let mut live = std::collections::VecDeque::new();
    // A window that moves on: blocks are emptied one after another, and their numbers used again.
    for n in 0_usize..20_000 {
        live.push_back(take(&slots, A, 1100 + n * 37 % 30_000));
        if live.len() > 700 {
            give(&slots, live.pop_front().unwrap());
        }
        if n % 2000 == 0 {
            slots.validate().unwrap();
        }
    }
    let total = slots.stats().total();
    assert!(total.mapped_bytes < 2 * total.live_bytes + (8 << 20), "{total:?}");
    // SAFETY: nobody uses what is live any more.
    unsafe { slots.release(A) };
    assert_eq!(slots.stats().total().mapped_bytes, 0);
    let again: Vec<_> = (0..3000).map(|_| take(&slots, A, 5000)).collect();
    slots.validate().unwrap();
    give_all(&slots, again);
    slots.trim();
    assert_eq!(slots.stats().total().mapped_bytes, 0);
    slots.validate().unwrap();
}

#[test]
fn what_grows_in_steps_seldom_moves() {
    let (slots, _twin) = on_warm_twin();
    let ways = [(1100, MIB, 1000, 12), (2 * MIB, 60 * MIB, 60_000, 20)];
    for ((first, last, step, most), told) in ways.into_iter().flat_map(|way| [(way, true), (way, false)]) {
        let (mut at, mut size, mut moves) = (take(&slots, A, first), first, 0);
        while size < last {
            let to = resize(&slots, A, at, (size, size + step), told).unwrap();
            // SAFETY: live; as many bytes are of before, all written to.
            let kept = unsafe { to.add(size - 1).read() == 0xA5 && to.read() == 0xA5 };
            assert!(kept, "{size} bytes");
            // SAFETY: the rest of what is live.
            unsafe { to.add(size).write_bytes(0xA5, step) };
            moves += usize::from(to != at);
            (at, size) = (to, size + step);
        }
        assert!(moves <= most, "{moves} moves from {first} to {last} bytes");
        slots.validate().unwrap();
        give(&slots, at);
    }
    slots.trim();
    assert_eq!((slots.stats().total().live_bytes, slots.stats().total().mapped_bytes), (0, 0));
}

#[test]
fn a_chunk_grows_into_free_room_alone() {
    for told in [true, false] {
        grow_a_chunk(told);
    }
}

fn grow_a_chunk(told: bool) {
    let (slots, _twin) = on_warm_twin();
    let [one, two, three] = [0; 3].map(|_| take(&slots, A, 4000));
    let grown = |at, old, new| resize(&slots, A, at, (old, new), told).unwrap();
    let moved = grown(one, 4000, 6000);
    assert_ne!(moved, one, "a neighbour is in the way");
    let one = take(&slots, A, 4000);
    give(&slots, two);
    let same = grown(one, 4000, 7000);
    // SAFETY: live, and not freed since.
    let room = unsafe { slots.usable_size(same) };
    assert!(same == one && room >= 7000, "what was free behind it serves: {room}");
    slots.validate().unwrap();
    let fuller = grown(same, 7000, 7900);
    slots.validate().unwrap();
    assert_ne!(grown(fuller, 7900, 9000), three);
    // Another thread's chunk moves: only its owner knows what is free.
    let (others, theirs) = (slots.clone(), Shared(three));
    let gone = thread::spawn(move || {
        let theirs = theirs;
        Shared(resize(&others, A, theirs.0, (4000, 5000), told).unwrap())
    });
    assert_ne!(gone.join().unwrap(), theirs);
    slots.validate().unwrap();
}

#[test]
fn chunks_at_hand_are_free_to_all_figures_and_go_with_their_thread() {
    let (slots, _twin) = on_warm_twin();
    let total = || slots.stats().total();
    let at = take(&slots, A, 3000);
    for _ in 0..3 {
        give(&slots, at);
        assert_eq!((total().live_objects, total().live_bytes), (0, 0));
        slots.validate().unwrap();
        assert_eq!(take(&slots, A, 3000), at, "what was just freed is taken first");
        assert_eq!(total().live_objects, 1);
    }
    // SAFETY: live, and written to by `take`; zeroed anew.
    unsafe {
        slots.free(at).unwrap();
        let again = slots.alloc_zeroed(A, layout(3000)).unwrap();
        assert!(again == at && std::slice::from_raw_parts(at.as_ptr(), 3000).iter().all(|&byte| byte == 0));
        slots.free(at).unwrap();
        slots.free(at).unwrap_err();
        slots.realloc(A, at, layout(3000), layout(4000)).unwrap_err();
        // Nobody uses anything of the affinity.
        slots.release(A);
    }
    assert_eq!(total().mapped_bytes, 0);
    slots.validate().unwrap();
    let others = slots.clone();
    let batch = move || {
        for step in 0..20 {
            let all = (0..100).map(|n| take(&others, A, 1100 + n * 37 * step)).collect();
            give_all(&others, all);
        }
        others.validate().unwrap();
    };
    thread::spawn(batch).join().unwrap();
    assert_eq!(total().live_bytes, 0);
    slots.validate().unwrap();
    slots.trim();
    assert_eq!(total().mapped_bytes, 0, "an ended thread's tray is emptied, too");
    slots.validate().unwrap();
}

#[test]
fn a_double_free_is_found_while_the_chunk_is_at_hand() {
    let (slots, _twin) = on_warm_twin();
    let all: Vec<_> = (0..100).map(|n| take(&slots, A, 1100 + n * 100)).collect();
    for &at in &all {
        give(&slots, at);
        // SAFETY: a second free is found, whoever makes it.
        unsafe { slots.free(at) }.unwrap_err();
    }
    let (others, places) = (slots.clone(), all.into_iter().map(Shared).collect::<Vec<_>>());
    let again = thread::spawn(move || {
        // SAFETY: as above.
        places.iter().all(|at| unsafe { others.free(at.0) }.is_err())
    });
    assert!(again.join().unwrap());
    assert_eq!(slots.stats().total().live_objects, 0);
    slots.validate().unwrap();
}
