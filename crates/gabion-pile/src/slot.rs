//! From a pointer to its slot, with everything checked that a forged pointer could get wrong.

use std::sync::atomic::Ordering::{Acquire, Relaxed};

use gabion_blocks::{Block, BlockSet};
use gabion_heap::{Descriptor, Kind, Loc, PageSlot};

use crate::error::{PileError, PointerFault};
use crate::pointer::Pointer;
use crate::word::{State, Word};

/// A slot that a pointer leads to. Whether the pointer's object still lives there is said by the word.
#[derive(Clone, Copy)]
pub(crate) struct Slot<'a> {
    pub block: Block<'a>,
    pub at: Loc,
    pub within: PageSlot,
    /// The page's descriptor as it was when the slot was found.
    pub descriptor: Descriptor,
}

impl<'a> Slot<'a> {
    /// Finds the slot and checks that it is one: our block, a page of slots, the start of a slot.
    #[inline]
    pub fn find(blocks: &'a BlockSet, pointer: Pointer) -> Result<Self, PileError> {
        let fault = |fault| PileError::pointer(pointer, fault);
        pointer.generation().ok_or_else(|| fault(PointerFault::Malformed))?;
        let block = blocks.block(pointer.place().number()).ok_or_else(|| fault(PointerFault::Elsewhere))?;
        Self::find_in(block, pointer)
    }

    /// As [`Slot::find`], in the block that the pointer names.
    #[inline]
    pub fn find_in(block: Block<'a>, pointer: Pointer) -> Result<Self, PileError> {
        let fault = |fault| PileError::pointer(pointer, fault);
        let at = pointer.place();
        // Acquire: pairs with the release in which the page was given its use.
        let descriptor = Descriptor::from_bits(Descriptor::of(block, at.page()).load(Acquire));
        if descriptor.kind() != Kind::Slots {
            return Err(fault(PointerFault::Elsewhere));
        }
        let within = PageSlot::at(descriptor.class(), at.word()).ok_or_else(|| fault(PointerFault::Misaligned))?;
        Ok(Self { block, at, within, descriptor })
    }

    /// Whether the page is still what it was when the slot was found.
    #[inline]
    pub fn stands(&self) -> bool {
        // Relaxed: asked under the shard's lock, which orders the descriptor's changes.
        Descriptor::of(self.block, self.at.page()).load(Relaxed) == self.descriptor.bits()
    }

    /// The word, if the pointer's object is live.
    #[inline]
    pub fn word(&self, pointer: Pointer) -> Result<Word, PileError> {
        // Acquire: pairs with the commit, so that the payload is seen too.
        let word = Word(self.block.word(self.at.word()).load(Acquire));
        if pointer.generation() != Some(word.generation()) || word.state() == State::Free {
            return Err(PileError::pointer(pointer, PointerFault::Stale));
        }
        Ok(word)
    }

    /// Finds the slot and its word, both of one moment.
    pub fn live(blocks: &'a BlockSet, pointer: Pointer) -> Result<(Self, Word), PileError> {
        loop {
            let slot = Self::find(blocks, pointer)?;
            let word = slot.word(pointer)?;
            // Relaxed: the word's acquire load keeps this one behind it. With another descriptor, what was taken for a
            // word may be some object's payload.
            if Descriptor::of(slot.block, slot.at.page()).load(Relaxed) == slot.descriptor.bits() {
                return Ok((slot, word));
            }
        }
    }

    /// Bytes that the slot's own body can hold.
    #[inline]
    pub fn capacity(&self) -> usize {
        (self.within.words() - 1) * 8
    }
}

/// Words that a guest needs besides its payload: the host's word and its own header.
pub(crate) const GUEST_WORDS: usize = 2;

/// Where the header of a payload that is away stands, as a word of its block.
#[inline]
pub(crate) fn guest_header(kind: Kind, at: Loc) -> usize {
    // In a slot the host's word comes first; in a chunk the guest has everything.
    if kind == Kind::Slots { at.word() + 1 } else { at.word() }
}
