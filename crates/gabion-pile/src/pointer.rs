//! Pointers: what a caller holds of an object.

use std::fmt;
use std::num::NonZeroU64;

use gabion_heap::Loc;

/// Names one object of one pile: `generation (20 bits) | block number (20) | word (19) | 1`, an odd number below 2⁶⁰.
///
/// The generation is checked on every use: a pointer to an object that was removed is refused even when its place has
/// been taken by another. Block numbers are the process's, so another pile's pointer is refused too. So is one that
/// went through an `f64` and lost digits there: what is rounded comes out even. 0 is no pointer: an `Option<Pointer>`
/// takes 8 bytes.
///
/// ```
/// use gabion_pile::{Pile, Pointer};
///
/// let pointer = Pile::new()?.put(b"stone")?;
/// let number = u64::from(pointer);
/// assert_eq!(Pointer::from_bits(number), Some(pointer));
/// assert_eq!(pointer.to_string(), number.to_string());
/// assert_eq!((Pointer::from_bits(0), size_of::<Option<Pointer>>()), (None, 8));
/// assert_eq!(number % 2, 1);
/// # Ok::<(), gabion_pile::PileError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pointer(NonZeroU64);

impl Pointer {
    pub(crate) const GENERATION_BITS: u32 = 20;
    const GENERATION_SHIFT: u32 = 1 + Loc::BITS;
    /// What stands above the place once the lowest bit is turned to the top: that bit, and the one that is added.
    const ABOVE: u64 = (1 << (u64::BITS - 1 - Loc::BITS)) + 1;

    #[inline]
    pub(crate) fn new(at: Loc, generation: u32) -> Self {
        // One is added so that the first object at the first place is not pointer 0.
        let bits = (u64::from(generation) + 1) << Self::GENERATION_SHIFT | at.bits() << 1 | 1;
        Self(NonZeroU64::new(bits).expect("a generation and one have fewer bits than there are above a place"))
    }

    /// Takes a number for a pointer; `None` for 0, which is none. Any other may be given: use decides whether it is
    /// live.
    #[inline]
    pub const fn from_bits(bits: u64) -> Option<Self> {
        match NonZeroU64::new(bits) {
            Some(bits) => Some(Self(bits)),
            None => None,
        }
    }

    /// The pointer as a number, to be kept wherever numbers are kept.
    #[inline]
    pub const fn to_bits(self) -> u64 {
        self.0.get()
    }

    /// The place, if the number could be a pointer at all.
    #[inline]
    pub(crate) fn place(self) -> Loc {
        Loc::from_bits(self.to_bits() >> 1)
    }

    /// As [`Pointer::generation`]; what no slot has for numbers that no pile ever gave out.
    #[inline(always)]
    pub(crate) fn wanted_generation(self) -> u64 {
        (self.to_bits().rotate_right(1) >> Loc::BITS).wrapping_sub(Self::ABOVE)
    }

    /// The generation that the slot must have. `None` for numbers that no pile ever gave out.
    #[inline]
    pub(crate) fn generation(self) -> Option<u32> {
        let generation = self.wanted_generation();
        (generation < (1 << Self::GENERATION_BITS) - 1).then_some(generation as u32)
    }
}

// Python keeps numbers below 2⁶⁰ in two digits.
const _: () = assert!(Pointer::GENERATION_SHIFT + Pointer::GENERATION_BITS == 60);

impl From<Pointer> for u64 {
    fn from(pointer: Pointer) -> Self {
        pointer.to_bits()
    }
}

/// The number that [`Pointer::to_bits`] gives.
impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // For numbers that no pile gave out, one that no slot has.
        let (at, generation) = (self.place(), self.wanted_generation());
        write!(f, "Pointer({} = block {} word {} generation {generation})", self.0, at.number(), at.word())
    }
}
