//! Asking memory for entries ahead of their use.
//!
//! A get waits for memory twice: for the index, and for the entry that it leads to. Nothing can be done about that for
//! one key; for many, the waits of some overlap with the work on others. (Chen, Ailamaki, Gibbons, Mowry, "Improving
//! hash join performance through prefetching", 2004.)

use super::core::Core;
use crate::index::Glimpse;
use crate::key::{Image, KeyHash};
use crate::policy::Policy;
use crate::shard::{Ground, Shard};

/// Where a key is looked up: what [`Table::foresee`](crate::Table::foresee) found out, for
/// [`Table::foresee_entry`](crate::Table::foresee_entry).
#[derive(Debug, Clone, Copy)]
pub struct Foreseen(KeyHash);

impl Core {
    /// Asks for the part of the index where a key is looked up.
    #[inline]
    pub fn foresee(&self, table: u16, key: &[u8]) -> Foreseen {
        // A long key takes longer to hash than memory to answer.
        let hash = Image::short(table, key).map_or(KeyHash(0), |image| self.hash(&image));
        self.shards()[self.shard(hash)].segments.prefetch(hash.kept());
        Foreseen(hash)
    }

    /// Asks for what a put of the key will look at first.
    #[inline]
    pub fn foresee_put(&self, table: u16, key: &[u8]) {
        let Foreseen(hash) = self.foresee(table, key);
        let (ground, shards) = (self.ground(), self.shards());
        if ground.policy == Policy::Sketch {
            shards[self.shard(hash)].sketches.prefetch(hash.kept());
        }
    }

    /// Asks for the entry that the index leads to.
    #[inline]
    pub fn foresee_entry(&self, Foreseen(hash): Foreseen) {
        let (ground, shards) = (self.ground(), self.shards());
        shards[self.shard(hash)].foresee_entry(ground, hash);
    }
}

impl Shard {
    #[inline]
    fn foresee_entry(&self, ground: &Ground, hash: KeyHash) {
        if let Glimpse::Cell(cell) = self.segments.first(hash.kept()) {
            ground.pile.prefetch_at(cell.place());
        }
    }
}
