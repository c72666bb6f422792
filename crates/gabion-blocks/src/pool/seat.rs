//! A thread's seat: its turn, and its cache in each pool that it has used.

use std::cell::{Cell, RefCell};
use std::ptr;

use super::cache::Cache;
use super::shared::Shared;
use crate::inside;
use crate::sync::{AtomicUsize, Ordering, lock};

type Place = (&'static Shared, &'static Cache);

struct Seat {
    turn: Cell<usize>,
    /// The place that was used last.
    first: Cell<Option<Place>>,
    /// All places.
    places: RefCell<Vec<Place>>,
}

thread_local! {
    static SEAT: Seat = const {
        Seat { turn: Cell::new(usize::MAX), first: Cell::new(None), places: RefCell::new(Vec::new()) }
    };
}

/// This thread's cache in a pool, or `None` while the thread ends.
#[inline]
pub(crate) fn cache(shared: &'static Shared) -> Option<&'static Cache> {
    let find = |seat: &Seat| match seat.first.get() {
        Some((owner, cache)) if ptr::eq(owner, shared) => Some(cache),
        _ => seat.find(shared),
    };
    SEAT.try_with(find).ok().flatten()
}

/// This thread's cache in a pool, if it has one already.
pub(crate) fn existing_cache(shared: &'static Shared) -> Option<&'static Cache> {
    let find = |seat: &Seat| {
        let places = seat.places.try_borrow().ok()?;
        places.iter().find(|(owner, _)| ptr::eq(*owner, shared)).map(|place| place.1)
    };
    SEAT.try_with(find).ok().flatten()
}

/// The arena that this thread belongs to.
#[inline]
pub(crate) fn arena(shared: &'static Shared) -> usize {
    cache(shared).map_or(0, Cache::arena)
}

impl Seat {
    #[cold]
    fn find(&self, shared: &'static Shared) -> Option<&'static Cache> {
        let mut places = self.places.try_borrow_mut().ok()?;
        places.retain(|(owner, cache)| {
            let open = !owner.closed.load(Ordering::Relaxed) || ptr::eq(*owner, shared);
            if !open {
                owner.leave_cache(cache);
            }
            open
        });
        let found = places.iter().find(|(owner, _)| ptr::eq(*owner, shared)).copied();
        let place = found.unwrap_or_else(|| {
            let place = (shared, shared.new_cache(self.turn()));
            places.push(place);
            place
        });
        self.first.set(Some(place));
        Some(place.1)
    }

    /// Threads take turns, so that arenas fill evenly.
    fn turn(&self) -> usize {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        if self.turn.get() == usize::MAX {
            // Relaxed: any order of turns is as good as another.
            self.turn.set(NEXT.fetch_add(1, Ordering::Relaxed) & (usize::MAX >> 1));
        }
        self.turn.get()
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.first.set(None);
        for (shared, cache) in self.places.get_mut().drain(..) {
            shared.leave_cache(cache);
        }
    }
}

impl Shared {
    fn new_cache(&self, turn: usize) -> &'static Cache {
        let spare = lock(&self.caches).spare.pop();
        let cache = spare.unwrap_or_else(|| {
            let cache: &'static Cache = Box::leak(Box::new(Cache::new()));
            let _inside = inside::enter();
            lock(&self.caches).all.push(cache);
            cache
        });
        cache.belong(turn, self.arena_of_turn(turn));
        cache
    }

    /// Takes a cache back whose thread ends or is gone.
    pub fn leave_cache(&self, cache: &'static Cache) {
        self.flush(cache);
        self.settle(cache);
        let _inside = inside::enter();
        lock(&self.caches).spare.push(cache);
    }

    /// Books what a cache has counted to its arena.
    pub fn settle(&self, cache: &Cache) {
        let (rented, hits, returned) = {
            let mut stacks = cache.lock();
            let counts = (stacks.rented, stacks.hits, stacks.returned);
            (stacks.rented, stacks.hits, stacks.returned) = (0, 0, 0);
            counts
        };
        let mut shelves = self.arena(cache.arena()).lock();
        shelves.counts.rented += rented;
        shelves.counts.hits_cache += hits;
        shelves.counts.returned += returned;
    }
}
