//! What the system says of this process.

use std::fs;
use std::io;

/// Seconds of CPU time that all threads of this process have used, those that have ended included.
///
/// # Panics
/// On a system without that clock.
pub fn cpu_seconds() -> f64 {
    seconds_of(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// Seconds of CPU time that the calling thread has used.
///
/// # Panics
/// On a system without that clock.
pub fn cpu_seconds_of_thread() -> f64 {
    seconds_of(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn seconds_of(clock: libc::clockid_t) -> f64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a timespec of ours, which the call fills.
    let failed = unsafe { libc::clock_gettime(clock, &raw mut now) };
    assert_eq!(failed, 0, "the system has a clock of CPU time");
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// Resident memory in bytes, exact to the page, but a walk through all of the process's pages.
///
/// # Errors
/// Where the system has no `/proc/self/smaps_rollup`.
pub fn resident_bytes() -> io::Result<u64> {
    let text = fs::read_to_string("/proc/self/smaps_rollup")?;
    let kib = text.lines().find_map(|line| line.strip_prefix("Rss:")?.trim().strip_suffix("kB")?.trim().parse().ok());
    kib.map(|kib: u64| kib * 1024).ok_or_else(|| io::Error::other("/proc/self/smaps_rollup has no Rss line"))
}

/// Resident memory in bytes, cheap, behind the truth by some dozens of pages for each thread.
///
/// # Errors
/// Where the system has no `/proc/self/statm`.
pub fn resident_bytes_soon() -> io::Result<u64> {
    let text = fs::read_to_string("/proc/self/statm")?;
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    // SAFETY: the call has no precondition.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    pages.map(|pages| pages * page.unsigned_abs()).ok_or_else(|| io::Error::other("/proc/self/statm has other fields"))
}

/// Reads in what files the process has mapped, its code above all: so that resident memory does not grow by every
/// function that is called for the first time. Where the system cannot, nothing happens.
///
/// # Errors
/// Where the system has no `/proc/self/maps`.
pub fn read_in_code() -> io::Result<()> {
    for line in fs::read_to_string("/proc/self/maps")?.lines() {
        let mut fields = line.split_ascii_whitespace();
        let (Some(range), Some(rights), Some(file)) = (fields.next(), fields.next(), fields.nth(3)) else { continue };
        let Some((start, end)) = range.split_once('-') else { continue };
        let (Ok(start), Ok(end)) = (usize::from_str_radix(start, 16), usize::from_str_radix(end, 16)) else { continue };
        if file.starts_with('/') && rights.starts_with("r-") {
            let start: *mut libc::c_void = std::ptr::without_provenance_mut(start);
            // SAFETY: the call reads pages in and changes no content; a range that is gone by now is an error, no harm.
            unsafe { libc::madvise(start, end - start.addr(), libc::MADV_POPULATE_READ) };
        }
    }
    Ok(())
}
