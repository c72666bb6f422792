//! Lending pieces of blocks.

use super::cache::{MOST_MOVED, MOST_TAKEN, Open, Own, Piece, batch};
use super::cut::Cut;
use super::seat;
use super::shared::{Arena, LockedArena, Shared};
use super::size::{BLOCK_CLASS, PIECE_CLASSES, piece_bytes, piece_class};
use super::span::Span;
use crate::error::BlockError;
use crate::sync::Ordering;
use crate::{BLOCK_BYTES, SYSTEM_PAGE};

/// Total limits up to this are of few blocks: with more, one for each class does not matter.
const TIGHT: u64 = 32 * BLOCK_BYTES as u64;

/// Where blocks are dear, requests of up to a page share a block, whatever their class; larger ones get pages of their
/// own.
const LARGEST_SHARED: usize = SYSTEM_PAGE;

impl Shared {
    /// Takes a free piece of a class, from this thread's cache when there is one in it.
    ///
    /// # Errors
    /// [`BlockError::Total`] when the total limit leaves no room for a block more to cut, or none to waste, and what
    /// `map_reserved` says.
    #[inline]
    pub fn rent_piece(&'static self, asked: usize, class: usize, clean: bool) -> Result<Piece, BlockError> {
        self.rent_warm_piece(class, clean).map_or_else(|| self.rent_cut_piece(asked, class, clean), Ok)
    }

    /// Takes a free piece of this thread's cache or of its arena's blocks, if there is one.
    #[inline]
    pub fn rent_warm_piece(&'static self, class: usize, clean: bool) -> Option<Piece> {
        self.rent_own_piece(class).or_else(|| self.rent_idle_piece(class, clean))
    }

    /// Takes a free piece of this thread's cache, if there is one and the cache's lock is biased: the way of nearly
    /// all.
    #[inline(always)]
    pub fn rent_own_piece(&'static self, class: usize) -> Option<Piece> {
        let mut open = seat::cache(self)?.try_lock_biased()?;
        let piece = open.pop(class)?;
        open.count_rented();
        Some(piece)
    }

    /// As [`Shared::rent_warm_piece`], where the cache is empty or its lock is not biased.
    #[inline(never)]
    fn rent_idle_piece(&'static self, class: usize, clean: bool) -> Option<Piece> {
        if let Some(own) = seat::cache(self) {
            let mut open = own.open();
            if let Some(piece) = open.pop(class) {
                open.count_rented();
                return Some(piece);
            }
        }
        let mut pieces = [None; MOST_TAKEN];
        let most = &mut pieces[..batch(class)];
        let taken = {
            let mut shelves = self.arena(seat::arena(self)).lock();
            let taken = shelves.take_pieces(class, clean, self.tick(), most);
            shelves.counts.rented += u64::from(taken > 0);
            shelves.counts.hits_piece += u64::from(taken > 0);
            taken
        };
        self.keep_all_but_one(&mut pieces[..taken], class)
    }

    #[cold]
    fn rent_cut_piece(&'static self, asked: usize, class: usize, clean: bool) -> Result<Piece, BlockError> {
        let class = if self.blocks_are_dear() && !self.is_cut(class) {
            if let Ok(piece) = self.rent_free_piece(class + 1, clean) {
                return Ok(piece);
            }
            let shared = piece_class(LARGEST_SHARED);
            if class > shared {
                return Err(self.no_room(asked));
            }
            // The first block of one of these classes is the one that all of them share.
            if self.is_cut(shared) { class } else { shared }
        } else {
            class
        };
        self.rent_next_pieces(asked, class, clean, false).or_else(|error| {
            // A block for each class in use can be all that the limit allows, or the system has, and nearly all of it
            // free. And what threads had in their caches lies in the arenas by now, this thread's own among them.
            if let Ok(piece) = self.rent_free_piece(class, clean) {
                return Ok(piece);
            }
            // Only the system's own memory is worth waiting for here.
            if !matches!(error, BlockError::NoMemory { .. }) {
                return Err(error);
            }
            let patiently = self.rent_next_pieces(asked, class, clean, true);
            patiently.or_else(|error| self.rent_free_piece(class, clean).map_err(|_| error))
        })
    }

    /// Whether the total limit is of few blocks, and free pieces take a quarter of it, beyond one block: then no block
    /// is cut for a class that has none. Else blocks that are nearly all free, one for each class in use, would keep
    /// out what is larger. A class that has one has shown that it fills it.
    fn blocks_are_dear(&self) -> bool {
        let limit = self.total_limit();
        limit <= TIGHT && self.free_pieces() + BLOCK_BYTES as u64 > (limit / 4).max(BLOCK_BYTES as u64)
    }

    /// Whether any block is cut for a class.
    fn is_cut(&self, class: usize) -> bool {
        self.arenas().any(|arena| arena.lock().cut_blocks().any(|(span, _)| span.piece_class() == class))
    }

    fn no_room(&self, asked: usize) -> BlockError {
        let ((used, idle), limit) = (self.used(), self.total_limit());
        BlockError::Total { asked: asked as u64, used, idle, limit }
    }

    /// One of the pieces of [`Shared::cut_or_steal`]; the others go into this thread's cache.
    fn rent_next_pieces(
        &'static self,
        asked: usize,
        class: usize,
        clean: bool,
        patiently: bool,
    ) -> Result<Piece, BlockError> {
        let mut pieces = [None; MOST_TAKEN];
        let taken = self.cut_or_steal(asked, class, clean, patiently, &mut pieces[..batch(class)])?;
        Ok(self.keep_all_but_one(&mut pieces[..taken], class).expect("one piece at least"))
    }

    /// Takes a free piece of a class, or of the next larger one that any arena has one of. Where there is none, says
    /// whether some are free that a thread is just giving the memory of back.
    pub fn rent_free_piece(&'static self, class: usize, clean: bool) -> Result<Piece, bool> {
        let home = self.arena(seat::arena(self));
        let of_class = |class| self.arenas_from(home.index).map(move |arena| (arena, class));
        let mut aside = false;
        let found = (class..PIECE_CLASSES).flat_map(of_class).find_map(|(arena, class)| {
            let (mut one, mut shelves) = ([None], arena.lock());
            shelves.take_pieces(class, clean, self.tick(), &mut one);
            // With the lock held: what was taken out of this arena for that, and is not back, is counted.
            aside |= self.ledger.aside() > 0;
            one[0]
        });
        let piece = found.ok_or(aside)?;
        let mut shelves = home.lock();
        shelves.counts.rented += 1;
        shelves.counts.hits_piece += 1;
        shelves.counts.stolen += u64::from(piece.span().home() != home.index);
        Ok(piece)
    }

    /// The last of the pieces; the others go into this thread's cache.
    fn keep_all_but_one(&'static self, pieces: &mut [Option<Piece>], class: usize) -> Option<Piece> {
        let (last, others) = pieces.split_last_mut()?;
        if !others.is_empty() {
            self.keep_pieces(others, class);
        }
        *last
    }

    /// Puts pieces that were just taken into this thread's cache; what does not fit goes back.
    fn keep_pieces(&'static self, pieces: &[Option<Piece>], class: usize) {
        let mut kept = 0;
        if let Some(own) = seat::cache(self) {
            let mut open = own.open();
            open.note_use();
            let pieces = if self.keeps() { pieces } else { &[] };
            // The last one in is the first one out: the lowest address.
            kept = pieces.iter().rev().flatten().take_while(|&&piece| open.push(class, piece)).count();
        }
        self.give_pieces(&pieces[..pieces.len() - kept]);
        self.wants_trimmer();
    }

    /// This arena has no free piece: takes some of a neighbour, cuts an idle block, of this arena or of another one, or
    /// maps one.
    ///
    /// In this order, because a block that is cut for each class in each arena is nearly all waste. Where neighbours
    /// are busy, their locks are passed over, so that arenas that would disturb each other do get blocks of their own.
    fn cut_or_steal(
        &'static self,
        asked: usize,
        class: usize,
        clean: bool,
        patiently: bool,
        into: &mut [Option<Piece>],
    ) -> Result<usize, BlockError> {
        let home = self.arena(seat::arena(self));
        let taken = self.steal_pieces(home, class, clean, into);
        if taken > 0 {
            return Ok(taken);
        }
        let own = home.lock().take_exactly(BLOCK_CLASS, false);
        let warm = own.or_else(|| self.steal(home, |shelves| shelves.take_exactly(BLOCK_CLASS, false)));
        let span = if let Some(span) = warm {
            span
        } else {
            self.reserve(asked as u64, BLOCK_BYTES as u64)?;
            let map = if patiently { Self::map_reserved } else { Self::map_reserved_at_once };
            map(self, asked as u64, BLOCK_BYTES, BLOCK_CLASS)?
        };
        self.cut(span, home, asked, class, clean, into)
    }

    /// Takes free pieces of a neighbour's cut blocks; they stay that neighbour's.
    fn steal_pieces(&self, home: &Arena, class: usize, clean: bool, into: &mut [Option<Piece>]) -> usize {
        let some = |other: &&Arena| other.free_pieces() >= piece_bytes(class) as u64;
        for other in self.arenas_from(home.index).skip(1).filter(some) {
            let take = |mut shelves: LockedArena<'_>| shelves.take_pieces(class, clean, self.tick(), into);
            let taken = other.try_lock().map_or(0, take);
            if taken > 0 {
                let mut shelves = home.lock();
                shelves.counts.rented += 1;
                shelves.counts.hits_piece += 1;
                shelves.counts.stolen += 1;
                return taken;
            }
        }
        0
    }

    /// Cuts a block that is this thread's alone and takes the first pieces.
    fn cut(
        &'static self,
        span: &'static Span,
        home: &Arena,
        asked: usize,
        class: usize,
        clean: bool,
        into: &mut [Option<Piece>],
    ) -> Result<usize, BlockError> {
        let Ok(mut cut) = Cut::new(class, span.zero.load(Ordering::Relaxed)) else {
            self.unmap(span);
            return Err(self.no_memory(asked as u64, libc::ENOMEM));
        };
        span.set_home(home.index);
        // Before the first piece is made of it.
        span.set_piece_class(class);
        let mut taken = 0;
        // One piece at least stays free, so that the block is found again.
        while taken < into.len().min(cut.pieces - 1) {
            into[taken] = cut.take(clean).map(|(index, zero)| Piece::new(span, index, zero));
            taken += 1;
        }
        span.stamp.store(self.tick(), Ordering::Relaxed);
        {
            let mut shelves = home.lock();
            // SAFETY: it was taken off its shelf or mapped by this thread, and nobody else knows it. Home and class
            // were set above; blocks get another one only when they are taken off a shelf.
            unsafe { shelves.add_cut(span, cut) };
            shelves.counts.rented += 1;
        }
        self.note_demand();
        Ok(taken)
    }

    /// Takes a lent piece back, into this thread's cache when there is room.
    #[inline]
    pub fn return_piece(&'static self, piece: Piece) {
        // Looked at with the cache open: a thread that waits for room empties it after having said so.
        if let Some(mut open) = seat::cache(self).and_then(Own::try_lock_biased)
            && self.keeps()
            && open.push(piece.span().piece_class(), piece)
        {
            open.count_returned();
            drop(open);
            self.wants_trimmer();
        } else {
            self.return_spare_piece(piece);
        }
    }

    /// As [`Shared::return_piece`], where the cache has no room or its lock is not biased.
    #[inline(never)]
    fn return_spare_piece(&'static self, piece: Piece) {
        let class = piece.span().piece_class();
        let kept = if let Some(own) = seat::cache(self) {
            let mut open = own.open();
            open.count_returned();
            if self.keeps() {
                open.push(class, piece) || self.return_crowded_piece(open, class, piece)
            } else {
                drop(open);
                self.flush_own();
                false
            }
        } else {
            self.arena(piece.span().home()).lock().counts.returned += 1;
            false
        };
        if !kept {
            self.give_pieces(&[Some(piece)]);
        }
        self.wants_trimmer();
    }

    /// Empties this thread's cache into the arenas. It is asked for anew each time: what is told that memory goes (a
    /// door to the system, an allocator that stands on another pool) may make the thread leave this one.
    fn flush_own(&'static self) {
        let mut pieces = [None; MOST_MOVED];
        while let Some(own) = seat::cache(self) {
            let taken = own.open().take_out(&mut pieces);
            if taken == 0 {
                return;
            }
            self.give_pieces(&pieces[..taken]);
        }
    }

    /// Makes room in a full cache for a piece that comes back; false when there is still none.
    fn return_crowded_piece(&'static self, mut open: Open<'_>, class: usize, piece: Piece) -> bool {
        let mut pieces = [None; MOST_MOVED];
        let taken = open.make_room(class, &mut pieces);
        let kept = open.push(class, piece);
        drop(open);
        self.give_pieces(&pieces[..taken]);
        kept
    }
}
