//! Memory for owners outside the pool's limits: block sets, and runs of piles.

use std::ptr::NonNull;

use super::addresses;
use super::emptied::bytes_of;
use super::pool::Pool;
use super::seat;
use super::shared::Shared;
use super::size::{span_bytes, span_class};
use super::span::Span;
use crate::LARGEST_SYSTEM_PAGE;
use crate::error::BlockError;
use crate::sync::Ordering;

/// Memory outside the pool's limits: a block, a run, or memory of an exact size. It goes back to the pool when dropped.
pub struct Held {
    span: &'static Span,
    shared: &'static Shared,
}

impl Held {
    /// What memory for `len` bytes takes; the most there is for what is longer than any memory. It takes as much for
    /// what it returns: `bytes_for(bytes_for(len)) == bytes_for(len)`.
    pub fn bytes_for(len: usize) -> usize {
        // Mappings beyond all classes.
        let whole = || len.checked_next_multiple_of(LARGEST_SYSTEM_PAGE).unwrap_or(usize::MAX);
        span_class(len).map_or_else(whole, span_bytes)
    }

    /// Whether the machine could ever serve `len` bytes, with all that is mapped given back.
    pub fn can_be_had(pool: &Pool, len: usize) -> bool {
        len as u64 <= pool.shared().machine()
    }

    /// Takes a span for `len` bytes, of [`Held::bytes_for`] so many, and says whether it reads as zero; with `zero`, it
    /// does.
    ///
    /// # Errors
    /// [`BlockError::Machine`] where `len` is more than the machine has, [`BlockError::NoMemory`]; nothing waits.
    pub fn take(pool: &Pool, len: usize, zero: bool) -> Result<(Self, bool), BlockError> {
        Self::take_as(pool, len, zero, false)
    }

    /// As [`Held::take`], but where much lies idle that is warm and somewhat longer, by half at most, it is that: for
    /// owners that go by [`Held::bytes`].
    ///
    /// # Errors
    /// As [`Held::take`].
    pub fn take_roomy(pool: &Pool, len: usize, zero: bool) -> Result<(Self, bool), BlockError> {
        Self::take_as(pool, len, zero, true)
    }

    fn take_as(pool: &Pool, len: usize, zero: bool, roomy: bool) -> Result<(Self, bool), BlockError> {
        let shared = pool.shared();
        // The system would promise it and could not keep its word.
        if !Self::can_be_had(pool, len) {
            return Err(BlockError::Machine { asked: len as u64, limit: shared.machine() });
        }
        let span = shared.hold(Self::bytes_for(len), zero, roomy)?;
        let reads_zero = span.zero.swap(false, Ordering::Relaxed);
        Ok((Self { span, shared }, reads_zero))
    }

    /// Takes a block that was a set's first one before, if one waits for this thread: most of it is with the system,
    /// and the rest is emptied.
    pub fn take_first(pool: &Pool) -> Option<Self> {
        let shared = pool.shared();
        let span = shared.arena(seat::arena(shared)).lock().take_first()?;
        Some(Self { span, shared })
    }

    /// Notes that this block, which was just mapped, is a set's first one; `hands_on`: that it may be another's after
    /// this one.
    pub fn note_first(&self, hands_on: bool) {
        self.shared.note_first(self.span, hands_on);
    }

    /// Notes where its owner keeps it.
    pub fn note_place(&self, place: usize) {
        self.span.place.store(place, Ordering::Relaxed);
    }

    /// What its owner notes and asks of it, if it is a block.
    pub(crate) fn block(&self) -> HeldBlock {
        HeldBlock { span: self.span, shared: self.shared }
    }

    /// Its first byte, at a multiple of 4 MiB. Nobody else has the memory while this value lives.
    pub fn base(&self) -> NonNull<u8> {
        self.span.base()
    }

    /// Bytes from there on.
    pub fn bytes(&self) -> usize {
        self.span.bytes()
    }
}

/// A block that an owner holds, found by its address.
#[derive(Clone, Copy)]
pub(crate) struct HeldBlock {
    span: &'static Span,
    shared: &'static Shared,
}

impl HeldBlock {
    /// The block that begins at `base`; `None` where the pool has lent none there, or it was just given back.
    pub fn find(pool: &Pool, base: NonNull<u8>) -> Option<Self> {
        addresses::find(base.as_ptr()).map(|span| Self { span, shared: pool.shared() })
    }

    /// Where its owner keeps it, as was noted last.
    pub fn place(self) -> usize {
        self.span.place.load(Ordering::Relaxed)
    }

    /// Notes that part of its memory is not there: given back to the system, or never touched. True when that was not
    /// known.
    pub fn note_holes(self) -> bool {
        self.span.note_holes()
    }

    /// Notes that all of its memory is there. True when that was not known, or when it may lie on small pages.
    pub fn note_no_holes(self) -> bool {
        let small = self.span.lent_small.swap(0, Ordering::Relaxed) > 0;
        let holes = self.span.holes.swap(false, Ordering::Relaxed);
        small || holes
    }

    /// Notes that it is fresh, and filled on small pages.
    pub fn note_small(self) {
        self.span.lent_small.store(1, Ordering::Relaxed);
    }

    /// True when it has holes, had none once, and has none of the pages left that its owner has given up.
    pub fn was_whole(self) -> bool {
        let was = self.span.holes.load(Ordering::Relaxed) && self.span.lent_small.load(Ordering::Relaxed) == 0;
        was && !self.shared.has_emptied(self.span)
    }

    /// Its owner gives up its `free` pages, of which those of `fresh` were never used since they read as zero. Their
    /// memory stays where it is, as idle memory of the pool's, if the pool keeps so much and it is no more than `most`
    /// bytes: then says how many bytes that are. Otherwise nothing is changed.
    pub fn empty_pages(self, free: u64, fresh: u64, most: u64) -> Option<u64> {
        let Self { span, shared } = self;
        // Pages that were never used take memory only where huge pages brought it.
        let small = span.holes.load(Ordering::Relaxed) || span.lent_small.load(Ordering::Relaxed) > 0;
        let pages = free & !span.given_up.load(Ordering::Relaxed) & if small { !fresh } else { u64::MAX };
        let bytes = bytes_of(pages);
        if bytes > most || !shared.may_stay_emptied(bytes) {
            return None;
        }
        if pages != 0 {
            shared.add_emptied(span, pages);
            shared.wants_trimmer();
        }
        Some(bytes)
    }

    /// Takes pages for use. Returns those that were given up and are still warm.
    pub fn claim_pages(self, pages: u64) -> u64 {
        self.shared.claim_pages(self.span, pages)
    }

    /// Gives the memory of pages back. Returns those that were given up before and were still warm.
    pub fn decommit_pages(self, pages: u64) -> u64 {
        let emptied = self.shared.add_gone(self.span, pages);
        self.shared.decommit_pages(self.span, pages);
        emptied
    }

    /// The pages that were given up and are still warm, at this moment.
    pub fn emptied_pages(self) -> u64 {
        self.span.emptied.load(Ordering::Relaxed)
    }

    /// Gives the memory back of the pages that were given up. Returns bytes.
    pub fn give_emptied_back(self) -> u64 {
        self.shared.give_emptied_back(self.span)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.shared.let_go(self.span);
    }
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Held").field("base", &self.base()).field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SYSTEM_PAGE;
    use crate::os::Twin;
    use crate::pool::Settings;

    #[test]
    fn what_was_held_in_other_sizes_does_not_pile_up() {
        let twin: &'static Twin = Box::leak(Box::default());
        let mut settings = Settings::unpooled();
        settings.pool_bytes = 8 << 30;
        let pool = Pool::with_root(twin, settings, "/nonexistent-root".into()).unwrap();
        // An array that grows bit by bit, as a copy beside the one before.
        let mut held = Held::take(&pool, 32 << 20, false).unwrap().0;
        for mib in 33..=160 {
            held = Held::take(&pool, mib << 20, false).unwrap().0;
        }
        let most = 2 * (160 << 20) + (160 << 19) + (64 << 20);
        assert!(twin.peak() <= most, "{} of at most {most}", twin.peak());
        drop(held);
        pool.trim(true);
        assert_eq!(twin.mapped(), 0);
        pool.validate().unwrap();
    }

    #[test]
    fn held_memory_of_many_sizes_is_warm_before_long() {
        for roomy in [true, false] {
            let twin: &'static Twin = Box::leak(Box::default());
            let mut settings = Settings::unpooled();
            settings.pool_bytes = 8 << 30;
            let pool = Pool::with_root(twin, settings, "/nonexistent-root".into()).unwrap();
            let (mut live, mut random) = (std::collections::VecDeque::new(), 1_u64);
            let mut turn = |count: usize| {
                for _ in 0..count {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let len = (1 << 20) + (random >> 32) as usize % (7 << 20);
                    let (held, _) =
                        if roomy { Held::take_roomy(&pool, len, false) } else { Held::take(&pool, len, false) }
                            .unwrap();
                    let exact = Held::bytes_for(len);
                    assert!(
                        held.bytes() == exact || roomy && held.bytes() > exact && held.bytes() <= exact + exact / 2
                    );
                    live.push_back(held);
                    if live.len() > 20 {
                        live.pop_front();
                    }
                }
            };
            turn(1000);
            let before = twin.maps();
            turn(1000);
            let fresh = twin.maps() - before;
            assert!(fresh < 500, "roomy {roomy}: {fresh} of 1000 were mapped anew");
            drop(live);
            pool.trim(true);
            assert_eq!(twin.mapped(), 0);
            pool.validate().unwrap();
        }
    }

    #[test]
    fn any_length_is_held_in_whole_pages_or_refused() {
        let twin: &'static Twin = Box::leak(Box::default());
        let pool = Pool::new(twin, Settings::unpooled()).unwrap();
        let machine = pool.shared().machine() as usize;
        for len in [0, 1, 100, SYSTEM_PAGE, LARGEST_SYSTEM_PAGE + 1, (64 << 30) + 1] {
            let bytes = Held::bytes_for(len);
            assert!(bytes > 0 && bytes >= len && bytes.is_multiple_of(SYSTEM_PAGE) && Held::bytes_for(bytes) == bytes);
            if len > machine {
                continue;
            }
            let (held, _) = Held::take(&pool, len, false).unwrap();
            assert_eq!((held.bytes(), twin.mapped()), (bytes, bytes as u64));
            // SAFETY: the last of its bytes, and nobody else has them.
            unsafe { held.base().add(bytes - 1).write(7) };
        }
        for len in [machine + 1, 1 << 47, isize::MAX as usize + 1, usize::MAX - LARGEST_SYSTEM_PAGE, usize::MAX] {
            let refused = Held::take(&pool, len, false).err();
            assert_eq!(refused, Some(BlockError::Machine { asked: len as u64, limit: machine as u64 }));
        }
        assert_eq!(twin.mapped(), 0);
        pool.validate().unwrap();
    }
}
