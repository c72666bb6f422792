//! Where the time comes from.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A source of time, so that tests need not wait.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Time since some fixed moment. Used for everything that lasts; need not be steady: a step back makes entries live
    /// longer, a step forward ends them.
    fn now(&self) -> Duration;
    /// The time of day, as time since the start of 1970. Asked for once for each absolute expiry.
    fn wall(&self) -> Duration;
}

/// Milliseconds by a clock.
#[inline]
pub(crate) fn now(clock: &dyn Clock) -> u64 {
    let now = clock.now();
    now.as_secs().saturating_mul(1000).saturating_add(u64::from(now.subsec_millis()))
}

/// The system's clocks: the monotonic one, and the time of day.
#[derive(Debug)]
pub struct SystemClock {
    start: Instant,
}

impl Default for SystemClock {
    fn default() -> Self {
        Self { start: Instant::now() }
    }
}

impl Clock for SystemClock {
    #[inline]
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn wall(&self) -> Duration {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
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
