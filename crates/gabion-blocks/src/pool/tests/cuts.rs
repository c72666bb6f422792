//! Cut blocks: what an arena knows of them is true whenever its lock can be had, and nobody else touches them.

use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, Mutex, OnceLock, mpsc};
use std::time::{Duration, Instant};

use super::{close, pool_with, quiet, rent};
use crate::BLOCK_BYTES;
use crate::os::{Os, Twin};
use crate::pool::span::{Use, records_of};
use crate::pool::{Buffer, Change, Pool, Request, Settings};

/// A door to the system with somebody at it, who is called before each mapping and each unmapping.
#[derive(Default)]
struct Watched {
    twin: Twin,
    at_map: OnceLock<Box<dyn Fn() + Send + Sync>>,
    at_unmap: OnceLock<Box<dyn Fn() + Send + Sync>>,
    at_decommit: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.twin.fmt(f)
    }
}

// SAFETY: every promise is kept by the twin, to which each call is passed on.
unsafe impl Os for Watched {
    fn map(&self, bytes: usize, align: usize) -> Result<NonNull<u8>, i32> {
        self.at_map.get().inspect(|call| call());
        self.twin.map(bytes, align)
    }

    unsafe fn unmap(&self, at: NonNull<u8>, bytes: usize) {
        self.at_unmap.get().inspect(|call| call());
        // SAFETY: the caller's duty, passed on.
        unsafe { self.twin.unmap(at, bytes) };
    }

    unsafe fn decommit(&self, at: NonNull<u8>, bytes: usize) {
        self.at_decommit.get().inspect(|call| call());
        // SAFETY: the caller's duty, passed on.
        unsafe { self.twin.decommit(at, bytes) };
    }

    unsafe fn populate(&self, at: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller's duty, passed on.
        unsafe { self.twin.populate(at, bytes) };
    }

    unsafe fn advise_huge(&self, at: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller's duty, passed on.
        unsafe { self.twin.advise_huge(at, bytes) };
    }

    unsafe fn advise_small(&self, at: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller's duty, passed on.
        unsafe { self.twin.advise_small(at, bytes) };
    }

    unsafe fn gather(&self, at: NonNull<u8>, bytes: usize) -> bool {
        // SAFETY: the caller's duty, passed on.
        unsafe { self.twin.gather(at, bytes) }
    }
}

/// A pool of one arena behind a watched door.
fn watched(pool_bytes: u64) -> (Pool, &'static Watched) {
    watched_with(|settings| settings.pool_bytes = pool_bytes)
}

fn watched_with(change: impl FnOnce(&mut Settings)) -> (Pool, &'static Watched) {
    let door: &'static Watched = Box::leak(Box::default());
    let mut settings = quiet();
    settings.arenas = 1;
    change(&mut settings);
    let pool = Pool::with_root(door, settings, "/nonexistent-root".into()).unwrap();
    assert!(pool.shared().trimmer.duty.take());
    (pool, door)
}

/// Bytes of the blocks whose records say that they are cut.
fn said_to_be_cut(pool: &Pool) -> u64 {
    let spans = records_of(pool.shared().number);
    spans.iter().filter(|span| span.state() == Use::Cut).map(|span| span.bytes() as u64).sum()
}

#[test]
fn a_block_is_cut_only_when_its_home_is_unlocked() {
    let (pool, door) = watched(256 << 20);
    let (mapping, locked) = (&*Box::leak(Box::new(Barrier::new(2))), &*Box::leak(Box::new(Barrier::new(2))));
    let wait = || {
        mapping.wait();
        locked.wait();
    };
    assert!(door.at_map.set(Box::new(wait)).is_ok());
    std::thread::scope(|scope| {
        let renter = scope.spawn(|| rent(&pool, 1000));
        mapping.wait();
        let shelves = pool.shared().arena(0).lock();
        locked.wait();
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(50) {
            assert_eq!((said_to_be_cut(&pool), shelves.counts.cut), (0, 0), "cut beside the lock");
        }
        drop(shelves);
        drop(renter.join().unwrap());
    });
    pool.validate().unwrap();
    drop(pool);
    assert_eq!(door.twin.mapped(), 0);
}

#[test]
fn a_block_that_is_unmapped_is_cut_no_more() {
    let (pool, door) = watched(0);
    let shared = pool.shared();
    let (looked, look) = (&*Box::leak(Box::new(AtomicBool::new(false))), pool.clone());
    let look = Box::leak(Box::new(look));
    let looks = || {
        assert_eq!(said_to_be_cut(look), shared.arena(0).lock().counts.cut, "the record says what the books do not");
        looked.store(true, Ordering::Relaxed);
    };
    assert!(door.at_unmap.set(Box::new(looks)).is_ok());
    for bytes in [64, 5000, 1 << 20] {
        let buffer = rent(&pool, bytes);
        assert_eq!(said_to_be_cut(&pool), BLOCK_BYTES as u64);
        drop(buffer);
        pool.trim(true);
        assert!(looked.swap(false, Ordering::Relaxed), "nothing was unmapped");
        assert_eq!((said_to_be_cut(&pool), door.twin.mapped()), (0, 0));
        pool.validate().unwrap();
    }
}

/// Blocks are cut, made whole, unmapped and taken from one arena to another beside a thread that looks at everything.
/// What an arena's lock guards is whole at every instant; the sums over all arenas only when all is quiet.
#[test]
fn blocks_come_and_go_while_they_are_looked_at() {
    let (pool, twin) = pool_with(|settings| settings.pool_bytes = 16 << 20);
    let end = Instant::now() + Duration::from_millis(700);
    std::thread::scope(|scope| {
        for thread in 0..4_usize {
            let pool = &pool;
            scope.spawn(move || {
                let mut round = thread;
                while Instant::now() < end {
                    round += 1;
                    let bytes = [100_000, 500_000, 1 << 20, 3 << 20][round % 4];
                    let buffers: Vec<_> = (0..6).map(|_| rent(pool, bytes)).collect();
                    if round.is_multiple_of(3) {
                        // Handed to another thread, which drops them.
                        std::thread::scope(|inner| drop(inner.spawn(|| drop(buffers))));
                    }
                    match round % 16 {
                        0 => pool.configure(&Change { pool_bytes: Some(0), ..Change::default() }).unwrap(),
                        8 => pool.configure(&Change { pool_bytes: Some(64 << 20), ..Change::default() }).unwrap(),
                        4 | 12 => drop(pool.trim(round % 32 < 16)),
                        _ => {}
                    }
                }
            });
        }
        while Instant::now() < end {
            let _ = pool.validate();
            let stats = pool.stats();
            assert!(stats.mapped >= stats.in_use);
            for arena in pool.shared().arenas() {
                let shelves = arena.lock();
                shelves.check(arena.index).unwrap();
            }
        }
    });
    close(pool, twin);
}

/// The first arena opens while the figures are gathered: the table of figures keeps to the arenas that it began with.
#[test]
fn figures_are_gathered_while_arenas_open() {
    for _ in 0..500 {
        let (pool, twin) = pool_with(|_| {});
        let looked = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let renter = scope.spawn(|| {
                while !looked.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
                drop(rent(&pool, 4 << 20));
            });
            while !renter.is_finished() {
                let stats = pool.stats();
                assert_eq!(stats.requests, stats.arenas.iter().map(|arena| arena.rented).sum::<u64>());
                looked.store(true, Ordering::Relaxed);
            }
        });
        close(pool, twin);
    }
}

/// Of 15 of 16 pieces nothing was in use, and yet the limit forbade one of them.
#[test]
fn what_is_refused_is_not_just_in_the_trimmers_hand() {
    for asked in [256 << 10, 200_000] {
        let (pool, door) = watched_with(|settings| settings.total_limit = 4 << 20);
        let mut live: Vec<Buffer> = (0..16).map(|_| rent(&pool, 256 << 10)).collect();
        for buffer in &mut live {
            buffer.as_mut_slice().fill(1);
        }
        live.truncate(1);
        let (begun, wait) = mpsc::channel();
        let (say, done) = mpsc::channel::<()>();
        let (begun, done) = (Mutex::new(begun), Mutex::new(Some(done)));
        let trims = move || {
            if let Some(done) = done.lock().unwrap().take() {
                begun.lock().unwrap().send(()).unwrap();
                // Long enough for a refusal; who is to be served waits for the pieces.
                let _ = done.recv_timeout(Duration::from_millis(100));
            }
        };
        assert!(door.at_decommit.set(Box::new(trims)).is_ok());
        std::thread::scope(|scope| {
            scope.spawn(|| pool.trim(true));
            wait.recv().unwrap();
            let served = pool.rent(&Request::new(asked)).map(|buffer| buffer.len());
            let _ = say.send(());
            assert_eq!(served, Ok(asked));
        });
        drop((live, pool));
        assert_eq!(door.twin.mapped(), 0);
    }
}

#[test]
fn a_thread_that_leaves_a_pool_while_it_gives_back_to_it_uses_its_cache_no_more() {
    let (pool, door) = watched(16 << 20);
    // All pieces of a block in the cache, one of another block lent, and more mapped than the pool keeps.
    drop(rent(&pool, 100));
    let last = rent(&pool, 3000);
    let large = rent(&pool, 40 << 20);
    let held = Mutex::new(Some(pool));
    let close_and_go_elsewhere = move || {
        let pool = held.lock().unwrap().take();
        if pool.is_some() {
            drop(pool);
            drop(rent(Pool::global(), 100));
        }
    };
    assert!(door.at_unmap.set(Box::new(close_and_go_elsewhere)).is_ok());
    drop(last);
    drop(large);
    assert_eq!(door.twin.mapped(), 0);
}
