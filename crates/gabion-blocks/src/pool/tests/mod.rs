//! The pool's own tests: one file for each of its promises.

mod arenas;
mod cuts;
mod failures;
mod groups;
mod limits;
mod malloc;
mod model;
mod sizes;
mod trimming;

use std::sync::Once;
use std::time::Duration;

use super::{Buffer, Pool, Request, Settings, seat};
use crate::os::{Twin, system};
use crate::sync::lock;

const MIB: usize = 1 << 20;
const PERIOD: Duration = Duration::from_secs(3600);
/// More than any machine needs for what is waited for.
const LONG: Duration = Duration::from_secs(3600);

/// Settings under which nothing happens by itself and nothing waits long.
fn quiet() -> Settings {
    let mut settings = Settings::default();
    (settings.pool_bytes, settings.follows) = (256 << 20, false);
    (settings.arenas, settings.trim_period, settings.patience) = (4, PERIOD, Duration::ZERO);
    settings
}

/// The first large mapping of a process measures, with a mapping of its own, what huge pages may cost: not where a test
/// counts mappings.
fn measure_huge_pages() {
    static MEASURED: Once = Once::new();
    MEASURED.call_once(|| drop(Pool::new(system(), quiet()).unwrap().rent(&Request::new(16 * MIB)).unwrap()));
}

/// A pool on a twin of the system, without memory pressure and without a trimmer.
fn pool_with(change: impl FnOnce(&mut Settings)) -> (Pool, &'static Twin) {
    measure_huge_pages();
    let twin: &'static Twin = Box::leak(Box::default());
    let mut settings = quiet();
    change(&mut settings);
    let pool = Pool::with_root(twin, settings, "/nonexistent-root".into()).unwrap();
    // As if one were at work: nobody trims but the test.
    assert!(pool.shared().trimmer.duty.take());
    (pool, twin)
}

fn pool() -> (Pool, &'static Twin) {
    pool_with(|_| {})
}

fn rent(pool: &Pool, bytes: usize) -> Buffer {
    pool.rent(&Request::new(bytes)).unwrap()
}

/// Whether something comes to hold. Counted by steps: by the clock, time is over for a process that was stopped, before anybody
/// could do anything.
fn eventually(holds: impl Fn() -> bool) -> bool {
    (0..12_000).any(|_| {
        let held = holds();
        if !held {
            std::thread::sleep(Duration::from_millis(5));
        }
        held
    })
}

/// Lets the policy look, `periods` after the pool was made.
fn look(pool: &Pool, periods: f64) -> u64 {
    pool.shared().look(PERIOD.mul_f64(periods))
}

/// Waits until all threads but this one have left the pool. The end of a scope does not wait for what its threads still do
/// when they end: they empty their caches then.
fn alone(pool: &Pool) {
    let own = usize::from(seat::existing_cache(pool.shared()).is_some());
    let start = std::time::Instant::now();
    loop {
        let caches = lock(&pool.shared().caches);
        if caches.spare.len() + own == caches.all.len() {
            return;
        }
        drop(caches);
        assert!(start.elapsed() < Duration::from_secs(300), "a thread does not end");
        std::thread::yield_now();
    }
}

/// Drops the pool and checks that nothing is left of it.
fn close(pool: Pool, twin: &Twin) {
    alone(&pool);
    pool.validate().unwrap();
    drop(pool);
    assert_eq!(twin.mapped(), 0, "memory was not given back");
}
