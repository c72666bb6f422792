//! The thread that trims: it begins when something is idle and ends when nothing is.

use std::time::Duration;

use super::policy::until_next;
use super::shared::Shared;
use crate::ending::malloc_has;
use crate::os::{first_thread_has_ended, out_of_signals_reach};
use crate::sync::{Ordering, lock};

/// Milliseconds between two looks that collections ask for, at least.
const CALLS_APART: u64 = 1000;

/// How often the trimmer looks whether memory is short while the limit of a control group is near: a process that grows
/// by 50 MiB a second meets that of 1 GiB in five.
const WATCHES_APART: Duration = Duration::from_secs(1);

/// More than a thread takes of malloc until it runs. The language asks for that without a way to be refused.
const THREAD_BYTES: usize = 16 << 10;

impl Shared {
    /// Sees to it that somebody will trim. To be called after something has become idle.
    #[inline]
    pub fn wants_trimmer(&'static self) {
        if self.trimmer.duty.vacant() {
            self.start_trimmer();
        }
    }

    #[cold]
    fn start_trimmer(&'static self) {
        // Before anything is looked at: who closes the pool, or ends as the process's first thread, nudges the trimmer,
        // which must not miss it for a whole rest.
        let seen = *lock(&self.trimmer.nudges);
        // Relaxed: a closed pool keeps nothing that would have to be trimmed.
        if self.closed.load(Ordering::Relaxed) || first_thread_has_ended() {
            return;
        }
        // Later returns ask again, as below.
        if !malloc_has(THREAD_BYTES) || !self.trimmer.duty.take() {
            return;
        }
        let thread = std::thread::Builder::new().name("gabion-trim".to_owned()).stack_size(256 << 10);
        if out_of_signals_reach(|| thread.spawn(move || self.trim_until_idle(seen))).is_err() {
            // No thread to be had now: collections and later returns ask again.
            self.trimmer.duty.vacate();
        }
    }

    /// Has the trimmer look at once, unless somebody asked for that within the last second. Where nobody is on duty
    /// though something is idle, there was no thread to be had, and one is tried for again.
    pub fn look_soon(&'static self, now: Duration) {
        let now = now.as_millis() as u64;
        // Relaxed: only a clock. Two who come at one time may nudge twice.
        if now < self.trimmer.next_call.load(Ordering::Relaxed) {
            return;
        }
        self.trimmer.next_call.store(now + CALLS_APART, Ordering::Relaxed);
        if !self.trimmer.duty.vacant() {
            self.nudge_trimmer();
        } else if self.idle() > 0 || self.ledger.emptied() > 0 || self.free_pieces() > 0 {
            self.start_trimmer();
        }
    }

    fn trim_until_idle(&'static self, mut seen: u64) {
        let _on_duty = self.trimmer.duty.watch();
        loop {
            let period = lock(&self.settings).trim_period;
            seen = self.rest_watching(seen, until_next(self.now(), period));
            if first_thread_has_ended() {
                return self.trimmer.duty.vacate();
            }
            self.look(self.now());
            if self.trimmer.duty.leave(|| self.nothing_idle()) {
                return;
            }
        }
    }

    /// True when there is nothing that a trimmer could ever give back or have given back.
    fn nothing_idle(&self) -> bool {
        let shelves_empty = || {
            self.arenas().all(|arena| {
                let counts = arena.lock().counts;
                counts.idle == 0 && counts.emptied == 0 && counts.warm_large == 0
            })
        };
        // Caches are opened only where nothing else keeps the trimmer on duty. And in this order at last: what moves
        // meanwhile moves from the caches to the shelves.
        self.malloc_trimmed()
            && self.all_caches().all(|cache| cache.bytes() == 0)
            && shelves_empty()
            && self.all_caches().all(|cache| cache.lock_unbiased().bytes() == 0)
            && shelves_empty()
    }

    /// As [`Shared::rest`], but ends when memory becomes short, if the limit of a control group is near.
    fn rest_watching(&self, seen: u64, most: Duration) -> u64 {
        let end = self.now() + most;
        loop {
            let left = end.saturating_sub(self.now());
            // Relaxed: this thread's own, or that of a look by hand.
            if left <= WATCHES_APART || !self.trimmer.near.load(Ordering::Relaxed) {
                return self.rest(seen, left);
            }
            let now_seen = self.rest(seen, WATCHES_APART);
            if now_seen != seen || first_thread_has_ended() || self.is_short() {
                return now_seen;
            }
        }
    }

    /// Sleeps for `most`, or until it has been nudged more often than it has `seen`: what came while it looked wakes it
    /// at once. Returns how often it has been nudged.
    fn rest(&self, seen: u64, most: Duration) -> u64 {
        let nudges = lock(&self.trimmer.nudges);
        // A poisoned lock wakes at once, and the next rest is a whole one: the number is whole anyway.
        drop(self.trimmer.nudged.wait_timeout_while(nudges, most, |nudges| *nudges == seen));
        *lock(&self.trimmer.nudges)
    }

    /// Has the trimmer look at once, because the settings have changed or the pool is closed.
    pub fn nudge_trimmer(&self) {
        *lock(&self.trimmer.nudges) += 1;
        self.trimmer.nudged.notify_all();
    }
}
