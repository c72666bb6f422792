//! Lists and maps that are as long as what is stored: where there is no memory for them, a `MemoryError`, and not the
//! end of the process.

use std::collections::HashMap;
use std::hash::Hash;

use gabion_blocks::try_box;

use super::object::{Raise, Raised};
use crate::ffi;

/// Bytes to go on with where memory is short.
pub const LITTLE: usize = 4096;

/// Raises `MemoryError`.
#[cold]
#[inline(never)]
pub fn no_memory() -> Raised {
    // SAFETY: codec functions run attached.
    unsafe { ffi::PyErr_NoMemory() };
    Raised
}

/// Adds to a list.
///
/// # Errors
/// `MemoryError`; the list is as it was.
#[inline(always)]
pub fn push<T>(list: &mut Vec<T>, value: T) -> Raise<()> {
    if list.len() == list.capacity() {
        make(list, 1)?;
    }
    // SAFETY: room for one more, which is written before the length covers it.
    unsafe {
        list.as_mut_ptr().add(list.len()).write(value);
        list.set_len(list.len() + 1);
    }
    Ok(())
}

/// Makes room for `n` more, and for what may follow.
///
/// # Errors
/// `MemoryError`; the list is as it was.
#[cold]
#[inline(never)]
pub fn make<T>(list: &mut Vec<T>, n: usize) -> Raise<()> {
    if list.try_reserve(n).is_ok() {
        return Ok(());
    }
    // Of something large, twice as much may be more than there is. Less will do: first so much that it is not copied
    // again and again, then a little.
    let less = [list.len() / 16, LITTLE / size_of::<T>().max(1), 0];
    let made = less.iter().any(|&less| list.try_reserve_exact(n.max(less)).is_ok());
    if made { Ok(()) } else { Err(no_memory()) }
}

/// A list of what an iterator gives.
///
/// # Errors
/// `MemoryError`.
pub fn list<T>(items: impl Iterator<Item = T>) -> Raise<Vec<T>> {
    let mut list = Vec::new();
    list.try_reserve_exact(items.size_hint().0).map_err(|_| no_memory())?;
    for item in items {
        push(&mut list, item)?;
    }
    Ok(list)
}

/// Puts under a key.
///
/// # Errors
/// `MemoryError`; the map is as it was.
pub fn insert<K: Eq + Hash, V>(map: &mut HashMap<K, V>, key: K, value: V) -> Raise<()> {
    map.try_reserve(1).map_err(|_| no_memory())?;
    map.insert(key, value);
    Ok(())
}

/// A value in memory of its own.
///
/// # Errors
/// `MemoryError`; the value is dropped.
pub fn boxed<T>(value: T) -> Raise<Box<T>> {
    try_box(value).map_err(|_| no_memory())
}
