//! What the C library's malloc keeps: no memory of the pool's, but given back by its clock.
//!
//! Image codecs, and what Python makes of their results, take memory from malloc, and glibc keeps most of what is freed
//! there: as gaps within a heap for each thread. So code that uses such a library says so, and once none has for a
//! whole period, or as soon as memory is short, malloc is asked to give the gaps back: once, until it is said again.

use super::policy::QUARTERS;
use super::shared::Shared;
use crate::sync::{Ordering, lock};

impl Shared {
    /// Says that a library worked on memory of malloc's. True when somebody must see to it that there is a trimmer.
    pub fn note_malloc(&self) -> bool {
        // Relaxed, here and below: the flag is all that is told, and changes under the lock of the watch only. A thread
        // that sees it set beside a look that clears it counts for the quarter that is just ending.
        if self.malloc_used.load(Ordering::Relaxed) {
            return false;
        }
        let _watch = lock(&self.watch);
        self.malloc_used.store(true, Ordering::Relaxed);
        true
    }

    /// Has malloc give back what it keeps, if it is time: `quarters` have ended since the last look, or memory is
    /// `short`.
    pub fn trim_malloc(&self, quarters: u64, short: bool) {
        let due = {
            let mut watch = lock(&self.watch);
            if self.malloc_used.swap(false, Ordering::Relaxed) {
                watch.malloc_rests = Some(0);
            } else if let Some(rests) = &mut watch.malloc_rests {
                *rests += quarters;
            }
            let due = watch.malloc_rests.is_some_and(|rests| short || rests >= u64::from(QUARTERS));
            if due {
                watch.malloc_rests = None;
            }
            due
        };
        if due && lock(&self.settings).trim_malloc {
            self.os.trim_malloc();
        }
    }

    /// True when malloc has given back what it can since the last note.
    pub fn malloc_trimmed(&self) -> bool {
        let watch = lock(&self.watch);
        watch.malloc_rests.is_none() && !self.malloc_used.load(Ordering::Relaxed)
    }
}
