//! Objects that all threads hand out. Without a global lock, their counts of references are where those threads would
//! meet.

use pyo3::prelude::*;

/// Makes an object immortal that lives as long as the process anyway, as `None` is: who hands it out then writes
/// nothing to it (PEP 703, "Immortalization"). With a global lock, counting is cheap, and nothing is done.
///
/// # Safety
/// No other thread knows the object yet.
#[cfg(Py_GIL_DISABLED)]
pub(crate) unsafe fn immortalize(object: &Bound<'_, PyAny>) {
    use std::sync::atomic::Ordering::Relaxed;

    use crate::ffi;

    /// The count of an object's own thread that says that there is nothing to count.
    const IMMORTAL: u32 = u32::MAX;

    let object = object.as_ptr();
    // SAFETY: a live object, and this thread alone uses it, so that plain stores to its head do, in any order. As the
    // interpreter does with its own: the collector leaves out what is never freed.
    unsafe {
        if ffi::PyObject_IS_GC(object) != 0 {
            ffi::PyObject_GC_UnTrack(object.cast());
        }
        (*object).ob_tid = 0;
        (*object).ob_ref_local.store(IMMORTAL, Relaxed);
        (*object).ob_ref_shared.store(0, Relaxed);
    }
}

#[cfg(not(Py_GIL_DISABLED))]
pub(crate) unsafe fn immortalize(_object: &Bound<'_, PyAny>) {}
