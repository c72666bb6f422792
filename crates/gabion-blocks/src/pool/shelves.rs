//! One arena's memory: idle spans on shelves, cut blocks with free pieces, and the counts of both.

use super::cache::Piece;
use super::cut::Cut;
use super::size::{BLOCK_CLASS, PIECE_CLASSES, SPAN_CLASSES, piece_bytes, pieces_in_block};
use super::span::{List, NO_CLASS, Neighbours, Span, Use, shelf};
use crate::invalid::Invalid;
use crate::sync::Ordering;

/// Counts of one arena. Sizes are bytes of spans whose home it is; the others count since the pool was made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counts {
    /// On the shelves.
    pub idle: u64,
    /// Lent whole to buffers.
    pub lent: u64,
    /// Lent to block sets and runs of piles, without what is emptied or gone.
    pub held_taken: u64,
    /// Cut into pieces.
    pub cut: u64,
    /// Pieces that are out: lent, or in a thread's cache.
    pub pieces_out: u64,
    /// Of these, free pieces that are out only while their memory is given back.
    pub aside: u64,
    /// How many large free pieces there are whose memory is warm, in cut blocks.
    pub warm_large: u64,
    pub rented: u64,
    pub returned: u64,
    pub stolen: u64,
    pub hits_cache: u64,
    pub hits_piece: u64,
    pub hits_block: u64,
    pub hits_run: u64,
    /// Lent to block sets and runs of piles; part of it that is empty and warm, and part of it that is with the system.
    pub held: u64,
    pub emptied: u64,
    pub gone: u64,
}

impl Counts {
    /// Of an arena where nothing has happened yet.
    const fn new() -> Self {
        Self {
            idle: 0,
            lent: 0,
            held_taken: 0,
            cut: 0,
            pieces_out: 0,
            aside: 0,
            warm_large: 0,
            rented: 0,
            returned: 0,
            stolen: 0,
            hits_cache: 0,
            hits_piece: 0,
            hits_block: 0,
            hits_run: 0,
            held: 0,
            emptied: 0,
            gone: 0,
        }
    }

    /// Bytes that are lent to buffers, or in threads' caches.
    #[inline]
    pub fn out(&self) -> u64 {
        self.lent + self.pieces_out - self.aside
    }

    /// Bytes that are not idle.
    #[inline]
    pub fn taken(&self) -> u64 {
        self.lent + self.held_taken + self.cut
    }

    /// Bytes of cut blocks that are in no piece that is out.
    #[inline]
    pub fn free_pieces(&self) -> u64 {
        self.cut - self.pieces_out
    }
}

/// How many bytes an arena lends, at most, before it has all arenas' demand added up again.
const UNTOLD: u64 = 1 << 30;

/// Free pieces from this size on are given back alone, while their block stays in use.
pub(crate) const SMALLEST_LARGE_PIECE: usize = 16 << 10;

/// What an arena's lock guards.
pub(crate) struct Shelves {
    /// Idle spans by class, the last returned first.
    classes: [List; SPAN_CLASSES],
    /// All idle spans, the last returned first.
    ages: List,
    /// Cut blocks with free pieces, by class.
    cuts: [List; PIECE_CLASSES],
    /// All cut blocks, the last cut first. While a block is on this list its `Span::cut` belongs to this arena's lock.
    cut_blocks: List,
    pub counts: Counts,
    /// The most that was taken here when all arenas' demand was added up since tick `told_at`.
    told: u64,
    told_at: u64,
    /// Bytes lent since then.
    untold: u64,
    /// Held blocks with emptied pages, the last emptied first.
    pub(super) emptied: List,
    /// First blocks that no set has, the last returned first. All that is in them is emptied or gone.
    pub(super) firsts: List,
}

pub(super) fn age(span: &'static Span) -> &'static Neighbours {
    &span.age
}

impl Shelves {
    pub const fn new() -> Self {
        Self {
            classes: [const { List::new() }; SPAN_CLASSES],
            ages: List::new(),
            emptied: List::new(),
            firsts: List::new(),
            cuts: [const { List::new() }; PIECE_CLASSES],
            cut_blocks: List::new(),
            counts: Counts::new(),
            told: 0,
            told_at: 0,
            untold: 0,
        }
    }

    /// Puts a span on its shelf, at the hot end.
    pub fn shelve(&mut self, span: &'static Span, stamp: u64) {
        debug_assert!(span.class() < SPAN_CLASSES);
        span.set_state(Use::Idle);
        span.stamp.store(stamp, Ordering::Relaxed);
        self.classes[span.class()].push_front(span, shelf);
        self.ages.push_front(span, age);
        self.counts.idle += span.bytes() as u64;
    }

    fn unshelve(&mut self, span: &'static Span) -> &'static Span {
        self.classes[span.class()].remove(span, shelf);
        self.ages.remove(span, age);
        self.counts.idle -= span.bytes() as u64;
        span
    }

    /// Takes the last returned span of a class, or of the first of up to `wider` classes above it that has one. A block
    /// is a block: only runs are given more than they need.
    pub fn take(&mut self, class: usize, wider: usize) -> Option<&'static Span> {
        let last = if class > BLOCK_CLASS { (class + wider).min(SPAN_CLASSES - 1) } else { class };
        let span = self.classes[class..=last].iter().find_map(|list| list.first.get())?;
        Some(self.unshelve(span))
    }

    /// Takes a span of exactly this class, one that reads as zero if `zero` asks for it.
    pub fn take_exactly(&mut self, class: usize, zero: bool) -> Option<&'static Span> {
        // A short look: what is known to be zero was never used, so it lies at the cold end or nowhere.
        let fits = |span: &&'static Span| !zero || span.zero.load(Ordering::Relaxed);
        let span = self.classes[class].iter(shelf).take(8).find(fits)?;
        Some(self.unshelve(span))
    }

    /// Takes the last returned run of the first of up to `wider` classes above this one that has one. No block: those
    /// are asked for as they are.
    pub fn take_longer(&mut self, class: usize, wider: usize) -> Option<&'static Span> {
        let mut longer = class + 1..=(class + wider).min(SPAN_CLASSES - 1);
        let span = longer.find_map(|class| self.classes[class].first.get().filter(|_| class != BLOCK_CLASS))?;
        Some(self.unshelve(span))
    }

    /// When the coldest span was returned; with `pages`, or pages of a held block were emptied, if that is longer ago.
    pub fn coldest(&self, pages: bool) -> Option<u64> {
        let emptied = self.coldest_emptied().filter(|_| pages);
        self.ages.last.get().into_iter().chain(emptied).map(|span| span.stamp.load(Ordering::Relaxed)).min()
    }

    /// Takes the coldest span, if it has at most `most` bytes.
    pub fn take_coldest(&mut self, most: u64) -> Option<&'static Span> {
        let span = self.ages.last.get().filter(|span| span.bytes() as u64 <= most)?;
        Some(self.unshelve(span))
    }

    /// Counts a span that was lent whole.
    pub fn lend(&mut self, span: &'static Span) {
        span.set_state(Use::Lent);
        self.counts.lent += span.bytes() as u64;
        self.counts.rented += 1;
    }

    /// Whether all arenas' demand should be added up, now that `bytes` bytes were taken: when more is taken here than
    /// at any such time since the policy looked last, and now and then. So the mark is that of one thread to the byte,
    /// and that of many about so; and a thread that takes and returns the same again writes nothing that others read.
    #[inline]
    #[must_use]
    pub fn tells(&mut self, bytes: usize, tick: u64) -> bool {
        let taken = self.counts.taken();
        self.untold += bytes as u64;
        if taken <= self.told && self.untold < UNTOLD && self.told_at == tick {
            return false;
        }
        let told = if self.told_at == tick { self.told } else { 0 };
        (self.told, self.told_at, self.untold) = (taken.max(told), tick, 0);
        true
    }

    /// Counts a span that a block set has taken.
    pub fn hold(&mut self, span: &'static Span) {
        span.set_state(Use::Held);
        self.counts.held += span.bytes() as u64;
        self.counts.held_taken += span.bytes() as u64;
    }

    /// Cuts a block into pieces of its class, of which some are free and the others out.
    ///
    /// # Safety
    /// The block is on no list and the caller's alone. Its home is this arena, and stays so until the block is whole
    /// again, as does the class of its pieces.
    pub unsafe fn add_cut(&mut self, span: &'static Span, cut: Cut) {
        let (out, warm, class) = (cut.pieces - cut.free, cut.warm(), span.piece_class());
        span.set_state(Use::Cut);
        // SAFETY: the caller's alone (its duty), and put on this arena's list by the next line; `self` is what the lock
        // guards.
        unsafe { *span.cut() = cut };
        self.cut_blocks.push_front(span, age);
        self.cuts[class].push_front(span, shelf);
        self.counts.cut += span.bytes() as u64;
        self.counts.pieces_out += (out * piece_bytes(class)) as u64;
        self.count_warm_large(class, 0, warm);
    }

    /// Keeps count of large pieces that are free and warm: a block had `before`, and has `after` now.
    fn count_warm_large(&mut self, class: usize, before: usize, after: usize) {
        if piece_bytes(class) >= SMALLEST_LARGE_PIECE {
            self.counts.warm_large = self.counts.warm_large + after as u64 - before as u64;
        }
    }

    /// Takes up to `into.len()` free pieces of a class; returns how many.
    pub fn take_pieces(&mut self, class: usize, clean: bool, stamp: u64, into: &mut [Option<Piece>]) -> usize {
        let mut taken = 0;
        while let (Some(span), true) = (self.cuts[class].first.get(), taken < into.len()) {
            // SAFETY: on this arena's list, whose lock is held: `self` is what it guards.
            let cut = unsafe { span.cut() };
            let warm = cut.warm();
            while let Some(place) = into.get_mut(taken) {
                let Some((index, zero)) = cut.take(clean) else { break };
                *place = Some(Piece::new(span, index, zero));
                taken += 1;
            }
            span.stamp.store(stamp, Ordering::Relaxed);
            if cut.free == 0 {
                self.cuts[class].remove(span, shelf);
            }
            self.count_warm_large(class, warm, cut.warm());
        }
        self.counts.pieces_out += (taken * piece_bytes(class)) as u64;
        taken
    }

    /// Takes a piece back. Returns its block when that is whole again, for [`Shelves::end_cut`].
    ///
    /// # Panics
    /// When the piece is free already.
    ///
    /// # Safety
    /// The piece's block is one of this arena's cut blocks.
    pub unsafe fn give_piece(&mut self, piece: Piece) -> Option<&'static Span> {
        let (span, class) = (piece.span(), piece.span().piece_class());
        // SAFETY: on this arena's list (duty of the caller), whose lock is held: `self` is what it guards.
        let cut = unsafe { span.cut() };
        let warm = cut.warm();
        assert!(cut.give(piece.index(), piece.reads_zero()), "a piece was given back twice");
        self.counts.pieces_out -= piece_bytes(class) as u64;
        if cut.free == 1 {
            // Nearly full: the front of the list, so that emptier blocks may become whole again.
            self.cuts[class].push_front(span, shelf);
        }
        self.count_warm_large(class, warm, cut.warm());
        (cut.free == cut.pieces).then_some(span)
    }

    /// Takes a block off the lists that is whole again: it is the caller's alone then. Returns how it was cut, to be
    /// freed when the lock is let go.
    ///
    /// # Safety
    /// The block is one of this arena's cut blocks, and none of its pieces is out.
    pub unsafe fn end_cut(&mut self, span: &'static Span) -> Cut {
        // SAFETY: on this arena's list (duty of the caller), whose lock is held: `self` is what it guards.
        let cut = std::mem::replace(unsafe { span.cut() }, Cut::NONE);
        debug_assert!(cut.free == cut.pieces);
        let class = span.piece_class();
        self.count_warm_large(class, cut.warm(), 0);
        span.zero.store(cut.zero == cut.pieces, Ordering::Relaxed);
        span.set_state(Use::Nothing);
        self.cuts[class].remove(span, shelf);
        self.cut_blocks.remove(span, age);
        self.counts.cut -= span.bytes() as u64;
        cut
    }

    /// Takes free pieces of a class out whose memory is warm and that lie in blocks not used since `before`. They count
    /// as `aside` until they are back.
    pub fn take_warm_large(&mut self, class: usize, before: u64, into: &mut [Option<Piece>]) -> usize {
        let mut taken = 0;
        let mut next = self.cuts[class].first.get();
        while let Some(span) = next {
            next = span.shelf.after.get();
            if span.stamp.load(Ordering::Relaxed) >= before {
                continue;
            }
            // SAFETY: on this arena's list, whose lock is held: `self` is what it guards.
            let cut = unsafe { span.cut() };
            let warm = cut.warm();
            while cut.warm() > 0
                && let Some(place) = into.get_mut(taken)
            {
                *place = cut.take(false).map(|(index, zero)| Piece::new(span, index, zero));
                taken += 1;
            }
            if cut.free == 0 {
                self.cuts[class].remove(span, shelf);
            }
            self.count_warm_large(class, warm, cut.warm());
        }
        self.counts.pieces_out += (taken * piece_bytes(class)) as u64;
        self.counts.aside += (taken * piece_bytes(class)) as u64;
        taken
    }

    /// Checks the lists against the counts. `home` is the arena's index.
    pub fn check(&self, home: usize) -> Result<(), Invalid> {
        let mut idle = 0;
        for (class, list) in self.classes.iter().enumerate() {
            for span in list.iter(shelf) {
                idle += span.bytes() as u64;
                if span.class() != class || span.home() != home || span.state() != Use::Idle {
                    return Err(Invalid(format!("{span:?} is on the wrong shelf")));
                }
            }
        }
        let aged: u64 = self.ages.iter(age).map(|span| span.bytes() as u64).sum();
        if (idle, aged) != (self.counts.idle, idle) {
            return Err(Invalid(format!("{idle} bytes on shelves, {aged} by age, {} counted", self.counts.idle)));
        }
        self.check_emptied(home)?;
        self.check_cuts(home)
    }

    /// Checks the cut blocks against the lists by class and the counts.
    fn check_cuts(&self, home: usize) -> Result<(), Invalid> {
        let (mut bytes, mut out, mut warm, mut with_free, mut listed) = (0, 0, 0, 0, 0);
        for (span, cut) in self.cut_blocks() {
            let (class, piece) = (span.piece_class(), piece_bytes(span.piece_class()));
            if span.state() != Use::Cut || span.home() != home || span.class() == NO_CLASS {
                return Err(Invalid(format!("{span:?} is no cut block of arena {home}")));
            }
            if !cut.holds() || cut.pieces != pieces_in_block(class) || cut.free == cut.pieces {
                return Err(Invalid(format!("{span:?} is cut wrongly: {} of {} free", cut.free, cut.pieces)));
            }
            bytes += span.bytes() as u64;
            out += ((cut.pieces - cut.free) * piece) as u64;
            warm += if piece >= SMALLEST_LARGE_PIECE { cut.warm() as u64 } else { 0 };
            with_free += usize::from(cut.free > 0);
        }
        for (class, list) in self.cuts.iter().enumerate() {
            for span in list.iter(shelf) {
                // SAFETY: on this arena's list, whose lock is held: `self` is what it guards.
                let free = unsafe { span.cut() }.free;
                if free == 0 || span.piece_class() != class {
                    return Err(Invalid(format!("{span:?} has {free} free pieces and is listed among class {class}")));
                }
                listed += 1;
            }
        }
        let counts = &self.counts;
        if (bytes, out, warm) != (counts.cut, counts.pieces_out, counts.warm_large) || listed != with_free {
            let listed = format!("{listed} of {with_free} listed");
            let told = format!("{bytes} bytes cut, {out} out, {warm} large pieces warm, {listed}, counted {counts:?}");
            return Err(Invalid(told));
        }
        Ok(())
    }

    /// All cut blocks, and how they are cut.
    pub fn cut_blocks(&self) -> impl Iterator<Item = (&'static Span, &Cut)> {
        // SAFETY: on this arena's list, whose lock is held: `self` is what it guards, and it is borrowed for as long as
        // the references live. What changes a cut has borrowed it for that alone.
        self.cut_blocks.iter(age).map(|span| (span, unsafe { &*span.cut() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BLOCK_BYTES;

    #[test]
    fn demand_is_told_when_it_grows_when_a_quarter_begins_and_now_and_then() {
        let mut shelves = Shelves::new();
        shelves.counts.lent = 100;
        assert!(shelves.tells(100, 1));
        for taken in [100, 0, 50, 100] {
            shelves.counts.lent = taken;
            assert!(!shelves.tells(1, 1), "{taken} bytes are no more than before");
        }
        (shelves.counts.held_taken, shelves.counts.cut) = (1, 1);
        assert!(shelves.tells(2, 1) && !shelves.tells(0, 1));
        assert!(shelves.tells(0, 2), "the policy has looked since");
        let block = BLOCK_BYTES as u64;
        let told = (1..=2 * UNTOLD / block).filter(|_| shelves.tells(BLOCK_BYTES, 2)).count();
        assert_eq!(told, 2, "as much was lent as may be lent untold, twice");
    }
}
