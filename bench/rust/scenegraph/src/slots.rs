//! gabion's slots.

use std::alloc::Layout;
use std::ptr::NonNull;

use gabion_blocks::Pool;
use gabion_slots::{Affinity, Slots};

use crate::subject::{Kind, Subject};

/// Slots on the process's pool. `SIZED` says whether a free tells the size, as C++'s sized `delete` and Rust's
/// `dealloc` do, or the pointer alone, as C's `free`.
pub struct Gabion<const SIZED: bool>(Slots);

impl<const SIZED: bool> Gabion<SIZED> {
    /// Slots that the caller keeps a hand on.
    pub fn on(slots: Slots) -> Self {
        Self(slots)
    }
}

impl<const SIZED: bool> Default for Gabion<SIZED> {
    fn default() -> Self {
        Self::on(Slots::new(Pool::global()).expect("the process has memory for the slots' own tables"))
    }
}

impl Kind {
    /// Where gabion keeps objects of this kind.
    #[inline]
    fn affinity(self) -> Affinity {
        match self {
            Self::Nodes => Affinity::NODES,
            Self::Data => Affinity::DATA,
            Self::Objects => Affinity::OBJECTS,
        }
    }
}

// SAFETY: this is what `Slots` promises of `alloc`, `free` and `free_sized`.
unsafe impl<const SIZED: bool> Subject for Gabion<SIZED> {
    fn label() -> String {
        if SIZED { "gabion".into() } else { "gabion, unsized free".into() }
    }

    #[inline]
    fn alloc(&self, kind: Kind, layout: Layout) -> NonNull<u8> {
        self.0.alloc(kind.affinity(), layout).unwrap_or_else(|_| std::alloc::handle_alloc_error(layout))
    }

    #[inline]
    unsafe fn free(&self, kind: Kind, memory: NonNull<u8>, layout: Layout) {
        let freed = if SIZED {
            // SAFETY: the caller says that the memory came from `alloc` with this kind and layout and is free of users.
            unsafe { self.0.free_sized(kind.affinity(), memory, layout) }
        } else {
            // SAFETY: as above.
            unsafe { self.0.free(memory) }
        };
        assert!(freed.is_ok(), "a free was refused");
    }

    fn trim(&mut self) {
        self.0.trim();
        Pool::global().trim(true);
    }

    fn check_empty(&self) {
        let stats = self.0.stats();
        let live: u64 = stats.affinities.iter().map(|affinity| affinity.live_objects).sum();
        assert_eq!(live, 0, "everything was freed, and {live} objects are still alive");
        self.0.validate().expect("the slots' books are right");
    }
}
