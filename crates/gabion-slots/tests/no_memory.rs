//! Slots of the process where malloc has nothing left for them.

use std::alloc::Layout;

use allocator_api2::alloc::Allocator;
use gabion_blocks::Pool;
use gabion_blocks::os::Scarce;
use gabion_slots::{Affinity, Slots, SlotsError, WithinGlobal};

#[global_allocator]
static SCARCE: Scarce = Scarce;

/// In this order, in one test: the slots of the process are made once.
#[test]
fn what_cannot_be_made_is_an_error_and_is_made_later() {
    let (nodes, layout) = (WithinGlobal::<{ Affinity::NODES.index() }>, Layout::new::<[u64; 3]>());
    // The pool's own books.
    let _ = Pool::global();
    assert!(matches!(Scarce::without_memory(Slots::try_global), Err(SlotsError::NoMemory(_))));
    // Whichever of their tables there is no memory for.
    for bytes in [2 << 10, 16 << 10, 100 << 10] {
        let made = Scarce::with_less_than(bytes, || Slots::new(Pool::global()));
        assert!(matches!(made, Err(SlotsError::NoMemory(_))), "{bytes}");
    }
    assert!(Scarce::without_memory(|| nodes.allocate(layout)).is_err());
    assert!(Scarce::without_memory(|| nodes.allocate_zeroed(layout)).is_err());
    let at = nodes.allocate(layout).unwrap().cast();
    // SAFETY: just allocated with this layout, and used no more.
    unsafe { nodes.deallocate(at, layout) };

    let (slots, large) = (Slots::global(), Layout::new::<[u64; 400_000]>());
    let taken =
        [layout, Layout::new::<[u64; 1000]>(), large].map(|layout| slots.alloc(Affinity::NODES, layout).unwrap());
    std::thread::scope(|scope| {
        let other = scope.spawn(|| Scarce::without_memory(|| slots.alloc(Affinity::NODES, layout).map(|_| ())));
        assert!(
            matches!(other.join().unwrap(), Err(SlotsError::NoMemory(_))),
            "a thread's first, and no memory for its end"
        );
    });
    // SAFETY: just allocated, and used no more.
    let freed = Scarce::without_memory(|| taken.map(|at| unsafe { slots.free(at) }));
    assert_eq!(freed, [Ok(()); 3]);
    slots.validate().unwrap();

    for _ in 0..200 {
        slots.alloc(Affinity::NODES, Layout::new::<[u64; 150_000]>()).unwrap();
    }
    slots.alloc(Affinity::NODES, layout).unwrap();
    // SAFETY: nobody uses what was just allocated.
    let bytes = Scarce::without_memory(|| unsafe { slots.release(Affinity::NODES) });
    assert!(bytes >= 200 * 1_200_000);
    assert_eq!(slots.stats().total().live_objects, 0);
    slots.validate().unwrap();
}
