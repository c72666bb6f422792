//! What stands for the system when Miri runs the tests: it knows little of `mmap`, and nothing of forks.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use super::door::Os;
use crate::sync::{Mutex, lock};

/// Memory of the language's own allocator.
#[derive(Debug)]
pub(super) struct Language;

/// What was allocated at an address, and how many of its bytes, from the first on, are still mapped.
static MAPPINGS: Mutex<BTreeMap<usize, (Layout, usize)>> = Mutex::new(BTreeMap::new());

// SAFETY: fresh memory of the size and alignment, zeroed, which is freed with its first byte and not before.
unsafe impl Os for Language {
    fn map(&self, bytes: usize, align: usize) -> Result<NonNull<u8>, i32> {
        let layout = Layout::from_size_align(bytes, align).map_err(|_| libc::ENOMEM)?;
        if bytes == 0 || bytes > 1 << 30 {
            return Err(libc::ENOMEM);
        }
        // SAFETY: the layout is not empty.
        let at = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(libc::ENOMEM)?;
        lock(&MAPPINGS).insert(at.addr().get(), (layout, bytes));
        Ok(at)
    }

    unsafe fn unmap(&self, at: NonNull<u8>, bytes: usize) {
        let start = at.addr().get();
        let mut mappings = lock(&MAPPINGS);
        let (&base, &(layout, left)) = mappings.range(..=start).next_back().expect("it is mapped");
        assert_eq!(base + left, start + bytes, "the end of a mapping");
        if base == start {
            mappings.remove(&base);
            // SAFETY: as it was allocated, and nobody uses any of it any more (duty of the caller).
            unsafe { dealloc(at.as_ptr(), layout) };
        } else {
            mappings.insert(base, (layout, left - bytes));
        }
    }

    unsafe fn decommit(&self, at: NonNull<u8>, bytes: usize) {
        #[expect(clippy::cast_ptr_alignment, reason = "the range is aligned to pages")]
        // SAFETY: mapped, aligned to pages, and accessed by atomic operations only (caller's duty).
        let words = unsafe { std::slice::from_raw_parts(at.as_ptr().cast::<AtomicU64>(), bytes / 8) };
        for word in words {
            word.store(0, Ordering::Relaxed);
        }
    }

    unsafe fn populate(&self, _: NonNull<u8>, _: usize) {}

    unsafe fn advise_huge(&self, _: NonNull<u8>, _: usize) {}

    unsafe fn advise_small(&self, _: NonNull<u8>, _: usize) {}

    unsafe fn gather(&self, _: NonNull<u8>, _: usize) -> bool {
        false
    }
}
