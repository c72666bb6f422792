//! What is asked of a system, whichever it is.

use std::fmt::Debug;
use std::ptr::NonNull;

/// What gabion asks of an operating system. Sizes are bytes and multiples of 4 KiB.
///
/// # Safety
/// An implementation promises that `map` returns fresh, zeroed, readable and writable memory of `bytes` bytes at a
/// multiple of `align`, shared with nobody, that stays so until `unmap` is called with it.
pub unsafe trait Os: Debug + Send + Sync {
    /// Maps zeroed memory. `align` is a power of two.
    ///
    /// # Errors
    /// The system's error number.
    fn map(&self, bytes: usize, align: usize) -> Result<NonNull<u8>, i32>;

    /// Gives a mapping back, addresses and all; or its end, and the rest is a mapping of its own from then on.
    ///
    /// # Safety
    /// `at` and `bytes` are those of one `map`, or the last pages of it, and nobody reads or writes the range any more.
    unsafe fn unmap(&self, at: NonNull<u8>, bytes: usize);

    /// Gives the physical memory back and keeps the addresses: the range reads as zero from then on.
    ///
    /// # Safety
    /// The range lies inside one live mapping, and is accessed by atomic operations only.
    unsafe fn decommit(&self, at: NonNull<u8>, bytes: usize);

    /// Makes the range's memory ready, as a first touch of each page would, in one step. A hint: nothing is promised.
    ///
    /// # Safety
    /// The range lies inside one live mapping.
    unsafe fn populate(&self, at: NonNull<u8>, bytes: usize);

    /// Asks for huge pages under the range. A hint: nothing is promised.
    ///
    /// # Safety
    /// The range lies inside one live mapping.
    unsafe fn advise_huge(&self, at: NonNull<u8>, bytes: usize);

    /// Asks for small pages under the range from now on, where the system would gather them onto huge ones of its own
    /// accord: that brings back what [`Os::decommit`] gave. Huge pages that are there stay. A hint: nothing is
    /// promised.
    ///
    /// # Safety
    /// The range lies inside one live mapping.
    unsafe fn advise_small(&self, at: NonNull<u8>, bytes: usize);

    /// Moves what lies in the range onto huge pages; contents stay, and may be used meanwhile. False when the system
    /// does not know how, or has no huge page for some of it.
    ///
    /// # Safety
    /// The range lies inside one live mapping.
    unsafe fn gather(&self, at: NonNull<u8>, bytes: usize) -> bool;

    /// Has the C library's malloc give back what it keeps of memory that was freed. Where that is not glibc's, nothing
    /// happens.
    fn trim_malloc(&self) {}
}
