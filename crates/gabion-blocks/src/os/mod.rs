//! The one door to the operating system.
//!
//! Everything that maps, advises or gives back memory goes through [`Os`]. [`system`] is the real one; the twin
//! (feature `twin`) stands in its place in tests and refuses at a chosen step.

mod fence;

mod first;

#[cfg(miri)]
mod language;

#[cfg_attr(miri, allow(dead_code, reason = "`language` stands for the system then"))]
mod stock;

#[cfg(feature = "twin")]
mod twin;

#[cfg_attr(miri, allow(dead_code, reason = "as above"))]
mod unix;

mod at_fork;

use std::ptr::NonNull;

pub use at_fork::AtFork;
#[cfg(feature = "twin")]
pub use twin::Twin;

/// What gabion asks of an operating system. Sizes are bytes and multiples of 4 KiB.
///
/// # Safety
/// An implementation promises that `map` returns fresh, zeroed, readable and writable memory of `bytes` bytes at a
/// multiple of `align`, shared with nobody, that stays so until `unmap` is called with it.
pub unsafe trait Os: Send + Sync {
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

    /// Asks for small pages under the range from now on, where the system would gather them onto huge ones of its own accord:
    /// that brings back what [`Os::decommit`] gave. Huge pages that are there stay. A hint: nothing is promised.
    ///
    /// # Safety
    /// The range lies inside one live mapping.
    unsafe fn advise_small(&self, at: NonNull<u8>, bytes: usize);

    /// Moves what lies in the range onto huge pages; contents stay, and may be used meanwhile. False when the system does
    /// not know how, or has no huge page for some of it.
    ///
    /// # Safety
    /// The range lies inside one live mapping.
    unsafe fn gather(&self, at: NonNull<u8>, bytes: usize) -> bool;

    /// Has the C library's malloc give back what it keeps of memory that was freed. Where that is not glibc's, nothing happens.
    fn trim_malloc(&self) {}
}

/// In a child that was just forked: has `told` called when the thread that it began with ends, in this child and in its own.
pub(crate) fn watch_first_thread(told: fn()) {
    first::watch(told);
}

/// Whether the thread that this process was forked with has ended. Threads of gabion's own end then, and none begins: they
/// would keep a process that has nothing else to do. False in a process that is no fork.
pub fn first_thread_has_ended() -> bool {
    first::has_ended()
}

/// Runs `begin`, which begins a thread of gabion's own, so that no signal ever reaches that thread but what its own
/// instructions raise. Otherwise it would take the signals of a program that blocks them, to ask for them by `sigwait`
/// or `signalfd`, and most of these would end the process.
pub fn out_of_signals_reach<R>(begin: impl FnOnce() -> R) -> R {
    unix::out_of_signals_reach(begin)
}

/// Whether [`heavy_fence`] works here. The first call finds out.
pub(crate) fn can_fence_heavily() -> bool {
    fence::can_fence_heavily()
}

/// Has every thread of this process pass a full fence, wherever it is. Some microseconds; the other side of
/// [`light_fence`].
///
/// Only to be called after [`can_fence_heavily`] said yes.
pub(crate) fn heavy_fence() {
    fence::heavy_fence();
}

/// A fence against the compiler only: together with another thread's [`heavy_fence`] as strong as a full fence in both.
#[inline]
pub(crate) fn light_fence() {
    std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
}

/// The processor time that this thread has used.
pub(crate) fn thread_time() -> std::time::Duration {
    unix::thread_time()
}

/// Time since some moment before the process began. It never goes back.
pub fn steady_time() -> std::time::Duration {
    unix::steady_time()
}

/// As [`steady_time`], but as it was at the system's last tick, some milliseconds ago: several times cheaper, and it does
/// not make the processor wait for what it is at.
pub fn steady_time_roughly() -> std::time::Duration {
    unix::steady_time_roughly()
}

/// The operating system that this process runs on.
pub fn system() -> &'static dyn Os {
    #[cfg(not(miri))]
    return &unix::Unix;
    #[cfg(miri)]
    &language::Language
}
