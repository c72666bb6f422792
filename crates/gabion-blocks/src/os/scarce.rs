//! The twin of malloc: an allocator that refuses when it is told to.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// From how many bytes on this thread gets no memory. Without a destructor, so that an allocator may ask.
    static REFUSED: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// The system's allocator, which refuses a thread what [`Scarce::without_memory`] says. For tests that have it as their
/// `#[global_allocator]`.
#[derive(Debug)]
pub struct Scarce;

impl Scarce {
    /// Runs `act` in a thread that gets no memory meanwhile.
    pub fn without_memory<R>(act: impl FnOnce() -> R) -> R {
        Self::with_less_than(1, act)
    }

    /// Runs `act` in a thread that gets only requests of fewer `bytes` meanwhile.
    pub fn with_less_than<R>(bytes: usize, act: impl FnOnce() -> R) -> R {
        REFUSED.set(bytes);
        let done = act();
        REFUSED.set(usize::MAX);
        done
    }
}

// SAFETY: every call is the system's, or is refused as an allocator may refuse.
unsafe impl GlobalAlloc for Scarce {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's duty is the same, here and below.
        if layout.size() >= REFUSED.get() { std::ptr::null_mut() } else { unsafe { System.alloc(layout) } }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}
