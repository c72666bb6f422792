//! Guards around the interpreter's functions that may run Python code or wait, whoever calls them: see
//! [`ffi`](crate::ffi).
//!
//! PyO3 calls them without one. So the linker puts a guard before each: where code refers to `X`, it gets the
//! `__wrap_X` of this file, and `__real_X` is the interpreter's own (`--wrap=X`). `build.rs` reads the names from here.
//! Whatever makes an object that the collector watches belongs here as well, because that may be when the collector
//! runs. A function that some builds of an interpreter call and others do not, as `_Py_DecRef`, has its guard in all of
//! them: the linker looks for it.
//!
//! A call by a pointer has no name: PyO3's `call1` of one argument is such a call, [`ffi`](crate::ffi) has another.
//!
//! Functions whose addresses are compared with slots of classes must not stand here: `PyObject_GenericGetAttr`,
//! `PyObject_GenericSetAttr`, `PyType_GenericAlloc`.

use std::arch::global_asm;
use std::ffi::{c_char, c_double, c_int, c_long, c_void};
use std::mem::forget;

use crate::ffi::{Park, Py_buffer, PyCompilerFlags, PyMethodDef, PyObject, PyThreadState, PyType_Spec, PyTypeObject};

type Object = *mut PyObject;

macro_rules! guard {
    ($($(#[$when:meta])? fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty;)*) => {$(
        $(#[$when])?
        const _: () = {
            unsafe extern "C-unwind" {
                #[link_name = concat!("__real_", stringify!($name))]
                fn real($($arg: $type),*) -> $result;
            }

            #[unsafe(export_name = concat!("__wrap_", stringify!($name)))]
            unsafe extern "C-unwind" fn guarded($($arg: $type),*) -> $result {
                let park = Park;
                // SAFETY: the caller keeps the function's own duties.
                let result = unsafe { real($($arg),*) };
                forget(park);
                result
            }
        };

        // For this library alone: another one may have guards of the same names.
        $(#[$when])?
        global_asm!(concat!(".hidden __wrap_", stringify!($name)));
    )*};
}

guard! {
    fn PyObject_Call(callable: Object, args: Object, keywords: Object) -> Object;
    fn PyObject_CallNoArgs(callable: Object) -> Object;
    fn PyObject_Vectorcall(callable: Object, args: *const Object, count: usize, names: Object) -> Object;
    fn PyObject_VectorcallDict(callable: Object, args: *const Object, count: usize, keywords: Object) -> Object;
    fn PyObject_VectorcallMethod(name: Object, args: *const Object, count: usize, names: Object) -> Object;
    fn _PyObject_MakeTpCall(
        state: *mut PyThreadState, callable: Object, args: *const Object, count: isize, names: Object
    ) -> Object;
    fn PyObject_GetAttr(object: Object, name: Object) -> Object;
    fn PyUnicode_FSConverter(object: Object, result: *mut c_void) -> c_int;
    fn PyObject_GetAttrString(object: Object, name: *const c_char) -> Object;
    #[cfg(Py_3_13)]
    fn PyObject_GetOptionalAttr(object: Object, name: Object, result: *mut Object) -> c_int;
    fn PyObject_SetAttr(object: Object, name: Object, value: Object) -> c_int;
    fn PyObject_SetAttrString(object: Object, name: *const c_char, value: Object) -> c_int;
    fn PyObject_GenericGetDict(object: Object, context: *mut c_void) -> Object;
    fn PyObject_GenericSetDict(object: Object, value: Object, context: *mut c_void) -> c_int;
    fn PyObject_GetItem(object: Object, key: Object) -> Object;
    fn PyObject_Hash(object: Object) -> isize;
    fn PyObject_SetItem(object: Object, key: Object, value: Object) -> c_int;
    fn PyObject_DelItem(object: Object, key: Object) -> c_int;
    fn PyObject_GetIter(object: Object) -> Object;
    fn PyObject_IsInstance(object: Object, class: Object) -> c_int;
    fn PyObject_IsSubclass(class: Object, base: Object) -> c_int;
    fn PyObject_IsTrue(object: Object) -> c_int;
    fn PyObject_Repr(object: Object) -> Object;
    fn PyObject_Str(object: Object) -> Object;
    fn PyObject_Size(object: Object) -> isize;
    fn PyObject_RichCompare(left: Object, right: Object, operator: c_int) -> Object;
    fn PyObject_RichCompareBool(left: Object, right: Object, operator: c_int) -> c_int;
    fn PyObject_GetBuffer(object: Object, view: *mut Py_buffer, flags: c_int) -> c_int;
    fn PyObject_ClearWeakRefs(object: Object) -> ();
    fn PyBuffer_Release(view: *mut Py_buffer) -> ();
    fn PyMemoryView_FromObject(object: Object) -> Object;
    fn PyMemoryView_FromMemory(start: *mut c_char, length: isize, flags: c_int) -> Object;
    fn PyIter_Next(iterator: Object) -> Object;
    fn PyNumber_Index(object: Object) -> Object;
    fn PyLong_AsLong(object: Object) -> c_long;
    fn PyFloat_AsDouble(object: Object) -> c_double;
    fn PyOS_FSPath(path: Object) -> Object;
    fn PyUnicode_AsEncodedString(text: Object, encoding: *const c_char, errors: *const c_char) -> Object;
    fn PyUnicode_Split(text: Object, separator: Object, most: isize) -> Object;
    fn PySequence_Contains(sequence: Object, item: Object) -> c_int;
    fn PySequence_GetSlice(sequence: Object, from: isize, to: isize) -> Object;
    fn PySequence_Tuple(object: Object) -> Object;
    fn PyTuple_New(length: isize) -> Object;
    fn PyTuple_GetSlice(tuple: Object, from: isize, to: isize) -> Object;
    fn PyList_New(length: isize) -> Object;
    fn PyDict_New() -> Object;
    fn PyDict_GetItemWithError(dict: Object, key: Object) -> Object;
    #[cfg(Py_3_13)]
    fn PyDict_GetItemRef(dict: Object, key: Object, result: *mut Object) -> c_int;
    fn PyDict_SetItem(dict: Object, key: Object, value: Object) -> c_int;
    fn PyDict_Items(dict: Object) -> Object;
    fn PySet_New(iterable: Object) -> Object;
    fn PyFrozenSet_New(iterable: Object) -> Object;
    fn PySet_Add(set: Object, key: Object) -> c_int;
    fn PyGC_Collect() -> isize;
    fn PyCMethod_New(method: *mut PyMethodDef, owner: Object, module: Object, class: *mut PyTypeObject) -> Object;
    fn PyDescr_NewMethod(class: *mut PyTypeObject, method: *mut PyMethodDef) -> Object;
    fn PyType_FromSpec(spec: *mut PyType_Spec) -> Object;
    fn PyCapsule_Import(name: *const c_char, no_block: c_int) -> *mut c_void;
    fn PyImport_Import(name: Object) -> Object;
    fn PyImport_ImportModule(name: *const c_char) -> Object;
    fn Py_CompileStringExFlags(
        text: *const c_char, file: *const c_char, start: c_int, flags: *mut PyCompilerFlags, optimize: c_int
    ) -> Object;
    fn PyEval_EvalCode(code: Object, globals: Object, locals: Object) -> Object;
    fn PyException_SetCause(error: Object, cause: Object) -> ();
    fn PyException_SetTraceback(error: Object, traceback: Object) -> c_int;
    fn PyErr_CheckSignals() -> c_int;
    fn PyErr_Clear() -> ();
    fn PyErr_NewExceptionWithDoc(name: *const c_char, doc: *const c_char, base: Object, dict: Object) -> Object;
    fn PyErr_NormalizeException(class: *mut Object, value: *mut Object, traceback: *mut Object) -> ();
    fn PyErr_PrintEx(set_last: c_int) -> ();
    fn PyErr_Restore(class: Object, value: Object, traceback: Object) -> ();
    #[cfg(Py_3_12)]
    fn PyErr_SetRaisedException(error: Object) -> ();
    fn PyErr_SetObject(class: Object, value: Object) -> ();
    fn PyErr_SetString(class: Object, text: *const c_char) -> ();
    fn PyErr_WriteUnraisable(object: Object) -> ();
    fn PyTraceBack_Print(traceback: Object, file: Object) -> c_int;
    fn PyEval_RestoreThread(state: *mut PyThreadState) -> ();
    fn Py_DecRef(object: Object) -> ();
    fn _Py_Dealloc(object: Object) -> ();
    fn _Py_DecRef(object: Object) -> ();
    #[cfg(Py_GIL_DISABLED)]
    fn PyCriticalSection_Begin(section: *mut crate::ffi::PyCriticalSection, object: Object) -> ();
    #[cfg(Py_GIL_DISABLED)]
    fn PyCriticalSection_End(section: *mut crate::ffi::PyCriticalSection) -> ();
}
