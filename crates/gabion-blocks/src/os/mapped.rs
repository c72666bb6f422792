//! Mapped files on the real system.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::ptr::NonNull;

use super::disk::Disk;
use super::unix::{map_aligned, out_of_cancels_reach};
use crate::BLOCK_BYTES;

/// Files of the system that this process runs on.
#[derive(Debug)]
pub(super) struct Mapped;

fn errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

/// What a call that returns 0, or -1 and an error number, came to.
fn checked(result: libc::c_int) -> Result<(), i32> {
    if result == 0 { Ok(()) } else { Err(errno()) }
}

fn offset(bytes: u64) -> Result<libc::off_t, i32> {
    libc::off_t::try_from(bytes).map_err(|_| libc::EFBIG)
}

/// Has the disk keep room for a part of a file, without which a store to a mapped page could end the process.
#[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
fn keep_room(file: &File, from: u64, bytes: u64) -> Result<(), i32> {
    let (from, bytes) = (offset(from)?, offset(bytes)?);
    loop {
        // SAFETY: an open file and numbers.
        match out_of_cancels_reach(|| unsafe { libc::posix_fallocate(file.as_raw_fd(), from, bytes) }) {
            0 => return Ok(()),
            libc::EINTR => {}
            errno => return Err(errno),
        }
    }
}

/// Other systems have no such call for all disks: zeros are written.
#[cfg(not(any(target_os = "linux", target_os = "android", target_os = "freebsd")))]
fn keep_room(file: &File, from: u64, bytes: u64) -> Result<(), i32> {
    let zeros = [0; 1 << 16];
    let each = (0..bytes).step_by(zeros.len());
    each.map(|at| file.write_all_at(&zeros[..zeros.len().min((bytes - at) as usize)], from + at))
        .collect::<io::Result<()>>()
        .map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))
}

/// Bytes that the disk of a file has free for this process, if the system tells.
fn free_room(file: &File) -> Option<u64> {
    // SAFETY: all zeros are a value of these numbers.
    let mut about: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: an open file, and room for the answer.
    let answer = unsafe { libc::fstatvfs(file.as_raw_fd(), &raw mut about) };
    #[allow(clippy::useless_conversion, reason = "other systems have other numbers there")]
    (answer == 0).then(|| u64::from(about.f_bavail).saturating_mul(u64::from(about.f_frsize)))
}

/// Bytes of a file that the disk has nothing for, if the system tells.
fn holes(file: &File, length: u64) -> Option<u64> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        // SAFETY: an open file and numbers. Nobody reads or writes at the file's position, which is moved.
        let seek = |at: u64, to| unsafe { libc::lseek(file.as_raw_fd(), offset(at).unwrap_or(0), to) };
        let (mut at, mut all) = (0, 0);
        while at < length {
            let hole = u64::try_from(seek(at, libc::SEEK_HOLE)).ok()?;
            // None behind the last data.
            at = u64::try_from(seek(hole, libc::SEEK_DATA)).map_or(length, |data| data.max(hole));
            all += at - hole.min(at);
        }
        Some(all)
    }
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    {
        let _ = (file, length);
        None
    }
}

/// Has a file's descriptor stand for what is at a path, which ends with a zero. If that cannot be opened, all is as it
/// was.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn put_in_place(path: &[u8], file: &File) {
    debug_assert!(path.contains(&0));
    // SAFETY: a path that ends with a zero; two open descriptors, of which the new one is closed, and nobody else has
    // it.
    unsafe {
        let opened = libc::open(path.as_ptr().cast(), libc::O_RDONLY | libc::O_CLOEXEC);
        if opened >= 0 {
            if libc::dup2(opened, file.as_raw_fd()) >= 0 {
                libc::fcntl(file.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC);
            }
            libc::close(opened);
        }
    }
}

// SAFETY: mmap without a wanted address takes one that nobody uses, and it stays taken until munmap. MAP_FIXED within
// it puts other pages there and touches nothing else.
unsafe impl Disk for Mapped {
    fn lock(&self, file: &File, alone: bool) -> Result<(), i32> {
        let kind = if alone { libc::LOCK_EX } else { libc::LOCK_SH };
        // SAFETY: an open file and numbers.
        checked(unsafe { libc::flock(file.as_raw_fd(), kind | libc::LOCK_NB) })
    }

    fn unlock(&self, file: &File) {
        // SAFETY: an open file and a number.
        unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_UN) };
    }

    fn reopen(&self, file: &File) {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        {
            // "/proc/self/fd/" and the number, without a call that takes memory.
            const PREFIX: usize = "/proc/self/fd/".len();
            let digits = |number: u32| number.checked_ilog10().unwrap_or(0) as usize + 1;
            let mut path = *b"/proc/self/fd/\0\0\0\0\0\0\0\0\0\0\0\0";
            let (mut number, mut at) =
                (file.as_raw_fd().unsigned_abs(), PREFIX + digits(file.as_raw_fd().unsigned_abs()));
            while at > PREFIX {
                at -= 1;
                path[at] = b'0' + (number % 10) as u8;
                number /= 10;
            }
            put_in_place(&path, file);
        }
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        let _ = file;
    }

    fn allocate(&self, file: &File, from: u64, bytes: u64, length: u64) -> Result<(), i32> {
        let now = file.metadata().map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))?.len();
        if now < length {
            // SAFETY: an open file and a number.
            checked(unsafe { libc::ftruncate(file.as_raw_fd(), offset(length)?) })?;
        }
        keep_room(file, from, bytes)
    }

    fn has_room(&self, file: &File, bytes: u64) -> bool {
        let Ok(about) = file.metadata() else { return true };
        // In units of 512 bytes, by definition. Disks that compress say less than they have kept.
        let missing = bytes.saturating_sub(about.blocks() * 512);
        match free_room(file) {
            Some(free) if missing > free => holes(file, about.len()).is_some_and(|holes| holes <= free),
            _ => true,
        }
    }

    fn cut(&self, file: &File, length: u64) {
        let _ = file.set_len(length);
    }

    fn write(&self, file: &File, bytes: &[u8], at: u64) -> Result<(), i32> {
        file.write_all_at(bytes, at).map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))
    }

    fn punch(&self, file: &File, from: u64, bytes: u64) -> bool {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        {
            let (Ok(from), Ok(bytes)) = (offset(from), offset(bytes)) else { return false };
            let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            // SAFETY: an open file and numbers.
            out_of_cancels_reach(|| unsafe { libc::fallocate(file.as_raw_fd(), mode, from, bytes) == 0 })
        }
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        {
            let _ = (file, from, bytes);
            false
        }
    }

    fn reserve(&self, bytes: usize) -> Result<NonNull<u8>, i32> {
        map_aligned(bytes, BLOCK_BYTES, libc::PROT_NONE)
    }

    unsafe fn map(&self, at: NonNull<u8>, bytes: usize, file: &File, from: u64, shared: bool) -> Result<(), i32> {
        // A private map takes memory for what is written there alone, however large the file is.
        let kind = if shared { libc::MAP_SHARED } else { libc::MAP_PRIVATE | libc::MAP_NORESERVE };
        let (access, from) = (libc::PROT_READ | libc::PROT_WRITE, offset(from)?);
        // SAFETY: within a reserved range (caller's duty).
        let got =
            unsafe { libc::mmap(at.as_ptr().cast(), bytes, access, kind | libc::MAP_FIXED, file.as_raw_fd(), from) };
        if got == libc::MAP_FAILED { Err(errno()) } else { Ok(()) }
    }

    unsafe fn blank(&self, at: NonNull<u8>, bytes: usize) -> Result<(), i32> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        // SAFETY: within a reserved range (caller's duty).
        let got = unsafe { libc::mmap(at.as_ptr().cast(), bytes, access, flags, -1, 0) };
        if got == libc::MAP_FAILED { Err(errno()) } else { Ok(()) }
    }

    unsafe fn sync(&self, at: NonNull<u8>, bytes: usize) -> Result<(), i32> {
        // SAFETY: a mapped range (caller's duty).
        checked(unsafe { libc::msync(at.as_ptr().cast(), bytes, libc::MS_SYNC) })
    }

    unsafe fn unmap(&self, at: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller owns the range and has given up all use of it.
        unsafe { libc::munmap(at.as_ptr().cast(), bytes) };
    }
}
