//! What is done once in a process, forks or not.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::{process, thread};

/// Nobody has begun. No process that calls anything has this number.
const UNDONE: u32 = 0;
/// It is done. No process has this number.
const DONE: u32 = u32::MAX;

/// A function that one thread calls, once, while all others that need it wait.
///
/// A child that was forked while a thread of its parent was at it has not got that thread, and begins anew: a
/// [`Once`](std::sync::Once) would have it wait for ever. So the function has to bear being left half-way in a child;
/// and it must not panic, after which all would wait. Child and parent are told apart by their numbers: the first child
/// in a namespace of numbers of its own, forked by the first process of another one, would wait.
#[derive(Debug)]
pub struct ForkOnce {
    /// [`UNDONE`], the number of the process one of whose threads is at it, or [`DONE`].
    state: AtomicU32,
}

impl ForkOnce {
    /// Nothing is done yet.
    #[expect(clippy::new_without_default, reason = "for statics, which are made at compile time")]
    pub const fn new() -> Self {
        Self { state: AtomicU32::new(UNDONE) }
    }

    /// Returns when `call` was called and came to its end, in this thread or another, in this process or before it was
    /// forked. O(1) from then on: one load.
    #[inline]
    pub fn call(&self, call: impl FnOnce()) {
        // Acquire: what the call did before it was noted as done is behind the caller.
        if self.state.load(Acquire) != DONE {
            self.call_or_wait(call);
        }
    }

    #[cold]
    fn call_or_wait(&self, call: impl FnOnce()) {
        let own = process::id();
        loop {
            // Acquire: as in `call`.
            match self.state.load(Acquire) {
                DONE => return,
                // Another thread is at it, and will be done soon.
                by if by == own => thread::yield_now(),
                // Nobody, or a thread of a process that this one was forked from: it did not come to its end before the
                // fork.
                by => {
                    // Relaxed: the number is the whole message.
                    if self.state.compare_exchange(by, own, Relaxed, Relaxed).is_ok() {
                        call();
                        // Release: see `call`.
                        self.state.store(DONE, Release);
                        return;
                    }
                }
            }
        }
    }

    /// It is done, even if who is at it has not come back yet. For what a fork calls: the child has this from its
    /// parent.
    pub(super) fn note_done(&self) {
        // Relaxed: the fork orders it.
        self.state.store(DONE, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn one_of_many_threads_calls_and_all_see_what_it_did() {
        let (once, called) = (ForkOnce::new(), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    once.call(|| {
                        thread::yield_now();
                        called.fetch_add(1, Relaxed);
                    });
                    assert_eq!(called.load(Relaxed), 1);
                });
            }
        });
        once.call(|| unreachable!("it was done before"));
    }

    #[test]
    fn what_a_parent_did_not_end_begins_anew() {
        // The number of a process that is not this one, as the child of a fork finds it.
        let once = ForkOnce { state: AtomicU32::new(process::id() ^ 1) };
        let mut called = false;
        once.call(|| called = true);
        assert!(called);
    }

    #[test]
    fn what_is_noted_as_done_is_not_called() {
        let once = ForkOnce::new();
        once.note_done();
        once.call(|| unreachable!("it was noted"));
    }
}
