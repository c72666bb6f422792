//! Pages of held blocks that nothing is in any more.
//!
//! A pile's blocks stay with it as long as it lives, because readers that take no lock may look at them at any time. So
//! what becomes empty in them cannot go to a shelf, for everybody. It stays where it is, *emptied*: warm for its owner,
//! who mostly comes back for it, and idle memory to the policy, which gives it back to the system by the page.
//!
//! The first blocks of sets take few pages, most of them for good, and are fresh for that reason. When such a block is
//! let go, what was used of it is emptied, and it *waits* to be the first block of another set: so a program that makes
//! a pile again and again has it warm. It counts as held, and is unmapped when its last page goes back.
//!
//! ```text
//!           add_emptied            take_emptied            give_pages_back
//!  taken ──────────────► emptied ───────────────► leaving ────────────────► gone
//!    ▲ ▲                    │                        │ (who claims waits)     │
//!    │ └─ claim: as it was ─┘                        └───────────┐            │
//!    └────────── claim: reads as zero ◄──────────────────────────┴────────────┘     add_gone: taken or emptied ──► gone
//! ```
//! The owner claims, empties, and gives back at once (`add_gone`); anybody may take what is emptied. Each arrow is a
//! change under the lock of the block's home.
//!
//! Equations: what an owner has *given up* and not taken back is emptied, or *gone*: with the system. What is *leaving*
//! is gone, and a thread is about to give it back; who takes such a page back waits until that is done. `taken` is
//! without both.

use super::shared::Shared;
use super::shelves::{Shelves, age};
use super::span::{Span, Use, records_of, shelf};
use std::sync::atomic::AtomicU64;

use crate::invalid::Invalid;
use crate::sync::{Ordering, fence};
use crate::{BLOCK_BYTES, PAGE_BYTES};

/// What of a block's first page is never given back: running readers look at the header there.
pub(crate) const HEADER_BYTES: usize = 4096;

/// Bytes of pages, a bit each.
pub(crate) fn bytes_of(pages: u64) -> u64 {
    u64::from(pages.count_ones()) * PAGE_BYTES as u64
}

/// The rows of neighbours among pages, a bit each: the first of each row, and how many.
pub(crate) fn rows(mut pages: u64) -> impl Iterator<Item = (usize, usize)> {
    std::iter::from_fn(move || {
        let first = pages.trailing_zeros();
        let count = pages.checked_shr(first)?.trailing_ones();
        pages &= !((u64::MAX >> (64 - count)) << first);
        Some((first as usize, count as usize))
    })
}

impl Shelves {
    /// The block that pages were emptied in longest ago.
    pub fn coldest_emptied(&self) -> Option<&'static Span> {
        self.emptied.last.get()
    }

    /// Takes a first block that waits.
    pub fn take_first(&mut self) -> Option<&'static Span> {
        let span = self.firsts.first.get()?;
        self.firsts.remove(span, shelf);
        span.waits.store(false, Ordering::Relaxed);
        Some(span)
    }

    /// Checks the list of blocks with emptied pages against the counts. `home` is the arena's index.
    pub fn check_emptied(&self, home: usize) -> Result<(), Invalid> {
        let mut bytes = 0;
        for span in self.emptied.iter(age) {
            let (given_up, emptied) = (span.given_up.load(Ordering::Relaxed), span.emptied.load(Ordering::Relaxed));
            if span.state() != Use::Held || span.home() != home || emptied == 0 || emptied & !given_up != 0 {
                return Err(Invalid(format!("{span:?} is no block with emptied pages of arena {home}")));
            }
            bytes += bytes_of(emptied);
        }
        if bytes != self.counts.emptied {
            return Err(Invalid(format!("{bytes} bytes emptied, {} counted", self.counts.emptied)));
        }
        let read = |mask: &AtomicU64| mask.load(Ordering::Relaxed);
        let waits = |span: &'static Span| {
            span.state() == Use::Held && span.waits.load(Ordering::Relaxed) && read(&span.given_up) == u64::MAX
        };
        if !self.firsts.iter(shelf).all(|span| waits(span) && read(&span.emptied) != 0 && span.home() == home) {
            return Err(Invalid(format!("something among the first blocks of arena {home} does not wait there")));
        }
        Ok(())
    }
}

impl Shared {
    /// Says anew which pages of a held block its owner has given up, and which of these are emptied. `shelves` are
    /// those of its home.
    fn mark(&self, shelves: &mut Shelves, span: &'static Span, given_up: u64, emptied: u64) {
        debug_assert!(span.bytes() == BLOCK_BYTES && emptied & !given_up == 0);
        // Relaxed, as all of a span: its home's lock is held.
        let before = (span.given_up.swap(given_up, Ordering::Relaxed), span.emptied.swap(emptied, Ordering::Relaxed));
        // What was there before keeps its place when some of it goes.
        let (listed, moves) = (before.1 != 0, emptied & !before.1 != 0);
        if listed && (moves || emptied == 0) {
            shelves.emptied.remove(span, age);
        }
        if moves {
            // Together, so that the list is in the order of its stamps.
            span.stamp.store(self.tick(), Ordering::Relaxed);
            shelves.emptied.push_front(span, age);
        }
        let counts = &mut shelves.counts;
        let (was, is) = (bytes_of(before.1), bytes_of(emptied));
        counts.emptied = counts.emptied + is - was;
        self.ledger.change_emptied(was, is);
        let (was, is) = (bytes_of(before.0 & !before.1), bytes_of(given_up & !emptied));
        counts.gone = counts.gone + is - was;
        counts.held_taken = counts.held_taken + bytes_of(before.0) - bytes_of(given_up);
        self.ledger.change_gone(was, is);
    }

    /// Whether that many bytes may stay emptied: all that is kept fits the pool's size and the total limit, and nobody
    /// waits.
    pub fn may_stay_emptied(&self, bytes: u64) -> bool {
        let (kept, allowed) = (self.ledger.kept() + bytes, self.ledger.allowed());
        kept <= self.pool_bytes() && kept + allowed <= self.total_limit() && !self.admission.anyone()
    }

    /// The owner of a held block gives warm pages up.
    pub fn add_emptied(&self, span: &'static Span, pages: u64) {
        // The most that was taken until now is what the policy goes by.
        self.note_demand();
        let mut shelves = self.arena(span.home()).lock();
        let (given_up, emptied) = (span.given_up.load(Ordering::Relaxed), span.emptied.load(Ordering::Relaxed));
        self.mark(&mut shelves, span, given_up | pages, emptied | (pages & !given_up));
    }

    /// The owner of a held block gives pages up whose memory it gives back next. Returns those that were emptied.
    pub fn add_gone(&self, span: &'static Span, pages: u64) -> u64 {
        let mut shelves = self.arena(span.home()).lock();
        let (given_up, emptied) = (span.given_up.load(Ordering::Relaxed), span.emptied.load(Ordering::Relaxed));
        self.mark(&mut shelves, span, given_up | pages, emptied & !pages);
        emptied & pages
    }

    /// The owner of a held block takes pages back, whether it had given them up or not. Returns those that are warm;
    /// the others that it had given up read as zero.
    pub fn claim_pages(&self, span: &'static Span, pages: u64) -> u64 {
        // Relaxed: only the owner gives pages up, and it is the one who asks.
        if span.given_up.load(Ordering::Relaxed) & pages == 0 {
            return 0;
        }
        loop {
            let mut shelves = self.arena(span.home()).lock();
            if span.leaving.load(Ordering::Relaxed) & pages == 0 {
                let (given_up, emptied) = (span.given_up.load(Ordering::Relaxed), span.emptied.load(Ordering::Relaxed));
                self.mark(&mut shelves, span, given_up & !pages, emptied & !pages);
                return emptied & pages;
            }
            drop(shelves);
            // Another thread is about to give it back.
            std::thread::yield_now();
        }
    }

    /// Whether pages of a held block are emptied, or were so and are not with the system yet.
    pub fn has_emptied(&self, span: &'static Span) -> bool {
        let _shelves = self.arena(span.home()).lock();
        span.emptied.load(Ordering::Relaxed) | span.leaving.load(Ordering::Relaxed) != 0
    }

    /// A held block is let go: what was given up of it is no longer counted apart, and nobody is about to give any of
    /// it back.
    pub fn claim_all(&self, span: &'static Span) {
        self.claim_pages(span, u64::MAX);
    }

    /// Takes emptied pages of a held block of up to `most` bytes, for [`Shared::give_pages_back`]. `shelves` are those
    /// of its home.
    pub fn take_emptied(&self, shelves: &mut Shelves, span: &'static Span, most: u64) -> u64 {
        let (given_up, emptied) = (span.given_up.load(Ordering::Relaxed), span.emptied.load(Ordering::Relaxed));
        let mut pages = emptied;
        // From the end: owners begin at the beginning.
        while bytes_of(pages) > most {
            pages &= pages - 1;
        }
        self.mark(shelves, span, given_up, emptied & !pages);
        span.leaving.fetch_or(pages, Ordering::Relaxed);
        pages
    }

    /// Gives the memory of pages back that [`Shared::take_emptied`] took. Returns bytes.
    pub fn give_pages_back(&self, span: &'static Span, pages: u64) -> u64 {
        self.decommit_pages(span, pages);
        let mut shelves = self.arena(span.home()).lock();
        let left = span.leaving.fetch_and(!pages, Ordering::Relaxed) & !pages | span.emptied.load(Ordering::Relaxed);
        if left == 0 && span.waits.swap(false, Ordering::Relaxed) {
            // Nothing of it is worth waiting with.
            shelves.firsts.remove(span, shelf);
            self.mark(&mut shelves, span, 0, 0);
            shelves.counts.held -= span.bytes() as u64;
            shelves.counts.held_taken -= span.bytes() as u64;
            drop(shelves);
            self.ledger.let_go(span.bytes() as u64);
            self.unmap_uncounted(span);
        }
        bytes_of(pages)
    }

    /// Says that a block that was just mapped is a set's first one, and that nothing of it is there yet; `hands_on`:
    /// that it may wait for another set after this one.
    pub fn note_first(&self, span: &'static Span, hands_on: bool) {
        let mut shelves = self.arena(span.home()).lock();
        span.first.store(hands_on, Ordering::Relaxed);
        self.mark(&mut shelves, span, u64::MAX, 0);
    }

    /// Keeps a set's first block for the next set, if any of it is warm and may stay so.
    pub fn keep_first(&self, span: &'static Span) -> bool {
        self.note_demand();
        let mut shelves = self.arena(span.home()).lock();
        assert!(span.state() == Use::Held && !span.waits.load(Ordering::Relaxed), "a block was given back twice");
        let (given_up, emptied) = (span.given_up.load(Ordering::Relaxed), span.emptied.load(Ordering::Relaxed));
        if given_up == u64::MAX && emptied == 0 || !self.may_stay_emptied(bytes_of(!given_up)) {
            return false;
        }
        span.waits.store(true, Ordering::Relaxed);
        self.mark(&mut shelves, span, u64::MAX, !given_up | emptied);
        shelves.firsts.push_front(span, shelf);
        true
    }

    /// Gives all emptied pages of a held block back. Returns bytes.
    pub fn give_emptied_back(&self, span: &'static Span) -> u64 {
        let pages = self.take_emptied(&mut self.arena(span.home()).lock(), span, u64::MAX);
        if pages == 0 { 0 } else { self.give_pages_back(span, pages) }
    }

    /// Gives the memory of pages of a held block back, which read as zero from then on; of the first, all but the
    /// header. Only for who took them, or owns them.
    pub fn decommit_pages(&self, span: &'static Span, pages: u64) {
        // Release: where the system cannot, zeros are stored. A reader without a lock who copies one of them finds that
        // the page was turned, as its owner did before it gave it up; the arena's lock, or its own thread, has brought
        // that here.
        fence(Ordering::Release);
        let base = span.base();
        // Or the system would fill the holes with huge pages.
        if span.note_holes() {
            // SAFETY: a whole mapping, which stays: its owner is the caller, or waits for what is leaving before it
            // lets it go.
            unsafe { self.os.advise_small(base, span.bytes()) };
        }
        for (first, count) in rows(pages) {
            let (start, end) = ((first * PAGE_BYTES).max(HEADER_BYTES), (first + count) * PAGE_BYTES);
            // SAFETY: inside that mapping, whose words are accessed atomically only; and nothing is in these pages.
            unsafe { self.os.decommit(base.add(start), end - start) };
        }
    }

    /// In a forked child: nobody gives back what was leaving. It may be there still, so it is emptied again.
    pub fn keep_leaving(&self) {
        let leaves = |span: &&'static Span| span.leaving.load(Ordering::Relaxed) != 0;
        for span in records_of(self.number).into_iter().filter(leaves) {
            let mut shelves = self.arena(span.home()).lock();
            let pages = span.leaving.swap(0, Ordering::Relaxed);
            let (given_up, emptied) = (span.given_up.load(Ordering::Relaxed), span.emptied.load(Ordering::Relaxed));
            self.mark(&mut shelves, span, given_up, emptied | pages);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::os::Twin;
    use crate::pool::{Pool, Settings};

    #[test]
    fn rows_are_all_that_is_set_and_nothing_else() {
        assert_eq!(rows(0).count(), 0);
        assert_eq!(rows(u64::MAX).collect::<Vec<_>>(), [(0, 64)]);
        assert_eq!(rows(1 << 63 | 0b110_1101).collect::<Vec<_>>(), [(0, 1), (2, 2), (5, 2), (63, 1)]);
    }

    /// A block of a pool, all of it emptied.
    fn emptied() -> (Pool, &'static Twin, &'static Span) {
        let twin: &'static Twin = Box::leak(Box::default());
        let settings = Settings { pool_bytes: 1 << 30, follows: false, ..Settings::default() };
        let pool = Pool::with_root(twin, settings, "/nonexistent-root".into()).unwrap();
        let span = pool.shared().hold(BLOCK_BYTES, true, false).unwrap();
        pool.shared().add_emptied(span, u64::MAX);
        (pool, twin, span)
    }

    /// Takes what is emptied as a thread that gives it back does, and gives it back a moment later, beside `other`.
    fn while_leaving<T: Send>(pool: &Pool, span: &'static Span, other: impl FnOnce() -> T + Send) -> T {
        let shared = pool.shared();
        let pages = shared.take_emptied(&mut shared.arena(span.home()).lock(), span, u64::MAX);
        assert!(pages == u64::MAX && shared.has_emptied(span));
        std::thread::scope(|scope| {
            let other = scope.spawn(other);
            std::thread::sleep(Duration::from_millis(30));
            shared.give_pages_back(span, pages);
            other.join().unwrap()
        })
    }

    #[test]
    fn who_takes_a_page_back_waits_until_it_has_left() {
        let (pool, twin, span) = emptied();
        // SAFETY: inside the block.
        let at = || unsafe { span.base().add(5 * PAGE_BYTES) };
        while_leaving(&pool, span, || {
            assert_eq!(pool.shared().claim_pages(span, 1 << 5), 0);
            // SAFETY: the block is this test's, and so is the page by now.
            unsafe { at().write(7) };
        });
        // SAFETY: as above.
        assert_eq!(unsafe { at().read() }, 7, "it was given back with what was written since");
        pool.validate().unwrap();
        pool.shared().let_go(span);
        pool.validate().unwrap();
        assert_eq!(twin.mapped(), 0);
    }

    #[test]
    fn who_lets_a_block_go_waits_until_its_pages_have_left() {
        let (pool, twin, span) = emptied();
        // The twin panics where something is given back that is not mapped any more.
        while_leaving(&pool, span, || pool.shared().let_go(span));
        pool.validate().unwrap();
        assert_eq!(twin.mapped(), 0);
    }

    #[test]
    fn a_child_keeps_what_was_leaving() {
        let (pool, _, span) = emptied();
        let shared = pool.shared();
        assert_eq!(
            shared.take_emptied(&mut shared.arena(span.home()).lock(), span, 3 * PAGE_BYTES as u64),
            0b111 << 61
        );
        assert!(pool.validate().is_err());
        shared.keep_leaving();
        pool.validate().unwrap();
        assert_eq!(shared.claim_pages(span, u64::MAX), u64::MAX);
        shared.let_go(span);
    }
}
