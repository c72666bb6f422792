//! The interpreter's C functions, with one addition before Python 3.14: a call may never return.
//!
//! When the interpreter ends, a daemon thread that wants to run Python code, or that has waited for a lock, is ended on
//! the spot, in the midst of the call (`pthread_exit`). That unwinds the thread's stack, which Rust does not survive:
//! destructors would run without the interpreter, and `catch_unwind` ends the whole process. From 3.14 on such a thread
//! waits for ever instead (<https://github.com/python/cpython/issues/87135>). Before, the functions below do so: those
//! of the interpreter's that this crate calls and that may run Python code or wait. A guard in the frame that calls
//! stops the unwinding there, because its destructor never ends. Rust leaves open whether destructors run in an
//! unwinding of this kind; they do, PyO3 counts on it for `PyGILState_Ensure`, and `tests/test_pile_gc.py` would find
//! out.
//!
//! What PyO3 calls by itself has no such guard. On Linux the linker puts one before each of those functions, whoever
//! calls it: see `guards`. Elsewhere code that may run Python code calls these as far as can be.

#![allow(non_snake_case, reason = "the interpreter's names")]

pub use pyo3::ffi::*;

use std::ffi::{CStr, c_char, c_int, c_uint};
use std::ptr;

/// Whether this is the process's first interpreter. Classes that are known here, and what the module keeps for the life
/// of the process, belong to one interpreter: in another, they would outlive it, or be taken for equal names of its
/// own.
pub(crate) fn in_main_interpreter(_py: pyo3::Python<'_>) -> bool {
    // SAFETY: attached, as the token says; both only read pointers that are there.
    unsafe { PyInterpreterState_Get() == PyInterpreterState_Main() }
}

/// Dropped by unwinding only: waits for ever.
#[cfg(not(Py_3_14))]
pub(crate) struct Park;

#[cfg(not(Py_3_14))]
impl Drop for Park {
    fn drop(&mut self) {
        loop {
            std::thread::park();
        }
    }
}

/// Calls a C function through a pointer that the compiler knows nothing about, with a guard around the call.
///
/// # Safety
/// That of the function.
macro_rules! guarded {
    ($function:expr, ($($arg:ident: $type:ty),*) -> $result:ty) => {{
        #[cfg(Py_3_14)]
        {
            let function: unsafe extern "C" fn($($type),*) -> $result = $function;
            function($($arg),*)
        }
        #[cfg(not(Py_3_14))]
        {
            type Function = unsafe extern "C-unwind" fn($($type),*) -> $result;
            let function: unsafe extern "C" fn($($type),*) -> $result = $function;
            // Opaque, because the declaration says that the function does not unwind. The two types differ by this
            // permission alone.
            let function = std::mem::transmute::<*const (), Function>(std::hint::black_box(function as *const ()));
            let park = Park;
            let result = function($($arg),*);
            std::mem::forget(park);
            result
        }
    }};
}

/// Declares functions of the interpreter under their own names, with a guard.
macro_rules! declare {
    ($(fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty;)*) => {$(
        #[doc = concat!("`", stringify!($name), "`, as the interpreter documents it.\n\n# Safety\nAs there.")]
        #[inline(always)]
        pub unsafe fn $name($($arg: $type),*) -> $result {
            // SAFETY: the caller keeps the function's own duties.
            unsafe { guarded!(pyo3::ffi::$name, ($($arg: $type),*) -> $result) }
        }
    )*};
}

type Object = *mut PyObject;

mod private {
    unsafe extern "C" {
        #[cfg(not(Py_GIL_DISABLED))]
        pub fn _PyType_Lookup(class: *mut super::PyTypeObject, name: super::Object) -> super::Object;
        #[cfg(Py_GIL_DISABLED)]
        pub fn _PyType_LookupRef(class: *mut super::PyTypeObject, name: super::Object) -> super::Object;
    }
}

/// Finds a name in the classes of a class's resolution order; a new reference, null when absent, no error set. It also
/// gives the class a version number when it has none.
///
/// New, because without a GIL another thread may take the name from the class before the caller has a look at what was
/// found.
///
/// # Safety
/// A live class and a string.
pub unsafe fn PyType_Lookup(class: *mut PyTypeObject, name: Object) -> Object {
    // SAFETY: as the caller promised; with a GIL, what is found is borrowed from the class, and nothing runs until it
    // is shared.
    unsafe {
        #[cfg(not(Py_GIL_DISABLED))]
        {
            let found = guarded!(private::_PyType_Lookup, (class: *mut PyTypeObject, name: Object) -> Object);
            Py_XINCREF(found);
            found
        }
        #[cfg(Py_GIL_DISABLED)]
        {
            guarded!(private::_PyType_LookupRef, (class: *mut PyTypeObject, name: Object) -> Object)
        }
    }
}

unsafe extern "C" {
    /// As the interpreter documents it.
    pub fn PyTraceMalloc_Track(domain: c_uint, address: usize, size: usize) -> c_int;
    /// As the interpreter documents it.
    pub fn PyTraceMalloc_Untrack(domain: c_uint, address: usize) -> c_int;
}

#[cfg(Py_3_12)]
unsafe extern "C" {
    /// As the interpreter documents it.
    pub fn PyDict_AddWatcher(told: unsafe extern "C" fn(c_int, Object, Object, Object) -> c_int) -> c_int;
    /// As the interpreter documents it.
    pub fn PyDict_Watch(watcher: c_int, dict: Object) -> c_int;
}

// Where the linker puts guards before functions (see `guards`), these have theirs already.
#[cfg(not(linker_guards))]
declare! {
    fn PyObject_Call(callable: Object, args: Object, keywords: Object) -> Object;
    fn PyObject_Vectorcall(callable: Object, args: *const Object, count: usize, names: Object) -> Object;
    fn PyObject_GetAttr(object: Object, name: Object) -> Object;
    fn PyObject_GetAttrString(object: Object, name: *const c_char) -> Object;
    fn PyObject_SetAttr(object: Object, name: Object, value: Object) -> c_int;
    fn PyObject_GenericGetDict(object: Object, context: *mut std::ffi::c_void) -> Object;
    fn PyObject_GetItem(object: Object, key: Object) -> Object;
    fn PyObject_SetItem(object: Object, key: Object, value: Object) -> c_int;
    fn PyObject_GetIter(object: Object) -> Object;
    fn PyObject_IsTrue(object: Object) -> c_int;
    fn PyObject_Repr(object: Object) -> Object;
    fn PyObject_Str(object: Object) -> Object;
    fn PyObject_Size(object: Object) -> isize;
    fn PyObject_RichCompareBool(left: Object, right: Object, operator: c_int) -> c_int;
    fn PyObject_GetBuffer(object: Object, view: *mut Py_buffer, flags: c_int) -> c_int;
    fn PyBuffer_Release(view: *mut Py_buffer) -> ();
    fn PyIter_Next(iterator: Object) -> Object;
    fn PyNumber_Index(object: Object) -> Object;
    fn PySequence_Tuple(object: Object) -> Object;
    fn PyDict_GetItemWithError(dict: Object, key: Object) -> Object;
    fn PyDict_SetItem(dict: Object, key: Object, value: Object) -> c_int;
    fn PyDict_Items(dict: Object) -> Object;
    fn PyGC_Collect() -> isize;
    fn PySet_Add(set: Object, key: Object) -> c_int;
    fn PyImport_Import(name: Object) -> Object;
    fn PyImport_ImportModule(name: *const c_char) -> Object;
    fn PyEval_RestoreThread(state: *mut PyThreadState) -> ();
    fn Py_DecRef(object: Object) -> ();
}

declare! {
    // Where the collector runs when an object is made (before 3.12), it may run finalizers.
    fn PyType_GenericAlloc(class: *mut PyTypeObject, items: isize) -> Object;
    fn PyObject_GenericSetAttr(object: Object, name: Object, value: Object) -> c_int;
    fn PyList_Append(list: Object, item: Object) -> c_int;
    fn PyUnicode_InternInPlace(text: *mut Object) -> ();
    fn PyUnicode_InternFromString(text: *const c_char) -> Object;
}

#[cfg(all(Py_GIL_DISABLED, not(linker_guards)))]
declare! {
    fn PyCriticalSection_Begin(section: *mut PyCriticalSection, object: Object) -> ();
    fn PyCriticalSection_End(section: *mut PyCriticalSection) -> ();
}

/// `Py_DECREF`: guarded where it may give up the last reference, whose end may run Python code.
///
/// # Safety
/// The caller owns the reference that is given up.
#[inline(always)]
pub unsafe fn Py_DECREF(object: Object) {
    // SAFETY: the caller's reference keeps the object alive until it is given up, which is done once.
    unsafe {
        #[cfg(not(Py_GIL_DISABLED))]
        if Py_REFCNT(object) != 1 {
            pyo3::ffi::Py_DECREF(object);
            return;
        }
        last(object);
    }
}

/// Apart from [`Py_DECREF`], which stands in many places.
#[inline(never)]
unsafe fn last(object: Object) {
    // SAFETY: as the caller promised.
    unsafe { Py_DecRef(object) }
}

/// `PyUnicode_IS_COMPACT_ASCII`, whose bit PyO3 does not read from 3.14 on: only such a string has its characters right
/// behind the short header.
///
/// # Safety
/// A live `str`.
#[cfg(Py_3_14)]
#[inline(always)]
pub unsafe fn PyUnicode_IS_COMPACT_ASCII(text: Object) -> std::ffi::c_uint {
    // SAFETY: a `str`, as the caller promised; the addresses are compared only.
    unsafe { (PyUnicode_DATA(text).cast::<u8>() == text.byte_add(size_of::<PyASCIIObject>()).cast()).into() }
}

/// Calls with positional arguments.
///
/// # Safety
/// All are live objects. The result is a new reference, or null with an error set.
#[inline]
pub unsafe fn call<const N: usize>(callable: Object, args: [Object; N]) -> Object {
    // SAFETY: the array holds as many arguments as are announced.
    unsafe { PyObject_Vectorcall(callable, args.as_ptr(), N, ptr::null_mut()) }
}

/// As [`call`], with one argument.
///
/// # Safety
/// As [`call`].
#[inline]
pub unsafe fn PyObject_CallOneArg(callable: Object, arg: Object) -> Object {
    // SAFETY: as the caller promised.
    unsafe { call(callable, [arg]) }
}

/// Calls a method without arguments.
///
/// # Safety
/// As [`call`].
pub unsafe fn call_method(object: Object, name: &CStr) -> Object {
    // SAFETY: `object` is live (duty of the caller), the name is a C string; the method is held over the call.
    unsafe {
        let method = PyObject_GetAttrString(object, name.as_ptr());
        if method.is_null() {
            return method;
        }
        let result = call(method, []);
        Py_DECREF(method);
        result
    }
}

/// Calls a class's `tp_new`.
///
/// # Safety
/// As the interpreter would call it: a live class, a tuple, a dict or null.
#[inline]
pub unsafe fn call_new(new: newfunc, class: *mut PyTypeObject, args: Object, keywords: Object) -> Object {
    // SAFETY: as the caller promised.
    unsafe { guarded!(new, (class: *mut PyTypeObject, args: Object, keywords: Object) -> Object) }
}
