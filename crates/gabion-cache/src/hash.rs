//! Hashes of keys: keyed anew in every process, so that nobody outside can choose keys that collide.

use std::hash::{BuildHasher, Hasher, RandomState};

/// The hash of a key's image (`SipHash` with a random key, from the standard library).
///
/// ```text
/// bit 0            23      32    38              56       64
///     │ segment      │ home  │ tag │                │ shard │
///     └───── kept in the entry ──┘
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyHash(pub u64);

/// Bits of the hash that say which segment.
pub(crate) const SEGMENT_BITS: u32 = 23;
/// Bits of a cell's tag.
pub(crate) const TAG_BITS: u32 = 6;

impl KeyHash {
    #[inline]
    pub fn new(state: &RandomState, image: &[u8]) -> Self {
        let mut hasher = state.build_hasher();
        hasher.write(image);
        Self(hasher.finish())
    }

    /// What an entry keeps.
    #[inline]
    pub fn kept(self) -> u32 {
        self.0 as u32
    }

    #[inline]
    pub fn tag(self) -> u32 {
        (self.0 >> 32) as u32 & ((1 << TAG_BITS) - 1)
    }

    #[inline]
    pub fn shard(self, shards: usize) -> usize {
        (self.0 >> 56) as usize & (shards - 1)
    }
}
