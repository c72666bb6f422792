//! Which arena a thread has, in each `Slots` that it uses.

use std::cell::RefCell;
use std::ptr;
use std::sync::{Arc, Weak};

use gabion_blocks::BlockError;
use gabion_blocks::ending::Noted;
use gabion_blocks::{inside, make_room};

use crate::arena::Arena;
use crate::current::{self, NO_WORD};
use crate::error::SlotsError;
use crate::shared::Shared;

struct Seat {
    shared: Weak<Shared>,
    id: u64,
    arena: *const Arena,
}

/// All seats of a thread; leaves the arenas when the thread ends.
struct Seats(RefCell<Vec<Seat>>);

thread_local! {
    static SEATS: Seats = const { Seats(RefCell::new(Vec::new())) };
    static NOTED: Noted = const { Noted::new() };
}

/// This thread's arena in the `Slots` with this number, if it is the one used last.
///
/// # Safety
/// The `Slots` live for `'a`.
#[inline(always)]
pub(crate) unsafe fn current<'a>(id: u64) -> Option<&'a Arena> {
    current::with(|current| {
        // SAFETY: a number is stored together with its arena; arenas live as long as their `Slots`, whose numbers are
        // never used again.
        if current.id.get() == id { Some(unsafe { &*current.arena.get() }) } else { None }
    })
}

/// Does something with the arena that [`current()`] gives, if there is one.
///
/// # Safety
/// As [`current()`].
#[inline(always)]
pub(crate) unsafe fn with_current<R>(id: u64, act: impl FnOnce(&Arena) -> Option<R>) -> Option<R> {
    current::with(|current| {
        // SAFETY: as in `current`. Not by way of an `Option`, which would be looked at twice.
        if current.id.get() == id { act(unsafe { &*current.arena.get() }) } else { None }
    })
}

/// The word of the arena that this thread used last.
#[inline(always)]
pub(crate) fn word() -> u64 {
    current::with(|current| current.word.get())
}

/// The arena that this thread used last.
///
/// # Safety
/// [`word`] is that of a page in use, so there is such an arena, and its `Slots` live for `'a`.
#[inline]
pub(crate) unsafe fn arena<'a>() -> &'a Arena {
    // SAFETY: the caller's duty.
    unsafe { &*current::with(|current| current.arena.get()) }
}

fn set_current(id: u64, arena: *const Arena, word: u64) {
    current::with(|current| {
        current.id.set(id);
        current.arena.set(arena);
        current.word.set(word);
    });
}

/// Does something with this thread's arena, which is made or adopted at the first use. A thread that is ending borrows
/// one for the moment.
///
/// # Errors
/// That there is no memory for another arena, or for the note that this thread has one.
pub(crate) fn with_arena<R>(shared: &Arc<Shared>, act: impl FnOnce(&Arena) -> R) -> Result<R, SlotsError> {
    // SAFETY: the slots live at least as long as `act` takes.
    if let Some(arena) = unsafe { current(shared.id) } {
        return Ok(act(arena));
    }
    if !NOTED.with(Noted::can_be_noted) {
        return Err(SlotsError::NoMemory(BlockError::out_of_memory(size_of::<Seat>())));
    }
    if let Ok(found) = SEATS.try_with(|seats| seats.find(shared)) {
        return found.map(act);
    }
    let arena = shared.adopt()?;
    set_current(shared.id, arena, arena.word);
    let done = act(arena);
    set_current(0, ptr::null(), NO_WORD);
    shared.return_borrowed(arena);
    Ok(done)
}

/// This thread's arena, if it has one.
pub(crate) fn existing(shared: &Shared) -> Option<&Arena> {
    if !NOTED.with(Noted::is_noted) {
        return None;
    }
    let find = |seats: &Seats| {
        let seats = seats.0.borrow();
        seats.iter().find(|seat| seat.id == shared.id).map(|seat| seat.arena)
    };
    // SAFETY: arenas live as long as their `Slots`.
    SEATS.try_with(find).ok().flatten().map(|arena| unsafe { &*arena })
}

impl Seats {
    fn find<'a>(&self, shared: &'a Arc<Shared>) -> Result<&'a Arena, SlotsError> {
        let mut seats = self.0.borrow_mut();
        let found = seats.iter().find(|seat| seat.id == shared.id).map(|seat| seat.arena);
        let arena = if let Some(arena) = found {
            arena
        } else {
            seats.retain(|seat| seat.shared.strong_count() > 0);
            make_room(&mut seats, 1).map_err(SlotsError::NoMemory)?;
            let arena = ptr::from_ref(shared.adopt()?);
            seats.push(Seat { shared: Arc::downgrade(shared), id: shared.id, arena });
            arena
        };
        // SAFETY: arenas live as long as their `Slots`.
        let found = unsafe { &*arena };
        set_current(shared.id, arena, found.word);
        Ok(found)
    }
}

impl Drop for Seats {
    fn drop(&mut self) {
        let _inside = inside::enter();
        set_current(0, ptr::null(), NO_WORD);
        for seat in self.0.get_mut().drain(..) {
            if let Some(shared) = seat.shared.upgrade() {
                // SAFETY: the arena lives as long as what was just upgraded.
                shared.leave(unsafe { &*seat.arena });
                shared.collect_ownerless();
            }
        }
    }
}
