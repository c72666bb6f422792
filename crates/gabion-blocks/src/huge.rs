//! Whether huge pages pay here and now.
//!
//! They make random access cheaper everywhere, but what their first touch costs differs by machine and by the hour: a
//! tenth of small pages' where the system has whole ones ready, several times as much where it must first find or fetch
//! them. So the first huge page of each mapping that asks for them has its first touch timed. When that was too dear,
//! the rest of the mapping and the next ones go without, twice as many each time in a row. It is timed by the thread's
//! own clock: waiting for a processor says nothing about memory.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::PAGE_BYTES;
use crate::os::{Os, thread_time};

/// A huge page is worth this many times the first touch of the same bytes in small pages: what it saves in address
/// translation is paid back within a few reads of each object.
const WORTH: u32 = 2;

/// How many mappings go without after a first touch that was too dear, and at most after many in a row.
const REST: u32 = 32;
const LONGEST_REST: u32 = 1024;

const SMALL_PAGE: usize = 4096;
pub(crate) const HUGE_PAGE: usize = 2 << 20;

/// Mappings that still go without. Process-wide, like the memory they come from; a race costs a wrong guess.
static RESTING: AtomicU32 = AtomicU32::new(0);

/// How many will go without after the next first touch that is too dear.
static NEXT_REST: AtomicU32 = AtomicU32::new(REST);

/// What a huge page may cost in nanoseconds, from the first touch of small pages, measured once; 0 before that. A plain
/// number, because a forked child could wait for ever for another thread's measurement.
static BOUND: AtomicU64 = AtomicU64::new(0);

/// Asks for huge pages under a fresh mapping, where they pay.
///
/// # Safety
/// The mapping is `bytes` long, at least [`HUGE_PAGE`]; it begins at a multiple of that, reads as zero, and is nobody's
/// yet.
pub(crate) unsafe fn prepare(os: &dyn Os, base: NonNull<u8>, bytes: usize) {
    if !wanted(os) {
        return;
    }
    // SAFETY: inside the mapping (duty of the caller), whose first word is aligned and zero already.
    let dear = unsafe {
        os.advise_huge(base, HUGE_PAGE);
        too_dear(os, base.cast().as_ref())
    };
    if dear {
        let rest = NEXT_REST.load(Ordering::Relaxed);
        RESTING.store(rest, Ordering::Relaxed);
        NEXT_REST.store((2 * rest).min(LONGEST_REST), Ordering::Relaxed);
        return;
    }
    NEXT_REST.store(REST, Ordering::Relaxed);
    if bytes > HUGE_PAGE {
        // SAFETY: as above.
        unsafe { os.advise_huge(base.add(HUGE_PAGE), bytes - HUGE_PAGE) };
    }
}

/// True when the next mapping should ask for huge pages.
fn wanted(os: &dyn Os) -> bool {
    // Relaxed, here and above: nothing hangs on the order of guesses.
    let resting = RESTING.load(Ordering::Relaxed);
    if resting > 0 {
        RESTING.store(resting - 1, Ordering::Relaxed);
        return false;
    }
    bound(os).is_some()
}

/// Times the first touch of a huge page.
fn too_dear(os: &dyn Os, first_word: &AtomicU64) -> bool {
    let start = thread_time();
    first_word.store(0, Ordering::Relaxed);
    bound(os).is_some_and(|bound| thread_time().saturating_sub(start) > bound)
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
