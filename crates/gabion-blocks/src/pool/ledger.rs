//! How many bytes are mapped, and whether more may be.
//!
//! Nothing here is written when warm memory is lent or comes back: threads would pull the counter out of each other's
//! caches at every step. What is taken, each arena counts for itself.
//!
//! `drawn` rises before memory is mapped and falls after it is unmapped, so it is never less than the truth, and never
//! more than the limit that it was drawn under.

use crate::sync::{AtomicU64, Ordering};

/// The pool's bytes. All orderings but those of `leaving` are relaxed: each number is its whole message, and no memory
/// is published by it.
#[derive(Debug)]
pub(crate) struct Ledger {
    /// Mapped for buffers and groups, lent or idle; and allowed.
    drawn: AtomicU64,
    /// Part of `held` that nothing is in and that is warm: see `emptied`. Read together with `drawn`.
    emptied: AtomicU64,
    /// The most that `drawn` has been.
    peak: AtomicU64,
    /// Part of `drawn` that nothing is mapped for: memory that others than the pool take, below its limit.
    allowed: AtomicU64,
    /// Part of `drawn` that some thread is unmapping at this moment: a thread that needs room waits for it.
    leaving: AtomicU64,
    /// Free pieces that some thread is giving the memory of back at this moment: a thread that finds none waits for
    /// them.
    aside: AtomicU64,
    /// Lent to block sets and runs of piles; not part of `drawn`.
    held: AtomicU64,
    /// Part of `held` that is with the system, as far as its owners have said so.
    gone: AtomicU64,
    /// The most that was taken (lent, cut or held) in the quarter of the policy at hand, as far as somebody added it
    /// up.
    mark: AtomicU64,
    /// The highest mark of the quarters before.
    past: AtomicU64,
}

impl Ledger {
    pub fn new() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            drawn: zero(),
            emptied: zero(),
            peak: zero(),
            allowed: zero(),
            leaving: zero(),
            aside: zero(),
            held: zero(),
            gone: zero(),
            mark: zero(),
            past: zero(),
        }
    }

    /// Draws `bytes` under a limit; fails with what is drawn, and draws nothing then.
    pub fn take(&self, bytes: u64, limit: u64) -> Result<(), u64> {
        let taken = self.drawn.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |drawn| {
            drawn.checked_add(bytes).filter(|&sum| sum <= limit)
        });
        self.peak.fetch_max(taken? + bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Returns `bytes` that are mapped no longer.
    pub fn give(&self, bytes: u64) {
        let before = self.drawn.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "more unmapped than mapped");
    }

    /// Says that nothing is mapped for `bytes` that were drawn.
    pub fn allow(&self, bytes: u64) {
        self.allowed.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Takes that back; they are still drawn.
    pub fn disallow(&self, bytes: u64) {
        self.allowed.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Says that `bytes` of idle memory are about to be unmapped.
    pub fn leave(&self, bytes: u64) {
        self.leaving.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Says that they are; after [`Ledger::give`].
    pub fn left(&self, bytes: u64) {
        // Release: a thread that sees this sum also sees what was given before.
        self.leaving.fetch_sub(bytes, Ordering::Release);
    }

    /// Bytes about to be unmapped.
    pub fn leaving(&self) -> u64 {
        // Acquire: pairs with `left`.
        self.leaving.load(Ordering::Acquire)
    }

    /// Says that `bytes` of free pieces were taken to give their memory back; with their arena's lock held.
    pub fn set_aside(&self, bytes: u64) {
        self.aside.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Says that they are back in their arena.
    pub fn brought_back(&self, bytes: u64) {
        self.aside.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Bytes of such pieces. With an arena's lock held, all that were taken out of it and are not back are counted.
    pub fn aside(&self) -> u64 {
        self.aside.load(Ordering::Relaxed)
    }

    /// For the child of a fork, where the threads that were unmapping are gone. What they had in hand stays mapped and
    /// counted.
    pub fn forget_leaving(&self) {
        self.leaving.store(0, Ordering::Relaxed);
        self.aside.store(0, Ordering::Relaxed);
    }

    /// Moves `bytes` of mapped memory to what block sets hold.
    pub fn hold(&self, bytes: u64) {
        self.held.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Moves them out again.
    pub fn let_go(&self, bytes: u64) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Says how much of what is held is empty and warm, after a change from `before` to `after` bytes.
    pub fn change_emptied(&self, before: u64, after: u64) {
        self.emptied.fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
    }

    /// Says the same of what is with the system.
    pub fn change_gone(&self, before: u64, after: u64) {
        self.gone.fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
    }

    /// Says that `taken` bytes are taken at this moment.
    pub fn note(&self, taken: u64) {
        if taken > self.mark.load(Ordering::Relaxed) {
            self.mark.fetch_max(taken, Ordering::Relaxed);
        }
    }

    /// Ends a quarter: begins a new mark with the `taken` bytes of this moment and returns the old one. A request
    /// beside it may count for either.
    pub fn next_mark(&self, taken: u64) -> u64 {
        self.mark.swap(taken, Ordering::Relaxed)
    }

    /// Sets the highest mark of the quarters before this one.
    pub fn set_past(&self, mark: u64) {
        self.past.store(mark, Ordering::Relaxed);
    }

    /// The highest mark of all quarters that count.
    pub fn highest(&self) -> u64 {
        self.past.load(Ordering::Relaxed).max(self.mark.load(Ordering::Relaxed))
    }

    /// What counts for the total limit.
    #[inline]
    pub fn drawn(&self) -> u64 {
        self.drawn.load(Ordering::Relaxed)
    }

    pub fn allowed(&self) -> u64 {
        self.allowed.load(Ordering::Relaxed)
    }

    /// What is mapped. Beside other threads with allowances, about so much.
    #[inline]
    pub fn mapped(&self) -> u64 {
        self.drawn().saturating_sub(self.allowed())
    }

    pub fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// What is mapped, and what is emptied beside it: all that the pool's size is about.
    #[inline]
    pub fn kept(&self) -> u64 {
        self.mapped() + self.emptied()
    }

    pub fn emptied(&self) -> u64 {
        self.emptied.load(Ordering::Relaxed)
    }

    pub fn gone(&self) -> u64 {
        self.gone.load(Ordering::Relaxed)
    }
}
