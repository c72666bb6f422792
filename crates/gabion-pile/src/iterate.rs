//! Iteration over pointers, beside running writers.

use std::iter::FusedIterator;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use gabion_blocks::{Block, BlockError, PAGES_PER_BLOCK, make_room};
use gabion_heap::{BlockPages, Descriptor, Kind, Loc, slots_from};

use crate::pile::Pile;
use crate::pointer::Pointer;
use crate::word::{State, Word};

/// The pointers of a pile's objects. Yields every object that is there from beginning to end exactly once, and none
/// that is put meanwhile, unless it takes the place of one that was removed meanwhile. One that is removed meanwhile
/// may or may not be seen. Takes a shard's lock for a moment for each of its blocks.
///
/// The first step takes [a note](Pile::note) of what there is. Where there is no memory for it, objects that are put
/// meanwhile may be seen as [`Pile::next_pointer`] sees them.
#[derive(Debug, Clone)]
#[must_use = "nothing is looked for before it is asked"]
pub struct Pointers<'a> {
    pile: &'a Pile,
    cursor: Cursor,
    /// `None` before the first step.
    noted: Option<Result<Noted, BlockError>>,
}

/// Where a pile's objects were at one moment: what an iteration goes through that passes over later ones. Takes a bit
/// for each slot of a page that had room then, and some hundred bytes for each block.
#[derive(Debug, Clone, Default)]
pub struct Noted {
    blocks: Vec<NotedBlock>,
    /// Bitmaps of heads, page by page.
    heads: Vec<u64>,
}

#[derive(Debug, Clone)]
struct NotedBlock {
    number: u32,
    pages: BlockPages,
    /// Where in `heads` the bits of each page begin; [`FULL`] for a page that had no room.
    heads: [usize; PAGES_PER_BLOCK],
}

/// No slot of the page was free.
const FULL: usize = usize::MAX;

/// How many slots are looked at in one go.
const GO: usize = 32;

/// A place in an iteration, to be kept apart from the pile. A clone goes on from the same place by itself.
#[derive(Debug, Clone)]
pub struct Cursor {
    shard: usize,
    /// The next block of the shard, and how many it had when the iteration came to it.
    ordinal: usize,
    blocks: usize,
    /// The block that is being walked: its number, and the class of each of its pages.
    block: (u32, BlockPages),
    /// The next slot: its page, and which of the page's it is.
    page: usize,
    slot: usize,
    /// What the last go has found: the last of so many is the next.
    found: [Option<Pointer>; GO],
    left: usize,
}

impl Default for Cursor {
    fn default() -> Self {
        let (block, found) = ((0, [None; PAGES_PER_BLOCK]), [None; GO]);
        Self { shard: 0, ordinal: 0, blocks: 0, block, page: PAGES_PER_BLOCK, slot: 0, found, left: 0 }
    }
}

impl Pile {
    /// The pointers of all objects, in no particular order: what `for pointer in &pile` goes through.
    ///
    /// ```
    /// # let pile = gabion_pile::Pile::new()?;
    /// for payload in [b"sand", b"clay"] {
    ///     pile.put(payload)?;
    /// }
    /// for pointer in &pile {
    ///     assert_eq!(pile.size_of(pointer)?, 4);
    /// }
    /// assert_eq!(pile.pointers().count(), 2);
    /// # Ok::<(), gabion_pile::PileError>(())
    /// ```
    pub fn pointers(&self) -> Pointers<'_> {
        Pointers { pile: self, cursor: Cursor::default(), noted: None }
    }

    /// The next pointer after a cursor, for callers that cannot hold a borrow, without any memory.
    ///
    /// As [`Pile::pointers`], but that an object which is put meanwhile may be seen where it comes to lie in a block
    /// that the pile had already. So the iteration ends, whatever its caller puts.
    #[inline]
    pub fn next_pointer(&self, cursor: &mut Cursor) -> Option<Pointer> {
        self.next(cursor, None)
    }

    /// Notes which objects there are, for [`Pile::next_noted`]. Takes a shard's lock for a moment for each of its
    /// blocks, and looks at each page's bitmap.
    ///
    /// # Errors
    /// [`BlockError::Refused`].
    pub fn note(&self) -> Result<Noted, BlockError> {
        let mut noted = Noted::default();
        for shard in self.shards() {
            let blocks = shard.lock().heap.slot_blocks().count();
            make_room(&mut noted.blocks, blocks)?;
            for ordinal in 0..blocks {
                let heap = &shard.lock().heap;
                let Some((number, pages)) = heap.block_pages(ordinal) else { break };
                let mut block = NotedBlock { number, pages, heads: [FULL; PAGES_PER_BLOCK] };
                for page in (0..PAGES_PER_BLOCK).filter(|&page| pages[page].is_some()) {
                    let begin = noted.heads.len();
                    if heap.note_heads(self.ground(), (ordinal, page), &mut noted.heads)? {
                        block.heads[page] = begin;
                    }
                }
                noted.blocks.push(block);
            }
        }
        Ok(noted)
    }

    /// As [`Pile::next_pointer`], of the objects that were there when the note was taken. An object that was put since
    /// is seen only in the place of one that was removed since. One note serves any number of cursors, each from its
    /// beginning on.
    #[inline]
    pub fn next_noted(&self, cursor: &mut Cursor, noted: &Noted) -> Option<Pointer> {
        self.next(cursor, Some(noted))
    }

    #[inline]
    fn next(&self, cursor: &mut Cursor, noted: Option<&Noted>) -> Option<Pointer> {
        if cursor.left == 0 && !self.look_further(cursor, noted) {
            return None;
        }
        cursor.left -= 1;
        cursor.found[cursor.left]
    }

    /// Goes on until something is found; false at the end.
    fn look_further(&self, cursor: &mut Cursor, noted: Option<&Noted>) -> bool {
        while cursor.left == 0 {
            if cursor.page == PAGES_PER_BLOCK {
                let next = match noted {
                    None => self.next_block(cursor),
                    Some(noted) => noted.blocks.get(cursor.ordinal).map(|block| (block.number, block.pages)),
                };
                let Some(block) = next else { return false };
                (cursor.ordinal, cursor.block, cursor.page) = (cursor.ordinal + 1, block, 0);
            }
            let (number, classes) = cursor.block;
            let begins = (cursor.page, cursor.slot);
            let heads = noted.map_or(u64::MAX, |noted| noted.heads(cursor.ordinal - 1, begins));
            let slots = match (classes[cursor.page], self.blocks.block(number)) {
                (Some(class), Some(block)) => Self::find_live(block, class.into(), begins, heads, &mut cursor.found),
                _ => None,
            };
            if let Some(found) = slots {
                (cursor.slot, cursor.left) = (cursor.slot + GO, found);
            } else {
                (cursor.page, cursor.slot) = (cursor.page + 1, 0);
            }
        }
        true
    }

    /// The next block, of those that a shard had when the iteration came to it.
    fn next_block(&self, cursor: &mut Cursor) -> Option<(u32, BlockPages)> {
        loop {
            let heap = &self.shards().get(cursor.shard)?.lock().heap;
            if cursor.ordinal == 0 {
                cursor.blocks = heap.slot_blocks().count();
            }
            if cursor.ordinal < cursor.blocks
                && let Some(block) = heap.block_pages(cursor.ordinal)
            {
                return Some(block);
            }
            (cursor.shard, cursor.ordinal) = (cursor.shard + 1, 0);
        }
    }

    /// Finds the live pointers among the next slots of a page for which `heads` has a bit, the first of them last.
    /// Returns how many; `None` behind the last slot, and when the page has another use: what was there is gone, and
    /// what is there now came after the begin.
    fn find_live(
        block: Block<'_>,
        class: usize,
        (page, first): (usize, usize),
        heads: u64,
        found: &mut [Option<Pointer>; GO],
    ) -> Option<usize> {
        let (descriptor, mut count, mut slots) = (Descriptor::of(block, page), 0, 0);
        for at in slots_from(class, page, first).take(GO) {
            let word = loop {
                // Acquire: as in `Slot::find`.
                let seen = descriptor.load(Acquire);
                let now = Descriptor::from_bits(seen);
                if now.kind() != Kind::Slots || now.class() != class {
                    return None;
                }
                // Acquire: the second look at the descriptor comes after the word.
                let word = Word(block.word(at).load(Acquire));
                if descriptor.load(Relaxed) == seen {
                    break word;
                }
            };
            let counts = heads >> slots & 1 == 1;
            slots += 1;
            if counts && word.state() != State::Free {
                found[count] = Some(Pointer::new(Loc::new(block.number(), at), word.generation()));
                count += 1;
            }
        }
        found[..count].reverse();
        (slots > 0).then_some(count)
    }
}

impl Noted {
    /// A bit for each of the next slots of a page, from the lowest on: whether its head was taken.
    #[inline]
    fn heads(&self, block: usize, (page, first): (usize, usize)) -> u64 {
        const { assert!(64_usize.is_multiple_of(GO), "the slots of one go have their bits in one word") };
        match self.blocks[block].heads[page] {
            FULL => u64::MAX,
            // Behind the last slot there is no word of the page's.
            begin => self.heads.get(begin + first / 64).map_or(0, |heads| heads >> (first % 64)),
        }
    }
}

impl Iterator for Pointers<'_> {
    type Item = Pointer;

    fn next(&mut self) -> Option<Pointer> {
        let noted = self.noted.get_or_insert_with(|| self.pile.note());
        self.pile.next(&mut self.cursor, noted.as_ref().ok())
    }
}

// At the end the cursor stands behind the last shard, from where nothing is found any more.
impl FusedIterator for Pointers<'_> {}

#[expect(clippy::into_iter_without_iter, reason = "`Pile::pointers` says of what")]
impl<'a> IntoIterator for &'a Pile {
    type Item = Pointer;
    type IntoIter = Pointers<'a>;

    fn into_iter(self) -> Pointers<'a> {
        self.pointers()
    }
}
