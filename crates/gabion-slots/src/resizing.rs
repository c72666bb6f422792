//! How an object gets another size.

use std::alloc::Layout;
use std::ptr::NonNull;

use gabion_blocks::{BLOCK_BYTES, inside};

use crate::affinity::Affinity;
use crate::error::SlotsError;
use crate::seat;
use crate::slots::Slots;
use crate::sync::Ordering::Relaxed;
use crate::territory::Area;
use crate::tier::{Tier, class_of, slot_bytes, tier};

impl Slots {
    /// Makes an object larger or smaller; it may move. It stays in place as a slot of the same class, as a chunk that
    /// would not become half empty or, if it is this thread's, has enough free room behind it, and as memory of its own
    /// that is long enough and would not become half empty.
    ///
    /// Where there is no memory for less, a chunk that would become half empty stays, too, and so does memory of its
    /// own. All else that gets smaller needs other memory, and is refused where there is none: a slot that becomes one
    /// of another class, a chunk that becomes a slot, memory of its own that becomes either.
    ///
    /// # Safety
    /// As [`Slots::free_sized`] with `old`. When the result is not an error, `at` is freed.
    ///
    /// # Errors
    /// As [`Slots::alloc`], and [`SlotsError::Free`]; the object is as it was then.
    pub unsafe fn realloc(
        &self,
        affinity: Affinity,
        at: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Result<NonNull<u8>, SlotsError> {
        // SAFETY: the caller's duty.
        unsafe { self.resize(affinity, at, Some(old), new) }
    }

    /// As [`Slots::realloc`], for callers that do not know the old layout, such as callers of C's `realloc`: what is
    /// copied when the object moves is all of its room, or as much as the new one has.
    ///
    /// # Safety
    /// As [`Slots::free`]; `affinity` is that of the allocation. When the result is not an error, `at` is freed.
    ///
    /// # Errors
    /// As [`Slots::realloc`].
    pub unsafe fn realloc_unsized(
        &self,
        affinity: Affinity,
        at: NonNull<u8>,
        new: Layout,
    ) -> Result<NonNull<u8>, SlotsError> {
        // SAFETY: the caller's duty.
        unsafe { self.resize(affinity, at, None, new) }
    }

    /// What both of them do.
    ///
    /// # Safety
    /// As [`Slots::realloc`] where `old` is told, else as [`Slots::realloc_unsized`].
    unsafe fn resize(
        &self,
        affinity: Affinity,
        at: NonNull<u8>,
        old: Option<Layout>,
        new: Layout,
    ) -> Result<NonNull<u8>, SlotsError> {
        let mask = self.shared.known(affinity)?.mask.load(Relaxed);
        // What is free already must neither stay nor be copied from: it may be part of what is allocated next.
        // SAFETY: the caller's duty.
        let room = unsafe { self.room_of(at) }?;
        // A caller that frees by the new layout infers from it what kind of memory it is, so what stays has to be of
        // that kind.
        let (place, roomy) = match (self.shared.territory.at(at.addr().get()), tier(new, mask)) {
            _ if !at.addr().get().is_multiple_of(new.align()) => (Place::Unfit, new),
            (Area::Pages, Tier::Slot) if room == slot_bytes(class_of(new, mask)) => (Place::Good, new),
            (Area::Chunks, Tier::Chunk { .. }) if new.size() > room => {
                let _inside = inside::enter();
                let grown = seat::with_arena(&self.shared, |mine| {
                    // SAFETY: the caller's duty; just found to be in use.
                    unsafe { self.shared.grow_chunk(mine, at, new.size()) }
                });
                (if grown.unwrap_or(false) { Place::Good } else { Place::Unfit }, new)
            }
            (Area::Chunks, Tier::Chunk { .. }) => (Place::of_room(new, room), new),
            // No alignment above a block's is had, even where the address happens to have it.
            (Area::Large, Tier::Large) if new.size() <= room && new.align() <= BLOCK_BYTES => {
                (Place::of_room(new, room), new)
            }
            (Area::Large, Tier::Large) => (Place::Unfit, headroom(new, room)),
            _ => (Place::Unfit, new),
        };
        if place == Place::Good {
            return Ok(at);
        }
        let moved = match self.alloc_with_headroom(affinity, roomy, new) {
            Ok(moved) => moved,
            // An object that gets smaller need not fail for want of memory.
            Err(_) if place == Place::Wide => return Ok(at),
            Err(error) => return Err(error),
        };
        let used = old.map_or(room, |old| old.size().min(room));
        // SAFETY: both have room for that many bytes at least, and they do not overlap.
        unsafe { moved.copy_from_nonoverlapping(at, used.min(new.size())) };
        let freed = match old {
            // SAFETY: the caller's duty.
            Some(old) => unsafe { self.free_sized(affinity, at, old) },
            // SAFETY: the caller's duty.
            None => unsafe { self.free(at) },
        };
        if let Err(error) = freed {
            // Somebody else has freed it: then nothing has moved.
            // SAFETY: just allocated, and shown to nobody.
            let _ = unsafe { self.free_sized(affinity, moved, new) };
            return Err(error.into());
        }
        Ok(moved)
    }

    /// Room for `roomy`, if it is there, else for `new`: for what is only good to have nobody gives anything up.
    fn alloc_with_headroom(&self, affinity: Affinity, roomy: Layout, new: Layout) -> Result<NonNull<u8>, SlotsError> {
        if roomy != new {
            let _inside = inside::enter();
            if let Ok(moved) = self.shared.alloc_large(affinity, roomy, false) {
                return Ok(moved);
            }
        }
        self.alloc(affinity, new)
    }
}

/// What the place where an object is would be for its new layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// As good as another.
    Good,
    /// Good enough where there is no other: more than half of it would be empty.
    Wide,
    /// Too small, or of another kind.
    Unfit,
}

impl Place {
    /// One of the right kind with `room` bytes, which are enough.
    fn of_room(new: Layout, room: usize) -> Self {
        if new.size() >= room / 2 { Self::Good } else { Self::Wide }
    }
}

/// What is asked for when a large object outgrows its room: where it grows by little it is likely to grow again, so it
/// gets a quarter more, and few of its steps move it.
fn headroom(new: Layout, room: usize) -> Layout {
    let by_little = new.size() > room && new.size() - room <= room / 2;
    let more = Layout::from_size_align(new.size().saturating_add(new.size() / 4), new.align());
    if by_little { more.unwrap_or(new) } else { new }
}
