//! Hashes of keys: seeded anew for every cache, so that nobody outside can choose keys that collide.

use std::hash::{BuildHasher, Hasher, RandomState};

use foldhash::SharedSeed;
use foldhash::quality::FoldHasher;

use super::image::Image;

/// The hash of a table's key. Its tag is never 0.
///
/// ```text
/// bit 0            21      27    35              56       64
///     │ segment     │ home  │ tag │               │ shard  │
///     └─────── kept in the entry ─┘
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyHash(pub u64);

/// Bits of the hash that say which segment.
pub(crate) const SEGMENT_BITS: u32 = 21;
/// Bits of the hash that say where in the segment.
pub(crate) const HOME_BITS: u32 = 6;
/// Bits of a cell's tag.
pub(crate) const TAG_BITS: u32 = 8;
const TAG_SHIFT: u32 = SEGMENT_BITS + HOME_BITS;
/// Bits of the hash that an entry keeps.
pub(crate) const KEPT_BITS: u32 = TAG_SHIFT + TAG_BITS;

impl KeyHash {
    /// What an entry keeps.
    #[inline]
    pub fn kept(self) -> u64 {
        self.0 & ((1 << KEPT_BITS) - 1)
    }

    #[inline]
    pub fn shard(self, shards: usize) -> usize {
        (self.0 >> 56) as usize & (shards - 1)
    }
}

/// A test's seed, where it is to go as it went before: which entry a policy lets go depends on hashes.
fn given_seed() -> Option<u64> {
    if cfg!(test) { std::env::var("GABION_SEED").ok()?.parse().ok() } else { None }
}

/// Hashes keys with two secret seeds of 64 bits. Who can neither choose nor see them cannot make keys collide but by
/// luck; nothing that a cache answers tells a hash.
#[derive(Debug)]
pub(crate) struct KeyHasher {
    seed: u64,
    shared: SharedSeed,
}

impl KeyHasher {
    /// A hasher with a seed of its own, from the system's randomness.
    pub fn new() -> Self {
        let random = || given_seed().unwrap_or_else(|| RandomState::new().hash_one(0));
        Self { seed: random(), shared: SharedSeed::from_u64(random()) }
    }

    #[inline]
    pub fn hash(&self, image: &Image<'_>) -> KeyHash {
        let mut hasher = FoldHasher::with_seed(self.seed, &self.shared);
        hasher.write(image.key);
        if image.table != 0 {
            hasher.write_u16(image.table);
        }
        let hash = hasher.finish();
        let tagless = hash >> TAG_SHIFT & ((1 << TAG_BITS) - 1) == 0;
        KeyHash(hash | u64::from(tagless) << TAG_SHIFT)
    }
}
