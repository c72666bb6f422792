//! Owned references, raised errors and the few facts about `PyObject` that the hot paths read directly.

use std::ffi::CStr;
use std::ptr::NonNull;

use pyo3::Borrowed;
use pyo3::prelude::*;

use crate::errors::{Errors, exception, own_error, shown};
use crate::ffi::{self, PyObject};
use crate::once::{Importing, intern};
use crate::result;

/// A Python error is set in this thread.
#[derive(Debug, Clone, Copy)]
pub struct Raised;

/// A result whose error lies in the interpreter, so that it costs nothing to pass on.
pub type Raise<T> = Result<T, Raised>;

/// One strong reference. The thread is attached wherever a value of this type lives.
#[repr(transparent)]
pub struct Own(NonNull<PyObject>);

impl Own {
    /// Takes over a new reference, or reports the error of a null.
    ///
    /// # Safety
    /// `ptr` is a reference that the caller owns, or null with a Python error set.
    #[inline(always)]
    pub unsafe fn take(ptr: *mut PyObject) -> Raise<Own> {
        NonNull::new(ptr).map(Own).ok_or(Raised)
    }

    /// Adds a reference to a borrowed object.
    ///
    /// # Safety
    /// `ptr` is a live object.
    #[inline(always)]
    pub unsafe fn share(ptr: *mut PyObject) -> Own {
        // SAFETY: live by the caller's word, hence not null.
        unsafe {
            ffi::Py_INCREF(ptr);
            Own(NonNull::new_unchecked(ptr))
        }
    }

    /// The object, borrowed.
    #[inline(always)]
    pub fn ptr(&self) -> *mut PyObject {
        self.0.as_ptr()
    }

    /// Hands the reference over.
    #[inline(always)]
    pub fn into_ptr(self) -> *mut PyObject {
        let ptr = self.0.as_ptr();
        std::mem::forget(self);
        ptr
    }
}

impl Drop for Own {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: this value owns one reference, and the thread is attached.
        unsafe { ffi::Py_DECREF(self.0.as_ptr()) }
    }
}

impl Clone for Own {
    fn clone(&self) -> Own {
        // SAFETY: kept alive by `self`.
        unsafe { Own::share(self.ptr()) }
    }
}

// SAFETY: a reference is only used while the thread is attached; layouts that hold one are shared between threads as
// CPython itself shares objects.
unsafe impl Send for Own {}
// SAFETY: as above.
unsafe impl Sync for Own {}

/// The same reference, as PyO3 has it.
pub fn as_py(own: &Own) -> &Py<PyAny> {
    // SAFETY: both are transparent over a non-null pointer to an owned object.
    unsafe { &*std::ptr::from_ref(own).cast() }
}

/// What an error of a class that may not be built says to do, up to the types themselves. Who opens a pile's file
/// otherwise says so in the place of these: see `_saving.py`.
pub const WHEN_OPENED: &str = "when you open the pile: ";
pub const PASS_TYPES: &str = "gabion.Pile(path=..., types=";

/// Raises `CodecError` with this message.
#[cold]
pub fn refuse(message: &str) -> Raised {
    // SAFETY: codec functions run attached.
    let py = unsafe { Python::assume_attached() };
    match Errors::get(py) {
        Ok(errors) => exception(errors.codec.bind(py), message).restore(py),
        Err(error) => error.restore(py),
    }
    Raised
}

/// Raises `LimitError` for an object whose encoding is longer than its owner has room for.
#[cold]
pub fn too_large(most: u64) -> Raised {
    // SAFETY: codec functions run attached.
    let py = unsafe { Python::assume_attached() };
    let text = format!(
        "an object takes more than {most} bytes, which is more than can ever be stored here: raise the limit, or see whether its \
         __reduce__ or __getstate__ gives new objects without end"
    );
    own_error(py, |errors| &errors.limit, &text).restore(py);
    Raised
}

/// What the codec is about, for the text of an error.
#[derive(Clone, Copy)]
pub enum Doing<'a> {
    /// Storing this object.
    Store(Borrowed<'a, 'a, PyAny>),
    Rebuild,
    RebuildPart,
}

impl Doing<'_> {
    fn text(self, store: &str, rebuild: &str) -> String {
        match self {
            // SAFETY: borrowed from a reference that outlives this value.
            Doing::Store(object) => format!("{store} an object of class {}", unsafe { class_name(object.as_ptr()) }),
            Doing::Rebuild => format!("{rebuild} the stored object"),
            Doing::RebuildPart => format!("{rebuild} a part of the stored object"),
        }
    }
}

/// Name of an object's class, for messages.
///
/// # Safety
/// A live object.
pub unsafe fn class_name(object: *mut PyObject) -> String {
    // SAFETY: live by the caller's word, and so is its class; a class's name is a string that lives with it.
    unsafe { CStr::from_ptr((*ffi::Py_TYPE(object)).tp_name).to_string_lossy().into_owned() }
}

/// Whether the interpreter raises such an error itself when something cannot be pickled or rebuilt: one of its own
/// classes, or one of pickle's. What the system says (a timeout, a full disk) and what programs define is meant for
/// somebody else, who waits for it: the handler of a signal may have raised it in the midst of the object's code.
pub fn is_of_pickling(py: Python<'_>, error: &PyErr) -> bool {
    let class = error.get_type(py);
    // Without memory, which one of the errors is about: it comes first.
    if error.is_instance_of::<pyo3::exceptions::PyMemoryError>(py)
        || error.is_instance_of::<pyo3::exceptions::PyOSError>(py)
        || !error.is_instance_of::<pyo3::exceptions::PyException>(py)
    {
        return false;
    }
    if class.module().is_ok_and(|module| module == "builtins") {
        return true;
    }
    // SAFETY: attached, a class that is held; a failure sets an error, which is dropped.
    unsafe {
        let Ok(pickling) = import(c"pickle", c"PickleError") else {
            ffi::PyErr_Clear();
            return false;
        };
        ffi::PyErr_GivenExceptionMatches(class.as_ptr(), pickling.ptr()) != 0
    }
}

/// Turns the error that is set into a `CodecError` with that error as its cause, if it says that something cannot be
/// pickled or rebuilt (see [`is_of_pickling`]). Others pass, with a note of what was going on.
#[cold]
pub fn explain(py: Python<'_>, doing: Doing<'_>) -> PyErr {
    // Where memory is short, the interpreter has been seen to fail without saying why.
    let error = PyErr::take(py).unwrap_or_else(|| {
        exception(&py.get_type::<pyo3::exceptions::PySystemError>(), "the interpreter failed without an exception")
    });
    let Ok(errors) = Errors::get(py) else { return error };
    // Nothing here may need memory: a lack of it is one of the errors that pass.
    let passes = error.is_instance(py, errors.base.bind(py))
        || error.is_instance_of::<pyo3::exceptions::PyMemoryError>(py)
        || !error.is_instance_of::<pyo3::exceptions::PyException>(py);
    if passes {
        return error;
    }
    if !is_of_pickling(py, &error) {
        add_note(py, &error, &doing.text("while storing", "while rebuilding"));
        return error;
    }
    let text = format!("{}: {}", doing.text("cannot store", "cannot rebuild"), describe_error(py, &error));
    caused(py, errors, &text, error)
}

/// The error that is set, if it is of pickling. Otherwise it stays.
fn take_of_pickling(py: Python<'_>) -> Option<(&'static Errors, PyErr)> {
    let error = PyErr::take(py)?;
    match Errors::get(py) {
        Ok(errors) if is_of_pickling(py, &error) => Some((errors, error)),
        _ => {
            error.restore(py);
            None
        }
    }
}

/// Turns the error that an object's reducer has set into a `CodecError`, as [`explain`] does, which knows of the
/// whole only: the object at fault may lie deep inside of it, and `inside` says where. What is not of pickling is left
/// to `explain`.
///
/// # Safety
/// A live object; an error is set.
#[cold]
pub unsafe fn not_reduced(py: Python<'_>, object: *mut PyObject, inside: impl FnOnce() -> String) -> Raised {
    let Some((errors, error)) = take_of_pickling(py) else { return Raised };
    // SAFETY: live by the caller's word.
    let (class, memory) = unsafe { (class_name(object), ffi::PyObject_CheckBuffer(object) != 0) };
    let inside = inside();
    let why = describe_error(py, &error);
    // So says the interpreter, of whichever version, of what it has no way to copy. It says nothing else in these
    // forms.
    let no_copy = why.starts_with("TypeError: cannot pickle '")
        && ["' object", "' instances"].iter().any(|end| why.ends_with(end));
    let text = if memory && why.starts_with("TypeError: cannot pickle ") {
        format!("cannot store {class}{inside}: it shows memory of another object, and has no copy; store bytes(view)")
    } else if no_copy {
        format!(
            "cannot store {class}{inside}: it has no copy, as open files, locks, sockets and generators have none; store what it \
             is made from (of a row of a database, tuple(row) or dict(row))"
        )
    } else {
        format!("cannot store an object of class {class}{inside}: {why}")
    };
    caused(py, errors, &text, error).restore(py);
    Raised
}

/// Turns the error that was set while `maker` was called, or was told to fill its object, into a `CodecError`, as
/// [`explain`] does, which does not know what was being built. What is not of pickling is left to `explain`.
#[cold]
pub fn not_rebuilt(maker: &Own) -> Raised {
    // SAFETY: codec functions run attached.
    let py = unsafe { Python::assume_attached() };
    let Some((errors, error)) = take_of_pickling(py) else { return Raised };
    // SAFETY: held by the caller.
    let maker = unsafe { Borrowed::from_ptr(py, maker.ptr()) };
    let how = if maker.is_instance_of::<pyo3::types::PyType>() { "of" } else { "by" };
    let text = format!("cannot rebuild an object {how} {}: {}", shown(&maker), describe_error(py, &error));
    caused(py, errors, &text, error).restore(py);
    Raised
}

/// As [`not_rebuilt`], of an object that there is already.
#[cold]
pub fn not_filled(object: &Own) -> Raised {
    // SAFETY: held by the caller, and its class with it.
    not_rebuilt(&unsafe { Own::share(ffi::Py_TYPE(object.ptr()).cast()) })
}

/// The class of an error and what it says.
fn describe_error(py: Python<'_>, error: &PyErr) -> String {
    let kind = error.get_type(py).qualname().map_or_else(|_| "error".into(), |name| name.to_string());
    let text = error.value(py).str().map_or_else(|_| String::new(), |text| text.to_string());
    format!("{kind}: {text}")
}

/// A `CodecError` with this cause.
fn caused(py: Python<'_>, errors: &Errors, text: &str, cause: PyErr) -> PyErr {
    let error = exception(errors.codec.bind(py), text);
    error.set_cause(py, Some(cause));
    error
}

/// Adds a note to an exception that does not have it yet: a program may raise the same one again and again. Without
/// memory for it, there is none.
pub fn add_note(py: Python<'_>, error: &PyErr, note: &str) {
    let value = error.value(py);
    let add = || -> PyResult<()> {
        let note = result::text(py, note)?;
        let notes = value.getattr_opt(intern!(py, "__notes__")?)?;
        if notes.is_some_and(|notes| notes.contains(&note).unwrap_or(false)) {
            return Ok(());
        }
        let method = value.getattr(intern!(py, "add_note")?)?;
        result::call(&method, [&note]).map(drop)
    };
    // The error itself is what counts.
    let _ = add();
}

/// Whether at most `limit` references to the object exist: nobody else can then meet it a second time (see `encode`).
///
/// # Safety
/// `obj` is a live object.
#[inline(always)]
pub unsafe fn referenced_at_most(obj: *mut PyObject, limit: isize) -> bool {
    #[cfg(not(Py_GIL_DISABLED))]
    // SAFETY: live by the caller's word.
    unsafe {
        ffi::Py_REFCNT(obj) <= limit
    }
    #[cfg(Py_GIL_DISABLED)]
    // SAFETY: live by the caller's word. Relaxed: a count that another thread changes at this instant belongs to a
    // graph that is being changed while it is stored, where either answer is right.
    unsafe {
        use std::sync::atomic::Ordering::Relaxed;
        let local = (*obj).ob_ref_local.load(Relaxed);
        // The two low bits of the shared count are flags.
        let shared = (*obj).ob_ref_shared.load(Relaxed) >> 2;
        (local as isize) + shared <= limit
    }
}

/// The object's lock on a free-threaded build, nothing under the GIL. While it is held, no other thread changes the
/// object's items, slots or attributes, so borrowed references to them stay alive.
pub struct Section {
    #[cfg(Py_GIL_DISABLED)]
    raw: ffi::PyCriticalSection,
}

impl Section {
    /// Runs `body` with the object's lock held. `body` must not run Python code.
    ///
    /// # Safety
    /// `obj` is a live object and stays so over the call.
    #[inline(always)]
    #[cfg_attr(not(Py_GIL_DISABLED), allow(unused_variables))]
    pub unsafe fn hold<T>(obj: *mut PyObject, body: impl FnOnce() -> T) -> T {
        #[cfg(Py_GIL_DISABLED)]
        {
            /// Ends the section that begins in the block below, also where `body` panics.
            struct End(*mut ffi::PyCriticalSection);

            impl Drop for End {
                fn drop(&mut self) {
                    // SAFETY: begun on this thread, and where it was begun, as the guard does not move.
                    unsafe { ffi::PyCriticalSection_End(self.0) };
                }
            }

            // SAFETY: the section lives on this stack, is begun and ended on this thread, and the object lives on.
            unsafe {
                let mut section = std::mem::MaybeUninit::<Section>::uninit();
                let raw = (&raw mut (*section.as_mut_ptr()).raw).cast();
                ffi::PyCriticalSection_Begin(raw, obj);
                let _end = End(raw);
                body()
            }
        }
        #[cfg(not(Py_GIL_DISABLED))]
        body()
    }
}

/// An interned string.
///
/// # Errors
/// Out of memory.
pub fn intern(text: &CStr) -> Raise<Own> {
    // SAFETY: NUL-terminated; the result is a new reference or null with an error.
    unsafe { Own::take(ffi::PyUnicode_InternFromString(text.as_ptr())) }
}

/// The one string that stands for a name. What is no exact string stays as it is, as does one that there is no memory
/// to keep.
pub fn intern_own(name: Own) -> Own {
    let mut name = name.into_ptr();
    // SAFETY: attached, as everybody who has an object here; the reference is handed over, and one to the same or an
    // equal string comes back, never null.
    unsafe {
        if ffi::PyUnicode_CheckExact(name) != 0 {
            ffi::PyUnicode_InternInPlace(&raw mut name);
        }
        Own(NonNull::new_unchecked(name))
    }
}

/// An attribute.
///
/// # Safety
/// `obj` is a live object.
pub unsafe fn attribute(obj: *mut PyObject, name: &CStr) -> Raise<Own> {
    // SAFETY: live by the caller's word; NUL-terminated name; a new reference or null with an error.
    unsafe { Own::take(ffi::PyObject_GetAttrString(obj, name.as_ptr())) }
}

/// An attribute, or `None` where there is none.
///
/// # Safety
/// `obj` is a live object.
pub unsafe fn attribute_or_none(obj: *mut PyObject, name: &CStr) -> Raise<Option<Own>> {
    // SAFETY: as `attribute`; an AttributeError is cleared only when it is set.
    unsafe {
        match attribute(obj, name) {
            Ok(value) => Ok(Some(value)),
            Err(Raised) if ffi::PyErr_ExceptionMatches(ffi::PyExc_AttributeError) != 0 => {
                ffi::PyErr_Clear();
                Ok(None)
            }
            Err(Raised) => Err(Raised),
        }
    }
}

/// Whether it is a string, or a subclass of one.
pub fn is_text(object: &Own) -> bool {
    // SAFETY: held by the caller.
    unsafe { ffi::PyUnicode_Check(object.ptr()) != 0 }
}

/// Whether both are one, or strings of the same text. Runs no code.
pub fn is_same_text(one: &Own, other: &Own) -> bool {
    let equal = || {
        // SAFETY: two strings, held by the caller: they are compared by what is in them.
        unsafe { ffi::PyUnicode_Compare(one.ptr(), other.ptr()) == 0 }
    };
    one.ptr() == other.ptr() || is_text(one) && is_text(other) && equal()
}

/// What a name leads to in the classes of a class's resolution order, if it is there. The lookup numbers the class's
/// present state.
///
/// # Safety
/// A live class and a string.
pub unsafe fn in_class(class: *mut ffi::PyTypeObject, name: *mut PyObject) -> Option<Own> {
    // SAFETY: as the caller promised; a new reference, or null.
    unsafe { Own::take(ffi::PyType_Lookup(class, name)).ok() }
}

/// An attribute of a module, importing it.
///
/// # Errors
/// Those of the import.
pub fn import(module: &CStr, name: &CStr) -> Raise<Own> {
    let _importing = Importing::begin();
    // SAFETY: NUL-terminated strings; new references or null with an error.
    unsafe {
        let module = Own::take(ffi::PyImport_ImportModule(module.as_ptr()))?;
        attribute(module.ptr(), name)
    }
}
