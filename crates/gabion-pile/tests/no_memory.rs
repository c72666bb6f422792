//! A pile where malloc has nothing left: what it needs for its own lists is refused, and the process goes on.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use gabion_pile::{Pile, PileError, PileOptions, Pointer, ReadBuf};

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

fn pile() -> Pile {
    Pile::with_options(PileOptions { shards: Some(1), ..PileOptions::default() }).unwrap()
}

/// Puts until that is refused, which is soon, and looks at all that was put.
fn fill(pile: &Pile, payload: &[u8]) -> usize {
    let mut pointers: Vec<Pointer> = Vec::with_capacity(200_000);
    pile.put(payload, 0).unwrap();
    let refused = without_memory(|| {
        loop {
            match pile.put(payload, 0) {
                Ok(pointer) if pointers.len() < pointers.capacity() => pointers.push(pointer),
                other => return other,
            }
        }
    });
    assert!(matches!(refused, Err(PileError::Memory { .. })), "{refused:?} after {}", pointers.len());
    pile.validate().unwrap();
    let mut buf = ReadBuf::new();
    assert!(pointers.iter().all(|&pointer| pile.read(pointer, &mut buf).unwrap() == payload));
    pile.put(payload, 0).unwrap();
    pointers.len()
}

#[test]
fn a_pile_whose_lists_cannot_grow_refuses() {
    for length in [1000, 5000] {
        let (pile, payload) = (pile(), vec![7; length]);
        assert!((0..3).all(|_| fill(&pile, &payload) > 0));
    }
}

#[test]
fn compact_gives_back_what_is_empty_without_memory() {
    let (pile, small, large) = (pile(), [1; 40], [2; 900]);
    let pointers: Vec<_> = (0..20_000).map(|_| pile.put(&small, 0).unwrap()).collect();
    for &pointer in &pointers[..100] {
        pile.replace(pointer, &large).unwrap();
        pile.replace(pointer, &[3; 60]).unwrap();
    }
    for &pointer in &pointers[100..] {
        pile.remove(pointer).unwrap();
    }
    let before = pile.stats().reserved_bytes;
    without_memory(|| pile.compact());
    assert!(pile.stats().reserved_bytes < before);
    pile.validate().unwrap();
    let mut buf = ReadBuf::new();
    assert!(pointers[..100].iter().all(|&pointer| pile.read(pointer, &mut buf).unwrap() == [3; 60]));
}
