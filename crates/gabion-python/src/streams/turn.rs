//! One thread at a time. Who waits lets other threads run; who comes back in while inside is refused.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use pyo3::prelude::*;

use super::refusal;
use crate::detached::detached;

/// What one thread at a time may use.
pub(super) struct Turn<T> {
    what: &'static str,
    inside: AtomicUsize,
    value: Mutex<T>,
}

/// A thread's turn, until this is dropped.
pub(super) struct Inside<'a, T> {
    turn: &'a Turn<T>,
    value: MutexGuard<'a, T>,
}

/// A number of this thread's own, never 0.
fn me() -> usize {
    thread_local!(static PLACE: u8 = const { 0 });
    PLACE.with(|place| std::ptr::from_ref(place).addr())
}

impl<T: Send> Turn<T> {
    pub(super) fn new(what: &'static str, value: T) -> Self {
        Self { what, inside: AtomicUsize::new(0), value: Mutex::new(value) }
    }

    /// Waits for the turn. RuntimeError for a thread that is inside.
    pub(super) fn take(&self, py: Python<'_>) -> PyResult<Inside<'_, T>> {
        loop {
            match self.value.try_lock() {
                Ok(value) => return Ok(self.entered(value)),
                Err(TryLockError::Poisoned(value)) => return Ok(self.entered(value.into_inner())),
                // Relaxed: only this thread writes its own number, so it reads that if and only if it is inside.
                Err(TryLockError::WouldBlock) if self.inside.load(Ordering::Relaxed) == me() => {
                    return Err(refusal::reentrant(py, self.what));
                }
                // Whoever is inside may need the interpreter to get out.
                Err(TryLockError::WouldBlock) => {
                    detached(py, || drop(self.value.lock().unwrap_or_else(PoisonError::into_inner)));
                }
            }
        }
    }

    /// The value, if nobody is inside; for the garbage collector, which cannot wait.
    pub(super) fn idle(&self) -> Option<MutexGuard<'_, T>> {
        self.value.try_lock().ok()
    }

    /// The value, when nobody else can have it any more.
    pub(super) fn last(&mut self) -> &mut T {
        self.value.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    fn entered<'a>(&'a self, value: MutexGuard<'a, T>) -> Inside<'a, T> {
        // Relaxed: see take().
        self.inside.store(me(), Ordering::Relaxed);
        Inside { turn: self, value }
    }
}

impl<T> Drop for Inside<'_, T> {
    fn drop(&mut self) {
        // Relaxed: see take(). The lock is let go right after this.
        self.turn.inside.store(0, Ordering::Relaxed);
    }
}

impl<T> Deref for Inside<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Inside<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}
