//! Slots: things up to 1 KiB, in pages of one size class.
//!
//! Each class has a *shelf*: the page that it fills now, and lists of the other pages with room, by quarters of
//! fullness. A new active page is the fullest that has room, so that sparse pages get a chance to empty. Within a page
//! slots are handed out in address order, round and round, which keeps neighbours in time neighbours in memory and
//! spreads the wear of generations.

mod free;
mod recover;
mod validate;

use std::sync::atomic::Ordering;

use gabion_blocks::{Block, BlockError, PAGES_PER_BLOCK, WORDS_PER_PAGE, make_room};

pub(crate) use self::recover::Marks;
use crate::class::{CLASSES, geometry};
use crate::descriptor::ORDINAL_WORD;
use crate::error::HeapError;
use crate::ground::Ground;
use crate::loc::Loc;
use crate::page::{Page, PageSlot, Taken};
use crate::shelf::{ACTIVE, List, NONE, PageMeta, QUARTERS, Shelf, link, quarter, unlink, walk};

/// A page of slots of which few are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SparsePage {
    /// The block's number.
    pub number: u32,
    /// Which page of the block it is.
    pub page: usize,
    /// The class of its slots.
    pub class: usize,
    /// Slots that are taken, in whole or in part.
    pub taken: u16,
    /// Slots that there are.
    pub slots: u16,
}

/// The class of each page of a block; `None` for one that is not a page of slots in use.
pub type BlockPages = [Option<u8>; PAGES_PER_BLOCK];

/// What a slot that was freed leaves to do.
#[derive(Debug)]
#[must_use]
pub enum Freed {
    /// Nothing.
    Listed,
    /// Its page has another place among the others by now.
    Unlisted(Unlisted),
}

/// A page that is to be listed anew, before anything else is done with its heap.
#[derive(Debug)]
pub struct Unlisted(u32);

/// How many classes up from its own a body is looked for among the annexes.
pub(crate) const ANNEX_REACH: usize = 3;

/// A block of this heap. Bit *p* stands for page *p*.
#[derive(Debug, Clone, Copy)]
struct SlotBlock {
    number: u32,
    /// Pages not in use.
    free: u64,
    /// Free pages whose memory this heap does not keep. They read as zero, unless the pool has it still: then they are
    /// warm, as `BlockSet::claim` tells who takes them.
    unkept: u64,
    /// Whether page 0 is free, and its memory is not this heap's to give back, except for the header: `unkept` says
    /// nothing of it.
    header_only: bool,
}

pub(crate) struct Slots {
    shard: u32,
    head: fn(u32) -> u64,
    /// By ordinal, the block's place in this heap; the block's header carries it.
    blocks: Vec<SlotBlock>,
    /// `ordinal × 64 + page`
    pages: Vec<PageMeta>,
    shelves: [Shelf; CLASSES],
    free_pages: u64,
    used_pages: u64,
    /// Free pages of which the heap keeps the memory.
    warm_pages: u64,
    /// No block below this ordinal has a free page.
    first_free: usize,
}

impl Slots {
    pub fn new(shard: u32, head: fn(u32) -> u64) -> Self {
        Self {
            shard,
            head,
            blocks: Vec::new(),
            pages: Vec::new(),
            shelves: [Shelf::EMPTY; CLASSES],
            free_pages: 0,
            used_pages: 0,
            warm_pages: 0,
            first_free: 0,
        }
    }

    #[inline(always)]
    pub fn take<'a>(&mut self, ground: Ground<'a>, class: usize) -> Result<(Block<'a>, Loc), HeapError> {
        let found = self.next_whole(ground, class)?;
        found.page.mark(found.index, Taken { head: true, body: true });
        Ok(found.place())
    }

    /// Takes a body of `class`, or of the next ones: `reach` classes in all.
    pub fn take_body<'a>(
        &mut self,
        ground: Ground<'a>,
        class: usize,
        reach: usize,
    ) -> Result<(Block<'a>, Loc), HeapError> {
        // A body somewhat larger that stands empty anyway is cheaper than a slot whose head nobody will use.
        let near = class..(class + reach).min(CLASSES);
        let Some(class) = near.into_iter().find(|&class| self.shelves[class].annexes != NONE) else {
            let found = self.next_whole(ground, class)?;
            found.page.mark(found.index, Taken { head: false, body: true });
            return Ok(found.place());
        };
        let id = self.shelves[class].annexes;
        let (page, number) = self.page(ground, id, class);
        let Some(word) = (0..page.shape.bitmap as usize).find(|&word| page.annexes(word) != 0) else {
            debug_assert!(ground.blocks.file().is_some(), "a page listed for annexes has one");
            // Another program has written to the file: nothing of the page is let any more.
            self.pages[id as usize].annex = 0;
            self.relist_annex(id, class);
            return self.take_body(ground, class, reach);
        };
        let index = word * 64 + page.annexes(word).trailing_zeros() as usize;
        page.mark(index, Taken { head: true, body: true });
        self.pages[id as usize].annex -= 1;
        self.relist_annex(id, class);
        Ok(Found { page, number, index }.place())
    }

    pub fn take_own_body(&mut self, ground: Ground<'_>, slot: Loc) -> Result<(), HeapError> {
        let (id, page, index) = self.find(ground, slot)?;
        if page.taken(index) != (Taken { head: true, body: false }) {
            return Err(HeapError::NotTaken);
        }
        page.mark(index, Taken { head: true, body: true });
        self.pages[id as usize].annex -= 1;
        self.relist_annex(id, self.class_of(id));
        Ok(())
    }

    pub fn free(&mut self, ground: Ground<'_>, slot: Loc, head: bool, body: bool) -> Result<(), HeapError> {
        let (id, page, index) = self.find(ground, slot)?;
        let before = page.taken(index);
        if (head && !before.head) || (body && !before.body) {
            return Err(HeapError::NotTaken);
        }
        let after = Taken { head: before.head && !head, body: before.body && !body };
        page.mark(index, after);
        let class = self.class_of(id);
        let meta = &mut self.pages[id as usize];
        let annex = |taken: Taken| u16::from(taken.head && !taken.body);
        meta.annex = meta.annex + annex(after) - annex(before);
        meta.whole += u32::from(!after.head && !after.body);
        let leaves = meta.whole >= u32::from(meta.until) || meta.is_done(page.shape.slots.into());
        if annex(after) != annex(before) {
            self.relist_annex(id, class);
        }
        if leaves {
            self.relist_whole(ground, id, class);
        }
        Ok(())
    }

    pub fn retire(&mut self, ground: Ground<'_>, slot: Loc, body: bool) -> Result<(), HeapError> {
        let (id, page, index) = self.find(ground, slot)?;
        let taken = page.taken(index);
        if !taken.head || (body && !taken.body) {
            return Err(HeapError::NotTaken);
        }
        self.pages[id as usize].retired += 1;
        if body {
            self.free(ground, slot, false, true)?;
        }
        let meta = self.pages[id as usize];
        // A listed page is empty that much earlier now.
        if meta.quarter.is_some() || meta.is_done(page.shape.slots.into()) {
            self.relist_whole(ground, id, self.class_of(id));
        }
        Ok(())
    }

    /// Frees a slot of which all is taken; `None`, and nothing is changed, when that is not so.
    #[inline(always)]
    pub fn free_whole(&mut self, block: Block<'_>, page: usize, slot: PageSlot) -> Option<Freed> {
        // Relaxed: written once, when the block became this heap's.
        let ordinal = block.word(ORDINAL_WORD).load(Ordering::Relaxed) as usize;
        let id = ordinal * PAGES_PER_BLOCK + page;
        let meta = self.pages.get_mut(id).filter(|meta| meta.class == Some(slot.class() as u8))?;
        let (page, index) = Page::of(block, page, slot);
        if !page.free_whole(index) {
            return None;
        }
        meta.whole += 1;
        Some(if meta.whole < u32::from(meta.until) { Freed::Listed } else { Freed::Unlisted(Unlisted(id as u32)) })
    }

    /// Does for a page what [`Slots::free_whole`] left to do.
    pub fn relist_page(&mut self, ground: Ground<'_>, Unlisted(page): Unlisted) {
        self.relist_whole(ground, page, self.class_of(page));
    }

    /// As [`Slots::take`], when the shelf has a slot at hand.
    #[inline(always)]
    pub fn take_ready<'a>(&mut self, ground: Ground<'a>, class: usize) -> Option<(Block<'a>, Loc)> {
        let found = self.next_ready(ground, class)?;
        found.page.mark(found.index, Taken { head: true, body: true });
        Some(found.place())
    }

    /// The next whole-free slot of a class, taken off the active page's count but not yet marked.
    #[inline(always)]
    fn next_whole<'a>(&mut self, ground: Ground<'a>, class: usize) -> Result<Found<'a>, HeapError> {
        loop {
            if let Some(found) = self.next_ready(ground, class) {
                return Ok(found);
            }
            self.refill(ground, class)?;
        }
    }

    /// The next whole-free slot of the bitmap word that the shelf's cursor stands at.
    #[inline(always)]
    fn next_ready<'a>(&mut self, ground: Ground<'a>, class: usize) -> Option<Found<'a>> {
        let shelf = &mut self.shelves[class];
        if shelf.mask == 0 {
            return None;
        }
        let index = shelf.word as usize * 64 + shelf.mask.trailing_zeros() as usize;
        shelf.mask &= shelf.mask - 1;
        let (id, next) = (shelf.active, shelf.mask);
        let (page, number) = self.page(ground, id, class);
        self.pages[id as usize].whole -= 1;
        // The next one's word will be read before anything is written to it: time enough until then.
        page.prefetch_slot(index - index % 64 + next.trailing_zeros() as usize);
        Some(Found { page, number, index })
    }

    /// Moves the shelf's cursor to the next bitmap word with whole-free slots, on another page if need be.
    #[cold]
    fn refill(&mut self, ground: Ground<'_>, class: usize) -> Result<(), HeapError> {
        let id = self.shelves[class].active;
        if id != NONE && self.pages[id as usize].whole > 0 {
            let (page, _) = self.page(ground, id, class);
            let words = page.shape.bitmap as usize;
            let start = self.shelves[class].word as usize + 1;
            for step in 0..words {
                let word = (start + step) % words;
                let mask = page.whole(word);
                if mask != 0 {
                    self.shelves[class].word = word as u16;
                    self.shelves[class].mask = mask;
                    return Ok(());
                }
            }
            debug_assert!(ground.blocks.file().is_some(), "a page with whole-free slots has one in some word");
            // Another program has written to the file: nothing of the page is given out any more.
            self.pages[id as usize].whole = 0;
        }
        let next = match (0..QUARTERS).rev().find(|&quarter| self.shelves[class].quarters[quarter] != NONE) {
            Some(quarter) => {
                let id = self.shelves[class].quarters[quarter];
                unlink(&mut self.pages, List::Whole, &mut self.shelves[class].quarters[quarter], id);
                self.pages[id as usize].quarter = None;
                id
            }
            None => self.form_page(ground, class)?,
        };
        let (page, _) = self.page(ground, next, class);
        self.pages[next as usize].until = ACTIVE;
        let shelf = &mut self.shelves[class];
        shelf.active = next;
        // The cursor moves on by one before it looks: starting at the last word makes word 0 the first.
        shelf.word = page.shape.bitmap - 1;
        if id != NONE {
            self.leave(ground, id, class);
        }
        Ok(())
    }

    /// Lets a page go that was being filled.
    fn leave(&mut self, ground: Ground<'_>, id: u32, class: usize) {
        let meta = &mut self.pages[id as usize];
        // If it is full, one slot that becomes free puts it on a list again.
        meta.until = 1;
        let slots = geometry(class, id as usize % PAGES_PER_BLOCK).slots;
        if meta.whole > 0 || meta.is_done(slots.into()) {
            self.relist_whole(ground, id, class);
        }
    }

    /// Lists a page that nothing is handed out from under its fullness, or gives it back when it is empty.
    #[cold]
    fn relist_whole(&mut self, ground: Ground<'_>, id: u32, class: usize) {
        let meta = self.pages[id as usize];
        let slots = u32::from(geometry(class, id as usize % PAGES_PER_BLOCK).slots);
        debug_assert!(self.shelves[class].active != id);
        if let Some(old) = meta.quarter {
            unlink(&mut self.pages, List::Whole, &mut self.shelves[class].quarters[old as usize], id);
        }
        if meta.is_done(slots) {
            // Retired slots go with their page: none is formed where it was, because the block is worn out.
            self.pages[id as usize].annex = 0;
            self.relist_annex(id, class);
            self.release_page(ground, id);
            return;
        }
        let quarter = quarter(slots - meta.whole, slots);
        self.pages[id as usize].quarter = Some(quarter as u8);
        self.pages[id as usize].until = meta.listed_until(quarter, slots);
        link(&mut self.pages, List::Whole, &mut self.shelves[class].quarters[quarter], id);
    }

    /// Lists a page for its annexes, or takes it off the list.
    fn relist_annex(&mut self, id: u32, class: usize) {
        let meta = &mut self.pages[id as usize];
        let wanted = meta.annex > 0;
        if wanted == meta.listed_annex {
            return;
        }
        meta.listed_annex = wanted;
        let first = &mut self.shelves[class].annexes;
        if wanted {
            link(&mut self.pages, List::Annex, first, id);
        } else {
            unlink(&mut self.pages, List::Annex, first, id);
        }
    }

    /// Lets the active pages go, so that empty ones are free.
    pub fn release_active(&mut self, ground: Ground<'_>) {
        for class in 0..CLASSES {
            let id = self.shelves[class].active;
            if id != NONE {
                self.shelves[class].active = NONE;
                self.shelves[class].mask = 0;
                self.leave(ground, id, class);
            }
        }
    }

    pub fn pages(&self) -> impl Iterator<Item = (u32, usize, usize)> {
        self.pages.iter().enumerate().filter_map(|(id, meta)| {
            let class = meta.class? as usize;
            Some((self.blocks[id / PAGES_PER_BLOCK].number, id % PAGES_PER_BLOCK, class))
        })
    }

    /// The number of a block and the class of each of its pages; see [`Heap::block_pages`](crate::Heap::block_pages).
    pub fn block_pages(&self, ordinal: usize) -> Option<(u32, BlockPages)> {
        let pages = self.pages.get(ordinal * PAGES_PER_BLOCK..)?.first_chunk::<PAGES_PER_BLOCK>()?;
        Some((self.blocks[ordinal].number, pages.each_ref().map(|page| page.class)))
    }

    /// Adds the bitmap of the heads that are taken in a page in use; see [`Heap::note_heads`](crate::Heap::note_heads).
    pub fn note_heads(
        &self,
        ground: Ground<'_>,
        (ordinal, page): (usize, usize),
        heads: &mut Vec<u64>,
    ) -> Result<bool, BlockError> {
        let id = ordinal * PAGES_PER_BLOCK + page;
        let (page, _) = self.page(ground, id as u32, self.class_of(id as u32));
        let words = 0..page.shape.bitmap as usize;
        if words.clone().all(|word| page.heads(word) == page.shape.valid(word)) {
            return Ok(false);
        }
        make_room(heads, words.len())?;
        heads.extend(words.map(|word| page.heads(word)));
        Ok(true)
    }

    /// A page with few slots taken, among the first of each list, from the emptiest quarter on. Pages of class 0 are
    /// left out, those that are being filled, and those that do not `suit`. `movable`: only where other pages have room
    /// for what is in it.
    pub fn sparse_page(&self, movable: bool, suit: impl Fn(&SparsePage) -> bool) -> Option<SparsePage> {
        const LOOKED_AT: usize = 4;
        const ASKED: usize = 64;
        let room = |class: usize| {
            let shelf = &self.shelves[class];
            let active = if shelf.active == NONE { 0 } else { self.pages[shelf.active as usize].whole as usize };
            let lists = shelf.quarters.iter().flat_map(|&first| walk(&self.pages, List::Whole, first).take(ASKED));
            active + lists.map(|id| self.pages[id as usize].whole as usize).sum::<usize>()
        };
        let of = |id: u32, class: usize| {
            let (page, whole) = (id as usize % PAGES_PER_BLOCK, self.pages[id as usize].whole);
            let slots = geometry(class, page).slots;
            let number = self.blocks[id as usize / PAGES_PER_BLOCK].number;
            SparsePage { number, page, class, taken: slots - whole as u16, slots }
        };
        // What is in the page must find room beside the page's own.
        let fits = |page: &SparsePage| suit(page) && (!movable || room(page.class) >= usize::from(page.slots));
        (0..QUARTERS).find_map(|quarter| {
            let listed = |class: usize| {
                let first = self.shelves[class].quarters[quarter];
                walk(&self.pages, List::Whole, first).take(LOOKED_AT).map(move |id| of(id, class)).filter(fits)
            };
            (1..CLASSES).flat_map(listed).min_by_key(|page| (u32::from(page.taken) << 16) / u32::from(page.slots))
        })
    }

    pub fn blocks(&self) -> impl Iterator<Item = u32> {
        self.blocks.iter().filter(|entry| entry.free != u64::MAX).map(|entry| entry.number)
    }

    pub fn page_count(&self) -> u64 {
        self.used_pages
    }

    pub fn block_count(&self) -> u64 {
        self.blocks.len() as u64
    }

    fn class_of(&self, id: u32) -> usize {
        self.pages[id as usize].class.expect("a page in use") as usize
    }

    #[inline]
    fn page<'a>(&self, ground: Ground<'a>, id: u32, class: usize) -> (Page<'a>, u32) {
        let number = self.blocks[id as usize / PAGES_PER_BLOCK].number;
        let block = ground.blocks.block(number).expect("a block of this heap");
        (Page::new(block, id as usize % PAGES_PER_BLOCK, class), number)
    }

    /// The class of a slot and what of it is taken, as far as its block says; `None` where the block leads to none of
    /// this heap's slots.
    pub fn taken(&self, ground: Ground<'_>, slot: Loc) -> Option<(usize, Taken)> {
        let (id, page, index) = self.find(ground, slot).ok()?;
        let is_own = self.blocks[id as usize / PAGES_PER_BLOCK].number == slot.number();
        is_own.then(|| (self.class_of(id), page.taken(index)))
    }

    /// The page and index of a slot.
    #[inline]
    fn find<'a>(&self, ground: Ground<'a>, slot: Loc) -> Result<(u32, Page<'a>, usize), HeapError> {
        let block = ground.blocks.block(slot.number()).ok_or(HeapError::NotTaken)?;
        let ordinal = block.word(ORDINAL_WORD).load(Ordering::Relaxed) as usize;
        let id = ordinal * PAGES_PER_BLOCK + slot.page();
        let class = self.pages.get(id).and_then(|meta| meta.class).ok_or(HeapError::NotTaken)?;
        let page = Page::new(block, slot.page(), class as usize);
        let index = page.shape.index_of(slot.word() % WORDS_PER_PAGE).ok_or(HeapError::NotTaken)?;
        Ok((id as u32, page, index))
    }
}

/// A slot on its way out.
struct Found<'a> {
    page: Page<'a>,
    number: u32,
    index: usize,
}

impl<'a> Found<'a> {
    #[inline]
    fn place(&self) -> (Block<'a>, Loc) {
        (self.page.block, Loc::new(self.number, self.page.base + self.page.shape.word_of(self.index)))
    }
}
