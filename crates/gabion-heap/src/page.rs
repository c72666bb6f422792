//! A page of slots: its two bitmaps and its slots.

use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, Release};

use gabion_blocks::{Block, WORDS_PER_PAGE};

use crate::class::{Geometry, geometry};

/// Which slot of its page a slot is, and how that page is cut up.
#[derive(Debug, Clone, Copy)]
pub struct PageSlot {
    class: usize,
    shape: &'static Geometry,
    index: usize,
}

impl PageSlot {
    /// The slot whose head is word `word` of the block, when page `word / 8192` holds slots of `class`.
    #[inline(always)]
    pub fn at(class: usize, word: usize) -> Option<Self> {
        let shape = geometry(class, word / WORDS_PER_PAGE);
        shape.index_of(word % WORDS_PER_PAGE).map(|index| Self { class, shape, index })
    }

    /// The size class of the page's slots.
    #[inline(always)]
    pub fn class(self) -> usize {
        self.class
    }

    /// Words in the slot.
    #[inline(always)]
    pub fn words(self) -> usize {
        self.shape.slot as usize
    }
}

/// The head words of all slots of a page, as word indices of the block.
pub fn slots_in_page(class: usize, page: usize) -> impl Iterator<Item = usize> {
    slots_from(class, page, 0)
}

/// As [`slots_in_page`], from slot number `first` on.
pub fn slots_from(class: usize, page: usize, first: usize) -> impl Iterator<Item = usize> {
    let shape = geometry(class, page);
    (first..shape.slots as usize).map(move |index| page * WORDS_PER_PAGE + shape.word_of(index))
}

/// The bytes of a page that are of no slot and of no bitmap: before the first slot, and behind the last one. Of page 0,
/// the block's header is none of them.
pub fn outside_slots(class: usize, page: usize) -> [Range<usize>; 2] {
    let shape = geometry(class, page);
    let bitmaps = 8 * (shape.start as usize + 2 * shape.bitmap as usize);
    let (first, end) = (8 * shape.word_of(0), 8 * shape.word_of(shape.slots as usize));
    [bitmaps..first, end..8 * WORDS_PER_PAGE]
}

/// A slot in a copy of a page: its bytes, and whether its body is taken.
pub fn slot_in_copy(copy: &[u8], class: usize, page: usize, index: usize) -> (Range<usize>, bool) {
    let shape = geometry(class, page);
    // A byte of the bitmap has eight slots: words are little-endian in a copy.
    let bodies = 8 * (shape.start as usize + 2 * (index / 64) + 1) + index % 64 / 8;
    let from = 8 * shape.word_of(index);
    (from..from + 8 * shape.slot as usize, copy[bodies] >> (index % 8) & 1 == 1)
}

/// Stores what is not there yet. Where a file is open for reading, each page that is written to becomes memory of this
/// process's own.
pub(crate) fn store_changed(word: &AtomicU64, value: u64) {
    // Relaxed: nobody else knows of the block yet.
    if word.load(Relaxed) != value {
        word.store(value, Release); // Release: a process that is killed here leaves its stores in this order.
    }
}

/// What of a slot is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// Its first word.
    pub head: bool,
    /// The rest of it.
    pub body: bool,
}

/// A page of slots of one class. All methods need the heap to themselves; plain loads and stores do.
#[derive(Clone, Copy)]
pub(crate) struct Page<'a> {
    pub block: Block<'a>,
    pub base: usize,
    pub shape: &'static Geometry,
}

impl<'a> Page<'a> {
    pub fn new(block: Block<'a>, page: usize, class: usize) -> Self {
        Self { block, base: page * WORDS_PER_PAGE, shape: geometry(class, page) }
    }

    /// The page of a slot, and which of its slots that is.
    #[inline(always)]
    pub fn of(block: Block<'a>, page: usize, slot: PageSlot) -> (Self, usize) {
        (Self { block, base: page * WORDS_PER_PAGE, shape: slot.shape }, slot.index)
    }

    /// Where bitmap word `word` of the heads stands; that of the bodies follows it, so that who frees a slot misses one
    /// cache line for both.
    #[inline]
    fn head_word(&self, word: usize) -> usize {
        self.base + self.shape.start as usize + 2 * word
    }

    #[inline]
    fn body_word(&self, word: usize) -> usize {
        self.head_word(word) + 1
    }

    /// Slots of bitmap word `word` whose heads are taken.
    pub fn heads(&self, word: usize) -> u64 {
        self.block.word(self.head_word(word)).load(Relaxed)
    }

    /// Slots of bitmap word `word` whose bodies are taken.
    pub fn bodies(&self, word: usize) -> u64 {
        self.block.word(self.body_word(word)).load(Relaxed)
    }

    /// Slots of bitmap word `word` of which nothing is taken.
    #[inline]
    pub fn whole(&self, word: usize) -> u64 {
        !(self.heads(word) | self.bodies(word)) & self.shape.valid(word)
    }

    /// Slots of bitmap word `word` whose head is taken and whose body is free.
    pub fn annexes(&self, word: usize) -> u64 {
        self.heads(word) & !self.bodies(word)
    }

    pub fn taken(&self, index: usize) -> Taken {
        let (word, bit) = (index / 64, 1 << (index % 64));
        Taken { head: self.heads(word) & bit != 0, body: self.bodies(word) & bit != 0 }
    }

    /// Asks for a slot's first cache lines ahead of its use. A hint: there need not be such a slot.
    #[inline]
    pub fn prefetch_slot(&self, index: usize) {
        let at = self.base + self.shape.word_of(index);
        self.block.prefetch(at);
        self.block.prefetch(at + 8);
    }

    /// Marks what of a slot is taken.
    #[inline]
    pub fn mark(&self, index: usize, taken: Taken) {
        let (word, bit) = (index / 64, 1_u64 << (index % 64));
        for (at, on) in [(self.head_word(word), taken.head), (self.body_word(word), taken.body)] {
            let cell = self.block.word(at);
            let bits = cell.load(Relaxed);
            // Relaxed: only the shard's writer reads bitmaps, and the shard's lock orders writers.
            cell.store(if on { bits | bit } else { bits & !bit }, Relaxed);
        }
    }

    /// Frees head and body of a slot; false when one of them is free already, and nothing is changed then.
    #[inline(always)]
    pub fn free_whole(&self, index: usize) -> bool {
        let (word, bit) = (index / 64, 1_u64 << (index % 64));
        let (heads, bodies) = (self.block.word(self.head_word(word)), self.block.word(self.body_word(word)));
        // Relaxed: as in `mark`.
        let (head_bits, body_bits) = (heads.load(Relaxed), bodies.load(Relaxed));
        if head_bits & body_bits & bit == 0 {
            return false;
        }
        heads.store(head_bits & !bit, Relaxed);
        bodies.store(body_bits & !bit, Relaxed);
        true
    }

    /// Has the bitmaps say what is taken: for each word of them, heads and bodies. Slots stay as they are.
    pub fn set_bitmaps(&self, taken: &[[u64; 2]]) {
        for (word, &[heads, bodies]) in taken.iter().enumerate().take(self.shape.bitmap as usize) {
            store_changed(self.block.word(self.head_word(word)), heads);
            store_changed(self.block.word(self.body_word(word)), bodies);
        }
    }

    /// Makes every slot free: bitmaps cleared, heads set to `head`. A page that reads as zero needs neither, if
    /// `head` is zero too.
    pub fn clear(&self, head: u64, reads_zero: bool) {
        if !reads_zero {
            for word in 0..self.shape.bitmap as usize {
                self.block.word(self.head_word(word)).store(0, Relaxed);
                self.block.word(self.body_word(word)).store(0, Relaxed);
            }
        }
        if !reads_zero || head != 0 {
            for index in 0..self.shape.slots as usize {
                self.block.word(self.base + self.shape.word_of(index)).store(head, Relaxed);
            }
        }
    }
}
