//! What is asked of a system for files that are mapped.

use std::fmt::Debug;
use std::fs::File;
use std::ptr::NonNull;

/// What a mapped file needs of the system. Sizes and offsets are bytes, multiples of 64 KiB: whole pages of every
/// kernel.
///
/// # Safety
/// An implementation promises that `reserve` returns a range of addresses that nobody else uses until `unmap` is called
/// with it, and that the other calls change what lies in the given range, and nothing else.
pub unsafe trait Disk: Debug + Send + Sync {
    /// Locks a file against other openings of it, in this process and in others: `alone` against all, otherwise against
    /// those that want it alone. Does not wait.
    ///
    /// # Errors
    /// The system's error number; `EWOULDBLOCK` when the file is locked.
    fn lock(&self, file: &File, alone: bool) -> Result<(), i32>;

    /// Lets the lock of a file go, for all who share this opening of it.
    fn unlock(&self, file: &File);

    /// In a forked child: has the descriptor stand for another opening of the same file, to read, which the parent's
    /// lock does not belong to. Where a system cannot do that, the child keeps the lock as long as it has the file.
    /// Calls nothing that may wait for another thread.
    fn reopen(&self, file: &File);

    /// Makes the file `length` bytes long, if it is shorter, and has the disk keep room for `bytes` bytes from `from`
    /// on.
    ///
    /// # Errors
    /// The system's error number: `ENOSPC` when the disk is full.
    fn allocate(&self, file: &File, from: u64, bytes: u64, length: u64) -> Result<(), i32>;

    /// Whether the disk can keep room for so many bytes of the file in all. A guess that is right about what is far
    /// from there; true where the system does not tell.
    fn has_room(&self, _file: &File, _bytes: u64) -> bool {
        true
    }

    /// Makes the file so long again, after it was to become longer and could not. What went wrong there is not told.
    fn cut(&self, file: &File, length: u64);

    /// Writes bytes to the file from `at` on, which is not mapped.
    ///
    /// # Errors
    /// The system's error number; some of the bytes may be written.
    fn write(&self, file: &File, bytes: &[u8], at: u64) -> Result<(), i32>;

    /// Gives room of the file back to the disk: the range reads as zero from then on. False when the disk does not know
    /// how, and nothing is changed then.
    fn punch(&self, file: &File, from: u64, bytes: u64) -> bool;

    /// A range of addresses at a multiple of a block, which nothing may be read from or written to yet.
    ///
    /// # Errors
    /// The system's error number.
    fn reserve(&self, bytes: usize) -> Result<NonNull<u8>, i32>;

    /// Has a part of a reserved range show the bytes of a file from `from` on. `shared`: what is written there goes to
    /// the file, and to all who map it; otherwise it stays this process's own.
    ///
    /// # Errors
    /// The system's error number; the range is as it was.
    ///
    /// # Safety
    /// The range lies inside one reserved range, and what was there is accessed by atomic operations only.
    unsafe fn map(&self, at: NonNull<u8>, bytes: usize, file: &File, from: u64, shared: bool) -> Result<(), i32>;

    /// Has a part of a reserved range show zeros, which stay this process's own.
    ///
    /// # Errors
    /// The system's error number; the range is as it was.
    ///
    /// # Safety
    /// As [`Disk::map`].
    unsafe fn blank(&self, at: NonNull<u8>, bytes: usize) -> Result<(), i32>;

    /// Waits until what was written to a mapped range is on the disk.
    ///
    /// # Errors
    /// The system's error number.
    ///
    /// # Safety
    /// The range was mapped by [`Disk::map`].
    unsafe fn sync(&self, at: NonNull<u8>, bytes: usize) -> Result<(), i32>;

    /// Gives a reserved range back, with all that is mapped there.
    ///
    /// # Safety
    /// The range is that of one [`Disk::reserve`], and nobody uses it any more.
    unsafe fn unmap(&self, at: NonNull<u8>, bytes: usize);
}
