//! Slots of the process where malloc has nothing left for them.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use allocator_api2::alloc::Allocator;
use gabion_blocks::Pool;
use gabion_slots::{Affinity, Slots, SlotsError, WithinGlobal};

thread_local! {
    /// Whether this thread gets memory. Without a destructor, so that an allocator may ask.
    static REFUSED: Cell<bool> = const { Cell::new(false) };
}

/// The system's allocator, until it is told to refuse.
struct Scarce;

// SAFETY: every call is the system's, or is refused as an allocator may refuse.
unsafe impl GlobalAlloc for Scarce {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's duty is the same, here and below.
        if REFUSED.get() { std::ptr::null_mut() } else { unsafe { System.alloc(layout) } }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static SCARCE: Scarce = Scarce;

fn without_memory<R>(act: impl FnOnce() -> R) -> R {
    REFUSED.set(true);
    let done = act();
    REFUSED.set(false);
    done
}

/// In this order, in one test: the slots of the process are made once.
#[test]
fn what_cannot_be_made_is_an_error_and_is_made_later() {
    let (nodes, layout) = (WithinGlobal::<{ Affinity::NODES.index() }>, Layout::new::<[u64; 3]>());
    // The pool's own books.
    let _ = Pool::global();
    assert!(matches!(without_memory(Slots::try_global), Err(SlotsError::NoMemory(_))));
    assert!(without_memory(|| nodes.allocate(layout)).is_err());
    assert!(without_memory(|| nodes.allocate_zeroed(layout)).is_err());
    let at = nodes.allocate(layout).unwrap().cast();
    // SAFETY: just allocated with this layout, and used no more.
    unsafe { nodes.deallocate(at, layout) };

    let (slots, large) = (Slots::global(), Layout::new::<[u64; 400_000]>());
    let taken =
        [layout, Layout::new::<[u64; 1000]>(), large].map(|layout| slots.alloc(Affinity::NODES, layout).unwrap());
    std::thread::scope(|scope| {
        let other = scope.spawn(|| without_memory(|| slots.alloc(Affinity::NODES, layout).map(|_| ())));
        assert!(
            matches!(other.join().unwrap(), Err(SlotsError::NoMemory(_))),
            "a thread's first, and no memory for its end"
        );
    });
    // SAFETY: just allocated, and used no more.
    let freed = without_memory(|| taken.map(|at| unsafe { slots.free(at) }));
    assert_eq!(freed, [Ok(()); 3]);
    slots.validate().unwrap();
}
