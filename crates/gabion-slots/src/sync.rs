//! Locks and atomics of what the model checker tries: its tests bring their own in place of these.

use std::alloc::{Layout, alloc_zeroed};
use std::ptr;
use std::sync::{PoisonError, TryLockError};

pub(crate) use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};
pub(crate) use std::sync::{Mutex, MutexGuard};

use gabion_blocks::BlockError;

/// Takes a lock. What the locks of this crate guard is whole at every instant, so a panic elsewhere is no reason to
/// stop.
#[inline]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes a lock, if nobody holds it.
pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Null pointers, in memory that stays untouched until one is set.
///
/// # Errors
/// That there is no memory for so many.
pub(crate) fn null_pointers<T>(count: usize) -> Result<Box<[AtomicPtr<T>]>, BlockError> {
    let Ok(layout) = Layout::array::<AtomicPtr<T>>(count) else { return Ok(Box::default()) };
    if layout.size() == 0 {
        return Ok(Box::default());
    }
    // SAFETY: the layout is not empty.
    let table = unsafe { alloc_zeroed(layout) };
    if table.is_null() {
        return Err(BlockError::Refused { asked: layout.size() as u64, errno: libc::ENOMEM });
    }
    // SAFETY: fresh memory of the slice's layout, and zeros are null pointers.
    Ok(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(table.cast(), count)) })
}
