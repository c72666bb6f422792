//! Desks: where a thread says which leaning lock it is inside of (see [`crate::bias`]).

use std::cell::Cell;

use crate::ending::Noted;
use crate::inside;
use crate::sync::{AtomicUsize, Mutex, Ordering, try_lock, yield_now};

/// One thread's desk. Never freed: when its thread ends it waits for another one.
#[repr(align(128))]
pub(crate) struct Desk {
    /// The address of the lock that the thread is inside of because the lock leans to it; 0 when there is none.
    pub inside: AtomicUsize,
}

impl Desk {
    /// The desk of a thread that is nowhere.
    pub fn new() -> Self {
        Self { inside: AtomicUsize::new(0) }
    }
}

/// The desks that no thread has.
struct Vacant {
    /// There is room for all that were made.
    desks: Vec<&'static Desk>,
    made: usize,
}

static VACANT: Mutex<Vacant> = Mutex::new(Vacant { desks: Vec::new(), made: 0 });

thread_local! {
    /// The thread's desk, once it has one, until it ends. Apart from what gives it back, because a place without a
    /// destructor is reached by one instruction.
    static DESK: Cell<Option<&'static Desk>> = const { Cell::new(None) };

    static LEAVING: Leaving = const { Leaving };
    static NOTED: Noted = const { Noted::new() };
}

/// Gives the desk back when its thread ends.
struct Leaving;

impl Drop for Leaving {
    fn drop(&mut self) {
        // Relaxed: this thread's own. A thread that is inside of a lock even now, by another of its thread-local
        // variables, keeps its desk: by the next owner's first store it would seem to have left.
        if let Some(desk) = DESK.take().filter(|desk| desk.inside.load(Ordering::Relaxed) == 0) {
            let _inside = inside::enter();
            // The lock orders all that this thread did before what the desk's next one does: locks lean to the desk
            // still.
            with_vacant(|vacant| vacant.desks.push(desk));
        }
    }
}

/// How often the list of vacant desks is tried.
const TRIES: u32 = 1000;

/// Works on the vacant desks, unless they cannot be had: in a child that was forked while another thread was at them
/// they stay locked for ever. Without a desk no lock leans to a thread, and a desk that nobody takes costs 128 bytes.
fn with_vacant<R>(work: impl FnOnce(&mut Vacant) -> R) -> Option<R> {
    let mut vacant = (0..TRIES).find_map(|_| {
        try_lock(&VACANT).or_else(|| {
            yield_now();
            None
        })
    })?;
    Some(work(&mut vacant))
}

/// This thread's desk, if it has one.
#[inline]
pub(crate) fn mine() -> Option<&'static Desk> {
    DESK.get()
}

impl Vacant {
    /// A vacant desk, or one more; `None` where there is no memory for it, or for giving it back.
    fn take(&mut self) -> Option<&'static Desk> {
        if let Some(desk) = self.desks.pop() {
            return Some(desk);
        }
        self.desks.try_reserve(self.made + 1).ok()?;
        let mut desk = Vec::new();
        desk.try_reserve_exact(1).ok()?;
        desk.push(Desk::new());
        self.made += 1;
        desk.leak().first()
    }
}

/// This thread's desk, taken now if it had none; `None` while the thread ends, and without memory for one: then its
/// locks stay upright.
pub(crate) fn take() -> Option<&'static Desk> {
    if let Some(desk) = DESK.get() {
        return Some(desk);
    }
    let _inside = inside::enter();
    if !NOTED.with(Noted::can_be_noted) {
        return None;
    }
    LEAVING.try_with(|_| ()).ok()?;
    let desk = with_vacant(Vacant::take)??;
    debug_assert_eq!(desk.inside.load(Ordering::Relaxed), 0);
    DESK.set(Some(desk));
    Some(desk)
}
