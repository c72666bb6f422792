//! Pointers: what a caller holds of an object.

use std::fmt;

use gabion_heap::Loc;

/// Names one object of one pile: `generation (21 bits) | block number (20) | word (19)`, a number below 2⁶⁰.
///
/// The generation is checked on every use: a pointer to an object that was removed is refused even when its place has
/// been taken by another. Block numbers are the process's, so another pile's pointer is refused too. 0 is never valid.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pointer(u64);

impl Pointer {
    pub(crate) const GENERATION_BITS: u32 = 21;

    #[inline]
    pub(crate) fn new(at: Loc, generation: u32) -> Self {
        // One is added so that the first object at the first place is not pointer 0.
        Self((u64::from(generation) + 1) << Loc::BITS | at.bits())
    }

    /// Takes a number for a pointer. Any number may be given: use decides whether it is live.
    #[inline]
    pub fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The pointer as a number, to be kept wherever numbers are kept.
    #[inline]
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// The place, if the number could be a pointer at all.
    #[inline]
    pub(crate) fn place(self) -> Loc {
        Loc::from_bits(self.0)
    }

    /// As [`Pointer::generation`]; what no slot has for numbers that no pile ever gave out.
    #[inline(always)]
    pub(crate) fn wanted_generation(self) -> u64 {
        (self.0 >> Loc::BITS).wrapping_sub(1)
    }

    /// The generation that the slot must have. `None` for numbers that no pile ever gave out.
    #[inline]
    pub(crate) fn generation(self) -> Option<u32> {
        let bits = self.0 >> Loc::BITS;
        (1..1 << Self::GENERATION_BITS).contains(&bits).then(|| bits as u32 - 1)
    }
}

const _: () = assert!(Loc::BITS + Pointer::GENERATION_BITS == 60);

impl fmt::Debug for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // For numbers that no pile gave out, one that no slot has.
        let (at, generation) = (self.place(), self.wanted_generation());
        write!(f, "Pointer({} = block {} word {} generation {generation})", self.0, at.number(), at.word())
    }
}
