//! What an instance of a subclass owes to its class.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::ffi;

/// How `PyO3` ends an instance of the class that may have subclasses.
static END: OnceLock<ffi::destructor> = OnceLock::new();

/// How it tells the collector what such an instance refers to.
static VISIT: OnceLock<ffi::traverseproc> = OnceLock::new();

/// Has each instance of a class, or of a subclass of it, give its reference to its own class back when it ends. `PyO3`
/// keeps it for ever (<https://github.com/PyO3/pyo3/issues/6223>, mended in versions after the one used here), so that
/// a subclass would never be freed. And has it tell the collector of that reference, or a class and an instance that
/// refer to each other would stay: the interpreter leaves that to a base that is on the heap, and `PyO3` does not do
/// it. Classes that have no subclasses live as long as the process anyway.
///
/// There is one such class. It must have no instances yet.
pub(crate) fn free_with_last_instance(class: &Bound<'_, PyType>) {
    let class = class.as_type_ptr();
    // SAFETY: a class of this module, which nobody else knows yet, so that its slots may be set. Subclasses have no
    // copy of these two: the interpreter looks for them in the base when an instance ends or is visited.
    unsafe {
        if let Some(end) = (*class).tp_dealloc
            && END.set(end).is_ok()
        {
            (*class).tp_dealloc = Some(end_and_give_back);
        }
        if let Some(visit) = (*class).tp_traverse
            && VISIT.set(visit).is_ok()
        {
            (*class).tp_traverse = Some(visit_with_class);
        }
    }
}

unsafe extern "C" fn end_and_give_back(object: *mut ffi::PyObject) {
    let end = END.get().expect("it was set before this function was shown to anybody");
    // SAFETY: the interpreter calls this with an object that nobody has a reference to, of a class on the heap, to
    // which it has one of its own. The class is read before the object is gone.
    unsafe {
        let class = ffi::Py_TYPE(object);
        end(object);
        ffi::Py_DECREF(class.cast());
    }
}

unsafe extern "C" fn visit_with_class(
    object: *mut ffi::PyObject,
    visit: ffi::visitproc,
    argument: *mut c_void,
) -> c_int {
    let own = VISIT.get().expect("it was set before this function was shown to anybody");
    // SAFETY: the collector calls this with a live object of a class on the heap, to which it has one reference of its
    // own, and with a function for what it refers to. `PyO3`'s own looks by its address for what a base has to visit,
    // does not find it now, and leaves that out: the base is `object`, which has nothing.
    unsafe {
        match own(object, visit, argument) {
            0 => visit(ffi::Py_TYPE(object).cast(), argument),
            stopped => stopped,
        }
    }
}
