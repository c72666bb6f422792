//! The policies that a cache has to choose from.

/// The eviction policy of a cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Policy {
    /// S3-FIFO's queues with a frequency sketch in place of its ghost queue.
    ///
    /// New entries pass through a small queue (a ninth of the bytes) on probation. An entry that was hit there, or
    /// whose key is known to the sketch as more frequent than the main queue's next victim, goes on to the main queue,
    /// a clock with two bits. (Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023; Einziger,
    /// Friedman, Manes, "`TinyLFU`: a highly efficient cache admission policy", 2017.)
    #[default]
    Sketch,
    /// Least recently used, exact: one order over the whole cache, unless [`CacheOptions::shards`] asks for more. Every
    /// hit takes the lock.
    ///
    /// [`CacheOptions::shards`]: crate::CacheOptions::shards
    Lru,
    /// First in, first out, exact as [`Policy::Lru`] is.
    Fifo,
    /// S3-FIFO as published: small queue 10 %, ghost queue 90 %, two hits to move on; the shares are of what ghosts
    /// leave. A ghost is charged 24 bytes, so that a cache of small values holds fewer of them, and where memory is
    /// short the oldest ghosts go first. It is there to be compared with.
    S3Fifo,
}

impl Policy {
    /// Whether a hit changes the policy's lists.
    #[inline]
    pub(crate) fn moves_on_hit(self) -> bool {
        self == Self::Lru
    }

    /// Whether the victim is exactly determined, so that one order has to hold over all.
    #[inline]
    pub(crate) fn is_exact(self) -> bool {
        self != Self::Sketch
    }

    /// Whether a hit raises the entry's counter.
    #[inline]
    pub(crate) fn counts_hits(self) -> bool {
        matches!(self, Self::Sketch | Self::S3Fifo)
    }
}
