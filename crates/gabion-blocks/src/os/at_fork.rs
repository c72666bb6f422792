//! What is done around each fork, and told to the system once.

use std::cell::RefCell;
use std::thread::LocalKey;

use super::once::ForkOnce;
use super::unix;

/// Three functions that are called at every fork from [`AtFork::watch`] on.
#[derive(Debug)]
pub struct AtFork {
    /// To tell the system takes a lock of its own, which a fork holds: a thread may wait there while another forks.
    told: ForkOnce,
    before: extern "C" fn(),
    in_parent: extern "C" fn(),
    in_child: extern "C" fn(),
}

impl AtFork {
    /// Functions for the parent before a fork, for it after the fork, and for the child. The first one has to
    /// [note](AtFork::note_call) that it was called.
    pub const fn new(before: extern "C" fn(), in_parent: extern "C" fn(), in_child: extern "C" fn()) -> Self {
        Self { told: ForkOnce::new(), before, in_parent, in_child }
    }

    /// Has the functions called from now on. The calls before a fork are made in reverse order of the first calls of
    /// this.
    #[inline]
    pub fn watch(&self) {
        self.told.call(|| unix::at_fork(self.before, self.in_parent, self.in_child));
    }

    /// `before` was called: so the system knows, even if who told it has not come back yet.
    pub fn note_call(&self) {
        self.told.note_done();
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
