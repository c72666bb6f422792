//! Limits are exact, refuse before anything is touched, and can be waited for.

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::{LONG, MIB, close, pool, pool_with, rent};
use crate::BLOCK_BYTES;
use crate::error::BlockError;
use crate::pool::{Buffer, Change, GroupRequest, Pool, Request, Settings};

fn patient(bytes: usize) -> Request {
    Request { timeout: Some(LONG), ..Request::new(bytes) }
}

fn total(pool: &Pool, bytes: usize) {
    pool.configure(&Change { total_limit: Some(bytes as u64), ..Change::default() }).unwrap();
}

#[test]
fn one_request_is_limited_to_the_byte() {
    let (pool, twin) = pool_with(|settings| settings.allocation_limit = 4 << 20);
    assert_eq!(rent(&pool, 4 * MIB).len(), 4 * MIB);
    let error = pool.rent(&Request::new(4 * MIB + 1)).unwrap_err();
    assert_eq!(error, BlockError::TooLarge { asked: (4 << 20) + 1, limit: 4 << 20 });
    assert!(error.to_string().contains("4194305") && error.to_string().contains("allocation_limit"), "{error}");
    let group = GroupRequest { bytes: 5 * MIB, ..GroupRequest::default() };
    assert!(matches!(pool.rent_group(&group), Err(BlockError::TooLarge { .. })));
    pool.configure(&Change { allocation_limit: Some(u64::MAX), ..Change::default() }).unwrap();
    assert!(pool.rent_group(&group).is_ok());
    close(pool, twin);
}

#[test]
fn the_total_is_limited_to_the_page() {
    for limit in [4096, 3 * MIB, 4 * MIB, 10 * MIB, 33 * MIB] {
        let (pool, twin) = pool_with(|settings| settings.total_limit = limit as u64);
        let whole = rent(&pool, limit);
        assert_eq!(twin.mapped(), limit as u64);
        let error = pool.rent(&Request::new(1)).unwrap_err();
        assert_eq!(error, BlockError::Total { asked: 1, used: limit as u64, idle: 0, limit: limit as u64 });
        drop(whole);
        let group = GroupRequest { bytes: limit, ..GroupRequest::default() };
        let group = pool.rent_group(&group).unwrap();
        assert!(pool.rent(&Request::new(4096)).is_err());
        drop(group);
        assert!(pool.rent(&Request::new(limit + 1)).is_err());
        assert!(twin.peak() <= limit as u64);
        close(pool, twin);
    }
}

/// Nobody looked for its class again after that had emptied the caches.
#[test]
fn pieces_of_another_threads_cache_are_lent_before_anything_is_refused() {
    // Of a block that is cut for the class, and of a larger class where no block is cut for this one.
    for asked in [MIB, 600_000] {
        let (pool, twin) = pool_with(|settings| settings.total_limit = 4 << 20);
        let (go_on, wait) = std::sync::mpsc::channel::<()>();
        std::thread::scope(|scope| {
            let (say, said) = std::sync::mpsc::channel();
            let pool = &pool;
            scope.spawn(move || {
                let mut four: Vec<Buffer> = (0..4).map(|_| rent(pool, MIB)).collect();
                four.truncate(2);
                assert_eq!(pool.stats().cached, 2 << 20);
                say.send(()).unwrap();
                let _ = wait.recv();
            });
            said.recv().unwrap();
            let served = pool.rent(&Request::new(asked)).map(|buffer| buffer.len());
            drop(go_on);
            assert_eq!(served, Ok(asked));
        });
        assert!(twin.peak() <= 4 << 20);
        close(pool, twin);
    }
}

/// Each class cuts a block of its own, so a limit of few blocks was all lent while nearly all of it was free.
#[test]
fn a_larger_piece_serves_where_no_block_is_left_to_cut() {
    let (pool, twin) = pool_with(|settings| settings.total_limit = 8 << 20);
    let larger = [rent(&pool, 100_000), rent(&pool, 700_000)];
    let mut others: Vec<Buffer> = (1..30).map(|n| rent(&pool, 3_000 * n)).collect();
    others.extend((0..3).map(|_| rent(&pool, 600_000)));
    assert!(others.iter().all(|buffer| buffer.capacity() >= buffer.len()));
    let clean = pool.rent(&Request { clean: true, ..Request::new(1000) }).unwrap();
    assert!(clean.as_slice().iter().all(|&byte| byte == 0));
    pool.validate().unwrap();
    assert!(twin.peak() <= 8 << 20);
    // No class has a free piece of that size, and what is not in blocks is less.
    let error = pool.rent(&Request::new(2_000_000)).unwrap_err();
    assert!(matches!(error, BlockError::Total { asked: 2_000_000, limit: 8_388_608, .. }), "{error}");
    drop((larger, others, clean));
    pool.validate().unwrap();
    assert_eq!(rent(&pool, 8 * MIB).len(), 8 * MIB);
    close(pool, twin);
}

/// A block for each class, nearly all of them free, kept out what had room beside what was really in use.
#[test]
fn pieces_of_many_sizes_leave_room_for_what_is_larger() {
    for limit in [16 * MIB, 24 * MIB, 64 * MIB] {
        let (pool, twin) = pool_with(|settings| settings.total_limit = limit as u64);
        let sizes = (6..20).flat_map(|shift| [1_usize << shift, 5 << (shift - 2), 3 << (shift - 1)]);
        let pieces: Vec<Buffer> = sizes.filter(|bytes| *bytes <= limit / 40).map(|bytes| rent(&pool, bytes)).collect();
        let live: usize = pieces.iter().map(Buffer::capacity).sum();
        // A quarter for blocks that are cut, and what threads have in their caches.
        let room = limit - live - (limit / 3).max(2 * BLOCK_BYTES);
        let larger = pool.rent(&Request::new(room));
        assert!(larger.is_ok(), "{live} of {limit} bytes in use, {room} asked for: {:?}", larger.err());
        pool.validate().unwrap();
        drop((pieces, larger));
        assert!(twin.peak() <= limit as u64);
        close(pool, twin);
    }
}

#[test]
fn what_is_allowed_counts_and_is_not_mapped() {
    let (pool, twin) = pool_with(|settings| (settings.total_limit, settings.allocation_limit) = (20 << 20, 18 << 20));
    drop(rent(&pool, 16 * MIB));
    let kept = pool.stats().mapped;
    let first = pool.allow(MIB).unwrap();
    assert_eq!((first.bytes(), pool.stats().in_use, pool.stats().idle, twin.mapped()), (1 << 20, 1 << 20, kept, kept));
    pool.validate().unwrap();
    // Idle memory makes room, for as much as there is.
    let second = pool.allow(10 * MIB).unwrap();
    assert_eq!((pool.stats().in_use, pool.stats().idle, twin.mapped()), (11 << 20, 0, 0));
    let error = pool.rent(&Request::new(10 * MIB)).unwrap_err();
    assert_eq!(error, BlockError::Total { asked: 10 << 20, used: 11 << 20, idle: 0, limit: 20 << 20 });
    assert!(matches!(pool.allow(10 * MIB), Err(BlockError::Total { used: 11_534_336, .. })));
    assert!(matches!(pool.allow(19 * MIB), Err(BlockError::TooLarge { .. })));
    assert_eq!(rent(&pool, 9 * MIB).len(), 9 * MIB);
    drop(first);
    // Who waits is told.
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| pool.rent(&patient(16 * MIB)).unwrap());
        while pool.stats().waited == 0 {
            std::thread::yield_now();
        }
        drop(second);
        assert_eq!(waiting.join().unwrap().len(), 16 * MIB);
    });
    assert!(twin.peak() <= 20 << 20);
    pool.validate().unwrap();
    close(pool, twin);
}

#[test]
fn refusal_touches_nothing() {
    let (pool, twin) = pool_with(|settings| settings.total_limit = 20 << 20);
    let kept = rent(&pool, 10 * MIB);
    let maps = twin.maps();
    for _ in 0..3 {
        assert!(pool.rent(&Request::new(12 * MIB)).is_err());
        assert!(pool.rent_group(&GroupRequest { bytes: 16 * MIB, ..GroupRequest::default() }).is_err());
    }
    assert_eq!((twin.maps(), pool.stats().refused), (maps, 6));
    drop(kept);
    // What is idle is kept when giving it back would not help.
    let idle = pool.stats().idle;
    assert!(idle > 0 && pool.rent(&Request::new(21 * MIB)).is_err());
    assert_eq!(pool.stats().idle, idle);
    close(pool, twin);
}

#[test]
fn idle_memory_makes_room_before_anything_is_refused() {
    let (pool, twin) = pool_with(|settings| settings.total_limit = 20 << 20);
    for bytes in [16 * MIB, 3 * MIB, 300_000, 100, 18 * MIB, 20 * MIB, 64] {
        drop(rent(&pool, bytes));
    }
    assert!(twin.peak() <= 20 << 20);
    close(pool, twin);
}

#[test]
fn small_buffers_are_served_where_no_block_fits() {
    let (pool, twin) = pool_with(|settings| settings.total_limit = 64 << 10);
    let live: Vec<Buffer> = (0..16).map(|_| rent(&pool, 4000)).collect();
    assert!(pool.rent(&Request::new(1)).is_err());
    drop(live);
    assert_eq!(twin.mapped(), 0, "what no shelf takes goes back at once");
    close(pool, twin);
}

#[test]
fn the_pool_keeps_no_more_than_it_may() {
    let (pool, twin) = pool_with(|settings| settings.pool_bytes = 3 * BLOCK_BYTES as u64);
    let live: Vec<Buffer> = (0..5).map(|_| rent(&pool, BLOCK_BYTES)).collect();
    drop(live);
    assert_eq!(pool.stats().idle, 3 * BLOCK_BYTES as u64);
    // Fresh memory of another size: what is cold goes first.
    let run = rent(&pool, 2 * BLOCK_BYTES);
    assert!(pool.stats().mapped <= 3 * BLOCK_BYTES as u64);
    drop(run);
    let none = Change { pool_bytes: Some(0), ..Change::default() };
    pool.configure(&none).unwrap();
    assert_eq!(twin.mapped(), 0, "a smaller pool gives back at once");
    for bytes in [100, 65_536, MIB, 4 * MIB, 40 * MIB] {
        drop(rent(&pool, bytes));
        assert_eq!(twin.mapped(), 0, "{bytes} bytes: served and given back");
    }
    close(pool, twin);
}

/// What came back was lent again and again, beyond the limit.
#[test]
fn a_lower_total_limit_holds_for_what_is_lent_already() {
    let (pool, twin) = pool();
    let mut live: Vec<Buffer> = (0..5).map(|_| rent(&pool, 4 * MIB)).collect();
    let mut pieces: Vec<Buffer> = (0..3).map(|_| rent(&pool, 2 * MIB)).collect();
    total(&pool, 8 * MIB);
    for left in (2..5).rev() {
        live.pop();
        assert!(pool.rent(&Request::new(4 * MIB)).is_err());
        assert_eq!(live.len(), left);
    }
    while pieces.pop().is_some() {
        assert!(pool.rent(&Request::new(3 * MIB)).is_err());
    }
    assert_eq!((pool.stats().mapped, twin.mapped()), (8 << 20, 8 << 20));
    live.pop();
    live.push(rent(&pool, 4 * MIB));
    assert!(pool.rent(&Request::new(1)).is_err());
    drop(live);
    assert_eq!(pool.stats().idle, 8 << 20, "as much as may be mapped is kept");
    // What is allowed counts for the limit, too.
    total(&pool, 64 * MIB);
    let (allowance, whole) = (pool.allow(40 * MIB).unwrap(), rent(&pool, 4 * MIB));
    total(&pool, 8 * MIB);
    drop(whole);
    assert_eq!((pool.stats().idle, twin.mapped()), (0, 0));
    drop(allowance);
    close(pool, twin);
}

#[test]
fn settings_change_at_run_time_or_not_at_all() {
    let (pool, twin) = pool();
    let before = pool.settings();
    for arenas in [0, 3, 512] {
        let change = Change { arenas: Some(arenas), pool_bytes: Some(1), ..Change::default() };
        assert!(matches!(pool.configure(&change), Err(BlockError::Setting { .. })));
    }
    let never = Change { trim_period: Some(Duration::ZERO), ..Change::default() };
    assert!(matches!(pool.configure(&never), Err(BlockError::Setting { .. })));
    assert_eq!(pool.settings(), before);
    let change = Change {
        pool_bytes: Some(1 << 30),
        arenas: Some(8),
        trim_period: Some(Duration::from_secs(5)),
        allocation_limit: Some(1 << 20),
        total_limit: Some(1 << 21),
        trim_malloc: None,
    };
    pool.configure(&change).unwrap();
    let after = pool.settings();
    assert_eq!((after.pool_bytes, after.arenas, after.trim_period), (1 << 30, 8, Duration::from_secs(5)));
    assert_eq!((after.allocation_limit, after.total_limit), (1 << 20, 1 << 21));
    pool.follow_limits();
    assert_eq!(pool.settings().pool_bytes, Settings::default().pool_bytes);
    close(pool, twin);
}

#[test]
fn limits_hold_while_sixteen_threads_ask() {
    let limit = 24 * MIB;
    let (pool, twin) = pool_with(|settings| settings.total_limit = limit as u64);
    std::thread::scope(|scope| {
        for thread in 0..16_usize {
            let pool = &pool;
            scope.spawn(move || {
                for round in 0..200 {
                    let bytes = [100, 70_000, MIB, 4 * MIB, 6 * MIB][(thread + round) % 5];
                    let _allowance = if round % 3 == 0 { pool.allow(bytes).ok() } else { None };
                    if let Ok(buffer) = pool.rent(&Request::new(bytes)) {
                        assert_eq!(buffer.len(), bytes);
                    }
                }
            });
        }
    });
    assert!(twin.peak() <= limit as u64, "{} bytes at one time", twin.peak());
    close(pool, twin);
}

// --- waiting -------------------------------------------------------------------------------------

#[test]
fn who_waits_is_served_when_memory_comes_back() {
    for bytes in [1000, MIB, 3 * MIB, 8 * MIB] {
        let (pool, twin) = pool_with(|settings| settings.total_limit = 8 << 20);
        let all = rent(&pool, 8 * MIB);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| pool.rent(&patient(bytes)).unwrap());
            while pool.stats().waited == 0 {
                std::thread::yield_now();
            }
            drop(all);
            assert_eq!(waiting.join().unwrap().len(), bytes);
        });
        assert!(twin.peak() <= 8 << 20);
        close(pool, twin);
    }
}

#[test]
fn who_waits_is_served_in_order_of_arrival() {
    let (pool, twin) = pool_with(|settings| settings.total_limit = 8 << 20);
    let all = rent(&pool, 8 * MIB);
    let served = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for turn in 0..6 {
            let (pool, served) = (&pool, &served);
            scope.spawn(move || {
                // The first asks for all of it, the others for less: they must not overtake it, nor fit together.
                let buffer = pool.rent(&patient(if turn == 0 { 8 * MIB } else { 5 * MIB + turn })).unwrap();
                assert_eq!(served.fetch_add(1, Ordering::SeqCst), turn);
                drop(buffer);
            });
            while pool.stats().waited <= turn as u64 {
                std::thread::yield_now();
            }
        }
        drop(all);
    });
    assert_eq!(served.load(Ordering::SeqCst), 6);
    close(pool, twin);
}

#[test]
fn waiting_ends_with_the_timeout_or_when_told_to() {
    let (pool, twin) = pool_with(|settings| settings.total_limit = 4 << 20);
    let all = rent(&pool, 4 * MIB);
    let start = Instant::now();
    let short = Request { timeout: Some(Duration::from_millis(30)), ..Request::new(MIB) };
    let error = pool.rent(&short).unwrap_err();
    assert!(start.elapsed() >= Duration::from_millis(30));
    assert!(matches!(error, BlockError::TimedOut { used: 4_194_304, .. }), "{error}");
    assert!(error.to_string().contains("not enough came back within 30ms"), "{error}");
    let mut asked = 0;
    let stop = pool.rent_while(&patient(MIB), &mut || {
        asked += 1;
        asked < 3
    });
    assert_eq!((stop.unwrap_err(), asked), (BlockError::Interrupted, 3));
    let group = GroupRequest { bytes: MIB, timeout: Some(Duration::ZERO), ..GroupRequest::default() };
    let error = pool.rent_group(&group).unwrap_err();
    assert!(matches!(error, BlockError::TimedOut { .. }));
    assert!(
        error.to_string().ends_with("in use: release buffers, wait with a timeout, or raise total_limit"),
        "{error}"
    );
    let never = pool.rent(&patient(5 * MIB)).unwrap_err();
    assert!(matches!(never, BlockError::Total { .. }), "no waiting makes room for more than the limit");
    drop(all);
    assert!(pool.rent(&short).is_ok());
    close(pool, twin);
}

#[test]
fn what_only_fits_without_whole_pages_is_refused_at_once() {
    // Neither odd limits nor parts of odd rows are whole pages. Waiting for those would take all of the timeout, and
    // everybody else would wait behind it.
    let (pool, twin) = pool_with(|settings| settings.total_limit = 5 << 20);
    let group = |row_bytes| GroupRequest { bytes: 5 * MIB, row_bytes: Some(row_bytes), ..GroupRequest::default() };
    let all = pool.rent_group(&group(64 << 10)).unwrap();
    for wait in [None, Some(LONG)] {
        let error = pool.rent_group(&GroupRequest { timeout: wait, ..group(3000) }).unwrap_err();
        assert!(matches!(error, BlockError::Total { .. }), "{error}");
    }
    drop(all);
    total(&pool, 9000);
    let never = pool.rent(&patient(9000)).unwrap_err();
    assert!(matches!(never, BlockError::Total { .. }), "{never}");
    assert!(pool.rent(&patient(8192)).is_ok());
    close(pool, twin);
}

#[test]
fn refusals_tell_what_is_in_use_and_what_would_help() {
    let (pool, twin) = pool_with(|settings| settings.total_limit = 64 << 20);
    drop(rent(&pool, 64 * MIB));
    for wait in [None, Some(LONG)] {
        let error = pool.rent(&Request { timeout: wait, ..Request::new(65 * MIB) }).unwrap_err();
        let told = error.to_string();
        assert!(told.contains("more than total_limit (67108864)") && !told.contains("in use"), "{told}");
    }
    let mut pieces: Vec<_> = (0..60).map(|_| rent(&pool, 900_000)).collect();
    let mut odd = false;
    pieces.retain(|_| {
        odd = !odd;
        odd
    });
    let error = pool.rent(&Request::new(20 * MIB)).unwrap_err();
    let stats = pool.stats();
    assert!(stats.idle > 0);
    let told = format!("{} of 67108864 bytes in use and {} idle", stats.in_use, stats.idle);
    assert!(error.to_string().contains(&told), "{error}, not {told}");
    // All that is idle would not do: how it lies is not why.
    let error = pool.rent(&Request::new(60 * MIB)).unwrap_err().to_string();
    assert!(error.contains("in use: release") && !error.contains("idle"), "{error}");
    drop(pieces);
    close(pool, twin);
}

#[test]
fn who_waits_behind_another_is_told_so() {
    let (pool, twin) = pool_with(|settings| settings.total_limit = 64 << 20);
    let held = rent(&pool, 40 * MIB);
    std::thread::scope(|scope| {
        let large = scope.spawn(|| pool.rent(&patient(40 * MIB)).unwrap().len());
        while pool.stats().waited == 0 {
            std::thread::yield_now();
        }
        let short = Request { timeout: Some(Duration::from_millis(30)), ..Request::new(8 * MIB) };
        let error = pool.rent(&short).unwrap_err();
        assert!(matches!(error, BlockError::TimedOut { behind: true, .. }), "{error}");
        assert!(error.to_string().contains("came before it still waited after 30ms"), "{error}");
        // Whoever does not wait does not queue.
        assert!(pool.rent(&Request::new(8 * MIB)).is_ok());
        drop(held);
        assert_eq!(large.join().unwrap(), 40 * MIB);
    });
    close(pool, twin);
}

/// What is asked whether to go on may be the handler of a signal. It waited behind the wait that stood still for it.
#[test]
fn who_waits_within_a_wait_goes_before_it() {
    let (pool, twin) = pool_with(|settings| settings.total_limit = 64 << 20);
    let held = rent(&pool, 40 * MIB);
    let mut served = 0;
    let short = Request { timeout: Some(Duration::from_millis(120)), ..Request::new(30 * MIB) };
    let error = pool.rent_while(&short, &mut || {
        let start = Instant::now();
        // The second one waits within the first one, which waits in vain.
        let large = Request { timeout: Some(Duration::from_millis(60)), ..Request::new(30 * MIB) };
        let refused = pool.rent_while(&large, &mut || {
            served += pool.rent(&patient(MIB)).unwrap().len();
            true
        });
        assert!(matches!(refused, Err(BlockError::TimedOut { behind: false, .. })));
        assert!(start.elapsed() < LONG / 2);
        true
    });
    assert!(matches!(error, Err(BlockError::TimedOut { behind: false, .. })));
    assert!(served >= 2 * MIB);
    drop(held);
    assert_eq!(pool.rent(&patient(64 * MIB)).unwrap().len(), 64 * MIB);
    close(pool, twin);
}

/// It stands where its thread stood: who waited before that is served first.
#[test]
fn a_wait_within_a_wait_overtakes_nobody_else() {
    let (pool, twin) = pool_with(|settings| settings.total_limit = 64 << 20);
    let held = rent(&pool, 40 * MIB);
    std::thread::scope(|scope| {
        let large = scope.spawn(|| pool.rent(&patient(40 * MIB)).unwrap().len());
        while pool.stats().waited == 0 {
            std::thread::yield_now();
        }
        let short = Request { timeout: Some(Duration::from_millis(60)), ..Request::new(8 * MIB) };
        let refused = pool.rent_while(&short, &mut || {
            let inner = Request { timeout: Some(Duration::from_millis(30)), ..Request::new(MIB) };
            assert!(matches!(pool.rent(&inner), Err(BlockError::TimedOut { behind: true, .. })));
            true
        });
        assert!(matches!(refused, Err(BlockError::TimedOut { behind: true, .. })));
        drop(held);
        assert_eq!(large.join().unwrap(), 40 * MIB);
    });
    close(pool, twin);
}

#[test]
fn a_higher_limit_wakes_who_waits() {
    let (pool, twin) = pool_with(|settings| settings.total_limit = 4 << 20);
    let all = rent(&pool, 4 * MIB);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| pool.rent(&patient(4 * MIB)).unwrap().len());
        while pool.stats().waited == 0 {
            std::thread::yield_now();
        }
        total(&pool, 8 * MIB);
        assert_eq!(waiting.join().unwrap(), 4 * MIB);
    });
    drop(all);
    close(pool, twin);
}

#[test]
fn a_crowd_gets_through_a_narrow_door() {
    // The limit is a fifth of what they would take together; nobody fails, and it is never exceeded.
    let (pool, twin) = pool_with(|settings| settings.total_limit = 12 << 20);
    let start = Barrier::new(12);
    std::thread::scope(|scope| {
        for thread in 0..12_usize {
            let (pool, start) = (&pool, &start);
            scope.spawn(move || {
                start.wait();
                for round in 0..40 {
                    let bytes = [5 * MIB, 200_000, 4 * MIB, 2 * MIB][(thread + round) % 4];
                    let mut buffer = pool.rent(&patient(bytes)).unwrap();
                    buffer.as_mut_slice()[bytes - 1] = 1;
                }
            });
        }
    });
    assert!(twin.peak() <= 12 << 20);
    assert_eq!(pool.stats().refused, 0);
    close(pool, twin);
}

#[test]
fn a_group_that_fits_only_without_the_slack_of_its_blocks_is_served() {
    let (pool, twin) = pool_with(|settings| settings.total_limit = 20 << 20);
    // Five parts of 3 MiB would take five blocks, and leave nothing for the short last one.
    let request = GroupRequest { bytes: 16_002_663, row_bytes: Some(3 * MIB), ..GroupRequest::default() };
    let group = pool.rent_group(&request).unwrap();
    assert_eq!(group.parts().len(), 6);
    assert!(twin.mapped() <= 20 << 20);
    drop(group);
    // The same with memory that is warm, and with pieces in a thread's cache.
    drop([rent(&pool, 0), rent(&pool, 4 * MIB), rent(&pool, 4 * MIB)]);
    let group = pool.rent_group(&GroupRequest { clean: true, ..request }).unwrap();
    assert!(group.parts().iter().all(|part| part.as_slice().iter().all(|&byte| byte == 0)));
    drop(group);
    close(pool, twin);
}

#[test]
fn blocks_that_are_whole_again_only_to_make_room_are_not_kept_beyond_the_pool() {
    let (pool, twin) = pool_with(|settings| (settings.total_limit, settings.pool_bytes) = (64 << 20, 9 << 20));
    // Two blocks, cut for two classes, whose only used pieces are in this thread's cache.
    drop([rent(&pool, 1), rent(&pool, 50_000)]);
    assert_eq!((twin.mapped(), pool.stats().in_use), (8 << 20, 0));
    let run = rent(&pool, (56 << 20) - 10_000);
    assert_eq!(pool.stats().idle, 0, "{:?}", pool.stats());
    drop(run);
    close(pool, twin);
}
