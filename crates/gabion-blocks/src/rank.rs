//! The order in which threads came.

use std::cell::Cell;

use crate::sync::{AtomicUsize, Ordering};

/// The calling thread's rank: how many others asked for theirs before it did. Threads that share arenas or shards by
/// their ranks fill them evenly.
#[inline]
pub fn thread_rank() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static RANK: Cell<usize> = const { Cell::new(usize::MAX) });
    RANK.with(|rank| {
        if rank.get() == usize::MAX {
            // Relaxed: any order is as good as another.
            rank.set(NEXT.fetch_add(1, Ordering::Relaxed) & (usize::MAX >> 1));
        }
        rank.get()
    })
}
