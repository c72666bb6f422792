//! Numbers that are nobody else's.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::SystemTime;

use crate::os::out_of_cancels_reach;

/// A number that no other call gives but by luck, in this process, in another, or in a child of one.
pub fn unique_number() -> u64 {
    // The first key of a table of the standard library's comes from the system; a child's go on as its parent's do.
    let mut hasher = out_of_cancels_reach(RandomState::new).build_hasher();
    hasher.write_u32(std::process::id());
    if let Ok(now) = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH) {
        hasher.write_u128(now.as_nanos());
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_are_the_same() {
        let mut numbers: Vec<_> = (0..1000).map(|_| unique_number()).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 1000);
    }
}
