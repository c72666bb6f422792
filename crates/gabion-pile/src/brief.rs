//! Reading objects by their place, for an owner who does little else.
//!
//! A row of reads at random is as fast as the processor sees the next ones' lines ahead, and it looks some hundred
//! instructions ahead. So what is here takes few: it knows beforehand where words lie, and leaves what is not nearly
//! always so to a [`Glance`](crate::Glance).

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use gabion_blocks::{copy_out, prefetch};
use gabion_heap::{CLASSES, Descriptor, MAX_SLOT_WORDS, Turns, slot_words};

use crate::buf::ReadBuf;
use crate::place::{IndexedPile, Place};
use crate::protocol::unchanged_while;
use crate::word::{MOST_LENGTH, Word};

/// Words from a slot's first on that a brief glance may look at: the slot and, because what is taken for a payload may
/// be anything, as many as its length could say.
const REACH: usize = 1 + MOST_LENGTH.div_ceil(8);
const _: () = assert!(REACH >= MAX_SLOT_WORDS);

/// The last word of a class's slots, counted from their first; of what is no class, 0.
static LAST_WORD: [u8; Descriptor::CLASS_NUMBERS] = {
    let mut table = [0; Descriptor::CLASS_NUMBERS];
    let mut class = 0;
    while class < CLASSES {
        table[class] = (slot_words(class) - 1) as u8;
        class += 1;
    }
    table
};

/// A payload that lay in its slot when it was looked at. As a [`Glance`](crate::Glance), but not of the last slots of a
/// block.
#[derive(Clone, Copy)]
pub struct BriefGlance<'a> {
    words: &'a [AtomicU64; REACH],
    word: Word,
    turns: (&'a Turns, u64),
}

impl IndexedPile {
    /// Looks at the payload at a place without a lock. The place may be out of date: what was seen is worth something
    /// if [`BriefGlance::holds`] says so. `None` says nothing: ask [`IndexedPile::glance`].
    #[inline(always)]
    pub fn brief_glance(&self, place: Place) -> Option<BriefGlance<'_>> {
        let place = place.to_loc();
        let turns = (&self.turns, self.turns.before());
        let block = self.blocks.block(place.number())?;
        let words = block.stretch(place.word())?;
        // Before the slot's first word says how long the payload is, its end is asked for: it may lie two lines on.
        // Relaxed: only a hint, whatever it says.
        let class = Descriptor::from_bits(Descriptor::of(block, place.page()).load(Relaxed)).class();
        prefetch(&raw const words[usize::from(LAST_WORD[class])]);
        // Acquire: pairs with the commit, so that the payload is seen too.
        let word = Word(words[0].load(Acquire));
        word.length_here().map(|_| BriefGlance { words, word, turns })
    }
}

impl<'a> BriefGlance<'a> {
    /// One of the payload's words. An index beyond the payload gives some other word of the block.
    ///
    /// # Panics
    /// When it is far beyond any payload in a slot.
    #[inline(always)]
    pub fn word(&self, index: usize) -> &'a AtomicU64 {
        &self.words[1 + index]
    }

    /// Bytes of the payload.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.word.length()
    }

    /// True when the payload has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies the payload from its word `first` on into `buf`, where it is the payload read last. False, and nothing is
    /// copied, when `buf` has to grow for it, or the payload has less than `8 × first` bytes, as what was taken for one
    /// may have.
    #[inline(always)]
    pub fn copy(&self, first: usize, buf: &mut ReadBuf) -> bool {
        let Some(length) = self.len().checked_sub(8 * first) else { return false };
        // Not `div_ceil`, which does not overflow, and takes thrice as long.
        let Some(words) = self.words.get(1 + first..1 + ((self.len() + 7) >> 3)) else { return false };
        let Some(room) = buf.room_at_hand(length, words.len()) else { return false };
        copy_out(words, room);
        true
    }

    /// As [`Glance::holds`](crate::Glance::holds).
    #[inline(always)]
    pub fn holds(&self, linked: impl FnOnce() -> bool) -> bool {
        // Where the owner's index leads now, a slot is. With no page turned since the first look it was one then, too,
        // and its word one that never comes back. So an owner takes out what leads to a place before the place is
        // freed.
        let (turns, before) = self.turns;
        unchanged_while(linked, [(self.words, 0, self.word.0)]) && turns.stands(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pile;

    #[test]
    fn a_brief_glance_copies_what_a_glance_copies_or_nothing() {
        let pile = IndexedPile::from(Pile::new().unwrap());
        for length in [0, 1, 8, 75, 80, 1016] {
            let payload: Vec<u8> = (0..length).map(|at| at as u8).collect();
            let place = pile.put(&payload).unwrap().to_place();
            let (brief, glance) = (pile.brief_glance(place).unwrap(), pile.glance(place).unwrap());
            for first in 0..=length / 8 {
                let (mut fresh, mut buf) = (ReadBuf::new(), ReadBuf::new());
                assert_eq!(brief.copy(first, &mut fresh), length == 8 * first, "a fresh buffer has no room");
                assert!(glance.copy(first, &mut buf));
                assert_eq!(buf.payload(), &payload[8 * first..]);
                assert!(brief.copy(first, &mut buf) && brief.holds(|| true));
                assert_eq!((buf.copied(0), buf.payload()), (&payload[8 * first..], &payload[8 * first..]));
            }
        }
        // What is taken for a payload may be shorter than what the owner wants to leave out.
        let (short, mut buf) = (pile.put(&[1; 5]).unwrap().to_place(), ReadBuf::new());
        buf.take_room(5000).unwrap();
        let brief = pile.brief_glance(short).unwrap();
        assert!((1..4).all(|first| !brief.copy(first, &mut buf)));
        assert_eq!(buf.payload().len(), 5000, "nothing was read");
        let far = pile.put(&[7; 5000]).unwrap().to_place();
        assert!(pile.brief_glance(far).is_none());
    }

    #[test]
    fn a_glance_does_not_hold_once_any_page_was_put_to_another_use() {
        let pile = IndexedPile::from(Pile::new().unwrap());
        let place = pile.put(&[1; 40]).unwrap().to_place();
        let glance = pile.brief_glance(place).unwrap();
        pile.put(&[2; 40]).unwrap();
        assert!(glance.holds(|| true), "a page that was in use is as it was");
        assert!(!glance.holds(|| false));
        pile.put(&[3; 200]).unwrap();
        assert!(!glance.holds(|| true), "a page got slots of another size");
        assert!(pile.brief_glance(place).unwrap().holds(|| true));
    }

    #[test]
    fn the_last_slots_of_a_block_are_for_longer_looks() {
        let pile = IndexedPile::from(Pile::new().unwrap());
        let places: Vec<_> = (0..5000).map(|_| pile.put(&[1; 1000]).unwrap().to_place()).collect();
        let brief = places.iter().filter(|&&place| pile.brief_glance(place).is_some()).count();
        assert!(places.iter().all(|&place| pile.glance(place).is_some()));
        // One that wants to leave out more than there is gets nothing, even where the block has ended.
        let mut buf = ReadBuf::new();
        for &place in &places {
            assert!(pile.glance(place).unwrap().copy(200, &mut buf) && buf.payload().is_empty());
        }
        assert!(brief < places.len() && brief > places.len() * 99 / 100, "{brief} of {}", places.len());
    }
}
