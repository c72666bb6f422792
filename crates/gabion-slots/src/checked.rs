//! What the checked build does beside: it looks at everything before it frees, and fills what was freed.

use std::ptr::NonNull;

/// True in the checked build: with debug assertions, or with the feature `checked`.
pub(crate) const CHECKED: bool = cfg!(any(debug_assertions, feature = "checked"));

/// What freed memory is filled with.
const FREED: u8 = 0xDD;

/// Fills memory that is about to be freed.
///
/// # Safety
/// The range was handed out and is used by nobody any more.
#[inline(always)]
pub(crate) unsafe fn fill(at: NonNull<u8>, bytes: usize) {
    if CHECKED {
        // SAFETY: the caller's duty.
        unsafe { at.write_bytes(FREED, bytes) };
    }
}
