//! Long payloads that are copied once, by readers that know from their beginning where they belong.
//!
//! A reader who is given a copy makes another of it, in memory of its own. That is cheap as long as the first copy is
//! still in the processor's nearest caches, which a long payload does not fit into.

#![allow(unsafe_code)] // Vectors say by an unsafe call that their room was filled.

use std::mem::MaybeUninit;

use gabion_blocks::make_room;

use crate::buf::{Elsewhere, Left, ReadBuf};
use crate::pile::Pile;
use crate::protocol::unchanged_while;

/// What [`Pile::read_or_find`], or a [`Pile::reading`], came to.
#[derive(Debug)]
pub enum Reading<'a> {
    /// The payload.
    Whole(&'a [u8]),
    /// A payload of 8 KiB to 1 MiB, which still lies where it was found.
    Long(Long<'a>),
}

impl<'a> From<&'a [u8]> for Reading<'a> {
    fn from(payload: &'a [u8]) -> Self {
        Self::Whole(payload)
    }
}

/// A long payload, whose beginning was copied. Nothing holds on to it: it may be gone, or another, at any time, and
/// [`Long::copy`] tells.
#[derive(Debug)]
pub struct Long<'a> {
    pile: &'a Pile,
    left: Left,
    beginning: &'a [u8],
    /// Bytes of the payload that come before what the reader asked for.
    before: usize,
}

#[expect(clippy::len_without_is_empty, reason = "nothing long is empty")]
impl Long<'_> {
    /// The first bytes: 512 at least.
    pub fn beginning(&self) -> &[u8] {
        self.beginning
    }

    /// Bytes in all.
    pub fn len(&self) -> usize {
        self.left.length - self.before
    }

    /// Fills `into` with the bytes from number `from` on. True when they are of one piece with the beginning, and with
    /// all that was copied before. If false, `into` may be filled with anything: the payload changed, or something near
    /// it did; ask [`Pile::read`]. Takes no lock.
    ///
    /// # Panics
    /// When the payload has fewer bytes than are asked for.
    pub fn copy(&self, from: usize, into: &mut [MaybeUninit<u8>]) -> bool {
        assert!(from <= self.len() && into.len() <= self.len() - from, "bytes beyond the payload");
        let Left { payload, guards, .. } = self.left;
        let Some(block) = self.pile.blocks.block(payload.number()) else { return false };
        block.read_anew(8 * payload.word() + self.before + from, into);
        let blocks = guards.map(|(at, _)| self.pile.blocks.block(at.number()));
        let [Some(first), Some(second), Some(third)] = &blocks else { return false };
        let [(slot, word), (page, descriptor), (host, its)] = guards;
        unchanged_while(
            || true,
            [(first, slot.word(), word), (second, page.word(), descriptor), (third, host.word(), its)],
        )
    }
}

impl Long<'_> {
    /// As [`Long::copy`] of `length` bytes, to the end of a vector; if false, that is as it was. False also when there
    /// is no memory for it to grow.
    ///
    /// # Panics
    /// When the payload has fewer bytes than are asked for.
    pub fn append(&self, from: usize, length: usize, to: &mut Vec<u8>) -> bool {
        if make_room(to, length).is_err() {
            return false;
        }
        let copied = self.copy(from, &mut to.spare_capacity_mut()[..length]);
        if copied {
            // SAFETY: there is room for that many bytes, which were just filled.
            unsafe { to.set_len(to.len() + length) };
        }
        copied
    }
}

impl Pile {
    /// What a read of this pile came to that had `buf` leave long payloads where they lie ([`ReadBuf::leaving`]),
    /// without the first `before` bytes, [`ReadBuf::MOST_BEFORE`] at most.
    #[inline]
    pub fn reading<'a>(&'a self, buf: &'a ReadBuf, before: usize) -> Reading<'a> {
        match &buf.elsewhere {
            Some(Elsewhere::Left(left)) => {
                Reading::Long(Long { pile: self, left: *left, beginning: &buf.payload()[before..], before })
            }
            _ => Reading::Whole(&buf.payload()[before..]),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::buf::LONG;

    fn numbered(length: usize) -> Vec<u8> {
        (0..length).map(|at| (at * 7 + at / 251) as u8).collect()
    }

    #[test]
    fn long_payloads_are_read_in_any_parts_and_others_whole() {
        let (pile, mut buf) = (Pile::new().unwrap(), ReadBuf::new());
        for length in [0, 100, 1016, 1017, LONG - 1, LONG, LONG + 1, 100_003, 1 << 20, (1 << 20) + 1] {
            let payload = numbered(length);
            let pointer = pile.put(&payload).unwrap();
            match pile.read_or_find(pointer, &mut buf).unwrap() {
                Reading::Whole(whole) => {
                    assert_eq!(whole, payload);
                    assert!(!(LONG..=1 << 20).contains(&length));
                }
                Reading::Long(long) => {
                    assert!((LONG..=1 << 20).contains(&length) && long.len() == length);
                    assert!(long.beginning().len() >= 512 && payload.starts_with(long.beginning()));
                    for (from, to) in [(0, length), (0, 0), (length, length), (length - 1, length), (3, 4), (5, 4099)] {
                        let mut part = vec![9];
                        assert!(long.append(from, to - from, &mut part));
                        assert_eq!(part[1..], payload[from..to]);
                    }
                }
            }
            assert_eq!(pile.read(pointer, &mut buf).unwrap(), payload, "nothing is left of it in the buffer");
        }
    }

    #[test]
    #[should_panic(expected = "bytes beyond the payload")]
    fn no_more_is_read_than_there_is() {
        let (pile, mut buf) = (Pile::new().unwrap(), ReadBuf::new());
        let pointer = pile.put(&numbered(LONG)).unwrap();
        if let Reading::Long(long) = pile.read_or_find(pointer, &mut buf).unwrap() {
            long.append(1, LONG, &mut Vec::new());
        }
    }

    type Change = fn(&Arc<Pile>, crate::Pointer);

    #[test]
    fn a_long_payload_that_was_changed_is_not_read() {
        let (length, options) = (100_000, crate::PileOptions { shards: Some(1), ..Default::default() });
        let changes: [Change; 6] = [
            |pile, pointer| pile.remove(pointer).unwrap(),
            |pile, pointer| pile.replace(pointer, &vec![1; 100_000]).unwrap(),
            |pile, pointer| pile.replace(pointer, &numbered(100_000)).unwrap(),
            |pile, pointer| pile.replace(pointer, b"short").unwrap(),
            |pile, _| pile.clear(),
            |pile, pointer| {
                pile.remove(pointer).unwrap();
                pile.put(&vec![1; 100_000]).unwrap();
            },
        ];
        for (number, change) in changes.into_iter().enumerate() {
            let (pile, mut buf) = (Arc::new(Pile::with_options(options).unwrap()), ReadBuf::new());
            let pointer = pile.put(&numbered(length)).unwrap();
            let Reading::Long(long) = pile.read_or_find(pointer, &mut buf).unwrap() else { panic!("it is long") };
            // What does not touch it does not matter.
            let other = pile.put(&numbered(length)).unwrap();
            pile.remove(other).unwrap();
            let view = pile.view(pointer).unwrap();
            let mut copied = Vec::new();
            assert!(long.append(0, 600, &mut copied));
            drop(view);
            assert!(long.append(600, length - 600, &mut copied));
            assert_eq!(copied, numbered(length));
            change(&pile, pointer);
            assert!(!long.append(0, 600, &mut copied), "change {number}");
            assert_eq!(copied, numbered(length), "nothing was added");
            pile.validate().unwrap();
        }
    }
}
