//! The calls on the system that this process runs on.

use super::disk::Disk;
use super::door::Os;
#[cfg(miri)]
use super::language;
use super::{fence, first, mapped, stack, unix};

/// In a child that was just forked: has `told` called when the thread that it began with ends, in this child and in its
/// own.
pub(crate) fn watch_first_thread(told: fn()) {
    first::watch(told);
}

/// Whether the thread that this process was forked with has ended. Threads of gabion's own end then, and none begins:
/// they would keep a process that has nothing else to do. False in a process that is no fork.
pub fn first_thread_has_ended() -> bool {
    first::has_ended()
}

/// Runs `begin`, which begins a thread of gabion's own, so that no signal ever reaches that thread but what its own
/// instructions raise. Otherwise it would take the signals of a program that blocks them, to ask for them by `sigwait`
/// or `signalfd`, and most of these would end the process.
pub fn out_of_signals_reach<R>(begin: impl FnOnce() -> R) -> R {
    unix::out_of_signals_reach(begin)
}

/// Runs `act`, which asks the system for something, such as a file of `/proc`, so that this thread cannot be ended in
/// the middle by `pthread_cancel`: the C library ends it in calls such as `read` by an unwinding that no code of Rust
/// may stop or be left by. A call that C makes on a file is so as a whole; what others may come to, at its place.
pub fn out_of_cancels_reach<R>(act: impl FnOnce() -> R) -> R {
    unix::out_of_cancels_reach(act)
}

/// Sleeps within a wait that nobody ends by a call, out of reach of cancels: for 50 microseconds the first time, and up
/// to a millisecond after many.
pub fn nap(before: u64) {
    let time = std::time::Duration::from_micros(50 * (before + 1).min(20));
    out_of_cancels_reach(|| std::thread::sleep(time));
}

/// Gives the system back what this thread's stack holds below the functions that run now: it stays resident otherwise,
/// after one call that went deep, as long as the thread lives. To be called after what goes deep, and took so long that
/// some microseconds do not matter. Nothing is done in the main thread, and where the system does not tell where the
/// stack ends.
pub fn give_back_stack() {
    stack::give_back();
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

/// As [`steady_time`], but as it was at the system's last tick, some milliseconds ago: several times cheaper, and it
/// does not make the processor wait for what it is at.
pub fn steady_time_roughly() -> std::time::Duration {
    unix::steady_time_roughly()
}

/// Bytes of memory and of swap that the machine has, asked without a file; `None` where the system does not tell.
pub(crate) fn machine_memory() -> Option<(u64, u64)> {
    if cfg!(miri) { None } else { unix::machine_memory() }
}

/// The least of what this process may map (`RLIMIT_AS`, `RLIMIT_DATA`), where that is limited, asked without a file.
pub(crate) fn own_limit() -> Option<u64> {
    if cfg!(miri) { None } else { unix::own_limit() }
}

/// The operating system that this process runs on.
pub fn system() -> &'static dyn Os {
    #[cfg(not(miri))]
    return &unix::Unix;
    #[cfg(miri)]
    &language::Language
}

/// The files of the operating system that this process runs on.
pub(crate) fn system_disk() -> &'static dyn Disk {
    &mapped::Mapped
}
