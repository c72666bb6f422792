//! Spans: what the pool knows about each of its mappings, outside of it.
//!
//! A *span* is one mapping: a block, a run, or memory of an exact size. Its record is never freed, only used again for
//! another mapping, so that a reference to one is always good; which mapping it stands for is the business of the
//! mapping's owner, or of the thread that holds the lock of the arena where it is idle.

use std::cell::UnsafeCell;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};

use super::cut::Cut;
use crate::SYSTEM_PAGE;
use crate::fallible::make_room;
use crate::inside;
use crate::os::system;
use crate::sync::{Mutex, MutexGuard, Ordering, fence, lock};

/// What a span is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// The record stands for no mapping, or for one that a thread has in hand: fresh, or whole again.
    Nothing,
    /// On a shelf of its home arena.
    Idle,
    /// Lent whole.
    Lent,
    /// Lent to a block set or a run of a pile.
    Held,
    /// Cut into pieces, and on its home arena's list of cut blocks. Entered and left under that arena's lock only.
    Cut,
}

/// The class of spans that are never kept.
pub(crate) const NO_CLASS: usize = u32::MAX as usize;

/// The record of one mapping. Its atomics are relaxed: they change only in the hands of the mapping's one owner or
/// under its home arena's lock, and a thread that reads them got the span by way of one of these. Only [`records_of`]
/// comes by no such way; for its sake the state is published.
#[repr(align(64))]
pub(crate) struct Span {
    base: AtomicPtr<u8>,
    bytes: AtomicUsize,
    pool: AtomicU64,
    home: AtomicU32,
    class: AtomicU32,
    state: AtomicU32,
    /// Class of the pieces, of a cut block.
    pieces: AtomicU32,
    /// Where its user begins: see `size::stagger`.
    pub colour: AtomicU32,
    /// How far behind its base the buffer begins that it was lent to whole.
    pub start: AtomicU32,
    /// True when all of it is known to be zero.
    pub zero: AtomicBool,
    /// True when much of its memory is not there, though it was held or cut: it is not warm then, and has been advised
    /// to keep to small pages, or the system would sooner or later fill the holes with a huge one.
    pub holes: AtomicBool,
    /// Of a held block, bit by page: pages that its owner has given up and not taken back, which stay with the block.
    pub given_up: AtomicU64,
    /// Those of them that are warm: idle memory, for which the block's owner comes first.
    pub emptied: AtomicU64,
    /// Those of them that a thread is giving back to the system at this moment.
    pub leaving: AtomicU64,
    /// Of a held block: where its owner keeps it, under the owner's lock.
    pub place: AtomicUsize,
    /// True when the block was the first of a set, and serves as such again.
    pub first: AtomicBool,
    /// True while it waits for that: it is held, and no set has it.
    pub waits: AtomicBool,
    /// How often it was lent since it was mapped without huge pages; 0 when it has them, needs none, or is left to the
    /// system, which may give it some.
    pub lent_small: AtomicU32,
    /// Bytes at its beginning that got huge pages since then.
    pub gathered: AtomicUsize,
    /// The trimmer's tick of the last use.
    pub stamp: AtomicU64,
    /// On a shelf: the neighbours of its class. Cut: the neighbours with free pieces of its class. Held: the neighbours
    /// among first blocks that wait.
    pub shelf: Neighbours,
    /// On a shelf: the neighbours in order of return. Cut: the neighbours among its arena's cut blocks. Held: the
    /// neighbours among those with emptied pages.
    pub age: Neighbours,
    /// [`Cut::NONE`] unless the span is on an arena's list of cut blocks.
    cut: UnsafeCell<Cut>,
}

// SAFETY: all is atomic but the cut, which may be used by any thread, one at a time (plain numbers and vectors); and it
// is reached through `Span::cut` only, whose callers prove that no other thread uses it.
unsafe impl Sync for Span {}

impl Span {
    const fn new() -> Self {
        Self {
            base: AtomicPtr::new(ptr::null_mut()),
            bytes: AtomicUsize::new(0),
            pool: AtomicU64::new(0),
            home: AtomicU32::new(0),
            class: AtomicU32::new(0),
            state: AtomicU32::new(0),
            pieces: AtomicU32::new(0),
            colour: AtomicU32::new(0),
            start: AtomicU32::new(0),
            zero: AtomicBool::new(false),
            holes: AtomicBool::new(false),
            given_up: AtomicU64::new(0),
            emptied: AtomicU64::new(0),
            leaving: AtomicU64::new(0),
            place: AtomicUsize::new(0),
            first: AtomicBool::new(false),
            waits: AtomicBool::new(false),
            lent_small: AtomicU32::new(0),
            gathered: AtomicUsize::new(0),
            stamp: AtomicU64::new(0),
            shelf: Neighbours::new(),
            age: Neighbours::new(),
            cut: UnsafeCell::new(Cut::NONE),
        }
    }

    /// The mapping's first byte, at a multiple of 4 MiB.
    #[inline]
    pub fn base(&self) -> NonNull<u8> {
        NonNull::new(self.base.load(Ordering::Relaxed)).expect("a span in use")
    }

    /// Bytes mapped.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The number of the pool that it belongs to.
    #[inline]
    pub fn pool(&self) -> u64 {
        self.pool.load(Ordering::Relaxed)
    }

    /// The arena that it goes back to.
    #[inline]
    pub fn home(&self) -> usize {
        self.home.load(Ordering::Relaxed) as usize
    }

    /// Gives it another home. For its one owner, who takes that arena's lock next.
    pub fn set_home(&self, home: usize) {
        // Release: see `is_cut_in`.
        self.home.store(home as u32, Ordering::Release);
    }

    /// Whether it is a cut block of this arena of this pool, for a thread that has the arena's lock but may not have
    /// any of the block.
    pub fn is_cut_in(&self, home: usize, pool: u64) -> bool {
        // Acquire, and twice: who sees the home sees what the block was before it came there, and who sees it cut sees
        // where. Once more, because it may have come here from another arena, where it was cut, between the two looks.
        // Then it is not cut any more, and will not be again before this lock can be had.
        let look = || {
            let same = self.home.load(Ordering::Acquire) as usize == home && self.pool() == pool;
            same && self.state.load(Ordering::Acquire) == Use::Cut as u32
        };
        look() && look()
    }

    /// Makes it end after `bytes` bytes, which are those of `class`. For its one owner.
    pub fn shorten(&self, bytes: usize, class: usize) {
        self.bytes.store(bytes, Ordering::Relaxed);
        self.class.store(class as u32, Ordering::Relaxed);
    }

    /// Its shelf's class, or [`NO_CLASS`].
    #[inline]
    pub fn class(&self) -> usize {
        self.class.load(Ordering::Relaxed) as usize
    }

    /// The class of its pieces, when it is cut.
    #[inline]
    pub fn piece_class(&self) -> usize {
        self.pieces.load(Ordering::Relaxed) as usize
    }

    pub fn set_piece_class(&self, class: usize) {
        self.pieces.store(class as u32, Ordering::Relaxed);
    }

    #[inline]
    pub fn state(&self) -> Use {
        match self.state.load(Ordering::Relaxed) {
            0 => Use::Nothing,
            1 => Use::Idle,
            2 => Use::Lent,
            3 => Use::Held,
            _ => Use::Cut,
        }
    }

    pub fn set_state(&self, state: Use) {
        // Release: see `records_of`.
        self.state.store(state as u32, Ordering::Release);
    }

    /// Makes the record stand for a fresh mapping, which nobody else knows yet.
    pub fn stand_for(&self, base: NonNull<u8>, bytes: usize, class: usize, pool: u64, colour: u32) {
        self.base.store(base.as_ptr(), Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
        self.class.store(class as u32, Ordering::Relaxed);
        self.pool.store(pool, Ordering::Relaxed);
        self.colour.store(colour, Ordering::Relaxed);
        self.zero.store(true, Ordering::Relaxed);
        self.holes.store(false, Ordering::Relaxed);
        self.first.store(false, Ordering::Relaxed);
        self.lent_small.store(0, Ordering::Relaxed);
        self.gathered.store(0, Ordering::Relaxed);
    }

    /// Notes that part of its memory is not there. True when that was not known.
    pub fn note_holes(&self) -> bool {
        !self.holes.swap(true, Ordering::Relaxed)
    }

    /// How the block is cut.
    ///
    /// What the span says of itself (state, home) proves nothing to somebody who has not got it from that list: it may
    /// be another mapping's, or of a moment ago.
    ///
    /// # Safety
    /// The span is on the list of cut blocks of an arena whose lock the caller holds, or is being put there from no
    /// list at all by the caller, whose alone it is. The reference is dropped before the lock is let go, and before
    /// asking again.
    #[expect(clippy::mut_from_ref, reason = "the lock that guards the cut is the arena's")]
    pub unsafe fn cut(&self) -> &mut Cut {
        // SAFETY: a span is on one arena's list at most, so the caller's duty rules out any other reference.
        unsafe { &mut *self.cut.get() }
    }
}

impl std::fmt::Debug for Span {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (state, bytes) = (self.state(), self.bytes());
        f.debug_struct("Span").field("state", &state).field("bytes", &bytes).finish_non_exhaustive()
    }
}

/// A reference to a span, or none. Changed under a lock only.
pub(crate) struct Link(AtomicPtr<Span>);

impl Link {
    pub const fn none() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    #[inline]
    pub fn get(&self) -> Option<&'static Span> {
        // SAFETY: only `set` stores here, and records are never freed.
        unsafe { self.0.load(Ordering::Relaxed).as_ref() }
    }

    #[inline]
    pub fn set(&self, span: Option<&'static Span>) {
        // Relaxed: the lock that guards the list orders this.
        self.0.store(span.map_or(ptr::null_mut(), |span| ptr::from_ref(span).cast_mut()), Ordering::Relaxed);
    }
}

/// A span's neighbours in one list.
pub(crate) struct Neighbours {
    pub before: Link,
    pub after: Link,
}

impl Neighbours {
    const fn new() -> Self {
        Self { before: Link::none(), after: Link::none() }
    }
}

/// A list of spans, through one of their pairs of neighbours. All steps take constant time.
pub(crate) struct List {
    pub first: Link,
    pub last: Link,
}

type Pair = fn(&'static Span) -> &'static Neighbours;

impl List {
    pub const fn new() -> Self {
        Self { first: Link::none(), last: Link::none() }
    }

    pub fn push_front(&self, span: &'static Span, pair: Pair) {
        let first = self.first.get();
        pair(span).before.set(None);
        pair(span).after.set(first);
        first.map_or(&self.last, |first| &pair(first).before).set(Some(span));
        self.first.set(Some(span));
    }

    pub fn remove(&self, span: &'static Span, pair: Pair) {
        let (before, after) = (pair(span).before.get(), pair(span).after.get());
        before.map_or(&self.first, |before| &pair(before).after).set(after);
        after.map_or(&self.last, |after| &pair(after).before).set(before);
        pair(span).before.set(None);
        pair(span).after.set(None);
    }

    /// From the front on.
    pub fn iter(&self, pair: Pair) -> impl Iterator<Item = &'static Span> {
        std::iter::successors(self.first.get(), move |span| pair(span).after.get())
    }
}

/// Records that stand for nothing, and every slab of records that was ever made.
struct Records {
    free: List,
    slabs: Vec<&'static [Span]>,
}

static RECORDS: Mutex<Records> = Mutex::new(Records { free: List::new(), slabs: Vec::new() });

const SLAB_BYTES: usize = 64 << 10;

/// The neighbours of a span on its shelf, or of a record that stands for nothing among the free ones.
pub(crate) fn shelf(span: &'static Span) -> &'static Neighbours {
    &span.shelf
}

/// A record that stands for nothing.
///
/// # Errors
/// The system's error number when it has no memory for more records.
pub(crate) fn new_record() -> Result<&'static Span, i32> {
    loop {
        {
            let records = lock(&RECORDS);
            if let Some(span) = records.free.first.get() {
                records.free.remove(span, shelf);
                return Ok(span);
            }
        }
        let count = SLAB_BYTES / size_of::<Span>();
        let at = system().map(SLAB_BYTES, align_of::<Span>().max(SYSTEM_PAGE))?.cast::<Span>();
        // SAFETY: fresh memory for `count` aligned records that stays mapped for ever; each is written before the
        // slice is made.
        let slab: &'static [Span] = unsafe {
            for index in 0..count {
                at.add(index).write(Span::new());
            }
            NonNull::slice_from_raw_parts(at, count).as_ref()
        };
        let _inside = inside::enter();
        let mut records = lock(&RECORDS);
        if make_room(&mut records.slabs, 1).is_err() {
            drop(records);
            // SAFETY: the range of the map, and nobody has been told of it.
            unsafe { system().unmap(at.cast(), SLAB_BYTES) };
            return Err(libc::ENOMEM);
        }
        for span in slab {
            records.free.push_front(span, shelf);
        }
        records.slabs.push(slab);
    }
}

/// Takes a record back whose mapping is gone.
pub(crate) fn free_record(span: &'static Span) {
    span.set_state(Use::Nothing);
    lock(&RECORDS).free.push_front(span, shelf);
}

/// All records of a pool that stand for a mapping, as far as it is in nobody's hand. While other threads use the pool
/// each may stand for another one, or none, at any moment: what it says then is a number and no more.
pub(crate) fn records_of(pool: u64) -> Vec<&'static Span> {
    let inside = inside::enter();
    let slabs = lock(&RECORDS).slabs.clone();
    drop(inside);
    let stands = |span: &&'static Span| {
        let some = span.state() != Use::Nothing;
        // Acquire: pairs with the release in `set_state`. What the record stood for then is seen, or something later.
        fence(Ordering::Acquire);
        some && span.pool() == pool
    };
    slabs.into_iter().flatten().filter(stands).collect()
}

/// The held lock of the records, for a fork.
pub(crate) struct LockedRecords {
    _guard: MutexGuard<'static, Records>,
}

/// Takes the lock of the records and keeps it.
pub(crate) fn hold_records() -> LockedRecords {
    LockedRecords { _guard: lock(&RECORDS) }
}
