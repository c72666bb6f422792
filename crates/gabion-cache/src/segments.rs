//! From a key's hash to the ids of entries that may hold it: open addressing that grows and shrinks a segment at a time.
//!
//! A *segment* has 512 cells of 4 bytes (id and tag), probed linearly from a place that the hash says, and the sketch of
//! its keys. The number of segments grows by one when 228 entries came, and which segment a hash leads to follows linear
//! hashing: the segments split in turn, each into itself and one new one, so that no put moves more than the entries
//! of one segment (W. Litwin, "Linear hashing: a new tool for file and table addressing", VLDB 1980). A segment is
//! split before it can be fuller than 89 % on average; cells that find no place even so go to the *stash*.
//!
//! Readers take no lock. A cell changes by one store, and moves only when a segment is split, merged or rebuilt; the
//! shard's version tells a reader that found nothing whether that happened meanwhile.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, fence};

use gabion_blocks::BlockError;

use crate::hash::{KeyHash, SEGMENT_BITS, TAG_BITS};
use crate::pages::{Pages, Strip};
use crate::sketch::{self, SKETCH_WORDS};

/// Cells in a segment.
const CELLS: usize = 512;
/// Entries for each segment, on average: more, and one is split.
pub(crate) const FILL: u64 = 228;
/// Fewer, and two are merged.
const LEAN: u64 = 150;
/// Cells that are taken or were taken: more, and the segment is rebuilt without the latter.
const FULL: u64 = CELLS as u64 * 15 / 16;

/// Fewer left cells are not worth it.
const WORTH: u64 = 32;

const COUNTS: usize = 0;
const EPOCH: usize = 1;
const SKETCH: usize = 8;
const FIRST_CELL: usize = SKETCH + SKETCH_WORDS;
/// Words of a segment.
pub(crate) const SEGMENT_WORDS: usize = FIRST_CELL + CELLS / 2;

/// Bits of an entry's id.
pub(crate) const ID_BITS: u32 = 32 - TAG_BITS;
const ID_MASK: u32 = (1 << ID_BITS) - 1;
const EMPTY: u32 = u32::MAX;
const GONE: u32 = u32::MAX - 1;
/// Ids are below this.
pub(crate) const MOST_IDS: u32 = ID_MASK - 1;

fn cell_of(tag: u32, id: u32) -> u32 {
    tag << ID_BITS | id
}

/// What a segment counts: cells taken, cells left, and cells in the stash.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Counts {
    taken: u64,
    gone: u64,
    stashed: u64,
}

impl Counts {
    fn unpack(word: u64) -> Self {
        Self { taken: word & 0xFFFF, gone: word >> 16 & 0xFFFF, stashed: word >> 32 }
    }

    fn pack(self) -> u64 {
        self.taken | self.gone << 16 | self.stashed << 32
    }
}

/// A segment's words.
#[derive(Clone, Copy)]
pub(crate) struct Segment<'a>(&'a [AtomicU64]);

impl<'a> Segment<'a> {
    pub fn sketch(self) -> &'a [AtomicU64] {
        &self.0[SKETCH..FIRST_CELL]
    }

    fn cell(self, at: usize) -> u32 {
        // Acquire: whoever finds an id finds its entry written.
        (self.0[FIRST_CELL + at / 2].load(Acquire) >> (32 * (at & 1))) as u32
    }

    fn set_cell(self, at: usize, cell: u32) {
        let word = &self.0[FIRST_CELL + at / 2];
        let shift = 32 * (at & 1);
        // Relaxed load: only the lock's holder stores.
        let kept = word.load(Relaxed) & !(0xFFFF_FFFF << shift);
        word.store(kept | u64::from(cell) << shift, Release);
    }

    fn counts(self) -> Counts {
        Counts::unpack(self.0[COUNTS].load(Relaxed))
    }

    fn set_counts(self, counts: Counts) {
        self.0[COUNTS].store(counts.pack(), Relaxed);
    }

    fn clear_cells(self) {
        for word in &self.0[FIRST_CELL..] {
            word.store(u64::MAX, Release);
        }
        self.set_counts(Counts { stashed: self.counts().stashed, ..Counts::default() });
    }

    fn cells(self) -> impl Iterator<Item = u32> + 'a {
        (0..CELLS).map(move |at| self.cell(at)).filter(|&cell| cell < GONE)
    }

    /// The ids that may be the key's, nearest first. Ends early when `found` returns something.
    #[inline]
    fn find<R>(self, hash: KeyHash, mut found: impl FnMut(u32) -> Option<R>) -> Option<R> {
        let (home, tag) = (home(hash.kept()), hash.tag());
        for step in 0..CELLS {
            let cell = self.cell((home + step) % CELLS);
            if cell == EMPTY {
                return None;
            }
            if cell >> ID_BITS == tag
                && cell != GONE
                && let Some(result) = found(cell & ID_MASK)
            {
                return Some(result);
            }
        }
        None
    }

    /// Where an id's cell is.
    fn place(self, kept: u32, id: u32) -> Option<usize> {
        let home = home(kept);
        let places = (0..CELLS).map(|step| (home + step) % CELLS);
        places.take_while(|&at| self.cell(at) != EMPTY).find(|&at| {
            let cell = self.cell(at);
            cell != GONE && cell & ID_MASK == id
        })
    }

    fn insert(self, kept: u32, cell: u32) -> bool {
        let home = home(kept);
        let Some(at) = (0..CELLS).map(|step| (home + step) % CELLS).find(|&at| self.cell(at) >= GONE) else {
            return false;
        };
        let mut counts = self.counts();
        counts.taken += 1;
        counts.gone -= u64::from(self.cell(at) == GONE);
        self.set_counts(counts);
        self.set_cell(at, cell);
        true
    }

    fn remove(self, at: usize) {
        let mut counts = self.counts();
        counts.taken -= 1;
        if self.cell((at + 1) % CELLS) == EMPTY {
            self.set_cell(at, EMPTY);
            // What was left before it ends no probe any more either.
            let mut before = (at + CELLS - 1) % CELLS;
            while self.cell(before) == GONE {
                self.set_cell(before, EMPTY);
                counts.gone -= 1;
                before = (before + CELLS - 1) % CELLS;
            }
        } else {
            self.set_cell(at, GONE);
            counts.gone += 1;
        }
        self.set_counts(counts);
    }
}

#[inline]
fn home(kept: u32) -> usize {
    (kept >> SEGMENT_BITS) as usize % CELLS
}

/// Which of `count` segments a hash leads to.
#[inline]
fn address(kept: u32, count: u32) -> usize {
    let wide = (2 << count.ilog2()) - 1;
    let index = kept & wide & ((1 << SEGMENT_BITS) - 1);
    (if index < count { index } else { index & (wide >> 1) }) as usize
}

/// The segments of one shard.
pub(crate) struct Segments {
    strip: Strip,
    /// How many segments there are.
    count: AtomicU64,
    /// How often all sketches of the shard were halved.
    epoch: AtomicU64,
    /// Keys noted since.
    noted: AtomicU64,
    /// Odd while cells move.
    version: AtomicU64,
}

/// What only the lock's holder has of the segments.
#[derive(Default)]
pub(crate) struct Stash {
    /// Cells that found no place, with their hash.
    cells: Vec<(u32, u32)>,
    /// Entries in all segments and the stash.
    pub entries: u64,
}

impl Segments {
    pub fn new(pages: &Arc<Pages>, most_entries: u64) -> Self {
        let most = (most_entries / LEAN + 2).min(1 << SEGMENT_BITS) as usize;
        let strip = Strip::new(pages, SEGMENT_WORDS, most);
        let zero = || AtomicU64::new(0);
        Self { strip, count: zero(), epoch: zero(), noted: zero(), version: zero() }
    }

    pub fn bytes(&self) -> u64 {
        self.strip.bytes()
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
    fn at(&self, kept: u32) -> Option<Segment<'_>> {
        // Acquire: pairs with the split that made the segment.
        let count = self.count.load(Acquire) as u32;
        if count == 0 {
            return None;
        }
        Some(self.strip.get(address(kept, count))).filter(|words| !words.is_empty()).map(Segment)
    }

    /// The segment whose sketch knows a hash: of as many segments as there are, rounded down to a power of two, so that
    /// all serve equally many keys, and estimates can be compared across them.
    #[inline]
    fn sketch_of(&self, kept: u32) -> Option<Segment<'_>> {
        // Acquire: as in `at`.
        let count = self.count.load(Acquire) as u32;
        let level = count.checked_ilog2()?;
        Some(self.strip.get((kept & ((1 << level) - 1)) as usize)).filter(|words| !words.is_empty()).map(Segment)
    }

    /// Calls `found` with each id that may be the key's until it returns something. The flag says that more may be in
    /// the stash, where only the lock's holder can look.
    #[inline]
    pub fn find<R>(&self, hash: KeyHash, found: impl FnMut(u32) -> Option<R>) -> (Option<R>, bool) {
        let Some(segment) = self.at(hash.kept()) else { return (None, false) };
        (segment.find(hash, found), segment.counts().stashed > 0)
    }

    /// As [`Segments::find`], the stash included. Under the shard's lock.
    #[inline]
    pub fn find_all<R>(&self, stash: &Stash, hash: KeyHash, mut found: impl FnMut(u32) -> Option<R>) -> Option<R> {
        let (result, more) = self.find(hash, &mut found);
        if result.is_some() || !more {
            return result;
        }
        stash.cells.iter().filter(|(_, kept)| *kept == hash.kept()).find_map(|&(cell, _)| found(cell & ID_MASK))
    }

    /// Takes an entry in. `kept_of` gives the hash that an id's entry keeps.
    ///
    /// # Errors
    /// When there is no memory for another segment.
    pub fn insert(
        &self,
        stash: &mut Stash,
        hash: KeyHash,
        id: u32,
        kept_of: impl Fn(u32) -> u32,
    ) -> Result<(), BlockError> {
        if self.count.load(Relaxed) == 0 {
            self.strip.ensure(0)?;
            self.fresh(0);
            self.count.store(1, Release);
        }
        stash.entries += 1;
        let cell = cell_of(hash.tag(), id);
        let segment = self.at(hash.kept()).expect("there is a segment");
        if stash.entries > FILL * self.count.load(Relaxed) {
            let _moving = self.moving();
            // Without memory it gets fuller for now.
            let _ = self.split(stash, &kept_of);
            self.place(stash, hash.kept(), cell);
            return Ok(());
        }
        let counts = segment.counts();
        if counts.taken + counts.gone >= FULL && counts.gone >= WORTH {
            let _moving = self.moving();
            let cells: Vec<u32> = segment.cells().collect();
            segment.clear_cells();
            for cell in cells {
                self.place(stash, kept_of(cell & ID_MASK), cell);
            }
        }
        self.place(stash, hash.kept(), cell);
        Ok(())
    }

    fn fresh(&self, index: usize) {
        for word in self.strip.get(index) {
            word.store(0, Relaxed);
        }
        let segment = Segment(self.strip.get(index));
        segment.0[EPOCH].store(self.epoch.load(Relaxed), Relaxed);
        segment.clear_cells();
    }

    /// Puts a cell where it belongs.
    fn place(&self, stash: &mut Stash, kept: u32, cell: u32) {
        let segment = self.at(kept).expect("there is a segment");
        if !segment.insert(kept, cell) {
            let mut counts = segment.counts();
            counts.stashed += 1;
            segment.set_counts(counts);
            stash.cells.push((cell, kept));
        }
    }

    /// Takes an entry out.
    pub fn remove(&self, stash: &mut Stash, kept: u32, id: u32) {
        stash.entries -= 1;
        let segment = self.at(kept).expect("there is a segment");
        if let Some(at) = segment.place(kept, id) {
            segment.remove(at);
            return;
        }
        let at = stash.cells.iter().position(|&(cell, _)| cell & ID_MASK == id).expect("an entry has a cell");
        stash.cells.swap_remove(at);
        let mut counts = segment.counts();
        counts.stashed -= 1;
        segment.set_counts(counts);
    }

    /// Entry `from` is now known as `to`.
    pub fn renumber(&self, stash: &mut Stash, kept: u32, from: u32, to: u32) {
        let segment = self.at(kept).expect("there is a segment");
        if let Some(at) = segment.place(kept, from) {
            segment.set_cell(at, segment.cell(at) & !ID_MASK | to);
        } else {
            let cell = stash.cells.iter_mut().find(|(cell, _)| cell & ID_MASK == from).expect("an entry has a cell");
            cell.0 = cell.0 & !ID_MASK | to;
        }
    }

    /// Merges two segments when there are few entries. Called after removals.
    pub fn shrink(&self, stash: &mut Stash, kept_of: impl Fn(u32) -> u32) {
        let count = self.count.load(Relaxed);
        if count <= 1 || stash.entries >= LEAN * (count - 1) {
            return;
        }
        let _moving = self.moving();
        let last = count as u32 - 1;
        let into = Segment(self.strip.get((last ^ 1 << last.ilog2()) as usize));
        let from = Segment(self.strip.get(last as usize));
        self.age(into);
        self.age(from);
        sketch::merge(into.sketch(), from.sketch());
        let mut counts = into.counts();
        counts.stashed += from.counts().stashed;
        into.set_counts(counts);
        self.count.store(u64::from(last), Release);
        let cells: Vec<u32> = from.cells().collect();
        for cell in cells {
            self.place(stash, kept_of(cell & ID_MASK), cell);
        }
        self.strip.shrink(last as usize);
    }

    /// Splits the segment whose turn it is.
    fn split(&self, stash: &mut Stash, kept_of: &impl Fn(u32) -> u32) -> Result<(), BlockError> {
        let count = self.count.load(Relaxed) as u32;
        if count >= 1 << SEGMENT_BITS {
            return Ok(());
        }
        self.strip.ensure(count as usize)?;
        self.fresh(count as usize);
        let from = Segment(self.strip.get((count ^ 1 << count.ilog2()) as usize));
        let into = Segment(self.strip.get(count as usize));
        self.age(from);
        sketch::merge(into.sketch(), from.sketch());
        let cells: Vec<u32> = from.cells().collect();
        let (mut moved, others): (Vec<_>, Vec<_>) = std::mem::take(&mut stash.cells)
            .into_iter()
            .partition(|&(_, kept)| std::ptr::eq(self.at(kept).expect("there is a segment").0, from.0));
        stash.cells = others;
        moved.extend(cells.into_iter().map(|cell| (cell, kept_of(cell & ID_MASK))));
        from.set_counts(Counts::default());
        from.clear_cells();
        self.count.store(u64::from(count) + 1, Release);
        for (cell, kept) in moved {
            self.place(stash, kept, cell);
        }
        Ok(())
    }

    /// Brings a segment's sketch up to date. Under the shard's lock.
    fn age(&self, segment: Segment<'_>) {
        let (now, then) = (self.epoch.load(Relaxed), segment.0[EPOCH].load(Relaxed));
        if now != then {
            sketch::halve(segment.sketch(), now - then);
            segment.0[EPOCH].store(now, Relaxed);
        }
    }

    /// Notes that a key was asked for. No lock is needed.
    #[inline]
    pub fn note(&self, kept: u32) {
        if let Some(segment) = self.sketch_of(kept)
            && sketch::note(segment.sketch(), kept)
        {
            // Relaxed, and not a read-modify-write: a lost count does not matter.
            self.noted.store(self.noted.load(Relaxed) + 1, Relaxed);
        }
    }

    /// Halves all counts when it is time; the segment of the key at once, the others when they are next written to.
    /// Under the shard's lock.
    #[inline]
    pub fn keep_time(&self, stash: &Stash, kept: u32) {
        let noted = self.noted.load(Relaxed);
        if noted >= sketch::SAMPLE * stash.entries.max(64) {
            self.noted.store(noted / 2, Relaxed);
            self.epoch.store(self.epoch.load(Relaxed) + 1, Relaxed);
        }
        if let Some(segment) = self.sketch_of(kept) {
            self.age(segment);
        }
    }

    /// How often a key was asked for of late.
    #[inline]
    pub fn frequency(&self, kept: u32) -> u8 {
        let Some(segment) = self.sketch_of(kept) else { return 0 };
        let behind = self.epoch.load(Relaxed) - segment.0[EPOCH].load(Relaxed);
        sketch::estimate(segment.sketch(), kept) >> behind.min(7)
    }

    /// Checks the equations; calls `seen` with each id and the hash that it must have kept, as far as its place says.
    pub fn validate(&self, stash: &Stash, mut seen: impl FnMut(u32) -> Result<u32, String>) -> Result<(), String> {
        let count = self.count.load(Relaxed);
        let mut entries = stash.cells.len() as u64;
        for index in 0..count as usize {
            let segment = Segment(self.strip.get(index));
            let (mut taken, mut gone) = (0, 0);
            for at in 0..CELLS {
                let cell = segment.cell(at);
                gone += u64::from(cell == GONE);
                if cell >= GONE {
                    continue;
                }
                taken += 1;
                let kept = seen(cell & ID_MASK)?;
                if address(kept, count as u32) != index || segment.place(kept, cell & ID_MASK) != Some(at) {
                    return Err(format!("entry {} cannot be found in segment {index}", cell & ID_MASK));
                }
            }
            let in_stash = |kept: u32| address(kept, count as u32) == index;
            let stashed = stash.cells.iter().filter(|(_, kept)| in_stash(*kept)).count() as u64;
            if segment.counts() != (Counts { taken, gone, stashed }) {
                return Err(format!("segment {index} counts {:?}: {taken}, {gone}, {stashed}", segment.counts()));
            }
            entries += taken;
        }
        for &(cell, kept) in &stash.cells {
            if seen(cell & ID_MASK)? != kept {
                return Err(format!("the stash has another hash of entry {}", cell & ID_MASK));
            }
        }
        if entries == stash.entries {
            Ok(())
        } else {
            Err(format!("{} entries counted, {entries} found", stash.entries))
        }
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
