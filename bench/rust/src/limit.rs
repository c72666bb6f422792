//! The hard limit: many threads want more than it allows, some of them waiting, and what is mapped is watched.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use gabion_bench_allocators::process::{resident_bytes, resident_bytes_soon};
use gabion_blocks::{Buffer, Change, Pool, Request};

use crate::Outcome;
use crate::random::Random;
use crate::report::Report;

/// Buffers have 16 KiB to 32 MiB, of each doubling as many.
const LEAST_BYTES: usize = 16 << 10;
const DOUBLINGS: usize = 11;
/// A thread wants to hold so many.
const HELD: usize = 8;
/// Odd threads wait so long for room, even ones are refused at once.
const TIMEOUT: Duration = Duration::from_millis(200);
const PAGE: usize = 4096;

/// What to do: `threads` threads below a total limit of `limit` bytes, for `lasts`.
pub struct Work {
    pub limit: u64,
    pub threads: usize,
    pub lasts: Duration,
}

/// Runs it on the process's pool, which keeps the limit from then on.
pub fn run(work: &Work) -> Outcome<Report> {
    let pool = Pool::global();
    pool.configure(&Change { total_limit: Some(work.limit), ..Change::default() })?;
    let (stop, refused) = (AtomicBool::new(false), AtomicU64::new(0));
    let before = resident_bytes()?;
    let (mapped, resident) = thread::scope(|scope| -> Outcome<(u64, u64)> {
        for thread in 0..work.threads {
            let (stop, refused) = (&stop, &refused);
            scope.spawn(move || hold(pool, thread, stop, refused));
        }
        let watched = watch(pool, work.lasts);
        // Relaxed: the flag says nothing about other memory.
        stop.store(true, Ordering::Relaxed);
        watched
    })?;
    let stats = pool.stats();
    assert_eq!(stats.in_use, 0, "all threads have ended, and something is still lent");
    let over = |bytes: u64| bytes.saturating_sub(work.limit) as f64;
    let metrics = vec![
        ("over_limit_sampled", over(mapped), "B"),
        ("over_limit_peak", over(stats.peak), "B"),
        ("peak_vs_limit", stats.peak as f64 / work.limit as f64, "ratio"),
        ("rss_vs_limit", resident.saturating_sub(before) as f64 / work.limit as f64, "ratio"),
        ("requests", stats.requests as f64, "count"),
        ("waited", stats.waited as f64, "count"),
        // Relaxed: all threads have ended.
        ("refused", refused.load(Ordering::Relaxed) as f64, "count"),
    ];
    Ok(metrics.into())
}

/// The most that was seen mapped, and resident.
fn watch(pool: &Pool, lasts: Duration) -> Outcome<(u64, u64)> {
    let began = Instant::now();
    let (mut mapped, mut resident) = (0, 0);
    while began.elapsed() < lasts {
        mapped = mapped.max(pool.stats().mapped);
        resident = resident.max(resident_bytes_soon()?);
        thread::sleep(Duration::from_millis(1));
    }
    Ok((mapped, resident))
}

/// Holds up to [`HELD`] buffers of random sizes and changes one after the other; a refusal costs it one that it has.
fn hold(pool: &Pool, thread: usize, stop: &AtomicBool, refused: &AtomicU64) {
    let mut random = Random(thread as u64);
    let timeout = (!thread.is_multiple_of(2)).then_some(TIMEOUT);
    let mut held: Vec<Buffer> = Vec::with_capacity(HELD);
    // Relaxed: the flag says nothing about other memory, and the count is read when all threads have ended.
    while !stop.load(Ordering::Relaxed) {
        let least = LEAST_BYTES << random.below(DOUBLINGS);
        if let Ok(mut buffer) = pool.rent(&Request { timeout, ..Request::new(least + random.below(least)) }) {
            for place in buffer.as_mut_slice().iter_mut().step_by(PAGE) {
                *place = thread as u8;
            }
            held.push(buffer);
        } else {
            refused.fetch_add(1, Ordering::Relaxed);
            // Whoever holds nothing has nothing to give up, and others need the processor to do so.
            thread::yield_now();
        }
        if held.len() == HELD || random.below(2) == 0 {
            drop_one(&mut held, &mut random, thread);
        }
    }
    while !held.is_empty() {
        drop_one(&mut held, &mut random, thread);
    }
}

fn drop_one(held: &mut Vec<Buffer>, random: &mut Random, thread: usize) {
    if held.is_empty() {
        return;
    }
    let buffer = held.swap_remove(random.below(held.len()));
    let intact = buffer.as_slice().iter().step_by(PAGE).all(|&byte| byte == thread as u8);
    assert!(intact, "a buffer of {} bytes does not hold what was written", buffer.len());
}
