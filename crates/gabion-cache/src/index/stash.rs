//! Cells that found no place in their segment: a list for each segment, for the lock's holder only.
//!
//! What the lists take is within what entries are charged for the index: the charge assumes segments at three quarters
//! of the fill at which they split, and only fuller ones have cells without a place to speak of.

use crate::sync::AtomicU64;

/// A cell and its hash.
pub(crate) type Stashed = (AtomicU64, u64);

/// What only the lock's holder has of the segments.
#[derive(Default)]
pub(crate) struct Stash {
    /// By the number of the segment; none for those at the end that never had one.
    lists: Vec<Vec<Stashed>>,
    /// Cells in all lists.
    cells: u64,
    /// Entries in all segments and the stash.
    pub entries: u64,
    /// With fewer entries there are too many segments, and with more too few.
    pub least: u64,
    pub most: u64,
}

impl Stash {
    /// How many cells there are.
    #[inline]
    pub fn len(&self) -> u64 {
        self.cells
    }

    /// The cells of a segment.
    #[inline]
    pub fn of(&self, segment: usize) -> &[Stashed] {
        self.lists.get(segment).map_or(&[], Vec::as_slice)
    }

    pub fn push(&mut self, segment: usize, cell: u64, kept: u64) {
        if self.lists.len() <= segment {
            self.lists.resize_with(segment + 1, Vec::new);
        }
        self.lists[segment].push((AtomicU64::new(cell), kept));
        self.cells += 1;
    }

    /// Takes a cell out; the last of its segment takes its place.
    pub fn take(&mut self, segment: usize, at: usize) -> Stashed {
        self.cells -= 1;
        self.lists[segment].swap_remove(at)
    }

    /// Takes all cells of a segment out.
    pub fn take_all(&mut self, segment: usize) -> Vec<Stashed> {
        let taken = self.lists.get_mut(segment).map(std::mem::take).unwrap_or_default();
        self.cells -= taken.len() as u64;
        taken
    }
}
