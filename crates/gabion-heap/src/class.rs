//! Size classes, and how a page is cut up for each.

use gabion_blocks::WORDS_PER_PAGE;

/// How many size classes there are.
pub const CLASSES: usize = 64;

/// Words in the largest slot: 1 KiB.
pub const MAX_SLOT_WORDS: usize = 128;

/// Words at the start of a block that hold its header, out of page 0.
pub const BLOCK_HEADER_WORDS: usize = 128;

/// Words in a slot of `class`: every multiple of 8 bytes up to 256, then sixteen steps per doubling, so that rounding
/// wastes 3 % of a large slot on average.
#[inline]
pub const fn slot_words(class: usize) -> usize {
    match class {
        0..32 => class + 1,
        32..48 => 34 + 2 * (class - 32),
        _ => 68 + 4 * (class - 48),
    }
}

/// The smallest class whose slots have at least `words` words; `words` is 1 to [`MAX_SLOT_WORDS`].
#[inline]
pub fn class_for_words(words: usize) -> usize {
    CLASS_OF[words] as usize
}

const CLASS_OF: [u8; MAX_SLOT_WORDS + 1] = {
    let mut table = [0; MAX_SLOT_WORDS + 1];
    let (mut class, mut words) = (0, 1);
    while words <= MAX_SLOT_WORDS {
        while slot_words(class) < words {
            class += 1;
        }
        table[words] = class as u8;
        words += 1;
    }
    table
};

/// How a page of one class is laid out, in words from the start of the page:
/// `start ≤ head and body bits, word by word in turn (2 × bitmap words) ≤ first ≤ first + slots × slot ≤ 8192`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Geometry {
    /// Words in a slot.
    pub slot: u16,
    /// Slots in the page.
    pub slots: u16,
    /// Where the bitmaps begin.
    pub start: u16,
    /// Words in each bitmap.
    pub bitmap: u16,
    /// The first word of slot 0.
    pub first: u16,
    /// `ceil(2²⁴ / slot)`: multiplication in place of division, exact for all offsets within a page.
    reciprocal: u32,
}

impl Geometry {
    const fn new(class: usize, start: usize) -> Self {
        let slot = slot_words(class);
        // Slots that can be cache-line aligned are; others at least keep to their own power of two.
        let lowest_bit = slot & slot.wrapping_neg();
        let align = if lowest_bit < 8 { lowest_bit } else { 8 };
        let mut slots = (WORDS_PER_PAGE - start) / slot;
        loop {
            let bitmap = slots.div_ceil(64);
            let first = (start + 2 * bitmap).next_multiple_of(align);
            let fit = (WORDS_PER_PAGE - first) / slot;
            if fit >= slots {
                return Self {
                    slot: slot as u16,
                    slots: slots as u16,
                    start: start as u16,
                    bitmap: bitmap as u16,
                    first: first as u16,
                    reciprocal: (1_u32 << 24).div_ceil(slot as u32),
                };
            }
            slots = fit;
        }
    }

    /// The slot that begins at `word` of the page, if one does.
    #[inline]
    pub fn index_of(&self, word: usize) -> Option<usize> {
        let offset = word.checked_sub(self.first as usize)?;
        let index = ((offset as u64 * u64::from(self.reciprocal)) >> 24) as usize;
        (index * self.slot as usize == offset && index < self.slots as usize).then_some(index)
    }

    /// The first word of a slot within the page.
    #[inline]
    pub fn word_of(&self, index: usize) -> usize {
        self.first as usize + index * self.slot as usize
    }

    /// The bits of bitmap word `word` that stand for slots.
    #[inline]
    pub fn valid(&self, word: usize) -> u64 {
        let left = self.slots as usize - word * 64;
        if left >= 64 { u64::MAX } else { (1 << left) - 1 }
    }
}

/// `[class][page is the block's first]`
static GEOMETRIES: [[Geometry; 2]; CLASSES] = {
    let mut table = [[Geometry::new(0, 0); 2]; CLASSES];
    let mut class = 0;
    while class < CLASSES {
        table[class] = [Geometry::new(class, 0), Geometry::new(class, BLOCK_HEADER_WORDS)];
        class += 1;
    }
    table
};

/// The layout of page `page` of a block when it holds slots of `class`.
#[inline]
pub(crate) fn geometry(class: usize, page: usize) -> &'static Geometry {
    &GEOMETRIES[class & (CLASSES - 1)][usize::from(page == 0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_rise_and_cover_every_size() {
        for words in 1..=MAX_SLOT_WORDS {
            let class = class_for_words(words);
            assert!(slot_words(class) >= words);
            assert!(class == 0 || slot_words(class - 1) < words);
        }
        assert_eq!(slot_words(CLASSES - 1), MAX_SLOT_WORDS);
    }

    #[test]
    fn every_layout_fits_its_page_and_division_is_exact() {
        for class in 0..CLASSES {
            for page in [0, 1] {
                let shape = geometry(class, page);
                let (slot, slots, first) = (shape.slot as usize, shape.slots as usize, shape.first as usize);
                assert!(shape.start as usize + 2 * shape.bitmap as usize <= first);
                assert!(first + slots * slot <= WORDS_PER_PAGE);
                assert!(shape.bitmap as usize * 64 >= slots);
                let used = slots * slot;
                assert!(page == 0 || used * 100 >= WORDS_PER_PAGE * 94, "class {class} uses {used} words");
                for word in 0..WORDS_PER_PAGE {
                    let expected = (word >= first && (word - first) % slot == 0 && (word - first) / slot < slots)
                        .then(|| (word - first) / slot);
                    assert_eq!(shape.index_of(word), expected);
                }
            }
        }
    }
}
