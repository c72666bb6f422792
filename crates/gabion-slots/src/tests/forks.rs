//! What a forked child finds that other threads of its parent had half done.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::mpsc::channel;
use std::thread;

use gabion_heap::Chunks;

use super::{Shared, drop_last, freed_elsewhere, give, give_all, layout, on_twin, take};
use crate::checked::CHECKED;
use crate::chunks::push_remote_chunk;
use crate::record::{Page, link};
use crate::sync::Ordering::Relaxed;
use crate::{Affinity, Slots, seat};

const A: Affinity = Affinity::NODES;

/// Runs in a forked child, which must end well.
fn in_child(act: impl FnOnce()) {
    // SAFETY: the child uses only what is made to work after a fork, and leaves without unwinding.
    let process = unsafe { libc::fork() };
    if process == 0 {
        // SAFETY: a child that waits for something for ever is ended.
        unsafe { libc::alarm(300) };
        let ran = catch_unwind(AssertUnwindSafe(act));
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(i32::from(ran.is_err())) };
    }
    let mut status = 0;
    // SAFETY: waits for the child above.
    assert_eq!(unsafe { libc::waitpid(process, &raw mut status, 0) }, process);
    assert_eq!(status, 0);
}

fn live(slots: &Slots) -> u64 {
    slots.stats().total().live_objects
}

#[test]
fn what_a_thread_was_just_freeing_is_found_in_the_child() {
    let (slots, _twin) = on_twin();
    let (kept, at) = (take(&slots, A, 24), take(&slots, A, 24));
    // Steps 1 and 2 of a remote free, by a thread that has not come to step 3.
    // SAFETY: a slot of these slots.
    let page = unsafe { Page::around(at) };
    let (_, pair, bit) = page.slot_at(at).unwrap();
    pair.remote_free.fetch_or(bit, Relaxed);
    page.header.remote.pages.fetch_or(1 << page.index(), Relaxed);
    in_child(|| {
        slots.trim();
        slots.validate().unwrap();
        assert_eq!(live(&slots), 1);
        give(&slots, kept);
        slots.trim();
        assert_eq!(slots.stats().total().mapped_bytes, 0);
    });
    // Step 3, in the parent.
    let mine = seat::existing(&slots.shared).unwrap();
    mine.remote.slots.push(link(page.header.number.load(Relaxed)), &page.header.remote.next);
    slots.trim();
    assert_eq!(live(&slots), 1);
    slots.validate().unwrap();
}

#[test]
fn a_child_leaves_the_arenas_of_other_threads_alone() {
    let (slots, twin) = on_twin();
    let mine: Vec<NonNull<u8>> = [24, 5000].map(|size| take(&slots, A, size)).to_vec();
    let (to, from) = channel();
    let (end, ended) = channel::<()>();
    let other = {
        let slots = slots.clone();
        thread::spawn(move || {
            to.send([24, 5000].map(|size| Shared(take(&slots, A, size)))).unwrap();
            // The slots live until here, so that the child drops the last handle that it has.
            ended.recv().unwrap();
        })
    };
    let theirs = from.recv().unwrap();
    in_child(|| {
        // Used and freed, but not taken in.
        for at in &theirs {
            give(&slots, at.0);
        }
        slots.flush();
        let stats = slots.stats();
        assert_eq!((stats.arenas, stats.ownerless_arenas, stats.orphaned_arenas), (1, 0, 1));
        // SAFETY: nobody uses the nodes any more.
        unsafe { slots.release(A) };
        // SAFETY: there is no other thread.
        unsafe { slots.validate_all() }.unwrap();
        let fresh = slots.alloc(A, layout(24)).unwrap();
        slots.trim();
        give(&slots, fresh);
        slots.validate().unwrap();
    });
    for at in mine.into_iter().chain(theirs.map(|at| at.0)) {
        give(&slots, at);
    }
    end.send(()).unwrap();
    other.join().unwrap();
    slots.flush();
    slots.trim();
    assert_eq!((live(&slots), slots.stats().total().mapped_bytes), (0, 0));
    drop_last(slots, twin);
}

#[test]
fn a_child_goes_on_with_the_arena_of_a_thread_that_had_ended() {
    let (slots, twin) = on_twin();
    let (to, from) = channel();
    let ended = slots.clone();
    let thread = thread::spawn(move || to.send([0; 2].map(|_| Shared(take(&ended, A, 24)))).unwrap());
    thread.join().unwrap();
    let [kept, at] = from.recv().unwrap();
    assert_eq!((slots.stats().ownerless_arenas, seat::existing(&slots.shared).is_none()), (1, true));
    // Steps 1 and 2 of a remote free, by a thread that has not come to step 3.
    // SAFETY: a slot of these slots.
    let page = unsafe { Page::around(at.0) };
    let (_, pair, bit) = page.slot_at(at.0).unwrap();
    pair.remote_free.fetch_or(bit, Relaxed);
    page.header.remote.pages.fetch_or(1 << page.index(), Relaxed);
    in_child(|| {
        slots.trim();
        assert_eq!(live(&slots), 1, "what was just being freed is found");
        for size in [24, 24, 300, 5000, 100_000, 5 << 20] {
            take(&slots, A, size);
        }
        slots.validate().unwrap();
        // SAFETY: nobody uses the nodes any more.
        unsafe { slots.release(A) };
        // SAFETY: there is no other thread.
        unsafe { slots.validate_all() }.unwrap();
        slots.trim();
        assert_eq!((live(&slots), slots.stats().total().mapped_bytes), (0, 0));
    });
    // Step 3, in the parent.
    let arena = slots.shared.arena_of(page.owner()).unwrap();
    arena.remote.slots.push(link(page.header.number.load(Relaxed)), &page.header.remote.next);
    give(&slots, kept.0);
    slots.flush();
    slots.trim();
    assert_eq!((live(&slots), slots.stats().total().mapped_bytes), (0, 0));
    slots.validate().unwrap();
    drop_last(slots, twin);
}

#[test]
fn what_a_vanished_thread_had_gathered_stays_taken_in_the_child() {
    let (slots, twin) = on_twin();
    let (kept, at) = (take(&slots, A, 24), take(&slots, A, 24));
    let (end, other) = freed_elsewhere(&slots, at, |_| {});
    let freed = |slots: &Slots| {
        slots.trim();
        slots.validate().unwrap();
        // The checked build delivers each slot to its owner at once.
        assert_eq!(live(slots), if CHECKED { 1 } else { 2 });
    };
    in_child(|| {
        freed(&slots);
        // Children of children are no worse off.
        in_child(|| {
            freed(&slots);
            give(&slots, kept);
            // SAFETY: nobody uses the nodes any more.
            unsafe { slots.release(A) };
            // SAFETY: there is no other thread.
            unsafe { slots.validate_all() }.unwrap();
            slots.trim();
            assert_eq!((live(&slots), slots.stats().total().mapped_bytes), (0, 0));
        });
        freed(&slots);
    });
    end.send(()).unwrap();
    other.join().unwrap();
    give(&slots, kept);
    slots.trim();
    assert_eq!((live(&slots), twin.mapped()), (0, 0));
}

#[test]
fn a_chunk_that_was_just_being_freed_does_no_harm_in_the_child() {
    for counted in [false, true] {
        let (slots, twin) = on_twin();
        let (kept, at) = (take(&slots, A, 5000), take(&slots, A, 5000));
        let mine = seat::existing(&slots.shared).unwrap();
        // What another thread does first with a chunk of this one's.
        // SAFETY: in a block of chunks of these slots.
        let (block, chunk) = unsafe { slots.shared.chunk_at(at) }.unwrap();
        Chunks::leave(block, chunk).unwrap();
        let (row, bytes) = (mine.row(A), Chunks::room(block, chunk) as u64 * 8);
        let count = || {
            row.remote_objects.fetch_add(1, Relaxed);
            row.remote_bytes.fetch_add(bytes, Relaxed);
        };
        if counted {
            count();
        }
        in_child(|| {
            slots.trim();
            slots.validate().unwrap();
            assert_eq!(live(&slots), 2 - u64::from(counted));
            let more: Vec<_> = (0..100).map(|_| take(&slots, A, 5000)).collect();
            assert!(!more.contains(&at), "it is nobody's any more");
            give_all(&slots, more);
            give(&slots, kept);
            // SAFETY: nobody uses the nodes any more.
            unsafe { slots.release(A) };
            slots.validate().unwrap();
            assert_eq!((live(&slots), slots.stats().total().mapped_bytes), (0, 0));
        });
        if !counted {
            count();
        }
        push_remote_chunk(mine, block, chunk);
        give(&slots, kept);
        slots.trim();
        slots.validate().unwrap();
        assert_eq!((live(&slots), slots.stats().total().mapped_bytes), (0, 0));
        drop_last(slots, twin);
    }
}
