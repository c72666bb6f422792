//! The pool's own tests: one file for each of its promises.
//!
//! The test cases of `ImageSharp`'s allocator and their counterparts here. Numbers count its cases in the order of its
//! files.
//!
//! | cases | about | counterpart |
//! |---|---|---|
//! | 1–9, 13 | rent, return, capacity, no aliasing, same buffers again | `sizes.rs`, `model.rs`; over capacity is served, not refused: `groups.rs`: `many_groups_beyond_the_pool_are_served` |
//! | 10, 11, 28, 29 | release really frees, and only what is idle | `trimming.rs`: `trimming_takes_all_that_is_idle_and_nothing_else` |
//! | 12 | thread safety, fill patterns intact | `tests/pool_stress.rs` |
//! | 14–16 | trimming by timer, of several pools, under load | `trimming.rs` |
//! | 17, 18, 44–58 | length, clean memory, read and write, the same span | `sizes.rs`; indexing and pinning are the language's |
//! | 19, 24, 133, 134, 137 | sizes of segments | `groups.rs`: `parts_are_as_long_as_rows_allow`; long rows are served |
//! | 20, 25 | beyond the pool's limit | `groups.rs`, `limits.rs`: `the_pool_keeps_no_more_than_it_may` |
//! | 21, 22, 34–38 | limits of one request, absurd sizes | `limits.rs`: `one_request_is_limited_to_the_byte`; `sizes.rs`: `absurd_sizes_are_refused` |
//! | 26, 27, 135 | memory comes back with its content; clean | `sizes.rs`: `what_an_earlier_user_wrote_is_seen_unless_clean_is_asked_for` |
//! | 30–33, 42, 60, 62, 64, 77 | finalizers | no finalizers in Rust; a drop cannot be missed. The Python package tests collection |
//! | 39–41, 72, 73 | the total limit is released, and counted once | `model.rs` checks it after each step |
//! | 43 | 3 GB group | limits are 64-bit throughout; `groups.rs`: `nonsense_is_refused` |
//! | 59, 80 | counts return to zero | `arenas.rs`: `figures_of_the_arenas_add_up` |
//! | 61, 63, 65, 66, 68, 76 | released once, references keep memory | ownership: `Buffer` is not `Clone`; `groups.rs`: `a_part_of_a_group_may_outlive_it` |
//! | 67, 69–71, 74, 75, 78, 79, 81, 82 | kinds of buffers beside the pool's | one kind here |
//! | 83–127 | images in two dimensions | rows: `groups.rs`: `every_row_is_whole_and_can_be_written`; the rest belongs to images |
//! | 128–132, 142–153 | walking groups by index, copying, views | slices and iterators of the language |
//! | 136 | around the pool's limit | `limits.rs`: `the_total_is_limited_to_the_page` |
//! | 138 | the allocator is asked as expected | the twin of the system counts mappings: `groups.rs` |
//! | 139–141 | validity of groups | the compiler |

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

/// Whether something comes to hold. Counted by steps: by the clock, time is over for a process that was stopped, before
/// anybody could do anything.
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

/// Waits until all threads but this one have left the pool. The end of a scope does not wait for what its threads still
/// do when they end: they empty their caches then.
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
