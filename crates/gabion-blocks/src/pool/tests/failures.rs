//! The system refuses at every step in turn: nothing is lost, and nothing that is idle stays idle meanwhile.

use std::time::{Duration, Instant};

use super::{LONG, MIB, close, pool, pool_with, rent};
use crate::BLOCK_BYTES;
use crate::error::BlockError;
use crate::pool::{Buffer, GroupRequest, Pool, Request};

/// Runs `body` with the system refusing everything from step 0, 1, 2 … on, until it gets through.
fn at_every_step(body: impl Fn(&Pool) -> Result<(), BlockError>) {
    for step in 0.. {
        let (pool, twin) = pool();
        let before = rent(&pool, 5000);
        let in_use = pool.stats().in_use;
        twin.refuse_after(step);
        let done = body(&pool);
        twin.refuse_after(i64::MAX);
        pool.validate().unwrap();
        assert_eq!(pool.stats().in_use, in_use, "capacity was lost at step {step}");
        drop(before);
        close(pool, twin);
        match done {
            Ok(()) => {
                assert!(step > 0, "the body maps nothing");
                return;
            }
            Err(error) => assert!(matches!(error, BlockError::NoMemory { .. }), "step {step}: {error}"),
        }
    }
}

#[test]
fn every_tier_survives_a_refusal_at_every_step() {
    for bytes in [100, MIB, 4 * MIB, 30 * MIB] {
        at_every_step(|pool| {
            let live: Result<Vec<Buffer>, _> = (0..9).map(|_| pool.rent(&Request::new(bytes))).collect();
            if bytes < MIB {
                // Pieces of the block that is cut already.
                return live.and_then(|_| pool.rent(&Request::new(4 * MIB)).map(drop));
            }
            live.map(drop)
        });
    }
}

#[test]
fn a_group_that_fails_halfway_gives_everything_back() {
    for warm in [0, 1, 6] {
        at_every_step(|pool| {
            let warm: Result<Vec<Buffer>, _> = (0..warm).map(|_| pool.rent(&Request::new(BLOCK_BYTES))).collect();
            drop(warm?);
            let request = GroupRequest { bytes: 9 * BLOCK_BYTES + 2 * MIB, ..GroupRequest::default() };
            pool.rent_group(&request).map(drop)
        });
    }
}

#[test]
fn idle_memory_goes_before_a_request_fails() {
    let (pool, twin) = pool();
    let (live, idle): (Vec<Buffer>, Vec<Buffer>) = (0..8)
        .map(|index| rent(&pool, [100, MIB, 4 * MIB, 9 * MIB][index / 2]))
        .enumerate()
        .fold((Vec::new(), Vec::new()), |(mut live, mut idle), (index, buffer)| {
            if index % 2 == 0 { &mut live } else { &mut idle }.push(buffer);
            (live, idle)
        });
    drop(idle);
    let before = pool.stats();
    assert!(before.cached > 0 && before.arenas.iter().any(|arena| arena.idle > 0));
    twin.refuse_after(0);
    let error = pool.rent(&Request::new(50 * MIB)).unwrap_err();
    let stats = pool.stats();
    assert_eq!((stats.cached, stats.arenas.iter().map(|arena| arena.idle).sum::<u64>()), (0, 0));
    assert!(stats.mapped < before.mapped && stats.in_use == before.in_use);
    let expected =
        BlockError::NoMemory { asked: 50 << 20, in_use: stats.in_use, idle: stats.idle, errno: libc::ENOMEM };
    assert_eq!(error, expected);
    assert!(error.to_string().contains("52428800") && error.to_string().contains("release buffers"), "{error}");
    // A refusal that passes once idle memory is gone is never seen.
    drop(rent_warm_again(&pool));
    twin.refuse_some_after(0, 1);
    drop(rent(&pool, 50 * MIB));
    assert!(pool.stats().retries >= 1);
    drop(live);
    close(pool, twin);
}

fn rent_warm_again(pool: &Pool) -> Option<Buffer> {
    // Refused as long as the system refuses; then served.
    pool.rent(&Request::new(4 * MIB)).ok()
}

#[test]
fn a_passing_shortage_is_sat_out() {
    let (pool, twin) = pool_with(|settings| settings.patience = LONG);
    twin.refuse_some_after(0, 4);
    assert_eq!(rent(&pool, 6 * MIB).len(), 6 * MIB);
    assert_eq!(pool.stats().retries, 4, "as many as it takes, and none more");
    close(pool, twin);
}

/// Each small buffer that needed a block of its class waited as long as patience goes, and was then served by one that
/// is cut.
#[test]
fn a_larger_piece_serves_before_anybody_waits_for_the_system() {
    let (pool, twin) = pool_with(|settings| settings.patience = Duration::from_secs(3600));
    let larger = rent(&pool, 5000);
    twin.refuse_after(0);
    assert_eq!(rent(&pool, 100).len(), 100);
    assert_eq!(pool.stats().retries, 1, "after what is idle was given back");
    twin.refuse_after(i64::MAX);
    drop(larger);
    // Where there is none, somebody waits.
    twin.refuse_some_after(0, 4);
    assert_eq!(rent(&pool, 200_000).len(), 200_000);
    close(pool, twin);
}

#[test]
fn a_lasting_shortage_is_refused_when_patience_ends() {
    let (pool, twin) = pool_with(|settings| settings.patience = Duration::from_millis(100));
    twin.refuse_after(0);
    let start = Instant::now();
    assert!(pool.rent(&Request::new(60 * MIB)).is_err());
    assert!(start.elapsed() >= Duration::from_millis(100));
    close(pool, twin);
}

#[test]
fn a_return_wakes_who_waits_for_the_system() {
    let (pool, twin) = pool_with(|settings| settings.patience = LONG);
    let held = rent(&pool, 6 * MIB);
    twin.refuse_after(0);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| rent(&pool, 60 * MIB).len());
        while pool.stats().retries < 3 {
            std::thread::yield_now();
        }
        drop(held);
        assert_eq!(twin.mapped(), 0, "what comes back while somebody starves is not kept");
        twin.refuse_after(i64::MAX);
        assert_eq!(waiting.join().unwrap(), 60 * MIB);
    });
    close(pool, twin);
}
