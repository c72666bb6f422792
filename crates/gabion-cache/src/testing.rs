//! For the tests of programs whose caches' entries end.

use std::time::Duration;

use crate::time;

/// Lets so much time pass at once for all caches that there are, as far as they take their time from the
/// [`SystemClock`](crate::SystemClock): times to live, idle times, and the time of day that
/// [`PutOptions::expires_at`](crate::PutOptions::expires_at) is compared with. Time goes forward only; a cache that is
/// made later begins with the system's own.
///
/// A hundred years can pass in a process, and no more: false where these would be, and then none passes.
///
/// Made for tests. A cache with a clock of its own, as a [`ManualClock`](crate::ManualClock), goes by that.
///
/// ```
/// use std::time::Duration;
///
/// use gabion_cache::{Cache, PutOptions, Span, testing};
///
/// let (cache, minute) = (Cache::new(64 << 20)?, Duration::from_secs(60));
/// cache.put(b"stone", b"4 MiB", &PutOptions { ttl: Span::Of(minute), ..PutOptions::default() });
/// assert!(cache.contains(b"stone"));
/// testing::advance(minute);
/// assert!(!cache.contains(b"stone"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn advance(by: Duration) -> bool {
    time::advance(by)
}
