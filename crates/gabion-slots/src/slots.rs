//! The calls on `Slots`.

use std::alloc::Layout;
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::ptr::NonNull;
use std::sync::Arc;

use gabion_blocks::{Invalid, Pool, inside, try_box};
use gabion_heap::Chunks;
use once_cell::race::OnceBox;

use crate::affinity::{Affinity, AffinitySettings};
use crate::checked::CHECKED;
use crate::error::{FreeError, SlotsError};
use crate::fork::watch_forks;
use crate::freeing::free_local_fast;
use crate::record::Page;
use crate::seat;
use crate::shared::Shared;
use crate::stats::{Report, SlotsStats};
use crate::sync::{Ordering::Relaxed, lock};
use crate::territory::Area;
use crate::tier::{MOST_SLOT_BYTES, Tier, is_small, tier};

/// Memory for objects, packed by kind. See the [crate's documentation](crate). All clones are the same slots.
///
/// ```
/// use std::alloc::Layout;
/// use gabion_slots::{Affinity, Slots};
/// let slots = Slots::new(gabion_blocks::Pool::global())?;
/// let layout = Layout::new::<[u64; 3]>();
/// let at = slots.alloc(Affinity::NODES, layout)?;
/// // SAFETY: `at` came from these slots with this layout, and is used no more.
/// unsafe { slots.free_sized(Affinity::NODES, at, layout) }.unwrap();
/// # Ok::<(), gabion_slots::SlotsError>(())
/// ```
#[derive(Clone)]
pub struct Slots {
    /// The number in `shared`, one load nearer.
    id: u64,
    pub(crate) shared: Arc<Shared>,
}

// Nothing of a caller's runs within a call: values are made before their slot is taken or after, and dropped before it
// is freed.
impl UnwindSafe for Slots {}
impl RefUnwindSafe for Slots {}

/// See [`Slots::global`].
static GLOBAL: OnceBox<Slots> = OnceBox::new();

impl Slots {
    /// Slots that draw their blocks from `pool`. What they hold counts apart from the pool's buffers.
    ///
    /// When the last handle is dropped, everything that is still allocated goes back to the pool at once.
    ///
    /// # Errors
    /// [`SlotsError::NoMemory`] when there is no memory for their bookkeeping, or four million `Slots` and piles are
    /// alive. (Where `malloc` has not even a KiB left, the process ends, as with any `Arc`.)
    pub fn new(pool: &Pool) -> Result<Self, SlotsError> {
        let shared = Arc::new(Shared::new(pool)?);
        watch_forks(&shared).map_err(SlotsError::NoMemory)?;
        Ok(Self { id: shared.id, shared })
    }

    /// The slots of this process, on [`Pool::global`]; made at the first use and never destroyed.
    ///
    /// # Panics
    /// When there is no memory to make them; see [`Slots::try_global`].
    #[inline]
    pub fn global() -> &'static Self {
        Self::try_global().expect("there is memory for the slots of the process")
    }

    /// As [`Slots::global`], for callers that can do without.
    ///
    /// # Errors
    /// As [`Slots::new`]; the next call tries again.
    #[inline]
    pub fn try_global() -> Result<&'static Self, SlotsError> {
        match GLOBAL.get() {
            Some(global) => Ok(global),
            None => Self::make_global(),
        }
    }

    #[cold]
    fn make_global() -> Result<&'static Self, SlotsError> {
        let _inside = inside::enter();
        GLOBAL.get_or_try_init(|| try_box(Self::new(Pool::global())?).map_err(SlotsError::NoMemory))
    }

    /// Makes an affinity, or finds the one with this name; then its settings stay as they are, whatever is
    /// asked for: see [`Slots::settings`].
    ///
    /// # Errors
    /// [`SlotsError::Name`] when the name is empty or all 255 are made, [`SlotsError::Alignment`] when the settings
    /// make no sense.
    pub fn affinity(&self, name: &str, settings: AffinitySettings) -> Result<Affinity, SlotsError> {
        self.shared.affinity(name, settings)
    }

    /// Changes an affinity's settings for what is allocated from now on. A budget below what is taken takes nothing
    /// back.
    ///
    /// # Errors
    /// [`SlotsError::UnknownAffinity`], [`SlotsError::Alignment`].
    pub fn configure(&self, affinity: Affinity, settings: AffinitySettings) -> Result<(), SlotsError> {
        self.shared.configure(affinity, settings)
    }

    /// An affinity's settings.
    ///
    /// # Errors
    /// [`SlotsError::UnknownAffinity`].
    pub fn settings(&self, affinity: Affinity) -> Result<AffinitySettings, SlotsError> {
        self.shared.settings(affinity)
    }

    /// How many affinities there are; their indices are 0 up to that. Constant time.
    pub fn affinity_count(&self) -> usize {
        self.shared.affinity_count()
    }

    /// An affinity's name, if it was made. Constant time.
    pub fn affinity_name(&self, affinity: Affinity) -> Option<String> {
        self.shared.affinity_name(affinity)
    }

    /// Allocates. Up to 1 KiB (and an alignment up to that) a slot, up to 1 MiB a chunk, above that memory of its own.
    ///
    /// A few instructions for a slot, without a lock or an atomic step; constant time for a chunk. Zero bytes take the
    /// smallest slot. The contents are undefined.
    ///
    /// # Errors
    /// [`SlotsError::NoMemory`], [`SlotsError::Budget`], [`SlotsError::Alignment`] above 4 MiB,
    /// [`SlotsError::UnknownAffinity`]. Nothing waits, but a request that would be refused: until other threads have
    /// given back what ended ones had kept, and some 20 milliseconds for those that are just at work on their lists.
    #[inline]
    pub fn alloc(&self, affinity: Affinity, layout: Layout) -> Result<NonNull<u8>, SlotsError> {
        match self.alloc_at_hand(affinity, layout) {
            Some(at) => Ok(at),
            None => self.alloc_further(affinity, layout),
        }
    }

    /// What [`Slots::alloc`] begins with, alone: the next slot, if it is at hand, in about twenty instructions and no
    /// call. `None` says nothing but that `alloc` has more to do. For callers that have something to set up before they
    /// can take an error or a panic, such as an interface to another language.
    #[inline(always)]
    pub fn alloc_at_hand(&self, affinity: Affinity, layout: Layout) -> Option<NonNull<u8>> {
        if is_small(layout) {
            // SAFETY: `self` keeps the slots alive, and the layout was just seen to be small.
            unsafe { seat::with_current(self.id, |arena| arena.row(affinity).take(layout)) }
        } else {
            None
        }
    }

    /// What [`Slots::alloc`] ends with where the next slot is not at hand; so that it has nothing to keep meanwhile.
    #[cold]
    #[inline(never)]
    fn alloc_further(&self, affinity: Affinity, layout: Layout) -> Result<NonNull<u8>, SlotsError> {
        let at = if is_small(layout) {
            // SAFETY: `self` keeps the slots alive, and the layout was just seen to be small.
            unsafe { seat::with_current(self.id, |arena| arena.row(affinity).take_further(layout)) }
        } else {
            self.chunk_at_hand(affinity, layout)
        };
        if let Some(at) = at {
            return Ok(at);
        }
        self.alloc_slowly(affinity, layout, false)
    }

    /// Takes a chunk, if this thread used these slots last and has one in memory that was touched before.
    #[inline]
    fn chunk_at_hand(&self, affinity: Affinity, layout: Layout) -> Option<NonNull<u8>> {
        // SAFETY: `self` keeps the slots alive.
        unsafe { seat::with_current(self.id, |arena| self.shared.alloc_chunk_at_hand(arena, affinity, layout)) }
    }

    /// As [`Slots::alloc`], with all of the layout's bytes zero.
    ///
    /// # Errors
    /// As [`Slots::alloc`].
    #[inline]
    pub fn alloc_zeroed(&self, affinity: Affinity, layout: Layout) -> Result<NonNull<u8>, SlotsError> {
        let at = if is_small(layout) {
            self.alloc(affinity, layout)?
        } else if let Some(at) = self.chunk_at_hand(affinity, layout) {
            at
        } else {
            return self.alloc_slowly(affinity, layout, true);
        };
        // SAFETY: just allocated with this layout.
        unsafe { at.write_bytes(0, layout.size()) };
        Ok(at)
    }

    #[cold]
    #[inline(never)]
    fn alloc_slowly(&self, affinity: Affinity, layout: Layout, zero: bool) -> Result<NonNull<u8>, SlotsError> {
        let _inside = inside::enter();
        let error = match self.alloc_by_tier(affinity, layout, zero) {
            Err(error) if self.shared.may_pass(layout, error) => error,
            done => return done,
        };
        // What ended threads keep warm may be all that is missing.
        if self.shared.trim_ownerless() > 0
            && let Ok(at) = self.alloc_by_tier(affinity, layout, zero)
        {
            return Ok(at);
        }
        // Or what this thread keeps, of blocks and pages for other sizes.
        let whose = matches!(error, SlotsError::Budget { .. }).then_some(affinity);
        seat::with_arena(&self.shared, |arena| match whose {
            Some(affinity) => self.shared.trim_row(arena, affinity),
            None => self.shared.trim(arena),
        })?;
        match self.alloc_by_tier(affinity, layout, zero) {
            Err(error) if self.shared.may_pass(layout, error) => {}
            done => return done,
        }
        // Or what other threads have nothing in, of which they may take no notice for long.
        self.shared.take_empty(seat::existing(&self.shared), whose, true);
        self.alloc_by_tier(affinity, layout, zero)
    }

    fn alloc_by_tier(&self, affinity: Affinity, layout: Layout, zero: bool) -> Result<NonNull<u8>, SlotsError> {
        let shared = &self.shared;
        let mask = shared.books(affinity).mask.load(Relaxed);
        match tier(layout, mask) {
            Tier::Slot => seat::with_arena(shared, |arena| {
                loop {
                    // SAFETY: what a slot serves is small.
                    if let Some(at) = unsafe { arena.row(affinity).take(layout) } {
                        return Ok(at);
                    }
                    shared.known(affinity)?;
                    let class = arena.row(affinity).class_of(layout);
                    let _lists = lock(&arena.lists);
                    let refilled = shared.refill(arena, affinity, class);
                    shared.return_queued(arena);
                    refilled?;
                }
            })?,
            Tier::Chunk { align } => {
                let at = seat::with_arena(shared, |arena| {
                    let _lists = lock(&arena.lists);
                    let taken = shared.alloc_chunk(arena, affinity, layout, align);
                    shared.return_queued(arena);
                    taken
                })??;
                if zero {
                    // SAFETY: just allocated with this layout.
                    unsafe { at.write_bytes(0, layout.size()) };
                }
                Ok(at)
            }
            Tier::Large => shared.alloc_large(affinity, layout, zero),
        }
    }

    /// Frees what was allocated, whatever its size; any thread may.
    ///
    /// A few instructions for a slot of this thread. Another thread's goes back to its owner as a remote free, several
    /// at a time. Locks are taken for large objects, and where a page fills, empties or gets room again: that one is
    /// wanted by its own thread alone, and by one that trims or would be refused.
    ///
    /// # Safety
    /// `at` came from these slots, nobody uses it any more, and it has not been freed since. Where that is not so and
    /// it shows, nothing is changed and an error says so; the checked build finds every address that is free or was
    /// never handed out.
    ///
    /// # Errors
    /// [`FreeError::DoubleFree`], [`FreeError::NotASlot`], [`FreeError::Foreign`].
    #[inline]
    pub unsafe fn free(&self, at: NonNull<u8>) -> Result<(), FreeError> {
        // SAFETY: the caller's duty, here and below.
        if unsafe { self.free_at_hand(at) } {
            return Ok(());
        }
        // SAFETY: as above.
        unsafe { self.shared.free_any(at) }
    }

    /// What [`Slots::free`] begins with, alone: frees a slot of this thread, in some dozens of instructions and no
    /// call. False says that nothing was done and `free` has more to do, or something to say; always so in the checked
    /// build. For whom, see [`Slots::alloc_at_hand`].
    ///
    /// # Safety
    /// As [`Slots::free`].
    #[inline(always)]
    #[must_use = "nothing was freed when this is false"]
    pub unsafe fn free_at_hand(&self, at: NonNull<u8>) -> bool {
        // SAFETY: in a block of pages of ours. What came from these slots and was not freed since is taken; the rest is
        // the caller's duty as well.
        !CHECKED && self.shared.territory.is_pages(at.addr().get()) && unsafe { free_local_fast(at) }
    }

    /// As [`Slots::free_at_hand`], for callers that know the layout.
    ///
    /// # Safety
    /// As [`Slots::free_sized`].
    #[inline(always)]
    #[must_use = "nothing was freed when this is false"]
    pub unsafe fn free_sized_at_hand(&self, at: NonNull<u8>, layout: Layout) -> bool {
        // SAFETY: what was allocated with a small layout is a slot, and what was not freed since is taken; the rest is
        // the caller's duty as well.
        !CHECKED && is_small(layout) && unsafe { free_local_fast(at) }
    }

    /// As [`Slots::free`], for callers that know affinity and layout: saves looking up what kind of memory it is. The
    /// checked build compares them.
    ///
    /// # Safety
    /// As [`Slots::free`]; affinity and layout are those of the allocation.
    ///
    /// # Errors
    /// As [`Slots::free`]; [`FreeError::WrongSize`] for a slot with the layout of something larger, and in the checked
    /// build for any that differs; there also [`FreeError::WrongAffinity`].
    #[inline]
    pub unsafe fn free_sized(&self, affinity: Affinity, at: NonNull<u8>, layout: Layout) -> Result<(), FreeError> {
        // SAFETY: the caller's duty, here and below.
        if unsafe { self.free_sized_at_hand(at, layout) } {
            return Ok(());
        }
        // SAFETY: as above.
        unsafe { self.shared.free_any_sized(affinity, at, layout) }
    }

    /// As [`Slots::usable_size`], for callers that want to know whether something that was handed out and is not freed
    /// begins there: finds what [`Slots::free`] finds, and changes nothing.
    ///
    /// # Safety
    /// As [`Slots::free`].
    ///
    /// # Errors
    /// [`FreeError::DoubleFree`], [`FreeError::NotASlot`], [`FreeError::Foreign`].
    pub unsafe fn room_of(&self, at: NonNull<u8>) -> Result<usize, FreeError> {
        // SAFETY: the caller's duty.
        unsafe { self.shared.room_of(at) }
    }

    /// How many bytes may be used from `at` on: at least what was asked for. 0 when it is none of ours.
    ///
    /// # Safety
    /// `at` was allocated from these slots and is not freed.
    pub unsafe fn usable_size(&self, at: NonNull<u8>) -> usize {
        match self.shared.territory.at(at.addr().get()) {
            // SAFETY: in a block of pages of ours.
            Area::Pages => usize::from(unsafe { Page::around(at) }.shape().slot),
            Area::Chunks => {
                // SAFETY: in a block of chunks of ours.
                unsafe { self.shared.chunk_at(at) }.map_or(0, |(block, chunk)| Chunks::room(block, chunk) * 8)
            }
            Area::Large => {
                let _inside = inside::enter();
                self.shared.large_bytes(at).unwrap_or(0)
            }
            Area::Rest | Area::Nothing => 0,
        }
    }

    /// Whether an address lies in memory of these slots, allocated or not. Any address may be asked about, and the
    /// memory there is not touched: two loads.
    #[inline]
    pub fn owns(&self, at: *const u8) -> bool {
        self.shared.territory.at(at.addr()) != Area::Nothing
    }

    /// Frees everything of an affinity at once, in all threads' arenas, and gives its blocks back. Returns their
    /// bytes. The calling thread keeps one of its blocks of slots for what it allocates next, which counts among them
    /// if something was in it; [`Slots::trim`] gives that back as well.
    ///
    /// Takes time in proportion to the number of blocks, not of objects. Objects of other affinities are not touched,
    /// and other threads may use those meanwhile. A block that its owner was giving back just then may still be counted
    /// for a moment after this returns. A forked child's release leaves what threads of its parent had alone.
    ///
    /// # Safety
    /// Nobody uses an object of this affinity any more, and nobody allocates from it or frees to it until this returns.
    pub unsafe fn release(&self, affinity: Affinity) -> u64 {
        let _inside = inside::enter();
        // SAFETY: the caller's duty.
        unsafe { self.shared.release(seat::existing(&self.shared), affinity) }
    }

    /// Leaves what this thread has freed of other threads' at its owners, at once; where these have ended, their blocks
    /// that are empty by that go back to the pool. Happens by itself every four thousand such frees, and when the
    /// thread ends.
    pub fn flush(&self) {
        let _inside = inside::enter();
        if let Some(arena) = seat::existing(&self.shared) {
            self.shared.flush(arena);
        }
        self.shared.collect_ownerless();
    }

    /// Takes in what others have freed of this thread's and of ended threads' objects, and gives all empty blocks back
    /// to the pool; and those blocks of slots of other threads of which everything was freed, but for one of each
    /// affinity. Blocks of chunks wait for their threads. Returns the bytes by which `mapped_bytes` falls for that.
    pub fn trim(&self) -> u64 {
        let _inside = inside::enter();
        let own = seat::with_arena(&self.shared, |arena| self.shared.trim(arena)).unwrap_or(0);
        own + self.shared.trim_ownerless() + self.shared.take_empty(seat::existing(&self.shared), None, false)
    }

    /// The figures of all affinities, from any thread. One line of memory is read for each page in use.
    pub fn stats(&self) -> SlotsStats {
        self.shared.stats()
    }

    /// A report for people: a line for each affinity in use, and the totals.
    pub fn report(&self) -> Report {
        Report(self.stats())
    }

    /// Walks everything of this thread's arena and of those without an owner, and checks the equations.
    ///
    /// # Errors
    /// The first equation that does not hold.
    pub fn validate(&self) -> Result<(), Invalid> {
        let _inside = inside::enter();
        match seat::with_arena(&self.shared, |arena| self.shared.validate(arena)) {
            Ok(checked) => checked,
            // Without an arena of its own, a thread has nothing to check.
            Err(_) => Ok(()),
        }
    }

    /// As [`Slots::validate`], for the arenas of all threads.
    ///
    /// # Safety
    /// No other thread uses these slots until this returns.
    ///
    /// # Errors
    /// As [`Slots::validate`].
    pub unsafe fn validate_all(&self) -> Result<(), Invalid> {
        let _inside = inside::enter();
        self.shared.validate_all()
    }

    /// The largest slot in bytes; larger objects are chunks.
    pub const MOST_SLOT_BYTES: usize = MOST_SLOT_BYTES;
}

impl fmt::Debug for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slots").field("id", &self.id).finish_non_exhaustive()
    }
}
