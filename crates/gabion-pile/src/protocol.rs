//! How readers and one writer share payload without a lock: a sequence lock whose sequence is the slot's word.
//!
//! The writer changes the *guards* (the slot's word, the page's descriptor, the pile's count of turns) before it changes a
//! payload that a reader might be copying, with a release fence between; the reader copies, then looks at the guards again
//! behind an acquire fence. If a reader saw one byte of the new payload, the fences make it see the changed guard too
//! (after H.-J. Boehm, "Can seqlocks get along with programming language memory models?", 2012).
//!
//! The functions are generic over [`Memory`], so that the model checker runs exactly this code.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{self, Acquire, Relaxed, Release};

use gabion_blocks::Block;

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
    // Acquire: pairs with `disturb`; whoever sees its value also sees the change of the first guard before it.
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
    // Release: whoever sees a byte of this payload sees the guard that was changed when the room became free.
    M::fence(Release);
    payload.0.copy_in(payload.1, bytes);
    // Release: whoever sees the commit sees the payload.
    commit.0.store(commit.1, commit.2, Release);
}

/// Overwrites a payload in place: marks the word busy, writes, commits.
#[inline]
pub fn overwrite<M: Memory>(payload: (&M, usize), bytes: &[u8], busy: u64, commit: (&M, usize, u64)) {
    // Relaxed: the fence in `reuse` orders it before the payload.
    commit.0.store(commit.1, busy, Relaxed);
    reuse(payload, bytes, commit);
}
