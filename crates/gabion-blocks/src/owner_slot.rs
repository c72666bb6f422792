//! Owner slots: where a thread says which biased lock it is inside of (see [`crate::bias`]).

use std::cell::Cell;

use crate::ending::Noted;
use crate::inside;
use crate::sync::{AtomicUsize, Mutex, Ordering, try_lock, yield_now};

/// One thread's owner slot. Never freed: when its thread ends it waits for another one.
#[repr(align(128))]
pub(crate) struct OwnerSlot {
    /// The address of the lock that the thread is inside of because the lock is biased to it; 0 when there is none.
    pub inside: AtomicUsize,
}

impl OwnerSlot {
    /// The owner slot of a thread that is nowhere.
    pub fn new() -> Self {
        Self { inside: AtomicUsize::new(0) }
    }
}

/// The owner slots that no thread has.
struct Vacant {
    /// There is room for all that were made.
    slots: Vec<&'static OwnerSlot>,
    made: usize,
}

static VACANT: Mutex<Vacant> = Mutex::new(Vacant { slots: Vec::new(), made: 0 });

thread_local! {
    /// The thread's owner slot, once it has one, until it ends. Apart from what gives it back, because a place without
    /// a destructor is reached by one instruction.
    static OWNER_SLOT: Cell<Option<&'static OwnerSlot>> = const { Cell::new(None) };

    static LEAVING: Leaving = const { Leaving };
    static NOTED: Noted = const { Noted::new() };
}

/// Gives the owner slot back when its thread ends.
struct Leaving;

impl Drop for Leaving {
    fn drop(&mut self) {
        // Relaxed: this thread's own. A thread that is inside of a lock even now, by another of its thread-local
        // variables, keeps its owner slot: by the next owner's first store it would seem to have left.
        if let Some(slot) = OWNER_SLOT.take().filter(|slot| slot.inside.load(Ordering::Relaxed) == 0) {
            let _inside = inside::enter();
            // The lock orders all that this thread did before what the owner slot's next one does: locks are biased to
            // the owner slot still.
            with_vacant(|vacant| vacant.slots.push(slot));
        }
    }
}

/// How often the list of vacant owner slots is tried.
const TRIES: u32 = 1000;

/// Works on the vacant owner slots, unless they cannot be had: in a child that was forked while another thread was at
/// them they stay locked for ever. Without an owner slot no lock is biased to a thread, and an owner slot that nobody
/// takes costs 128 bytes.
fn with_vacant<R>(work: impl FnOnce(&mut Vacant) -> R) -> Option<R> {
    let mut vacant = (0..TRIES).find_map(|_| {
        try_lock(&VACANT).or_else(|| {
            yield_now();
            None
        })
    })?;
    Some(work(&mut vacant))
}

/// This thread's owner slot, if it has one.
#[inline]
pub(crate) fn mine() -> Option<&'static OwnerSlot> {
    OWNER_SLOT.get()
}

impl Vacant {
    /// A vacant owner slot, or one more; `None` where there is no memory for it, or for giving it back.
    fn take(&mut self) -> Option<&'static OwnerSlot> {
        if let Some(slot) = self.slots.pop() {
            return Some(slot);
        }
        self.slots.try_reserve(self.made + 1).ok()?;
        let mut slot = Vec::new();
        slot.try_reserve_exact(1).ok()?;
        slot.push(OwnerSlot::new());
        self.made += 1;
        slot.leak().first()
    }
}

/// This thread's owner slot, taken now if it had none; `None` while the thread ends, and without memory for one: then
/// its locks stay unbiased.
pub(crate) fn take() -> Option<&'static OwnerSlot> {
    if let Some(slot) = OWNER_SLOT.get() {
        return Some(slot);
    }
    let _inside = inside::enter();
    if !NOTED.with(Noted::can_be_noted) {
        return None;
    }
    LEAVING.try_with(|_| ()).ok()?;
    let slot = with_vacant(Vacant::take)??;
    debug_assert_eq!(slot.inside.load(Ordering::Relaxed), 0);
    OWNER_SLOT.set(Some(slot));
    Some(slot)
}
