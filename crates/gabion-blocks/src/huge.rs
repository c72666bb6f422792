//! Whether huge pages pay here and now.
//!
//! They make random access cheaper everywhere, but what their first touch costs differs by machine and by the hour: a
//! tenth of small pages' where the system has whole ones ready, several times as much where it must first find or fetch
//! them. So the first huge page of a mapping that asks for them has its first touch timed. When that was too dear, the
//! rest of the mapping and the next ones go without, twice as many each time in a row. When it was not, the next ones
//! are trusted, twice as many each time up to a few: what is timed is resident, and nobody may ever write there. It is
//! timed by the thread's own clock: waiting for a processor says nothing about memory.
//!
//! What went without is not lost: memory that is lent again and again is moved onto huge pages step by step, as soon as
//! the system has cheap ones; and a block that a set has filled is left to the system, which moves it in its own time
//! ([`BlockSet::note_touched`](crate::BlockSet::note_touched)).

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::os::{Os, thread_time};
use crate::{PAGE_BYTES, SYSTEM_PAGE};

/// A huge page is worth this many times the first touch of the same bytes in small pages. What it saves in address
/// translation is paid back within a few reads of each object; and on a virtual machine a first touch may be dear
/// because the host has to find memory, which the thread that touches it first pays for, in small pages or large ones.
const WORTH: u32 = 4;

/// How many mappings go without after a first touch that was too dear, and at most after many in a row.
const REST: u32 = 32;
const LONGEST_REST: u32 = 1024;

/// How many mappings are trusted after a first touch that was not too dear, at most.
const LONGEST_TRUST: u32 = 8;

pub(crate) const HUGE_PAGE: usize = 2 << 20;

/// The most that one call moves onto huge pages: some 10 ms of copying.
const STEP: usize = 16 * HUGE_PAGE;

/// Mappings that still go without. Process-wide, like the memory they come from; a race costs a wrong guess.
static RESTING: AtomicU32 = AtomicU32::new(0);

/// How many will go without after the next first touch that is too dear.
static NEXT_REST: AtomicU32 = AtomicU32::new(REST);

/// Mappings that get huge pages untimed, and how many will after the next first touch that is not too dear.
static TRUSTED: AtomicU32 = AtomicU32::new(0);
static NEXT_TRUST: AtomicU32 = AtomicU32::new(1);

/// What a huge page may cost in nanoseconds, from the first touch of small pages, measured once; 0 before that. A plain
/// number, because a forked child could wait for ever for another thread's measurement.
static BOUND: AtomicU64 = AtomicU64::new(0);

/// Asks for huge pages under a fresh mapping, or a part of one, where they pay. True when all of it will have them, or
/// may.
///
/// # Safety
/// The range lies inside one live mapping. It is `bytes` long, at least [`HUGE_PAGE`]; it begins at a multiple of that,
/// reads as zero, and nobody writes to it yet. Others may read its words by atomic operations.
pub(crate) unsafe fn prepare(os: &dyn Os, base: NonNull<u8>, bytes: usize) -> bool {
    if !wanted(os) {
        return false;
    }
    if counted_down(&TRUSTED) {
        // SAFETY: inside the mapping (duty of the caller).
        unsafe { os.advise_huge(base, bytes) };
        return true;
    }
    // SAFETY: the duty of the caller, passed on.
    unsafe { timed(os, base, bytes) }
}

/// As [`prepare`]; and where it is true, the first huge page is there.
///
/// # Safety
/// As for [`prepare`].
pub(crate) unsafe fn prepare_there(os: &dyn Os, base: NonNull<u8>, bytes: usize) -> bool {
    // SAFETY: the duty of the caller, passed on.
    wanted(os) && unsafe { timed(os, base, bytes) }
}

/// Asks for huge pages after a look at what the first one costs. True when all get them.
///
/// # Safety
/// As for [`prepare`].
unsafe fn timed(os: &dyn Os, base: NonNull<u8>, bytes: usize) -> bool {
    // SAFETY: inside the mapping (duty of the caller), whose first word is aligned and zero already.
    let dear = unsafe {
        os.advise_huge(base, HUGE_PAGE);
        let first_word: &AtomicU64 = base.cast().as_ref();
        too_dear(os, || first_word.store(0, Ordering::Relaxed))
    };
    if !pays(!dear) {
        return false;
    }
    // Relaxed, as with all of these numbers: nothing hangs on the order of guesses.
    let trust = NEXT_TRUST.load(Ordering::Relaxed);
    TRUSTED.store(trust, Ordering::Relaxed);
    NEXT_TRUST.store((2 * trust).min(LONGEST_TRUST), Ordering::Relaxed);
    if bytes > HUGE_PAGE {
        // SAFETY: as above.
        unsafe { os.advise_huge(base.add(HUGE_PAGE), bytes - HUGE_PAGE) };
    }
    true
}

/// Moves the next part of a mapping that lies on small pages onto huge ones, where they pay. `done` bytes of it are
/// dealt with before this call; returns how many are after it. Contents stay.
///
/// # Safety
/// The mapping is `bytes` long and live, and `base` is at a multiple of [`HUGE_PAGE`].
pub(crate) unsafe fn gather(os: &dyn Os, base: NonNull<u8>, bytes: usize, done: usize) -> usize {
    let step = (bytes - done).min(STEP) / HUGE_PAGE * HUGE_PAGE;
    if step == 0 || !wanted(os) {
        return done;
    }
    // What was just mapped may have one huge page, its first, and its last may never have been touched.
    let probe = done + step / HUGE_PAGE / 2 * HUGE_PAGE;
    let mut moved = false;
    // SAFETY: inside the mapping (duty of the caller).
    let dear = too_dear(os, || moved = unsafe { os.gather(base.add(probe), HUGE_PAGE) });
    if !pays(moved && !dear) {
        return done;
    }
    // SAFETY: as above. What it cannot move stays as it is.
    unsafe { os.gather(base.add(done), step) };
    done + step
}

/// Notes whether a huge page was worth its price.
fn pays(worth: bool) -> bool {
    if worth {
        NEXT_REST.store(REST, Ordering::Relaxed);
    } else {
        let rest = NEXT_REST.load(Ordering::Relaxed);
        RESTING.store(rest, Ordering::Relaxed);
        TRUSTED.store(0, Ordering::Relaxed);
        NEXT_TRUST.store(1, Ordering::Relaxed);
        NEXT_REST.store((2 * rest).min(LONGEST_REST), Ordering::Relaxed);
    }
    worth
}

/// True when the next mapping should ask for huge pages.
fn wanted(os: &dyn Os) -> bool {
    !counted_down(&RESTING) && bound(os).is_some()
}

/// Takes one of the mappings that go without a look, if there are any left.
fn counted_down(left: &AtomicU32) -> bool {
    // Relaxed: as above. Two threads may take the same one.
    let count = left.load(Ordering::Relaxed);
    left.store(count.saturating_sub(1), Ordering::Relaxed);
    count > 0
}

/// Whether it takes too long to get a huge page.
fn too_dear(os: &dyn Os, get: impl FnOnce()) -> bool {
    let start = thread_time();
    get();
    bound(os).is_some_and(|bound| thread_time().saturating_sub(start) > bound)
}

fn bound(os: &dyn Os) -> Option<Duration> {
    // Relaxed: the number is the whole message.
    let bound = BOUND.load(Ordering::Relaxed);
    if bound > 0 {
        return Some(Duration::from_nanos(bound));
    }
    // No memory to measure with: not now, and nothing is remembered.
    let base = os.map(PAGE_BYTES, SYSTEM_PAGE).ok()?;
    let start = thread_time();
    for page in 0..PAGE_BYTES / SYSTEM_PAGE {
        // SAFETY: inside the mapping just made, which is ours alone and aligned to pages.
        unsafe { base.add(page * SYSTEM_PAGE).cast::<AtomicU64>().as_ref() }.store(1, Ordering::Relaxed);
    }
    let took = thread_time().saturating_sub(start);
    // SAFETY: the range of the map above, not used again.
    unsafe { os.unmap(base, PAGE_BYTES) };
    let bound = took * (HUGE_PAGE / PAGE_BYTES) as u32 * WORTH;
    BOUND.store(bound.as_nanos().max(1) as u64, Ordering::Relaxed);
    Some(bound)
}

#[cfg(test)]
#[expect(clippy::cast_ptr_alignment, reason = "mapped memory is aligned to pages")]
mod tests {
    use super::*;
    use crate::os::system;

    /// A door whose huge pages cost what the test says: the clock is the thread's own, so it is spent, not slept.
    #[derive(Debug)]
    struct Priced {
        dear: bool,
        asked: std::sync::Mutex<Vec<(usize, usize)>>,
        base: NonNull<u8>,
    }

    // SAFETY: the pointer is only compared with others; all else may be used by any thread.
    unsafe impl Send for Priced {}
    // SAFETY: as above.
    unsafe impl Sync for Priced {}

    // SAFETY: every promise is kept by the real system, to which each call is passed on.
    unsafe impl Os for Priced {
        fn map(&self, bytes: usize, align: usize) -> Result<NonNull<u8>, i32> {
            system().map(bytes, align)
        }

        unsafe fn unmap(&self, at: NonNull<u8>, bytes: usize) {
            // SAFETY: the caller's duty, passed on.
            unsafe { system().unmap(at, bytes) };
        }

        unsafe fn decommit(&self, _: NonNull<u8>, _: usize) {}

        unsafe fn populate(&self, _: NonNull<u8>, _: usize) {}

        unsafe fn advise_huge(&self, _: NonNull<u8>, _: usize) {}

        unsafe fn advise_small(&self, _: NonNull<u8>, _: usize) {}

        unsafe fn gather(&self, at: NonNull<u8>, bytes: usize) -> bool {
            self.asked.lock().unwrap().push((at.addr().get() - self.base.addr().get(), bytes));
            let (start, bound) = (thread_time(), bound(self).unwrap());
            while self.dear && thread_time().saturating_sub(start) <= bound {}
            true
        }
    }

    #[test]
    fn memory_is_gathered_step_by_step_where_that_is_cheap_and_rests_where_it_is_dear() {
        let bytes = STEP + 3 * HUGE_PAGE + (1 << 20);
        let base = NonNull::new(std::ptr::without_provenance_mut(1 << 40)).unwrap();
        let mut door = Priced { dear: false, asked: std::sync::Mutex::default(), base };
        // Other tests map memory meanwhile, and may find it dear: only then is nothing asked for.
        let gather = |door: &Priced, done| {
            (0..=2 * LONGEST_REST).find_map(|_| {
                // SAFETY: this door does nothing with the range.
                let after = unsafe { super::gather(door, base, bytes, done) };
                (!door.asked.lock().unwrap().is_empty()).then_some(after)
            })
        };
        assert_eq!(gather(&door, 0), Some(STEP));
        assert_eq!(*door.asked.lock().unwrap(), [(STEP / 2, HUGE_PAGE), (0, STEP)]);
        door.asked.lock().unwrap().clear();
        assert_eq!(gather(&door, STEP), Some(STEP + 3 * HUGE_PAGE), "the last step is shorter");
        assert_eq!(*door.asked.lock().unwrap(), [(STEP + HUGE_PAGE, HUGE_PAGE), (STEP, 3 * HUGE_PAGE)]);
        door.asked.lock().unwrap().clear();
        // SAFETY: as above.
        assert_eq!(unsafe { super::gather(&door, base, bytes, STEP + 3 * HUGE_PAGE) }, STEP + 3 * HUGE_PAGE);
        assert_eq!(*door.asked.lock().unwrap(), [], "what is left is shorter than a huge page");

        door.dear = true;
        assert_eq!(gather(&door, 0), Some(0));
        assert_eq!(*door.asked.lock().unwrap(), [(STEP / 2, HUGE_PAGE)]);
        // SAFETY: as above.
        assert_eq!(unsafe { super::gather(&door, base, bytes, 0) }, 0);
        assert_eq!(door.asked.lock().unwrap().len(), 1, "it was too dear a moment ago");
    }

    /// What was lent and not written to was half resident: a huge page of each block.
    #[test]
    fn few_mappings_are_touched_where_huge_pages_are_cheap() {
        let base = NonNull::from(Box::leak(Box::new(1_u64)));
        let door = Priced { dear: false, asked: std::sync::Mutex::default(), base: base.cast() };
        let touched = || {
            // SAFETY: this door does nothing with the range, whose first word alone is set.
            let touched = (0..100).map(|_| unsafe {
                base.write(1);
                prepare(&door, base.cast(), HUGE_PAGE).then(|| base.read() == 0)
            });
            touched.collect::<Option<Vec<_>>>()
        };
        // Other tests map memory meanwhile, and may find it dear: then some go without.
        let touched = (0..2 * LONGEST_REST).find_map(|_| touched()).expect("a moment without dear memory");
        let count = touched.iter().filter(|touched| **touched).count();
        assert!(count <= 100 / LONGEST_TRUST as usize + 6, "{count} of 100");
    }

    #[test]
    fn gathered_memory_keeps_what_it_holds() {
        let bytes = 4 * HUGE_PAGE;
        let base = system().map(bytes, 2 * HUGE_PAGE).unwrap();
        // SAFETY: fresh memory of that size, ours alone until it is unmapped.
        let words = unsafe { std::slice::from_raw_parts(base.as_ptr().cast::<AtomicU64>(), bytes / 8) };
        for (index, word) in words.iter().enumerate().step_by(100) {
            word.store(index as u64, Ordering::Relaxed);
        }
        // SAFETY: the range of the map.
        unsafe { system().gather(base, bytes) };
        for (index, word) in words.iter().enumerate() {
            let expected = if index % 100 == 0 { index as u64 } else { 0 };
            assert_eq!(word.load(Ordering::Relaxed), expected);
        }
        // SAFETY: the range of the map; the words are not used again.
        unsafe { system().unmap(base, bytes) };
    }
}
