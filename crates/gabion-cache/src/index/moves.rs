//! How cells come, go and move: under the shard's lock, beside readers without one.

use gabion_blocks::BlockError;
use gabion_pile::Place;

use super::bucket::{BUCKET_WORDS, BUCKETS, Bucket, CELLS, HITS_SHIFT, PLACE, SEGMENT_SHIFT, STEP_SHIFT, equal};
use super::growth::{Parts, bounds, partner};
use super::pages::Unit;
use super::segments::{FULL, REACH, Segments, Spot, hash_of, home, segment_bits, tag};
use super::stash::Stash;
use crate::key::SEGMENT_BITS;
use crate::sync::Ordering::{Relaxed, Release};
use crate::sync::{AtomicU64, fence};

/// How many are too many, even while there is no memory for more segments.
const MOST: u64 = FULL * 9 / 8;

impl Segments {
    fn moving(&self) -> Moving<'_> {
        // Relaxed, as only the lock's holder stores; the fence keeps what moves behind it.
        self.version.store(self.version.load(Relaxed) + 1, Relaxed);
        fence(Release);
        Moving(&self.version)
    }

    /// Takes an entry in, by the bits of its hash that are kept.
    ///
    /// # Errors
    /// When there is no memory for another segment, and those that there are get too full.
    pub fn insert(&self, stash: &mut Stash, kept: u64, place: Place) -> Result<(), BlockError> {
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
        self.put(stash, kept, place.to_bits());
        Ok(())
    }

    /// Puts a cell where it belongs: `cell` says the place and the hits.
    #[inline]
    fn put(&self, stash: &mut Stash, kept: u64, cell: u64) {
        self.put_in(self.segment(kept).expect("there is a segment"), stash, kept, cell);
    }

    /// As [`Segments::put`], for callers that know the hash's segment.
    #[inline]
    fn put_in(&self, segment: &Unit, stash: &mut Stash, kept: u64, cell: u64) {
        let home = home(kept);
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
            stash.push(self.number(kept), cell, kept);
            self.stashed.store(stash.len(), Relaxed);
        }
    }

    /// Takes an entry out and another in, whose hash leads to `segment`, however full the segments are.
    #[inline]
    pub fn exchange(&self, stash: &mut Stash, out: Spot<'_>, segment: &Unit, kept: u64, place: Place) {
        debug_assert!(self.segment(kept).is_some_and(|own| std::ptr::eq(own, segment)), "segments have changed");
        self.take(stash, out);
        self.put_in(segment, stash, kept, place.to_bits());
    }

    /// Whether there are more entries than the segments should have, so that they split with the next that comes in.
    #[inline]
    pub fn is_growing(stash: &Stash) -> bool {
        stash.entries > stash.most
    }

    /// Takes an entry out.
    #[inline]
    pub fn remove(&self, stash: &mut Stash, spot: Spot<'_>) {
        stash.entries -= 1;
        self.take(stash, spot);
    }

    #[inline(always)]
    fn take(&self, stash: &mut Stash, spot: Spot<'_>) {
        let (step, at) = (spot.step(), spot.index());
        let last = if step < REACH {
            let (bucket, cell) = Bucket::at(spot.segment, at);
            let kept = segment_bits(bucket.cell(cell).load(Relaxed) >> SEGMENT_SHIFT);
            bucket.empty(cell);
            if stash.len() > 0 {
                self.rehome_stashed(stash, spot.segment, self.number(kept), at / BUCKET_WORDS);
            }
            at / BUCKET_WORDS
        } else {
            let (_, kept) = stash.take(spot.list(), at);
            self.stashed.store(stash.len(), Relaxed);
            home(kept) + REACH
        };
        (0..step).for_each(|back| Bucket::of(spot.segment, last + BUCKETS - 1 - back).pass(-1));
    }

    /// Takes all entries out.
    pub fn clear(&self, stash: &mut Stash) {
        let _moving = self.moving();
        let count = self.count();
        // Release: who finds no segments by this finds that the version has changed when it looks again.
        self.parts.store(Parts::of(0).to_bits(), Release);
        (0..count as usize).for_each(|segment| self.give(segment));
        self.stashed.store(0, Relaxed);
        *stash = Stash::default();
    }

    /// Merges two segments when there are few entries. Called after removals.
    #[inline]
    pub fn shrink(&self, stash: &mut Stash) {
        if stash.entries < stash.least {
            self.merge(stash, self.count() - 1);
        }
    }

    /// There are that many segments from now on.
    fn recount(&self, stash: &mut Stash, count: u64) {
        (stash.least, stash.most) = bounds(count, FULL);
        // Release: who finds the count finds its segments.
        self.parts.store(Parts::of(count).to_bits(), Release);
    }

    #[cold]
    fn merge(&self, stash: &mut Stash, last: u64) {
        let _moving = self.moving();
        let from = self.strip.get(last as usize).expect("there is a segment");
        let mut taken = Vec::with_capacity(BUCKETS * CELLS);
        for at in 0..BUCKETS {
            taken.extend(Bucket::of(from, at).cells().map(|(_, cell, tag)| (cell, hash_of(at, cell, tag).0)));
        }
        self.take_stashed(stash, last, &mut taken);
        self.recount(stash, last);
        for (cell, kept) in taken {
            self.put(stash, kept, cell);
        }
        self.give(last as usize);
    }

    /// Gives a segment's memory back, without the cells that were in it: a reader may come late, and a cell that still
    /// stood would say that its entry does.
    fn give(&self, segment: usize) {
        if let Some(cells) = self.strip.get(segment) {
            clear(cells);
        }
        self.strip.give(segment);
    }

    /// Splits the segment whose turn it is. Cells in their home stay there; those that were pushed out of it get
    /// another chance.
    #[cold]
    fn split(&self, stash: &mut Stash) -> Result<(), BlockError> {
        let count = self.count();
        if count >= 1 << SEGMENT_BITS {
            return Ok(());
        }
        self.strip.put(count as usize, clear)?;
        let segment = |index: u64| self.strip.get(index as usize).expect("there is a segment");
        let (from, to) = (segment(partner(count)), segment(count));
        let _moving = self.moving();
        let mut displaced = Vec::with_capacity(BUCKETS);
        self.take_stashed(stash, partner(count), &mut displaced);
        for at in 0..BUCKETS {
            Bucket::of(from, at).part(Bucket::of(to, at), 1 << (SEGMENT_SHIFT + count.ilog2()), |cell, tag| {
                displaced.push((cell, hash_of(at, cell, tag).0));
            });
        }
        self.recount(stash, count + 1);
        for (cell, kept) in displaced {
            self.put(stash, kept, cell);
        }
        Ok(())
    }

    /// Gives one of a segment's stashed cells, if its hash leads near, the room that has become free in a bucket.
    #[cold]
    #[inline(never)]
    fn rehome_stashed(&self, stash: &mut Stash, segment: &Unit, number: usize, bucket: usize) {
        let near = |kept: u64| (bucket + BUCKETS - home(kept)) % BUCKETS < REACH;
        let Some(at) = stash.of(number).iter().position(|(_, kept)| near(*kept)) else { return };
        let _moving = self.moving();
        let (cell, kept) = stash.take(number, at);
        self.stashed.store(stash.len(), Relaxed);
        (0..REACH).for_each(|step| Bucket::of(segment, home(kept) + step).pass(-1));
        self.put_in(segment, stash, kept, cell.load(Relaxed));
    }

    /// Takes the cells of a segment out of the stash, with their hashes.
    fn take_stashed(&self, stash: &mut Stash, segment: u64, taken: &mut Vec<(u64, u64)>) {
        taken.extend(stash.take_all(segment as usize).into_iter().map(|(cell, kept)| (cell.load(Relaxed), kept)));
        self.stashed.store(stash.len(), Relaxed);
    }
}

/// Makes a segment empty.
fn clear(segment: &Unit) {
    // Release: a late reader who finds cells gone, of whichever shard they were, finds that its version has changed.
    fence(Release);
    for word in segment {
        // Relaxed: the fence orders it, the count that makes the segment known, and for a reader that finds what took
        // an entry's place a fence behind this.
        word.store(0, Relaxed);
    }
}

/// While it lives, cells may move: the version is odd.
struct Moving<'a>(&'a AtomicU64);

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        // Release: a reader that sees the even version sees the cells in their new places.
        self.0.store(self.0.load(Relaxed) + 1, Release);
    }
}
