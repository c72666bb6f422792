//! An append-only map from an object's address to what is known about it, read without a lock.

use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

struct Cell<T> {
    key: AtomicUsize,
    value: AtomicPtr<T>,
}

struct Cells<T> {
    mask: usize,
    used: AtomicUsize,
    all: Box<[Cell<T>]>,
}

/// Open addressing with linear probing, at most half full. Writers are serialised by the owner (see [`Table::insert`]);
/// readers need nothing. A grown table is published whole; the old ones stay until the table is dropped, because a
/// reader may still stand in them. Together they are smaller than the newest.
pub struct Table<T> {
    current: AtomicPtr<Cells<T>>,
}

impl<T> Cells<T> {
    fn boxed(size: usize) -> Box<Cells<T>> {
        let all =
            (0..size).map(|_| Cell { key: AtomicUsize::new(0), value: AtomicPtr::new(std::ptr::null_mut()) }).collect();
        Box::new(Cells { mask: size - 1, used: AtomicUsize::new(0), all })
    }

    #[inline(always)]
    fn start(&self, key: usize) -> usize {
        // Objects are 16-byte aligned; the odd constant spreads the rest over the high half, which is then folded in.
        let mixed = (key >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mixed >> 32) & self.mask
    }
}

impl<T> Table<T> {
    pub fn new() -> Table<T> {
        Table { current: AtomicPtr::new(Box::into_raw(Cells::boxed(64))) }
    }

    /// What is stored under `key`, or null. O(1).
    #[inline(always)]
    pub fn get(&self, key: usize) -> *mut T {
        // Acquire: pairs with the Release of `insert`, so that the cells of a newly published table are seen filled.
        // SAFETY: `current` is never null, and no table is freed while `self` lives (retired ones are leaked into
        // `Writer::retired` by the owner).
        let cells = unsafe { &*self.current.load(Ordering::Acquire) };
        let mut index = cells.start(key);
        loop {
            let cell = &cells.all[index & cells.mask];
            // Acquire: a key is stored after its value.
            let found = cell.key.load(Ordering::Acquire);
            if found == key {
                // Acquire: a replaced value points at memory that was written before.
                return cell.value.load(Ordering::Acquire);
            }
            if found == 0 {
                return std::ptr::null_mut();
            }
            index += 1;
        }
    }

    /// Stores or replaces. Only one thread at a time may call this; the caller holds the registry's lock. Returns the
    /// table that was outgrown, to be kept until this one is dropped.
    pub fn insert(&self, key: usize, value: *mut T) -> Option<Retired<T>> {
        let raw = self.current.load(Ordering::Relaxed); // Relaxed: only this writer stores it.
        // SAFETY: as in `get`.
        let cells = unsafe { &*raw };
        if (cells.used.load(Ordering::Relaxed) + 1) * 2 <= cells.all.len() {
            Self::place(cells, key, value);
            return None;
        }
        let grown = Cells::boxed(cells.all.len() * 2);
        for cell in &cells.all {
            // Relaxed: written by this or an earlier holder of the lock.
            let (key, value) = (cell.key.load(Ordering::Relaxed), cell.value.load(Ordering::Relaxed));
            if key != 0 {
                Self::place(&grown, key, value);
            }
        }
        Self::place(&grown, key, value);
        // Release: the filled cells before the pointer.
        self.current.store(Box::into_raw(grown), Ordering::Release);
        // SAFETY: made by `Box::into_raw` and no longer reachable from `current`.
        Some(Retired(unsafe { Box::from_raw(raw) }))
    }

    fn place(cells: &Cells<T>, key: usize, value: *mut T) {
        let mut index = cells.start(key);
        loop {
            let cell = &cells.all[index & cells.mask];
            let found = cell.key.load(Ordering::Relaxed); // Relaxed: only the writer stores keys.
            if found == 0 || found == key {
                // Release twice: the value's memory before its pointer, the pointer before the key.
                cell.value.store(value, Ordering::Release);
                if found == 0 {
                    cell.key.store(key, Ordering::Release);
                    cells.used.fetch_add(1, Ordering::Relaxed); // Relaxed: read under the lock only.
                }
                return;
            }
            index += 1;
        }
    }

    /// Forgets everything; readers may still stand in what is returned, so it must be kept like an outgrown table.
    /// Serialised with `insert`.
    pub fn clear(&self) -> Retired<T> {
        let raw = self.current.swap(Box::into_raw(Cells::boxed(64)), Ordering::AcqRel);
        // SAFETY: made by `Box::into_raw`, now unreachable.
        Retired(unsafe { Box::from_raw(raw) })
    }
}

/// Cells that a reader may still be standing in; holds memory, nothing else.
pub struct Retired<T>(#[allow(dead_code)] Box<Cells<T>>);

impl<T> Drop for Table<T> {
    fn drop(&mut self) {
        // SAFETY: made by `Box::into_raw`; `&mut self` says that nobody reads.
        drop(unsafe { Box::from_raw(*self.current.get_mut()) });
    }
}
