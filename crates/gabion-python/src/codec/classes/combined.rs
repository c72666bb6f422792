//! Combinations of flags that have no name of their own, by the names of their parts: `READ|WRITE`.

use crate::codec::object::{Own, Raise, Raised, attribute, intern};
use crate::ffi;

/// What the names of a combination come to.
pub enum Combined {
    /// The value of its parts together, an int.
    Value(Own),
    /// A name that none of the members has whose values are ints.
    Unknown(Own),
}

/// Puts a combination together out of the members of its class; `name` is an exact `str`.
///
/// # Errors
/// Those of memory and of attributes.
pub fn combined(members: &Own, name: &Own) -> Raise<Combined> {
    // SAFETY: a dict and a str, held, as is all that is made here; what is borrowed from the dict and the list is held
    // before anything else is done.
    unsafe {
        let names = Own::take(ffi::PyUnicode_Split(name.ptr(), intern(c"|")?.ptr(), -1))?;
        let mut value = Own::take(ffi::PyLong_FromLong(0))?;
        for i in 0..ffi::PyList_Size(names.ptr()) {
            let name = Own::share(ffi::PyList_GetItem(names.ptr(), i));
            let member = ffi::PyDict_GetItemWithError(members.ptr(), name.ptr());
            if member.is_null() {
                if !ffi::PyErr_Occurred().is_null() {
                    return Err(Raised);
                }
                return Ok(Combined::Unknown(name));
            }
            let part = attribute(Own::share(member).ptr(), c"_value_")?;
            if ffi::PyLong_CheckExact(part.ptr()) == 0 {
                return Ok(Combined::Unknown(name));
            }
            value = Own::take(ffi::PyNumber_Or(value.ptr(), part.ptr()))?;
        }
        Ok(Combined::Value(value))
    }
}
