//! The functions that NumPy calls: four for each of two handlers, which have `any_free` in common.
//!
//! They may run on any thread, raise nothing, and answer "no memory" by null. `context` is not NumPy's own: which
//! functions are called and with which context cannot be changed in one step, so those in NumPy's handler ignore it.

use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use gabion_blocks::pool::{Pool, Request};

use super::api::Allocator;
use crate::detached::Detached;
use crate::ffi;

/// Clearing more than this is done without the interpreter, so that other threads go on.
const LONG_WORK: usize = 1 << 20;

/// NumPy's own functions, as they were found.
pub(super) static NUMPY: OnceLock<Numpys> = OnceLock::new();

/// From how many bytes on the process's arrays are pooled; `usize::MAX` when nothing is installed.
pub(super) static PROCESS_MIN: AtomicUsize = AtomicUsize::new(usize::MAX);

pub(super) struct Numpys(pub Allocator);

// SAFETY: four functions that NumPy itself calls from every thread, and their context, which they share.
unsafe impl Send for Numpys {}
// SAFETY: as above; never changed after it is set.
unsafe impl Sync for Numpys {}

/// NumPy's functions. Set before any function below can be called.
#[inline]
fn numpy() -> &'static Allocator {
    match NUMPY.get() {
        Some(found) => &found.0,
        None => std::process::abort(),
    }
}

#[inline]
fn process_min() -> usize {
    // Relaxed: an array made beside install() or uninstall() may belong to either side.
    PROCESS_MIN.load(Ordering::Relaxed)
}

/// From how many bytes on the arrays of a `pooled()` are pooled.
///
/// # Safety
/// `context` is that of a handler which `calls::_numpy_handler` made: it points to a number that lives for ever.
#[inline]
unsafe fn scope_min(context: *mut c_void) -> usize {
    // SAFETY: as the caller promised.
    unsafe { *context.cast::<usize>() }
}

#[cold]
#[inline(never)]
fn rent(bytes: usize, clean: bool) -> *mut c_void {
    match Pool::global().rent(&Request { bytes, clean, timeout: None }) {
        Ok(memory) => memory.into_raw().as_ptr().cast(),
        Err(_) => ptr::null_mut(),
    }
}

/// As `rent`, but a long clearing leaves the interpreter to others where there is one lock for all.
#[cold]
#[inline(never)]
fn rent_clean(bytes: usize) -> *mut c_void {
    // SAFETY: may be asked by every thread.
    let long = bytes > LONG_WORK && cfg!(not(Py_GIL_DISABLED)) && unsafe { ffi::PyGILState_Check() } == 1;
    // SAFETY: attached, as the line above has asked. NumPy's own function lets go of the interpreter at this place, too
    // (up to NumPy 2.4), and `rent` has nothing of it.
    let _away = long.then(|| unsafe { Detached::begin() });
    rent(bytes, true)
}

#[inline]
unsafe fn malloc(min: usize, bytes: usize) -> *mut c_void {
    if bytes >= min {
        return rent(bytes, false);
    }
    let numpy = numpy();
    // SAFETY: NumPy's own function, called as NumPy calls it.
    unsafe { (numpy.malloc)(numpy.context, bytes) }
}

#[inline]
unsafe fn calloc(min: usize, count: usize, size: usize) -> *mut c_void {
    match count.checked_mul(size) {
        Some(bytes) if bytes >= min => return rent_clean(bytes),
        Some(_) => {}
        None => return ptr::null_mut(),
    }
    let numpy = numpy();
    // SAFETY: NumPy's own function, called as NumPy calls it.
    unsafe { (numpy.calloc)(numpy.context, count, size) }
}

/// Moves memory between the two worlds as its size asks for.
///
/// What is not the pool's stays where it is, however long it grows: its old length is not known, and the system moves
/// large mappings without a copy.
unsafe fn realloc(min: usize, old: *mut c_void, bytes: usize) -> *mut c_void {
    let pool = Pool::global();
    let numpy = numpy();
    let Some(usable) = pool.owns(old.cast()) else {
        // SAFETY: NumPy's own function and memory that came from its malloc, calloc or realloc, or null.
        return unsafe { (numpy.realloc)(numpy.context, old, bytes) };
    };
    let fits = bytes <= usable;
    if fits && bytes >= min && bytes >= usable / 2 {
        return old;
    }
    // SAFETY: as this function's own caller promised.
    let fresh = unsafe { malloc(min, bytes) };
    if fresh.is_null() {
        // To shrink is not to fail.
        return if fits { old } else { ptr::null_mut() };
    }
    // SAFETY: the old memory has `usable` bytes, the fresh one `bytes`, and they are two pieces.
    unsafe { ptr::copy_nonoverlapping(old.cast::<u8>(), fresh.cast::<u8>(), usable.min(bytes)) };
    if let Some(old) = NonNull::new(old.cast()) {
        // SAFETY: the pool says that it is its own; NumPy gives it up with this call.
        unsafe { pool.return_raw(old) };
    }
    fresh
}

#[inline]
unsafe fn free(memory: *mut c_void, bytes: usize) {
    let pool = Pool::global();
    if let (Some(_), Some(memory)) = (pool.owns(memory.cast()), NonNull::new(memory.cast())) {
        // SAFETY: the pool says that it is its own; NumPy gives it up with this call, once.
        unsafe { pool.return_raw(memory) };
        return;
    }
    let numpy = numpy();
    // SAFETY: NumPy's own function, with memory of its own.
    unsafe { (numpy.free)(numpy.context, memory, bytes) }
}

// The seven functions below are called by NumPy, with its promises: sizes are right, memory is given up once and came
// from the same handler.

pub(super) unsafe extern "C" fn process_malloc(_context: *mut c_void, bytes: usize) -> *mut c_void {
    // SAFETY: NumPy's promises.
    unsafe { malloc(process_min(), bytes) }
}

pub(super) unsafe extern "C" fn process_calloc(_context: *mut c_void, count: usize, size: usize) -> *mut c_void {
    // SAFETY: NumPy's promises.
    unsafe { calloc(process_min(), count, size) }
}

pub(super) unsafe extern "C" fn process_realloc(_context: *mut c_void, old: *mut c_void, bytes: usize) -> *mut c_void {
    // SAFETY: NumPy's promises.
    unsafe { realloc(process_min(), old, bytes) }
}

pub(super) unsafe extern "C" fn any_free(_context: *mut c_void, memory: *mut c_void, bytes: usize) {
    // SAFETY: NumPy's promises.
    unsafe { free(memory, bytes) }
}

pub(super) unsafe extern "C" fn scope_malloc(context: *mut c_void, bytes: usize) -> *mut c_void {
    // SAFETY: NumPy passes the context of the handler; its promises.
    unsafe { malloc(scope_min(context), bytes) }
}

pub(super) unsafe extern "C" fn scope_calloc(context: *mut c_void, count: usize, size: usize) -> *mut c_void {
    // SAFETY: as above.
    unsafe { calloc(scope_min(context), count, size) }
}

pub(super) unsafe extern "C" fn scope_realloc(context: *mut c_void, old: *mut c_void, bytes: usize) -> *mut c_void {
    // SAFETY: as above.
    unsafe { realloc(scope_min(context), old, bytes) }
}
