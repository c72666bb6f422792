//! A child that was forked from a busy process: its pool works, and what the parent has stays the parent's.
#![cfg(unix)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gabion_blocks::{Biased, BlockSet, Change, GroupRequest, Pool, Request};

const MIB: usize = 1 << 20;
/// More than any machine needs.
const LONG: Duration = Duration::from_secs(3600);

/// Runs `body` in a forked child; fails when it panics there, or hangs.
fn in_child(body: impl FnOnce()) {
    // SAFETY: the child only runs `body`, which uses what is safe after a fork (this crate's pool, and malloc, which
    // the C library prepares for forks), and leaves by `_exit`.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "no fork");
    if child == 0 {
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        // SAFETY: ends the child at once, without the parent's destructors.
        unsafe { libc::_exit(i32::from(done.is_err())) };
    }
    let (start, mut status) = (Instant::now(), 0);
    // SAFETY: waits for the child just made.
    while unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } == 0 {
        // Far beyond what sixteen busy threads and a loaded machine leave it waiting for.
        if start.elapsed() > Duration::from_secs(300) {
            // SAFETY: the child is ours and has not been waited for.
            unsafe { libc::kill(child, libc::SIGKILL) };
            panic!("the child hangs");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(status, 0, "the child failed");
}

fn use_it(pool: &Pool) {
    for bytes in [100, 5000, 70_000, MIB, 3 * MIB, 9 * MIB] {
        let mut buffer = pool.rent(&Request::new(bytes).clean()).unwrap();
        assert!(buffer.as_slice().iter().all(|&byte| byte == 0));
        buffer.as_mut_slice().fill(5);
    }
    let request = GroupRequest { bytes: 9 * MIB, row_bytes: Some(1000), ..GroupRequest::default() };
    drop(pool.rent_group(&request).unwrap());
    let set = BlockSet::new(pool, 0).unwrap();
    set.map().unwrap();
}

#[test]
fn a_child_of_a_busy_process_never_hangs() {
    let pool = Pool::global();
    pool.configure(&Change { trim_period: Some(Duration::from_millis(20)), ..Change::default() }).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..16_usize {
            let stop = &stop;
            scope.spawn(move || {
                let mut round = thread;
                while !stop.load(Ordering::Relaxed) {
                    round += 1;
                    let bytes = [100, 5000, 70_000, MIB, 3 * MIB, 9 * MIB][round % 6];
                    let kept = pool.rent(&Request::new(bytes)).unwrap();
                    if round.is_multiple_of(50) {
                        pool.trim(true);
                    }
                    drop(kept);
                }
            });
        }
        for _ in 0..30 {
            in_child(|| {
                use_it(pool);
                pool.trim(true);
                // Threads of the child's own.
                std::thread::scope(|scope| {
                    for _ in 0..4 {
                        scope.spawn(|| use_it(pool));
                    }
                });
                pool.stats();
            });
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn the_child_has_a_copy_and_the_parent_keeps_its_own() {
    let pool = Pool::global();
    let mut mine = pool.rent(&Request::new(70_000)).unwrap();
    mine.as_mut_slice().fill(1);
    let mut large = pool.rent(&Request::new(6 * MIB)).unwrap();
    large.as_mut_slice().fill(2);
    in_child(|| {
        assert!(mine.as_slice().iter().all(|&byte| byte == 1));
        mine.as_mut_slice().fill(9);
        // SAFETY: the copy of the child is dropped once, here; the child never drops `large` itself.
        drop(unsafe { std::ptr::read(&raw const large) });
        use_it(pool);
        pool.trim(true);
    });
    assert!(mine.as_slice().iter().all(|&byte| byte == 1));
    assert!(large.as_slice().iter().all(|&byte| byte == 2));
}

#[test]
fn what_ended_threads_kept_is_not_lost_in_the_child() {
    let pool = Pool::global();
    let (hold, held) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Leaves free pieces in this thread's cache.
            drop((0..20).map(|_| pool.rent(&Request::new(1500)).unwrap()).collect::<Vec<_>>());
            hold.wait();
            held.wait();
        });
        hold.wait();
        in_child(|| {
            // The other thread is gone here; this one has a cache of its own.
            pool.trim(true);
            assert_eq!(pool.stats().cached, 0);
        });
        held.wait();
    });
}

#[test]
fn the_child_trims_by_itself() {
    let pool = Pool::global();
    pool.configure(&Change { trim_period: Some(Duration::from_millis(20)), ..Change::default() }).unwrap();
    drop(pool.rent(&Request::new(9 * MIB)).unwrap());
    in_child(|| {
        drop(pool.rent(&Request::new(9 * MIB)).unwrap());
        // The parent ends a child that waits for ever.
        while pool.stats().arenas.iter().any(|arena| arena.idle > 0) {
            std::thread::sleep(Duration::from_millis(5));
        }
    });
}

#[test]
fn a_child_of_waiting_threads_waits_for_nobody() {
    let settings = {
        let mut settings = gabion_blocks::Settings::default();
        settings.total_limit = 8 << 20;
        settings
    };
    let pool = Pool::new(gabion_blocks::system(), settings).unwrap();
    let all = pool.rent(&Request::new(8 * MIB)).unwrap();
    std::thread::scope(|scope| {
        let patient = Request { timeout: Some(LONG), ..Request::new(MIB) };
        let waiting = scope.spawn({
            let pool = &pool;
            move || pool.rent(&patient).map(|buffer| buffer.len())
        });
        while pool.stats().waited == 0 {
            std::thread::yield_now();
        }
        in_child(|| {
            let short = Request { timeout: Some(Duration::from_millis(50)), ..Request::new(MIB) };
            assert!(pool.rent(&short).is_err());
            // SAFETY: the copy of the child is dropped once, here.
            drop(unsafe { std::ptr::read(&raw const all) });
            // Nobody is in front of it: the thread that waits is the parent's.
            assert!(pool.rent(&patient).is_ok());
        });
        drop(all);
        assert_eq!(waiting.join().unwrap(), Ok(MIB));
    });
}

#[test]
fn who_forks_while_it_waits_goes_on_in_both_processes() {
    let settings = {
        let mut settings = gabion_blocks::Settings::default();
        settings.total_limit = 8 << 20;
        settings
    };
    let pool = Pool::new(gabion_blocks::system(), settings).unwrap();
    let mut all = Some(pool.rent(&Request::new(8 * MIB)).unwrap());
    let mut child = None;
    // As a signal's handler may do.
    let mut fork = || {
        // SAFETY: the child uses only the pool, and leaves by `_exit`.
        child = child.or_else(|| Some(unsafe { libc::fork() }));
        all = None;
        true
    };
    let patient = Request { timeout: Some(LONG), ..Request::new(3 * MIB) };
    let rented = pool.rent_while(&patient, &mut fork).map(drop);
    let kept = pool.stats().arenas.iter().any(|arena| arena.idle > 0);
    if child == Some(0) {
        // SAFETY: ends the child at once, without the parent's destructors.
        unsafe { libc::_exit(if rented.is_err() { 1 } else { i32::from(!kept) * 2 }) };
    }
    let mut status = 0;
    // SAFETY: waits for the child just made.
    assert_eq!(unsafe { libc::waitpid(child.unwrap(), &raw mut status, 0) }, child.unwrap());
    assert_eq!(libc::WEXITSTATUS(status), 0, "1: no room was found in the child; 2: it kept nothing");
    assert!(rented.is_ok() && kept);
}

#[test]
fn a_child_takes_locks_that_are_biased_to_threads_it_does_not_have() {
    let locks = [Biased::new(0_u64), Biased::new(0_u64)];
    let bias = |lock: &Biased<u64>| (0..1000).for_each(|_| *lock.lock() += 1);
    bias(&locks[0]);
    let (biased, done) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            bias(&locks[1]);
            biased.wait();
            done.wait();
        });
        biased.wait();
        in_child(|| {
            for lock in &locks {
                bias(lock);
                assert_eq!(*lock.lock(), 2000);
            }
            std::thread::scope(|scope| scope.spawn(|| locks.iter().for_each(bias)).join().unwrap());
            assert!(locks.iter().all(|lock| *lock.lock() == 3000));
        });
        done.wait();
    });
    assert!(locks.iter().all(|lock| *lock.lock() == 1000));
}
