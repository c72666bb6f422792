//! A process that is forked while another thread uses slots, and with them the pool, for the first time.
#![cfg(unix)]

use std::alloc::Layout;
use std::time::{Duration, Instant};

use gabion_blocks::{Pool, Request};
use gabion_slots::{Affinity, Slots};

fn use_both() {
    drop(Pool::global().rent(&Request::new(5000)).unwrap());
    let at = Slots::global().alloc(Affinity::NODES, Layout::new::<u64>()).unwrap();
    // SAFETY: just allocated, and used no more.
    unsafe { Slots::global().free(at) }.unwrap();
}

/// Runs `body` in a forked child, where the alarm ends what hangs; returns the child's status.
fn in_child(body: impl FnOnce()) -> i32 {
    // SAFETY: the child uses only what is made to work after a fork, and leaves without unwinding.
    unsafe {
        let child = libc::fork();
        assert!(child >= 0, "no fork");
        if child == 0 {
            libc::alarm(300);
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
            libc::_exit(i32::from(done.is_err()));
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        status
    }
}

/// This process uses neither: each of its children is the first to do so.
#[test]
fn a_child_of_a_first_use_has_its_own() {
    for turn in 0..30 {
        let status = in_child(|| {
            std::thread::scope(|scope| {
                let began = Instant::now();
                scope.spawn(use_both);
                while began.elapsed() < Duration::from_micros(20 * turn) {
                    std::hint::spin_loop();
                }
                assert_eq!(in_child(use_both), 0, "the child of the first use");
            });
            use_both();
        });
        assert_eq!(status, 0, "in turn {turn}");
    }
}
