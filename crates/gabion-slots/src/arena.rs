//! Arenas: what one thread allocates from.
//!
//! An arena belongs to one thread at a time; when the thread ends it has no owner until another thread adopts it. It
//! has a *row* for each affinity, with a *shelf* for each class. Cells are the owner's alone, except for those of the
//! lists of pages and blocks: another thread that takes back what is empty changes them, too, under the lock
//! [`Arena::lists`]. What others use beside that is atomic. A thread that holds the lock of the `Slots` may look at
//! arenas without an owner, because no other adopts one meanwhile.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::Cell;
use std::ptr::{self, NonNull};

use gabion_blocks::prefetch;
use gabion_heap::{CLASSES, Chunks, MAX_SLOT_WORDS, class_for_words};

use crate::affinity::Affinity;
use crate::record::{Header, Page, Standing};
use crate::remote::RemoteFreeStack;
use crate::remote_buffer::RemoteFreeBuffer;
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Mutex, Ordering::Relaxed};
use crate::tier::words_of;

/// Affinities and a spare index, so that every `u8` is one.
pub(crate) const ROWS: usize = 256;

/// How many of the next slots are asked for in advance.
const AHEAD: usize = 8;

/// What keeps two things out of one cache line, and out of the pair of lines that the prefetcher takes, wherever they
/// stand.
const APART: usize = 128;

/// How far ahead of a slot memory is asked for where all slots of the pair and of the next one are free.
const AHEAD_BYTES: usize = 1024;

/// Where the next slot of a class comes from: a pair of the active page. All null while there is no active page.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Shelf {
    /// Which slots of the pair are free.
    pub free: Cell<*const AtomicU64>,
    /// The slot of that pair's lowest bit.
    pub base: Cell<*mut u8>,
    /// What is prefetched when the slot at `base` is taken, and moves on with it: memory some way ahead, or `base`
    /// itself where memory ahead may be in use by another thread.
    far: Cell<*mut u8>,
    /// The active page: its block, and its place there.
    header: Cell<*const Header>,
    /// Bytes of a slot.
    slot: Cell<u32>,
    index: Cell<u8>,
    /// Which pair of the page it is, and how many the page has.
    cursor: Cell<u8>,
    pairs: Cell<u8>,
    /// True when a page of this class was opened before: the next one is worth populating in one step.
    pub grown: Cell<bool>,
}

/// What an arena has of one affinity.
pub(crate) struct Row {
    /// Where in `shelves` the class stands that serves that many words with the affinity's alignment, in bytes. Set
    /// when the affinity is configured; all zero until then, and then there is no page to take from either.
    places: [AtomicU32; MAX_SLOT_WORDS + 1],
    pub shelves: [Shelf; CLASSES],
    /// Pages with room, by class and quarter of fullness: `number << 6 | page`, or 0.
    pub lists: [[Cell<u32>; Standing::QUARTERS as usize]; CLASSES],
    /// True when a block was once filled: further ones may be warm, and have huge pages where those pay.
    pub grown: Cell<bool>,
    /// The first of the blocks with free pages, in the form of `record::link`.
    pub room: Cell<u32>,
    /// A block that is wholly empty, kept for the next page.
    pub warm: Cell<u32>,
    /// The first of all blocks of pages.
    pub blocks: Cell<u32>,
    /// The chunks, boxed, or null.
    pub chunks: Cell<*mut Chunks>,
    /// Chunks in use and their bytes; written by the owner alone.
    pub chunk_objects: AtomicU64,
    pub chunk_bytes: AtomicU64,
    /// Those among them that others have freed, and their bytes; added up by others.
    pub remote_objects: AtomicU64,
    pub remote_bytes: AtomicU64,
    /// What of the bytes the affinity's books know.
    pub booked: Cell<u64>,
}

/// See the [module's documentation](self).
#[repr(C)]
pub(crate) struct Arena {
    /// What stands in the records of its pages: the number of the `Slots`, and the arena's index.
    pub word: u64,
    pub index: u32,
    /// True in a forked child, if the arena's thread was another one than forked: what it was about to do is half done
    /// for ever. Its slots and chunks can be used and freed; nobody walks its lists any more.
    pub orphaned: AtomicBool,
    /// How often threads that were ending have borrowed it.
    pub borrowed: Cell<u32>,
    /// Empty blocks that are to be given back, in the form of `record::link`.
    pub queued: Cell<u32>,
    /// The same of blocks of chunks.
    pub queued_chunks: Cell<u32>,
    /// What was charged for the latter.
    pub queued_bytes: Cell<u64>,
    pub remote_buffer: RemoteFreeBuffer,
    /// Held by a thread that changes lists of pages and blocks: the owner, or one that takes back what is empty here.
    /// What takes a slot of an active page, or frees one whose page keeps its standing, does without. Taken before the
    /// locks of the `Slots`, but for that of threads that [take](crate::shared::Shared::taking).
    pub lists: Mutex<()>,
    /// Held by a thread that collects remote frees or trims, because both may touch an affinity that another thread
    /// releases.
    pub collecting: Mutex<()>,
    pub remote: RemoteFrees,
    pub rows: [Row; ROWS],
}

/// What other threads write to. Not by its alignment apart from what the owner writes to, but by what lies around it:
/// see [`Arena::new`].
#[repr(C)]
pub(crate) struct RemoteFrees {
    _before: [u8; APART],
    /// Blocks of pages with freed slots.
    pub slots: RemoteFreeStack,
    /// The first of the freed chunks, in the form of `Loc::bits` plus one; each holds the next.
    pub chunks: AtomicU64,
    _behind: [u8; APART],
}

// What allocators align everything to. Where more is asked for, `alloc_zeroed` of the language writes zeros to all of
// it.
const _: () = assert!(align_of::<Arena>() <= 16);

// SAFETY: the cells are used by the arena's one thread, or by the thread that holds the lock of the `Slots` while it
// has none, or, for the row of an affinity that is released, by the releasing thread, whose caller promises that nobody
// else uses it. What a thread that takes back what is empty changes, the lists of pages and blocks, all change under
// the lock `lists`; pages that the arena's thread allocates from without it are on none of them.
unsafe impl Sync for Arena {}
// SAFETY: nothing in an arena belongs to a thread but by the rule above.
unsafe impl Send for Arena {}

impl Arena {
    /// An empty arena without a word, for [`Arena::name`] to follow.
    pub fn new() -> Option<NonNull<Self>> {
        let layout = Layout::new::<Self>();
        // SAFETY: the layout is not empty.
        let arena = NonNull::new(unsafe { alloc_zeroed(layout) })?.cast::<Self>();
        // SAFETY: fresh memory of this layout. Zeros are what cells, null pointers and atomics begin with; the locks
        // are written as they should be. Rows that are never used stay untouched: an arena is an MiB long.
        unsafe {
            (&raw mut (*arena.as_ptr()).lists).write(Mutex::new(()));
            (&raw mut (*arena.as_ptr()).collecting).write(Mutex::new(()));
        }
        Some(arena)
    }

    /// Gives an arena its word and its index.
    ///
    /// # Safety
    /// It came from [`Arena::new`], and nobody else knows it.
    pub unsafe fn name<'a>(mut arena: NonNull<Self>, word: u64, index: u32) -> &'a Self {
        // SAFETY: the caller's duty.
        let named = unsafe { arena.as_mut() };
        (named.word, named.index) = (word, index);
        named
    }

    /// Frees an arena and its chunks' books; an orphan's books are left as they are.
    ///
    /// # Safety
    /// It came from [`Arena::new`], nobody uses it any more, and only the first `used` of its rows ever were.
    pub unsafe fn free(arena: NonNull<Self>, used: usize) {
        // SAFETY: the caller's duty; chunks come from `Box::into_raw`.
        unsafe {
            // Relaxed: set by the child's first thread, before there were others.
            let orphaned = arena.as_ref().orphaned.load(Relaxed);
            for row in &arena.as_ref().rows[..used] {
                if !row.chunks.get().is_null() && !orphaned {
                    drop(Box::from_raw(row.chunks.get()));
                }
            }
            arena.drop_in_place();
            dealloc(arena.as_ptr().cast(), Layout::new::<Self>());
        }
    }

    #[inline(always)]
    pub fn row(&self, affinity: Affinity) -> &Row {
        &self.rows[affinity.index() as usize]
    }

    /// True when others have freed something of it.
    #[inline]
    pub fn has_remote_frees(&self) -> bool {
        // Relaxed: who misses one finds it the next time.
        !self.remote.slots.is_empty() || self.remote.chunks.load(Relaxed) != 0
    }
}

impl Row {
    /// Takes a slot from the pair that the shelf stands at, if it has one left.
    ///
    /// # Safety
    /// The layout [is small](crate::tier::is_small).
    #[inline(always)]
    pub unsafe fn take(&self, layout: Layout) -> Option<NonNull<u8>> {
        // SAFETY: the caller's duty.
        unsafe { self.shelf_of(layout) }.take()
    }

    /// The shelf that serves a layout.
    ///
    /// # Safety
    /// As [`Row::take`].
    #[inline(always)]
    unsafe fn shelf_of(&self, layout: Layout) -> &Shelf {
        // SAFETY: a small layout has at most `MAX_SLOT_WORDS` words. Relaxed: the settings are the whole message.
        let place = unsafe { self.places.get_unchecked(words_of(layout)) }.load(Relaxed);
        // SAFETY: `set_alignment` stores places of shelves.
        unsafe { &*self.shelves.as_ptr().byte_add(place as usize) }
    }

    /// The class that serves a small layout.
    pub fn class_of(&self, layout: Layout) -> usize {
        self.places[words_of(layout)].load(Relaxed) as usize / size_of::<Shelf>()
    }

    /// As [`Row::take`], from any pair of the shelf's page.
    ///
    /// # Safety
    /// As [`Row::take`].
    pub unsafe fn take_further(&self, layout: Layout) -> Option<NonNull<u8>> {
        // SAFETY: the caller's duty.
        let shelf = unsafe { self.shelf_of(layout) };
        if shelf.step() { shelf.take() } else { None }
    }

    /// Sets the affinity's alignment, `mask + 1`, for what is allocated from now on.
    pub fn set_alignment(&self, mask: usize) {
        for (words, place) in self.places.iter().enumerate() {
            // No words are served as one is.
            let class = class_for_words(((words.max(1) * 8 + mask) & !mask) / 8);
            place.store((class * size_of::<Shelf>()) as u32, Relaxed);
        }
    }
}

impl Shelf {
    /// See [`Row::take`].
    #[inline(always)]
    pub fn take(&self) -> Option<NonNull<u8>> {
        // SAFETY: null, or a pair of the active page, which stays this arena's as long as it is active.
        let pair = unsafe { self.free.get().as_ref() }?;
        // Relaxed, here and below: nobody else writes to these, and a slot is handed to other threads by its user.
        let free = pair.load(Relaxed);
        if free == 0 {
            return None;
        }
        pair.store(free & (free - 1), Relaxed);
        let offset = free.trailing_zeros() as usize * self.slot.get() as usize;
        prefetch(self.far.get().wrapping_add(offset));
        // SAFETY: each bit of the pair stands for a slot of the page, which is nowhere near null.
        Some(unsafe { NonNull::new_unchecked(self.base.get().add(offset)) })
    }

    /// Lets the next slots come from `page`, which is active, beginning where it says.
    pub fn stand_at(&self, page: Page<'_>) {
        self.header.set(page.header);
        self.index.set(page.index() as u8);
        self.slot.set(u32::from(page.shape().slot));
        self.pairs.set(page.pair_count() as u8);
        self.stand_at_pair(page, usize::from(page.record().cursor.load(Relaxed)));
    }

    /// Goes to pair `cursor` of the active page.
    fn stand_at_pair(&self, page: Page<'_>, cursor: usize) {
        self.cursor.set(cursor as u8);
        self.free.set(&raw const page.words()[cursor]);
        // SAFETY: the pair is in use, so its first slot lies in the page.
        self.base.set(unsafe { page.first_slot().as_ptr().add(cursor * 64 * self.slot.get() as usize) });
    }

    /// Moves to the next pair of the active page with free slots, round the page. False when there is none.
    #[inline]
    pub fn step(&self) -> bool {
        let Some(page) = self.active() else { return false };
        let (words, pairs) = (page.words(), usize::from(self.pairs.get()));
        let start = usize::from(self.cursor.get());
        let mut cursor = start;
        loop {
            let free = words[cursor].load(Relaxed);
            if free != 0 {
                self.stand_at_pair(page, cursor);
                // Only on the way through free memory that no other thread has had: it would be taken away from that
                // one.
                let next = words.get(cursor + 1).is_some_and(|next| next.load(Relaxed) == u64::MAX);
                let own = page.record().remote_freed.load(Relaxed) == 0;
                let ahead = if own && next && free == u64::MAX && cursor > start { AHEAD_BYTES } else { 0 };
                self.far.set(self.base.get().wrapping_add(ahead));
                self.prefetch(free);
                return true;
            }
            cursor += 1;
            if cursor >= pairs {
                cursor = 0;
            }
            if cursor == start {
                return false;
            }
        }
    }

    /// Asks for the first line of the next slots: where others in the page are used they lie scattered, and nothing has
    /// touched them since they were freed.
    fn prefetch(&self, free: u64) {
        let mut left = free;
        // Always as many, because a loop of this or that length would cost more than what is asked for in vain.
        for _ in 0..AHEAD {
            prefetch(self.base.get().wrapping_add((left.trailing_zeros() & 63) as usize * self.slot.get() as usize));
            left &= left.wrapping_sub(1);
        }
    }

    /// Forgets the active page.
    pub fn leave(&self) {
        self.free.set(ptr::null());
        self.header.set(ptr::null());
    }

    /// Whether it says of its active page what the page says.
    pub fn agrees(&self) -> bool {
        self.active().is_none_or(|page| {
            let cursor = usize::from(self.cursor.get());
            usize::from(self.pairs.get()) == page.pair_count()
                && self.slot.get() == u32::from(page.shape().slot)
                && page.free().get(cursor).is_some_and(|free| ptr::eq(free, self.free.get()))
        })
    }

    /// The active page.
    pub fn active(&self) -> Option<Page<'_>> {
        // SAFETY: as in `take`.
        Some(unsafe { self.header.get().as_ref() }?.page(usize::from(self.index.get())))
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::{aligned, give, on_twin};
    use crate::tier::{MOST_SLOT_BYTES, class_of, slot_bytes};
    use crate::{Affinity, AffinitySettings};

    #[test]
    fn every_small_layout_gets_a_slot_of_its_class() {
        let (slots, _twin) = on_twin();
        for alignment in [8, 16, 64] {
            slots.configure(Affinity::NODES, AffinitySettings { alignment, max_blocks: None }).unwrap();
            for align in (0..=10).map(|log| 1 << log) {
                for size in (0..=64).chain((64..=MOST_SLOT_BYTES).step_by(15)) {
                    let layout = aligned(size, align);
                    let at = slots.alloc(Affinity::NODES, layout).unwrap();
                    assert!(at.addr().get().is_multiple_of(align.max(alignment)), "{layout:?} in {alignment}");
                    // SAFETY: just allocated, and not freed yet.
                    let room = unsafe { slots.usable_size(at) };
                    assert_eq!(room, slot_bytes(class_of(layout, alignment - 1)), "{layout:?} in {alignment}");
                    give(&slots, at);
                }
            }
        }
        slots.validate().unwrap();
    }
}
