//! Whether huge pages pay here and now.
//!
//! They make random access cheaper everywhere, but what their first touch costs differs by machine and by the hour: a
//! tenth of small pages' where the system has whole ones ready, several times as much where it must first find or fetch
//! them. So each block that asks for huge pages has its first touch timed, and when that was too dear the next blocks
//! go without. It is timed by the thread's own clock: waiting for a processor says nothing about memory.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::PAGE_BYTES;
use crate::os::{Os, thread_time};

/// A huge page is worth this many times the first touch of the same bytes in small pages: what it saves in address
/// translation is paid back within a few reads of each object.
const WORTH: u32 = 2;

/// How many blocks go without after a first touch that was too dear.
const REST: u32 = 31;

const SMALL_PAGE: usize = 4096;
pub(crate) const HUGE_PAGE: usize = 2 << 20;

/// Blocks that still go without. Process-wide, like the memory they come from; a race costs a wrong guess.
static RESTING: AtomicU32 = AtomicU32::new(0);

/// What a huge page may cost in nanoseconds, from the first touch of small pages, measured once; 0 before that. A plain
/// number, because a forked child could wait for ever for another thread's measurement.
static BOUND: AtomicU64 = AtomicU64::new(0);

/// True when the next block should ask for huge pages.
pub(crate) fn wanted(os: &dyn Os) -> bool {
    // Relaxed: nothing hangs on the order of guesses.
    let resting = RESTING.load(Ordering::Relaxed);
    if resting > 0 {
        RESTING.store(resting - 1, Ordering::Relaxed);
        return false;
    }
    bound(os).is_some()
}

/// Times the first touch of a block that has asked for huge pages, and draws the lesson for the next ones.
pub(crate) fn touch(os: &dyn Os, first_word: &AtomicU64) {
    let start = thread_time();
    first_word.store(0, Ordering::Relaxed);
    if bound(os).is_some_and(|bound| thread_time().saturating_sub(start) > bound) {
        RESTING.store(REST, Ordering::Relaxed);
    }
}

fn bound(os: &dyn Os) -> Option<Duration> {
    // Relaxed: the number is the whole message.
    let bound = BOUND.load(Ordering::Relaxed);
    if bound > 0 {
        return Some(Duration::from_nanos(bound));
    }
    // No memory to measure with: not now, and nothing is remembered.
    let base = os.map(PAGE_BYTES, SMALL_PAGE).ok()?;
    let start = thread_time();
    for page in 0..PAGE_BYTES / SMALL_PAGE {
        // SAFETY: inside the mapping just made, which is ours alone and aligned to pages.
        unsafe { base.add(page * SMALL_PAGE).cast::<AtomicU64>().as_ref() }.store(1, Ordering::Relaxed);
    }
    let took = thread_time().saturating_sub(start);
    // SAFETY: the range of the map above, not used again.
    unsafe { os.unmap(base, PAGE_BYTES) };
    let bound = took * (HUGE_PAGE / PAGE_BYTES) as u32 * WORTH;
    BOUND.store(bound.as_nanos().max(1) as u64, Ordering::Relaxed);
    Some(bound)
}
