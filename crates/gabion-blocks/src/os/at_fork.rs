//! What is done around each fork, and told to the system once.

use std::cell::RefCell;
use std::process;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::thread::{self, LocalKey};

use super::unix;

/// Nobody has told the system yet.
const UNTOLD: u32 = 0;
/// The system knows. No process has this number.
const TOLD: u32 = u32::MAX;

/// Three functions that are called at every fork from [`AtFork::watch`] on.
///
/// To tell the system takes a lock of its own, which a fork holds. So a thread may wait there while another forks, and
/// the child has not got it: a [`Once`](std::sync::Once) would have the child wait for it for ever.
#[derive(Debug)]
pub struct AtFork {
    /// [`UNTOLD`], the number of the process one of whose threads is about to tell the system, or [`TOLD`].
    state: AtomicU32,
    before: extern "C" fn(),
    in_parent: extern "C" fn(),
    in_child: extern "C" fn(),
}

impl AtFork {
    /// Functions for the parent before a fork, for it after the fork, and for the child. The first one has to
    /// [note](AtFork::note_call) that it was called.
    pub const fn new(before: extern "C" fn(), in_parent: extern "C" fn(), in_child: extern "C" fn()) -> Self {
        Self { state: AtomicU32::new(UNTOLD), before, in_parent, in_child }
    }

    /// Has the functions called from now on. The calls before a fork are made in reverse order of the first calls of
    /// this.
    #[inline]
    pub fn watch(&self) {
        // Acquire: what the system was told before is behind the caller.
        if self.state.load(Acquire) != TOLD {
            self.tell();
        }
    }

    #[cold]
    fn tell(&self) {
        let own = process::id();
        loop {
            // Acquire: as in `watch`.
            match self.state.load(Acquire) {
                TOLD => return,
                // Another thread is at it, and will be done soon.
                by if by == own => thread::yield_now(),
                // Nobody, or a thread of a process that this one was forked from: it did not come to its end before the
                // fork, or `before` had noted it.
                by => {
                    // Relaxed: the number is the whole message.
                    if self.state.compare_exchange(by, own, Relaxed, Relaxed).is_ok() {
                        unix::at_fork(self.before, self.in_parent, self.in_child);
                        // Release: see `watch`.
                        self.state.store(TOLD, Release);
                        return;
                    }
                }
            }
        }
    }

    /// `before` was called: so the system knows, even if who told it has not come back yet. The child has this from its
    /// parent.
    pub fn note_call(&self) {
        // Relaxed: the fork orders it.
        self.state.store(TOLD, Relaxed);
    }
}

/// A thread's place for what it holds from before a fork to after it: locks, mostly, which the child is to find free.
#[derive(Debug)]
pub struct AcrossFork<T: 'static>(RefCell<Option<T>>);

impl<T> AcrossFork<T> {
    /// A place that holds nothing.
    #[expect(clippy::new_without_default, reason = "for thread-local variables, which are made at compile time")]
    pub const fn new() -> Self {
        Self(RefCell::new(None))
    }

    /// Before a fork: keeps what `make` gives, unless something is kept already.
    pub fn keep(place: &'static LocalKey<Self>, make: impl FnOnce() -> T) {
        // A thread that ends while it forks has no place to keep anything; then the child must do without it.
        let _ = place.try_with(|place| {
            // In the child of a thread that forked just when another told the system, `before` may be called twice.
            if place.0.borrow().is_none() {
                let made = make();
                *place.0.borrow_mut() = Some(made);
            }
        });
    }

    /// After the fork, on either side: what is kept, and is so no more.
    pub fn let_go(place: &'static LocalKey<Self>) -> Option<T> {
        place.try_with(|place| place.0.take()).ok().flatten()
    }
}
