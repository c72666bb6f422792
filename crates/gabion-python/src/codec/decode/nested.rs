//! What a file has lie in each other too deeply for it to go again.
//!
//! The interpreter releases slices by recursion, as NumPy does arrays and items with objects in them, and a thread's
//! stack has an end. Containers that lie so deep are put aside and released one after the other; these are not.

use std::collections::HashMap;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use super::amplification::arguments_of;
use super::guard::{Numpy, of_numpy};
use crate::codec::object::{Own, PASS_TYPES, Raise, Raised, refuse};
use crate::codec::room;
use crate::ffi::{self, PyObject};
use crate::once::{of_module, once};

/// How deep they may lie in each other: what any thread's stack has room for.
const DEEPEST: u32 = 200;

/// Those of an encoding that have others of the kind in them, by their addresses, and how deep they are. They are held,
/// so that an address stays its object's.
#[derive(Default)]
pub struct Nested(HashMap<usize, (Own, u32)>);

impl Nested {
    /// Looks at an object that was made, and has by now what will be in it.
    ///
    /// # Errors
    /// `CodecError` where it is too deep; memory.
    #[inline]
    pub fn check_depth(&mut self, py: Python<'_>, made: &Own) -> Raise<()> {
        // SAFETY: held, as its class is by it.
        let class = unsafe { ffi::Py_TYPE(made.ptr()) };
        if class == &raw mut ffi::PySlice_Type {
            let slice = made.ptr().cast::<ffi::PySliceObject>();
            // SAFETY: a slice by its exact class; it holds its parts.
            let parts = unsafe { [(*slice).start, (*slice).stop, (*slice).step] };
            // SAFETY: live, as above.
            let nested = parts.into_iter().filter(|&part| unsafe { is_nested(part) });
            return self.note(made, nested);
        }
        // SAFETY: the class of an object that is held.
        if unsafe { of_numpy(class) } != Numpy::Array {
            return Ok(());
        }
        self.look_at_array(py, made)
    }

    #[cold]
    fn look_at_array(&mut self, py: Python<'_>, made: &Own) -> Raise<()> {
        static NESTED: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let nested = once(py, &NESTED, || Ok(of_module(py, c"gabion._arrays", c"nested")?.unbind()));
        let nested = nested.map_err(|error| {
            error.restore(py);
            Raised
        })?;
        // SAFETY: held; a new reference or null with an error.
        let parts = unsafe { Own::take(ffi::PyObject_CallOneArg(nested.as_ptr(), made.ptr()))? };
        self.note(made, arguments_of(&parts))
    }

    fn note(&mut self, made: &Own, nested: impl Iterator<Item = *mut PyObject>) -> Raise<()> {
        let depths = nested.map(|part| self.0.get(&(part as usize)).map_or(1, |&(_, depth)| depth));
        let Some(inside) = depths.max() else { return Ok(()) };
        if inside >= DEEPEST {
            return Err(refuse(&format!(
                "cannot rebuild the stored object: slices, or arrays of objects, lie more than {DEEPEST} deep in each \
                 other, which a file may not have; if you trust it, pass {PASS_TYPES}\"*\")"
            )));
        }
        self.0.try_reserve(1).map_err(|_| room::no_memory())?;
        self.0.insert(made.ptr() as usize, (made.clone(), inside + 1));
        Ok(())
    }
}

/// Whether an object may have others of the kind in it.
///
/// # Safety
/// A live object.
unsafe fn is_nested(object: *mut PyObject) -> bool {
    // SAFETY: live by the caller's word, as its class is by it.
    unsafe {
        let class = ffi::Py_TYPE(object);
        class == &raw mut ffi::PySlice_Type || of_numpy(class) == Numpy::Array
    }
}
