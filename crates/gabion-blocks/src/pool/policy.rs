//! How much idle memory to keep: pure functions of counts and a clock.
//!
//! Time is cut into *quarters* of a period. A quarter's *high-water mark* is the most that was taken at one time within
//! it. Idle memory is worth keeping as far as the highest mark of the last four quarters and of the one at hand would
//! need it; the rest goes. So a steady load is served from warm memory for ever, and two periods after a load has ended
//! nothing of it is left.

use std::time::Duration;

/// Quarters in a period.
pub(crate) const QUARTERS: u32 = 4;

/// Quarters that are remembered beside the one at hand: a whole period. With the one in which a load ends, one more
/// until unused caches are emptied, and one until somebody looks, all of it is forgotten within two periods.
const REMEMBERED: usize = QUARTERS as usize;

/// What may be idle beyond the highest mark, at least, before a fresh mapping must make room for itself: where sizes
/// change, what is idle rarely fits, and throwing it away for every request would be no pool at all.
const SLACK: u64 = 64 << 20;

/// How much was needed lately, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Demand {
    /// High-water marks of the last quarters, the latest first.
    marks: [u64; REMEMBERED],
}

impl Demand {
    /// Ends `quarters` quarters: `mark` is what was needed in the first of them, and `taken` in all that followed.
    pub fn roll(&mut self, quarters: u64, mark: u64, taken: u64) {
        for quarter in 0..quarters.min(REMEMBERED as u64 + 1) {
            self.marks.rotate_right(1);
            self.marks[0] = if quarter == 0 { mark } else { taken };
        }
    }

    /// The highest of the marks.
    pub fn highest(&self) -> u64 {
        self.marks.into_iter().max().unwrap_or(0)
    }
}

/// How many of `idle` bytes are not needed beside the `taken` bytes, when `mark` is the highest mark.
pub(crate) fn excess(idle: u64, taken: u64, mark: u64) -> u64 {
    idle.saturating_sub(mark.saturating_sub(taken))
}

/// How many idle bytes must go before `bytes` more are mapped, beside `mapped` bytes of which `taken` are taken. Of the
/// slack beyond the mark, the `free_pieces` bytes of blocks that are cut have their part: they are warm, too, and lent
/// to nobody.
pub(crate) fn surplus(mapped: u64, taken: u64, bytes: u64, mark: u64, free_pieces: u64) -> u64 {
    let mark = mark.max(taken + bytes);
    (mapped + bytes).saturating_sub(mark + (mark / 4).saturating_sub(free_pieces).max(SLACK))
}

/// Which quarter it is. Times are counted from any fixed moment, and quarters from there on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Quarters {
    /// How many have ended, as far as somebody has looked.
    ended: u64,
    period: Duration,
}

impl Quarters {
    /// How many quarters have ended since the last call. A new period's quarters are counted anew.
    pub fn ended(&mut self, now: Duration, period: Duration) -> u64 {
        let quarter = (period / QUARTERS).as_nanos().max(1);
        let ended = (now.as_nanos() / quarter).min(u128::from(u64::MAX)) as u64;
        if self.period != period {
            let first = self.period.is_zero();
            *self = Self { ended: if first { 0 } else { ended }, period };
        }
        let since = ended.saturating_sub(self.ended);
        self.ended = self.ended.max(ended);
        since
    }
}

/// How long it is until the quarter at hand ends.
pub(crate) fn until_next(now: Duration, period: Duration) -> Duration {
    let quarter = (period / QUARTERS).as_nanos().max(1);
    let rest = quarter - now.as_nanos() % quarter;
    Duration::from_nanos(rest.min(u128::from(u64::MAX)) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_secs(60);

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn what_the_highest_mark_needs_is_kept() {
        assert_eq!(excess(800, 200, 1000), 0);
        assert_eq!(excess(900, 200, 1000), 100);
        assert_eq!(excess(900, 1000, 1000), 900);
        assert_eq!(excess(900, 2000, 1000), 900);
    }

    #[test]
    fn a_mark_counts_for_four_quarters_and_no_longer() {
        let mut demand = Demand::default();
        demand.roll(1, 1000, 0);
        for _ in 0..3 {
            demand.roll(1, 10, 0);
            assert_eq!(demand.highest(), 1000);
        }
        demand.roll(1, 20, 0);
        assert_eq!(demand.highest(), 20);
    }

    #[test]
    fn quarters_keep_their_time_whoever_looks_late() {
        let mut quarters = Quarters::default();
        assert_eq!(quarters.ended(seconds(14), PERIOD), 0);
        assert_eq!(quarters.ended(seconds(16), PERIOD), 1);
        assert_eq!(quarters.ended(seconds(29), PERIOD), 0);
        assert_eq!(quarters.ended(seconds(47), PERIOD), 2);
        assert_eq!(quarters.ended(seconds(100_000), PERIOD), 6663);
        let mut demand = Demand::default();
        demand.roll(6663, 1000, 10);
        assert_eq!(demand.highest(), 10, "nobody looked for long: the mark is old");
        demand.roll(3, 500, 20);
        assert_eq!(demand.highest(), 500);
    }

    #[test]
    fn whoever_sleeps_wakes_with_the_quarter() {
        assert_eq!(until_next(seconds(0), PERIOD), seconds(15));
        assert_eq!(until_next(seconds(44), PERIOD), seconds(1));
        assert_eq!(until_next(seconds(45), PERIOD), seconds(15));
    }

    #[test]
    fn a_fresh_mapping_makes_room_when_much_is_idle() {
        let mib = |count: u64| count << 20;
        assert_eq!(surplus(mib(64), 0, mib(48), mib(64), 0), 0, "small processes keep a few sizes");
        assert_eq!(surplus(mib(3000), mib(300), mib(10), mib(800), 0), mib(2010));
        assert_eq!(surplus(mib(800), mib(800), mib(400), mib(800), 0), 0, "growth is no waste");
        assert_eq!(surplus(mib(3000), mib(300), mib(10), mib(800), mib(50)), mib(2060), "pieces are slack, too");
        assert_eq!(surplus(mib(3000), mib(300), mib(10), mib(800), mib(500)), mib(2146), "but never all of it");
    }
}
