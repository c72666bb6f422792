//! The twin of the door to files.

use std::fmt;
use std::fs::File;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::calls::system_disk;
use super::disk::Disk;

/// The twin of the door to files, for tests: refuses the *n*-th call that may fail, and all after it, as a full disk
/// does. It counts what it reserved and gave back.
#[derive(Debug)]
pub struct TwinDisk {
    /// Calls that still go through, if there is an end of them.
    left: AtomicI64,
    refuses: AtomicU64,
    room: AtomicU64,
    reserved: AtomicU64,
    before_lock: Before,
}

/// What another does at that moment.
#[derive(Default)]
struct Before(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl fmt::Debug for Before {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Before")
    }
}

impl Default for TwinDisk {
    fn default() -> Self {
        Self::new()
    }
}

impl TwinDisk {
    /// A twin that refuses nothing yet.
    pub fn new() -> Self {
        Self {
            left: AtomicI64::new(0),
            refuses: AtomicU64::new(0),
            room: AtomicU64::new(u64::MAX),
            reserved: AtomicU64::new(0),
            before_lock: Before::default(),
        }
    }

    /// Says that there is room for files of so many bytes that are used.
    pub fn say_room(&self, bytes: u64) {
        self.room.store(bytes, Ordering::SeqCst);
    }

    /// Lets `steps` more calls through, then refuses with this error number.
    pub fn refuse_after(&self, steps: i64, errno: i32) {
        self.left.store(steps, Ordering::SeqCst);
        self.refuses.store(u64::from(errno.unsigned_abs()), Ordering::SeqCst);
    }

    /// Refuses nothing any more.
    pub fn allow(&self) {
        self.refuses.store(0, Ordering::SeqCst);
    }

    /// Has something done once, between the next opening of a file and its lock.
    pub fn before_lock(&self, act: impl FnOnce() + Send + 'static) {
        *self.before_lock.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(act));
    }

    /// Bytes of addresses that are reserved at this moment.
    pub fn reserved(&self) -> u64 {
        self.reserved.load(Ordering::SeqCst)
    }

    fn step(&self) -> Result<(), i32> {
        let errno = self.refuses.load(Ordering::SeqCst) as i32;
        if errno != 0 && self.left.fetch_sub(1, Ordering::SeqCst) <= 0 { Err(errno) } else { Ok(()) }
    }
}

// SAFETY: every promise is kept by the real system, to which each call is passed on or refused.
unsafe impl Disk for TwinDisk {
    fn lock(&self, file: &File, alone: bool) -> Result<(), i32> {
        self.step()?;
        let act = self.before_lock.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(act) = act {
            act();
        }
        system_disk().lock(file, alone)
    }

    fn unlock(&self, file: &File) {
        system_disk().unlock(file);
    }

    fn reopen(&self, file: &File) {
        system_disk().reopen(file);
    }

    fn allocate(&self, file: &File, from: u64, bytes: u64, length: u64) -> Result<(), i32> {
        self.step()?;
        system_disk().allocate(file, from, bytes, length)
    }

    fn has_room(&self, file: &File, bytes: u64) -> bool {
        bytes <= self.room.load(Ordering::SeqCst) && system_disk().has_room(file, bytes)
    }

    fn cut(&self, file: &File, length: u64) {
        system_disk().cut(file, length);
    }

    fn write(&self, file: &File, bytes: &[u8], at: u64) -> Result<(), i32> {
        self.step()?;
        system_disk().write(file, bytes, at)
    }

    fn punch(&self, file: &File, from: u64, bytes: u64) -> bool {
        self.step().is_ok() && system_disk().punch(file, from, bytes)
    }

    fn reserve(&self, bytes: usize) -> Result<NonNull<u8>, i32> {
        self.step()?;
        let at = system_disk().reserve(bytes)?;
        self.reserved.fetch_add(bytes as u64, Ordering::SeqCst);
        Ok(at)
    }

    unsafe fn map(&self, at: NonNull<u8>, bytes: usize, file: &File, from: u64, shared: bool) -> Result<(), i32> {
        self.step()?;
        // SAFETY: the caller's duty, passed on.
        unsafe { system_disk().map(at, bytes, file, from, shared) }
    }

    unsafe fn blank(&self, at: NonNull<u8>, bytes: usize) -> Result<(), i32> {
        self.step()?;
        // SAFETY: the caller's duty, passed on.
        unsafe { system_disk().blank(at, bytes) }
    }

    unsafe fn sync(&self, at: NonNull<u8>, bytes: usize) -> Result<(), i32> {
        self.step()?;
        // SAFETY: the caller's duty, passed on.
        unsafe { system_disk().sync(at, bytes) }
    }

    unsafe fn unmap(&self, at: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller's duty, passed on.
        unsafe { system_disk().unmap(at, bytes) };
        self.reserved.fetch_sub(bytes as u64, Ordering::SeqCst);
    }
}
