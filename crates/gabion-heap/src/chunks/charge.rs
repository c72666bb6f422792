//! Which pages of chunk blocks count in the budget.
//!
//! A page is charged when a used chunk first reaches into it. It stays charged while it is likely to be used again,
//! also when nothing is left in it: a chunk is freed and taken without a word to the budget. Where the budget is short,
//! the pages that lie wholly inside of free chunks are given up; tags, links and lengths stand in others.
//!
//! ```text
//! page        0           1           2           3
//!        │ used │ free ────────────────────── │ used │
//!               tag, links                 length
//!                    └─ page 1 can be given up ─┘
//! ```

use std::sync::atomic::Ordering::Relaxed;

use gabion_blocks::{Block, PAGE_BYTES, PAGES_PER_BLOCK, WORDS_PER_PAGE};

use super::bins::bin_of;
use super::{ChunkBlock, Chunks, LEAST_REMAINDER, LEAST_WORDS, LENGTH, ordinal_of};
use crate::error::HeapError;
use crate::ground::Ground;
use crate::loc::Loc;

/// Words of tag and links.
pub(super) const HEAD_WORDS: usize = LEAST_WORDS - 1;
/// How many free chunks are looked at for one whose pages are all charged.
pub(super) const LOOKED_AT: usize = 64;

/// The part of a free chunk that is taken.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part<'a> {
    pub block: Block<'a>,
    pub free: Loc,
    /// Words of the free chunk.
    pub whole: usize,
    /// Words of it that stay free in front.
    pub front: usize,
    /// Words of the part: all behind the front, where too few would be left.
    pub length: usize,
}

impl<'a> Part<'a> {
    /// `length` words of a free chunk that is long enough, with a room at a multiple of `align` words.
    #[inline]
    pub fn of(ground: Ground<'a>, free: Loc, length: usize, align: usize) -> Self {
        let block = ground.blocks.block(free.number()).expect("a block of this heap");
        let whole = (block.word(free.word()).load(Relaxed) & LENGTH) as usize;
        let front = super::front(free.word(), align);
        let left = whole - front;
        let length = if left - length >= LEAST_REMAINDER { length } else { left };
        Self { block, free, whole, front, length }
    }

    /// The pages that it lies in.
    fn pages(&self) -> u64 {
        let at = self.free.word() + self.front;
        pages_with(at, at + self.length)
    }

    /// The pages that are written to when it is taken: those, that of the length of what stays free in front, and those
    /// of tag and links of what stays free behind.
    fn reach(&self) -> u64 {
        let at = self.free.word() + self.front;
        let end = if self.front + self.length < self.whole { HEAD_WORDS } else { 0 };
        pages_with(at - usize::from(self.front > 0), at + self.length + end)
    }
}

/// The pages of a block that words `from..to` lie in, a bit each. There is a word.
#[inline]
pub(super) fn pages_with(from: usize, to: usize) -> u64 {
    let (first, last) = (from / WORDS_PER_PAGE, (to - 1) / WORDS_PER_PAGE);
    u64::MAX << first & u64::MAX >> (PAGES_PER_BLOCK - 1 - last)
}

/// The pages of a block, a bit each, in which a free chunk of `length` words at word `at` has nothing but what is free.
#[inline]
fn pages_inside(at: usize, length: usize) -> u64 {
    let first = (at + HEAD_WORDS).div_ceil(WORDS_PER_PAGE);
    // The last word, which has the length, stays.
    let end = (at + length - 1) / WORDS_PER_PAGE;
    if first < end { pages_with(first * WORDS_PER_PAGE, end * WORDS_PER_PAGE) } else { 0 }
}

fn bytes_of(pages: u64) -> u64 {
    u64::from(pages.count_ones()) * PAGE_BYTES as u64
}

impl Chunks {
    /// How many pages of a free chunk could be given up.
    #[inline]
    pub(super) fn idle_in(&self, block: Block<'_>, at: usize, length: usize) -> u64 {
        // Most chunks are too short to hold a page.
        if length <= WORDS_PER_PAGE {
            return 0;
        }
        u64::from((pages_inside(at, length) & self.blocks[ordinal_of(block)].charged).count_ones())
    }

    /// Whether a part can be taken without a page that is not charged.
    #[inline]
    pub(super) fn is_ready(&self, part: &Part<'_>) -> bool {
        self.new_pages(part) == 0
    }

    /// How many pages that a part is written to are not charged.
    #[inline]
    pub(super) fn new_pages(&self, part: &Part<'_>) -> u32 {
        ((part.pages() | part.reach()) & !self.blocks[ordinal_of(part.block)].charged).count_ones()
    }

    /// Charges the pages of a part that are not charged yet; [`Chunks::charge_part`] enters them.
    pub(super) fn pay(&self, ground: Ground<'_>, part: &Part<'_>) -> Result<(), HeapError> {
        let wanted = part.pages() & !self.blocks[ordinal_of(part.block)].charged;
        if wanted != 0 {
            ground.budget.take(bytes_of(wanted))?;
        }
        Ok(())
    }

    /// A part that the budget has room for, where it has none for `chosen`: of a free chunk whose pages are charged
    /// already, or the same once others have been given up. It is paid for. Takes time in proportion to the free chunks
    /// that are longer than a page.
    #[cold]
    pub(super) fn within_budget<'a>(
        &mut self,
        ground: Ground<'a>,
        search: usize,
        chosen: Part<'a>,
        part: impl Fn(Loc) -> Part<'a>,
    ) -> Option<Part<'a>> {
        let others = self.bins.from(ground, bin_of(search)).map(|(free, _)| part(free));
        let charged = |part: &Part<'_>| part.pages() & !self.blocks[ordinal_of(part.block)].charged == 0;
        if let Some(ready) = others.take(LOOKED_AT).find(charged) {
            return Some(ready);
        }
        (self.give_idle(ground) > 0 && self.pay(ground, &chosen).is_ok()).then_some(chosen)
    }

    /// Makes the pages of a part ready to be written to, and enters what was paid. It is in no bin any more.
    pub(super) fn charge_part(&mut self, ground: Ground<'_>, part: &Part<'_>) {
        let entry = &mut self.blocks[ordinal_of(part.block)];
        let (wanted, reach) = (part.pages() & !entry.charged, part.reach() & !entry.reached);
        if reach != 0 {
            ground.blocks.claim(entry.number, reach);
            entry.reached |= reach;
        }
        if reach | wanted != 0 {
            // What is taken leaves less room for what is kept warm.
            ground.blocks.fit(ground.budget.room());
        }
        if wanted != 0 {
            self.charged_pages += u64::from(wanted.count_ones());
            entry.charged |= wanted;
            if entry.charged == u64::MAX {
                self.grown = true;
                ground.blocks.note_touched(entry.number);
            }
        }
    }

    /// Gives up all pages that lie wholly inside of free chunks: they are not charged any more, and it is the pool's
    /// business how long they stay warm. Returns bytes. Takes time in proportion to the free chunks that are longer
    /// than a page, where there is something to give.
    pub fn give_idle(&mut self, ground: Ground<'_>) -> u64 {
        let mut given = 0;
        for (free, length) in self.bins.from(ground, bin_of(WORDS_PER_PAGE)) {
            if self.idle_pages == 0 {
                break;
            }
            let block = ground.blocks.block(free.number()).expect("a block of this heap");
            // In a file, another program may have written there.
            let Some(entry) = self.blocks.get_mut(ordinal_of(block)) else { continue };
            let pages = give_inside(ground, entry, free.word(), length);
            self.charged_pages -= pages;
            self.idle_pages -= pages;
            given += pages * PAGE_BYTES as u64;
        }
        given
    }
}

/// Gives up the pages of a block that lie wholly inside of a free chunk. Returns how many, for the caller to count out.
pub(super) fn give_inside(ground: Ground<'_>, entry: &mut ChunkBlock, at: usize, length: usize) -> u64 {
    let pages = pages_inside(at, length) & entry.charged;
    if pages != 0 {
        entry.charged &= !pages;
        entry.reached &= !pages;
        ground.budget.give(bytes_of(pages));
        ground.blocks.release(entry.number, pages, 0, ground.budget.room());
    }
    u64::from(pages.count_ones())
}
