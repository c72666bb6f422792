//! A thread's own pieces: free ones that it may lend again without asking its arena.
//!
//! Each cache stands behind a lock of its own that is biased to its thread (see [`crate::bias`]); else it is taken only
//! by a thread that empties it, the check of all equations, and a fork. It is bounded in pieces of each class and in
//! bytes.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use super::size::{PIECE_CLASSES, piece_at, piece_bytes};
use super::span::Span;
use crate::bias::{Biased, BiasedGuard};
use crate::owner_slot::OwnerSlot;
use crate::sync::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// A piece of a cut block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Piece {
    span: &'static Span,
    /// Its first byte, or the second one: then it reads as zero.
    tagged: NonNull<u8>,
}

// SAFETY: a piece is where memory is, and that nobody uses it; its span is of any thread's use.
unsafe impl Send for Piece {}

impl Piece {
    /// Piece `index` of a block. The caller has it, or the lock under which it is free.
    #[inline]
    pub fn new(span: &'static Span, index: usize, zero: bool) -> Self {
        let offset = index * piece_bytes(span.piece_class());
        // SAFETY: that piece, or that lock, keeps the block mapped and cut as it is. A piece's index is below the count
        // of its block (`Cut::give` and `Cut::take` see to it), so its first two bytes lie inside.
        Self { span, tagged: unsafe { span.base().add(offset + usize::from(zero)) } }
    }

    /// The piece that begins at `at`, of unknown content. The caller has it.
    #[inline]
    pub fn used(span: &'static Span, at: NonNull<u8>) -> Self {
        debug_assert!((at.addr().get() - span.base().addr().get()).is_multiple_of(piece_bytes(span.piece_class())));
        Self { span, tagged: at }
    }

    #[inline]
    pub fn span(self) -> &'static Span {
        self.span
    }

    /// Which of its block's pieces it is.
    #[inline]
    pub fn index(self) -> usize {
        piece_at(self.span.piece_class(), self.address().addr().get() - self.span.base().addr().get())
    }

    /// Its first byte.
    #[inline]
    pub fn address(self) -> NonNull<u8> {
        // SAFETY: from the second byte to the first.
        unsafe { self.tagged.sub(usize::from(self.reads_zero())) }
    }

    #[inline]
    pub fn reads_zero(self) -> bool {
        // The first bytes of pieces have even addresses.
        self.tagged.addr().get() & 1 != 0
    }
}

/// The most bytes that one cache holds.
pub(crate) const MOST_CACHED: usize = 2 << 20;

/// The most pieces that are moved between a cache and its arena at one time.
pub(crate) const MOST_MOVED: usize = 32;

/// Pieces of a class that a cache holds at most. Of the largest none: one would leave no room for anything else.
const fn places(class: usize) -> usize {
    match piece_bytes(class) {
        0..=4096 => 32,
        4097..=65_536 => 8,
        65_537..=1_048_576 => 2,
        _ => 0,
    }
}

/// The most pieces that a thread takes from its arena at one time.
pub(crate) const MOST_TAKEN: usize = 16;

/// How many pieces a thread takes from its arena at one time: [`MOST_TAKEN`] at most.
pub(crate) const fn batch(class: usize) -> usize {
    match piece_bytes(class) {
        0..=4096 => MOST_TAKEN,
        4097..=65_536 => 4,
        _ => 1,
    }
}

/// Where each class's pieces begin.
const STARTS: [usize; PIECE_CLASSES + 1] = {
    let mut starts = [0; PIECE_CLASSES + 1];
    let mut class = 0;
    while class < PIECE_CLASSES {
        starts[class + 1] = starts[class] + places(class);
        class += 1;
    }
    starts
};

/// The free pieces, what a cache's lock guards.
struct Stacks {
    /// From each class's start on `counts[class]` pieces; what lies behind them is old.
    places: [Option<Piece>; STARTS[PIECE_CLASSES]],
    counts: [u8; PIECE_CLASSES],
    /// How many buffers were lent from here when room was made last; see [`Open::make_room`].
    rented: u64,
}

/// What others read of a cache without its lock. Relaxed: each is its whole message. Only the lock's holder stores,
/// except to `used`; who must be sure of them takes the lock, too.
#[derive(Default)]
struct Figures {
    /// Bytes of all its pieces: `Σ counts[class] · piece_bytes(class)`.
    bytes: AtomicUsize,
    /// Buffers lent from here, and taken back into here, that the arena has not been told of.
    rented: AtomicU64,
    returned: AtomicU64,
    /// True when it was used since the trimmer looked last.
    used: AtomicBool,
}

/// The right to a cache's pieces.
pub(crate) struct Open<'a> {
    stacks: BiasedGuard<'a, Stacks>,
    figures: &'a Figures,
}

impl Open<'_> {
    /// Bytes of all pieces.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.figures.bytes.load(Ordering::Relaxed)
    }

    #[inline]
    fn set_bytes(&self, bytes: usize) {
        self.figures.bytes.store(bytes, Ordering::Relaxed);
    }

    /// Says that its thread has used it.
    #[inline]
    pub fn note_use(&self) {
        self.figures.used.store(true, Ordering::Relaxed);
    }

    /// Counts a buffer that is lent from here.
    #[inline]
    pub fn count_rented(&self) {
        add_one(&self.figures.rented);
        self.note_use();
    }

    /// Counts a buffer that was taken back into here.
    #[inline]
    pub fn count_returned(&self) {
        add_one(&self.figures.returned);
        self.note_use();
    }

    /// How many buffers were lent and taken back that the arena has not been told of; it is told now.
    pub fn tell(&self) -> (u64, u64) {
        let told = (self.figures.rented.load(Ordering::Relaxed), self.figures.returned.load(Ordering::Relaxed));
        self.figures.rented.store(0, Ordering::Relaxed);
        self.figures.returned.store(0, Ordering::Relaxed);
        told
    }

    /// The last piece of a class that came in.
    #[inline(always)]
    pub fn pop(&mut self, class: usize) -> Option<Piece> {
        let count = self.stacks.counts[class].checked_sub(1)?;
        self.stacks.counts[class] = count;
        self.set_bytes(self.bytes() - piece_bytes(class));
        self.stacks.places[STARTS[class] + usize::from(count)]
    }

    /// Takes a piece in; false when there is no room for it.
    #[inline]
    pub fn push(&mut self, class: usize, piece: Piece) -> bool {
        let place = STARTS[class] + usize::from(self.stacks.counts[class]);
        let bytes = self.bytes() + piece_bytes(class);
        if place >= STARTS[class + 1] || bytes > MOST_CACHED {
            return false;
        }
        self.stacks.places[place] = Some(piece);
        self.stacks.counts[class] += 1;
        self.set_bytes(bytes);
        true
    }

    /// Takes out half of a full class, so that there is room again; of all classes, when the bytes are the limit.
    ///
    /// The older half, whose bytes have most likely left the processor's caches: the thread will lend the others first.
    /// But one that has lent nothing since room was made last only takes back what others rent. These should have again
    /// what was just in use, so the newer half goes.
    pub fn make_room(&mut self, class: usize, into: &mut [Option<Piece>; MOST_MOVED]) -> usize {
        let rented = self.figures.rented.load(Ordering::Relaxed);
        let lends = std::mem::replace(&mut self.stacks.rented, rented) != rented;
        if usize::from(self.stacks.counts[class]) < places(class) {
            return self.take_out(into);
        }
        let (start, count) = (STARTS[class], places(class));
        let half = count / 2;
        if lends {
            into[..half].copy_from_slice(&self.stacks.places[start..start + half]);
            self.stacks.places.copy_within(start + half..start + count, start);
        } else {
            into[..half].copy_from_slice(&self.stacks.places[start + count - half..start + count]);
        }
        self.stacks.counts[class] -= half as u8;
        self.set_bytes(self.bytes() - half * piece_bytes(class));
        half
    }

    /// Takes out as many pieces of any class as fit, the largest first.
    pub fn take_out(&mut self, into: &mut [Option<Piece>; MOST_MOVED]) -> usize {
        let mut taken = 0;
        for class in (0..PIECE_CLASSES).rev() {
            while taken < into.len() && self.stacks.counts[class] > 0 {
                into[taken] = self.pop(class);
                taken += 1;
            }
        }
        taken
    }

    /// Whether the piece that begins at `at` is one of these, of this class.
    pub fn has(&self, class: usize, at: NonNull<u8>) -> bool {
        let places = &self.stacks.places[STARTS[class]..][..usize::from(self.stacks.counts[class])];
        places.iter().flatten().any(|piece| piece.address() == at)
    }

    /// All pieces.
    pub fn pieces(&self) -> impl Iterator<Item = Piece> {
        let of_class = |class: usize| &self.stacks.places[STARTS[class]..][..usize::from(self.stacks.counts[class])];
        (0..PIECE_CLASSES).flat_map(of_class).flatten().copied()
    }
}

/// Adds one to a number that nobody else changes meanwhile.
#[inline]
fn add_one(number: &AtomicU64) {
    number.store(number.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

/// A thread's cache. Never freed: when its thread ends, it is emptied and kept for the next one.
pub(crate) struct Cache {
    /// The arena that the thread belongs to.
    arena: AtomicUsize,
    /// The thread's rank, by which arenas are assigned.
    rank: AtomicUsize,
    /// True while a thread has it: what debug builds ask of an [`Own`].
    taken: AtomicBool,
    /// What the lock is biased to. It goes with the cache from thread to thread, so that the lock is biased to the next
    /// one, too.
    owner_slot: OwnerSlot,
    figures: Figures,
    stacks: Biased<Stacks>,
}

impl Stacks {
    /// Makes empty stacks where they are to stand.
    ///
    /// # Safety
    /// `at` is memory for them that nobody uses yet.
    unsafe fn write(at: *mut Self) {
        // SAFETY: the caller's duty; each field and each place is written once, and none is read before all are.
        unsafe {
            let places = (&raw mut (*at).places).cast::<Option<Piece>>();
            for index in 0..STARTS[PIECE_CLASSES] {
                places.add(index).write(None);
            }
            (&raw mut (*at).counts).write([0; PIECE_CLASSES]);
            (&raw mut (*at).rented).write(0);
        }
    }
}

impl Cache {
    /// An empty cache, made where it is to stand: on a thread's stack it would be too large for the smallest stacks.
    pub fn new_in(mut room: Box<MaybeUninit<Self>>) -> Box<Self> {
        let at = room.as_mut_ptr();
        // SAFETY: memory for a cache, of which each field is written once, and none is read before all are.
        unsafe {
            for number in [&raw mut (*at).arena, &raw mut (*at).rank] {
                number.write(AtomicUsize::new(0));
            }
            (&raw mut (*at).taken).write(AtomicBool::new(false));
            (&raw mut (*at).owner_slot).write(OwnerSlot::new());
            (&raw mut (*at).figures).write(Figures::default());
            Biased::write_for_one(&raw mut (*at).stacks, |stacks| Stacks::write(stacks));
            room.assume_init()
        }
    }

    #[inline]
    pub fn arena(&self) -> usize {
        // Relaxed: which arena a thread belongs to is a matter of taste at any moment.
        self.arena.load(Ordering::Relaxed)
    }

    /// The rank of the thread that has it.
    pub fn rank(&self) -> usize {
        self.rank.load(Ordering::Relaxed)
    }

    /// Gives it to a thread of this rank, or its thread to another arena.
    pub fn belong(&self, rank: usize, arena: usize) {
        self.rank.store(rank, Ordering::Relaxed);
        self.arena.store(arena, Ordering::Relaxed);
    }

    /// The cache in the hands of its thread.
    ///
    /// # Safety
    /// The calling thread took the cache last, from among those that no thread has. What this returns, and all copies
    /// of it, are not used any more once the cache is there again.
    pub unsafe fn own(&'static self) -> Own {
        self.taken.store(true, Ordering::Relaxed);
        Own { cache: self, _thread: PhantomData }
    }

    /// Notes that no thread has it from now on.
    pub fn part(&self) {
        self.taken.store(false, Ordering::Relaxed);
    }

    /// Opens it for another thread than its own, or when it does not matter: some microseconds, and its own thread
    /// takes longer for some time.
    pub fn lock_unbiased(&self) -> Open<'_> {
        Open { stacks: self.stacks.lock_unbiased(), figures: &self.figures }
    }

    /// Bytes of its pieces, at some moment.
    pub fn bytes(&self) -> usize {
        self.figures.bytes.load(Ordering::Relaxed)
    }

    /// How many buffers were lent from here and taken back that the arena has not been told of, at some moment.
    pub fn untold(&self) -> (u64, u64) {
        (self.figures.rented.load(Ordering::Relaxed), self.figures.returned.load(Ordering::Relaxed))
    }

    /// Whether it was used since this was asked last.
    pub fn was_used(&self) -> bool {
        self.figures.used.swap(false, Ordering::Relaxed)
    }
}

/// A cache in the hands of its thread, which alone can have one.
#[derive(Clone, Copy)]
pub(crate) struct Own {
    cache: &'static Cache,
    /// Bound to its thread.
    _thread: PhantomData<*const ()>,
}

impl Own {
    /// The cache as others see it.
    #[inline]
    pub fn cache(self) -> &'static Cache {
        self.cache
    }

    /// Opens it if its lock is biased to this thread; never waits.
    #[inline(always)]
    pub fn try_lock_biased(self) -> Option<Open<'static>> {
        debug_assert!(self.cache.taken.load(Ordering::Relaxed), "the cache is spare, or another thread's");
        // The owner slot is this thread's, as the cache is.
        let stacks = self.cache.stacks.try_lock_biased_from(Some(&self.cache.owner_slot))?;
        Some(Open { stacks, figures: &self.cache.figures })
    }

    /// Opens it.
    pub fn open(self) -> Open<'static> {
        debug_assert!(self.cache.taken.load(Ordering::Relaxed), "the cache is spare, or another thread's");
        Open { stacks: self.cache.stacks.lock_from(Some(&self.cache.owner_slot)), figures: &self.cache.figures }
    }
}

/// A pool's caches.
#[derive(Default)]
pub(crate) struct Caches {
    /// Every one that was ever made.
    pub all: Vec<&'static Cache>,
    /// Those that no thread has.
    pub spare: Vec<&'static Cache>,
}
