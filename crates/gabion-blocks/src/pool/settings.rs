//! What a pool can be told, and what can be asked of it.

use std::time::Duration;

use crate::error::BlockError;
use crate::limits;

/// The most arenas that a pool can have.
pub const MOST_ARENAS: usize = 256;

/// What a process may use of memory at most, divided by this, is what a pool keeps when nothing else is said.
const POOL_SHARE: u64 = 8;

/// How a pool behaves. All sizes in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settings {
    /// How much memory, lent or idle, the pool keeps mapped: what comes back beyond it is unmapped at once, and 0 keeps
    /// nothing. What is lent may be more. Default: 1/8 of what this process may really use (cgroup limits count), read
    /// again from time to time.
    pub pool_bytes: u64,
    /// How many arenas threads are spread over, a power of two up to [`MOST_ARENAS`]. Default: four for each
    /// processor, at least 16.
    pub arenas: usize,
    /// Over which time the need for memory is judged: idle memory that neither this period nor the last one needed is
    /// given back. Default: 60 s.
    pub trim_period: Duration,
    /// The most that one request may ask for. Default: no limit (`u64::MAX`).
    pub allocation_limit: u64,
    /// The most that the pool maps for buffers and groups, idle memory included. Default: no limit (`u64::MAX`).
    pub total_limit: u64,
    /// How long a request waits when the system is out of memory and the pool has nothing left to give back.
    /// Default: 100 ms.
    pub patience: Duration,
    /// Whether the trimmer has the C library's malloc give back what it keeps, too, when [`Pool::note_malloc`] was
    /// called and then was not for a period, or memory is short. With glibc only. Default: true.
    ///
    /// [`Pool::note_malloc`]: super::Pool::note_malloc
    pub trim_malloc: bool,
    /// True while `pool_bytes` follows the limits of this process.
    pub(crate) follows: bool,
}

impl Default for Settings {
    fn default() -> Self {
        let processors = limits::processors();
        Self {
            pool_bytes: default_pool_bytes(),
            arenas: (processors * 4).next_power_of_two().clamp(16, MOST_ARENAS),
            trim_period: Duration::from_secs(60),
            allocation_limit: u64::MAX,
            total_limit: u64::MAX,
            patience: Duration::from_millis(100),
            trim_malloc: true,
            follows: true,
        }
    }
}

impl Settings {
    /// The default settings, but nothing is kept: what comes back is unmapped at once.
    pub fn unpooled() -> Self {
        Self { pool_bytes: 0, follows: false, patience: Duration::ZERO, ..Self::default() }
    }

    /// The settings after a change.
    ///
    /// # Errors
    /// [`BlockError::Setting`] when the change asks for nonsense.
    pub fn changed(mut self, change: &Change) -> Result<Self, BlockError> {
        if let Some(bytes) = change.pool_bytes {
            (self.pool_bytes, self.follows) = (bytes, false);
        }
        self.arenas = change.arenas.unwrap_or(self.arenas);
        self.trim_period = change.trim_period.unwrap_or(self.trim_period);
        self.allocation_limit = change.allocation_limit.unwrap_or(self.allocation_limit);
        self.total_limit = change.total_limit.unwrap_or(self.total_limit);
        self.trim_malloc = change.trim_malloc.unwrap_or(self.trim_malloc);
        self.checked()
    }

    /// The settings, when they make sense.
    pub(crate) fn checked(self) -> Result<Self, BlockError> {
        if !self.arenas.is_power_of_two() || self.arenas > MOST_ARENAS {
            return Err(BlockError::Setting { what: "arenas must be a power of two from 1 to 256" });
        }
        if self.trim_period.is_zero() {
            return Err(BlockError::Setting {
                what: "trim_period must be longer than 0; pool_bytes = 0 keeps nothing",
            });
        }
        Ok(self)
    }
}

/// What the pool keeps by default, as the system stands now.
pub(crate) fn default_pool_bytes() -> u64 {
    limits::read().usable() / POOL_SHARE
}

/// A change of [`Settings`]: `None` leaves a setting as it is. A limit is lifted by `u64::MAX`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Change {
    /// See [`Settings::pool_bytes`].
    pub pool_bytes: Option<u64>,
    /// See [`Settings::arenas`].
    pub arenas: Option<usize>,
    /// See [`Settings::trim_period`].
    pub trim_period: Option<Duration>,
    /// See [`Settings::allocation_limit`].
    pub allocation_limit: Option<u64>,
    /// See [`Settings::total_limit`].
    pub total_limit: Option<u64>,
    /// See [`Settings::trim_malloc`].
    pub trim_malloc: Option<bool>,
}

/// Asks for one piece of contiguous memory.
///
/// ```
/// use std::time::Duration;
///
/// use gabion_blocks::{Pool, Request};
///
/// // Zeros, if need be after a wait for room below the pool's total limit.
/// let request = Request::new(1 << 20).clean().timeout(Duration::from_secs(2));
/// assert_eq!(Pool::global().rent(&request)?.len(), 1 << 20);
/// # Ok::<(), gabion_blocks::BlockError>(())
/// ```
#[must_use = "nothing is rented before it is passed to `Pool::rent`"]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Request {
    /// How many bytes. 0 is allowed.
    pub bytes: usize,
    /// True when the memory must read as zero; otherwise it may hold what an earlier user left.
    pub clean: bool,
    /// How long to wait for room below the total limit; `None` refuses at once. Callers that wait are served in order
    /// of arrival.
    pub timeout: Option<Duration>,
}

impl Request {
    /// Asks for `bytes` bytes with any content, without waiting.
    pub fn new(bytes: usize) -> Self {
        Self { bytes, ..Self::default() }
    }

    /// The same, reading as zero.
    pub fn clean(self) -> Self {
        Self { clean: true, ..self }
    }

    /// The same, waiting so long for room below the total limit.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }
}

/// Asks for memory in parts, each contiguous.
///
/// ```
/// use gabion_blocks::{GroupRequest, Pool};
///
/// let group = Pool::global().rent_group(&GroupRequest::new(30 << 20).row_bytes(7680).clean())?;
/// assert_eq!(group.row(9).map(<[u8]>::len), Some(7680));
/// assert!(group.parts().iter().all(|part| part.len() <= 4 << 20));
/// # Ok::<(), gabion_blocks::BlockError>(())
/// ```
#[must_use = "nothing is rented before it is passed to `Pool::rent_group`"]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GroupRequest {
    /// How many bytes in all. 0 gives a group of no parts.
    pub bytes: usize,
    /// The length of a row: no row is cut by the end of a part. Rows longer than a block get a part each. `None`: bytes
    /// are rows.
    pub row_bytes: Option<usize>,
    /// As [`Request::clean`].
    pub clean: bool,
    /// As [`Request::timeout`].
    pub timeout: Option<Duration>,
}

impl GroupRequest {
    /// Asks for `bytes` bytes with any content, in rows of one byte, without waiting.
    pub fn new(bytes: usize) -> Self {
        Self { bytes, ..Self::default() }
    }

    /// The same, in rows of that many bytes, of which none is cut.
    pub fn row_bytes(self, row_bytes: usize) -> Self {
        Self { row_bytes: Some(row_bytes), ..self }
    }

    /// The same, reading as zero.
    pub fn clean(self) -> Self {
        Self { clean: true, ..self }
    }

    /// The same, waiting so long for room below the total limit.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_built_step_by_step() {
        let second = Duration::from_secs(1);
        let request = Request { bytes: 7, clean: true, timeout: Some(second) };
        assert_eq!(Request::new(7).timeout(second).clean(), request);
        let group = GroupRequest { bytes: 7, row_bytes: Some(3), clean: true, timeout: Some(second) };
        assert_eq!(GroupRequest::new(7).row_bytes(3).clean().timeout(second), group);
        assert_eq!(GroupRequest::new(7), GroupRequest { bytes: 7, ..GroupRequest::default() });
    }
}
