//! A lock that knows its owner: whoever waits lets other threads run, and who comes back in while inside is refused.
//!
//! ```text
//!   owner = 0                nobody is inside
//!           a thread         that thread is; its number is even
//!           BRIEFLY          some thread is, for so short that nobody needs to know which
//!           … | WAITED       and others wait
//! ```
//! Only attached threads change the owner. Under a global interpreter lock they never do so at the same time, so a load
//! and a store are enough there; a mutex would cost more than many of the reads that it guards.

use std::cell::{Cell, UnsafeCell};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

use pyo3::prelude::*;

use super::refusal;
use crate::detached::detached_ungated;
use crate::once::at_fork;

const WAITED: usize = 1;

/// No thread's number.
const BRIEFLY: usize = 2;

/// How what is locked ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Closed = 1,
    Detached = 2,
}

/// How often this process, or one that it comes from, was forked.
static FORKS: AtomicUsize = AtomicUsize::new(0);

/// What one thread at a time may use, until it is over.
pub(super) struct OwnedLock<T> {
    what: &'static str,
    owner: AtomicUsize,
    /// `FORKS` when the owner came, or later. Another process's thread does not leave in this one.
    forks: AtomicUsize,
    /// What answers without waiting whether the value is closed: an `End`, or 0 before. Changed by whoever is inside.
    over: AtomicU8,
    value: UnsafeCell<T>,
    /// Held by whoever looks whether it has to wait, and by whoever wakes others.
    gate: Mutex<()>,
    left: Condvar,
}

// SAFETY: at most one thread reaches the value: the one that stored a non-zero `owner`, or, under a global interpreter
// lock, one inside `briefly`, which cannot let that lock go. So the value only moves between threads.
unsafe impl<T: Send> Sync for OwnedLock<T> {}

/// A thread's hold of the lock, until this is dropped. It cannot leave the attached thread (`py`).
pub(super) struct Guard<'a, 'py, T> {
    lock: &'a OwnedLock<T>,
    py: Python<'py>,
}

/// A number of this thread's own: even, and neither 0 nor `BRIEFLY`. Not an address: in a forked child, new threads lie
/// where those lay that it does not have.
fn me() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(2 * BRIEFLY);
    thread_local!(static NUMBER: Cell<usize> = const { Cell::new(0) });
    if NUMBER.get() == 0 {
        // Relaxed: only that nobody gets the same number.
        NUMBER.set(NEXT.fetch_add(2, Ordering::Relaxed));
    }
    NUMBER.get()
}

impl<T: Send> OwnedLock<T> {
    pub(super) fn new(what: &'static str, value: T) -> Self {
        let (gate, left) = (Mutex::new(()), Condvar::new());
        let (owner, forks, over) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicU8::new(0));
        Self { what, owner, forks, over, value: UnsafeCell::new(value), gate, left }
    }

    /// Whether `Guard::end` was called.
    pub(super) fn is_over(&self) -> bool {
        // Relaxed: nothing is read on the strength of it.
        self.over.load(Ordering::Relaxed) != 0
    }

    /// Whether it was called for what was detached.
    pub(super) fn is_detached(&self) -> bool {
        // Relaxed: as above.
        self.over.load(Ordering::Relaxed) == End::Detached as u8
    }

    /// The error of a use after the end.
    #[cold]
    pub(super) fn refusal(&self, py: Python<'_>) -> PyErr {
        if self.is_detached() { refusal::detached(py, self.what) } else { refusal::closed(py, self.what) }
    }

    /// Waits for the lock. RuntimeError for a thread that is inside, and when the process was forked while another was.
    pub(super) fn lock<'py>(&self, py: Python<'py>) -> PyResult<Guard<'_, 'py, T>> {
        let me = me();
        self.note_forks();
        while !self.enter(py, me) {
            // Relaxed: only this thread writes its own number, so it reads that if and only if it is inside.
            if self.owner.load(Ordering::Relaxed) & !WAITED == me {
                return Err(refusal::reentrant(py, self.what));
            }
            // Relaxed: see note_forks().
            if self.forks.load(Ordering::Relaxed) != FORKS.load(Ordering::Relaxed) {
                return Err(refusal::left_by_fork(py, self.what));
            }
            self.wait(py);
        }
        Ok(Guard { lock: self, py })
    }

    /// Has `work` use the value for a moment, or returns None when somebody is inside.
    ///
    /// # Safety
    /// `work` runs no Python code, does not detach this thread, and does not panic.
    #[inline(always)]
    pub(super) unsafe fn briefly<R>(&self, py: Python<'_>, work: impl FnOnce(&mut T) -> R) -> Option<R> {
        // Under a global lock nobody comes in before `work` is done (duties of the caller), so nobody needs to be told.
        let free = if cfg!(Py_GIL_DISABLED) {
            self.note_forks();
            self.enter(py, BRIEFLY)
        } else {
            // Relaxed: what other threads did is visible since this one took the lock of the interpreter.
            self.owner.load(Ordering::Relaxed) == 0
        };
        if !free {
            return None;
        }
        // SAFETY: nobody else is inside, and nobody comes in before this is done.
        let result = work(unsafe { &mut *self.value.get() });
        if cfg!(Py_GIL_DISABLED) {
            self.leave(py);
        }
        Some(result)
    }

    /// The value, if nobody is inside; for the garbage collector, which has stopped all others.
    pub(super) fn idle(&self) -> Option<&T> {
        // Relaxed: the collector's own stop comes between.
        let free = self.owner.load(Ordering::Relaxed) == 0;
        // SAFETY: nobody is inside, and nobody attached runs but the collector.
        free.then(|| unsafe { &*self.value.get() })
    }

    /// The value, when nobody else can have it any more. None when the process was forked while another thread was
    /// inside: what that one has begun is its own to end, in the process that it is in.
    pub(super) fn last(&mut self) -> Option<&mut T> {
        (*self.owner.get_mut() == 0).then(|| self.value.get_mut())
    }

    /// What nobody held when the process was forked is this process's own; of what somebody held, the owner stays for
    /// ever, so that it is never noted. Relaxed: the count changes while there is one thread, and who enters publishes
    /// what it has noted.
    #[inline(always)]
    fn note_forks(&self) {
        let forks = FORKS.load(Ordering::Relaxed);
        if self.forks.load(Ordering::Relaxed) != forks && self.owner.load(Ordering::Relaxed) == 0 {
            self.forks.store(forks, Ordering::Relaxed);
        }
    }

    #[inline(always)]
    fn enter(&self, _py: Python<'_>, who: usize) -> bool {
        if cfg!(Py_GIL_DISABLED) {
            // Acquire: what the last owner did comes before; where it fails, what the present one has noted of forks.
            // Release: publishes that.
            self.owner.compare_exchange(0, who, Ordering::AcqRel, Ordering::Acquire).is_ok()
        } else {
            // Relaxed: the lock of the interpreter orders all that attached threads do.
            let free = self.owner.load(Ordering::Relaxed) == 0;
            if free {
                self.owner.store(who, Ordering::Relaxed);
            }
            free
        }
    }

    /// Waits until somebody has left, or not at all.
    #[cold]
    fn wait(&self, py: Python<'_>) {
        // The mark is set while attached, because only then nobody stores over it. Relaxed: it carries no data.
        let marked = self
            .owner
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |owner| (owner != 0).then_some(owner | WAITED));
        if marked.is_err() {
            return;
        }
        // Whoever is inside may need the interpreter to get out.
        detached_ungated(py, || {
            let gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
            // Relaxed: who leaves takes the mark away before it takes the gate, so it is gone here, or its wake-up
            // comes later. Another mark than ours comes with a wake-up, too.
            if self.owner.load(Ordering::Relaxed) & WAITED != 0 {
                drop(self.left.wait(gate));
            }
        });
    }
}

impl<T> OwnedLock<T> {
    #[inline(always)]
    fn leave(&self, _py: Python<'_>) {
        let owner = if cfg!(Py_GIL_DISABLED) {
            // Release: what was done inside comes before what the next owner does.
            self.owner.swap(0, Ordering::Release)
        } else {
            // Relaxed: as in enter(). No mark comes between: those are set by attached threads.
            let owner = self.owner.load(Ordering::Relaxed);
            self.owner.store(0, Ordering::Relaxed);
            owner
        };
        // Those who waited when the process was forked are not in this one, and one of them may have the gate for ever.
        // Relaxed: see note_forks().
        if owner & WAITED != 0 && self.forks.load(Ordering::Relaxed) == FORKS.load(Ordering::Relaxed) {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        drop(self.gate.lock());
        self.left.notify_all();
    }
}

impl<T> Guard<'_, '_, T> {
    /// Says that the value is closed, and how. Relaxed: nothing is read on the strength of it.
    pub(super) fn end(&self, how: End) {
        self.lock.over.store(how as u8, Ordering::Relaxed);
    }
}

impl<T> Drop for Guard<'_, '_, T> {
    fn drop(&mut self) {
        self.lock.leave(self.py);
    }
}

impl<T> Deref for Guard<'_, '_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: this thread has the lock.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, '_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this thread has the lock, and `self` is borrowed for as long as the value.
        unsafe { &mut *self.lock.value.get() }
    }
}

#[pyfunction]
fn after_fork() {
    // Relaxed: the child has one thread.
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// Has the interpreter count forks.
pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    at_fork(m, None, None, Some(wrap_pyfunction!(after_fork, m)?))
}
