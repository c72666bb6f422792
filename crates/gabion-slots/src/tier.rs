//! Which kind of memory serves a request: a slot, a chunk, or memory of its own.

use std::alloc::Layout;

use gabion_blocks::{BLOCK_BYTES, PAGE_BYTES};
use gabion_heap::{CLASSES, MAX_SLOT_WORDS, MOST_CHUNK_WORDS, class_for_words, slot_words};

/// The largest slot, and the largest alignment that slots have: pages begin at a multiple of it.
pub(crate) const MOST_SLOT_BYTES: usize = MAX_SLOT_WORDS * 8;

/// Pairs of words in a page's record; each stands for sixty-four slots. So many fit into page 0, for all pages of the
/// block.
pub(crate) const MOST_PAIRS: usize = 62;

/// The most slots that a page has: half of those of the smallest class that would fit, and all but 3 % of the second.
pub(crate) const MOST_SLOTS: usize = MOST_PAIRS * 64;

/// What is larger, with what its alignment needs, has memory of its own.
pub(crate) const MOST_CHUNK_BYTES: usize = BLOCK_BYTES / 4;
const _: () = assert!(MOST_CHUNK_BYTES / 8 <= MOST_CHUNK_WORDS);

/// Every chunk's room begins at a multiple of this.
pub(crate) const CHUNK_ALIGN: usize = 16;

/// What serves a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tier {
    /// A slot of the page's class.
    Slot,
    /// A chunk, whose room begins at a multiple of that many bytes.
    Chunk { align: usize },
    /// Memory of its own, at the start of a block.
    Large,
}

/// True for what a slot serves. Every alignment up to a page's is had by rounding up, since a slot begins at a multiple
/// of its size.
#[inline(always)]
pub(crate) fn is_small(layout: Layout) -> bool {
    layout.size() <= MOST_SLOT_BYTES && layout.align() <= MOST_SLOT_BYTES
}

/// What serves `layout` in an affinity whose alignment is `mask + 1`.
#[inline]
pub(crate) fn tier(layout: Layout, mask: usize) -> Tier {
    if is_small(layout) {
        return Tier::Slot;
    }
    let align = (mask | (layout.align() - 1)) + 1;
    let align = align.max(CHUNK_ALIGN);
    let slack = if align > CHUNK_ALIGN { align } else { 0 };
    if layout.size().saturating_add(slack) <= MOST_CHUNK_BYTES { Tier::Chunk { align } } else { Tier::Large }
}

/// The class that serves a small layout in an affinity whose alignment is `mask + 1`. Every multiple of an alignment up
/// to 1 KiB is a class of its own, so that rounding the size up is enough.
#[inline(always)]
pub(crate) fn class_of(layout: Layout, mask: usize) -> usize {
    let mask = mask | (layout.align() - 1);
    class_for_words(((layout.size().max(1) + mask) & !mask).div_ceil(8))
}

/// Words that a small layout takes: its size rounded up to its alignment. None for no bytes, unless they are to be
/// aligned to more than a word.
#[inline(always)]
pub(crate) fn words_of(layout: Layout) -> usize {
    // Alignments up to a word are known to the compiler nearly always, and then nothing is left of the first step.
    let size = if layout.align() > 8 { layout.size().max(1) } else { layout.size() };
    let mask = layout.align() - 1;
    ((size + mask) & !mask).div_ceil(8)
}

/// Bytes of a slot.
#[inline]
pub(crate) const fn slot_bytes(class: usize) -> usize {
    slot_words(class) * 8
}

/// How a page of one class is cut up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    /// Bytes in a slot.
    pub slot: u16,
    pub slots: u16,
    /// `⌊2³² / slot⌋ + 1`: multiplication in place of division, exact for all offsets within a page.
    pub reciprocal: u32,
    /// What such a product has below the point is less than this exactly if a slot begins at the offset.
    pub limit: u32,
}

impl Shape {
    /// That of a page that is not in use: no address is a slot's.
    const NONE: Self = Self { slot: 0, slots: 0, reciprocal: 0, limit: 0 };

    // With `excess = reciprocal × slot − 2³²`, at most `slot`: slot `n` begins at `n × slot`, whose product is n, and
    // `n × excess` below the point. Other offsets have `reciprocal` more there at least, and `limit` is less than that.
    // So one comparison says that nothing is left over (Lemire, Kaser, Kurz 2019) and that there are that many slots.
    const fn new(class: usize) -> Self {
        let slot = slot_bytes(class);
        let fit = PAGE_BYTES / slot;
        let slots = if fit < MOST_SLOTS { fit } else { MOST_SLOTS };
        let reciprocal = (1_u64 << 32) / slot as u64 + 1;
        let excess = reciprocal * slot as u64 - (1 << 32);
        Self {
            slot: slot as u16,
            slots: slots as u16,
            reciprocal: reciprocal as u32,
            limit: (slots as u64 * excess) as u32,
        }
    }
}

/// How pages are cut up, by [`mark_of`] their class.
pub(crate) static SHAPES: [Shape; CLASSES + 1] = {
    let mut table = [Shape::NONE; CLASSES + 1];
    let mut class = 0;
    while class < CLASSES {
        table[mark_of(class) as usize] = Shape::new(class);
        class += 1;
    }
    table
};

/// What stands for a class where 0 means that a page is not in use.
pub(crate) const fn mark_of(class: usize) -> u8 {
    class as u8 + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_found_by_multiplication() {
        for shape in &SHAPES[1..] {
            let (slot, slots) = (u64::from(shape.slot), u64::from(shape.slots));
            for offset in 0..PAGE_BYTES as u64 {
                let product = offset * u64::from(shape.reciprocal);
                assert_eq!(product >> 32, offset / slot);
                let begins = offset.is_multiple_of(slot) && offset / slot < slots;
                assert_eq!((product as u32) < shape.limit, begins, "{offset} {shape:?}");
            }
        }
    }

    #[test]
    fn every_small_layout_is_aligned_and_fits() {
        for align in (0..=10).map(|log| 1 << log) {
            for size in 0..=MOST_SLOT_BYTES {
                for mask in [7, 15, 63] {
                    let layout = Layout::from_size_align(size, align).unwrap();
                    let slot = slot_bytes(class_of(layout, mask));
                    assert!(slot >= size && slot.is_multiple_of(align), "{layout:?}: {slot}");
                    assert!(slot.is_multiple_of(mask + 1));
                }
            }
        }
    }

    #[test]
    fn tiers_follow_size_and_alignment() {
        let of = |size, align| tier(Layout::from_size_align(size, align).unwrap(), 7);
        assert_eq!(of(0, 1), Tier::Slot);
        assert_eq!(of(1024, 1024), Tier::Slot);
        assert_eq!(of(1025, 1), Tier::Chunk { align: 16 });
        assert_eq!(of(1, 2048), Tier::Chunk { align: 2048 });
        assert_eq!(of(1 << 20, 8), Tier::Chunk { align: 16 });
        assert_eq!(of((1 << 20) + 1, 8), Tier::Large);
        assert_eq!(of(1, 1 << 20), Tier::Large);
        assert_eq!(of(131_061, 8), Tier::Chunk { align: 16 });
    }
}
