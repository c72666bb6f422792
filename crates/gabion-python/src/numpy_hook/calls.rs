//! `install`, `uninstall`, `pooled`.

use std::fs;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use gabion_blocks::pool::Pool;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use super::api::{Allocator, Api, Handler, capsule_of, handler_in};
use super::handler::{self, NUMPY, Numpys, PROCESS_MIN};
use crate::errors::exception;

/// NumPy's own handler, its functions known.
fn numpys_handler(py: Python<'_>, api: &Api) -> PyResult<*mut Handler> {
    let handler = handler_in(&api.default_handler(py))?;
    // SAFETY: the struct lives as long as NumPy. Before the first call of this function nobody but NumPy has set its
    // fields; later ones change nothing, because the first result stays.
    NUMPY.get_or_init(|| Numpys(unsafe { (*handler).allocator }));
    Ok(handler)
}

/// Puts our functions into NumPy's own handler.
#[pyfunction]
fn _numpy_install(py: Python<'_>, min_bytes: usize) -> PyResult<()> {
    let api = Api::import(py)?;
    let handler = numpys_handler(py, &api)?;
    // SAFETY: as above.
    if unsafe { (*handler).version } == 0 || !is_writable(handler.addr()) {
        let text = "this NumPy does not let its memory handler be changed: use gabion.numpy.pooled() in each thread";
        return Err(exception(&py.get_type::<PyRuntimeError>(), text));
    }
    // Release, and free first: whoever sees our malloc sees the free that knows its memory.
    // SAFETY: fields of a struct that lives as long as NumPy, writable as seen above, each an aligned pointer, which
    // NumPy reads in one load. The functions have the forms that the fields ask for.
    unsafe {
        let allocator = &raw mut (*handler).allocator;
        store(&raw mut (*allocator).free, handler::any_free);
        store(&raw mut (*allocator).realloc, handler::process_realloc);
        store(&raw mut (*allocator).malloc, handler::process_malloc);
        store(&raw mut (*allocator).calloc, handler::process_calloc);
    }
    // Relaxed: see process_min().
    PROCESS_MIN.store(min_bytes.max(1), Ordering::Relaxed);
    Ok(())
}

/// Writes one function of a handler.
///
/// # Safety
/// `field` is a field of a handler: alive, aligned, of the size of a pointer, and read in one load.
unsafe fn store<F: Copy>(field: *mut F, function: F) {
    const { assert!(size_of::<F>() == size_of::<AtomicUsize>()) };
    // SAFETY: a function pointer is as large as a pointer (asserted above).
    let function = unsafe { std::mem::transmute_copy::<F, *mut ()>(&function) };
    // SAFETY: the duty of the caller; others only read the field.
    unsafe { AtomicPtr::from_ptr(field.cast::<*mut ()>()).store(function, Ordering::Release) };
}

/// Has new arrays come from where they came before: no size is large enough any more. The functions stay, so that
/// whoever installs or uninstalls beside it changes one number, and none of another's functions is taken out.
#[pyfunction]
fn _numpy_uninstall() {
    // Relaxed: see process_min().
    PROCESS_MIN.store(usize::MAX, Ordering::Relaxed);
}

/// From how many bytes on the process's arrays are pooled, or None.
#[pyfunction]
fn _numpy_installed() -> Option<usize> {
    // Relaxed: a figure for people.
    Some(PROCESS_MIN.load(Ordering::Relaxed)).filter(|bytes| *bytes != usize::MAX)
}

/// A handler that pools from `min_bytes` on. Arrays refer to it, so it lives for ever: ask once for each number.
#[pyfunction]
fn _numpy_handler(py: Python<'_>, min_bytes: usize) -> PyResult<Bound<'_, PyAny>> {
    numpys_handler(py, &Api::import(py)?)?;
    let mut name = [0; 127];
    name[..6].copy_from_slice(b"gabion");
    let allocator = Allocator {
        context: ptr::from_mut(Box::leak(Box::new(min_bytes.max(1)))).cast(),
        malloc: handler::scope_malloc,
        calloc: handler::scope_calloc,
        realloc: handler::scope_realloc,
        free: handler::any_free,
    };
    capsule_of(py, Box::leak(Box::new(Handler { name, version: 1, allocator })))
}

/// Has `handler` make the new arrays of this context; returns the one before.
#[pyfunction]
fn _numpy_set_handler<'py>(handler: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    Api::import(handler.py())?.set_handler(handler)
}

/// Whether an array's memory, by its address, is the pool's.
#[pyfunction]
fn _numpy_owns(address: usize) -> bool {
    Pool::global().owns(ptr::without_provenance(address)).is_some()
}

/// False when the system says that the page of this address must not be written. Where it says nothing, data is taken
/// to be writable, as C's globals are.
fn is_writable(address: usize) -> bool {
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let line = maps.lines().find_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let (first, last) = fields.next()?.split_once('-')?;
        let range = usize::from_str_radix(first, 16).ok()?..usize::from_str_radix(last, 16).ok()?;
        range.contains(&address).then(|| fields.next().unwrap_or_default().contains('w'))
    });
    line.unwrap_or(true)
}

/// Adds the functions to the extension module.
pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(_numpy_install, m)?)?;
    m.add_function(wrap_pyfunction!(_numpy_uninstall, m)?)?;
    m.add_function(wrap_pyfunction!(_numpy_installed, m)?)?;
    m.add_function(wrap_pyfunction!(_numpy_handler, m)?)?;
    m.add_function(wrap_pyfunction!(_numpy_set_handler, m)?)?;
    m.add_function(wrap_pyfunction!(_numpy_owns, m)?)
}
