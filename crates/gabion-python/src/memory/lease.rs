//! Rented memory, a buffer or a group: who uses it, and when it goes back.
//!
//! The state is one word: `RELEASED | exports`. An *export* is a consumer that says when it is done: a buffer
//! view, a DLPack tensor, an Arrow array. Equations:
//! - memory is present  ⇔  not RELEASED, or exports > 0;
//! - RELEASED is set once; it is never cleared, and no export begins after it. Once it is set, `exports` becomes 0
//!   once;
//! - the memory goes back exactly once: by the release, by the end of the last export after it, or with the last holder
//!   of the lease.

use std::cell::UnsafeCell;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering, fence};

use gabion_blocks::pool;

use super::{seen, tracking};

/// The memory was released by hand: nothing may be exported any more.
const RELEASED: usize = 1 << (usize::BITS - 1);
const EXPORTS: usize = RELEASED - 1;

/// Why a lease does not do what it was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// It was released before.
    Released,
    /// That many exports are alive.
    Exported(usize),
}

/// Bytes of rented memory.
#[derive(Clone, Copy)]
pub(crate) struct MemoryRange {
    pub start: NonNull<u8>,
    pub length: usize,
}

impl MemoryRange {
    /// The bytes of a pool's buffer.
    pub(super) fn of(memory: &pool::Buffer) -> Self {
        Self { start: memory.as_non_null(), length: memory.len() }
    }

    /// Copies the bytes.
    ///
    /// # Safety
    /// The place is alive, and there is room for its length at `to`, which is other memory.
    pub(super) unsafe fn copy_to(&self, to: *mut u8) {
        // SAFETY: as the caller promised.
        unsafe { self.start.as_ptr().copy_to_nonoverlapping(to, self.length) };
    }
}

// SAFETY: a place is an address and a length, without any right to use them; those who use them hold a lease, or a
// picture.
unsafe impl Send for MemoryRange {}
// SAFETY: as above; it is never changed.
unsafe impl Sync for MemoryRange {}

/// What is rented.
pub(super) enum Memory {
    Buffer(pool::Buffer),
    Group(#[expect(dead_code, reason = "held to be dropped; its bytes are reached by their places")] pool::Group),
}

/// Rented memory, shared by the Python object and every export.
pub(super) struct Lease {
    state: AtomicUsize,
    /// Taken out by the one that finds RELEASED without exports first, or dropped with the lease.
    memory: UnsafeCell<Option<Memory>>,
    /// The record of where it was rented, if there is one.
    record: Option<tracking::Record>,
    /// What tracemalloc knows of it, if it does.
    traced: Option<seen::Traced>,
}

// SAFETY: pool memory may be dropped on any thread (`pool::Buffer` and `pool::Group` are Send and Sync), and the cell
// is written only by the one thread that brings about RELEASED without exports, which happens once, and by drop, which
// has no company.
unsafe impl Send for Lease {}
// SAFETY: as above.
unsafe impl Sync for Lease {}

impl Lease {
    pub(super) fn new(memory: Memory, record: Option<tracking::Record>, traced: Option<seen::Traced>) -> Arc<Self> {
        Arc::new(Self { state: AtomicUsize::new(0), memory: UnsafeCell::new(Some(memory)), record, traced })
    }

    /// True after a release by hand.
    pub(super) fn is_released(&self) -> bool {
        // Relaxed: a call beside release() may come before or after it; whoever uses the memory begins an export.
        self.state.load(Ordering::Relaxed) & RELEASED != 0
    }

    /// Counts one export more.
    pub(super) fn begin_export(&self) -> Result<(), Refused> {
        let more = |state| if state & RELEASED == 0 { Some(state + 1) } else { None };
        // Acquire: what follows is not moved before the count. A count above zero holds off every release.
        match self.state.fetch_update(Ordering::Acquire, Ordering::Relaxed, more) {
            Ok(_) => Ok(()),
            Err(_) => Err(Refused::Released),
        }
    }

    /// Takes back one export. The last one of a lease that was left before gives the memory back.
    pub(super) fn end_export(&self) {
        // Release: what the consumer did to the memory comes before the release() that finds a count of zero.
        let before = self.state.fetch_sub(1, Ordering::Release);
        debug_assert!(before & EXPORTS > 0);
        if before & (RELEASED | EXPORTS) == RELEASED | 1 {
            drop(self.end());
        }
    }

    /// Ends the use from Python. Gives the memory to the caller, to be dropped where that suits; nothing when it was
    /// released before.
    pub(super) fn release(&self) -> Result<Option<Memory>, Refused> {
        let end = |state| if state & (RELEASED | EXPORTS) == 0 { Some(state | RELEASED) } else { None };
        match self.state.fetch_update(Ordering::Relaxed, Ordering::Relaxed, end) {
            Ok(_) => Ok(self.end()),
            Err(state) if state & RELEASED != 0 => Ok(None),
            Err(state) => Err(Refused::Exported(state & EXPORTS)),
        }
    }

    /// As [`Lease::release`], but while there are exports: they keep the memory, and the last of them gives it back.
    pub(super) fn leave(&self) -> Option<Memory> {
        // Relaxed: see `end`, whoever comes there.
        let before = self.state.fetch_or(RELEASED, Ordering::Relaxed);
        if before & (RELEASED | EXPORTS) == 0 { self.end() } else { None }
    }

    /// The memory is about to go back.
    fn goes_back(&self) {
        if let Some(traced) = &self.traced {
            traced.end();
        }
    }

    /// What comes when the lease is released and without exports, which is once.
    fn end(&self) -> Option<Memory> {
        // Acquire: the uses of all exports (their end_export is a Release) come before the memory goes back.
        fence(Ordering::Acquire);
        self.goes_back();
        if let Some(record) = &self.record {
            record.remove();
        }
        // SAFETY: RELEASED is set once and no export begins after it, so that one call alone has brought about RELEASED
        // without exports; drop() needs the only reference, and `self` is one.
        unsafe { (*self.memory.get()).take() }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.memory.get_mut().is_some() {
            self.goes_back();
        }
    }
}

/// One export, as consumers outside the interpreter hold it: it ends without the interpreter, on any thread.
pub(super) struct Hold(Arc<Lease>);

impl Hold {
    pub(super) fn new(lease: &Arc<Lease>) -> Result<Self, Refused> {
        lease.begin_export()?;
        Ok(Self(Arc::clone(lease)))
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.end_export();
    }
}
