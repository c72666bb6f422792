//! Calls that a few bytes would have take all memory, or all time.
//!
//! A container that is called with an iterable takes all that this gives. Of what a file may build, some give more than
//! the file brought: a range, the addresses of a network, and what shows another object as its own items. So a
//! container is built of such a one only if it is short. Numbers are not built of exponents: they would be written out.
//! Nor is a text built of what has others in it: a list of twice the same list of twice the same is short until then.
//!
//! A class that inherits from one of these, and makes its instances as that does, is one. What another does with its
//! arguments is told by its own code.

use std::ffi::CStr;

use crate::codec::classes::known::Known;
use crate::codec::object::{Own, Raise, Raised, attribute_or_none, in_class, intern, is_same_text};
use crate::ffi::{self, PyObject, PyTypeObject};

/// Items that the containers of an encoding may be built of by calls, beside those that its bytes are enough for: more
/// are stored as they are.
pub const MOST_COUNTED: isize = 1 << 22;

/// What is called, and does more with its arguments than to keep them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Takes all that its arguments give.
    Items,
    /// Takes all that each of the items gives, too.
    Pairs,
    /// Takes all, or so many zeros.
    Bytes,
    /// Is called with texts, bytes and numbers.
    Text,
    /// So is this, or with pairs of such, or with another of the kind.
    Address,
    /// Multiplies.
    Fraction,
}

/// A class of the interpreter, or of its library, by its name.
struct Listed {
    module: &'static [u8],
    kind: Kind,
    /// The method that takes the arguments.
    by: &'static CStr,
}

/// What a class of this name is, if it is of the module that is told.
fn listed(name: &[u8]) -> Option<Listed> {
    const NEW: &CStr = c"__new__";
    const INIT: &CStr = c"__init__";
    let (module, kind, by): (&[u8], _, _) = match name {
        b"list" | b"set" => (BUILTINS, Kind::Items, INIT),
        b"tuple" | b"frozenset" | b"BaseExceptionGroup" => (BUILTINS, Kind::Items, NEW),
        b"dict" => (BUILTINS, Kind::Pairs, INIT),
        b"bytes" => (BUILTINS, Kind::Bytes, NEW),
        b"bytearray" => (BUILTINS, Kind::Bytes, INIT),
        b"str" => (BUILTINS, Kind::Text, NEW),
        b"array" => (b"array", Kind::Items, NEW),
        b"SimpleNamespace" => (b"types", Kind::Pairs, INIT),
        b"deque" | b"Counter" | b"UserList" | b"UserDict" => (b"collections", Kind::Items, INIT),
        b"OrderedDict" | b"defaultdict" => (b"collections", Kind::Pairs, INIT),
        b"UserString" => (b"collections", Kind::Text, INIT),
        b"IPv4Address" | b"IPv4Interface" | b"IPv4Network" | b"IPv6Address" | b"IPv6Interface" | b"IPv6Network" => {
            (b"ipaddress", Kind::Address, INIT)
        }
        b"Fraction" => (b"fractions", Kind::Fraction, NEW),
        _ => return None,
    };
    Some(Listed { module, kind, by })
}

/// What shows another object as its own items, and what that is called.
const SHOWING: &[(&[u8], &CStr)] = &[
    (b"collections.UserList", c"data"),
    (b"collections.UserDict", c"data"),
    (b"collections.UserString", c"data"),
    (b"collections.ChainMap", c"maps"),
];

/// The interpreter's own module, which its classes do not have in their names.
const BUILTINS: &[u8] = b"";

/// What shows its number as a text, and nothing else.
const ADDRESSES: &[&[u8]] = &[b"ipaddress.IPv4Address", b"ipaddress.IPv6Address"];

/// What gives many items without having any.
const NETWORKS: &[&[u8]] = &[b"ipaddress.IPv4Network", b"ipaddress.IPv6Network"];

/// Whether a call of a class of the interpreter, or of its library, takes much longer than its arguments are long. What
/// it takes of items that the file has not brought is taken off `left`.
///
/// # Safety
/// A live class, a tuple, and a dict.
pub unsafe fn is_endless(
    class: *mut PyTypeObject,
    arguments: &Own,
    keywords: Option<&Own>,
    left: &mut isize,
) -> Raise<bool> {
    // SAFETY: live by the caller's word; arguments are held by the tuple and the list of values.
    unsafe {
        let named = keywords.map(|keywords| Own::take(ffi::PyDict_Values(keywords.ptr()))).transpose()?;
        let named = named.as_ref();
        let values = named.map_or(0, |values| ffi::PyList_Size(values.ptr()));
        let values = (0..values).filter_map(|at| named.map(|values| ffi::PyList_GetItem(values.ptr(), at)));
        let is_number = ffi::PyType_HasFeature(class, ffi::Py_TPFLAGS_LONG_SUBCLASS) != 0;
        let kind = made_as(class)?;
        let is_fraction = kind == Some(Kind::Fraction);
        let counts = is_static(class) && class != &raw mut ffi::PyRange_Type;
        for argument in arguments_of(arguments).chain(values) {
            let is_endless = match kind {
                Some(Kind::Text) => !is_plain(argument)?,
                Some(Kind::Address) => !is_of_address(argument)?,
                Some(Kind::Fraction) => is_forged(argument)?,
                Some(container) => takes_all(container, argument, left)?,
                None => counts && is_long_range(argument, left),
            };
            if is_endless {
                return Ok(true);
            }
            let of = CStr::from_ptr((*ffi::Py_TYPE(argument)).tp_name).to_bytes();
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
/// A live object.
unsafe fn takes_all(kind: Kind, argument: *mut PyObject, left: &mut isize) -> Raise<bool> {
    // SAFETY: live by the caller's word; items are held while they are looked at.
    unsafe {
        if kind == Kind::Bytes && ffi::PyIndex_Check(argument) != 0 {
            // So many zeros.
            let count = ffi::PyNumber_AsSsize_t(argument, std::ptr::null_mut());
            if count == -1 && !ffi::PyErr_Occurred().is_null() {
                return Err(Raised);
            }
            return Ok(!takes(left, count));
        }
        if gives_more(argument, left)? {
            return Ok(true);
        }
        if kind == Kind::Pairs { has_more_inside(argument, left) } else { Ok(false) }
    }
}

/// Takes so many items off those that are left; false where there are fewer.
fn takes(left: &mut isize, count: isize) -> bool {
    let Some(rest) = left.checked_sub(count.max(0)).filter(|rest| *rest >= 0) else { return false };
    *left = rest;
    true
}

/// Whether one of an object's items gives more than the file has brought. What has keys is not taken item by item, and
/// what is iterated over but once is left as it is.
///
/// # Safety
/// A live object.
unsafe fn has_more_inside(object: *mut PyObject, left: &mut isize) -> Raise<bool> {
    // SAFETY: live by the caller's word; new references or null with an error, or at the end without one.
    unsafe {
        let iterates = (*ffi::Py_TYPE(object)).tp_iter.is_some() || ffi::PySequence_Check(object) != 0;
        if !iterates || ffi::PyIter_Check(object) != 0 || attribute_or_none(object, c"keys")?.is_some() {
            return Ok(false);
        }
        let items = Own::take(ffi::PyObject_GetIter(object))?;
        loop {
            match Own::take(ffi::PyIter_Next(items.ptr())) {
                Ok(item) if gives_more(item.ptr(), left)? => return Ok(true),
                Ok(_) => {}
                Err(Raised) if ffi::PyErr_Occurred().is_null() => return Ok(false),
                Err(Raised) => return Err(Raised),
            }
        }
    }
}

/// Whether an object is a text, bytes, a number, or nothing: its text is about as long as it is itself.
///
/// # Safety
/// A live object.
unsafe fn is_plain(object: *mut PyObject) -> Raise<bool> {
    const FEATURES: std::ffi::c_ulong =
        ffi::Py_TPFLAGS_UNICODE_SUBCLASS | ffi::Py_TPFLAGS_BYTES_SUBCLASS | ffi::Py_TPFLAGS_LONG_SUBCLASS;
    // SAFETY: live by the caller's word, as its class is by it; what is shown is held.
    unsafe {
        let class = ffi::Py_TYPE(object);
        if ffi::PyType_HasFeature(class, FEATURES) != 0
            || object == ffi::Py_None()
            || ffi::PyByteArray_Check(object) != 0
            || ffi::PyFloat_Check(object) != 0
            || ffi::PyComplex_Check(object) != 0
            || is_one_of(class, &[b"decimal.Decimal"])?
        {
            return Ok(true);
        }
        if inherits(class)?.is_none_or(|(listed, _)| listed.kind != Kind::Text) {
            return Ok(false);
        }
        let shown = attribute_or_none(object, c"data")?;
        Ok(shown.is_some_and(|shown| ffi::PyUnicode_Check(shown.ptr()) != 0))
    }
}

/// Whether an object is what an address or a network is made of: what is plain, a tuple of that, or an address.
///
/// # Safety
/// A live object.
unsafe fn is_of_address(object: *mut PyObject) -> Raise<bool> {
    // SAFETY: live by the caller's word, as its class is by it; items are held by the tuple.
    unsafe {
        if ffi::PyTuple_CheckExact(object) == 0 {
            return Ok(is_plain(object)? || is_address(object)?);
        }
        for item in arguments_of(&Own::share(object)) {
            if !is_plain(item)? && !is_address(item)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Whether an object is an address that has a number.
///
/// # Safety
/// A live object.
unsafe fn is_address(object: *mut PyObject) -> Raise<bool> {
    // SAFETY: live by the caller's word, as its class is by it; the number is held.
    unsafe {
        if !is_one_of(ffi::Py_TYPE(object), ADDRESSES)? {
            return Ok(false);
        }
        let number = attribute_or_none(object, c"_ip")?;
        Ok(number.is_some_and(|number| ffi::PyLong_Check(number.ptr()) != 0))
    }
}

/// Whether an object is a fraction of other things than integers. A multiple of those may be much longer.
///
/// # Safety
/// A live object.
unsafe fn is_forged(object: *mut PyObject) -> Raise<bool> {
    // SAFETY: live by the caller's word, as its class is by it; attributes are held.
    unsafe {
        if inherits(ffi::Py_TYPE(object))?.is_none_or(|(listed, _)| listed.kind != Kind::Fraction) {
            return Ok(false);
        }
        for name in [c"_numerator", c"_denominator"] {
            if attribute_or_none(object, name)?.is_none_or(|part| ffi::PyLong_Check(part.ptr()) == 0) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// What gets the items that an object is given, where it has none itself.
///
/// # Errors
/// Those of an attribute.
pub fn written_to(object: &Own) -> Raise<Option<Own>> {
    // SAFETY: held by the caller, as its class and the bases of that are by it; what is shown is held; a list that is
    // not empty.
    unsafe {
        let mut class = ffi::Py_TYPE(object.ptr());
        while !class.is_null() && ffi::PyType_HasFeature(class, ffi::Py_TPFLAGS_HEAPTYPE) != 0 {
            for (showing, name) in SHOWING {
                if is_one_of(class, &[showing])? {
                    let Some(shown) = attribute_or_none(object.ptr(), name)? else { return Ok(None) };
                    let is_list = ffi::PyList_CheckExact(shown.ptr()) != 0 && ffi::PyList_Size(shown.ptr()) > 0;
                    let first = is_list && *name == c"maps";
                    return Ok(Some(if first { Own::share(ffi::PyList_GetItem(shown.ptr(), 0)) } else { shown }));
                }
            }
            class = (*class).tp_base;
        }
        Ok(None)
    }
}

/// Classes of the interpreter's own whose instances are made of a few numbers or a short text, whatever those are. In
/// later versions they are as others are.
const OF_PARTS: &[&[u8]] = &[
    b"datetime.date",
    b"datetime.datetime",
    b"datetime.time",
    b"datetime.timedelta",
    b"datetime.timezone",
    b"decimal.Decimal",
];

/// Whether this is a class of the interpreter's own, or makes its instances of what it is called with.
pub fn is_made_of_arguments(class: &Own) -> Raise<bool> {
    // SAFETY: a live object, which is held over this; the rest is asked of a class alone.
    unsafe {
        if ffi::PyType_Check(class.ptr()) == 0 {
            return Ok(false);
        }
        let class = class.ptr().cast();
        Ok(is_static(class) && !is_one_of(class, OF_PARTS)? || made_as(class)?.is_some())
    }
}

/// The function or class that `functools.partial` calls with arguments of its own, if this is one.
///
/// # Errors
/// Those of an attribute.
pub fn partial_of(object: &Own) -> Raise<Option<Own>> {
    // SAFETY: held by the caller, as its class and the bases of that are by it.
    unsafe {
        let mut class = ffi::Py_TYPE(object.ptr());
        while !class.is_null() && ffi::PyType_HasFeature(class, ffi::Py_TPFLAGS_HEAPTYPE) != 0 {
            if is_one_of(class, &[b"functools.partial"])? {
                return attribute_or_none(object.ptr(), c"func");
            }
            class = (*class).tp_base;
        }
        Ok(None)
    }
}

/// Whether an object gives more items than the file has brought of it.
///
/// # Safety
/// A live object.
unsafe fn gives_more(object: *mut PyObject, left: &mut isize) -> Raise<bool> {
    // SAFETY: live by the caller's word, as its class and the bases of that are by it; what is shown is held.
    unsafe {
        if is_brought(object) {
            return Ok(false);
        }
        if is_long_range(object, left) {
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

/// Whether an object is a range of more items than may be counted, which are counted if it is not.
///
/// # Safety
/// A live object.
unsafe fn is_long_range(object: *mut PyObject, left: &mut isize) -> bool {
    // SAFETY: live by the caller's word; a range by its exact class, whose length is asked of it.
    unsafe {
        if ffi::Py_TYPE(object) != &raw mut ffi::PyRange_Type {
            return false;
        }
        let len = ffi::PyObject_Size(object);
        if len < 0 {
            ffi::PyErr_Clear();
        }
        len < 0 || !takes(left, len)
    }
}

/// Items of a tuple that the caller has checked for being one.
pub fn arguments_of(tuple: &Own) -> impl Iterator<Item = *mut PyObject> {
    // SAFETY: a live object, which is held over this.
    let items = unsafe { ffi::PyTuple_Size(tuple.ptr()) };
    // SAFETY: held, and that long; items are borrowed from it.
    (0..items).map(|i| unsafe { ffi::PyTuple_GetItem(tuple.ptr(), i) })
}

/// Whether an object is a class whose instances are made of the items of what it is called with, and may hash them.
pub fn is_container(class: &Own) -> Raise<bool> {
    // SAFETY: a live object, which is held over this; the second is asked of a class alone.
    let kind = unsafe {
        if ffi::PyType_Check(class.ptr()) == 0 {
            return Ok(false);
        }
        made_as(class.ptr().cast())?
    };
    Ok(matches!(kind, Some(Kind::Items | Kind::Pairs)))
}

/// Whether a call may hash what it is given: one of a time zone, or of a function that is not written in Python.
pub fn is_hashing(callable: &Own) -> Raise<bool> {
    // SAFETY: a live object, which is held over this; the second is asked of a class alone.
    unsafe {
        if ffi::PyType_Check(callable.ptr()) == 0 {
            return Ok(ffi::PyCFunction_Check(callable.ptr()) != 0);
        }
        is_one_of(callable.ptr().cast(), &[b"zoneinfo.ZoneInfo"])
    }
}

/// Whether a call looks its arguments up, and may write them into an error: one of an enum.
pub fn is_looking_up(callable: &Own, known: &Known) -> bool {
    // SAFETY: a live object, which is held over this, as its class is by it.
    unsafe { ffi::PyType_IsSubtype(ffi::Py_TYPE(callable.ptr()), known.enum_meta.ptr().cast()) != 0 }
}

/// As what the instances of a class are made.
///
/// # Safety
/// A live class.
unsafe fn made_as(class: *mut PyTypeObject) -> Raise<Option<Kind>> {
    // SAFETY: live by the caller's word, as what it inherits from is by it.
    unsafe {
        let Some((Listed { kind, by, .. }, of)) = inherits(class)? else { return Ok(None) };
        if of == class {
            return Ok(Some(kind));
        }
        let by = intern(by)?;
        let method = |class| in_class(class, by.ptr()).map(|method| method.ptr());
        Ok((method(class) == method(of)).then_some(kind))
    }
}

/// The first of those listed that a class inherits from, which may be it itself.
///
/// # Safety
/// A live class.
unsafe fn inherits(class: *mut PyTypeObject) -> Raise<Option<(Listed, *mut PyTypeObject)>> {
    // SAFETY: live by the caller's word, as are those that it inherits from, which stand in a tuple, by it; a class's
    // name lives with the class.
    unsafe {
        let order = (*class).tp_mro;
        if order.is_null() {
            return Ok(None);
        }
        for base in arguments_of(&Own::share(order)) {
            let of: *mut PyTypeObject = base.cast();
            let name = CStr::from_ptr((*of).tp_name).to_bytes();
            let point = name.iter().rposition(|&byte| byte == b'.');
            let (module, name) = point.map_or((BUILTINS, name), |point| (&name[..point], &name[point + 1..]));
            let Some(listed) = listed(name) else { continue };
            // Those of Python code have no module in their name, and no such class can be made with one.
            let is_it = listed.module == module && (point.is_some() || is_static(of));
            if is_it || (point.is_none() && listed.module != BUILTINS && is_of(of, listed.module)?) {
                return Ok(Some((listed, of)));
            }
        }
        Ok(None)
    }
}

/// Whether a class is the interpreter's, or its library's, of one of these names; a class that is called so and is of
/// another module is none.
///
/// # Safety
/// A live class.
pub unsafe fn is_one_of(class: *mut PyTypeObject, names: &[&[u8]]) -> Raise<bool> {
    // SAFETY: live by the caller's word; its name lives with it.
    unsafe {
        let name = CStr::from_ptr((*class).tp_name).to_bytes();
        if names.contains(&name) {
            // Those of Python code have no module in their name, and no such class can be made with one.
            return Ok(is_static(class) || name.contains(&b'.'));
        }
        if is_static(class) {
            return Ok(false);
        }
        for of in names {
            if let Some(module) = of.strip_suffix(name).and_then(|of| of.strip_suffix(b".")) {
                return is_of(class, module);
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

/// As [`is_of_module`].
///
/// # Safety
/// A live class.
unsafe fn is_of(class: *mut PyTypeObject, module: &[u8]) -> Raise<bool> {
    // SAFETY: live by the caller's word; a text that is that long; a new reference or null with an error.
    unsafe {
        let module = Own::take(ffi::PyUnicode_FromStringAndSize(module.as_ptr().cast(), module.len() as isize))?;
        is_of_module(class, &module)
    }
}

/// Whether a class is none that code has made.
///
/// # Safety
/// A live class.
unsafe fn is_static(class: *mut PyTypeObject) -> bool {
    // SAFETY: live by the caller's word.
    unsafe { ffi::PyType_HasFeature(class, ffi::Py_TPFLAGS_HEAPTYPE) == 0 }
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
