//! Tests of the whole, beside those of each module.

mod defects;
mod errors;
mod forks;
mod idle;
mod model;
mod races;
mod refusals;
mod sharing;
mod warm;

use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use gabion_blocks::os::Twin;
use gabion_blocks::{Pool, Settings};

use crate::{Affinity, Slots, SlotsError};

pub(crate) const MIB: usize = 1 << 20;

pub(crate) fn layout(size: usize) -> Layout {
    aligned(size, 8)
}

pub(crate) fn aligned(size: usize, align: usize) -> Layout {
    Layout::from_size_align(size, align).unwrap()
}

/// Slots on a pool that keeps nothing, and what that pool maps through.
pub(crate) fn on_twin() -> (Slots, &'static Twin) {
    let twin: &'static Twin = Box::leak(Box::default());
    let pool = Pool::with_root(twin, Settings::unpooled(), "/nonexistent-root".into()).unwrap();
    (Slots::new(&pool).unwrap(), twin)
}

/// Allocates with `size` bytes and alignment 8, and writes to all of them.
pub(crate) fn take(slots: &Slots, affinity: Affinity, size: usize) -> NonNull<u8> {
    let at = slots.alloc(affinity, layout(size)).unwrap();
    // SAFETY: just allocated.
    unsafe { at.write_bytes(0xA5, size) };
    at
}

/// Frees, and says so when that goes wrong.
pub(crate) fn give(slots: &Slots, at: NonNull<u8>) {
    // SAFETY: the tests free what they took, once.
    unsafe { slots.free(at) }.unwrap();
}

/// Gives an object another size, and its old one only if `told`.
pub(crate) fn resize(
    slots: &Slots,
    affinity: Affinity,
    at: NonNull<u8>,
    sizes: (usize, usize),
    told: bool,
) -> Result<NonNull<u8>, SlotsError> {
    let (old, new) = (layout(sizes.0), layout(sizes.1));
    // SAFETY: the tests resize what is live and theirs alone; what is not is refused.
    unsafe { if told { slots.realloc(affinity, at, old, new) } else { slots.realloc_unsized(affinity, at, new) } }
}

/// Frees all of them.
pub(crate) fn give_all(slots: &Slots, places: Vec<NonNull<u8>>) {
    for at in places {
        give(slots, at);
    }
}

/// A thread that has freed what is at an address, and lives on until it is sent for; then it does the last.
pub(crate) fn freed_elsewhere(
    slots: &Slots,
    at: NonNull<u8>,
    last: impl FnOnce(&Slots) + Send + 'static,
) -> (Sender<()>, JoinHandle<()>) {
    let (slots, at) = (slots.clone(), Shared(at));
    let (ready, wait) = channel();
    let (end, ended) = channel();
    let thread = thread::spawn(move || {
        let at = at;
        give(&slots, at.0);
        ready.send(()).unwrap();
        ended.recv().unwrap();
        last(&slots);
    });
    wait.recv().unwrap();
    (end, thread)
}

/// Drops the last handle, after which nothing is mapped any more. A test that forks just then keeps all slots until it
/// has.
pub(crate) fn drop_last(slots: Slots, twin: &Twin) {
    drop(slots);
    // Counted by steps: by the clock, time is over for a process that was stopped, before anybody could do anything.
    for _ in 0..60_000 {
        if twin.mapped() == 0 {
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(twin.mapped(), 0);
}

/// An address that other threads may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shared(pub NonNull<u8>);

// SAFETY: only an address; the tests see to it that one thread at a time uses what is there.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}
