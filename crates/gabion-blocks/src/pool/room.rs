//! Making room: mapping, unmapping, and giving idle memory back first.

use std::ptr::NonNull;
use std::time::{Duration, Instant};

use super::addresses;
use super::cache::{Cache, MOST_MOVED, Open, Piece};
use super::cut::Cut;
use super::policy::{excess, surplus};
use super::shared::{Arena, Shared, count};
use super::shelves::SMALLEST_LARGE_PIECE;
use super::size::{PIECE_CLASSES, piece_bytes};
use super::span::{self, Span};
use crate::BLOCK_BYTES;
use crate::error::BlockError;
use crate::sync::{Ordering, lock};

/// A block that was cut and is whole again: how it was cut, to be freed without a lock, and the block, unless it is
/// kept.
struct Whole {
    cut: Cut,
    unkept: Option<&'static Span>,
}

/// The longest sleep between two attempts when the system is out of memory.
const LONGEST_NAP: Duration = Duration::from_millis(32);

/// Idle memory that was taken to be given back.
enum Cold {
    /// A span, of its shelf.
    Span(&'static Span),
    /// Emptied pages of a held block.
    Pages(&'static Span, u64),
}

impl Shared {
    // --- giving back -----------------------------------------------------------------------------

    /// Unmaps a span that is nobody's any more and that counts as mapped.
    pub fn unmap(&self, span: &'static Span) {
        let bytes = span.bytes() as u64;
        self.unmap_uncounted(span);
        self.ledger.give(bytes);
        self.admission.room_made();
    }

    /// Unmaps the end of an idle span that was just taken off its shelf, so that `bytes` bytes of `class` are left.
    /// They stay as warm as they were.
    pub fn shorten(&self, span: &'static Span, bytes: usize, class: usize) {
        let end = span.bytes() - bytes;
        addresses::shorten(span, bytes);
        span.shorten(bytes, class);
        // SAFETY: the last pages of the mapping; the span is this thread's alone, and ends before them now.
        unsafe { self.os.unmap(span.base().add(bytes), end) };
        self.ledger.give(end as u64);
        count(&self.tallies.trimmed, end as u64);
        self.admission.room_made();
    }

    /// Unmaps a span that is nobody's any more and that the ledger does not know.
    pub fn unmap_uncounted(&self, span: &'static Span) {
        let (base, bytes) = (span.base(), span.bytes());
        addresses::strike(span);
        // SAFETY: mapped by `map_span`, and as long as that made it or `shorten` left it; the caller was its last user.
        unsafe { self.os.unmap(base, bytes) };
        span::free_record(span);
    }

    /// Gives back what `next` takes, until it has nothing or `want` bytes are free. Returns bytes.
    fn give_back(&self, want: u64, mut next: impl FnMut(&Self) -> Option<Cold>) -> u64 {
        let mut freed = 0;
        while freed < want {
            freed += match next(self) {
                None => break,
                Some(Cold::Pages(span, pages)) => self.give_pages_back(span, pages),
                Some(Cold::Span(span)) => {
                    let bytes = span.bytes() as u64;
                    self.unmap(span);
                    self.ledger.left(bytes);
                    bytes
                }
            };
        }
        count(&self.tallies.trimmed, freed);
        freed
    }

    /// Gives idle memory back, the coldest of all arenas first, until `want` bytes are free or nothing is idle. Returns
    /// bytes.
    pub fn evict(&self, want: u64) -> u64 {
        self.give_back(want, |shared| shared.take_coldest(u64::MAX, true))
    }

    /// As [`Shared::evict`], of what counts as mapped alone.
    pub fn evict_mapped(&self, want: u64) -> u64 {
        self.give_back(want, |shared| shared.take_coldest(u64::MAX, false))
    }

    /// Gives idle memory back that the policy has no use for, the coldest of all arenas first. Returns bytes.
    pub fn trim_excess(&self) -> u64 {
        self.give_back(u64::MAX, |shared| {
            let ledger = &shared.ledger;
            let idle = shared.idle() + ledger.emptied();
            shared.take_coldest(excess(idle, shared.taken(), ledger.highest()), true)
        })
    }

    /// Takes the coldest span of all arenas, if it has at most `most` bytes; or, if `pages` allows it and these are
    /// colder, emptied pages of that many bytes.
    fn take_coldest(&self, most: u64, pages: bool) -> Option<Cold> {
        let coldest = |arena: &'static Arena| Some((arena.lock().coldest(pages)?, arena.index));
        loop {
            let any = pages && self.ledger.emptied() > 0;
            let (stamp, index) = self.arenas().filter(|arena| any || arena.idle() > 0).filter_map(coldest).min()?;
            let mut shelves = self.arena(index).lock();
            // Pages first: they serve their owner alone.
            let emptied = shelves.coldest_emptied().filter(|_| pages);
            if let Some(span) = emptied.filter(|span| span.stamp.load(Ordering::Relaxed) <= stamp) {
                let pages = self.take_emptied(&mut shelves, span, most);
                return (pages != 0).then_some(Cold::Pages(span, pages));
            }
            if let Some(span) = shelves.take_coldest(most) {
                // Under the lock: a thread that finds the shelf empty afterwards also sees that something is leaving.
                self.ledger.leave(span.bytes() as u64);
                return Some(Cold::Span(span));
            }
            // Too large; or somebody was faster, and then another is the coldest.
            if shelves.coldest(pages) == Some(stamp) {
                return None;
            }
        }
    }

    /// Gives back all that is idle: what threads have in their caches, whole spans, and large free pieces. Returns
    /// bytes.
    pub fn give_all(&self) -> u64 {
        self.flush_caches();
        self.evict(u64::MAX) + self.decommit_pieces(u64::MAX)
    }

    /// Gives back the memory of large free pieces in blocks that were not used since tick `before`. Returns bytes.
    pub fn decommit_pieces(&self, before: u64) -> u64 {
        let mut freed = 0;
        let classes = || (0..PIECE_CLASSES).filter(|&class| piece_bytes(class) >= SMALLEST_LARGE_PIECE);
        for (arena, class) in self.arenas().flat_map(|arena| classes().map(move |class| (arena, class))) {
            loop {
                let mut pieces = [None; MOST_MOVED];
                let taken = {
                    let mut shelves = arena.lock();
                    let taken = shelves.take_warm_large(class, before, &mut pieces);
                    self.ledger.set_aside((taken * piece_bytes(class)) as u64);
                    taken
                };
                if taken == 0 {
                    break;
                }
                for piece in pieces.iter_mut().flatten() {
                    let (at, span) = (piece.address(), piece.span());
                    if span.note_holes() {
                        // SAFETY: the whole of a block that stays cut and mapped while a piece of it is out.
                        unsafe { self.os.advise_small(span.base(), span.bytes()) };
                    }
                    // SAFETY: inside that block; and the piece was just taken, so nobody else uses its bytes.
                    unsafe { self.os.decommit(at, piece_bytes(class)) };
                    *piece = Piece::new(piece.span(), piece.index(), true);
                }
                self.put_back(&pieces[..taken], true, |whole| self.part_with(whole));
                let bytes = (taken * piece_bytes(class)) as u64;
                self.ledger.brought_back(bytes);
                self.admission.room_made();
                freed += bytes;
            }
        }
        count(&self.tallies.trimmed, freed);
        freed
    }

    /// Empties every thread's cache into the arenas. Returns how many pieces that were.
    pub fn flush_caches(&self) -> usize {
        self.all_caches().map(|cache| self.flush(cache)).sum()
    }

    /// Empties one cache into the arenas, as another thread. Returns how many pieces that were.
    pub fn flush(&self, cache: &Cache) -> usize {
        self.flush_by(|| cache.lock_unbiased())
    }

    /// Empties the cache that `open` opens.
    pub fn flush_by<'a>(&self, open: impl Fn() -> Open<'a>) -> usize {
        let mut flushed = 0;
        loop {
            let (mut pieces, mut whole) = ([None; MOST_MOVED], [const { None }; MOST_MOVED]);
            // Until they are in their arenas nobody adds up the figures: they would seem to be in use
            // (`Shared::stats`).
            let list = lock(&self.caches);
            let taken = open().take_out(&mut pieces);
            let mut places = whole.iter_mut();
            self.put_back(&pieces[..taken], false, |one| *places.next().expect("one for each piece") = Some(one));
            drop(list);
            whole.into_iter().flatten().for_each(|one| self.part_with(one));
            if taken == 0 {
                return flushed;
            }
            self.admission.room_made();
            flushed += taken;
        }
    }

    /// Takes pieces back into the arenas that they came from; blocks that are whole again are kept or unmapped.
    pub fn give_pieces(&self, pieces: &[Option<Piece>]) {
        self.put_back(pieces, false, |whole| self.part_with(whole));
        self.admission.room_made();
    }

    /// Takes pieces back into their arenas, `aside` when they count as that: nobody has used their block then.
    /// `whole_again` is called, without any arena's lock, with each block that is whole again, for
    /// [`Shared::part_with`].
    fn put_back(&self, pieces: &[Option<Piece>], aside: bool, mut whole_again: impl FnMut(Whole)) {
        let tick = self.tick();
        let mut left = pieces.iter().flatten().copied().peekable();
        while let Some(&first) = left.peek() {
            let keep = self.keeps_whole();
            let arena = self.arena(first.span().home());
            let mut whole = None;
            let mut shelves = arena.lock();
            // One block at a time: what is said about its cut is freed with the lock let go.
            while whole.is_none()
                && let Some(piece) = left.next_if(|piece| piece.span().home() == arena.index)
            {
                if aside {
                    shelves.counts.aside -= piece_bytes(piece.span().piece_class()) as u64;
                } else {
                    piece.span().stamp.store(tick, Ordering::Relaxed);
                }
                // SAFETY: a piece that is out keeps its block cut, so the block is on the list of its home, this arena.
                whole = unsafe { shelves.give_piece(piece) };
            }
            let Some(span) = whole else { continue };
            // With parts of it cold, it is not what the next user expects of the pool.
            let keep = keep && !span.holes.load(Ordering::Relaxed);
            // SAFETY: on the same list still, as the lock was not let go since; and all its pieces are free.
            let cut = unsafe { shelves.end_cut(span) };
            if keep {
                shelves.shelve(span, tick);
            } else {
                // As in `take_coldest`.
                self.ledger.leave(span.bytes() as u64);
            }
            drop(shelves);
            whole_again(Whole { cut, unkept: (!keep).then_some(span) });
        }
    }

    /// Lets go of what is left of a block's pieces, and of the block if it is not kept.
    fn part_with(&self, whole: Whole) {
        drop(whole.cut);
        if let Some(span) = whole.unkept {
            let bytes = span.bytes() as u64;
            self.unmap(span);
            self.ledger.left(bytes);
        }
    }

    // --- room ------------------------------------------------------------------------------------

    /// How many idle bytes should go before `bytes` more are mapped: what would be more than the pool may keep, and
    /// what the policy would not keep beside them.
    pub fn surplus(&self, bytes: u64) -> u64 {
        let ledger = &self.ledger;
        let beyond_pool = (ledger.kept() + bytes).saturating_sub(self.pool_bytes());
        let beyond = beyond_pool.max(self.emptied_beyond_limit(bytes));
        let mapped = (ledger.mapped() + ledger.held()).saturating_sub(ledger.gone());
        beyond.max(surplus(mapped, self.taken(), bytes, ledger.highest(), self.free_pieces()))
    }

    /// How many emptied bytes should go before `bytes` more are drawn: they count for the total limit only where it can
    /// be helped.
    pub fn emptied_beyond_limit(&self, bytes: u64) -> u64 {
        let emptied = self.ledger.emptied();
        (self.ledger.drawn() + emptied + bytes).saturating_sub(self.total_limit()).min(emptied)
    }

    /// Gives idle memory back that should go before `bytes` more are mapped.
    pub fn make_room_beside(&self, bytes: u64) {
        let surplus = self.surplus(bytes);
        if surplus > 0 && self.idle() + self.ledger.emptied() > 0 {
            self.evict(surplus);
        }
    }

    /// What counts for the total limit, and how much of that is idle, for errors to tell.
    #[cold]
    pub fn used(&self) -> (u64, u64) {
        let drawn = self.ledger.drawn();
        (drawn, (self.idle() + self.free_pieces()).min(drawn))
    }

    /// Draws `bytes` on the ledger for something to be mapped. Gives idle memory back where the pool's size or the
    /// total limit ask for it, and refuses only when that would not be enough.
    ///
    /// # Errors
    /// [`BlockError::Total`]; nothing is drawn then.
    pub fn reserve(&self, asked: u64, bytes: u64) -> Result<(), BlockError> {
        self.make_room_beside(bytes);
        self.draw(asked, bytes)
    }

    /// Draws `bytes` on the ledger. Gives idle memory back where the total limit asks for it, and refuses only when
    /// that would not be enough.
    ///
    /// # Errors
    /// [`BlockError::Total`]; nothing is drawn then.
    pub fn draw(&self, asked: u64, bytes: u64) -> Result<(), BlockError> {
        let mut flushed = false;
        loop {
            let limit = self.total_limit();
            let Err(used) = self.ledger.take(bytes, limit) else { return Ok(()) };
            let short = (used + bytes).saturating_sub(limit);
            // In this order: what moves from one to the other meanwhile is counted twice rather than not at all.
            let within_reach = self.idle() + self.ledger.leaving();
            if bytes <= limit && within_reach >= short {
                if self.evict_mapped(short) == 0 {
                    // Another thread is about to unmap it.
                    std::thread::yield_now();
                }
            } else if bytes <= limit && !flushed {
                // What threads keep to themselves may make whole blocks; they are idle then, as others are.
                self.flush_caches();
                self.evict(self.surplus(bytes));
                flushed = true;
            } else if bytes > limit || self.ledger.drawn() >= used {
                let idle = self.used().1.min(used);
                return Err(BlockError::Total { asked, used, idle, limit });
            }
        }
    }

    /// Maps a span of `bytes` bytes that are drawn on the ledger already. They are returned to it when this fails.
    ///
    /// # Errors
    /// [`BlockError::NoMemory`], after all that is idle was given back and the pool's patience is at its end.
    pub fn map_reserved(&self, asked: u64, bytes: usize, class: usize) -> Result<&'static Span, BlockError> {
        self.map_patiently(bytes, class).map_err(|errno| self.undrawn(asked, bytes, errno))
    }

    /// As [`Shared::map_reserved`], without patience.
    ///
    /// # Errors
    /// [`BlockError::NoMemory`], after all that is idle was given back.
    pub fn map_reserved_at_once(&self, asked: u64, bytes: usize, class: usize) -> Result<&'static Span, BlockError> {
        self.map_at_once(bytes, class).map_err(|errno| self.undrawn(asked, bytes, errno))
    }

    /// What to say when bytes that were drawn on the ledger cannot be mapped. They are returned to it.
    #[cold]
    fn undrawn(&self, asked: u64, bytes: usize, errno: i32) -> BlockError {
        self.ledger.give(bytes as u64);
        self.admission.room_made();
        self.no_memory(asked, errno)
    }

    fn map_patiently(&self, bytes: usize, class: usize) -> Result<&'static Span, i32> {
        if let Ok(span) = self.map_span(bytes, class) {
            return Ok(span);
        }
        self.give_all();
        let patience = lock(&self.settings).patience;
        let (start, mut nap) = (Instant::now(), Duration::from_millis(1));
        let waiter = self.admission.stand_by();
        loop {
            let (seen, _) = waiter.look();
            count(&self.tallies.retries, 1);
            match self.map_span(bytes, class) {
                Ok(span) => return Ok(span),
                Err(errno) if start.elapsed() >= patience => return Err(errno),
                Err(_) => {}
            }
            waiter.sleep(seen, nap.min(patience.saturating_sub(start.elapsed())));
            nap = (nap * 2).min(LONGEST_NAP);
        }
    }

    /// Maps a span that the ledger need not know. It is idle memory's turn to go when the system has none left, but
    /// nothing waits.
    ///
    /// # Errors
    /// The system's error number.
    pub fn map_at_once(&self, bytes: usize, class: usize) -> Result<&'static Span, i32> {
        self.map_span(bytes, class).or_else(|_| {
            self.give_all();
            count(&self.tallies.retries, 1);
            self.map_span(bytes, class)
        })
    }

    fn map_span(&self, bytes: usize, class: usize) -> Result<&'static Span, i32> {
        let record = span::new_record()?;
        let base: NonNull<u8> = self.os.map(bytes, BLOCK_BYTES).inspect_err(|_| span::free_record(record))?;
        record.stand_for(base, bytes, class, self.number, self.tallies.fresh.fetch_add(1, Ordering::Relaxed) as u32);
        addresses::enter(record).inspect_err(|_| {
            // SAFETY: mapped just above and shown to nobody.
            unsafe { self.os.unmap(base, bytes) };
            span::free_record(record);
        })?;
        Ok(record)
    }

    /// What to say when the system has no memory left.
    #[cold]
    pub fn no_memory(&self, asked: u64, errno: i32) -> BlockError {
        let (in_use, idle) = self.in_use_and_idle();
        BlockError::NoMemory { asked, in_use, idle, errno }
    }

    /// Bytes lent to buffers or allowed, and bytes mapped beside them.
    fn in_use_and_idle(&self) -> (u64, u64) {
        let cached = self.all_caches().map(|cache| cache.bytes() as u64).sum::<u64>();
        let (mut out, mut within) = (0, 0);
        for arena in self.arenas() {
            let counts = arena.lock().counts;
            out += counts.out();
            within += counts.idle + counts.cut - counts.pieces_out + counts.aside;
        }
        (out.saturating_sub(cached) + self.ledger.allowed(), within + cached)
    }
}
