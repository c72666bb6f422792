//! A table with a word for each granule of address space, read without a lock.
//!
//! ```text
//!   granule ──▶ root ──▶ leaf ──▶ word
//!               │        made at its first use and kept for ever
//!               one pointer for each leaf
//! ```

use std::ptr::{self, NonNull};

use crate::sync::{AtomicPtr, Ordering};

/// The words of neighbouring granules. All bits zero are as many null pointers: an empty leaf.
pub(crate) struct Leaf<T, const LEAVES: usize>(pub [AtomicPtr<T>; LEAVES]);

/// Two levels: `ROOTS` leaves of `LEAVES` words each. A word is a pointer to what its owner knows about the granule,
/// tagged as it likes, or null.
pub(crate) struct Granules<T, const ROOTS: usize, const LEAVES: usize> {
    root: [AtomicPtr<Leaf<T, LEAVES>>; ROOTS],
}

impl<T, const ROOTS: usize, const LEAVES: usize> Granules<T, ROOTS, LEAVES> {
    /// An empty table, made of as many null pointers.
    pub const fn of(root: [AtomicPtr<Leaf<T, LEAVES>>; ROOTS]) -> Self {
        Self { root }
    }

    #[inline]
    fn word(&self, granule: usize) -> Option<&AtomicPtr<T>> {
        // Acquire: pairs with the release in `make`, which publishes the leaf's zeros.
        let leaf = self.root.get(granule / LEAVES)?.load(Ordering::Acquire);
        // SAFETY: only `make` stores here, and what it stores is good for ever (duty of its caller).
        Some(&unsafe { leaf.as_ref() }?.0[granule % LEAVES])
    }

    /// The word of a granule; null when none was ever set, and beyond the table.
    #[inline]
    pub fn find(&self, granule: usize) -> *mut T {
        // Acquire: pairs with the release in `set`; a thread that finds a word sees what it points to.
        self.word(granule).map_or(ptr::null_mut(), |word| word.load(Ordering::Acquire))
    }

    /// Sets the word of a granule whose leaf is made.
    pub fn set(&self, granule: usize, word: *mut T) {
        let place = self.word(granule);
        debug_assert!(place.is_some(), "the leaf is made first");
        if let Some(place) = place {
            // Release: see `find`; and not after what the caller does next, an unmapping say.
            place.store(word, Ordering::Release);
        }
    }

    /// Makes the leaf of a granule, if there is none: `fresh` makes an empty one, and where another thread was faster
    /// `spare` takes it back.
    ///
    /// # Errors
    /// `beyond` when the granule lies beyond the table, and those of `fresh`.
    ///
    /// # Safety
    /// What `fresh` returns is an empty leaf, shared with nobody, that stays good for ever unless `spare` gets it.
    pub unsafe fn make<E>(
        &self,
        granule: usize,
        beyond: E,
        fresh: impl FnOnce() -> Result<NonNull<Leaf<T, LEAVES>>, E>,
        spare: impl FnOnce(NonNull<Leaf<T, LEAVES>>),
    ) -> Result<(), E> {
        let root = self.root.get(granule / LEAVES).ok_or(beyond)?;
        // Acquire, here and below: who goes on to `set` needs the other's leaf whole.
        if !root.load(Ordering::Acquire).is_null() {
            return Ok(());
        }
        let fresh = fresh()?;
        // Release: publishes the zeros.
        if root.compare_exchange(ptr::null_mut(), fresh.as_ptr(), Ordering::AcqRel, Ordering::Acquire).is_err() {
            spare(fresh);
        }
        Ok(())
    }
}
