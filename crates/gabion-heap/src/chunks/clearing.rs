//! Pages of chunks that can be cleared by moving little.
//!
//! A page is given up when it lies wholly inside of a free chunk. Among chunks of many pages' total, freed here and
//! there, hardly any does by itself: so somebody who needs a page moves the few chunks that stand in its way into what
//! is free elsewhere.
//!
//! ```text
//! page        1           2           3
//!        ──── used │ free ─────── │ used │ free ───    cleared by moving the second chunk
//!                         └─ all of it, and a word or three around it, has to be free ─┘
//! ```

use std::sync::atomic::Ordering::Relaxed;

use gabion_blocks::{Block, PAGES_PER_BLOCK, WORDS_PER_PAGE};

use super::bins::bin_of;
use super::blocks::ENDS;
use super::charge::{HEAD_WORDS, LOOKED_AT, Part, give_inside, pages_with};
use super::{
    ChunkBlock, Chunks, END, FIRST, LEAST_WORDS, LEFT, LENGTH, PREVIOUS_FREE, ROOM_ALIGN, USED, chunk_length,
    ordinal_of, tags,
};
use crate::ground::Ground;
use crate::loc::Loc;

/// No more is moved for a page than that many words: where chunks are longer, one that is freed leaves whole pages.
const MOST_MOVED: usize = 4 * WORDS_PER_PAGE;
/// In how many blocks the page is sought that needs least to be moved.
const BLOCKS: usize = 4;
/// How many long free chunks lead to blocks. Many of them lie in one.
const LONGEST: usize = 512;
/// How many blocks are looked through for those.
const LOOKED_THROUGH: usize = 16;

/// A page of chunks, or a block, and the used ones that stand in the way of giving it up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkPage {
    /// The block's number.
    pub number: u32,
    /// Which page of the block it is. `None`: nothing lies but in the first and the last, which are given up with the
    /// block.
    pub page: Option<usize>,
    /// Words of the chunks in its way.
    pub words: usize,
    /// Where a tag stands, in front of all that is in its way, and stays whatever moves.
    first: usize,
}

impl ChunkPage {
    /// The first word that has to be free, and the word behind the last.
    fn span(&self) -> (usize, usize) {
        match self.page {
            Some(page) => (page * WORDS_PER_PAGE - HEAD_WORDS, (page + 1) * WORDS_PER_PAGE + 1),
            None => (FIRST, END),
        }
    }

    /// Whether `length` words from word `at` on stand in its way.
    fn has(&self, at: usize, length: usize) -> bool {
        let (first, end) = self.span();
        at < end && first < at + length
    }
}

/// The pages in whose way `length` words from word `at` on stand.
fn pages_blocked(at: usize, length: usize) -> std::ops::RangeInclusive<usize> {
    (at - 1) / WORDS_PER_PAGE..=((at + length + HEAD_WORDS - 1) / WORDS_PER_PAGE).min(PAGES_PER_BLOCK - 1)
}

impl Chunks {
    /// A page that is given up once few words are moved, but more than `beyond`, as far as the blocks of the longest
    /// free chunks show. `movable` says whether a used chunk may be. `None` when there is none. Looks through 16 blocks
    /// at most.
    pub fn sparse_chunk_page(
        &self,
        ground: Ground<'_>,
        beyond: usize,
        movable: impl Fn(Block<'_>, Loc) -> bool,
    ) -> Option<ChunkPage> {
        let (mut seen, mut looked, mut found) = ([0; LOOKED_THROUGH], 0, 0);
        let mut best: Option<ChunkPage> = None;
        for (free, length) in self.bins.longest(ground).take(LONGEST) {
            let block = ground.blocks.block(free.number()).expect("a block of this heap");
            // In a file, another program may have written there.
            let Some(&ChunkBlock { charged, .. }) = self.blocks.get(ordinal_of(block)) else { continue };
            let is_charged = pages_with(free.word(), free.word() + length) & charged != 0;
            if !is_charged || seen[..looked].contains(&block.number()) {
                continue;
            }
            if looked == LOOKED_THROUGH || found == BLOCKS {
                break;
            }
            seen[looked] = block.number();
            looked += 1;
            let page = Self::cheapest_page(block, charged, beyond, &movable);
            found += usize::from(page.is_some());
            best = best.into_iter().chain(page).min_by_key(|page| page.words);
        }
        best.filter(|page| page.words as u64 <= self.bins.words())
    }

    /// The page of a block in whose way least words stand, if those are not too many.
    fn cheapest_page(
        block: Block<'_>,
        charged: u64,
        beyond: usize,
        movable: impl Fn(Block<'_>, Loc) -> bool,
    ) -> Option<ChunkPage> {
        let mut words = [0_usize; PAGES_PER_BLOCK];
        for (at, tag) in tags(block, FIRST).filter(|(_, tag)| tag & USED != 0) {
            let length = (tag & LENGTH) as usize;
            let stays = tag & LEFT != 0 || !movable(block, Loc::new(block.number(), at + 1));
            for page in pages_blocked(at, length) {
                words[page] = if stays { usize::MAX } else { words[page].saturating_add(length) };
            }
        }
        let found = if charged & !ENDS == 0 {
            (None, words[0].saturating_add(words[PAGES_PER_BLOCK - 1]))
        } else {
            // What has nothing in its way is given up without this.
            let pages = (1..PAGES_PER_BLOCK - 1).filter(|&page| charged >> page & 1 == 1 && words[page] > beyond);
            let page = pages.min_by_key(|&page| words[page])?;
            (Some(page), words[page])
        };
        let (page, words) = Some(found).filter(|&(_, words)| words > beyond && words <= MOST_MOVED)?;
        let mut page = ChunkPage { number: block.number(), page, words, first: FIRST };
        page.first = Self::lasting_tag(block, page.span().0);
        Some(page)
    }

    /// The last tag up to a word that stays one although what begins behind it, or reaches beyond the word, is freed
    /// and taken anew.
    fn lasting_tag(block: Block<'_>, word: usize) -> usize {
        let (at, tag) = tags(block, FIRST).take_while(|&(at, _)| at <= word).last().unwrap_or((FIRST, 0));
        // Once it is freed it is a part of the free chunk in front of it, and what is taken of that writes over its
        // tag. In front of that one is a chunk that is used, and stays.
        if tag & PREVIOUS_FREE == 0 { at } else { at - block.word(at - 1).load(Relaxed) as usize }
    }

    /// The first used chunk in a page's way that begins behind `last`, if there is one. Whatever was moved of them, and
    /// wherever to, tags lead on from the page's first.
    pub fn next_in_way(ground: Ground<'_>, page: &ChunkPage, last: Option<Loc>) -> Option<Loc> {
        let block = ground.blocks.block(page.number)?;
        let behind = last.map_or(0, Loc::word);
        let mut ahead = tags(block, page.first).take_while(|&(at, _)| at < page.span().1);
        let (at, _) =
            ahead.find(|&(at, tag)| at + 1 > behind && tag & USED != 0 && page.has(at, (tag & LENGTH) as usize))?;
        Some(Loc::new(page.number, at + 1))
    }

    /// Gives up a page, or a block, that was cleared, with what else is free around it.
    pub fn give_up(&mut self, ground: Ground<'_>, page: &ChunkPage) {
        let Some(block) = ground.blocks.block(page.number) else { return };
        let ordinal = ordinal_of(block);
        if self.blocks[ordinal].live == 0 {
            // It may have been given up when the last of it went.
            if !self.blocks[ordinal].spare {
                self.release_block(ground, block);
            }
            return;
        }
        let ahead = tags(block, page.first).take_while(|&(at, _)| at < page.span().1);
        for (at, tag) in ahead.filter(|(_, tag)| tag & USED == 0) {
            let pages = give_inside(ground, &mut self.blocks[ordinal], at, (tag & LENGTH) as usize);
            self.charged_pages -= pages;
            self.idle_pages -= pages;
        }
    }

    /// As [`Chunks::take`], of what does not stand in a page's way and is charged already, or takes `most_new` pages
    /// more. `None`, and nothing is changed, when there is none, or the budget has none.
    pub fn take_beside<'a>(
        &mut self,
        ground: Ground<'a>,
        words: usize,
        page: &ChunkPage,
        most_new: u32,
    ) -> Option<(Block<'a>, Loc)> {
        let length = chunk_length(words);
        let beside = |part: &Part<'_>| {
            part.free.number() != page.number || !page.has(part.free.word(), part.length + LEAST_WORDS)
        };
        let parts = self.bins.from(ground, bin_of(length)).map(|(free, _)| Part::of(ground, free, length, ROOM_ALIGN));
        let parts = parts.filter(beside).map(|part| (self.new_pages(&part), part)).take(LOOKED_AT);
        // The shortest that is ready, or that takes least.
        let (_, part) = parts.filter(|&(new, _)| new <= most_new).min_by_key(|&(new, _)| new)?;
        self.pay(ground, &part).ok()?;
        Some((part.block, self.cut(ground, &part)))
    }
}
