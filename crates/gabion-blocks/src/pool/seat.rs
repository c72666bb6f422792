//! A thread's seat: its rank, and its cache in each pool that it has used.

use std::cell::{Cell, RefCell};
use std::ptr;
use std::sync::atomic::AtomicUsize;

use super::cache::{Cache, Open, Own};
use super::shared::Shared;
use crate::ending::Noted;
use crate::fallible::{make_room, try_room};
use crate::inside;
use crate::rank::Rank;
use crate::sync::{Ordering, lock};

type Place = (&'static Shared, Own);

struct Seat {
    rank: Rank,
    /// All places.
    places: RefCell<Vec<Place>>,
}

thread_local! {
    static SEAT: Seat = const { Seat { rank: Rank::new(), places: RefCell::new(Vec::new()) } };
    static NOTED: Noted = const { Noted::new() };

    /// The place that was used last, one of the seat's. Apart from it, because what has no destructor is reached
    /// without a look at whether the thread ends.
    static FIRST: Cell<Option<Place>> = const { Cell::new(None) };
}

/// This thread's cache in a pool, or `None` while the thread ends, and without memory for one.
#[inline(always)]
pub(crate) fn cache(shared: &'static Shared) -> Option<Own> {
    match FIRST.get() {
        Some((owner, own)) if ptr::eq(owner, shared) => Some(own),
        _ => find(shared),
    }
}

#[cold]
fn find(shared: &'static Shared) -> Option<Own> {
    if !NOTED.with(Noted::can_be_noted) {
        return None;
    }
    SEAT.try_with(|seat| seat.find(shared)).ok().flatten()
}

/// This thread's cache in a pool, if it has one already.
pub(crate) fn existing_cache(shared: &'static Shared) -> Option<&'static Cache> {
    if !NOTED.with(Noted::is_noted) {
        return None;
    }
    let find = |seat: &Seat| {
        let places = seat.places.try_borrow().ok()?;
        places.iter().find(|(owner, _)| ptr::eq(*owner, shared)).map(|place| place.1.cache())
    };
    SEAT.try_with(find).ok().flatten()
}

/// The arena that this thread belongs to; any, if it has no cache.
#[inline]
pub(crate) fn arena(shared: &'static Shared) -> usize {
    cache(shared).map_or(0, |own| own.cache().arena())
}

impl Seat {
    fn find(&self, shared: &'static Shared) -> Option<Own> {
        let mut places = self.places.try_borrow_mut().ok()?;
        // It may be one of those that are left now.
        FIRST.set(None);
        places.retain(|(owner, own)| {
            let open = !owner.closed.load(Ordering::Relaxed) || ptr::eq(*owner, shared);
            if !open {
                owner.leave_own(*own);
            }
            open
        });
        let place = if let Some(&place) = places.iter().find(|(owner, _)| ptr::eq(*owner, shared)) {
            place
        } else {
            make_room(&mut places, 1).ok()?;
            let place = (shared, shared.new_cache(self.rank())?);
            places.push(place);
            place
        };
        FIRST.set(Some(place));
        Some(place.1)
    }

    /// By which it belongs to an arena.
    fn rank(&self) -> usize {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        self.rank.get(&NEXT)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        FIRST.set(None);
        for (shared, own) in self.places.get_mut().drain(..) {
            shared.leave_own(own);
        }
    }
}

impl Shared {
    /// A cache for this thread, or `None` without memory for one.
    fn new_cache(&self, rank: usize) -> Option<Own> {
        let spare = lock(&self.caches).spare.pop();
        let cache = spare.or_else(|| self.make_cache())?;
        cache.belong(rank, self.arena_of_rank(rank));
        // SAFETY: this thread took it from the spare ones or made it. All copies stand in the seat and in `FIRST`, and
        // both let go of them before the cache is spare again (`Seat::find`, `Seat::drop`); who asked for a cache asks
        // anew after everything that may lead there: whatever gives memory back or takes some.
        Some(unsafe { cache.own() })
    }

    #[cold]
    fn make_cache(&self) -> Option<&'static Cache> {
        let fresh = Cache::new_in(try_room().ok()?);
        let _inside = inside::enter();
        let mut caches = lock(&self.caches);
        // For all of them: a thread that ends needs no memory then.
        let most = caches.all.len() + 1 - caches.spare.len();
        make_room(&mut caches.spare, most).ok()?;
        make_room(&mut caches.all, 1).ok()?;
        let cache: &'static Cache = Box::leak(fresh);
        caches.all.push(cache);
        Some(cache)
    }

    /// Takes this thread's cache back.
    fn leave_own(&self, own: Own) {
        self.flush_by(|| own.open());
        self.fold_counts(own.cache(), || own.open());
        self.spare(own.cache());
    }

    /// Takes a cache back whose thread is gone.
    pub fn leave_cache(&self, cache: &'static Cache) {
        self.flush(cache);
        self.fold_counts(cache, || cache.lock_unbiased());
        self.spare(cache);
    }

    fn spare(&self, cache: &'static Cache) {
        cache.part();
        lock(&self.caches).spare.push(cache);
    }

    /// Adds what a cache has counted, and tells now, to the figures of its arena.
    pub fn fold_counts<'a>(&self, cache: &Cache, open: impl FnOnce() -> Open<'a>) {
        // Before the list is locked: to make the arena takes the growth lock, which a fork takes before the list.
        let arena = self.arena(cache.arena());
        // Until it is booked nobody adds up the figures: it would be in neither place (`Shared::stats`).
        let _list = lock(&self.caches);
        let (rented, returned) = open().tell();
        let mut shelves = arena.lock();
        shelves.counts.rented += rented;
        shelves.counts.hits_cache += rented;
        shelves.counts.returned += returned;
    }
}
