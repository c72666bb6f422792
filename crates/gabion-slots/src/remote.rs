//! Remote frees: how a slot that another thread frees comes back to the arena that it belongs to, without a lock.
//!
//! ```text
//!  any thread                                              the owner
//!  1  set the slots' bits in the pair's `remote_free`      a  take all blocks off the stack
//!  2  set the page's bit in the block's `pages`            b  of each: read which is next, clear `pages`
//!  3  if no bit was set there before: push the block       c  of each page: set the bits of `remote_free` in
//!     onto the owner's stack                                  `free`, then clear them in `remote_free`
//! ```
//!
//! A block is on the stack exactly while its `pages` are not zero, or somebody between 2 and 3 is about to push it. So
//! it is never on it twice, and no bit is forgotten: one that is set in `remote_free` too late for c has its page's bit
//! set too late for b, and then pushes the block again.

use crate::sync::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

/// The blocks with remote frees for their owner, one linked to the next. Anybody pushes, all are taken off at once: so
/// a block that comes and goes and comes again does no harm.
#[derive(Debug)]
pub(crate) struct RemoteFreeStack {
    first: AtomicU32,
}

impl RemoteFreeStack {
    #[allow(dead_code, reason = "stacks of arenas begin as zeros")]
    pub fn new() -> Self {
        Self { first: AtomicU32::new(0) }
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        // Relaxed: who misses a block finds it the next time.
        self.first.load(Ordering::Relaxed) == 0
    }

    /// Pushes a block; `next` is its place for the link.
    pub fn push(&self, block: u32, next: &AtomicU32) {
        let mut first = self.first.load(Ordering::Relaxed);
        loop {
            // Relaxed: published by the exchange.
            next.store(first, Ordering::Relaxed);
            // Release: the thread that takes the block off sees the link, and all that the stack's other blocks have
            // published.
            match self.first.compare_exchange_weak(first, block, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => first = now,
            }
        }
    }

    /// Takes all blocks off and returns the first, or 0.
    pub fn take_all(&self) -> u32 {
        // Acquire: pairs with the release in `push`.
        self.first.swap(0, Ordering::Acquire)
    }
}

/// A hazard pointer: says which block its thread is freeing something in. The bits of step 1 may be the last of the
/// block, which its owner then gives back: so a thread that gives a block back waits for all hazards that protect it.
#[derive(Debug)]
pub(crate) struct Hazard {
    block: AtomicUsize,
}

impl Hazard {
    #[allow(dead_code, reason = "hazards of arenas begin as zeros")]
    pub fn new() -> Self {
        Self { block: AtomicUsize::new(0) }
    }

    /// Protects a block, and says whether its affinity's `epoch` is still `seen`. If not, it was released, and the
    /// block may be gone.
    pub fn protect(&self, block: usize, epoch: &AtomicU64, seen: u64) -> bool {
        // Release: who waits for the block protected before may see this one without ever having seen that none was,
        // and must see what was done to that block all the same. A store by the same thread does not carry on what
        // `clear` published.
        self.block.store(block, Ordering::Release);
        // The fence stands between the store and the load, as the other one in `advance_epoch` does: either the other
        // thread sees the block and waits, or the load sees the new epoch.
        fence(Ordering::SeqCst);
        epoch.load(Ordering::Relaxed) == seen
    }

    /// Protects none.
    pub fn clear(&self) {
        // Release: what was done to the block comes before it is given back.
        self.block.store(0, Ordering::Release);
    }

    /// Waits until `block` is not protected; until none is, if that is 0.
    ///
    /// For a block of which all slots are known to be free no fence is needed: the last bits came with a release after
    /// the block was stored here, and collecting them acquired it.
    pub fn await_clear(&self, block: usize, pause: impl Fn()) {
        loop {
            // Acquire: pairs with the release in `clear`.
            let protected = self.block.load(Ordering::Acquire);
            if protected == 0 || (block != 0 && protected != block) {
                return;
            }
            pause();
        }
    }
}

/// Gives an affinity that is released its next epoch. What its blocks still have on their way is refused from now on,
/// or is protected by a hazard: the caller waits for all of them.
pub(crate) fn advance_epoch(epoch: &AtomicU64, next: u64) {
    epoch.store(next, Ordering::Relaxed);
    // See `Hazard::protect`.
    fence(Ordering::SeqCst);
}

/// Steps 1 to 3. Returns those bits that were set before: freed twice.
///
/// The caller's hazard protects the block.
pub(crate) fn publish(remote_free: &AtomicU64, bits: u64, pages: &AtomicU64, page: u32, push: impl FnOnce()) -> u64 {
    // Release: what was done to the slots before comes before their next use.
    let before = remote_free.fetch_or(bits, Ordering::Release);
    // Release: publishes the bits above to the thread that clears `pages`. Acquire: the owner has read the block's link
    // before it cleared them, so the link may be written anew.
    if pages.fetch_or(1 << page, Ordering::AcqRel) == 0 {
        push();
    }
    before & bits
}

/// Step b. The owner has read the block's link. Returns the pages' bits.
pub(crate) fn take_pages(pages: &AtomicU64) -> u64 {
    // Acquire and release: see `publish`.
    pages.swap(0, Ordering::AcqRel)
}

/// Step c. Returns the bits that became free, and those that were free already, or that stand for no slot and are not
/// in `valid`: freed twice.
pub(crate) fn collect(free: &AtomicU64, remote_free: &AtomicU64, valid: u64) -> (u64, u64) {
    // Acquire: pairs with the release in `publish`, also for bits whose page's bit is still to be set.
    let bits = remote_free.load(Ordering::Acquire);
    if bits == 0 {
        return (0, 0);
    }
    let before = free.load(Ordering::Relaxed);
    // Set before they are cleared there: who looks at both never finds a free slot taken.
    free.store(before | bits & valid, Ordering::Relaxed);
    // Release: the store above comes first. Bits that were set since the load stay.
    remote_free.fetch_and(!bits, Ordering::Release);
    let new = bits & valid & !before;
    (new, bits & !new)
}
