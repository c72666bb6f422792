//! What Python's own tools see of memory that is not on its heap: `tracemalloc` and `sys.getsizeof`.
//!
//! NumPy tells tracemalloc of its arrays itself, those on the pool as well. So it is told here of what Python's objects
//! rent, and never by the pool, which would count those twice.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use pyo3::prelude::*;

use crate::ffi;

/// What stands for gabion's memory among the domains of tracemalloc. Any number will do that nobody else has: Python's
/// own is 0, NumPy's 389047.
const DOMAIN: u32 = 424_270;

/// Memory that tracemalloc knows of, until `end`, or until it is dropped.
pub(crate) struct Traced(AtomicUsize);

/// Tells tracemalloc of memory that was rented just now, if it is tracing. If not, this is a call that looks at a flag.
/// A group and an image are one thing each, which begins where its first part does.
#[inline]
pub(crate) fn trace(_py: Python<'_>, start: Option<NonNull<u8>>, nbytes: usize) -> Option<Traced> {
    let address = start.filter(|_| nbytes > 0)?.addr().get();
    // SAFETY: attached (`_py`), where it notes the call stack; any number may stand for an address.
    let told = unsafe { ffi::PyTraceMalloc_Track(DOMAIN, address, nbytes) };
    // Not while nothing is traced, and not where there was no memory for it.
    (told == 0).then(|| Traced(AtomicUsize::new(address)))
}

impl Traced {
    /// To be called before the memory goes back: from then on it may be another's, who is told of it, too.
    pub(crate) fn end(&self) {
        // Relaxed: whoever ends the memory's life is alone with it.
        let address = self.0.swap(0, Ordering::Relaxed);
        if address != 0 {
            // SAFETY: may be called by every thread, without the interpreter and after its end; does nothing for what
            // is not traced any more.
            unsafe { ffi::PyTraceMalloc_Untrack(DOMAIN, address) };
        }
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        self.end();
    }
}

/// What an object takes on Python's own heap, for `__sizeof__`.
pub(crate) fn basic_size<T>(object: &Bound<'_, T>) -> usize {
    // SAFETY: a live object has a live class.
    unsafe { (*ffi::Py_TYPE(object.as_ptr())).tp_basicsize as usize }
}
