//! A thread's own pieces: free ones that it may lend again without asking its arena.
//!
//! Each cache stands behind a lock of its own that nobody else takes but the trimmer, a report, and a fork. It is
//! bounded in pieces of each class and in bytes.

use std::ptr::NonNull;

use super::size::{PIECE_CLASSES, piece_bytes};
use super::span::Span;
use crate::sync::{AtomicUsize, Mutex, MutexGuard, Ordering, lock};

/// A piece of a cut block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Piece {
    span: &'static Span,
    /// Index in the block; the highest bit says that the piece reads as zero.
    tag: u32,
}

const ZERO: u32 = 1 << 31;

impl Piece {
    #[inline]
    pub fn new(span: &'static Span, index: usize, zero: bool) -> Self {
        Self { span, tag: index as u32 | if zero { ZERO } else { 0 } }
    }

    #[inline]
    pub fn span(self) -> &'static Span {
        self.span
    }

    #[inline]
    pub fn index(self) -> usize {
        (self.tag & !ZERO) as usize
    }

    /// Its first byte.
    #[inline]
    pub fn address(self) -> NonNull<u8> {
        let offset = self.index() * piece_bytes(self.span.piece_class());
        // SAFETY: whoever has a piece, or the lock under which it is free, keeps its block mapped and cut as it is. A piece's
        // index is below the count of its block (`Cut::give` and `Cut::take` see to it), so the offset lies inside.
        unsafe { self.span.base().add(offset) }
    }

    #[inline]
    pub fn reads_zero(self) -> bool {
        self.tag & ZERO != 0
    }
}

/// The most bytes that one cache holds.
pub(crate) const MOST_CACHED: usize = 2 << 20;

/// The most pieces that are moved between a cache and its arena at one time.
pub(crate) const MOST_MOVED: usize = 32;

/// Pieces of a class that a cache holds at most.
const fn places(class: usize) -> usize {
    match piece_bytes(class) {
        0..=4096 => 32,
        4097..=65_536 => 8,
        _ => 2,
    }
}

/// How many pieces a thread takes from its arena at one time.
pub(crate) const fn batch(class: usize) -> usize {
    match piece_bytes(class) {
        0..=4096 => 16,
        4097..=32_768 => 4,
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

/// What a cache's lock guards. `bytes = Σ counts[class] · piece_bytes(class)`.
pub(crate) struct Stacks {
    places: [Option<Piece>; STARTS[PIECE_CLASSES]],
    counts: [u8; PIECE_CLASSES],
    pub bytes: usize,
    /// Buffers lent from here, and taken back into here, that the arena has not been told of.
    pub rented: u64,
    pub hits: u64,
    pub returned: u64,
    /// True when it was used since the trimmer looked last.
    pub used: bool,
}

impl Stacks {
    /// The last piece of a class that came in.
    #[inline]
    pub fn pop(&mut self, class: usize) -> Option<Piece> {
        let count = self.counts[class].checked_sub(1)?;
        self.counts[class] = count;
        self.bytes -= piece_bytes(class);
        self.places[STARTS[class] + usize::from(count)].take()
    }

    /// Takes a piece in; false when there is no room for it.
    #[inline]
    pub fn push(&mut self, class: usize, piece: Piece) -> bool {
        let place = STARTS[class] + usize::from(self.counts[class]);
        if place >= STARTS[class + 1] || self.bytes + piece_bytes(class) > MOST_CACHED {
            return false;
        }
        self.places[place] = Some(piece);
        self.counts[class] += 1;
        self.bytes += piece_bytes(class);
        true
    }

    /// Takes out the older half of a full class, so that there is room again; of all classes, when the bytes are the limit.
    pub fn make_room(&mut self, class: usize, into: &mut [Option<Piece>; MOST_MOVED]) -> usize {
        if usize::from(self.counts[class]) < places(class) {
            return self.take_out(into);
        }
        let (start, count) = (STARTS[class], places(class));
        let half = count / 2;
        into[..half].copy_from_slice(&self.places[start..start + half]);
        self.places.copy_within(start + half..start + count, start);
        self.places[start + count - half..start + count].fill(None);
        self.counts[class] -= half as u8;
        self.bytes -= half * piece_bytes(class);
        half
    }

    /// Takes out as many pieces of any class as fit, the largest first.
    pub fn take_out(&mut self, into: &mut [Option<Piece>; MOST_MOVED]) -> usize {
        let mut taken = 0;
        for class in (0..PIECE_CLASSES).rev() {
            while taken < into.len() && self.counts[class] > 0 {
                into[taken] = self.pop(class);
                taken += 1;
            }
        }
        taken
    }

    /// All pieces.
    pub fn pieces(&self) -> impl Iterator<Item = Piece> {
        self.places.iter().flatten().copied()
    }
}

/// A thread's cache. Never freed: when its thread ends, it is emptied and kept for the next one.
pub(crate) struct Cache {
    /// The arena that the thread belongs to.
    arena: AtomicUsize,
    /// The thread's turn, by which arenas are assigned.
    turn: AtomicUsize,
    stacks: Mutex<Stacks>,
}

impl Cache {
    pub fn new() -> Self {
        let stacks = Stacks {
            places: [None; STARTS[PIECE_CLASSES]],
            counts: [0; PIECE_CLASSES],
            bytes: 0,
            rented: 0,
            hits: 0,
            returned: 0,
            used: false,
        };
        Self { arena: AtomicUsize::new(0), turn: AtomicUsize::new(0), stacks: Mutex::new(stacks) }
    }

    #[inline]
    pub fn arena(&self) -> usize {
        // Relaxed: which arena a thread belongs to is a matter of taste at any moment.
        self.arena.load(Ordering::Relaxed)
    }

    /// The turn of the thread that has it.
    pub fn turn(&self) -> usize {
        self.turn.load(Ordering::Relaxed)
    }

    /// Gives it to a thread with this turn, or its thread to another arena.
    pub fn belong(&self, turn: usize, arena: usize) {
        self.turn.store(turn, Ordering::Relaxed);
        self.arena.store(arena, Ordering::Relaxed);
    }

    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, Stacks> {
        lock(&self.stacks)
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
