//! NumPy's table of C functions, as far as it concerns memory (`numpy/__multiarray_api.h`).

use std::ffi::{CStr, c_uint, c_void};

use pyo3::exceptions::{PyModuleNotFoundError, PyRuntimeError};
use pyo3::prelude::*;

use crate::errors::exception;
use crate::ffi::{self, PyObject};
use crate::once::import;

/// The name that NumPy gives the capsules of handlers.
pub(super) const CAPSULE: &CStr = c"mem_handler";

// Places in the table.
const FEATURE_VERSION: usize = 211;
const SET_HANDLER: usize = 304;
const DEFAULT_HANDLER: usize = 306;

/// The feature version of NumPy 1.22, the first with handlers.
const HANDLERS: c_uint = 0xf;

pub(super) type Malloc = unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void;
pub(super) type Calloc = unsafe extern "C" fn(*mut c_void, usize, usize) -> *mut c_void;
pub(super) type Realloc = unsafe extern "C" fn(*mut c_void, *mut c_void, usize) -> *mut c_void;
pub(super) type Free = unsafe extern "C" fn(*mut c_void, *mut c_void, usize);

/// `PyDataMemAllocator`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Allocator {
    pub context: *mut c_void,
    pub malloc: Malloc,
    pub calloc: Calloc,
    pub realloc: Realloc,
    pub free: Free,
}

/// `PyDataMem_Handler`, version 1. Later versions may only add fields at the end.
#[repr(C)]
pub(super) struct Handler {
    pub name: [u8; 127],
    pub version: u8,
    pub allocator: Allocator,
}

/// NumPy's table.
pub(super) struct Api(*const *mut c_void);

impl Api {
    /// Imports NumPy.
    ///
    /// # Errors
    /// `ModuleNotFoundError` when NumPy is not there; `RuntimeError` when it is too old.
    pub(super) fn import(py: Python<'_>) -> PyResult<Self> {
        let module = match import(py, c"numpy._core._multiarray_umath") {
            Err(error) if error.is_instance_of::<PyModuleNotFoundError>(py) => {
                import(py, c"numpy.core._multiarray_umath") // NumPy 1
            }
            imported => imported,
        }?;
        let capsule = module.getattr("_ARRAY_API")?;
        // SAFETY: attached; a capsule, or an error is set. NumPy names it not.
        let table = unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), std::ptr::null()) };
        if table.is_null() {
            return Err(PyErr::fetch(py));
        }
        let api = Self(table.cast());
        // SAFETY: this function has stood at this place since NumPy 1.7.
        let version = unsafe {
            let version: unsafe extern "C" fn() -> c_uint = std::mem::transmute(api.entry(FEATURE_VERSION));
            version()
        };
        if version < HANDLERS {
            let text = "gabion.numpy needs NumPy 1.22 or newer: this one has no memory handlers";
            return Err(exception(&py.get_type::<PyRuntimeError>(), text));
        }
        Ok(api)
    }

    /// # Safety
    /// `place` is below the length of the table, which the feature version tells.
    unsafe fn entry(&self, place: usize) -> *mut c_void {
        // SAFETY: the table lives as long as NumPy, which is never unloaded; the duty of the caller.
        unsafe { *self.0.add(place) }
    }

    /// The capsule of NumPy's own handler.
    pub(super) fn default_handler<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        // SAFETY: the table has this place (feature version): the address of a variable with a capsule, which NumPy
        // keeps for ever.
        unsafe {
            let variable = self.entry(DEFAULT_HANDLER).cast::<*mut PyObject>();
            Bound::from_borrowed_ptr(py, *variable)
        }
    }

    /// Has `capsule` make the new arrays of this context; returns the one before.
    pub(super) fn set_handler<'py>(&self, capsule: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        // SAFETY: the table has this place (feature version), with a function of this form; attached. NumPy checks the
        // capsule and takes a reference of its own; the result is a new reference or null with an error set.
        unsafe {
            let set: unsafe extern "C" fn(*mut PyObject) -> *mut PyObject =
                std::mem::transmute(self.entry(SET_HANDLER));
            Bound::from_owned_ptr_or_err(capsule.py(), set(capsule.as_ptr()))
        }
    }
}

/// The struct in a handler's capsule.
pub(super) fn handler_in(capsule: &Bound<'_, PyAny>) -> PyResult<*mut Handler> {
    // SAFETY: attached; the struct of a capsule of this name, or null with an error set.
    let handler = unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), CAPSULE.as_ptr()) };
    if handler.is_null() { Err(PyErr::fetch(capsule.py())) } else { Ok(handler.cast()) }
}

/// A capsule of a handler of ours.
pub(super) fn capsule_of<'py>(py: Python<'py>, handler: &'static Handler) -> PyResult<Bound<'py, PyAny>> {
    let handler = std::ptr::from_ref(handler).cast_mut().cast();
    // SAFETY: attached; the struct and the name live for ever, so the capsule needs no destructor; a new reference or
    // null with an error set. NumPy only reads the struct.
    unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyCapsule_New(handler, CAPSULE.as_ptr(), None)) }
}
