//! Threads and arenas: hand-over, threads that end, one-shot threads, settings and figures per arena and in all.

use std::collections::HashSet;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::{MIB, alone, close, pool, pool_with, rent};
use crate::os::can_fence_heavily;
use crate::pool::cache::Cache;
use crate::pool::{Buffer, Change, Pool, seat};
use crate::sync::{AtomicBool, Ordering, lock};

/// One size for each tier.
const TIERS: [usize; 4] = [1000, 700_000, 3 * MIB, 7 * MIB];

/// Runs `body` in a thread of its own, to its very end.
fn in_thread<T: Send>(body: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| scope.spawn(body).join().unwrap())
}

fn rented(pool: &Pool) -> Vec<u64> {
    pool.stats().arenas.iter().map(|arena| arena.rented).collect()
}

#[test]
fn threads_are_assigned_in_turn() {
    let (pool, twin) = pool();
    for _ in 0..8 {
        in_thread(|| drop(rent(&pool, 3 * MIB)));
    }
    // Other tests' threads take turns in between, so the order is theirs too; but nobody has two arenas.
    let counts = rented(&pool);
    assert_eq!(counts.iter().sum::<u64>(), 8);
    assert!(counts.len() <= 4);
    close(pool, twin);
}

#[test]
fn a_thread_that_only_returned_memory_ends_without_the_list_while_it_makes_its_arena() {
    let (pool, twin) = pool_with(|settings| settings.arenas = 256);
    let buffer = rent(&pool, 1000);
    let shared = pool.shared();
    std::thread::scope(|scope| {
        // As a fork does, which wants the list of caches next.
        let growth = lock(&shared.growth);
        scope.spawn(move || drop(buffer));
        std::thread::sleep(Duration::from_millis(50));
        let free = (0..100).any(|_| {
            let free = shared.caches.try_lock().is_ok();
            std::thread::sleep(Duration::from_millis(u64::from(!free)));
            free
        });
        drop(growth);
        assert!(free, "the list is held by whoever waits for the growth lock");
    });
    close(pool, twin);
}

/// Nothing of it was ever taken by other arenas' threads again.
#[test]
fn an_arena_that_a_thread_panicked_in_is_still_looked_at() {
    let (pool, twin) = pool();
    drop(rent(&pool, 3 * MIB));
    let arena = pool.shared().arenas().next().unwrap();
    let panics = || {
        let _locked = arena.lock();
        panic!("as memory that is given back twice does");
    };
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
    assert!(arena.try_lock().is_some());
    close(pool, twin);
}

#[test]
fn memory_goes_back_to_the_arena_that_it_came_from() {
    let (pool, twin) = pool();
    for bytes in TIERS {
        let (home, buffer) = in_thread(|| {
            let before = pool.stats().arenas;
            let buffer = rent(&pool, bytes);
            let after = pool.stats().arenas;
            let grew = |index: &usize| after[*index].out > before.get(*index).map_or(0, |arena| arena.out);
            ((0..after.len()).find(grew).unwrap(), buffer)
        });
        let out = pool.stats().arenas[home].out;
        for _ in 0..3 {
            // Threads of other arenas pass by.
            in_thread(|| assert_eq!(buffer.len(), bytes));
        }
        in_thread(move || drop(buffer));
        let stats = pool.stats();
        assert!(stats.arenas[home].out < out, "{bytes} bytes did not come home: {stats:?}");
        assert_eq!((stats.live, stats.in_use, stats.cached), (0, 0, 0));
        pool.validate().unwrap();
    }
    close(pool, twin);
}

#[test]
fn buffers_outlive_their_thread() {
    let (pool, twin) = pool();
    let mut live: Vec<Buffer> = TIERS.iter().map(|&bytes| in_thread(|| rent(&pool, bytes))).collect();
    for (stamp, buffer) in live.iter_mut().enumerate() {
        buffer.as_mut_slice().fill(stamp as u8);
    }
    assert_eq!(pool.stats().live, TIERS.len() as u64);
    for (stamp, buffer) in live.iter().enumerate() {
        assert!(buffer.as_slice().iter().all(|&byte| byte == stamp as u8));
    }
    drop(live);
    assert_eq!(pool.stats().in_use, 0);
    close(pool, twin);
}

#[test]
fn one_shot_threads_by_the_thousand_leave_nothing() {
    let (pool, twin) = pool();
    let mut kept = Vec::new();
    for round in 0..2000_usize {
        let bytes = [100, 5000, 70_000, 2 * MIB][round % 4];
        let buffer = in_thread(|| {
            drop(rent(&pool, bytes));
            rent(&pool, bytes)
        });
        if round % 100 == 0 {
            kept.push(buffer);
        }
    }
    let stats = pool.stats();
    assert_eq!(stats.live, kept.len() as u64);
    // This thread's own cache has what it dropped; the others' are empty.
    let cached = seat::existing_cache(pool.shared()).map_or(0, Cache::bytes);
    assert_eq!(stats.cached, cached as u64);
    // Four tiers, four arenas, and what is kept: not one mapping for each thread.
    assert!(stats.fresh <= 24, "{stats:?}");
    assert!(pool.shared().all_caches().count() <= 4, "caches are used again");
    pool.validate().unwrap();
    drop(kept);
    close(pool, twin);
}

/// What a thread counted moves to its arena when it ends, which may be later than whatever it says last.
#[test]
fn figures_are_whole_while_threads_end() {
    let (pool, twin) = pool();
    for _ in 0..300 {
        let theirs = [rent(&pool, 100), rent(&pool, 5000)];
        let (say, said) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let pool = &pool;
            let thread = scope.spawn(move || {
                drop((theirs, rent(pool, 100)));
                say.send(()).unwrap();
            });
            said.recv().unwrap();
            while !thread.is_finished() {
                assert_eq!(pool.stats().live, 0);
            }
            // Its thread-local values go after it has finished.
            (0..20).for_each(|_| assert_eq!(pool.stats().live, 0));
        });
    }
    close(pool, twin);
}

/// The trimmer takes free pieces from caches and from arenas, and has them in hand for a moment.
#[test]
fn what_the_trimmer_has_in_hand_is_in_nobodys_use() {
    let (pool, twin) = pool();
    let (over, mut most) = (AtomicBool::new(false), 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                pool.shared().flush_caches();
                pool.shared().decommit_pieces(u64::MAX);
            }
        });
        let end = Instant::now() + Duration::from_millis(500);
        while Instant::now() < end {
            drop([100, 5000, 70_000, 200_000, MIB].map(|bytes| rent(&pool, bytes)));
            most = (0..50).map(|_| pool.stats().in_use).fold(most, u64::max);
        }
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!(most, 0);
    close(pool, twin);
}

#[test]
fn a_cache_is_biased_to_the_thread_that_gets_it_next_and_to_no_other() {
    let (pool, twin) = pool();
    let is_biased = || seat::cache(pool.shared()).is_some_and(|own| own.try_lock_biased().is_some());
    in_thread(|| {
        for _ in 0..100 {
            drop(rent(&pool, 5000));
        }
        assert_eq!(is_biased(), can_fence_heavily());
        // Figures and the policy's look take no lock; and what is taken out is found again.
        assert_eq!((pool.stats().hits_cache, pool.stats().cached), (99, 5120 * 4));
        pool.trim(false);
        assert_eq!(is_biased(), can_fence_heavily());
    });
    in_thread(|| {
        assert_eq!(is_biased(), can_fence_heavily(), "its last thread has left it");
        drop(rent(&pool, 5000));
        pool.validate().unwrap();
        assert!(!is_biased(), "somebody has looked into it");
        for _ in 0..100 {
            drop(rent(&pool, 5000));
        }
        assert_eq!(is_biased(), can_fence_heavily());
    });
    assert_eq!(pool.shared().all_caches().count(), 1);
    close(pool, twin);
}

#[test]
fn an_empty_arena_takes_from_its_neighbours_before_it_maps() {
    for bytes in TIERS {
        let (pool, twin) = pool();
        let blocks: Vec<Buffer> = (0..3).map(|_| rent(&pool, bytes)).collect();
        let fresh = pool.stats().fresh;
        drop(blocks);
        for _ in 0..4 {
            // At least three of these threads belong to other arenas.
            in_thread(|| drop(rent(&pool, bytes)));
        }
        let stats = pool.stats();
        assert_eq!(stats.fresh, fresh, "{bytes} bytes were mapped although idle: {stats:?}");
        assert!(stats.stolen >= 1, "{stats:?}");
        pool.validate().unwrap();
        close(pool, twin);
    }
}

#[test]
fn pieces_of_a_neighbour_are_taken_before_a_block_more_is_cut() {
    let (pool, twin) = pool();
    let cut_blocks = || pool.shared().arenas().map(|arena| arena.lock().cut_blocks().count()).sum::<usize>();
    let blocks: Vec<Buffer> = (0..8).map(|_| in_thread(|| rent(&pool, 3 * MIB))).collect();
    // Idle blocks in every arena that these threads belonged to.
    drop(blocks);
    let pieces: Vec<Buffer> = (0..8).map(|_| in_thread(|| rent(&pool, 300_000))).collect();
    assert_eq!(cut_blocks(), 1, "a block holds twelve of these");
    let more: Vec<Buffer> = (0..8).map(|_| in_thread(|| rent(&pool, 300_000))).collect();
    assert_eq!(cut_blocks(), 2);
    assert_eq!(pool.shared().free_pieces(), 8 * MIB as u64 - pool.stats().in_use);
    drop((pieces, more));
    close(pool, twin);
}

#[test]
fn figures_of_the_arenas_add_up() {
    let (pool, twin) = pool();
    let live: Vec<Buffer> = (0..40).map(|index| in_thread(|| rent(&pool, TIERS[index % 4]))).step_by(2).collect();
    let stats = pool.stats();
    assert_eq!(stats.requests, stats.arenas.iter().map(|arena| arena.rented).sum::<u64>());
    assert_eq!(stats.live, live.len() as u64);
    let returned: u64 = stats.arenas.iter().map(|arena| arena.returned).sum();
    assert_eq!(stats.requests - returned, stats.live);
    assert_eq!(stats.stolen, stats.arenas.iter().map(|arena| arena.stolen).sum::<u64>());
    assert_eq!(stats.in_use + stats.cached, stats.arenas.iter().map(|arena| arena.out).sum::<u64>());
    assert_eq!(stats.mapped, stats.in_use + stats.idle);
    drop(live);
    close(pool, twin);
}

#[test]
fn the_number_of_arenas_changes_while_buffers_live() {
    let (pool, twin) = pool_with(|settings| settings.arenas = 1);
    let mut live: Vec<Buffer> = TIERS.iter().map(|&bytes| rent(&pool, bytes)).collect();
    for arenas in [8, 256, 2, 1] {
        pool.configure(&Change { arenas: Some(arenas), ..Change::default() }).unwrap();
        for bytes in TIERS {
            live.push(in_thread(|| rent(&pool, bytes)));
            live.push(rent(&pool, bytes));
        }
        live.drain(..4);
        pool.validate().unwrap();
    }
    drop(live);
    assert_eq!((pool.stats().in_use, pool.stats().live), (0, 0));
    close(pool, twin);
}

#[test]
fn hand_over_in_a_chain_mixes_nothing_up() {
    let (pool, twin) = pool();
    let seen = std::sync::Mutex::new(HashSet::new());
    std::thread::scope(|scope| {
        let (send, mut receive) = mpsc::sync_channel::<(Buffer, u8)>(4);
        let first = &pool;
        scope.spawn(move || {
            for round in 0..500_usize {
                let mut buffer = rent(first, [300, 20_000, 300_000, 2 * MIB][round % 4]);
                buffer.as_mut_slice().fill(round as u8);
                send.send((buffer, round as u8)).unwrap();
            }
        });
        for _ in 0..3 {
            let (send, next) = mpsc::sync_channel(4);
            let receive = std::mem::replace(&mut receive, next);
            scope.spawn(move || {
                for (mut buffer, stamp) in receive {
                    assert!(buffer.as_slice().iter().all(|&byte| byte == stamp));
                    let next = stamp.wrapping_add(1);
                    buffer.as_mut_slice().fill(next);
                    send.send((buffer, next)).unwrap();
                }
            });
        }
        for (buffer, _) in receive {
            seen.lock().unwrap().insert(buffer.as_ptr() as usize);
        }
    });
    alone(&pool);
    assert!(pool.stats().fresh < 100, "hand-over keeps using the same memory: {:?}", pool.stats());
    assert_eq!(pool.stats().live, 0);
    close(pool, twin);
}

#[test]
fn who_only_takes_back_returns_what_was_just_in_use() {
    let (pool, twin) = pool();
    // Places of a cache in these classes, and what one thread takes from its arena at a time.
    for (bytes, places, batch) in [(60_000, 8, 4), (MIB, 2, 1)] {
        let (to_other, buffers) = mpsc::sync_channel::<Buffer>(0);
        let (done, returned) = mpsc::sync_channel(0);
        let addresses = std::thread::scope(|scope| {
            scope.spawn(move || {
                for buffer in buffers {
                    drop(buffer);
                    done.send(()).unwrap();
                }
            });
            let hand_over = || {
                let buffer = rent(&pool, bytes);
                let address = buffer.as_ptr().addr();
                to_other.send(buffer).unwrap();
                returned.recv().unwrap();
                address
            };
            (0..10 * places).for_each(|_| _ = hand_over());
            let addresses: HashSet<_> = (0..10 * places).map(|_| hand_over()).collect();
            drop(to_other);
            addresses
        });
        // The older half of the other thread's cache rests.
        assert!(addresses.len() <= places / 2 + batch, "{bytes} bytes went round {} places", addresses.len());
        pool.validate().unwrap();
    }
    close(pool, twin);
}
