//! Iteration over pointers, beside running writers.

use std::iter::FusedIterator;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use gabion_blocks::{Block, PAGES_PER_BLOCK};
use gabion_heap::{BlockPages, Descriptor, Kind, Loc, slots_from};

use crate::pile::Pile;
use crate::pointer::Pointer;
use crate::word::{State, Word};

/// The pointers of a pile's objects. Yields every object that is there from beginning to end exactly once; one that is
/// put or removed meanwhile may or may not be seen. Takes a shard's lock for a moment for each of its blocks, and needs
/// no memory.
#[derive(Debug, Clone)]
#[must_use = "nothing is looked for before it is asked"]
pub struct Pointers<'a> {
    pile: &'a Pile,
    cursor: Cursor,
}

/// How many slots are looked at in one go.
const GO: usize = 32;

/// A place in an iteration, to be kept apart from the pile. A clone goes on from the same place by itself.
#[derive(Debug, Clone)]
pub struct Cursor {
    shard: usize,
    /// The next block of the shard.
    ordinal: usize,
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
        Self { shard: 0, ordinal: 0, block, page: PAGES_PER_BLOCK, slot: 0, found, left: 0 }
    }
}

impl Pile {
    /// The pointers of all objects, in no particular order: what `for pointer in &pile` goes through.
    ///
    /// ```
    /// # let pile = gabion_pile::Pile::new()?;
    /// for payload in [b"sand", b"clay"] {
    ///     pile.put(payload, 0)?;
    /// }
    /// for pointer in &pile {
    ///     assert_eq!(pile.size_of(pointer)?, 4);
    /// }
    /// assert_eq!(pile.pointers().count(), 2);
    /// # Ok::<(), gabion_pile::PileError>(())
    /// ```
    pub fn pointers(&self) -> Pointers<'_> {
        Pointers { pile: self, cursor: Cursor::default() }
    }

    /// The next pointer after a cursor: [`Pile::pointers`] for callers that cannot hold a borrow.
    #[inline]
    pub fn next_pointer(&self, cursor: &mut Cursor) -> Option<Pointer> {
        if cursor.left == 0 && !self.look_further(cursor) {
            return None;
        }
        cursor.left -= 1;
        cursor.found[cursor.left]
    }

    /// Goes on until something is found; false at the end.
    fn look_further(&self, cursor: &mut Cursor) -> bool {
        while cursor.left == 0 {
            if cursor.page == PAGES_PER_BLOCK {
                let Some(shard) = self.shards().get(cursor.shard) else { return false };
                let next = shard.lock().heap.block_pages(cursor.ordinal);
                if let Some(block) = next {
                    (cursor.ordinal, cursor.block, cursor.page) = (cursor.ordinal + 1, block, 0);
                } else {
                    (cursor.shard, cursor.ordinal) = (cursor.shard + 1, 0);
                }
                continue;
            }
            let (number, classes) = cursor.block;
            let begins = (cursor.page, cursor.slot);
            let slots = match (classes[cursor.page], self.blocks.block(number)) {
                (Some(class), Some(block)) => Self::find_live(block, class.into(), begins, &mut cursor.found),
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

    /// Finds the live pointers among the next slots of a page, the first of them last. Returns how many; `None` behind
    /// the last slot, and when the page has another use: what was there is gone, and what is there now came after the
    /// begin.
    fn find_live(
        block: Block<'_>,
        class: usize,
        (page, first): (usize, usize),
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
            slots += 1;
            if word.state() != State::Free {
                found[count] = Some(Pointer::new(Loc::new(block.number(), at), word.generation()));
                count += 1;
            }
        }
        found[..count].reverse();
        (slots > 0).then_some(count)
    }
}

impl Iterator for Pointers<'_> {
    type Item = Pointer;

    fn next(&mut self) -> Option<Pointer> {
        self.pile.next_pointer(&mut self.cursor)
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
