//! Keys whose values are being made, and whether they were changed meanwhile.
//!
//! A caller that makes a value takes a lease of its key first. A put, a removal, or a clear ends it, so that what is
//! made of older facts is not stored after them. (Nishtala et al., "Scaling Memcache at Facebook", NSDI 2013.)

use std::collections::BTreeMap;

/// The number of no lease that holds.
pub(crate) const ENDED: u64 = 0;

/// The leases of a shard. For its lock's holder.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    /// By the whole hash: of two keys with one hash, a change of either ends the other's.
    held: BTreeMap<u64, LeaseOfKey>,
    last: u64,
}

#[derive(Debug, Clone, Copy)]
struct LeaseOfKey {
    number: u64,
    table: u16,
}

impl Leases {
    /// A new lease of a key. An older one of the same key has ended.
    pub fn take(&mut self, hash: u64, table: u16) -> u64 {
        self.last += 1;
        self.held.insert(hash, LeaseOfKey { number: self.last, table });
        self.last
    }

    /// Whether the key was left alone since the lease was taken.
    pub fn holds(&self, hash: u64, number: u64) -> bool {
        self.held.get(&hash).is_some_and(|held| held.number == number)
    }

    /// A lease is over.
    pub fn end(&mut self, hash: u64, number: u64) {
        if self.holds(hash, number) {
            self.held.remove(&hash);
        }
    }

    /// A key was changed.
    #[inline]
    pub fn end_key(&mut self, hash: u64) {
        if !self.held.is_empty() {
            self.held.remove(&hash);
        }
    }

    /// All keys of a table were changed, or of all tables.
    pub fn end_all(&mut self, table: Option<u16>) {
        self.held.retain(|_, held| table.is_some_and(|table| held.table != table));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_holds_until_its_key_changes() {
        let mut leases = Leases::default();
        let [one, other] = [leases.take(1, 0), leases.take(2, 7)];
        assert!(leases.holds(1, one) && leases.holds(2, other) && !leases.holds(1, other));
        leases.end_key(3);
        leases.end_key(1);
        assert!(!leases.holds(1, one) && leases.holds(2, other));
        leases.end_all(Some(0));
        assert!(leases.holds(2, other));
        leases.end_all(Some(7));
        assert!(!leases.holds(2, other));
    }

    #[test]
    fn a_newer_lease_ends_an_older_one_and_not_the_other_way_round() {
        let mut leases = Leases::default();
        let [old, new] = [leases.take(1, 0), leases.take(1, 0)];
        assert!(!leases.holds(1, old) && leases.holds(1, new));
        leases.end(1, old);
        assert!(leases.holds(1, new));
        leases.end(1, new);
        assert!(!leases.holds(1, new));
        leases.take(1, 0);
        leases.end_all(None);
        assert!(leases.held.is_empty());
    }
}
