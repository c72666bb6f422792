//! From a key's hash to the places of entries that may hold it: hashing in buckets of one cache line, which grows and
//! shrinks a segment at a time.
//!
//! A *segment* has 64 buckets, a bucket 7 *cells*. An entry's cell lies in its home bucket, which the hash says, or in
//! one of the three behind it; a bucket counts the cells that passed it by, so that a search ends where nothing went
//! further (as in Facebook's F14 tables, 2019). Cells that find no place even so go to the *stash*, until there is one
//! again.
//!
//! ```text
//! bucket  tags of 7 cells (8 bits each; 0: free) │ passed by (8)  │ cell × 7
//! cell    place (39) │ segment bits of the hash (21) │ distance from home (2) │ hits (2)
//! ```
//! Which segment a hash leads to follows linear hashing: segments split in turn, each into itself and one new one, so
//! that no put moves more than the entries of one segment (W. Litwin, "Linear hashing: a new tool for file and table
//! addressing", VLDB 1980). When segments are 80 % full on average, each put splits one, until all are split.
//!
//! Readers take no lock. A cell changes by one store, and moves only when a segment is split or merged; the shard's
//! version tells a reader that found nothing whether that happened meanwhile.

use std::sync::Arc;

use gabion_blocks::{BlockError, Invalid, prefetch};
use gabion_pile::Place;

use super::bucket::{
    BUCKETS, Bucket, CELLS, Cell, HITS_SHIFT, MOST_PASSED, PASSED_SHIFT, PLACE, SEGMENT_SHIFT, STEP_SHIFT, equal,
    first_equal,
};
use super::growth::Parts;
use super::pages::{Pages, Strip, UNIT_BYTES, UNIT_WORDS, Unit};
use super::stash::Stash;
use crate::key::{HOME_BITS, SEGMENT_BITS};
use crate::sync::Ordering::{Acquire, Relaxed};
use crate::sync::{AtomicU64, fence};

/// Buckets that an entry's cell may lie in.
pub(crate) const REACH: usize = 4;
/// Entries for each segment on average that make segments split.
pub(crate) const FULL: u64 = (BUCKETS * CELLS) as u64 * 4 / 5;

#[inline]
pub(crate) fn segment_bits(kept: u64) -> u64 {
    kept & ((1 << SEGMENT_BITS) - 1)
}

#[inline]
pub(crate) fn home(kept: u64) -> usize {
    (kept >> SEGMENT_BITS) as usize % BUCKETS
}

#[inline]
pub(crate) fn tag(kept: u64) -> u64 {
    kept >> (SEGMENT_BITS + HOME_BITS)
}

/// Where a cell lies. For the lock's holder, until the next entry comes or goes.
#[derive(Clone, Copy)]
pub(crate) struct Spot<'a> {
    pub segment: &'a Unit,
    /// `buckets from home, or REACH for the stash (8 bits) | number of the stash's list (24) | word of the segment, or
    /// place in the list (32)`: in one word, because spots are handed around.
    at: u64,
}

const STEP_AT: u32 = 56;
const _: () = assert!(SEGMENT_BITS < STEP_AT - 32);

impl<'a> Spot<'a> {
    #[inline]
    fn new(segment: &'a Unit, home: usize, step: usize, cell: usize) -> Self {
        Self { segment, at: (step as u64) << STEP_AT | Bucket::word_of(home + step, cell) as u64 }
    }

    fn stashed(segment: &'a Unit, list: usize, at: usize) -> Self {
        Self { segment, at: (REACH as u64) << STEP_AT | (list as u64) << 32 | at as u64 }
    }

    #[inline]
    pub fn step(self) -> usize {
        (self.at >> STEP_AT) as usize
    }

    pub fn list(self) -> usize {
        (self.at >> 32) as usize & ((1 << (STEP_AT - 32)) - 1)
    }

    #[inline]
    pub fn index(self) -> usize {
        self.at as u32 as usize
    }
}

/// What a short look for a key comes to.
pub(crate) enum Glimpse<'a> {
    /// The first cell that may be the key's.
    Cell(Cell<'a>),
    /// The key is not there, unless cells moved meanwhile: see [`Segments::version`].
    Nothing,
    /// A longer search will tell.
    Unclear,
}

/// The segments of one shard.
pub(crate) struct Segments {
    pub strip: Strip,
    /// How many segments there are: [`Parts`].
    pub parts: AtomicU64,
    /// Odd while cells move.
    pub version: AtomicU64,
    /// Cells in the stash.
    pub stashed: AtomicU64,
}

impl Segments {
    /// # Errors
    /// That there is no memory for the table.
    pub fn new(pages: &Arc<Pages>, most_entries: u64) -> Result<Self, BlockError> {
        let most = (most_entries / (FULL / 3) + 2).min(1 << SEGMENT_BITS) as usize;
        let zero = || AtomicU64::new(0);
        Ok(Self { strip: Strip::new(pages, most)?, parts: zero(), version: zero(), stashed: zero() })
    }

    #[inline]
    pub fn parts(&self) -> Parts {
        // Acquire: pairs with the split that made the segment.
        Parts::from_bits(self.parts.load(Acquire))
    }

    #[inline]
    pub fn count(&self) -> u64 {
        self.parts().count()
    }

    /// Bytes of all segments.
    pub fn bytes(&self) -> u64 {
        self.count() * UNIT_BYTES
    }

    /// Bytes of the table that leads to the segments.
    pub fn table_bytes(&self) -> u64 {
        self.strip.table_bytes()
    }

    /// What to show to [`Segments::unmoved`] after a search that found nothing; `None` while cells move.
    #[inline]
    pub fn version(&self) -> Option<u64> {
        // Acquire: the search comes after it.
        Some(self.version.load(Acquire)).filter(|version| version & 1 == 0)
    }

    /// Whether no cell has moved since the version was taken, so that what was not found was not there.
    #[inline]
    pub fn unmoved(&self, version: u64) -> bool {
        // Acquire: the search's loads must not move behind the second look.
        fence(Acquire);
        self.version.load(Relaxed) == version
    }

    /// The segment that a hash leads to. For the lock's holder, until segments split or merge.
    #[inline]
    pub fn segment(&self, kept: u64) -> Option<&Unit> {
        // Where there is none, the strip has no first one either.
        self.strip.get(self.number(kept))
    }

    /// The number of that segment.
    #[inline]
    pub fn number(&self, kept: u64) -> usize {
        self.parts().address(kept)
    }

    /// Asks for a hash's home bucket ahead of its use.
    #[inline]
    pub fn prefetch(&self, kept: u64) {
        if let Some(segment) = self.segment(kept) {
            prefetch(Bucket::of(segment, home(kept)).0);
        }
    }

    /// The first cell that may be the key's: for callers that look at what it leads to, and search on if that is not
    /// the key's.
    #[inline(always)]
    pub fn first(&self, kept: u64) -> Glimpse<'_> {
        let Some(segment) = self.segment(kept) else { return Glimpse::Unclear };
        let (home, tag) = (home(kept), tag(kept));
        for step in 0..REACH {
            let bucket = Bucket::of(segment, home + step);
            let meta = bucket.meta();
            if let Some(at) = first_equal(meta, tag) {
                let word = bucket.cell(at);
                // Acquire: a reader that finds a place finds the payload written.
                let seen = word.load(Acquire);
                // An empty cell is of an entry that just went.
                return if seen == 0 { Glimpse::Unclear } else { Glimpse::Cell(Cell { word, seen }) };
            }
            if meta >> PASSED_SHIFT == 0 {
                return Glimpse::Nothing;
            }
        }
        Glimpse::Unclear
    }

    /// Calls `found` with each cell that may be the key's until it returns something. The flag says that more may be in
    /// the stash, where only the lock's holder can look.
    #[inline]
    pub fn find<'a, R>(&'a self, kept: u64, found: impl FnMut(Cell<'a>) -> Option<R>) -> (Option<R>, bool) {
        self.find_in(self.segment(kept), kept, found)
    }

    /// As [`Segments::find`], for callers that know the hash's segment.
    #[inline(always)]
    fn find_in<'a, R>(
        &'a self,
        segment: Option<&'a Unit>,
        kept: u64,
        mut found: impl FnMut(Cell<'a>) -> Option<R>,
    ) -> (Option<R>, bool) {
        let Some(segment) = segment else { return (None, false) };
        let (home, tag) = (home(kept), tag(kept));
        let mut expected = segment_bits(kept) << SEGMENT_SHIFT;
        for step in 0..REACH {
            let bucket = Bucket::of(segment, home + step);
            let meta = bucket.meta();
            let mut candidates = equal(meta, tag);
            while candidates != 0 {
                let word = bucket.cell(candidates.trailing_zeros() as usize / 8 % CELLS);
                candidates &= candidates - 1;
                // Acquire: a reader that finds a place finds the payload written.
                let seen = word.load(Acquire);
                // An empty cell is of an entry that just went.
                if seen != 0
                    && (seen & !PLACE) << 2 == expected << 2
                    && let Some(result) = found(Cell { word, seen })
                {
                    return (Some(result), false);
                }
            }
            if meta >> PASSED_SHIFT == 0 {
                return (None, false);
            }
            expected += 1 << STEP_SHIFT;
        }
        // Relaxed: a count that changes meanwhile is that of another key, or the version tells.
        (None, self.stashed.load(Relaxed) > 0)
    }

    /// As [`Segments::find`], the stash included. Under the shard's lock.
    #[inline]
    pub fn find_all<'a, R>(
        &'a self,
        stash: &'a Stash,
        kept: u64,
        found: impl FnMut(Cell<'a>) -> Option<R>,
    ) -> Option<R> {
        self.find_all_in(self.segment(kept), stash, kept, found)
    }

    /// As [`Segments::find_all`], for callers that know the hash's segment.
    #[inline]
    pub fn find_all_in<'a, R>(
        &'a self,
        segment: Option<&'a Unit>,
        stash: &'a Stash,
        kept: u64,
        mut found: impl FnMut(Cell<'a>) -> Option<R>,
    ) -> Option<R> {
        let (result, more) = self.find_in(segment, kept, &mut found);
        if result.is_some() || !more {
            return result;
        }
        let cells = stash.of(self.number(kept)).iter().filter(|(_, other)| *other == kept);
        cells.map(|(word, _)| Cell { word, seen: word.load(Relaxed) }).find_map(found)
    }

    /// Where the cell lies that leads to a place. Under the shard's lock.
    #[inline]
    pub fn spot(&self, stash: &Stash, kept: u64, place: Place) -> Spot<'_> {
        let (segment, home) = (self.segment(kept).expect("there is a segment"), home(kept));
        match Bucket::of(segment, home).find(tag(kept), place) {
            Some(at) => Spot::new(segment, home, 0, at),
            None => self.spot_beyond(stash, segment, kept, place),
        }
    }

    /// Where the cell lies if not in its home.
    #[inline(never)]
    fn spot_beyond<'a>(&self, stash: &Stash, segment: &'a Unit, kept: u64, place: Place) -> Spot<'a> {
        let (home, tag) = (home(kept), tag(kept));
        for step in 1..REACH {
            if let Some(at) = Bucket::of(segment, home + step).find(tag, place) {
                return Spot::new(segment, home, step, at);
            }
        }
        let list = self.number(kept);
        let at = stash.of(list).iter().position(|(cell, _)| cell.load(Relaxed) & PLACE == place.to_bits());
        Spot::stashed(segment, list, at.expect("an entry has a cell"))
    }

    /// The cell at a spot. Under the shard's lock.
    #[inline]
    pub fn cell<'a>(stash: &'a Stash, spot: Spot<'a>) -> Cell<'a> {
        let word = if spot.step() == REACH {
            &stash.of(spot.list())[spot.index()].0
        } else {
            &spot.segment[spot.index() % UNIT_WORDS]
        };
        Cell { word, seen: word.load(Relaxed) }
    }

    /// A spot as a number that outlasts it, for [`Segments::is_unhit`].
    #[inline]
    pub fn mark(&self, kept: u64, spot: Spot<'_>) -> u64 {
        (self.number(kept) as u64) << 32 | spot.index() as u64
    }

    /// Whether the cell that leads to a place is still where it was, and nobody has hit it; not known of a stashed one.
    /// Under the shard's lock.
    #[inline]
    pub fn is_unhit(&self, place: Place, mark: u64) -> bool {
        // No other cell of these segments leads to the place, whichever segment it is by now.
        let unit = self.strip.get((mark >> 32) as usize);
        unit.is_some_and(|unit| {
            let cell = unit[mark as usize % UNIT_WORDS].load(Relaxed);
            cell & PLACE == place.to_bits() && cell >> HITS_SHIFT == 0
        })
    }

    /// The cell that leads to a place. Under the shard's lock.
    #[inline]
    pub fn cell_of<'a>(&'a self, stash: &'a Stash, kept: u64, place: Place) -> Cell<'a> {
        Self::cell(stash, self.spot(stash, kept, place))
    }

    /// The places of a segment's entries. Under the shard's lock.
    pub fn places(&self, stash: &Stash, segment: u64) -> Vec<Place> {
        let unit = self.strip.get(segment as usize);
        let cells = unit.into_iter().flat_map(|unit| (0..BUCKETS).flat_map(|at| Bucket::of(unit, at).cells()));
        let stashed = stash.of(segment as usize).iter().map(|(cell, _)| cell.load(Relaxed));
        cells.map(|(_, cell, _)| cell).chain(stashed).map(Place::from_bits).collect()
    }

    /// Checks the equations; calls `seen` with each entry's place, and its hash as the index has it.
    pub fn validate(
        &self,
        stash: &Stash,
        mut seen: impl FnMut(Place, u64) -> Result<(), Invalid>,
    ) -> Result<(), Invalid> {
        let parts = self.parts();
        let (mut entries, mut listed) = (stash.len(), 0);
        for index in 0..parts.count() {
            let segment = self.strip.get(index as usize).ok_or("a segment is missing")?;
            let mut passed = [0; BUCKETS];
            let mut pass = |home: usize, steps: usize| (home..home + steps).for_each(|at| passed[at % BUCKETS] += 1);
            for at in 0..BUCKETS {
                for (_, cell, tag) in Bucket::of(segment, at).cells() {
                    let (kept, home, step) = hash_of(at, cell, tag);
                    pass(home, step);
                    if parts.address(kept) as u64 != index {
                        return Err(Invalid(format!("a cell of segment {index} belongs elsewhere")));
                    }
                    let place = Place::from_bits(cell);
                    if self.find(kept, |cell| (cell.place() == place).then_some(())).0.is_none() {
                        return Err(Invalid(format!("{place:?} cannot be found in segment {index}")));
                    }
                    seen(place, kept)?;
                    entries += 1;
                }
            }
            for (cell, kept) in stash.of(index as usize) {
                if parts.address(*kept) as u64 != index {
                    return Err(Invalid(format!("a cell in the stash of segment {index} belongs elsewhere")));
                }
                pass(home(*kept), REACH);
                seen(Place::from_bits(cell.load(Relaxed)), *kept)?;
                listed += 1;
            }
            for (at, &expected) in passed.iter().enumerate() {
                let counted = Bucket::of(segment, at).passed();
                if counted != expected && counted < MOST_PASSED {
                    return Err(Invalid(format!(
                        "bucket {at} of segment {index} counts {counted} passed, {expected} did"
                    )));
                }
            }
        }
        if entries == stash.entries && [listed, self.stashed.load(Relaxed)] == [stash.len(); 2] {
            Ok(())
        } else {
            Err(Invalid(format!("{} entries counted, {entries} found", stash.entries)))
        }
    }
}

/// The hash of a cell that lies in bucket `at`, its home and its distance from there.
pub(crate) fn hash_of(at: usize, cell: u64, tag: u64) -> (u64, usize, usize) {
    let step = (cell >> STEP_SHIFT) as usize % REACH;
    let home = (at + BUCKETS - step) % BUCKETS;
    let kept = segment_bits(cell >> SEGMENT_SHIFT) | (home as u64) << SEGMENT_BITS;
    (kept | tag << (SEGMENT_BITS + HOME_BITS), home, step)
}
