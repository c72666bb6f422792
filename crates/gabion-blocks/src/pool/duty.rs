//! One thread on duty, as long as there is work: taken up by the thread that brings work, left when none is there.

use crate::sync::{AtomicBool, Ordering};

/// Whether somebody is on duty.
#[derive(Debug, Default)]
pub(crate) struct Duty(AtomicBool);

impl Duty {
    /// True when nobody is on duty, as far as this thread can see. To be asked after work was brought under a lock.
    #[inline]
    pub fn vacant(&self) -> bool {
        // Relaxed: ordered by that lock; see `leave`.
        !self.0.load(Ordering::Relaxed)
    }

    /// Goes on duty; false when somebody else is.
    pub fn take(&self) -> bool {
        // AcqRel: the one who takes over sees what the one who left has done.
        !self.0.swap(true, Ordering::AcqRel)
    }

    /// Leaves, unless there is work. `nothing_left` looks for it under the lock that it is brought under. False: still
    /// on duty.
    ///
    /// The second look comes after the duty was given up. A thread that brings work later has taken the lock after that
    /// look, and so sees that nobody is on duty; one that brought it before is seen by the look. `tests/loom.rs` tries
    /// both.
    pub fn leave(&self, nothing_left: impl Fn() -> bool) -> bool {
        if !nothing_left() {
            return false;
        }
        // Release: pairs with `take`.
        self.0.store(false, Ordering::Release);
        nothing_left() || !self.take()
    }

    /// Vacates the duty if its thread panics while the value lives.
    pub fn watch(&self) -> OnDuty<'_> {
        OnDuty(self)
    }

    /// For the child of a fork, where nobody is on duty; and when none could be found.
    pub fn vacate(&self) {
        // Release: as in `leave`.
        self.0.store(false, Ordering::Release);
    }
}

/// See [`Duty::watch`].
#[must_use]
pub(crate) struct OnDuty<'a>(&'a Duty);

impl Drop for OnDuty<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.vacate();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Nobody went on duty any more.
    #[test]
    fn a_panic_leaves_the_duty_to_others() {
        let duty = Duty::default();
        let work = || {
            assert!(duty.take());
            let _on_duty = duty.watch();
            panic!("on duty");
        };
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_err());
        assert!(duty.vacant() && duty.take());
        drop(duty.watch());
        assert!(!duty.vacant());
    }
}
