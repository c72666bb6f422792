//! Lending whole spans: blocks, runs, and memory of an exact size; and blocks for block sets.

use super::seat;
use super::shared::{Arena, Shared};
use super::shelves::Shelves;
use super::size::{BLOCK_CLASS, SPAN_CLASSES, exact_bytes, span_bytes, span_class, stagger_room};
use super::span::{NO_CLASS, Span, Use};
use crate::BLOCK_BYTES;
use crate::error::BlockError;
use crate::huge::{self, HUGE_PAGE};
use crate::sync::Ordering;

/// What whole memory a request is served by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The shelf, or [`NO_CLASS`] when the size is beyond all classes.
    pub class: usize,
    /// What a fresh span would take.
    pub bytes: usize,
    /// The least that would do.
    pub exact: usize,
}

impl Plan {
    /// How `bytes` bytes are served by whole memory.
    pub fn of(bytes: usize) -> Self {
        let exact = exact_bytes(bytes);
        if bytes <= BLOCK_BYTES {
            return Self { class: BLOCK_CLASS, bytes: BLOCK_BYTES, exact };
        }
        let class = span_class(bytes + stagger_room(bytes));
        Self { class: class.unwrap_or(NO_CLASS), bytes: class.map_or(exact, span_bytes), exact }
    }
}

/// How many classes larger than need be a warm run may be: with its own class and its stagger, 1/8 in all.
pub(crate) const CLOSE: usize = 1;

/// The same where a fresh run would have to push out idle ones: half as much again at most. What is lent so is mapped
/// anyway, and warm.
const LOOSE: usize = 16;

/// How often memory on small pages is lent before it is worth the work to move it onto huge ones.
const PATIENCE: u32 = 8;

impl Shared {
    /// Takes whole memory for a buffer: of this arena, of another one, or fresh.
    ///
    /// # Errors
    /// As `reserve` and `map_reserved`.
    pub fn rent_whole(&'static self, asked: usize, plan: Plan) -> Result<&'static Span, BlockError> {
        if let Some(span) = self.rent_warm(plan, CLOSE) {
            return Ok(span);
        }
        // Rather a run that is somewhat too large, or a part of one, than to throw one away and map another.
        if self.surplus(plan.bytes as u64) > 0
            && let Some(span) = self.rent_warm(plan, LOOSE).or_else(|| self.rent_part(plan))
        {
            return Ok(span);
        }
        let span = match self.reserve(asked as u64, plan.bytes as u64) {
            Ok(()) => self.map_reserved(asked as u64, plan.bytes, plan.class)?,
            // The class does not fit, but its smallest part might.
            Err(_) => return self.rent_exactly(asked, plan.exact),
        };
        Ok(self.lend_fresh(span, plan.exact))
    }

    /// Takes memory of an exact size, which is not kept when it comes back.
    ///
    /// # Errors
    /// As `reserve` and `map_reserved`.
    pub fn rent_exactly(&'static self, asked: usize, exact: usize) -> Result<&'static Span, BlockError> {
        self.reserve(asked as u64, exact as u64)?;
        Ok(self.lend_fresh(self.map_reserved(asked as u64, exact, NO_CLASS)?, exact))
    }

    /// Takes idle memory for a buffer, if there is some; of runs, up to `wider` classes larger than need be.
    pub fn rent_warm(&'static self, plan: Plan, wider: usize) -> Option<&'static Span> {
        if plan.class == NO_CLASS {
            return None;
        }
        let home = self.arena(seat::arena(self));
        let tick = self.tick();
        let own = {
            let mut shelves = home.lock();
            shelves.take(plan.class, wider).map(|span| (span, lend_warm(&mut shelves, span, tick)))
        };
        let (span, tells) = own.or_else(|| {
            let span = self.steal(home, |shelves| shelves.take(plan.class, wider))?;
            Some((span, lend_warm(&mut home.lock(), span, tick)))
        })?;
        if tells {
            self.note_demand();
        }
        if span.lent_small.load(Ordering::Relaxed) > 0 {
            self.gather(span);
        }
        Some(span)
    }

    /// Counts that a span on small pages is lent once more, and gets it huge ones when that was often enough.
    #[cold]
    fn gather(&self, span: &'static Span) {
        // Relaxed, as with all of a span: it is the caller's alone.
        let lent = span.lent_small.load(Ordering::Relaxed);
        span.lent_small.store(lent.saturating_add(1), Ordering::Relaxed);
        if lent < PATIENCE {
            return;
        }
        let (bytes, done) = (span.bytes(), span.gathered.load(Ordering::Relaxed));
        // SAFETY: the span's whole mapping, live while it is lent; blocks begin at multiples of 4 MiB. A span may have
        // been shortened since.
        let done = unsafe { huge::gather(self.os, span.base(), bytes, done.min(bytes)) };
        span.gathered.store(done, Ordering::Relaxed);
        if bytes - done < HUGE_PAGE {
            span.lent_small.store(0, Ordering::Relaxed);
        }
    }

    /// Takes a longer idle run of this arena or another one and gives its end back.
    fn rent_part(&'static self, plan: Plan) -> Option<&'static Span> {
        if plan.class == NO_CLASS {
            return None;
        }
        let home = self.arena(seat::arena(self));
        let own = home.lock().take(plan.class, SPAN_CLASSES);
        let span = own.or_else(|| self.steal(home, |shelves| shelves.take(plan.class, SPAN_CLASSES)))?;
        if span.bytes() > plan.bytes {
            self.shorten(span, plan.bytes, plan.class);
        }
        let tells = lend_warm(&mut home.lock(), span, self.tick());
        if tells {
            self.note_demand();
        }
        Some(span)
    }

    /// Takes idle memory out of another arena; `home` is where it belongs from now on.
    pub fn steal(
        &'static self,
        home: &Arena,
        take: impl Fn(&mut Shelves) -> Option<&'static Span>,
    ) -> Option<&'static Span> {
        let others = self.arenas_from(home.index).skip(1).filter(|other| other.idle() > 0);
        let span = others.filter_map(Arena::try_lock).find_map(|mut shelves| take(&mut shelves))?;
        span.set_home(home.index);
        home.lock().counts.stolen += 1;
        Some(span)
    }

    /// Lends a span that was just mapped and of which `bytes` bytes are asked for.
    pub fn lend_fresh(&'static self, span: &'static Span, bytes: usize) -> &'static Span {
        let home = self.arena(seat::arena(self));
        span.set_home(home.index);
        if bytes.min(span.bytes()) >= HUGE_PAGE {
            // SAFETY: a fresh mapping, so it begins at a multiple of a block, reads as zero and is nobody's yet; and it
            // is long enough.
            let all = unsafe { huge::prepare(self.os, span.base(), span.bytes()) };
            span.lent_small.store(u32::from(!all), Ordering::Relaxed);
        }
        home.lock().lend(span);
        self.note_demand();
        span
    }

    /// Takes whole memory back from a buffer: onto the shelf that it came from, or back to the system.
    pub fn return_whole(&'static self, span: &'static Span) {
        let keep = span.class() != NO_CLASS && self.keeps_whole();
        let (arena, tick) = (self.arena(span.home()), self.tick());
        {
            let mut shelves = arena.lock();
            assert!(span.state() == Use::Lent, "memory was given back twice");
            shelves.counts.lent -= span.bytes() as u64;
            shelves.counts.returned += 1;
            if keep {
                shelves.shelve(span, tick);
            }
        }
        if keep {
            self.wants_trimmer();
            self.admission.room_made();
        } else {
            self.unmap(span);
        }
    }

    // --- for block sets --------------------------------------------------------------------------

    /// Takes a block, or a run of exactly `bytes` bytes, for an owner outside the pool's limits; if `roomy`, a warm run
    /// may be longer, by half at most. With `zero`, it is known to read as zero; otherwise `Span::zero` says whether it
    /// does.
    ///
    /// # Errors
    /// [`BlockError::NoMemory`]; nothing waits.
    pub fn hold(&'static self, bytes: usize, zero: bool, roomy: bool) -> Result<&'static Span, BlockError> {
        let class = span_class(bytes).filter(|&class| span_bytes(class) == bytes);
        let home = self.arena(seat::arena(self));
        let take = |shelves: &mut Shelves| shelves.take_exactly(class?, zero);
        let own = take(&mut home.lock());
        let exact = own.or_else(|| self.steal(home, take));
        let warm = exact.or_else(|| self.warm_and_longer(class.filter(|_| !zero)?, roomy, home));
        let span = if let Some(span) = warm {
            self.ledger.give(span.bytes() as u64);
            self.admission.room_made();
            span
        } else {
            self.make_room_beside(bytes as u64);
            self.map_at_once(bytes, class.unwrap_or(NO_CLASS)).map_err(|errno| self.no_memory(bytes as u64, errno))?
        };
        span.set_home(home.index);
        self.ledger.hold(span.bytes() as u64);
        home.lock().hold(span);
        self.note_demand();
        Ok(span)
    }

    /// Takes an idle run that is longer than those of `class`, where a fresh one would have to push out idle ones; its
    /// end is given back unless it is to be `roomy`.
    fn warm_and_longer(&'static self, class: usize, roomy: bool, home: &Arena) -> Option<&'static Span> {
        let bytes = span_bytes(class);
        if class == BLOCK_CLASS || self.surplus(bytes as u64) == 0 {
            return None;
        }
        let take = |shelves: &mut Shelves| shelves.take_longer(class, LOOSE);
        let own = take(&mut home.lock());
        let span = own.or_else(|| self.steal(home, take))?;
        if !roomy {
            self.shorten(span, bytes, class);
        }
        Some(span)
    }

    /// Takes back what [`Shared::hold`] gave, if it is warm and as far as the pool may keep it.
    pub fn let_go(&'static self, span: &'static Span) {
        if span.first.load(Ordering::Relaxed) {
            if self.keep_first(span) {
                return self.wants_trimmer();
            }
            span.first.store(false, Ordering::Relaxed);
        }
        self.claim_all(span);
        let bytes = span.bytes() as u64;
        let (arena, tick) = (self.arena(span.home()), self.tick());
        let fits = |limit: u64| self.ledger.kept() + bytes <= limit;
        let keep = span.class() != NO_CLASS
            && !span.holes.load(Ordering::Relaxed)
            && fits(self.pool_bytes())
            && !self.admission.anyone()
            && self.ledger.take(bytes, self.total_limit()).is_ok();
        {
            let mut shelves = arena.lock();
            assert!(span.state() == Use::Held, "a block was given back twice");
            shelves.counts.held -= bytes;
            shelves.counts.held_taken -= bytes;
            if keep {
                shelves.shelve(span, tick);
            }
        }
        self.ledger.let_go(bytes);
        if keep {
            self.wants_trimmer();
        } else {
            self.unmap_uncounted(span);
        }
        self.admission.room_made();
    }
}

/// Counts a warm span as lent; true when demand is to be added up.
fn lend_warm(shelves: &mut Shelves, span: &'static Span, tick: u64) -> bool {
    shelves.lend(span);
    if span.class() == BLOCK_CLASS {
        shelves.counts.hits_block += 1;
    } else {
        shelves.counts.hits_run += 1;
    }
    shelves.tells(span.bytes(), tick)
}
