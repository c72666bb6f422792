//! How readers and one writer share payload without a lock: a sequence lock whose sequence is the slot's word.
//!
//! The writer changes the *guards* (the slot's word, the page's descriptor, the pile's count of turns) before it
//! changes a payload that a reader might be copying, with a release fence between; the reader copies, then looks at the
//! guards again behind an acquire fence. If a reader saw one byte of the new payload, the fences make it see the
//! changed guard too (after H.-J. Boehm, "Can seqlocks get along with programming language memory models?", 2012).
//!
//! The functions are generic over [`Memory`], so that the model checker runs exactly this code.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{self, Acquire, Relaxed, Release};

use gabion_blocks::{Block, Piece};

/// Words that other threads write.
pub trait Words {
    /// Reads a word.
    fn load(&self, at: usize, order: Ordering) -> u64;
    /// A fence.
    fn fence(order: Ordering);
}

/// Words that are shared between threads.
pub trait Memory: Words {
    /// Writes a word.
    fn store(&self, at: usize, value: u64, order: Ordering);
    /// Copies `into.len()` bytes, a multiple of 8, from word `at` on; relaxed.
    fn copy_out(&self, at: usize, into: &mut [u8]);
    /// Copies bytes to word `at` and after; relaxed.
    fn copy_in(&self, at: usize, bytes: &[u8]);
    /// As `copy_in`, of a multiple of 8 bytes that others may write to meanwhile.
    fn copy_piece_in(&self, at: usize, piece: Piece<'_>);
}

impl Words for Block<'_> {
    #[inline]
    fn load(&self, at: usize, order: Ordering) -> u64 {
        self.word(at).load(order)
    }

    #[inline]
    fn fence(order: Ordering) {
        std::sync::atomic::fence(order);
    }
}

impl<const N: usize> Words for [AtomicU64; N] {
    #[inline]
    fn load(&self, at: usize, order: Ordering) -> u64 {
        self[at].load(order)
    }

    #[inline]
    fn fence(order: Ordering) {
        std::sync::atomic::fence(order);
    }
}

impl Memory for Block<'_> {
    #[inline]
    fn store(&self, at: usize, value: u64, order: Ordering) {
        self.word(at).store(value, order);
    }

    #[inline]
    fn copy_out(&self, at: usize, into: &mut [u8]) {
        self.read(at, into);
    }

    #[inline]
    fn copy_in(&self, at: usize, bytes: &[u8]) {
        self.write(at, bytes);
    }

    #[inline]
    fn copy_piece_in(&self, at: usize, piece: Piece<'_>) {
        self.write_piece(at, piece);
    }
}

/// Copies a payload out; true when every guard (memory, place, value seen before by an acquire load) still has its
/// value, and the copy is therefore of one piece.
#[inline(always)]
pub fn copy_unless_changed<M: Memory, const N: usize>(
    payload: (&M, usize),
    into: &mut [u8],
    guards: [(&M, usize, u64); N],
) -> bool {
    payload.0.copy_out(payload.1, into);
    // Acquire: the loads below must not move before the copy.
    M::fence(Acquire);
    unchanged(guards)
}

/// For a payload that was found by a link outside the pile: true when the link was still there after the copy, and then
/// every guard had its value, so that the payload was linked at the moment of the second look at the link.
///
/// The link comes first: the guards, which hold afterwards too, say that what it led to is what was copied. `linked`
/// reads the link by an acquire load, so that the guards are not read before it.
#[inline(always)]
pub fn unchanged_while<W: Words, const N: usize>(linked: impl FnOnce() -> bool, guards: [(&W, usize, u64); N]) -> bool {
    // Acquire: the loads below must not move before the copy.
    W::fence(Acquire);
    linked() && unchanged(guards)
}

/// Whether words are what they were.
#[inline(always)]
fn unchanged<W: Words, const N: usize>(guards: [(&W, usize, u64); N]) -> bool {
    // A loop: `all` is not always compiled into its caller.
    let mut unchanged = true;
    for (words, at, seen) in guards {
        unchanged = unchanged && words.load(at, Relaxed) == seen;
    }
    unchanged
}

/// Reads a second guard whose place is known only from the first, and makes sure that the first still held then.
///
/// Without the second look, a writer that changes the first guard, the second, the payload, and the first guard back
/// would go unnoticed by a reader that comes between the first two steps: every value it saw is the same afterwards.
#[inline]
pub fn second_guard<M: Memory>(first: (&M, usize, u64), second: (&M, usize)) -> Option<u64> {
    // Acquire: pairs with `disturb`; a reader that sees its value also sees the change of the first guard before it.
    let value = second.0.load(second.1, Acquire);
    // Acquire: if the first guard is back to its value, the payload that it was committed with is seen too.
    (first.0.load(first.1, Acquire) == first.2).then_some(value)
}

/// Changes a second guard, after the first.
#[inline]
pub fn disturb<M: Memory>(guard: (&M, usize), value: u64) {
    // Release: see `second_guard`.
    guard.0.store(guard.1, value, Release);
    // Release: whatever is written over the payload from now on, be it a payload or the heap's own links, a reader that
    // sees it also sees the guard. (The store above orders what came before it, not what comes after.)
    M::fence(Release);
}

/// Writes a payload into room that a reader may still be copying as somebody else's: the guard that freed it was
/// stored earlier by this thread or under the same lock. Then commits `word`.
#[inline]
pub fn reuse<M: Memory>(payload: (&M, usize), bytes: &[u8], commit: (&M, usize, u64)) {
    // Release: a reader that sees a byte of this payload sees the guard that was changed when the room became free.
    M::fence(Release);
    payload.0.copy_in(payload.1, bytes);
    // Release: a reader that sees the commit sees the payload.
    commit.0.store(commit.1, commit.2, Release);
}

/// As [`reuse`], of a payload that lies in several pieces, one behind the other.
pub fn reuse_in_pieces<M: Memory>(payload: (&M, usize), pieces: &[Piece<'_>], commit: (&M, usize, u64)) {
    // Release, here and below: as in `reuse`.
    M::fence(Release);
    copy_pieces(payload, pieces);
    commit.0.store(commit.1, commit.2, Release);
}

/// Copies pieces one behind the other, from a word on. A word that several have a share in is put together first, so
/// that each is written once, as a whole.
fn copy_pieces<M: Memory>((memory, mut at): (&M, usize), pieces: &[Piece<'_>]) {
    let (mut shared, mut filled) = ([0; 8], 0);
    for mut piece in pieces.iter().copied() {
        if filled > 0 {
            let (share, rest) = piece.split_at(piece.len().min(8 - filled));
            share.copy_to(&mut shared[filled..filled + share.len()]);
            filled += share.len();
            if filled < 8 {
                continue;
            }
            memory.copy_in(at, &shared);
            (at, piece) = (at + 1, rest);
        }
        let (whole, tail) = piece.split_at(piece.len() - piece.len() % 8);
        memory.copy_piece_in(at, whole);
        at += whole.len() / 8;
        filled = tail.len();
        tail.copy_to(&mut shared[..filled]);
    }
    if filled > 0 {
        memory.copy_in(at, &shared[..filled]);
    }
}

/// Overwrites a payload in place: marks the word busy, writes, commits.
#[inline]
pub fn overwrite<M: Memory>(payload: (&M, usize), bytes: &[u8], busy: u64, commit: (&M, usize, u64)) {
    // Relaxed: the fence in `reuse` orders it before the payload.
    commit.0.store(commit.1, busy, Relaxed);
    reuse(payload, bytes, commit);
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Words that know how often each was written.
    struct Noted([Cell<(u64, usize)>; 8]);

    impl Words for Noted {
        fn load(&self, at: usize, _: Ordering) -> u64 {
            self.0[at].get().0
        }

        fn fence(_: Ordering) {}
    }

    impl Memory for Noted {
        fn store(&self, at: usize, value: u64, _: Ordering) {
            self.0[at].set((value, self.0[at].get().1 + 1));
        }

        fn copy_out(&self, at: usize, into: &mut [u8]) {
            for (word, bytes) in self.0[at..].iter().zip(into.as_chunks_mut::<8>().0) {
                *bytes = word.get().0.to_le_bytes();
            }
        }

        fn copy_in(&self, at: usize, bytes: &[u8]) {
            for (index, bytes) in bytes.chunks(8).enumerate() {
                let word = bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
                self.store(at + index, word, Relaxed);
            }
        }

        fn copy_piece_in(&self, at: usize, piece: Piece<'_>) {
            self.copy_in(at, &Piece::concat(&[piece]));
        }
    }

    #[test]
    fn pieces_come_back_as_one_however_they_are_cut() {
        let payload: Vec<u8> = (1..=35).collect();
        for length in 0..=payload.len() {
            for (first, second) in (0..=length).flat_map(|first| (first..=length).map(move |second| (first, second))) {
                let memory = Noted(std::array::from_fn(|_| Cell::new((0, 0))));
                let pieces = [&payload[..first], &[], &payload[first..second], &payload[second..length]];
                reuse_in_pieces((&memory, 2), Piece::list(&pieces), (&memory, 0, 7));
                let mut copy = [9; 48];
                assert!(copy_unless_changed((&memory, 2), &mut copy, [(&memory, 0, 7)]));
                assert_eq!((&copy[..length], &copy[length..]), (&payload[..length], &[0; 48][length..]));
                let written = length.div_ceil(8);
                for (at, word) in memory.0.iter().enumerate() {
                    let times = usize::from(at == 0 || (2..2 + written).contains(&at));
                    assert_eq!(word.get().1, times, "word {at} of {length} bytes, cut at {first} and {second}");
                }
            }
        }
    }
}
