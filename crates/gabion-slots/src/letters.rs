//! How a slot that another thread frees comes back to the arena that it belongs to, without a lock.
//!
//! ```text
//!  any thread                                              the owner
//!  1  set the slots' bits in the pair's `left`             a  take all blocks out of the letter box
//!  2  set the page's bit in the block's `pages`            b  of each: read which is next, clear `pages`
//!  3  if no bit was set there before: put the block        c  of each page: set the bits of `left` in `free`,
//!     into the owner's letter box                             then clear them in `left`
//! ```
//!
//! A block is in the box exactly while its `pages` are not zero, or somebody between 2 and 3 is about to put it there.
//! So it is never in it twice, and no bit is forgotten: one that is set in `left` too late for c has its page's bit set
//! too late for b, and then puts the block into the box again.

use crate::sync::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

/// The blocks with something for their owner, one linked to the next. Anybody puts in, all are taken out at once: so a
/// block that comes and goes and comes again does no harm.
#[derive(Debug)]
pub(crate) struct LetterBox {
    first: AtomicU32,
}

impl LetterBox {
    #[allow(dead_code, reason = "boxes of arenas begin as zeros")]
    pub fn new() -> Self {
        Self { first: AtomicU32::new(0) }
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        // Relaxed: who misses a letter finds it the next time.
        self.first.load(Ordering::Relaxed) == 0
    }

    /// Puts in a block; `next` is its place for the link.
    pub fn put(&self, block: u32, next: &AtomicU32) {
        let mut first = self.first.load(Ordering::Relaxed);
        loop {
            // Relaxed: published by the exchange.
            next.store(first, Ordering::Relaxed);
            // Release: the thread that takes the block out sees the link, and all that the box's other blocks have
            // published.
            match self.first.compare_exchange_weak(first, block, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => first = now,
            }
        }
    }

    /// Takes all blocks out and returns the first, or 0.
    pub fn take_all(&self) -> u32 {
        // Acquire: pairs with the release in `put`.
        self.first.swap(0, Ordering::Acquire)
    }
}

/// Says which block its thread is leaving something at. The bits of step 1 may be the last of the block, which its
/// owner then gives back: so a thread that gives a block back waits for all hazards that name it.
#[derive(Debug)]
pub(crate) struct Hazard {
    block: AtomicUsize,
}

impl Hazard {
    #[allow(dead_code, reason = "hazards of arenas begin as zeros")]
    pub fn new() -> Self {
        Self { block: AtomicUsize::new(0) }
    }

    /// Names a block, and says whether its affinity's `epoch` is still `seen`. If not, it was released, and the block
    /// may be gone.
    pub fn name(&self, block: usize, epoch: &AtomicU64, seen: u64) -> bool {
        // Release: who waits for the block named before may see this name without ever having seen that none was named,
        // and must see what was done to that block all the same. A store by the same thread does not carry on what
        // `clear` published.
        self.block.store(block, Ordering::Release);
        // The fence stands between the store and the load, as the other one in `raise` does: either the other thread
        // sees the name and waits, or the load sees the new epoch.
        fence(Ordering::SeqCst);
        epoch.load(Ordering::Relaxed) == seen
    }

    /// Names none.
    pub fn clear(&self) {
        // Release: what was done to the block comes before it is given back.
        self.block.store(0, Ordering::Release);
    }

    /// Waits until `block` is not named; until none is, if that is 0.
    ///
    /// For a block of which all slots are known to be free no fence is needed: the last bits came with a release after
    /// the name was stored, and collecting them acquired it.
    pub fn await_clear(&self, block: usize, pause: impl Fn()) {
        loop {
            // Acquire: pairs with the release in `clear`.
            let named = self.block.load(Ordering::Acquire);
            if named == 0 || (block != 0 && named != block) {
                return;
            }
            pause();
        }
    }
}

/// Gives an affinity that is released its next epoch. What its blocks still have on their way is refused from now on,
/// or is named by a hazard: the caller waits for all of them.
pub(crate) fn raise(epoch: &AtomicU64, next: u64) {
    epoch.store(next, Ordering::Relaxed);
    // See `Hazard::name`.
    fence(Ordering::SeqCst);
}

/// Steps 1 to 3. Returns those bits that were set before: freed twice.
///
/// The caller's hazard names the block.
pub(crate) fn leave(left: &AtomicU64, bits: u64, pages: &AtomicU64, page: u32, put: impl FnOnce()) -> u64 {
    // Release: what was done to the slots before comes before their next use.
    let before = left.fetch_or(bits, Ordering::Release);
    // Release: publishes the bits above to the thread that clears `pages`. Acquire: the owner has read the block's link
    // before it cleared them, so the link may be written anew.
    if pages.fetch_or(1 << page, Ordering::AcqRel) == 0 {
        put();
    }
    before & bits
}

/// Step b. The owner has read the block's link. Returns the pages' bits.
pub(crate) fn open(pages: &AtomicU64) -> u64 {
    // Acquire and release: see `leave`.
    pages.swap(0, Ordering::AcqRel)
}

/// Step c. Returns the bits that became free, and those that were free already, or that stand for no slot and are not
/// in `valid`: freed twice.
pub(crate) fn collect(free: &AtomicU64, left: &AtomicU64, valid: u64) -> (u64, u64) {
    // Acquire: pairs with the release in `leave`, also for bits whose page's bit is still to be set.
    let bits = left.load(Ordering::Acquire);
    if bits == 0 {
        return (0, 0);
    }
    let before = free.load(Ordering::Relaxed);
    // Set before they are cleared there: who looks at both never finds a free slot taken.
    free.store(before | bits & valid, Ordering::Relaxed);
    // Release: the store above comes first. Bits that were set since the load stay.
    left.fetch_and(!bits, Ordering::Release);
    let new = bits & valid & !before;
    (new, bits & !new)
}
