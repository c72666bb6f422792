use std::ptr::NonNull;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use super::{Os, system};

/// The door's twin for tests: counts what is mapped and refuses the *n*-th `map` and all after it.
///
/// ```
/// use gabion_blocks::os::{Os, Twin};
/// let twin = Twin::new();
/// twin.refuse_after(1);
/// assert!(twin.map(4096, 4096).is_ok());
/// assert!(twin.map(4096, 4096).is_err());
/// ```
#[derive(Debug)]
pub struct Twin {
    left: AtomicI64,
    mapped: AtomicU64,
    decommitted: AtomicU64,
}

impl Twin {
    /// A twin that refuses nothing yet.
    pub fn new() -> Self {
        Self { left: AtomicI64::new(i64::MAX), mapped: AtomicU64::new(0), decommitted: AtomicU64::new(0) }
    }

    /// Lets `steps` more mappings through, then refuses.
    pub fn refuse_after(&self, steps: i64) {
        self.left.store(steps, Ordering::SeqCst);
    }

    /// Bytes mapped at this moment.
    pub fn mapped(&self) -> u64 {
        self.mapped.load(Ordering::SeqCst)
    }

    /// Bytes given back so far with their addresses kept.
    pub fn decommitted(&self) -> u64 {
        self.decommitted.load(Ordering::SeqCst)
    }
}

impl Default for Twin {
    fn default() -> Self {
        Self::new()
    }
}

// SAFETY: every promise is kept by the real system, to which each call is passed on or refused.
unsafe impl Os for Twin {
    fn map(&self, bytes: usize, align: usize) -> Result<NonNull<u8>, i32> {
        if self.left.fetch_sub(1, Ordering::SeqCst) <= 0 {
            return Err(libc::ENOMEM);
        }
        let at = system().map(bytes, align)?;
        self.mapped.fetch_add(bytes as u64, Ordering::SeqCst);
        Ok(at)
    }

    unsafe fn unmap(&self, at: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller's duty, passed on.
        unsafe { system().unmap(at, bytes) };
        self.mapped.fetch_sub(bytes as u64, Ordering::SeqCst);
    }

    unsafe fn decommit(&self, at: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller's duty, passed on.
        unsafe { system().decommit(at, bytes) };
        self.decommitted.fetch_add(bytes as u64, Ordering::SeqCst);
    }

    unsafe fn populate(&self, at: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller's duty, passed on.
        unsafe { system().populate(at, bytes) };
    }

    unsafe fn advise_huge(&self, at: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller's duty, passed on.
        unsafe { system().advise_huge(at, bytes) };
    }
}
