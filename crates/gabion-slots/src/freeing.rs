//! How an object is freed, wherever it belongs.

use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::Arc;

use gabion_blocks::inside;

use crate::affinity::{Affinity, MOST_ALIGNMENT};
use crate::checked::{CHECKED, fill};
use crate::error::FreeError;
use crate::record::{self, Page};
use crate::seat;
use crate::shared::Shared;
use crate::sync::{Ordering::Relaxed, Ordering::Release, lock};
use crate::territory::Area;
use crate::tier::{class_of, is_small};

/// Frees a slot of this thread's whose page keeps its standing. False when it is none, or seen to be free already, or
/// there is more to do; then nothing is changed.
///
/// # Safety
/// The address lies in a block of pages of some slots; if a slot begins there, it is taken, and nobody uses it any
/// more.
#[inline(always)]
pub(crate) unsafe fn free_local_fast(at: NonNull<u8>) -> bool {
    // SAFETY: the caller's duty; the word is that of this thread's arena.
    unsafe { record::free_local_fast(at, seat::word()) }
}

impl Shared {
    /// What [`Slots::free`](crate::Slots::free) ends with.
    ///
    /// # Safety
    /// As there.
    #[cold]
    #[inline(never)]
    pub unsafe fn free_any(self: &Arc<Self>, at: NonNull<u8>) -> Result<(), FreeError> {
        if self.territory.is_pages(at.addr().get()) {
            // SAFETY: in a block of pages of ours.
            return unsafe { self.free_slot(at, None) };
        }
        // SAFETY: the caller's duty.
        if unsafe { self.free_chunk_fast(at) } {
            return Ok(());
        }
        // SAFETY: the caller's duty.
        unsafe { self.free_chunk_or_large(at, None) }
    }

    /// What [`Slots::free_sized`](crate::Slots::free_sized) ends with.
    ///
    /// # Safety
    /// As there.
    #[cold]
    #[inline(never)]
    pub unsafe fn free_any_sized(
        self: &Arc<Self>,
        affinity: Affinity,
        at: NonNull<u8>,
        layout: Layout,
    ) -> Result<(), FreeError> {
        if !CHECKED && is_small(layout) {
            // SAFETY: what was allocated with a small layout is a slot.
            return unsafe { self.free_slot(at, None) };
        }
        let said = Some((affinity, layout));
        // SAFETY: the caller's duty.
        if unsafe { self.free_chunk_fast(at) } {
            return Ok(());
        }
        match self.territory.at(at.addr().get()) {
            Area::Pages if is_small(layout) => {
                // SAFETY: in a block of pages of ours.
                unsafe { self.free_slot(at, said) }
            }
            Area::Chunks | Area::Large if !is_small(layout) => {
                // SAFETY: the caller's duty.
                unsafe { self.free_chunk_or_large(at, said) }
            }
            Area::Nothing => Err(FreeError::Foreign),
            Area::Rest => Err(FreeError::NotASlot),
            _ => Err(FreeError::WrongSize),
        }
    }

    /// Frees a slot, wherever it belongs.
    ///
    /// # Safety
    /// As [`free_local_fast`].
    #[inline(always)]
    unsafe fn free_slot(self: &Arc<Self>, at: NonNull<u8>, said: Option<(Affinity, Layout)>) -> Result<(), FreeError> {
        // SAFETY: the caller's duty.
        let page = unsafe { Page::around(at) };
        if page.owner() == seat::word() {
            // SAFETY: the caller's duty.
            unsafe { self.free_own(page, at, said) }
        } else {
            // SAFETY: the caller's duty.
            unsafe { self.free_elsewhere(at, said) }
        }
    }

    /// Frees a slot of this thread's, of whose page this was said to be.
    ///
    /// # Safety
    /// As [`free_local_fast`].
    #[cold]
    #[inline(never)]
    unsafe fn free_own(
        self: &Arc<Self>,
        page: Page<'_>,
        at: NonNull<u8>,
        said: Option<(Affinity, Layout)>,
    ) -> Result<(), FreeError> {
        let (index, pair, bit) = page.slot_at(at).ok_or(FreeError::NotASlot)?;
        let free = pair.free.load(Relaxed);
        if (free | pair.remote_free.load(Relaxed)) & bit != 0 {
            return Err(FreeError::DoubleFree);
        }
        if CHECKED {
            agrees(page, said)?;
            // SAFETY: the slot is taken, and its user gives it up.
            unsafe { fill(at, usize::from(page.shape().slot)) };
        }
        if page.count_out(1) {
            let _inside = inside::enter();
            // SAFETY: the page has an owner, which was just seen to be this thread's arena.
            let arena = unsafe { seat::arena() };
            // Taken while the slot still keeps the page.
            let _lists = lock(&arena.lists);
            // Relaxed: published by the lock.
            pair.free.store(free | bit, Relaxed);
            self.relist(arena, page, index / 64);
            self.return_queued(arena);
        } else {
            // Release: as in `record::free_local_fast`.
            pair.free.store(free | bit, Release);
        }
        Ok(())
    }

    /// Frees a slot that is not of the arena this thread used last.
    ///
    /// # Safety
    /// As [`free_local_fast`].
    #[inline(always)]
    unsafe fn free_elsewhere(
        self: &Arc<Self>,
        at: NonNull<u8>,
        said: Option<(Affinity, Layout)>,
    ) -> Result<(), FreeError> {
        // SAFETY: the caller's duty; `self` keeps the slots alive.
        let (page, arena) = unsafe { (Page::around(at), seat::current(self.id)) };
        match arena {
            Some(arena) if self.has_arena(page.owner()) => {
                if CHECKED {
                    // SAFETY: the caller's duty.
                    unsafe { agrees_foreign(page, at, said)? };
                }
                self.free_foreign(arena, page, at)
            }
            // SAFETY: the caller's duty.
            _ => unsafe { self.free_without_current(at, said) },
        }
    }

    /// Frees a slot from a thread that has used other slots, or none, or says why it is no slot.
    #[cold]
    #[inline(never)]
    unsafe fn free_without_current(
        self: &Arc<Self>,
        at: NonNull<u8>,
        said: Option<(Affinity, Layout)>,
    ) -> Result<(), FreeError> {
        let shared = self;
        match shared.territory.at(at.addr().get()) {
            Area::Pages => {}
            Area::Nothing => return Err(FreeError::Foreign),
            _ => return Err(FreeError::WrongSize),
        }
        // SAFETY: in a block of pages of ours.
        let page = unsafe { Page::around(at) };
        let owner = page.owner();
        if !shared.has_arena(owner) {
            // The header, or a page of which everything is free.
            return Err(if page.index() == 0 { FreeError::NotASlot } else { FreeError::DoubleFree });
        }
        let _inside = inside::enter();
        let freed = seat::with_arena(shared, |arena| {
            // Now that there is an arena, the slot may be found to be of just this one.
            if seat::word() == owner {
                // SAFETY: the caller's duty.
                return unsafe { self.free_own(page, at, said) };
            }
            if CHECKED {
                // SAFETY: the caller's duty.
                unsafe { agrees_foreign(page, at, said)? };
            }
            shared.free_foreign(arena, page, at)
        });
        freed.unwrap_or(Err(FreeError::NoMemory))
    }

    /// What [`Slots::room_of`](crate::Slots::room_of) says.
    ///
    /// # Safety
    /// As there.
    pub unsafe fn room_of(self: &Arc<Self>, at: NonNull<u8>) -> Result<usize, FreeError> {
        match self.territory.at(at.addr().get()) {
            Area::Pages => {
                // SAFETY: in a block of pages of ours.
                let page = unsafe { Page::around(at) };
                self.is_taken(page, at).map(|()| usize::from(page.shape().slot))
            }
            // SAFETY: in a block of chunks of ours.
            Area::Chunks => unsafe { self.room_of_chunk(at) },
            Area::Large => {
                let _inside = inside::enter();
                self.large_bytes(at).ok_or(FreeError::NotASlot)
            }
            Area::Rest => Err(FreeError::NotASlot),
            Area::Nothing => Err(FreeError::Foreign),
        }
    }

    /// Whether a slot of this page begins at `at` and is taken, as far as this thread can see.
    fn is_taken(&self, page: Page<'_>, at: NonNull<u8>) -> Result<(), FreeError> {
        if page.owner() == 0 {
            // The header, or a page of which everything is free.
            return Err(if page.index() == 0 { FreeError::NotASlot } else { FreeError::DoubleFree });
        }
        let (_, pair, bit) = page.slot_at(at).ok_or(FreeError::NotASlot)?;
        // Another arena's slot that this thread has freed may still be in its buffer.
        let sent = || {
            let epoch = page.header.epoch.load(Relaxed);
            seat::existing(self).is_some_and(|mine| mine.remote_buffer.has(page, pair.remote_free, bit, epoch))
        };
        if pair.is_free(bit) || page.owner() != seat::word() && sent() { Err(FreeError::DoubleFree) } else { Ok(()) }
    }

    /// Frees a chunk of the arena that this thread used last, if that is done in a few steps. Otherwise nothing is
    /// changed.
    ///
    /// # Safety
    /// As [`Slots::free`](crate::Slots::free).
    #[inline(always)]
    unsafe fn free_chunk_fast(&self, at: NonNull<u8>) -> bool {
        // SAFETY: `self` keeps the slots alive; the rest is the caller's duty.
        unsafe { seat::current(self.id).is_some_and(|arena| self.free_chunk_at_hand(arena, at)) }
    }

    /// Frees what is no slot.
    #[cold]
    #[inline(never)]
    unsafe fn free_chunk_or_large(
        self: &Arc<Self>,
        at: NonNull<u8>,
        said: Option<(Affinity, Layout)>,
    ) -> Result<(), FreeError> {
        let _inside = inside::enter();
        let shared = self;
        match shared.territory.at(at.addr().get()) {
            // SAFETY: in a block of chunks of ours; the caller's duty.
            Area::Chunks => seat::with_arena(shared, |arena| unsafe { shared.free_chunk(arena, at, said) })
                .unwrap_or(Err(FreeError::NoMemory)),
            Area::Large => shared.free_large(at, said),
            Area::Nothing => Err(FreeError::Foreign),
            Area::Pages | Area::Rest => Err(FreeError::NotASlot),
        }
    }
}

/// Compares what was said of a slot with what it is.
fn agrees(page: Page<'_>, said: Option<(Affinity, Layout)>) -> Result<(), FreeError> {
    let Some((affinity, layout)) = said else { return Ok(()) };
    if affinity.index() != page.header.affinity.load(Relaxed) {
        return Err(FreeError::WrongAffinity);
    }
    // The alignment of the affinity may have been another when it was allocated.
    let classes = class_of(layout, 0)..=class_of(layout, MOST_ALIGNMENT - 1);
    if classes.contains(&page.class()) { Ok(()) } else { Err(FreeError::WrongSize) }
}

/// As [`agrees`], for another arena's slot, which is looked at and filled before it goes back.
///
/// # Safety
/// As [`free_local_fast`].
unsafe fn agrees_foreign(page: Page<'_>, at: NonNull<u8>, said: Option<(Affinity, Layout)>) -> Result<(), FreeError> {
    let (_, pair, bit) = page.slot_at(at).ok_or(FreeError::NotASlot)?;
    if page.owner() == 0 || pair.is_free(bit) {
        return Err(FreeError::DoubleFree);
    }
    agrees(page, said)?;
    // SAFETY: the slot is taken, and nobody uses it any more (duty of the caller).
    unsafe { fill(at, usize::from(page.shape().slot)) };
    Ok(())
}
