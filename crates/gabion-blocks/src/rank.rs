//! The order in which threads came.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A thread's rank among those that share arenas, or shards: by their ranks they fill them evenly. Each use has ranks
/// of its own: a thread that is no user takes none.
///
/// ```
/// use std::sync::atomic::AtomicUsize;
/// use gabion_blocks::Rank;
///
/// static NEXT: AtomicUsize = AtomicUsize::new(0);
/// thread_local!(static RANK: Rank = const { Rank::new() });
/// assert_eq!(RANK.with(|rank| rank.get(&NEXT)), 0);
/// std::thread::spawn(|| assert_eq!(RANK.with(|rank| rank.get(&NEXT)), 1)).join().unwrap();
/// ```
#[derive(Debug)]
pub struct Rank(Cell<usize>);

impl Rank {
    /// One that is given out when it is first asked for.
    #[expect(clippy::new_without_default, reason = "a default is not const")]
    pub const fn new() -> Self {
        Self(Cell::new(usize::MAX))
    }

    /// How many threads asked for theirs before this one did; `next` counts them.
    #[inline]
    pub fn get(&self, next: &AtomicUsize) -> usize {
        if self.0.get() == usize::MAX {
            // Relaxed: any order is as good as another.
            self.0.set(next.fetch_add(1, Ordering::Relaxed) & (usize::MAX >> 1));
        }
        self.0.get()
    }
}
