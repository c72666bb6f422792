//! Memory as Arrow C data: an array of uint8 without nulls, or of lists of so many.

use std::ffi::{CStr, c_char, c_void};
use std::ptr;

use pyo3::prelude::*;

use crate::ffi;

const SCHEMA: &CStr = c"arrow_schema";
const ARRAY: &CStr = c"arrow_array";
/// uint8, in Arrow's letters.
const UINT8: &CStr = c"C";
/// Lists of two, three and four items.
const LISTS: [&CStr; 3] = [c"+w:2", c"+w:3", c"+w:4"];

#[repr(C)]
struct Schema {
    format: *const c_char,
    name: *const c_char,
    metadata: *const c_char,
    flags: i64,
    child_count: i64,
    children: *mut *mut Schema,
    dictionary: *mut Schema,
    release: Option<unsafe extern "C" fn(*mut Schema)>,
    private: *mut c_void,
}

#[repr(C)]
struct Array {
    length: i64,
    null_count: i64,
    offset: i64,
    buffer_count: i64,
    child_count: i64,
    buffers: *mut *const c_void,
    children: *mut *mut Array,
    dictionary: *mut Array,
    release: Option<unsafe extern "C" fn(*mut Array)>,
    private: *mut c_void,
}

/// What an exported array needs as long as it is alive: no bitmap of nulls, the bytes, and what keeps them alive. An
/// array of lists has its items as a child.
struct Export<H> {
    buffers: [*const c_void; 2],
    child: *mut Array,
    _hold: H,
}

/// A structure of the C data interface in a capsule: the consumer moves it out and calls `release`; else the capsule
/// does.
trait Structure: Sized {
    const NAME: &'static CStr;
    fn release(&self) -> Option<unsafe extern "C" fn(*mut Self)>;
}

impl Structure for Schema {
    const NAME: &'static CStr = SCHEMA;
    fn release(&self) -> Option<unsafe extern "C" fn(*mut Self)> {
        self.release
    }
}

impl Structure for Array {
    const NAME: &'static CStr = ARRAY;
    fn release(&self) -> Option<unsafe extern "C" fn(*mut Self)> {
        self.release
    }
}

/// The capsule of the type: uint8, or lists of `items` of them.
pub(crate) fn schema(py: Python<'_>, items: usize) -> PyResult<Py<PyAny>> {
    let bytes = Schema {
        format: UINT8.as_ptr(),
        name: c"".as_ptr(),
        metadata: ptr::null(),
        flags: 0,
        child_count: 0,
        children: ptr::null_mut(),
        dictionary: ptr::null_mut(),
        release: Some(release_schema),
        private: ptr::null_mut(),
    };
    let Some(format) = LISTS.get(items.wrapping_sub(2)) else { return wrap(py, bytes) };
    let child = Box::into_raw(Box::new(Schema { name: c"item".as_ptr(), ..bytes }));
    // The list of the one child.
    let children = Box::into_raw(Box::new(child));
    let lists = Schema {
        format: format.as_ptr(),
        child_count: 1,
        children,
        release: Some(release_list_schema),
        name: c"".as_ptr(),
        metadata: ptr::null(),
        flags: 0,
        dictionary: ptr::null_mut(),
        private: ptr::null_mut(),
    };
    wrap(py, lists)
}

/// The capsule of `length` bytes from `start` on, which `hold` keeps alive and whose end may be on any thread.
///
/// # Safety
/// These bytes stay there as long as `hold` lives.
pub(crate) unsafe fn array<H: Send>(py: Python<'_>, start: *mut u8, length: usize, hold: H) -> PyResult<Py<PyAny>> {
    wrap(py, bytes(start, length, hold))
}

/// The capsule of `length` lists of `items` bytes from `start` on.
///
/// # Safety
/// As [`array`].
pub(crate) unsafe fn lists<H: Send + Clone>(
    py: Python<'_>,
    start: *mut u8,
    length: usize,
    items: usize,
    hold: H,
) -> PyResult<Py<PyAny>> {
    // Consumers may take the child away from the list: each has a hold of its own.
    let child = Box::into_raw(Box::new(bytes(start, length * items, hold.clone())));
    let export = Box::into_raw(Box::new(Export { buffers: [ptr::null(); 2], child, _hold: hold }));
    // SAFETY: the box was made here; what is pointed to lies in it until `release_array` takes it back.
    let (buffers, children) = unsafe { ((&raw mut (*export).buffers).cast(), &raw mut (*export).child) };
    wrap(
        py,
        Array {
            length: length as i64,
            null_count: 0,
            offset: 0,
            buffer_count: 1,
            child_count: 1,
            buffers,
            children,
            dictionary: ptr::null_mut(),
            release: Some(release_array::<H>),
            private: export.cast(),
        },
    )
}

fn bytes<H>(start: *mut u8, length: usize, hold: H) -> Array {
    let buffers = [ptr::null(), start.cast_const().cast()];
    let export = Box::into_raw(Box::new(Export { buffers, child: ptr::null_mut(), _hold: hold }));
    Array {
        length: length as i64,
        null_count: 0,
        offset: 0,
        buffer_count: 2,
        child_count: 0,
        // SAFETY: the box was made here; the list lies in it until `release_array` takes it back.
        buffers: unsafe { (&raw mut (*export).buffers).cast() },
        children: ptr::null_mut(),
        dictionary: ptr::null_mut(),
        release: Some(release_array::<H>),
        private: export.cast(),
    }
}

fn wrap<S: Structure>(py: Python<'_>, structure: S) -> PyResult<Py<PyAny>> {
    let structure = Box::into_raw(Box::new(structure));
    // SAFETY: attached; the pointer is not null, the name static; `forget` takes capsules of this structure.
    let capsule = unsafe { ffi::PyCapsule_New(structure.cast(), S::NAME.as_ptr(), Some(forget::<S>)) };
    if capsule.is_null() {
        // SAFETY: no capsule took the structure over.
        unsafe { discard(structure) };
        return Err(PyErr::fetch(py));
    }
    // SAFETY: attached; a new reference.
    Ok(unsafe { Bound::from_owned_ptr(py, capsule) }.unbind())
}

/// The end of a capsule: of its structure, too, unless a consumer has moved that out.
unsafe extern "C" fn forget<S: Structure>(capsule: *mut ffi::PyObject) {
    // SAFETY: called by the interpreter with a capsule that `wrap` made, of this structure under this name, which no
    // consumer changes.
    unsafe { discard(ffi::PyCapsule_GetPointer(capsule, S::NAME.as_ptr()).cast::<S>()) }
}

/// # Safety
/// `structure` came from `wrap`'s box and is not used again.
unsafe fn discard<S: Structure>(structure: *mut S) {
    // SAFETY: as the caller promised. Whoever moved the content out has set `release` to null.
    unsafe {
        if let Some(release) = (*structure).release() {
            release(structure);
        }
        drop(Box::from_raw(structure));
    }
}

unsafe extern "C" fn release_schema(schema: *mut Schema) {
    // SAFETY: called once with a schema that is alive; it owns nothing.
    unsafe { (*schema).release = None };
}

unsafe extern "C" fn release_list_schema(schema: *mut Schema) {
    // SAFETY: called once with a schema that is alive; `children` is the box of `schema()`, and the child one too.
    unsafe {
        let children = Box::from_raw((*schema).children);
        discard(*children);
        (*schema).release = None;
    }
}

/// Ends an export. Called once, on any thread, with or without the interpreter.
unsafe extern "C" fn release_array<H>(array: *mut Array) {
    // SAFETY: called once with an array that is alive (possibly moved); `private` is a box of `bytes()` or `lists()`,
    // and so is its child, if it has one.
    unsafe {
        let export = Box::from_raw((*array).private.cast::<Export<H>>());
        if !export.child.is_null() {
            discard(export.child);
        }
        (*array).release = None;
    }
}
