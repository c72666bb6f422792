//! Memory as a DLPack tensor: uint8 in C order, writable, on the CPU. The layouts are those of DLPack 0.8 (`dltensor`)
//! and 1.0 (`dltensor_versioned`).

use std::ffi::{CStr, c_void};
use std::ptr;

use pyo3::prelude::*;

use super::refusal;
use crate::ffi;

/// The kind number of a CPU in DLPack.
const CPU: i32 = 1;

/// The device that all memory here belongs to, in DLPack's numbers: the CPU.
pub(crate) const DEVICE: (i32, i32) = (CPU, 0);

const UNSIGNED: u8 = 1;
const IS_COPIED: u64 = 1 << 1;
const LEGACY: &CStr = c"dltensor";
const VERSIONED: &CStr = c"dltensor_versioned";

#[repr(C)]
struct Device {
    kind: i32,
    number: i32,
}

#[repr(C)]
struct DataType {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device: Device,
    dimensions: i32,
    dtype: DataType,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

#[repr(C)]
struct Managed {
    tensor: Tensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Managed)>,
}

#[repr(C)]
struct ManagedVersioned {
    version: [u32; 2],
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut ManagedVersioned)>,
    flags: u64,
    tensor: Tensor,
}

/// What a consumer's pointer points to: the structure that it knows, and behind it what that needs.
#[repr(C)]
struct Export<M, H, const N: usize> {
    managed: M,
    shape: [i64; N],
    strides: [i64; N],
    hold: H,
}

/// Refuses a stream, and another device than the CPU. `what` says in the error what was to be exported.
pub(crate) fn check(
    py: Python<'_>,
    what: &str,
    stream: Option<&Bound<'_, PyAny>>,
    device: Option<(i32, i32)>,
) -> PyResult<()> {
    if stream.is_some() {
        let text = format!("{what} is memory of the CPU, which has no streams: pass stream=None");
        return Err(refusal::buffer_error(py, &text));
    }
    if let Some(device) = device.filter(|device| *device != DEVICE) {
        let text = format!("{what} is memory of the CPU, (1, 0), and cannot be exported to device {device:?}");
        return Err(refusal::buffer_error(py, &text));
    }
    Ok(())
}

/// A capsule for the bytes from `start` on, in `shape` and without gaps, which `hold` keeps alive and whose end may be
/// on any thread. `versioned` when the consumer knows DLPack 1.
///
/// # Safety
/// From `start` on there are that many bytes, and they stay there as long as `hold` lives.
pub(crate) unsafe fn capsule<H: Send, const N: usize>(
    py: Python<'_>,
    start: *mut u8,
    shape: [i64; N],
    hold: H,
    versioned: bool,
    copied: bool,
) -> PyResult<Py<PyAny>> {
    let mut strides = [1; N];
    for dimension in (1..N).rev() {
        strides[dimension - 1] = strides[dimension] * shape[dimension];
    }
    let tensor = Tensor {
        data: start.cast(),
        device: Device { kind: CPU, number: 0 },
        dimensions: N as i32,
        dtype: DataType { code: UNSIGNED, bits: 8, lanes: 1 },
        shape: ptr::null_mut(),
        strides: ptr::null_mut(),
        byte_offset: 0,
    };
    if versioned {
        let flags = if copied { IS_COPIED } else { 0 };
        let (context, deleter) = (ptr::null_mut(), Some(delete::<ManagedVersioned, H, N> as _));
        let managed = ManagedVersioned { version: [1, 0], context, deleter, flags, tensor };
        wrap(py, Export { managed, shape, strides, hold }, VERSIONED, forget_versioned::<H, N>)
    } else {
        let managed = Managed { tensor, context: ptr::null_mut(), deleter: Some(delete::<Managed, H, N> as _) };
        wrap(py, Export { managed, shape, strides, hold }, LEGACY, forget_legacy::<H, N>)
    }
}

/// The two forms of a managed tensor.
trait Form {
    fn tensor(&mut self) -> &mut Tensor;
}

impl Form for Managed {
    fn tensor(&mut self) -> &mut Tensor {
        &mut self.tensor
    }
}

impl Form for ManagedVersioned {
    fn tensor(&mut self) -> &mut Tensor {
        &mut self.tensor
    }
}

fn wrap<M: Form, H, const N: usize>(
    py: Python<'_>,
    export: Export<M, H, N>,
    name: &'static CStr,
    forget: unsafe extern "C" fn(*mut ffi::PyObject),
) -> PyResult<Py<PyAny>> {
    let export = Box::into_raw(Box::new(export));
    // SAFETY: the box was made here and nobody else knows it. Shape and strides lie in it, so they stay where they are
    // until it is deleted.
    unsafe {
        let (shape, strides) = (&raw mut (*export).shape, &raw mut (*export).strides);
        let tensor = (*export).managed.tensor();
        (tensor.shape, tensor.strides) = (shape.cast(), strides.cast());
    }
    // SAFETY: attached; the pointer is not null, the name static; the destructor has the form that capsules ask for.
    let capsule = unsafe { ffi::PyCapsule_New(export.cast(), name.as_ptr(), Some(forget)) };
    if capsule.is_null() {
        // SAFETY: no capsule took the box over.
        drop(unsafe { Box::from_raw(export) });
        return Err(PyErr::fetch(py));
    }
    // SAFETY: attached; a new reference.
    Ok(unsafe { Bound::from_owned_ptr(py, capsule) }.unbind())
}

/// Ends an export. Consumers call it once, on any thread, with or without the interpreter.
unsafe extern "C" fn delete<M, H, const N: usize>(managed: *mut M) {
    // SAFETY: the structure is the first field of an `Export<M, H, N>` (repr C) that `wrap` put into a box, and a
    // consumer calls its deleter once.
    drop(unsafe { Box::from_raw(managed.cast::<Export<M, H, N>>()) });
}

unsafe extern "C" fn forget_legacy<H, const N: usize>(capsule: *mut ffi::PyObject) {
    // SAFETY: called by the interpreter with a capsule that holds this kind of structure.
    unsafe { forget::<Managed, H, N>(capsule, LEGACY) }
}

unsafe extern "C" fn forget_versioned<H, const N: usize>(capsule: *mut ffi::PyObject) {
    // SAFETY: called by the interpreter with a capsule that holds this kind of structure.
    unsafe { forget::<ManagedVersioned, H, N>(capsule, VERSIONED) }
}

/// The end of a capsule: of its tensor, too, unless a consumer has taken that over, which it says by another name.
///
/// # Safety
/// `capsule` is a capsule that `wrap` made with an `Export<M, H, N>`.
unsafe fn forget<M, H, const N: usize>(capsule: *mut ffi::PyObject, name: &CStr) {
    // SAFETY: attached, as the interpreter is when it destroys an object; the capsule is alive.
    if unsafe { ffi::PyCapsule_IsValid(capsule, name.as_ptr()) } == 1 {
        // SAFETY: a capsule under its first name still owns the structure (duty of the caller says which).
        unsafe { delete::<M, H, N>(ffi::PyCapsule_GetPointer(capsule, name.as_ptr()).cast()) };
    }
}
