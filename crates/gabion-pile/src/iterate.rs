//! Iteration over pointers, beside running writers.

use std::sync::atomic::Ordering::{Acquire, Relaxed};

use gabion_heap::{Descriptor, Kind, Loc, slots_in_page};

use crate::pile::Pile;
use crate::pointer::Pointer;
use crate::word::{State, Word};

/// The pointers of a pile's objects. Yields every object that is there from beginning to end exactly once; one that is put
/// or removed meanwhile may or may not be seen. Takes each shard's lock once, for a list of its pages (24 bytes for
/// each 64 KiB of the pile), and none while it walks them.
#[derive(Debug)]
pub struct Pointers<'a> {
    pile: &'a Pile,
    cursor: Cursor,
}

/// A place in an iteration, to be kept apart from the pile.
#[derive(Debug, Default)]
pub struct Cursor {
    shard: usize,
    pages: Vec<(u32, usize, usize)>,
    found: Vec<Pointer>,
}

impl Pile {
    /// The pointers of all objects, in no particular order.
    pub fn pointers(&self) -> Pointers<'_> {
        Pointers { pile: self, cursor: Cursor::default() }
    }

    /// The next pointer after a cursor: [`Pile::pointers`] for callers that cannot hold a borrow.
    pub fn next_pointer(&self, cursor: &mut Cursor) -> Option<Pointer> {
        loop {
            if let Some(pointer) = cursor.found.pop() {
                return Some(pointer);
            }
            if let Some((number, page, class)) = cursor.pages.pop() {
                self.collect_page(number, page, class, &mut cursor.found);
            } else {
                let shard = self.shards().get(cursor.shard)?;
                cursor.shard += 1;
                cursor.pages.extend(shard.lock().heap.slot_pages());
                cursor.pages.reverse();
            }
        }
    }

    /// The live pointers of one page, last slot first.
    fn collect_page(&self, number: u32, page: usize, class: usize, found: &mut Vec<Pointer>) {
        let Some(block) = self.blocks.block(number) else { return };
        let descriptor = Descriptor::of(block, page);
        let begin = found.len();
        for at in slots_in_page(class, page) {
            let word = loop {
                // Acquire: as in `Slot::find`.
                let seen = descriptor.load(Acquire);
                let now = Descriptor::from_bits(seen);
                if now.kind() != Kind::Slots || now.class() != class {
                    // Put to another use meanwhile: what was there is gone, what is there now came after the begin.
                    found[begin..].reverse();
                    return;
                }
                // Acquire: the second look at the descriptor comes after the word.
                let word = Word(block.word(at).load(Acquire));
                if descriptor.load(Relaxed) == seen {
                    break word;
                }
            };
            if word.state() != State::Free {
                found.push(Pointer::new(Loc::new(number, at), word.generation()));
            }
        }
        found[begin..].reverse();
    }
}

impl Iterator for Pointers<'_> {
    type Item = Pointer;

    fn next(&mut self) -> Option<Pointer> {
        self.pile.next_pointer(&mut self.cursor)
    }
}
