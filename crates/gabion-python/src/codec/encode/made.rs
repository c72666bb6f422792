//! Reducers that have no end.
//!
//! A reducer may make an object, whose own reducer makes one in its turn, and so on. It would take all memory long
//! before what was written of it is more than may be stored: each object takes ten times what is written of it. So what
//! reducers make is followed, from one to the next, for as long as it goes. Only what nobody else refers to was made: a
//! list of a million nodes, of which each reducer gives the next, was there before.

use super::encoder::Encoder;
use super::scratch::Made;
use crate::codec::object::{Own, Raise, class_name, referenced_at_most, refuse};
use crate::ffi::{self, PyObject};

/// Objects that reducers may make, each asked for what it is made of by the next. Pickle gives up at some hundred.
const MOST_MADE: u32 = 100_000;
/// References to what only one other object holds.
pub const ONE_OWNER: isize = 1;
/// How many values are looked at of what a reducer returns, and how deep they may lie in new containers.
const MOST_LOOKED_AT: usize = 32;
const DEEPEST: usize = 3;

impl Encoder<'_, '_> {
    /// Looks for what an object's reducer made, in parts that it returned: each is held by the tuple of them and by the
    /// caller.
    ///
    /// # Errors
    /// `CodecError` where that goes on without end.
    ///
    /// # Safety
    /// A live object.
    pub unsafe fn look_for_made(&mut self, obj: *mut PyObject, parts: [Option<&Own>; 2]) -> Raise<()> {
        let before = self.scratch()?.made;
        let depth = if before.has(obj) { before.depth + 1 } else { 1 };
        let mut look = Look { made: Made { depth, ..Made::default() }, left: MOST_LOOKED_AT };
        for part in parts.into_iter().flatten() {
            // SAFETY: held by the caller.
            unsafe { look.at(part.ptr(), ONE_OWNER + 1, 0) };
        }
        if look.made.count == 0 {
            return Ok(());
        }
        if depth > MOST_MADE {
            // SAFETY: live by the caller's word.
            let class = unsafe { class_name(obj) };
            return Err(refuse(&format!(
                "cannot store an object of class {class}: what its __reduce__ or __getstate__ returns has a new object in it, for \
                 which that is so again, more than {MOST_MADE} times; have it return what the object holds"
            )));
        }
        self.scratch()?.made = look.made;
        Ok(())
    }
}

struct Look {
    made: Made,
    left: usize,
}

impl Look {
    /// # Safety
    /// A live object, which is held.
    unsafe fn at(&mut self, object: *mut PyObject, owners: isize, depth: usize) {
        // SAFETY: live by the caller's word. A container that nobody else has is changed by nobody meanwhile, as
        // nothing is called; its items are borrowed from it.
        unsafe {
            if self.left == 0 || depth > DEEPEST || !referenced_at_most(object, owners) {
                return;
            }
            self.left -= 1;
            let class = ffi::Py_TYPE(object);
            if class == &raw mut ffi::PyTuple_Type {
                for at in 0..ffi::PyTuple_Size(object).min(MOST_LOOKED_AT as isize) {
                    self.at(ffi::PyTuple_GetItem(object, at), ONE_OWNER, depth + 1);
                }
            } else if class == &raw mut ffi::PyList_Type {
                for at in 0..ffi::PyList_Size(object).min(MOST_LOOKED_AT as isize) {
                    self.at(ffi::PyList_GetItem(object, at), ONE_OWNER, depth + 1);
                }
            } else if class == &raw mut ffi::PyDict_Type {
                let (mut at, mut value) = (0, std::ptr::null_mut());
                while self.left > 0 && ffi::PyDict_Next(object, &raw mut at, std::ptr::null_mut(), &raw mut value) != 0
                {
                    self.at(value, ONE_OWNER, depth + 1);
                }
            } else if ffi::PyType_HasFeature(class, ffi::Py_TPFLAGS_HEAPTYPE) != 0
                && self.made.count < self.made.objects.len()
            {
                self.made.objects[self.made.count] = object as usize;
                self.made.count += 1;
            }
        }
    }
}
