//! States that a file gives to what it has no say in.
//!
//! Whoever writes a file chooses which state an object is given. A class that the file names is no object of it: the whole program has
//! it. And NumPy takes the states in its pickles as they are, of items that lie outside of an array's memory, say. Where a file may do
//! whatever it likes (`types="*"`), nothing of this is looked at.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use super::leaf::Maker;
use crate::codec::object::{Own, Raise, Raised, refuse};
use crate::ffi::{self, PyTypeObject};
use crate::once::{of_module, once};

/// What becomes of an object that is given a state.
pub enum Given {
    /// It gets it.
    Itself,
    /// This is in its place, and has it.
    Other(Own),
}

impl Maker<'_, '_> {
    /// Looks at a state that an object is to be given, or at what else is to be set in it.
    ///
    /// # Errors
    /// `CodecError` where a file may not give it; what NumPy says of the state.
    #[inline]
    pub fn guard(&self, object: &Own, state: &Own) -> Raise<Given> {
        if self.registry.is_guarded() { self.look(object, state) } else { Ok(Given::Itself) }
    }

    #[cold]
    fn look(&self, object: &Own, state: &Own) -> Raise<Given> {
        static REBUILT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        // SAFETY: held, as its class is by it.
        let (is_class, is_function, class) = unsafe {
            let is_class = ffi::PyType_Check(object.ptr()) != 0;
            (is_class, ffi::PyFunction_Check(object.ptr()) != 0, ffi::Py_TYPE(object.ptr()))
        };
        if (is_class || is_function) && self.registry.is_named(object.ptr()) {
            return Err(refuse(&format!(
                "cannot rebuild the stored object: it sets attributes of {}, which the whole program has; if you trust the file, pass \
                 gabion.Pile(path=..., types=\"*\")",
                crate::codec::classes::global::repr(object)
            )));
        }
        // SAFETY: the class of an object that is held.
        if !unsafe { is_of_numpy(class) } {
            return Ok(Given::Itself);
        }
        let rebuilt = once(self.py, &REBUILT, || Ok(of_module(self.py, c"gabion._arrays", c"rebuilt")?.unbind()));
        let rebuilt = rebuilt.map_err(|error| {
            error.restore(self.py);
            Raised
        })?;
        // SAFETY: all are held; a new reference or null with an error.
        let made = unsafe { Own::take(ffi::call(rebuilt.as_ptr(), [object.ptr(), state.ptr()]))? };
        // SAFETY: the interpreter's own object.
        Ok(if made.ptr() == unsafe { ffi::Py_None() } { Given::Itself } else { Given::Other(made) })
    }
}

/// Whether a class, or one that it inherits from, is one of NumPy's that take a state.
///
/// # Safety
/// A live class.
unsafe fn is_of_numpy(mut class: *mut PyTypeObject) -> bool {
    // SAFETY: live by the caller's word, as its bases are by it; a class's name lives with it. Classes that are not written in Python are
    // called by their modules, too.
    unsafe {
        while !class.is_null() {
            let name = std::ffi::CStr::from_ptr((*class).tp_name).to_bytes();
            if name == b"numpy.ndarray" || name == b"numpy.dtype" {
                return true;
            }
            class = (*class).tp_base;
        }
    }
    false
}
