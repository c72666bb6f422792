//! The door's twin for tests.

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use super::calls::system;
use super::door::Os;
use crate::sync::{Mutex, lock};

/// The door's twin for tests: knows what is mapped, and refuses the *n*-th `map` and all after it, or some of them.
///
/// It panics when something is unmapped, decommitted or advised that is not mapped.
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
    /// How many refusals follow when `left` is used up.
    refusals: AtomicI64,
    mapped: AtomicU64,
    decommitted: AtomicU64,
    populated: AtomicU64,
    gathered: AtomicU64,
    advised_huge: AtomicU64,
    advised_small: AtomicU64,
    malloc_trims: AtomicU64,
    peak: AtomicU64,
    maps: AtomicU64,
    ranges: Mutex<BTreeMap<usize, usize>>,
}

impl Twin {
    /// A twin that refuses nothing yet.
    pub fn new() -> Self {
        Self {
            left: AtomicI64::new(i64::MAX),
            refusals: AtomicI64::new(i64::MAX),
            mapped: AtomicU64::new(0),
            decommitted: AtomicU64::new(0),
            populated: AtomicU64::new(0),
            gathered: AtomicU64::new(0),
            advised_huge: AtomicU64::new(0),
            advised_small: AtomicU64::new(0),
            malloc_trims: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            maps: AtomicU64::new(0),
            ranges: Mutex::new(BTreeMap::new()),
        }
    }

    /// Lets `steps` more mappings through, then refuses.
    pub fn refuse_after(&self, steps: i64) {
        self.refuse_some_after(steps, i64::MAX);
    }

    /// Lets `steps` more mappings through, refuses the `count` after them, and then refuses nothing.
    pub fn refuse_some_after(&self, steps: i64, count: i64) {
        self.refusals.store(count, Ordering::SeqCst);
        self.left.store(steps, Ordering::SeqCst);
    }

    /// The most bytes that were mapped at one time.
    pub fn peak(&self) -> u64 {
        self.peak.load(Ordering::SeqCst)
    }

    /// How many mappings were made.
    pub fn maps(&self) -> u64 {
        self.maps.load(Ordering::SeqCst)
    }

    /// Panics unless the range lies in one mapping.
    fn check(&self, at: NonNull<u8>, bytes: usize) {
        let (start, ranges) = (at.addr().get(), lock(&self.ranges));
        let inside = ranges.range(..=start).next_back().is_some_and(|(base, size)| start + bytes <= base + size);
        assert!(inside, "{bytes} bytes at {at:?} are not mapped");
    }

    /// Bytes mapped at this moment.
    pub fn mapped(&self) -> u64 {
        self.mapped.load(Ordering::SeqCst)
    }

    /// Bytes given back so far with their addresses kept.
    pub fn decommitted(&self) -> u64 {
        self.decommitted.load(Ordering::SeqCst)
    }

    /// Bytes that were made ready before they were touched so far.
    pub fn populated(&self) -> u64 {
        self.populated.load(Ordering::SeqCst)
    }

    /// Bytes that were to be gathered onto huge pages so far, whether they could be or not.
    pub fn gathered(&self) -> u64 {
        self.gathered.load(Ordering::SeqCst)
    }

    /// Bytes that were advised to have huge pages so far.
    pub fn advised_huge(&self) -> u64 {
        self.advised_huge.load(Ordering::SeqCst)
    }

    /// Bytes that were advised to keep to small pages so far.
    pub fn advised_small(&self) -> u64 {
        self.advised_small.load(Ordering::SeqCst)
    }

    /// How often malloc was to give back what it keeps.
    pub fn malloc_trims(&self) -> u64 {
        self.malloc_trims.load(Ordering::SeqCst)
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
        if self.left.fetch_sub(1, Ordering::SeqCst) <= 0 && self.refusals.fetch_sub(1, Ordering::SeqCst) > 0 {
            return Err(libc::ENOMEM);
        }
        let at = system().map(bytes, align)?;
        lock(&self.ranges).insert(at.addr().get(), bytes);
        let mapped = self.mapped.fetch_add(bytes as u64, Ordering::SeqCst) + bytes as u64;
        self.peak.fetch_max(mapped, Ordering::SeqCst);
        self.maps.fetch_add(1, Ordering::SeqCst);
        Ok(at)
    }

    unsafe fn unmap(&self, at: NonNull<u8>, bytes: usize) {
        let start = at.addr().get();
        {
            let mut ranges = lock(&self.ranges);
            let found = ranges.range(..=start).next_back().map(|(base, size)| (*base, *size));
            let (base, size) = found.filter(|(base, size)| base + size == start + bytes).expect("the end of a mapping");
            if base == start {
                ranges.remove(&base);
            } else {
                ranges.insert(base, size - bytes);
            }
        }
        // SAFETY: the caller's duty, passed on.
        unsafe { system().unmap(at, bytes) };
        self.mapped.fetch_sub(bytes as u64, Ordering::SeqCst);
    }

    unsafe fn decommit(&self, at: NonNull<u8>, bytes: usize) {
        self.check(at, bytes);
        // SAFETY: the caller's duty, passed on.
        unsafe { system().decommit(at, bytes) };
        self.decommitted.fetch_add(bytes as u64, Ordering::SeqCst);
    }

    unsafe fn populate(&self, at: NonNull<u8>, bytes: usize) {
        self.check(at, bytes);
        // SAFETY: the caller's duty, passed on.
        unsafe { system().populate(at, bytes) };
        self.populated.fetch_add(bytes as u64, Ordering::SeqCst);
    }

    unsafe fn advise_huge(&self, at: NonNull<u8>, bytes: usize) {
        self.check(at, bytes);
        self.advised_huge.fetch_add(bytes as u64, Ordering::SeqCst);
        // SAFETY: the caller's duty, passed on.
        unsafe { system().advise_huge(at, bytes) };
    }

    unsafe fn advise_small(&self, at: NonNull<u8>, bytes: usize) {
        self.check(at, bytes);
        self.advised_small.fetch_add(bytes as u64, Ordering::SeqCst);
        // SAFETY: the caller's duty, passed on.
        unsafe { system().advise_small(at, bytes) };
    }

    unsafe fn gather(&self, at: NonNull<u8>, bytes: usize) -> bool {
        self.check(at, bytes);
        self.gathered.fetch_add(bytes as u64, Ordering::SeqCst);
        // SAFETY: the caller's duty, passed on.
        unsafe { system().gather(at, bytes) }
    }

    fn trim_malloc(&self) {
        self.malloc_trims.fetch_add(1, Ordering::SeqCst);
        system().trim_malloc();
    }
}
