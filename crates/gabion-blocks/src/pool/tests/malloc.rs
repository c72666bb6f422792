//! What malloc keeps goes back, once nobody has used it for a period.

use std::time::Duration;

use super::{close, eventually, look, pool, pool_with, quiet};
use crate::os::Twin;
use crate::pool::{Change, Pool};

#[test]
fn malloc_is_trimmed_once_a_period_after_its_last_use() {
    let (pool, twin) = pool();
    look(&pool, 1.0);
    assert_eq!(twin.malloc_trims(), 0, "nobody has used it");
    pool.note_malloc();
    for quarter in [5, 6, 7, 8] {
        look(&pool, f64::from(quarter) / 4.0);
        pool.note_malloc();
    }
    for quarter in [9, 10, 11, 12] {
        look(&pool, f64::from(quarter) / 4.0);
        assert_eq!(twin.malloc_trims(), 0, "it was used within the period");
        assert!(!pool.shared().malloc_trimmed());
    }
    look(&pool, 3.25);
    assert_eq!((twin.malloc_trims(), pool.shared().malloc_trimmed()), (1, true));
    look(&pool, 9.0);
    assert_eq!(twin.malloc_trims(), 1, "once is enough");
    close(pool, twin);
}

#[test]
fn malloc_is_left_alone_where_that_is_asked_for() {
    let (pool, twin) = pool_with(|settings| settings.trim_malloc = false);
    for period in [1.0, 2.0, 3.0] {
        pool.note_malloc();
        look(&pool, period);
    }
    look(&pool, 9.0);
    assert_eq!((twin.malloc_trims(), pool.shared().malloc_trimmed()), (0, true));
    pool.configure(&Change { trim_malloc: Some(true), ..Change::default() }).unwrap();
    pool.note_malloc();
    look(&pool, 10.0);
    look(&pool, 12.0);
    assert_eq!(twin.malloc_trims(), 1);
    close(pool, twin);
}

/// Also where the pool keeps nothing and so has no trimmer for itself.
#[test]
fn a_trimmer_comes_for_malloc_alone_and_goes() {
    let twin: &'static Twin = Box::leak(Box::default());
    let mut settings = quiet();
    (settings.pool_bytes, settings.trim_period) = (0, Duration::from_millis(40));
    let pool = Pool::with_root(twin, settings, "/nonexistent-root".into()).unwrap();
    for trims in 1..=2 {
        pool.note_malloc();
        assert!(eventually(|| pool.shared().trimmer.duty.vacant()), "{:?}", pool.stats());
        assert_eq!(twin.malloc_trims(), trims);
    }
    close(pool, twin);
}
