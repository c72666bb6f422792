//! How caches and tables are made, and what a put may say.

use std::sync::Arc;
use std::time::Duration;

use crate::policy::Policy;
use crate::time::Clock;

/// How a cache is made.
#[derive(Debug, Clone, Default)]
pub struct CacheOptions {
    /// The most bytes that the cache may take, with keys, headers, rounding and index. Memory is taken in pages of 64
    /// KiB for each size class, so a cache below 8 MiB may take up to 5 MiB more than its limit, and 8 MiB at most,
    /// where entries are of all sizes.
    pub max_bytes: u64,
    /// Which entry goes when room is needed.
    pub policy: Policy,
    /// How many writers can work at one time, up to one for each 64 KiB. `None`: four times the number of processors,
    /// fewer for small caches; one in the exact policies (all but [`Policy::Sketch`]), because their order spans the
    /// whole cache. With more, each has an order of its own for the part of the keys that their hashes lead to.
    pub shards: Option<usize>,
    /// Where the time comes from. `None`: the system's clocks.
    pub clock: Option<Arc<dyn Clock>>,
    /// What the default table does.
    pub table: TableOptions,
}

/// How a table is made. Nothing is taken over from the cache's default table, but where the caller begins with
/// `..cache.options()`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TableOptions {
    /// The most bytes that the table may take out of the cache's. `None`, or more than the cache's: as much as the
    /// cache.
    pub max_bytes: Option<u64>,
    /// How long values live. `None`: until they are evicted or removed.
    pub ttl: Option<Duration>,
    /// How long values live that nobody asks for.
    pub idle: Option<Duration>,
}

/// A time to live or an idle time of one value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Span {
    /// As the table says.
    #[default]
    Table,
    /// Without end.
    Never,
    /// So long.
    Of(Duration),
}

impl Span {
    /// Milliseconds; `None` without end.
    pub(crate) fn millis(self, table: Option<Duration>) -> Option<u64> {
        let span = match self {
            Self::Table => table,
            Self::Never => None,
            Self::Of(span) => Some(span),
        };
        // Up: what lives for less than a millisecond still lives.
        span.map(|span| {
            span.as_secs().saturating_mul(1000).saturating_add(u64::from(span.subsec_nanos().div_ceil(1_000_000)))
        })
    }
}

/// What one put says of its value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PutOptions {
    /// How long the value lives.
    pub ttl: Span,
    /// How long it lives while nobody asks for it.
    pub idle: Span,
    /// When it ends by the time of day, as time since the start of 1970, in place of the table's time to live. Read
    /// once, when the value is put: a clock that is set later changes nothing, and a machine that is suspended puts the
    /// end off. With a `ttl` too, the value ends with what comes first. Only a touch with a time to live of its own
    /// puts the end off.
    pub expires_at: Option<Duration>,
    /// It makes room by evicting values of its own priority and below only, the lowest first.
    pub priority: i8,
}

/// What a cache knows of a value beside its key: for callers that keep entries elsewhere, as in a file, and put them
/// into a cache again. Times are times of day, as time since the start of 1970.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Terms {
    /// When the value ends if nobody asks for it; `None`: never.
    pub ends_at: Option<Duration>,
    /// When a value with an idle time ends however often it is asked for; `None`: never. Without an idle time, that is
    /// `ends_at`.
    pub expires_at: Option<Duration>,
    /// How long it lives while nobody asks for it.
    pub idle: Option<Duration>,
    /// The time to live that a touch restarts; [`Span::Never`] where it restarts none.
    pub touch: Span,
    /// See [`PutOptions::priority`].
    pub priority: i8,
}

/// What became of a put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PutResult {
    /// Stored under a key that was not there.
    Inserted,
    /// Stored in place of the key's earlier value.
    Replaced,
    /// Not stored: larger than the limit, or only values of higher priority could have made room. The key holds nothing
    /// now, so that its earlier value is not taken for the new one.
    Rejected,
}

impl PutResult {
    /// Whether the cache holds the value: not so when it was [`PutResult::Rejected`], which removes the key's earlier
    /// value, too.
    #[must_use]
    pub fn is_stored(self) -> bool {
        self != Self::Rejected
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_rounded_up_to_milliseconds() {
        let millis = |span| Span::Of(span).millis(None);
        assert_eq!(millis(Duration::ZERO), Some(0));
        assert_eq!(millis(Duration::from_nanos(1)), Some(1));
        assert_eq!(millis(Duration::new(7, 999_000_001)), Some(8000));
        assert_eq!(millis(Duration::new(7, 999_000_000)), Some(7999));
        assert_eq!(millis(Duration::MAX), Some(u64::MAX));
        assert_eq!(Span::Table.millis(Some(Duration::from_secs(2))), Some(2000));
        assert_eq!((Span::Never.millis(Some(Duration::ZERO)), Span::Table.millis(None)), (None, None));
    }
}
