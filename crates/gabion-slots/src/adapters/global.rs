//! Slots under a whole program.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, Ordering};

use gabion_blocks::inside;

use super::fault::expect_freed;
use crate::{Affinity, Slots, SlotsError};

/// What serves a program's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// [`Slots::global`].
    Slots,
    /// [`std::alloc::System`].
    System,
}

/// A program's allocator that may be swapped while the program runs.
///
/// ```
/// use gabion_slots::{Backing, Global};
///
/// #[global_allocator]
/// static ALLOCATOR: Global = Global::new();
///
/// let words: Vec<String> = "one word for one thing".split(' ').map(String::from).collect();
/// Global::switch(Backing::System); // from now on; what is live stays where it is
/// drop(words); // goes back to the slots all the same
/// assert_eq!(Global::current(), Backing::System);
/// ```
///
/// The environment variable `GABION_ALLOCATOR`, read at the first request, says `slots` or `system`; without it, or
/// with anything else in it, slots serve. [`Global::switch`] changes that at any time. Each pointer goes back to where
/// it came from, which the map of addresses knows, so old and new may be mixed freely. The price is a look at that map
/// for each free: three loads.
///
/// What gabion itself asks for, in the middle of its own books, comes from the system, and so does what slots cannot
/// serve (an alignment above 4 MiB). A budget on the affinity is kept: a request beyond it fails. Only what `realloc`
/// makes smaller is never refused for the budget's sake, because `Vec::shrink_to_fit` would end the program: where the
/// slots have no room for the smaller one, it moves to the system, out of the budget, and its old room is free.
#[derive(Debug)]
pub struct Global {
    affinity: Affinity,
}

/// What serves now: null before the first request, [`SYSTEM`], or the slots.
static SERVING: AtomicPtr<Slots> = AtomicPtr::new(ptr::null_mut());

/// Stands in [`SERVING`] for the system. Never dereferenced.
const SYSTEM: *mut Slots = ptr::without_provenance_mut(1);

/// The slots once they have served, and for ever after: they may have something to take back.
static MADE: AtomicPtr<Slots> = AtomicPtr::new(ptr::null_mut());

/// Slots that were freed in the middle of gabion's own books, linked through their own first words.
static DEFERRED: AtomicPtr<u8> = AtomicPtr::new(ptr::null_mut());

impl Global {
    /// An allocator whose objects are [`Affinity::OBJECTS`].
    pub const fn new() -> Self {
        Self { affinity: Affinity::OBJECTS }
    }

    /// An allocator whose objects are of this affinity.
    pub const fn of_affinity(affinity: Affinity) -> Self {
        Self { affinity }
    }

    /// Lets another serve from now on, in all threads.
    ///
    /// # Panics
    /// As [`Slots::global`].
    pub fn switch(to: Backing) {
        let to = match to {
            Backing::Slots => made().expect("there is memory for the slots of the process"),
            Backing::System => SYSTEM,
        };
        // Release: a thread that serves by the slots finds them whole.
        SERVING.store(to, Ordering::Release);
    }

    /// What serves now.
    pub fn current() -> Backing {
        if serving() == SYSTEM { Backing::System } else { Backing::Slots }
    }
}

impl Default for Global {
    fn default() -> Self {
        Self::new()
    }
}

/// The global slots, made now if they are not yet.
fn made() -> Result<*mut Slots, SlotsError> {
    // What making them asks for must not come back here.
    let _inside = inside::enter();
    let slots = ptr::from_ref(Slots::try_global()?).cast_mut();
    // Release: a thread that finds the pointer finds the slots whole.
    MADE.store(slots, Ordering::Release);
    Ok(slots)
}

/// [`SYSTEM`] or the slots.
#[inline]
fn serving() -> *mut Slots {
    // Acquire: pairs with the release of `switch` and `first`.
    let serving = SERVING.load(Ordering::Acquire);
    if serving.is_null() { first() } else { serving }
}

/// Decides at the first request.
#[cold]
fn first() -> *mut Slots {
    if inside::is_inside() {
        return SYSTEM;
    }
    // An allocator must not panic. The next request tries again.
    let choice = if asks_for_system() { Ok(SYSTEM) } else { made() };
    let Ok(choice) = choice else { return SYSTEM };
    // Release: as in `switch`, which comes first if it comes now.
    match SERVING.compare_exchange(ptr::null_mut(), choice, Ordering::Release, Ordering::Acquire) {
        Ok(_) => choice,
        Err(other) => other,
    }
}

fn asks_for_system() -> bool {
    // `std::env` would ask for memory.
    // SAFETY: the name ends in a zero byte. As with every reader of the environment, no other thread may change it now.
    let value = unsafe { libc::getenv(c"GABION_ALLOCATOR".as_ptr()) };
    // SAFETY: not null, so a string that ends in a zero byte.
    !value.is_null() && unsafe { libc::strcmp(value, c"system".as_ptr()) } == 0
}

/// The slots, when they serve this request.
#[inline]
fn slots() -> Option<&'static Slots> {
    let serving = serving();
    // SAFETY: neither null nor `SYSTEM`, so it is `Slots::global()`, which is never destroyed.
    if serving == SYSTEM || inside::is_inside() { None } else { Some(unsafe { &*serving }) }
}

/// The slots, when the pointer is theirs.
#[inline]
fn owner(at: *mut u8) -> Option<&'static Slots> {
    // Acquire: pairs with the release in `made`. A thread that has a pointer of the slots has seen them made.
    // SAFETY: `Slots::global()` is never destroyed.
    let made = unsafe { MADE.load(Ordering::Acquire).as_ref() }?;
    made.owns(at).then_some(made)
}

/// What slots have refused: a limit is kept, and for the rest there is the system.
///
/// # Safety
/// As [`GlobalAlloc::alloc`].
#[cold]
unsafe fn instead(error: &SlotsError, layout: Layout, zeroed: bool) -> *mut u8 {
    match error {
        SlotsError::Budget { .. } => ptr::null_mut(),
        // SAFETY: the caller's duty is the same.
        _ if zeroed => unsafe { System.alloc_zeroed(layout) },
        // SAFETY: the caller's duty is the same.
        _ => unsafe { System.alloc(layout) },
    }
}

/// Keeps a slot that cannot be freed now for the next one that is freed.
///
/// # Safety
/// A slot of the global slots that nobody uses any more.
#[cold]
unsafe fn defer(at: *mut u8) {
    #[expect(clippy::cast_ptr_alignment, reason = "slots lie at multiples of 8")]
    let link = at.cast::<*mut u8>();
    let mut first = DEFERRED.load(Ordering::Relaxed);
    loop {
        // SAFETY: the smallest slot has 8 bytes at a multiple of 8, and this one is ours alone.
        unsafe { link.write(first) };
        // Release: the thread that takes the list sees the link.
        match DEFERRED.compare_exchange_weak(first, at, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return,
            Err(other) => first = other,
        }
    }
}

/// Frees what was deferred.
#[cold]
fn free_deferred(slots: &Slots) {
    // Acquire: pairs with the release in `defer`. The whole list is taken, so nobody else frees any of it.
    let mut next = DEFERRED.swap(ptr::null_mut(), Ordering::Acquire);
    while let Some(at) = NonNull::new(next) {
        // SAFETY: written by `defer`, and the slot is in no other hands.
        next = unsafe { at.cast::<*mut u8>().read() };
        // SAFETY: a slot of the global slots that nobody uses any more, and it is on the list once.
        expect_freed(unsafe { slots.free(at) });
    }
}

impl Global {
    /// Frees what the slots own.
    ///
    /// # Safety
    /// `at` is a live slot of `slots` with this layout that nobody uses any more.
    #[inline]
    unsafe fn free(&self, slots: &'static Slots, at: NonNull<u8>, layout: Layout) {
        if inside::is_inside() {
            // SAFETY: the caller's duty is the same.
            return unsafe { defer(at.as_ptr()) };
        }
        // SAFETY: the caller's duty is the same.
        expect_freed(unsafe { slots.free_sized(self.affinity, at, layout) });
        // Relaxed: what is missed now is found by a later free.
        if !DEFERRED.load(Ordering::Relaxed).is_null() {
            free_deferred(slots);
        }
    }
}

// SAFETY: slots and the system both give memory that is valid until it is freed, aligned and long enough; a pointer
// goes back to the one that gave it, which the map of addresses knows exactly. Nothing here unwinds.
unsafe impl GlobalAlloc for Global {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's duty is the same, here and for `instead`.
        let Some(slots) = slots() else { return unsafe { System.alloc(layout) } };
        match slots.alloc(self.affinity, layout) {
            Ok(at) => at.as_ptr(),
            // SAFETY: as above.
            Err(error) => unsafe { instead(&error, layout, false) },
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's duty is the same, here and for `instead`.
        let Some(slots) = slots() else { return unsafe { System.alloc_zeroed(layout) } };
        match slots.alloc_zeroed(self.affinity, layout) {
            Ok(at) => at.as_ptr(),
            // SAFETY: as above.
            Err(error) => unsafe { instead(&error, layout, true) },
        }
    }

    #[inline]
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        match (owner(at), NonNull::new(at)) {
            // SAFETY: the slots own it, and the caller's duty is the same.
            (Some(slots), Some(at)) => unsafe { self.free(slots, at, layout) },
            // SAFETY: not the slots', so the system gave it.
            _ => unsafe { System.dealloc(at, layout) },
        }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        let (Some(owner), Some(old)) = (owner(at), NonNull::new(at)) else {
            // SAFETY: not the slots', so the system gave it; the rest is the caller's duty.
            return unsafe { System.realloc(at, layout, new_size) };
        };
        // SAFETY: the caller promises that the new size, rounded up to the alignment, is no more than `isize::MAX`.
        let new = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        if let Some(slots) = slots() {
            // SAFETY: the slots own it, with this layout, and the caller uses only what is returned from now on.
            if let Ok(moved) = unsafe { slots.realloc(self.affinity, old, layout, new) } {
                return moved.as_ptr();
            }
        }
        // The system serves now, or the slots refuse.
        // SAFETY: the caller's duty is the same.
        let mut moved = unsafe { self.alloc(new) };
        if moved.is_null() && new_size <= layout.size() {
            // Programs take it for granted that what gets smaller is not refused, and the budget gets its bytes back.
            // SAFETY: as above.
            moved = unsafe { System.alloc(new) };
        }
        if !moved.is_null() {
            // SAFETY: both have room for the smaller of the two sizes and do not overlap; the old one is free
            // afterwards.
            unsafe {
                moved.copy_from_nonoverlapping(at, layout.size().min(new_size));
                self.free(owner, old, layout);
            }
        }
        moved
    }
}
