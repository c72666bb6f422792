//! What goes wrong between threads: late remote frees, second frees, reports beside the owner's work.
//!
//! Most of it is about buffers of remote frees, which the checked build does not fill: run these without debug
//! assertions, too.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use gabion_blocks::os::Twin;
use gabion_blocks::{Pool, Settings};

use super::{Shared, freed_elsewhere, give, give_all, layout, on_twin, take};
use crate::record::{Page, link};
use crate::sync::Ordering::Relaxed;
use crate::{Affinity, AffinitySettings, FreeError, MOST_AFFINITIES, Slots, remote, seat};

const A: Affinity = Affinity::NODES;

/// Frees what may be refused.
fn try_free(slots: &Slots, at: NonNull<u8>) -> Result<(), FreeError> {
    // SAFETY: nobody uses what is there; that it may be free already is what is tested.
    unsafe { slots.free(at) }
}

#[test]
fn a_late_batch_of_a_released_affinity_takes_nothing_of_the_next_one() {
    for same_slot in [false, true] {
        let twin: &'static Twin = Box::leak(Box::default());
        let mut settings = Settings::unpooled();
        settings.pool_bytes = 1 << 30;
        let pool = Pool::with_root(twin, settings, "/nonexistent-root".into()).unwrap();
        let slots = Slots::new(&pool).unwrap();
        // Enough blocks that some are kept by the pool, warm.
        let nodes: Vec<_> = (0..12 * 64_512).map(|_| Shared(take(&slots, A, 64))).collect();
        let (first, second) = (nodes[11 * 64_512 + 3], nodes[11 * 64_512 + 4]);
        let (to, from) = channel::<Shared>();
        let (answer, freed) = channel();
        let other = {
            let slots = slots.clone();
            thread::spawn(move || from.into_iter().for_each(|at| answer.send(try_free(&slots, at.0)).unwrap()))
        };
        to.send(first).unwrap();
        freed.recv().unwrap().unwrap();
        // SAFETY: nobody uses the nodes any more.
        unsafe { slots.release(A) };
        // The block that it keeps.
        slots.trim();
        let wanted = if same_slot { first } else { second };
        let mut data = 0;
        let again = (0..20 * 64_512).map(|_| take(&slots, Affinity::DATA, 64)).inspect(|_| data += 1);
        let again = again.into_iter().find(|&at| Shared(at) == wanted);
        if let Some(at) = again {
            to.send(Shared(at)).unwrap();
            assert_eq!(freed.recv().unwrap(), Ok(()), "same slot: {same_slot}");
            data -= 1;
        }
        drop(to);
        other.join().unwrap();
        assert_eq!((again.is_some(), slots.stats().total().live_objects), (true, data), "same slot: {same_slot}");
    }
}

#[test]
fn a_chunk_is_refused_after_its_affinity_was_released() {
    let (slots, _twin) = on_twin();
    let places: Vec<_> = (0..4).map(|_| take(&slots, A, 1200)).collect();
    // SAFETY: nobody uses the nodes any more.
    unsafe { slots.release(A) };
    for &at in &places {
        assert!(try_free(&slots, at).is_err());
    }
    let fresh = take(&slots, A, 4000);
    for &at in &places[1..] {
        assert!(try_free(&slots, at).is_err());
    }
    slots.validate().unwrap();
    give(&slots, fresh);
}

#[test]
fn a_flush_reaches_slots_that_were_not_the_last_ones() {
    let ((slots, _), (others, _)) = (on_twin(), on_twin());
    let at = Shared(take(&slots, A, 64));
    let (ready, wait) = channel();
    let (end, ended) = channel::<()>();
    let freeing = {
        let slots = slots.clone();
        thread::spawn(move || {
            let at = at;
            give(&slots, at.0);
            take(&others, A, 64);
            slots.flush();
            ready.send(()).unwrap();
            ended.recv().unwrap();
        })
    };
    wait.recv().unwrap();
    slots.trim();
    assert_eq!(slots.stats().total().live_objects, 0);
    end.send(()).unwrap();
    freeing.join().unwrap();
}

#[test]
fn a_slot_that_its_owner_frees_as_well_is_freed_once_though_its_block_is_gone() {
    let (slots, twin) = on_twin();
    let at = take(&slots, A, 64);
    let (go, other) = freed_elsewhere(&slots, at, Slots::flush);
    let second = try_free(&slots, at);
    slots.trim();
    assert_eq!((slots.stats().total().live_objects, twin.mapped()), (0, 0));
    go.send(()).unwrap();
    other.join().unwrap();
    slots.validate().unwrap();
    // Found by one of the two, or counted when nobody was left to tell.
    assert_eq!(u64::from(second.is_err()) + slots.stats().total().late_double_frees, 1);
}

#[test]
fn a_second_free_that_waits_to_be_collected_breaks_no_equation() {
    let (slots, _twin) = on_twin();
    let (kept, at) = (take(&slots, A, 64), take(&slots, A, 64));
    let (go, other) = freed_elsewhere(&slots, at, Slots::flush);
    let second = try_free(&slots, at);
    go.send(()).unwrap();
    other.join().unwrap();
    slots.validate().unwrap();
    // As it comes about in the checked build as well, which delivers each free to its owner at once.
    // SAFETY: a slot of this arena's, whose page stays for the sake of what is kept.
    let page = unsafe { Page::around(at) };
    let (_, pair, bit) = page.slot_at(at).unwrap();
    let mine = seat::existing(&slots.shared).unwrap();
    slots.shared.collect_remote_frees(mine);
    let remote = &page.header.remote;
    remote::publish(pair.remote_free, bit, &remote.pages, page.index() as u32, || {
        mine.remote.slots.push(link(remote.number.load(Relaxed)), &remote.next);
    });
    slots.validate().unwrap();
    slots.shared.collect_remote_frees(mine);
    assert_eq!(u64::from(second.is_err()) + slots.stats().total().late_double_frees, 2);
    // What nobody says is found.
    pair.remote_free.fetch_or(bit, Relaxed);
    slots.validate().unwrap_err();
    pair.remote_free.store(0, Relaxed);
    slots.validate().unwrap();
    give(&slots, kept);
}

#[test]
fn reports_are_sound_while_pages_are_opened_and_closed() {
    let (slots, _twin) = on_twin();
    let kept = take(&slots, A, 512);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let total = slots.stats().total();
                assert!(total.wasted_bytes < 1 << 32 && total.live_bytes < 1 << 32, "{total:?}");
            }
        });
        let end = Instant::now() + Duration::from_millis(500);
        while Instant::now() < end {
            for size in [8, 1024, 16, 768] {
                give_all(&slots, (0..200_000 / size).map(|_| take(&slots, A, size)).collect());
                slots.trim();
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    give(&slots, kept);
}

#[test]
fn chunks_are_freed_by_others_while_their_owner_joins_and_reuses() {
    let (slots, _twin) = on_twin();
    let (to, from) = channel::<Shared>();
    let freeing = {
        let slots = slots.clone();
        thread::spawn(move || from.into_iter().filter_map(|at| try_free(&slots, at.0).err()).count())
    };
    let (mut live, mut state, end) = (Vec::new(), 7_u64, Instant::now() + Duration::from_millis(500));
    while Instant::now() < end {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let size = 1100 + (state >> 40) as usize % 3000;
        let at = slots.alloc(A, layout(size)).unwrap();
        // SAFETY: live. What looks like a used tag, all over it.
        unsafe { at.write_bytes(0x1F, size) };
        if state >> 61 == 0 {
            to.send(Shared(at)).unwrap();
        } else {
            live.push(at);
        }
        if live.len() > 700 {
            give(&slots, live.swap_remove((state >> 33) as usize % 700));
        }
    }
    drop(to);
    assert_eq!(freeing.join().unwrap(), 0, "refused, though live");
    give_all(&slots, live);
    slots.trim();
    slots.validate().unwrap();
    assert_eq!(slots.stats().total().live_objects, 0);
}

/// Who found the name that another thread was just making was told of an affinity that nobody had made yet.
#[test]
fn an_affinity_that_is_found_by_its_name_can_be_used() {
    for _ in 0..400 {
        let (slots, came, refused) = (on_twin().0, AtomicUsize::new(0), Mutex::new(Vec::new()));
        let make = || {
            for (round, name) in (1..).zip(4..MOST_AFFINITIES) {
                came.fetch_add(1, Ordering::SeqCst);
                // Awake, so that both begin at one time, unless the other has no processor.
                let together = || came.load(Ordering::SeqCst) >= 2 * round;
                while !(0..1000).any(|_| together()) {
                    thread::yield_now();
                }
                let affinity = slots.affinity(&name.to_string(), AffinitySettings::default()).unwrap();
                if let Err(error) = slots.configure(affinity, AffinitySettings::default()) {
                    refused.lock().unwrap().push(error);
                }
            }
        };
        thread::scope(|scope| [scope.spawn(make), scope.spawn(make)].map(|one| one.join().unwrap()));
        assert_eq!(*refused.lock().unwrap(), []);
    }
}

/// Who asked for memory while another thread took back what ended threads had kept was refused, though most of it was
/// free.
#[test]
fn nothing_is_refused_while_others_take_back_what_ended_threads_kept() {
    let (slots, _twin) = on_twin();
    slots.configure(A, AffinitySettings { alignment: 8, max_blocks: Some(4) }).unwrap();
    // Of others they keep more, and so it takes longer.
    let more: Vec<_> =
        (0..20).map(|n| slots.affinity(&format!("kind {n}"), AffinitySettings::default()).unwrap()).collect();
    let (four, both, refused) = (Barrier::new(4), Barrier::new(3), AtomicUsize::new(0));
    let keep = || {
        let at = take(&slots, A, 24);
        for &affinity in &more {
            give(&slots, take(&slots, affinity, 24));
        }
        four.wait();
        give(&slots, at);
    };
    let rounds = 100;
    let ask = || {
        // In an arena of its own, so that it adopts none of theirs.
        give(&slots, take(&slots, Affinity::DATA, 8));
        both.wait();
        for _ in 0..rounds {
            both.wait();
            match slots.alloc(A, layout(24)) {
                Ok(at) => give(&slots, at),
                Err(_) => _ = refused.fetch_add(1, Ordering::Relaxed),
            }
            both.wait();
            slots.trim();
            both.wait();
        }
    };
    thread::scope(|scope| {
        let asking = [scope.spawn(ask), scope.spawn(ask)];
        both.wait();
        for _ in 0..rounds {
            for ended in [0; 4].map(|_| scope.spawn(keep)) {
                ended.join().unwrap();
            }
            for _ in 0..3 {
                both.wait();
            }
        }
        for one in asking {
            one.join().unwrap();
        }
    });
    assert_eq!(refused.into_inner(), 0, "of {}", 2 * rounds);
    slots.validate().unwrap();
}
