//! Calls that a few bytes would have take all memory, or all time.
//!
//! A container that is called with an iterable takes all that this gives. Of what a file may build, some give more than
//! the file brought: a range, the addresses of a network, and what shows another object as its own items. So a
//! container is built of such a one only if it is short. Numbers are not built of exponents: they would be written out.

use crate::codec::object::{Own, Raise, Raised, attribute_or_none, intern, is_same_text};
use crate::ffi::{self, PyObject, PyTypeObject};

/// Items that a container may be built of by a call: more are stored as they are.
const MOST_COUNTED: isize = 1 << 22;

/// What is called takes all that its arguments give.
const CONTAINERS: &[&[u8]] = &[
    b"list",
    b"tuple",
    b"set",
    b"frozenset",
    b"bytes",
    b"bytearray",
    b"dict",
    b"array.array",
    b"types.SimpleNamespace",
    b"collections.deque",
    b"collections.OrderedDict",
    b"collections.defaultdict",
    b"collections.Counter",
    b"collections.UserList",
    b"collections.UserDict",
];

/// Of these, those that take all that each of the items gives, too.
const OF_PAIRS: &[&[u8]] = &[b"dict", b"types.SimpleNamespace", b"collections.OrderedDict", b"collections.defaultdict"];

/// What shows another object as its own items, and what that is called.
const SHOWING: &[(&[u8], &std::ffi::CStr)] = &[
    (b"collections.UserList", c"data"),
    (b"collections.UserDict", c"data"),
    (b"collections.UserString", c"data"),
    (b"collections.ChainMap", c"maps"),
];

/// What gives many items without having any.
const NETWORKS: &[&[u8]] = &[b"ipaddress.IPv4Network", b"ipaddress.IPv6Network"];

/// Whether a call of a class of the interpreter, or of its library, takes much longer than its arguments are long.
///
/// # Safety
/// A live class, a tuple, and a dict.
pub unsafe fn is_endless(class: *mut PyTypeObject, arguments: &Own, keywords: Option<&Own>) -> Raise<bool> {
    // SAFETY: live by the caller's word; arguments are held by the tuple and the list of values.
    unsafe {
        let named = keywords.map(|keywords| Own::take(ffi::PyDict_Values(keywords.ptr()))).transpose()?;
        let named = named.as_ref();
        let values = named.map_or(0, |values| ffi::PyList_Size(values.ptr()));
        let values = (0..values).filter_map(|at| named.map(|values| ffi::PyList_GetItem(values.ptr(), at)));
        let is_number = ffi::PyType_HasFeature(class, ffi::Py_TPFLAGS_LONG_SUBCLASS) != 0;
        let is_fraction = is_one_of(class, &[b"fractions.Fraction"])?;
        let is_container = is_one_of(class, CONTAINERS)?;
        let counts = is_container || ffi::PyType_HasFeature(class, ffi::Py_TPFLAGS_HEAPTYPE) == 0;
        for argument in arguments_of(arguments).chain(values) {
            if counts && class != &raw mut ffi::PyRange_Type && is_long_range(argument) {
                return Ok(true);
            }
            if is_container && takes_all(class, argument)? {
                return Ok(true);
            }
            let of = std::ffi::CStr::from_ptr((*ffi::Py_TYPE(argument)).tp_name).to_bytes();
            if ((is_number || is_fraction) && matches!(of, b"decimal.Decimal" | b"Decimal"))
                || (is_fraction && ffi::PyUnicode_Check(argument) != 0 && has_exponent(argument))
            {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Whether a container has no end of what it would take of an argument.
///
/// # Safety
/// A live container's class, and a live object.
unsafe fn takes_all(class: *mut PyTypeObject, argument: *mut PyObject) -> Raise<bool> {
    // SAFETY: live by the caller's word; items are held while they are looked at.
    unsafe {
        if is_one_of(class, &[b"bytes", b"bytearray"])? && ffi::PyIndex_Check(argument) != 0 {
            // So many zeros.
            let count = ffi::PyNumber_AsSsize_t(argument, std::ptr::null_mut());
            if count == -1 && !ffi::PyErr_Occurred().is_null() {
                return Err(Raised);
            }
            return Ok(count > MOST_COUNTED);
        }
        if gives_more(argument)? {
            return Ok(true);
        }
        if !is_one_of(class, OF_PAIRS)? || !is_brought(argument) || ffi::PyDict_Check(argument) != 0 {
            return Ok(false);
        }
        let items = Own::take(ffi::PySequence_Tuple(argument))?;
        for item in arguments_of(&items) {
            if gives_more(item)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Whether an object gives more items than the file has brought of it.
///
/// # Safety
/// A live object.
unsafe fn gives_more(object: *mut PyObject) -> Raise<bool> {
    // SAFETY: live by the caller's word, as its class and the bases of that are by it; what is shown is held.
    unsafe {
        if is_brought(object) {
            return Ok(false);
        }
        if is_long_range(object) {
            return Ok(true);
        }
        let mut class = ffi::Py_TYPE(object);
        while !class.is_null() && ffi::PyType_HasFeature(class, ffi::Py_TPFLAGS_HEAPTYPE) != 0 {
            if is_one_of(class, NETWORKS)? {
                return Ok(true);
            }
            for (showing, name) in SHOWING {
                if is_one_of(class, &[showing])? {
                    let Some(shown) = attribute_or_none(object, name)? else { return Ok(false) };
                    return Ok(!is_brought(shown.ptr()) || (*name == c"maps" && has_another(&shown)));
                }
            }
            class = (*class).tp_base;
        }
        Ok(false)
    }
}

/// Whether an object is a container that the file has brought item by item.
///
/// # Safety
/// A live object.
unsafe fn is_brought(object: *mut PyObject) -> bool {
    // SAFETY: live by the caller's word; compared with the interpreter's own classes.
    unsafe {
        let class = ffi::Py_TYPE(object);
        [
            &raw mut ffi::PyList_Type,
            &raw mut ffi::PyTuple_Type,
            &raw mut ffi::PySet_Type,
            &raw mut ffi::PyFrozenSet_Type,
            &raw mut ffi::PyDict_Type,
            &raw mut ffi::PyUnicode_Type,
            &raw mut ffi::PyBytes_Type,
            &raw mut ffi::PyByteArray_Type,
        ]
        .contains(&class)
            || ffi::PyType_HasFeature(class, ffi::Py_TPFLAGS_DICT_SUBCLASS) != 0
    }
}

/// Whether a list of maps has one that the file has not brought itself.
fn has_another(list: &Own) -> bool {
    // SAFETY: held; items are borrowed from what is a list by its exact class.
    unsafe {
        ffi::PyList_CheckExact(list.ptr()) == 0
            || (0..ffi::PyList_Size(list.ptr())).any(|at| !is_brought(ffi::PyList_GetItem(list.ptr(), at)))
    }
}

/// Whether an object is a range of more items than may be counted.
///
/// # Safety
/// A live object.
unsafe fn is_long_range(object: *mut PyObject) -> bool {
    // SAFETY: live by the caller's word; a range by its exact class, whose length is asked of it.
    unsafe {
        if ffi::Py_TYPE(object) != &raw mut ffi::PyRange_Type {
            return false;
        }
        let len = ffi::PyObject_Size(object);
        if len < 0 {
            ffi::PyErr_Clear();
        }
        !(0..=MOST_COUNTED).contains(&len)
    }
}

/// Items of a tuple that the caller has checked for being one.
pub fn arguments_of(tuple: &Own) -> impl Iterator<Item = *mut PyObject> {
    // SAFETY: a live object, which is held over this.
    let items = unsafe { ffi::PyTuple_Size(tuple.ptr()) };
    // SAFETY: held, and that long; items are borrowed from it.
    (0..items).map(|i| unsafe { ffi::PyTuple_GetItem(tuple.ptr(), i) })
}

/// Whether a class is the interpreter's, or its library's, of one of these names; a class that is called so and is of
/// another module is none.
///
/// # Safety
/// A live class.
unsafe fn is_one_of(class: *mut PyTypeObject, names: &[&[u8]]) -> Raise<bool> {
    // SAFETY: live by the caller's word; its name lives with it.
    unsafe {
        let name = std::ffi::CStr::from_ptr((*class).tp_name).to_bytes();
        if names.contains(&name) {
            // Those of Python code have no module in their name, and no such class can be made with one.
            return Ok(ffi::PyType_HasFeature(class, ffi::Py_TPFLAGS_HEAPTYPE) == 0 || name.contains(&b'.'));
        }
        if ffi::PyType_HasFeature(class, ffi::Py_TPFLAGS_HEAPTYPE) == 0 {
            return Ok(false);
        }
        for of in names {
            let Some(point) = of.iter().position(|&byte| byte == b'.') else { continue };
            if &of[point + 1..] == name {
                let module = Own::take(ffi::PyUnicode_FromStringAndSize(of.as_ptr().cast(), point as isize))?;
                return is_of_module(class, &module);
            }
        }
        Ok(false)
    }
}

/// Whether a number's text has an exponent.
///
/// # Safety
/// A live string.
unsafe fn has_exponent(text: *mut PyObject) -> bool {
    let mut len = 0;
    // SAFETY: live by the caller's word, as its text is with it.
    unsafe {
        let data = ffi::PyUnicode_AsUTF8AndSize(text, &raw mut len);
        if data.is_null() {
            ffi::PyErr_Clear();
            return true;
        }
        std::slice::from_raw_parts(data.cast::<u8>(), len as usize).iter().any(|byte| matches!(byte, b'e' | b'E'))
    }
}

/// Whether a class says that it is defined in a module, or in one below it.
///
/// # Safety
/// A live class.
pub unsafe fn is_of_module(class: *mut PyTypeObject, name: &Own) -> Raise<bool> {
    // SAFETY: live by the caller's word; strings, which are held; a new reference or null with an error.
    unsafe {
        let Some(module) = attribute_or_none(class.cast(), c"__module__")? else { return Ok(false) };
        if ffi::PyUnicode_CheckExact(module.ptr()) == 0 {
            return Ok(false);
        }
        let parts = Own::take(ffi::PyUnicode_Split(module.ptr(), intern(c".")?.ptr(), 1))?;
        Ok(is_same_text(&Own::share(ffi::PyList_GetItem(parts.ptr(), 0)), name))
    }
}
