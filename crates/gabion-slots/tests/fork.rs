//! A forked child, whose parent has other threads in the middle of their work.

use std::alloc::Layout;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use gabion_blocks::Pool;
use gabion_slots::{Affinity, Slots};

fn churn(slots: &Slots, rounds: usize) -> usize {
    let mut held: Vec<(NonNull<u8>, Layout)> = Vec::new();
    for n in 0..rounds {
        let size = [24, 48, 900, 3000, 20, 200_000, 2_000_000][if n % 50 == 0 { n / 50 % 7 } else { n % 3 }];
        let layout = Layout::from_size_align(size, 8).unwrap();
        held.push((slots.alloc(Affinity::NODES, layout).unwrap(), layout));
        if n % 3 == 0 {
            let (at, layout) = held.swap_remove(n % held.len());
            // SAFETY: allocated here with this layout, and used no more.
            unsafe { slots.free_sized(Affinity::NODES, at, layout) }.unwrap();
        }
    }
    let count = held.len();
    for (at, _) in held {
        // SAFETY: as above.
        unsafe { slots.free(at) }.unwrap();
    }
    count
}

#[test]
fn a_child_allocates_and_frees_while_the_parent_was_busy() {
    let slots = Slots::new(Pool::global()).unwrap();
    let layout = Layout::from_size_align(40, 8).unwrap();
    let before = slots.alloc(Affinity::NODES, layout).unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    churn(&slots, 500);
                }
            });
        }
        for round in 0..30 {
            // SAFETY: the child uses only what is made to work after a fork, and leaves without unwinding.
            let child = unsafe { libc::fork() };
            if child == 0 {
                // SAFETY: a child that waits for something for ever is ended.
                unsafe { libc::alarm(300) };
                let ran = catch_unwind(AssertUnwindSafe(|| {
                    churn(&slots, 2000);
                    // SAFETY: this process's own copy.
                    unsafe { slots.free(before) }.unwrap();
                    slots.trim();
                    slots.validate().unwrap();
                    // SAFETY: nobody uses the data.
                    unsafe { slots.release(Affinity::DATA) };
                    slots.stats().total().live_objects
                }));
                // SAFETY: ends the child at once.
                unsafe { libc::_exit(i32::from(ran.is_err())) };
            }
            let mut status = 0;
            // SAFETY: waits for the child above.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert_eq!(status, 0, "round {round}");
        }
        stop.store(true, Ordering::Relaxed);
    });
    // SAFETY: the parent's own.
    unsafe { slots.free(before) }.unwrap();
    slots.trim();
    slots.validate().unwrap();
    assert_eq!(slots.stats().total().live_objects, 0);
}
