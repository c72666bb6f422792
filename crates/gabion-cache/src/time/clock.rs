//! Where the time comes from.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gabion_blocks::os;

/// A source of time, so that tests need not wait. It is asked under locks, in the middle of changes: it must not panic,
/// nor call the cache.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Time since some fixed moment. Used for everything that lasts; need not be steady: a step back makes entries live
    /// longer, a step forward ends them.
    fn now(&self) -> Duration;
    /// What [`Clock::now`] gave a moment ago, less than two seconds, where that is cheaper to know. Asked for by gets
    /// of entries that live on for longer than that.
    fn roughly(&self) -> Duration {
        self.now()
    }
    /// The time of day, as time since the start of 1970. Asked for once for each absolute expiry.
    fn wall(&self) -> Duration;
}

/// More milliseconds than [`Clock::roughly`] is late.
pub(crate) const LATE: u64 = 2000;

#[inline]
fn millis(time: Duration) -> u64 {
    time.as_secs().saturating_mul(1000).saturating_add(u64::from(time.subsec_millis()))
}

/// Milliseconds by a clock.
#[inline]
pub(crate) fn now(clock: &dyn Clock) -> u64 {
    millis(clock.now())
}

/// As [`now`], up to [`LATE`] ago.
#[inline]
pub(crate) fn roughly(clock: &dyn Clock) -> u64 {
    millis(clock.roughly())
}

/// Microseconds that tests have let pass, for all of the system's clocks.
static PASSED: AtomicU64 = AtomicU64::new(0);

/// The most of them: a hundred years. After 139 years all deadlines of a cache are over, and new ones, too.
const MOST_PASSED: u64 = 100 * 366 * 86_400 * 1_000_000;

/// See [`testing::advance`](crate::testing::advance).
pub(crate) fn advance(by: Duration) -> bool {
    let by = u64::try_from(by.as_micros()).unwrap_or(u64::MAX);
    let sum = |passed: u64| passed.checked_add(by).filter(|&passed| passed <= MOST_PASSED);
    // Relaxed: who is to see the new time is told of it in another way, as by the call that let it pass.
    PASSED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum).is_ok()
}

/// The system's clocks: the monotonic one, and the time of day. Both are ahead by what
/// [`testing::advance`](crate::testing::advance) has let pass since the clock was made.
#[derive(Debug)]
pub struct SystemClock {
    start: Duration,
    /// [`PASSED`] at the start.
    passed: u64,
}

impl SystemClock {
    /// A time by the system, and what tests have let pass.
    #[inline]
    fn ahead(&self, time: Duration) -> Duration {
        // Relaxed: see `advance`.
        match PASSED.load(Ordering::Relaxed) - self.passed {
            0 => time,
            micros => time.saturating_add(Duration::from_micros(micros)),
        }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        // Relaxed: see `advance`.
        Self { start: os::steady_time(), passed: PASSED.load(Ordering::Relaxed) }
    }
}

impl Clock for SystemClock {
    #[inline]
    fn now(&self) -> Duration {
        self.ahead(os::steady_time().saturating_sub(self.start))
    }

    #[inline]
    fn roughly(&self) -> Duration {
        // The last tick may have been before the start.
        self.ahead(os::steady_time_roughly().saturating_sub(self.start))
    }

    fn wall(&self) -> Duration {
        self.ahead(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
    }
}

/// A clock that is set by hand.
#[derive(Debug, Default)]
pub struct ManualClock {
    micros: AtomicU64,
}

impl ManualClock {
    /// Sets the time. It may go either way.
    pub fn set(&self, now: Duration) {
        // Relaxed: a number for tests.
        self.micros.store(now.as_micros() as u64, Ordering::Relaxed);
    }

    /// Goes forward.
    pub fn advance(&self, by: Duration) {
        self.micros.fetch_add(by.as_micros() as u64, Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Duration {
        Duration::from_micros(self.micros.load(Ordering::Relaxed))
    }

    fn wall(&self) -> Duration {
        self.now()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{Cache, CacheOptions, PutOptions, ReadBuf, Span};

    /// As late as a clock may be.
    #[derive(Debug, Default)]
    struct Late(ManualClock);

    impl Clock for Late {
        fn now(&self) -> Duration {
            self.0.now()
        }

        fn roughly(&self) -> Duration {
            self.0.now().saturating_sub(Duration::from_millis(LATE - 1))
        }

        fn wall(&self) -> Duration {
            self.0.wall()
        }
    }

    #[test]
    fn a_late_look_at_the_clock_lets_nobody_live_longer_or_shorter() {
        let clock: Arc<Late> = Arc::default();
        let with_clock = Some(clock.clone() as Arc<_>);
        let cache =
            Cache::with_options(&CacheOptions { max_bytes: 1 << 20, clock: with_clock, ..CacheOptions::default() })
                .unwrap();
        let millis = |millis| Span::Of(Duration::from_millis(millis));
        for ttl in [1, LATE - 1, LATE, LATE + 1, 2 * LATE] {
            cache.put(b"ttl", b"", &PutOptions { ttl: millis(ttl), ..PutOptions::default() });
            cache.put(b"idle", b"", &PutOptions { idle: millis(ttl), ..PutOptions::default() });
            let mut buf = ReadBuf::new();
            for passed in 1..=ttl {
                // Between them, puts look for what has ended.
                cache.put(b"other", b"", &PutOptions::default());
                clock.0.advance(Duration::from_millis(1));
                assert_eq!(cache.get(b"ttl", &mut buf).is_some(), passed < ttl, "{passed} of {ttl} ms");
                assert_eq!(cache.contains(b"ttl"), passed < ttl, "{passed} of {ttl} ms");
                // Asked for each half of its time.
                let asked = passed % (ttl / 2).max(1) == 0;
                assert!(!asked || ttl == 1 || cache.get(b"idle", &mut buf).is_some(), "{passed} of {ttl} ms");
            }
            clock.0.advance(Duration::from_millis(ttl));
            assert!(!cache.contains(b"idle"));
        }
        cache.validate().unwrap();
    }

    #[test]
    fn the_systems_clock_is_no_later_than_it_says() {
        let clock = SystemClock::default();
        for _ in 0..10_000 {
            let before = now(&clock);
            let roughly = roughly(&clock);
            assert!(before < roughly + LATE && roughly <= now(&clock));
        }
    }
}
