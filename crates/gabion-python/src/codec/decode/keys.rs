//! Keys that would take for ever to be hashed, or to be compared.
//!
//! A tuple's hash is made anew of those of its items whenever it is asked for, and so is a slice's. A frozenset keeps
//! its hash, but one is compared with another item by item. So a tuple of twice the same tuple of twice the same takes
//! twice as long with each level, of which a file needs a few bytes. Nobody has such keys: whoever made them would
//! still be at it. Nor are tuples so deep in each other: the interpreter hashes them by recursion, to which a thread's
//! stack sets an end that nothing looks at.

use std::ffi::CStr;

use smallvec::SmallVec;

use super::amplification::{arguments_of, is_one_of};
use crate::codec::format::reader::damaged;
use crate::codec::object::{Own, PASS_TYPES, Raise, Raised, attribute_or_none, refuse};
use crate::codec::room;
use crate::ffi::{self, PyObject};

/// Parts that the keys of an encoding may have beside those that its bytes are enough for. To hash so many takes
/// about a second.
const MOST_SHARED: u64 = 1 << 26;

/// How deep the parts of a key may lie in each other. That is far from what the smallest stack of a thread has room
/// for, and ends at a part that is its own.
const DEEPEST: usize = 1000;

fn too_deep() -> Raised {
    refuse(&format!(
        "cannot rebuild the stored object: a key is too deep to be hashed, with parts that lie more than {DEEPEST} deep in \
         each other, which a file may not have; if you trust it, pass {PASS_TYPES}\"*\")"
    ))
}

/// What is looked at of all keys of an encoding together.
pub struct Keys {
    /// Parts that they may still have.
    left: u64,
}

impl Keys {
    /// For an encoding of so many bytes: without sharing, its keys have no more parts.
    pub fn of(bytes: usize) -> Self {
        Self { left: MOST_SHARED.saturating_add(bytes as u64) }
    }

    /// Looks at a key before it is hashed.
    ///
    /// # Errors
    /// `CodecError` for one too many parts, or one too deep.
    #[inline(never)]
    pub fn check_key(&mut self, key: &Own) -> Raise<()> {
        self.look_by(key, parts_of)
    }

    /// Looks at what a call is given that hashes it, and may write it down.
    ///
    /// # Errors
    /// As [`Keys::look`].
    pub fn look_at_values(&mut self, arguments: &Own) -> Raise<()> {
        self.look_by(arguments, parts_of_text)
    }

    fn look_by(&mut self, key: &Own, parts_of: unsafe fn(*mut PyObject) -> Raise<Option<Own>>) -> Raise<()> {
        // SAFETY: held by the caller.
        let Some(parts) = (unsafe { parts_of(key.ptr())? }) else { return Ok(()) };
        // What is half looked at, and what comes next of it.
        let mut outer: SmallVec<[(Own, isize); 4]> = SmallVec::new();
        let (mut parts, mut next) = (parts, 0);
        loop {
            // SAFETY: a tuple, held; its items are borrowed from it.
            let part =
                unsafe { (next < ffi::PyTuple_Size(parts.ptr())).then(|| ffi::PyTuple_GetItem(parts.ptr(), next)) };
            let Some(part) = part else {
                let Some(back) = outer.pop() else { return Ok(()) };
                (parts, next) = back;
                continue;
            };
            next += 1;
            self.left = self.left.checked_sub(1).ok_or_else(|| damaged("a key would take for ever to be hashed"))?;
            // SAFETY: held by the tuple.
            if let Some(inner) = unsafe { parts_of(part)? } {
                if outer.len() == DEEPEST {
                    return Err(too_deep());
                }
                outer.try_reserve(1).map_err(|_| room::no_memory())?;
                outer.push((std::mem::replace(&mut parts, inner), std::mem::take(&mut next)));
            }
        }
    }

    /// Looks at what a container is made of by a call: items, or pairs of whatever kind.
    ///
    /// # Errors
    /// As [`Keys::look`].
    pub fn look_at_all(&mut self, arguments: &Own) -> Raise<()> {
        for argument in arguments_of(arguments) {
            // SAFETY: held by the arguments, and what it gives by a tuple.
            let Some(items) = (unsafe { items_of(argument)? }) else { continue };
            for item in arguments_of(&items) {
                // SAFETY: as above.
                if let Some(parts) = unsafe { items_of(item)? } {
                    self.check_key(&parts)?;
                }
            }
        }
        Ok(())
    }
}

/// What is iterated over in an object, as a tuple; not where that is done but once. What cannot be iterated over tells
/// so in the call itself.
///
/// # Safety
/// A live object.
unsafe fn items_of(object: *mut PyObject) -> Raise<Option<Own>> {
    // SAFETY: live by the caller's word; new references or null with an error.
    unsafe {
        if let Some(parts) = parts_of(object)? {
            return Ok(Some(parts));
        }
        let is_flat = ffi::PyUnicode_Check(object) != 0
            || ffi::PyBytes_Check(object) != 0
            || ffi::PyByteArray_Check(object) != 0
            || (*ffi::Py_TYPE(object)).tp_iter.is_none()
            || ffi::PyIter_Check(object) != 0;
        if is_flat {
            return Ok(None);
        }
        match Own::take(ffi::PySequence_Tuple(object)) {
            Err(Raised) if ffi::PyErr_ExceptionMatches(ffi::PyExc_Exception) != 0 => {
                ffi::PyErr_Clear();
                Ok(None)
            }
            items => items.map(Some),
        }
    }
}

/// What an object's hash, or a comparison, goes through, as a tuple. `None` for what has no parts.
///
/// # Safety
/// A live object.
unsafe fn parts_of(object: *mut PyObject) -> Raise<Option<Own>> {
    // SAFETY: live by the caller's word; new references or null with an error. A set of its own class is copied without
    // that class's code.
    unsafe {
        let class = ffi::Py_TYPE(object);
        if ffi::PyTuple_Check(object) != 0 {
            return Ok(Some(Own::share(object)));
        }
        if class == &raw mut ffi::PySlice_Type {
            let slice = object.cast::<ffi::PySliceObject>();
            return Own::take(ffi::PyTuple_Pack(3, (*slice).start, (*slice).stop, (*slice).step)).map(Some);
        }
        if ffi::PyFrozenSet_Check(object) != 0 {
            let set = Own::take(ffi::PyFrozenSet_New(object))?;
            return Own::take(ffi::PySequence_Tuple(set.ptr())).map(Some);
        }
        if ffi::PyType_HasFeature(class, ffi::Py_TPFLAGS_HEAPTYPE) == 0 {
            return Ok(None);
        }
        attributes_of(object)
    }
}

/// Classes whose hash is that of numbers and texts in these attributes, if no file gave them something else.
const HASHED: &[(&[&[u8]], &[&CStr])] = &[
    (&[b"uuid.UUID"], &[c"int"]),
    (&[b"collections.UserString"], &[c"data"]),
    (
        &[b"ipaddress.IPv4Interface", b"ipaddress.IPv6Interface", b"ipaddress.IPv6Address"],
        &[c"_ip", c"_scope_id", c"_prefixlen"],
    ),
    // 3.13 has them in a module of their own, below that one.
    (&[b"pathlib.PurePath"], &[c"_parts", c"_cached_cparts", c"_str_normcase_cached", c"_str"]),
];

/// What an object's hash goes through of its attributes, as a tuple. `None` where its class, or one that it inherits
/// from, is not known for that.
///
/// # Safety
/// A live object.
unsafe fn attributes_of(object: *mut PyObject) -> Raise<Option<Own>> {
    // SAFETY: live by the caller's word, as its class and the bases of that are by it; new references or null with an
    // error.
    unsafe {
        let mut class = ffi::Py_TYPE(object);
        while !class.is_null() && ffi::PyType_HasFeature(class, ffi::Py_TPFLAGS_HEAPTYPE) != 0 {
            for (of, names) in HASHED {
                if !is_one_of(class, of)? {
                    continue;
                }
                let parts = Own::take(ffi::PyList_New(0))?;
                for name in *names {
                    let Some(part) = attribute_or_none(object, name)? else { continue };
                    // A path has a list of its parts, of which it hashes a tuple.
                    let is_list = ffi::PyList_CheckExact(part.ptr()) != 0;
                    let part = if is_list { Own::take(ffi::PyList_AsTuple(part.ptr()))? } else { part };
                    if ffi::PyList_Append(parts.ptr(), part.ptr()) < 0 {
                        return Err(Raised);
                    }
                }
                return Own::take(ffi::PyList_AsTuple(parts.ptr())).map(Some);
            }
            class = (*class).tp_base;
        }
    }
    Ok(None)
}

/// What an object's text goes through, as a tuple. `None` for what has no parts.
///
/// # Safety
/// A live object.
unsafe fn parts_of_text(object: *mut PyObject) -> Raise<Option<Own>> {
    // SAFETY: live by the caller's word; new references or null with an error.
    unsafe {
        if ffi::PyList_Check(object) != 0 {
            return Own::take(ffi::PyList_AsTuple(object)).map(Some);
        }
        if ffi::PyDict_Check(object) != 0 {
            let (keys, values) = (Own::take(ffi::PyDict_Keys(object))?, Own::take(ffi::PyDict_Values(object))?);
            let parts = [Own::take(ffi::PyList_AsTuple(keys.ptr()))?, Own::take(ffi::PyList_AsTuple(values.ptr()))?];
            return Own::take(ffi::PyTuple_Pack(2, parts[0].ptr(), parts[1].ptr())).map(Some);
        }
        parts_of(object)
    }
}
