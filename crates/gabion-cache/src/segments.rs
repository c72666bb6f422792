//! From a key's hash to the places of entries that may hold it: hashing in buckets of one cache line, which grows and
//! shrinks a segment at a time.
//!
//! A *segment* has 64 buckets, a bucket 7 *cells*. An entry's cell lies in its home bucket, which the hash says, or in one
//! of the three behind it; a bucket counts the cells that passed it by, so that a search ends where nothing went further
//! (as in Facebook's F14 tables, 2019). Cells that find no place even so go to the *stash*.
//!
//! ```text
//! bucket  tags of 7 cells (8 bits each; 0: free) │ passed by (8)  │ cell × 7
//! cell    place (39) │ segment bits of the hash (21) │ distance from home (2) │ hits (2)
//! ```
//! Which segment a hash leads to follows linear hashing: segments split in turn, each into itself and one new one, so that
//! no put moves more than the entries of one segment (W. Litwin, "Linear hashing: a new tool for file and table
//! addressing", VLDB 1980). When segments are 80 % full on average, each put splits one, until all are split.
//!
//! Readers take no lock. A cell changes by one store, and moves only when a segment is split or merged; the shard's
//! version tells a reader that found nothing whether that happened meanwhile.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, fence};

use gabion_blocks::{BlockError, prefetch};
use gabion_pile::Place;

use crate::bucket::{
    BUCKET_WORDS, BUCKETS, Bucket, CELLS, Cell, HITS_SHIFT, MOST_PASSED, PASSED_SHIFT, PLACE, SEGMENT_SHIFT,
    STEP_SHIFT, equal,
};
use crate::growth::{Parts, bounds, partner};
use crate::hash::{HOME_BITS, KeyHash, SEGMENT_BITS};
use crate::pages::{Pages, Strip, UNIT_BYTES, UNIT_WORDS, Unit};

/// Buckets that an entry's cell may lie in.
const REACH: usize = 4;
/// Entries for each segment on average that make segments split.
pub(crate) const FULL: u64 = (BUCKETS * CELLS) as u64 * 4 / 5;

/// So many are too many, even while there is no memory for more segments.
const MOST: u64 = FULL * 9 / 8;

#[inline]
fn segment_bits(kept: u64) -> u64 {
    kept & ((1 << SEGMENT_BITS) - 1)
}

#[inline]
fn home(kept: u64) -> usize {
    (kept >> SEGMENT_BITS) as usize % BUCKETS
}

#[inline]
fn tag(kept: u64) -> u64 {
    kept >> (SEGMENT_BITS + HOME_BITS)
}

/// Where a cell lies. For the lock's holder, until the next entry comes or goes.
#[derive(Clone, Copy)]
pub(crate) struct Spot<'a> {
    segment: &'a Unit,
    /// `buckets from home, or REACH for the stash (upper half) | word of the segment, or place in the stash`: in one word,
    /// because spots are handed around.
    at: u64,
}

impl<'a> Spot<'a> {
    #[inline]
    fn new(segment: &'a Unit, home: usize, step: usize, cell: usize) -> Self {
        Self { segment, at: (step as u64) << 32 | Bucket::word_of(home + step, cell) as u64 }
    }

    fn stashed(segment: &'a Unit, at: usize) -> Self {
        Self { segment, at: (REACH as u64) << 32 | at as u64 }
    }

    #[inline]
    fn step(self) -> usize {
        (self.at >> 32) as usize
    }

    #[inline]
    fn index(self) -> usize {
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
    strip: Strip,
    /// How many segments there are: [`Parts`].
    parts: AtomicU64,
    /// Odd while cells move.
    version: AtomicU64,
    /// Cells in the stash.
    stashed: AtomicU64,
}

/// What only the lock's holder has of the segments.
#[derive(Default)]
pub(crate) struct Stash {
    /// Cells that found no place, with their hash.
    cells: Vec<(AtomicU64, u64)>,
    /// Entries in all segments and the stash.
    pub entries: u64,
    /// With fewer entries there are too many segments, and with more too few.
    least: u64,
    most: u64,
}

impl Segments {
    pub fn new(pages: &Arc<Pages>, most_entries: u64) -> Self {
        let most = (most_entries / (FULL / 3) + 2).min(1 << SEGMENT_BITS) as usize;
        let zero = || AtomicU64::new(0);
        Self { strip: Strip::new(pages, most), parts: zero(), version: zero(), stashed: zero() }
    }

    #[inline]
    fn parts(&self) -> Parts {
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

    fn moving(&self) -> Moving<'_> {
        // Relaxed, as only the lock's holder stores; the fence keeps what moves behind it.
        self.version.store(self.version.load(Relaxed) + 1, Relaxed);
        fence(Release);
        Moving(&self.version)
    }

    #[inline]
    fn segment(&self, kept: u64) -> Option<&Unit> {
        // Where there is none, the strip has no first one either.
        self.strip.get(self.parts().address(segment_bits(kept)))
    }

    /// Asks for a hash's home bucket ahead of its use.
    #[inline]
    pub fn prefetch(&self, kept: u64) {
        if let Some(segment) = self.segment(kept) {
            prefetch(Bucket::of(segment, home(kept)).0);
        }
    }

    /// The first cell that may be the key's: for whoever searches on if it is not.
    #[inline(always)]
    pub fn first(&self, kept: u64) -> Glimpse<'_> {
        let Some(segment) = self.segment(kept) else { return Glimpse::Unclear };
        let (mut home, tag) = (home(kept), tag(kept));
        let mut expected = segment_bits(kept) << SEGMENT_SHIFT;
        for _ in 0..REACH {
            let bucket = Bucket::of(segment, home);
            let meta = bucket.meta();
            let candidates = equal(meta, tag);
            if candidates != 0 {
                let word = bucket.cell(candidates.trailing_zeros() as usize / 8 % CELLS);
                // Acquire: whoever finds a place finds the payload written.
                let seen = word.load(Acquire);
                let own = (seen & !PLACE) << 2 == expected << 2 && seen != 0;
                return if own { Glimpse::Cell(Cell { word, seen }) } else { Glimpse::Unclear };
            }
            if meta >> PASSED_SHIFT == 0 {
                return Glimpse::Nothing;
            }
            home += 1;
            expected += 1 << STEP_SHIFT;
        }
        Glimpse::Unclear
    }

    /// Calls `found` with each cell that may be the key's until it returns something. The flag says that more may be in
    /// the stash, where only the lock's holder can look.
    #[inline]
    pub fn find<'a, R>(&'a self, kept: u64, mut found: impl FnMut(Cell<'a>) -> Option<R>) -> (Option<R>, bool) {
        let Some(segment) = self.segment(kept) else { return (None, false) };
        let (home, tag) = (home(kept), tag(kept));
        let mut expected = segment_bits(kept) << SEGMENT_SHIFT;
        for step in 0..REACH {
            let bucket = Bucket::of(segment, home + step);
            let meta = bucket.meta();
            let mut candidates = equal(meta, tag);
            while candidates != 0 {
                let word = bucket.cell(candidates.trailing_zeros() as usize / 8 % CELLS);
                candidates &= candidates - 1;
                // Acquire: whoever finds a place finds the payload written.
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
        mut found: impl FnMut(Cell<'a>) -> Option<R>,
    ) -> Option<R> {
        let (result, more) = self.find(kept, &mut found);
        if result.is_some() || !more {
            return result;
        }
        let cells = stash.cells.iter().filter(|(_, other)| *other == kept);
        cells.map(|(word, _)| Cell { word, seen: word.load(Relaxed) }).find_map(found)
    }

    /// Where the cell lies that leads to a place. Under the shard's lock.
    #[inline]
    pub fn spot(&self, stash: &Stash, kept: u64, place: Place) -> Spot<'_> {
        let (segment, home) = (self.segment(kept).expect("there is a segment"), home(kept));
        match Bucket::of(segment, home).find(tag(kept), place) {
            Some(at) => Spot::new(segment, home, 0, at),
            None => Self::spot_beyond(stash, segment, kept, place),
        }
    }

    /// Where the cell lies if not in its home.
    #[inline(never)]
    fn spot_beyond<'a>(stash: &Stash, segment: &'a Unit, kept: u64, place: Place) -> Spot<'a> {
        let (home, tag) = (home(kept), tag(kept));
        for step in 1..REACH {
            if let Some(at) = Bucket::of(segment, home + step).find(tag, place) {
                return Spot::new(segment, home, step, at);
            }
        }
        let at = stash.cells.iter().position(|(cell, _)| cell.load(Relaxed) & PLACE == place.to_bits());
        Spot::stashed(segment, at.expect("an entry has a cell"))
    }

    /// The cell at a spot. Under the shard's lock.
    #[inline]
    pub fn cell<'a>(stash: &'a Stash, spot: Spot<'a>) -> Cell<'a> {
        let word =
            if spot.step() == REACH { &stash.cells[spot.index()].0 } else { &spot.segment[spot.index() % UNIT_WORDS] };
        Cell { word, seen: word.load(Relaxed) }
    }

    /// The cell that leads to a place. Under the shard's lock.
    #[inline]
    pub fn cell_of<'a>(&'a self, stash: &'a Stash, kept: u64, place: Place) -> Cell<'a> {
        Self::cell(stash, self.spot(stash, kept, place))
    }

    /// Takes an entry in.
    ///
    /// # Errors
    /// When there is no memory for another segment, and those that there are get too full.
    pub fn insert(&self, stash: &mut Stash, hash: KeyHash, place: Place) -> Result<(), BlockError> {
        let count = self.count();
        if count == 0 {
            self.strip.put(0, clear)?;
            self.recount(stash, 1);
        } else if stash.entries > stash.most {
            let split = self.split(stash);
            if stash.entries > MOST * (1 << count.ilog2()) {
                split?;
            }
        }
        stash.entries += 1;
        self.put(stash, hash.kept(), place.to_bits());
        Ok(())
    }

    /// Puts a cell where it belongs: `cell` says the place and the hits.
    fn put(&self, stash: &mut Stash, kept: u64, cell: u64) {
        let (segment, home) = (self.segment(kept).expect("there is a segment"), home(kept));
        let cell = cell & (PLACE | 3 << HITS_SHIFT) | segment_bits(kept) << SEGMENT_SHIFT;
        let free = (0..REACH).find_map(|step| {
            let free = equal(Bucket::of(segment, home + step).meta(), 0);
            (free != 0).then(|| (step, free.trailing_zeros() as usize / 8))
        });
        // Raised before the cell is there: who finds the cell must have found the way.
        (0..free.map_or(REACH, |(step, _)| step)).for_each(|step| Bucket::of(segment, home + step).pass(1));
        if let Some((step, at)) = free {
            Bucket::of(segment, home + step).fill(at, cell | (step as u64) << STEP_SHIFT, tag(kept));
        } else {
            stash.cells.push((AtomicU64::new(cell), kept));
            self.stashed.store(stash.cells.len() as u64, Relaxed);
        }
    }

    /// Takes an entry out.
    #[inline]
    pub fn remove(&self, stash: &mut Stash, spot: Spot<'_>) {
        stash.entries -= 1;
        let (step, at) = (spot.step(), spot.index());
        let last = if step < REACH {
            let (bucket, cell) = Bucket::at(spot.segment, at);
            bucket.empty(cell);
            at / BUCKET_WORDS
        } else {
            let (_, kept) = stash.cells.swap_remove(at);
            self.stashed.store(stash.cells.len() as u64, Relaxed);
            home(kept) + REACH
        };
        (0..step).for_each(|back| Bucket::of(spot.segment, last + BUCKETS - 1 - back).pass(-1));
    }

    /// Merges two segments when there are few entries. Called after removals.
    #[inline]
    pub fn shrink(&self, stash: &mut Stash) {
        if stash.entries < stash.least {
            self.merge(stash, self.count() - 1);
        }
    }

    /// There are so many segments from now on.
    fn recount(&self, stash: &mut Stash, count: u64) {
        (stash.least, stash.most) = bounds(count, FULL);
        // Release: who finds the count finds its segments.
        self.parts.store(Parts::of(count).to_bits(), Release);
    }

    #[cold]
    fn merge(&self, stash: &mut Stash, last: u64) {
        let _moving = self.moving();
        let from = self.strip.get(last as usize).expect("there is a segment");
        let mut taken = Taken::new();
        taken.take(from);
        self.take_stashed(stash, last, &mut taken);
        self.recount(stash, last);
        taken.cells().for_each(|(cell, kept)| self.put(stash, kept, cell));
        self.strip.give(last as usize);
    }

    /// Splits the segment whose turn it is.
    #[cold]
    fn split(&self, stash: &mut Stash) -> Result<(), BlockError> {
        let count = self.count();
        if count >= 1 << SEGMENT_BITS {
            return Ok(());
        }
        self.strip.put(count as usize, clear)?;
        let from = self.strip.get(partner(count) as usize).expect("there is a segment");
        let _moving = self.moving();
        let mut taken = Taken::new();
        taken.take(from);
        self.take_stashed(stash, partner(count), &mut taken);
        clear(from);
        self.recount(stash, count + 1);
        taken.cells().for_each(|(cell, kept)| self.put(stash, kept, cell));
        Ok(())
    }

    /// Takes the cells of a segment out of the stash.
    fn take_stashed(&self, stash: &mut Stash, segment: u64, taken: &mut Taken) {
        let parts = self.parts();
        let mut at = 0;
        while let Some((cell, kept)) = stash.cells.get(at) {
            if parts.address(segment_bits(*kept)) as u64 == segment {
                taken.more.push((cell.load(Relaxed), *kept));
                stash.cells.swap_remove(at);
            } else {
                at += 1;
            }
        }
        self.stashed.store(stash.cells.len() as u64, Relaxed);
    }

    /// The places of a segment's entries. Under the shard's lock.
    pub fn places(&self, stash: &Stash, segment: u64) -> Vec<Place> {
        let mut taken = Taken::new();
        if let Some(unit) = self.strip.get(segment as usize) {
            taken.take(unit);
        }
        let stashed =
            stash.cells.iter().filter(|(_, kept)| self.parts().address(segment_bits(*kept)) as u64 == segment);
        let stashed = stashed.map(|(cell, _)| cell.load(Relaxed));
        taken.cells().map(|(cell, _)| cell).chain(stashed).map(Place::from_bits).collect()
    }

    /// Checks the equations; calls `seen` with each entry's place, and its hash as the index has it.
    pub fn validate(
        &self,
        stash: &Stash,
        mut seen: impl FnMut(Place, u64) -> Result<(), String>,
    ) -> Result<(), String> {
        let parts = self.parts();
        let mut entries = stash.cells.len() as u64;
        for index in 0..parts.count() {
            let segment = self.strip.get(index as usize).ok_or("a segment is missing")?;
            let mut passed = [0; BUCKETS];
            let mut pass = |home: usize, steps: usize| (home..home + steps).for_each(|at| passed[at % BUCKETS] += 1);
            for at in 0..BUCKETS {
                for (_, cell, tag) in Bucket::of(segment, at).cells() {
                    let (kept, home, step) = hash_of(at, cell, tag);
                    pass(home, step);
                    if parts.address(segment_bits(kept)) as u64 != index {
                        return Err(format!("a cell of segment {index} belongs elsewhere"));
                    }
                    let place = Place::from_bits(cell);
                    if self.find(kept, |cell| (cell.place() == place).then_some(())).0.is_none() {
                        return Err(format!("{place:?} cannot be found in segment {index}"));
                    }
                    seen(place, kept)?;
                    entries += 1;
                }
            }
            let stashed = stash.cells.iter().filter(|(_, kept)| parts.address(segment_bits(*kept)) as u64 == index);
            stashed.for_each(|(_, kept)| pass(home(*kept), REACH));
            for (at, &expected) in passed.iter().enumerate() {
                let counted = Bucket::of(segment, at).passed();
                if counted != expected && counted < MOST_PASSED {
                    return Err(format!("bucket {at} of segment {index} counts {counted} passed, {expected} did"));
                }
            }
        }
        for (cell, kept) in &stash.cells {
            seen(Place::from_bits(cell.load(Relaxed)), *kept)?;
        }
        if entries == stash.entries && self.stashed.load(Relaxed) == stash.cells.len() as u64 {
            Ok(())
        } else {
            Err(format!("{} entries counted, {entries} found", stash.entries))
        }
    }
}

/// Makes a segment empty.
fn clear(segment: &Unit) {
    for word in segment {
        // Relaxed: the version, or the count that makes the segment known, orders it.
        word.store(0, Relaxed);
    }
}

/// The hash of a cell that lies in bucket `at`, its home and its distance from there.
fn hash_of(at: usize, cell: u64, tag: u64) -> (u64, usize, usize) {
    let step = (cell >> STEP_SHIFT) as usize % REACH;
    let home = (at + BUCKETS - step) % BUCKETS;
    let kept = segment_bits(cell >> SEGMENT_SHIFT) | (home as u64) << SEGMENT_BITS;
    (kept | tag << (SEGMENT_BITS + HOME_BITS), home, step)
}

/// Cells on their way from one place to another, with their hashes.
struct Taken {
    cells: [(u64, u64); BUCKETS * CELLS],
    len: usize,
    more: Vec<(u64, u64)>,
}

impl Taken {
    fn new() -> Self {
        Self { cells: [(0, 0); BUCKETS * CELLS], len: 0, more: Vec::new() }
    }

    fn take(&mut self, segment: &Unit) {
        for at in 0..BUCKETS {
            for (_, cell, tag) in Bucket::of(segment, at).cells() {
                self.cells[self.len] = (cell, hash_of(at, cell, tag).0);
                self.len += 1;
            }
        }
    }

    fn cells(&self) -> impl Iterator<Item = (u64, u64)> {
        self.cells[..self.len].iter().chain(&self.more).copied()
    }
}

/// While it lives, cells may move: the version is odd.
struct Moving<'a>(&'a AtomicU64);

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        // Release: whoever sees the even version sees the cells in their new places.
        self.0.store(self.0.load(Relaxed) + 1, Release);
    }
}
