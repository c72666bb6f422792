//! Whose memory an address lies in: a table of two levels, read without a lock and without touching the address.

use gabion_blocks::{BLOCK_BYTES, BlockError, null_pointers, zero_counts};

use crate::sync::{AtomicPtr, AtomicU32, Ordering};

/// Bits of an address that tell user memory apart, on every system at hand.
const ADDRESS_BITS: u32 = 48;
const LEAF_BITS: u32 = 12;
const LEAVES: usize = 1 << LEAF_BITS;
const ROOTS: usize = 1 << (ADDRESS_BITS - BLOCK_BYTES.ilog2() - LEAF_BITS);

/// What lies around an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Area {
    /// Nothing of ours.
    Nothing,
    /// A block of pages.
    Pages,
    /// A block of chunks.
    Chunks,
    /// The first 4 MiB of a large object's memory.
    Large,
    /// The rest of it.
    Rest,
}

/// Memory of large objects is counted in these parts, because the end of its last 4 MiB may be anybody's.
const PART: usize = 4096;

// `kind (6 bits) | parts that are ours, of a large object's (10 bits, less one)`; 0 means nothing.
const PARTS: u32 = (BLOCK_BYTES / PART - 1) as u32;
const PAGES: u32 = 1 << 10;
const CHUNKS: u32 = 2 << 10;
const LARGE: u32 = 3 << 10;
const REST: u32 = 4 << 10;

type Leaf = [AtomicU32; LEAVES];

/// A leaf that says nothing. It is made on the heap, because it would not fit on the smallest stacks.
#[cold]
#[inline(never)]
fn new_leaf() -> Result<Box<Leaf>, BlockError> {
    let leaf = zero_counts(LEAVES)?.try_into();
    Ok(leaf.unwrap_or_else(|_| unreachable!("so many were asked for")))
}

/// The table of one `Slots`. Changed under its lock, read by anybody.
pub(crate) struct Territory {
    roots: Box<[AtomicPtr<Leaf>; ROOTS]>,
}

impl Territory {
    /// An empty table.
    ///
    /// # Errors
    /// That there is no memory for it.
    pub fn new() -> Result<Self, BlockError> {
        let roots = null_pointers(ROOTS)?.try_into();
        Ok(Self { roots: roots.unwrap_or_else(|_| unreachable!("so many were asked for")) })
    }

    #[inline(always)]
    fn cell(&self, address: usize) -> Option<&AtomicU32> {
        let granule = address / BLOCK_BYTES;
        // Acquire: pairs with the release in `enter`, which publishes the leaf's zeros.
        let leaf = self.roots.get(granule >> LEAF_BITS)?.load(Ordering::Acquire);
        // SAFETY: only `enter` stores here, and what it stores is freed with the table only.
        Some(&unsafe { leaf.as_ref() }?[granule & (LEAVES - 1)])
    }

    #[inline(always)]
    fn word(&self, address: usize) -> u32 {
        // Acquire: pairs with the release in `set`; who finds a block sees its header.
        self.cell(address).map_or(0, |cell| cell.load(Ordering::Acquire))
    }

    /// What lies around an address.
    #[inline]
    pub fn at(&self, address: usize) -> Area {
        let word = self.word(address);
        let inside = address % BLOCK_BYTES / PART <= (word & PARTS) as usize;
        match word & !PARTS {
            PAGES => Area::Pages,
            CHUNKS => Area::Chunks,
            LARGE if inside => Area::Large,
            REST if inside => Area::Rest,
            _ => Area::Nothing,
        }
    }

    /// True when a block of pages lies around an address.
    #[inline(always)]
    pub fn is_pages(&self, address: usize) -> bool {
        self.word(address) == PAGES
    }

    /// True when a block of chunks lies around an address.
    #[inline(always)]
    pub fn is_chunks(&self, address: usize) -> bool {
        self.word(address) == CHUNKS
    }

    /// Enters `bytes` bytes from `base` on.
    ///
    /// The caller is alone in changing the table, and inside (it may allocate).
    ///
    /// # Errors
    /// That the address is beyond the table, or that there is no memory for it; nothing is entered then.
    pub fn enter(&self, base: usize, bytes: usize, area: Area) -> Result<(), BlockError> {
        for step in 0..bytes.div_ceil(BLOCK_BYTES) {
            let root = self.roots.get((base / BLOCK_BYTES + step) >> LEAF_BITS);
            let root = root.ok_or(BlockError::Exhausted { what: "addresses" })?;
            if root.load(Ordering::Relaxed).is_null() {
                // Release: publishes the zeros.
                root.store(Box::into_raw(new_leaf()?), Ordering::Release);
            }
        }
        self.set(base, bytes, area);
        Ok(())
    }

    /// Strikes what was entered. The caller is alone in changing the table.
    pub fn strike(&self, base: usize, bytes: usize) {
        self.set(base, bytes, Area::Nothing);
    }

    /// Says what lies in `bytes` bytes from `base` on, as far as there are leaves.
    fn set(&self, base: usize, bytes: usize, area: Area) {
        for step in 0..bytes.div_ceil(BLOCK_BYTES) {
            let address = base + step * BLOCK_BYTES;
            let parts = (bytes - step * BLOCK_BYTES).min(BLOCK_BYTES) / PART;
            let word = match area {
                Area::Nothing => 0,
                Area::Pages => PAGES,
                Area::Chunks => CHUNKS,
                // Less than a part is nobody's business.
                Area::Large | Area::Rest if parts == 0 => 0,
                Area::Large | Area::Rest => (if step == 0 { LARGE } else { REST }) | (parts as u32 - 1),
            };
            if let Some(cell) = self.cell(address) {
                // Release: publishes the header that was written before.
                cell.store(word, Ordering::Release);
            }
        }
    }
}

impl Drop for Territory {
    fn drop(&mut self) {
        for root in &*self.roots {
            let leaf = root.load(Ordering::Relaxed);
            if !leaf.is_null() {
                // SAFETY: made by `Box::into_raw` in `enter`, and `&mut self` proves that nobody reads it.
                drop(unsafe { Box::from_raw(leaf) });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_found_and_no_other() {
        use Area::{Large, Nothing, Pages, Rest};
        let territory = Territory::new().unwrap();
        let base = 0x7f00_0040_0000;
        assert_eq!(territory.at(base), Area::Nothing);
        territory.enter(base, BLOCK_BYTES, Area::Pages).unwrap();
        territory.enter(base + 2 * BLOCK_BYTES, 2 * BLOCK_BYTES + 4096, Area::Large).unwrap();
        let seen: Vec<_> = (0..6).map(|step| territory.at(base + step * BLOCK_BYTES + 77)).collect();
        assert_eq!(seen, [Pages, Nothing, Large, Rest, Rest, Nothing]);
        assert_eq!(territory.at(base + 4 * BLOCK_BYTES + 4095), Rest);
        assert_eq!(territory.at(base + 4 * BLOCK_BYTES + 4096), Nothing);
        territory.enter(base + 8 * BLOCK_BYTES, 3 << 19, Area::Large).unwrap();
        assert_eq!(territory.at(base + 8 * BLOCK_BYTES + (3 << 19) - 1), Large);
        assert_eq!(territory.at(base + 8 * BLOCK_BYTES + (3 << 19)), Nothing);
        territory.strike(base, BLOCK_BYTES);
        assert_eq!(territory.at(base), Nothing);
        for odd in [0, 1, usize::MAX, 1 << 47, 1 << 48] {
            assert_eq!(territory.at(odd), Nothing);
        }
        assert!(territory.enter(1 << 48, 1, Pages).is_err());
        let last = (1 << 48) - BLOCK_BYTES;
        assert!(territory.enter(last, 2 * BLOCK_BYTES, Area::Large).is_err());
        assert_eq!(territory.at(last), Nothing, "all or nothing is entered");
    }
}
