//! The real system: Linux, and other Unixes as far as they go.

use std::io;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use super::door::Os;
use super::stock::Stock;
use crate::BLOCK_BYTES;

/// Anonymous private mappings, as Linux has them and other Unixes nearly do.
#[derive(Debug)]
pub(super) struct Unix;

static STOCK: Stock = Stock::new();

/// What may be done with memory.
const ACCESS: libc::c_int = libc::PROT_READ | libc::PROT_WRITE;

fn errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(libc::ENOMEM)
}

/// See [`super::AtFork`].
pub(super) fn at_fork(before: extern "C" fn(), in_parent: extern "C" fn(), in_child: extern "C" fn()) {
    // Miri knows no forks.
    #[cfg(miri)]
    let _ = (before, in_parent, in_child);
    #[cfg(not(miri))]
    // SAFETY: the functions live as long as the program. Without memory for the entry, forks are as they were.
    unsafe {
        libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child))
    };
}

/// A thread's signals, as they were; set so again when this is dropped.
struct Mask(libc::sigset_t);

impl Mask {
    /// Blocks this thread's signals but those that its own instructions raise.
    fn block() -> Self {
        // SAFETY: sets are plain bits, all of which the calls below write; they touch nothing else of ours.
        unsafe {
            let (mut most, mut before) = (std::mem::zeroed(), std::mem::zeroed());
            libc::sigfillset(&raw mut most);
            for own in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP] {
                libc::sigdelset(&raw mut most, own);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const most, &raw mut before);
            Self(before)
        }
    }
}

impl Drop for Mask {
    fn drop(&mut self) {
        // SAFETY: a set that the system gave.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut()) };
    }
}

/// See [`super::out_of_signals_reach`].
pub(super) fn out_of_signals_reach<R>(begin: impl FnOnce() -> R) -> R {
    // A thread inherits the mask of the one that begins it. The model of the language knows no signals.
    let _mask = cfg!(not(miri)).then(Mask::block);
    begin()
}

/// Whether a thread may be cancelled, as it was; so again when this is dropped.
struct Cancels(libc::c_int);

impl Cancels {
    /// `PTHREAD_CANCEL_DISABLE`, which the `libc` crate has not.
    const OFF: libc::c_int = if cfg!(target_vendor = "apple") { 0 } else { 1 };

    /// Has cancels of this thread wait.
    fn put_off() -> Self {
        Self(Self::set(Self::OFF))
    }

    /// Sets a thread's state, and returns what it was.
    #[cfg(all(any(target_os = "linux", target_vendor = "apple"), not(miri)))]
    fn set(state: libc::c_int) -> libc::c_int {
        unsafe extern "C" {
            fn pthread_setcancelstate(state: libc::c_int, before: *mut libc::c_int) -> libc::c_int;
        }
        let mut before = state;
        // SAFETY: writes one number, which is ours. In the mode that threads begin in, no state ends one at once.
        unsafe { pthread_setcancelstate(state, &raw mut before) };
        before
    }

    /// The model of the language knows no cancels, and other systems have numbers of their own.
    #[cfg(not(all(any(target_os = "linux", target_vendor = "apple"), not(miri))))]
    fn set(state: libc::c_int) -> libc::c_int {
        state
    }
}

impl Drop for Cancels {
    fn drop(&mut self) {
        Self::set(self.0);
    }
}

/// See [`super::out_of_cancels_reach`].
pub(super) fn out_of_cancels_reach<R>(act: impl FnOnce() -> R) -> R {
    let _cancels = Cancels::put_off();
    act()
}

/// Bytes of memory and of swap that the machine has, asked without a file: there may be none, and no descriptor.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn machine_memory() -> Option<(u64, u64)> {
    // SAFETY: all zeros are a value of these numbers.
    let mut about: libc::sysinfo = unsafe { std::mem::zeroed() };
    // SAFETY: room for the answer.
    let answer = unsafe { libc::sysinfo(&raw mut about) };
    let bytes = |units| u64::from(about.mem_unit).saturating_mul(units);
    #[allow(clippy::unnecessary_cast, reason = "other processors have other numbers there")]
    (answer == 0).then(|| (bytes(about.totalram as u64), bytes(about.totalswap as u64)))
}

/// As above; swap is not told.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) fn machine_memory() -> Option<(u64, u64)> {
    // SAFETY: a question about a number.
    let pages = unsafe { libc::sysconf(libc::_SC_PHYS_PAGES) };
    u64::try_from(pages).ok().map(|pages| (pages.saturating_mul(kernel_page() as u64), 0))
}

/// The least of what this process may map, where that is limited, asked without a file.
#[allow(clippy::unnecessary_cast, reason = "other systems have other numbers there")]
pub(super) fn own_limit() -> Option<u64> {
    let of = |which| {
        let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: room for the answer.
        let answer = unsafe { libc::getrlimit(which, &raw mut limit) };
        (answer == 0 && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur as u64)
    };
    of(libc::RLIMIT_AS).into_iter().chain(of(libc::RLIMIT_DATA)).min()
}

fn read(clock: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one `timespec`, which is ours.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// See [`super::thread_time`].
pub(super) fn thread_time() -> Duration {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// See [`super::steady_time`].
pub(super) fn steady_time() -> Duration {
    read(libc::CLOCK_MONOTONIC)
}

/// See [`super::steady_time_roughly`].
pub(super) fn steady_time_roughly() -> Duration {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    return read(libc::CLOCK_MONOTONIC_COARSE);
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    steady_time()
}

/// Unmaps a range that is known to be mapped; a failure would mean a broken invariant, so it is checked in debug
/// builds.
///
/// # Safety
/// Nobody uses the range any more, and it belongs to the caller.
unsafe fn unmap_range(at: *mut u8, bytes: usize) {
    if bytes > 0 {
        // SAFETY: the caller owns the range and has given up all use of it.
        if unsafe { libc::munmap(at.cast(), bytes) } != 0 {
            // The system bounds how many mappings a process has (`vm.max_map_count`), and this would have cut one in
            // two. The addresses are lost then, but the memory can be given back.
            debug_assert_eq!(io::Error::last_os_error().raw_os_error(), Some(libc::ENOMEM));
            // SAFETY: as above.
            unsafe { libc::madvise(at.cast(), bytes, libc::MADV_DONTNEED) };
        }
    }
}

/// What the kernel gives and takes memory in: 4 KiB on most processors, up to 64 on some.
fn kernel_page() -> usize {
    static BYTES: AtomicUsize = AtomicUsize::new(0);
    // Relaxed: the number is the whole message, and always the same.
    match BYTES.load(Ordering::Relaxed) {
        0 => {
            // SAFETY: a plain question.
            let bytes = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(usize::MAX);
            BYTES.store(bytes, Ordering::Relaxed);
            bytes
        }
        bytes => bytes,
    }
}

/// Maps zeroed memory at a multiple of `align`: more than asked for, of which both ends are cut off. `access` is what
/// may be done with it (`PROT_…`).
pub(super) fn map_aligned(bytes: usize, align: usize, access: libc::c_int) -> Result<NonNull<u8>, i32> {
    let span = bytes.checked_add(align).ok_or(libc::ENOMEM)?;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: an anonymous mapping at an address of the kernel's choice touches nothing that exists.
    let start = unsafe { libc::mmap(ptr::null_mut(), span, access, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return Err(errno());
    }
    let start = start.cast::<u8>();
    let lead = start.align_offset(align);
    let at = start.wrapping_add(lead);
    // SAFETY: both cuts lie inside the mapping just made, outside the part that is returned, and are unused.
    unsafe {
        unmap_range(start, lead);
        unmap_range(at.wrapping_add(bytes), span - lead - bytes);
    }
    NonNull::new(at).ok_or(libc::ENOMEM)
}

// SAFETY: mmap with MAP_ANONYMOUS returns zeroed private memory that stays mapped until munmap, which may be called for
// any part of it: so a part of a batch of blocks is as good as a mapping of its own. The stock gives each block to one
// caller.
unsafe impl Os for Unix {
    fn map(&self, bytes: usize, align: usize) -> Result<NonNull<u8>, i32> {
        debug_assert!(align.is_power_of_two());
        if (bytes, align) != (BLOCK_BYTES, BLOCK_BYTES) {
            return map_aligned(bytes, align, ACCESS);
        }
        let unmap = |rest: NonNull<u8>, blocks: usize| {
            // SAFETY: the last blocks of a batch that was mapped just now and shown to nobody.
            unsafe { unmap_range(rest.as_ptr(), blocks * BLOCK_BYTES) };
        };
        STOCK.take(|blocks| map_aligned(blocks * BLOCK_BYTES, BLOCK_BYTES, ACCESS), unmap)
    }

    unsafe fn unmap(&self, at: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller's duty is the same.
        unsafe { unmap_range(at.as_ptr(), bytes) }
    }

    unsafe fn decommit(&self, at: NonNull<u8>, bytes: usize) {
        // Where the kernel's pages are larger than what is given, it would take the neighbours along.
        let whole = (at.addr().get() | bytes).is_multiple_of(kernel_page());
        // SAFETY: the range is mapped (caller's duty); for anonymous private memory Linux reads zero pages at the next
        // touch, which atomic readers may see at any time.
        let advise = || unsafe { libc::madvise(at.as_ptr().cast(), bytes, libc::MADV_DONTNEED) == 0 };
        let done = cfg!(target_os = "linux") && whole && advise();
        if !done {
            // Locked memory is refused, and other systems promise less: the memory stays, but reads as zero.
            #[expect(clippy::cast_ptr_alignment, reason = "the range is aligned to pages")]
            // SAFETY: mapped, aligned to pages, and accessed by atomic operations only (caller's duty).
            let words = unsafe { std::slice::from_raw_parts(at.as_ptr().cast::<AtomicU64>(), bytes / 8) };
            for word in words {
                word.store(0, Ordering::Relaxed);
            }
        }
    }

    unsafe fn populate(&self, at: NonNull<u8>, bytes: usize) {
        #[cfg(target_os = "linux")]
        // SAFETY: the range is mapped (caller's duty); contents stay as they are. Older kernels refuse, to no harm.
        unsafe {
            libc::madvise(at.as_ptr().cast(), bytes, libc::MADV_POPULATE_WRITE)
        };
        #[cfg(not(target_os = "linux"))]
        let _ = (at, bytes);
    }

    unsafe fn advise_huge(&self, at: NonNull<u8>, bytes: usize) {
        #[cfg(target_os = "linux")]
        // SAFETY: the range is mapped (caller's duty); the advice changes no content. A refusal is of no consequence.
        unsafe {
            libc::madvise(at.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE)
        };
        #[cfg(not(target_os = "linux"))]
        let _ = (at, bytes);
    }

    unsafe fn advise_small(&self, at: NonNull<u8>, bytes: usize) {
        #[cfg(target_os = "linux")]
        // SAFETY: as above.
        unsafe {
            libc::madvise(at.as_ptr().cast(), bytes, libc::MADV_NOHUGEPAGE)
        };
        #[cfg(not(target_os = "linux"))]
        let _ = (at, bytes);
    }

    #[cfg(target_os = "linux")]
    unsafe fn gather(&self, at: NonNull<u8>, bytes: usize) -> bool {
        /// As in `linux/mman.h`: with musl, the crate of the C library does not name it.
        const MADV_COLLAPSE: libc::c_int = 25;
        // SAFETY: the range is mapped (caller's duty); contents stay as they are. Kernels before 6.1 refuse, to no
        // harm.
        unsafe { libc::madvise(at.as_ptr().cast(), bytes, MADV_COLLAPSE) == 0 }
    }

    #[cfg(not(target_os = "linux"))]
    unsafe fn gather(&self, _: NonNull<u8>, _: usize) -> bool {
        false
    }

    #[cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]
    fn trim_malloc(&self) {
        // SAFETY: may be called at any time, from any thread; takes the lock of each of malloc's heaps in turn.
        unsafe { libc::malloc_trim(0) };
    }
}

#[cfg(test)]
#[expect(clippy::cast_ptr_alignment, reason = "mapped memory is aligned to pages")]
mod tests {
    use super::*;

    #[test]
    fn locked_memory_reads_as_zero_too() {
        let bytes = 16 << 10;
        let at = Unix.map(bytes, 1 << 16).unwrap();
        // SAFETY: fresh memory of that size, ours alone until it is unmapped.
        let (locked, words) = unsafe {
            let locked = libc::mlock(at.as_ptr().cast(), bytes) == 0;
            (locked, std::slice::from_raw_parts(at.as_ptr().cast::<AtomicU64>(), bytes / 8))
        };
        words[777].store(1, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { Unix.decommit(at, bytes) };
        assert_eq!(words[777].load(Ordering::Relaxed), 0, "locked: {locked}");
        // SAFETY: the range of the map; the words are not used again.
        unsafe { Unix.unmap(at, bytes) };
    }
}
