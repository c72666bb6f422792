//! The word of a slot: what a pointer's object is and where its payload lies.
//!
//! ```text
//! bit  0   2           22           33         35                                64
//! free   0 │ generation │ 0                                                       │
//! inline 1 │ generation │ length     │ RESERVED PINNED │ version                  │
//! away   2 │ generation │ place of the body, or number of a run (39 bits) │ LARGE │ RESERVED │
//! busy   3 │ generation │ 0                                                       │
//! ```

use gabion_blocks::LAST_GENERATION;
use gabion_heap::Loc;

use crate::pointer::Pointer;

/// A slot whose object of the last generation is removed is retired: it never takes another. Its word still has room
/// for one generation more.
const _: () = assert!(LAST_GENERATION + 2 == 1 << Pointer::GENERATION_BITS);

const GENERATION_SHIFT: u32 = 2;
const PAYLOAD_SHIFT: u32 = GENERATION_SHIFT + Pointer::GENERATION_BITS;
const LENGTH_BITS: u32 = 11;
const RESERVED_INLINE: u64 = 1 << (PAYLOAD_SHIFT + LENGTH_BITS);
const PINNED: u64 = RESERVED_INLINE << 1;
const VERSION_SHIFT: u32 = PAYLOAD_SHIFT + LENGTH_BITS + 2;
const LARGE: u64 = 1 << (PAYLOAD_SHIFT + Loc::BITS);
const RESERVED_AWAY: u64 = LARGE << 1;

const _: () = assert!(RESERVED_AWAY == 1 << 62);
const _: () = assert!(gabion_heap::MAX_SLOT_WORDS * 8 < 1 << LENGTH_BITS);

/// The longest payload that a word can say lies in its slot.
pub(crate) const MOST_LENGTH: usize = (1 << LENGTH_BITS) - 1;

/// The state of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Free,
    Inline { length: usize, reserved: bool, pinned: bool },
    Away { at: Loc, reserved: bool },
    Large { index: u32 },
    Busy,
}

/// A slot's word. Versions come from a counter of the shard, so that a word that comes back after a change differs.
/// They have [`Word::VERSION_BITS`] bits: no reader's copy lasts for so many commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Word(pub u64);

impl Word {
    /// Bits of a version.
    pub const VERSION_BITS: u32 = 64 - VERSION_SHIFT;

    #[inline]
    pub fn free(generation: u32) -> Self {
        Self(u64::from(generation) << GENERATION_SHIFT)
    }

    #[inline]
    pub fn inline(generation: u32, length: usize, reserved: bool, version: u32) -> Self {
        let reserved = if reserved { RESERVED_INLINE } else { 0 };
        let length = (length as u64) << PAYLOAD_SHIFT;
        Self(Self::free(generation).0 | 1 | length | reserved | u64::from(version) << VERSION_SHIFT)
    }

    pub fn away(generation: u32, at: Loc, reserved: bool) -> Self {
        let reserved = if reserved { RESERVED_AWAY } else { 0 };
        Self(Self::free(generation).0 | 2 | at.bits() << PAYLOAD_SHIFT | reserved)
    }

    pub fn large(generation: u32, index: u32) -> Self {
        Self(Self::away(generation, Loc::from_bits(u64::from(index)), false).0 | LARGE)
    }

    #[inline]
    pub fn busy(generation: u32) -> Self {
        Self(Self::free(generation).0 | 3)
    }

    /// An inline word with or without its pin.
    pub fn pinned(self, pinned: bool) -> Self {
        Self(if pinned { self.0 | PINNED } else { self.0 & !PINNED })
    }

    #[inline]
    pub fn generation(self) -> u32 {
        (self.0 >> GENERATION_SHIFT) as u32 & ((1 << Pointer::GENERATION_BITS) - 1)
    }

    /// Bytes of the payload, if this is the word of the object that the pointer leads to, and the payload is in the
    /// slot.
    #[inline(always)]
    pub fn inline_length(self, pointer: Pointer) -> Option<usize> {
        let tagged = self.0 & ((1 << PAYLOAD_SHIFT) - 1);
        (tagged == pointer.wanted_generation() << GENERATION_SHIFT | 1).then_some(self.length())
    }

    /// As [`Word::inline_length`], if no view looks at the payload.
    #[inline(always)]
    pub fn loose_length(self, pointer: Pointer) -> Option<usize> {
        let tagged = self.0 & (PINNED | ((1 << PAYLOAD_SHIFT) - 1));
        (tagged == pointer.wanted_generation() << GENERATION_SHIFT | 1).then_some(self.length())
    }

    /// Bytes of the payload, if there is one and it is in the slot.
    #[inline(always)]
    pub fn length_here(self) -> Option<usize> {
        (self.0 & 3 == 1).then_some(self.length())
    }

    /// Bytes of a payload that is in the slot.
    #[inline(always)]
    pub fn length(self) -> usize {
        (self.0 >> PAYLOAD_SHIFT) as usize & ((1 << LENGTH_BITS) - 1)
    }

    #[inline]
    pub fn state(self) -> State {
        match self.0 & 3 {
            0 => State::Free,
            1 => State::Inline {
                length: self.length(),
                reserved: self.0 & RESERVED_INLINE != 0,
                pinned: self.0 & PINNED != 0,
            },
            2 => {
                let (place, reserved) = (self.0 >> PAYLOAD_SHIFT, self.0 & RESERVED_AWAY != 0);
                if self.0 & LARGE == 0 {
                    State::Away { at: Loc::from_bits(place), reserved }
                } else {
                    State::Large { index: place as u32 }
                }
            }
            _ => State::Busy,
        }
    }
}

/// What stands before a payload that is away: `length (24 bits) | PINNED | place of the owner (39)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GuestHeader(pub u64);

impl GuestHeader {
    const PINNED: u64 = 1 << 24;

    pub fn new(length: usize, owner: Loc) -> Self {
        debug_assert!(length < 1 << 24);
        Self(length as u64 | owner.bits() << 25)
    }

    #[inline]
    pub fn length(self) -> usize {
        self.0 as usize & ((1 << 24) - 1)
    }

    pub fn owner(self) -> Loc {
        Loc::from_bits(self.0 >> 25)
    }

    pub fn is_pinned(self) -> bool {
        self.0 & Self::PINNED != 0
    }

    pub fn pinned(self, pinned: bool) -> Self {
        Self(if pinned { self.0 | Self::PINNED } else { self.0 & !Self::PINNED })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_read_back_what_was_packed() {
        for generation in [0, 1, 77, LAST_GENERATION] {
            let pointer = Pointer::new(Loc::new(3, 4), generation);
            let elsewhere = [Word::free(generation), Word::busy(generation), Word::large(generation, 0)];
            assert!(elsewhere.iter().all(|word| word.inline_length(pointer).is_none()));
            assert_eq!(Word::free(generation).state(), State::Free);
            assert_eq!(Word::busy(generation).state(), State::Busy);
            for (length, reserved) in [(0, false), (1016, true), (1, true)] {
                let word = Word::inline(generation, length, reserved, (1 << Word::VERSION_BITS) - 1);
                assert_eq!(word.state(), State::Inline { length, reserved, pinned: false });
                assert_eq!(word.inline_length(pointer), Some(length));
                assert_eq!(word.pinned(true).inline_length(pointer), Some(length));
                let others = [1, Pointer::new(Loc::new(3, 4), generation + 1).to_bits(), pointer.to_bits() | 1 << 60];
                assert!(others.iter().all(|&bits| word.inline_length(Pointer::from_bits(bits).unwrap()).is_none()));
                assert_eq!(word.pinned(true).state(), State::Inline { length, reserved, pinned: true });
                assert_eq!(word.pinned(true).pinned(false), word);
                assert_eq!(word.generation(), generation);
            }
            let at = Loc::new((1 << 20) - 1, (1 << 19) - 1);
            assert_eq!(Word::away(generation, at, true).state(), State::Away { at, reserved: true });
            assert_eq!(Word::away(generation, at, true).generation(), generation);
            assert_eq!(Word::large(generation, u32::MAX).state(), State::Large { index: u32::MAX });
        }
        let header = GuestHeader::new(1 << 20, Loc::new(5, 9));
        assert_eq!((header.length(), header.owner(), header.is_pinned()), (1 << 20, Loc::new(5, 9), false));
        assert!(header.pinned(true).is_pinned());
        assert_eq!(header.pinned(true).length(), 1 << 20);
    }
}
