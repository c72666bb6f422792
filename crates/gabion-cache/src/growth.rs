//! Linear hashing: which of so many parts a hash leads to, which part is split next, and when.

/// Which of `count` segments or sketches a hash leads to.
#[inline]
pub(crate) fn address(kept: u64, count: u64) -> usize {
    // There is one at least.
    let wide = u64::MAX >> (count | 1).leading_zeros();
    let index = kept & wide;
    (if index < count { index } else { index & (wide >> 1) }) as usize
}

/// The one that number `last` was split from, and is merged into again.
#[inline]
pub(crate) fn partner(last: u64) -> u64 {
    last ^ 1 << last.ilog2()
}

/// How many entries `count` parts may have that are full with `full` entries each: fewer than the first, and there should
/// be fewer parts; more than the second, and there should be more. While a round of splits is under way it goes on, unless
/// entries go again; the numbers lie so far apart that no put and remove by turns split and merge.
pub(crate) fn bounds(count: u64, full: u64) -> (u64, u64) {
    let round = 1 << count.ilog2();
    let (grow, shrink) = if count == round { (100, 36) } else { (84, 72) };
    (if count > 1 { (full * round * shrink).div_ceil(100) } else { 0 }, full * round * grow / 100)
}
