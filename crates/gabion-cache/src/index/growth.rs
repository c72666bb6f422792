//! Linear hashing: which of several parts a hash leads to, which part is split next, and when.

/// How many segments or sketches there are, below 2³², and what a reader would have to work out from it: the mask of
/// the hash's bits that say which, in the upper half.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parts(u64);

impl Parts {
    pub fn of(count: u64) -> Self {
        let mask = if count == 0 { 0 } else { u64::MAX >> count.leading_zeros() };
        Self(mask << 32 | count)
    }

    /// From [`Parts::to_bits`]; nothing but zeros are no parts.
    #[inline]
    pub fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    #[inline]
    pub fn to_bits(self) -> u64 {
        self.0
    }

    #[inline]
    pub fn count(self) -> u64 {
        self.0 & u64::from(u32::MAX)
    }

    /// Which of them a hash leads to; 0 when there is none. Bits of the hash above those that so many need say nothing.
    #[inline]
    pub fn address(self, kept: u64) -> usize {
        let mask = self.0 >> 32;
        let index = kept & mask;
        (if index < self.count() { index } else { index & mask >> 1 }) as usize
    }
}

/// The one that number `last` was split from, and is merged into again.
#[inline]
pub(crate) fn partner(last: u64) -> u64 {
    last ^ 1 << last.ilog2()
}

/// How many entries `count` parts may have that are full with `full` entries each: fewer than the first, and there
/// should be fewer parts; more than the second, and there should be more. While a round of splits is under way it goes
/// on, unless entries go again; the numbers lie so far apart that no put and remove by turns split and merge.
pub(crate) fn bounds(count: u64, full: u64) -> (u64, u64) {
    let round = 1 << count.ilog2();
    let (grow, shrink) = if count == round { (100, 36) } else { (84, 72) };
    (if count > 1 { (full * round * shrink).div_ceil(100) } else { 0 }, full * round * grow / 100)
}
