//! The floor: a pointer that moves on. Freeing does nothing, so all memory comes back at once, when all is free.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::{Cell, OnceCell};
use std::ptr::NonNull;

use crate::subject::{Kind, Subject};

/// Nothing here needs more. It costs address space only.
const ROOM: Layout = Layout::new::<[u64; 1 << 29]>();

/// A bump allocator whose addresses ascend, as a walk in the order of building likes them.
#[derive(Default)]
pub struct Floor {
    used: Cell<usize>,
    room: OnceCell<Room>,
}

struct Room(NonNull<u8>);

impl Room {
    fn new() -> Self {
        // SAFETY: the layout is not empty.
        Self(NonNull::new(unsafe { alloc(ROOM) }).unwrap_or_else(|| handle_alloc_error(ROOM)))
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        // SAFETY: the memory came from `alloc` with this layout, and nobody can allocate from it any more.
        unsafe { dealloc(self.0.as_ptr(), ROOM) }
    }
}

// SAFETY: each byte is handed out once until `all_is_free`, which its callers use when it is true.
unsafe impl Subject for Floor {
    fn label() -> String {
        "floor".into()
    }

    #[inline]
    fn alloc(&self, _kind: Kind, layout: Layout) -> NonNull<u8> {
        let place = self.used.get().next_multiple_of(layout.align());
        let end = place + layout.size();
        assert!(end <= ROOM.size(), "the floor's room is used up");
        self.used.set(end);
        // SAFETY: the place is within the memory, whose start is aligned for anything that is asked for here.
        unsafe { self.room.get_or_init(Room::new).0.add(place) }
    }

    #[inline]
    unsafe fn free(&self, _kind: Kind, _memory: NonNull<u8>, _layout: Layout) {}

    fn all_is_free(&mut self) {
        self.used.set(0);
    }

    fn trim(&mut self) {
        *self = Self::default();
    }
}
