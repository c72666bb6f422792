//! Memory for gabion's own books that may be refused: what the standard library asks for without a choice ends the
//! process where `malloc` has nothing left.

use std::alloc::{Layout, alloc, alloc_zeroed};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32};

use crate::error::BlockError;

/// Makes room for `more` entries in a list of somebody's bookkeeping; a list that grows by itself ends the process
/// where there is no memory.
///
/// # Errors
/// [`BlockError::Refused`]; the list is as it was.
pub fn make_room<T>(list: &mut Vec<T>, more: usize) -> Result<(), BlockError> {
    list.try_reserve(more).map_err(|_| BlockError::out_of_memory(more.saturating_mul(size_of::<T>())))
}

/// Puts a value into a box; `Box::new` ends the process where there is no memory.
///
/// # Errors
/// [`BlockError::Refused`].
pub fn try_box<T>(value: T) -> Result<Box<T>, BlockError> {
    let mut room = try_room()?;
    room.write(value);
    // SAFETY: just written.
    Ok(unsafe { room.assume_init() })
}

/// A box for a value that is made where it is to stand: what is large would not fit on the smallest stacks on its way
/// there.
///
/// # Errors
/// [`BlockError::Refused`].
pub fn try_room<T>() -> Result<Box<MaybeUninit<T>>, BlockError> {
    const { assert!(size_of::<T>() > 0, "there is something to make room for") };
    let layout = Layout::new::<T>();
    // SAFETY: the layout has a size.
    let room = unsafe { alloc(layout) }.cast::<MaybeUninit<T>>();
    if room.is_null() {
        return Err(BlockError::out_of_memory(layout.size()));
    }
    // SAFETY: memory of the layout that a box of it gives back, and of which nothing needs to be written yet.
    Ok(unsafe { Box::from_raw(room) })
}

/// A box of a value whose bytes are 0, in memory that stays untouched until it is written to.
///
/// # Safety
/// Bytes of 0 are a value of the type.
///
/// # Errors
/// [`BlockError::Refused`].
pub(crate) unsafe fn zeroed_box<T>() -> Result<Box<T>, BlockError> {
    const { assert!(size_of::<T>() > 0, "there is something to make room for") };
    let layout = Layout::new::<T>();
    // SAFETY: the layout has a size. What is not null is memory of it, which a box gives back, and whole, because all
    // of its bytes are zero (duty of the caller).
    unsafe {
        let room = alloc_zeroed(layout).cast::<T>();
        if room.is_null() { Err(BlockError::out_of_memory(layout.size())) } else { Ok(Box::from_raw(room)) }
    }
}

/// That many counts of 0, for a long table of which little may ever be used: see `zeroes`.
///
/// # Errors
/// [`BlockError::Refused`] when there is no memory for them.
pub fn zero_counts(most: usize) -> Result<Box<[AtomicU32]>, BlockError> {
    // SAFETY: a count of 0 is all zero.
    unsafe { zeroes(most) }
}

/// A table of null pointers, in memory that stays untouched until one is set.
///
/// # Errors
/// As [`zero_counts`].
pub fn null_pointers<T>(most: usize) -> Result<Box<[AtomicPtr<T>]>, BlockError> {
    // SAFETY: a null pointer is all zero.
    unsafe { zeroes(most) }
}

/// That many values whose bytes are 0. Memory that the system gives reads as zero: what it gives for a long table is
/// touched where something is written, and nowhere else.
///
/// # Safety
/// Bytes of 0 are a value of the type.
///
/// # Errors
/// [`BlockError::Refused`] when there is no memory for them.
unsafe fn zeroes<T>(most: usize) -> Result<Box<[T]>, BlockError> {
    let refused =
        BlockError::Refused { asked: (most as u64).saturating_mul(size_of::<T>() as u64), errno: libc::ENOMEM };
    let layout = Layout::array::<T>(most).map_err(|_| refused)?;
    if layout.size() == 0 {
        return Ok(Box::default());
    }
    // SAFETY: the layout has a size. What is returned is null, or memory of that layout, which is what a box of so many
    // values gives back; each of them is whole, because all its bytes are zero (duty of the caller).
    unsafe {
        let memory = alloc_zeroed(layout).cast::<T>();
        if memory.is_null() {
            return Err(refused);
        }
        Ok(Box::from_raw(ptr::slice_from_raw_parts_mut(memory, most)))
    }
}
