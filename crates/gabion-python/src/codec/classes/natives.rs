//! Classes of the interpreter and of libraries that are not written in Python: which have a form of their own, whom of
//! them a registered reducer is asked for, and whose reducers return nothing but what the object itself holds.

use super::known::Known;
use super::plan::Kind;
use crate::codec::object::Own;
use crate::ffi::{self, PyObject, PyTypeObject};

unsafe extern "C" {
    static mut PyPickleBuffer_Type: PyTypeObject;
}

/// The form of a class of the interpreter's own, subclasses not included.
///
/// # Safety
/// `class` is a live class.
pub unsafe fn built_in(known: &Known, class: *mut PyTypeObject) -> Option<Kind> {
    // SAFETY: addresses of static classes; the datetime interface was loaded with the codec; `class` is live.
    unsafe {
        let api = &*ffi::PyDateTimeAPI();
        let is = |other: *mut PyTypeObject| class == other;
        Some(if is(&raw mut ffi::PyList_Type) {
            Kind::List
        } else if is(&raw mut ffi::PyTuple_Type) {
            Kind::Tuple
        } else if is(&raw mut ffi::PyDict_Type) {
            Kind::Dict
        } else if is(&raw mut ffi::PySet_Type) {
            Kind::Set
        } else if is(&raw mut ffi::PyFrozenSet_Type) {
            Kind::FrozenSet
        } else if is(&raw mut ffi::PyBytes_Type) {
            Kind::Bytes
        } else if is(&raw mut ffi::PyByteArray_Type) {
            Kind::ByteArray
        } else if is(&raw mut ffi::PyComplex_Type) {
            Kind::Complex
        } else if is(&raw mut ffi::PyRange_Type) {
            Kind::Range
        } else if is(&raw mut ffi::PySlice_Type) {
            Kind::Slice
        } else if is(&raw mut ffi::PyFunction_Type) || ffi::PyType_IsSubtype(class, &raw mut ffi::PyType_Type) != 0 {
            Kind::Global
        } else if is(&raw mut ffi::PyCFunction_Type) {
            Kind::Native
        } else if is(api.DateTimeType) {
            Kind::DateTime
        } else if is(api.DateType) {
            Kind::Date
        } else if is(api.TimeType) {
            Kind::Time
        } else if is(api.DeltaType) {
            Kind::TimeDelta
        } else if is(ffi::Py_TYPE(api.TimeZone_UTC)) {
            Kind::TimeZone
        } else if is(&raw mut PyPickleBuffer_Type) {
            Kind::PickleBuffer
        } else if class.cast() == known.array.ptr() {
            Kind::Array
        } else {
            return None;
        })
    }
}

/// Whether pickle knows this class so well that it asks no reducer which was registered for it.
pub fn is_never_asked_for(class: *mut PyTypeObject, built_in: Option<&Kind>) -> bool {
    match built_in {
        // Metaclasses of others are asked for.
        Some(Kind::Global) => class == &raw mut ffi::PyFunction_Type || class == &raw mut ffi::PyType_Type,
        Some(
            Kind::List
            | Kind::Tuple
            | Kind::Dict
            | Kind::Set
            | Kind::FrozenSet
            | Kind::Bytes
            | Kind::ByteArray
            | Kind::PickleBuffer,
        ) => true,
        _ => false,
    }
}

/// Classes whose `__reduce__` or `__reduce_ex__` returns what the object holds itself, or makes anew. Others may take
/// things out of what somebody else holds: an iterator of a dict gives the dict's values, and `OSError` those of a
/// tuple that it may share.
///
/// What is in a new list is not lost, if it is the object that holds it; nor is a container that the object holds, as
/// it is walked itself.
const REDUCERS: &[&[u8]] = &[
    b"set",
    b"frozenset",
    b"bytearray",
    b"BaseException",
    b"method_descriptor",
    b"collections.deque",
    b"collections.OrderedDict",
    b"collections.defaultdict",
    b"functools.partial",
    // A name.
    b"functools._lru_cache_wrapper",
    b"types.SimpleNamespace",
    b"operator.itemgetter",
    b"operator.attrgetter",
    b"operator.methodcaller",
    b"array.array",
    b"decimal.Decimal",
    b"datetime.date",
    b"datetime.datetime",
    b"datetime.time",
    b"datetime.timedelta",
    b"datetime.timezone",
    b"datetime.tzinfo",
    // A key.
    b"zoneinfo.ZoneInfo",
    // Two arrays may share their items. All that is taken out of one has a reference from there and another from the
    // list.
    b"numpy.ndarray",
    b"numpy.dtype",
    b"numpy.generic",
];

/// As [`REDUCERS`], for `__getstate__`.
const STATES: &[&[u8]] = &[b"xml.etree.ElementTree.Element"];

/// As [`REDUCERS`], for `__getnewargs__`.
const ARGUMENTS: &[&[u8]] = &[b"str", b"bytes", b"int", b"float", b"complex", b"tuple"];

/// Whether what pickling asks a class for returns only what its instances hold themselves, provided that none of it is
/// written in Python. `find` looks a name up in the class.
pub fn give_their_own(known: &Known, find: impl Fn(&Own) -> Option<Own>) -> bool {
    let names = &known.names;
    let of_object = |name: &Own, default: &Own| find(name).is_some_and(|found| found.ptr() == default.ptr());
    let is_of = |name: &Own, classes: &[&[u8]]| find(name).is_some_and(|found| is_method_of(&found, classes));
    let (any, plain) =
        (of_object(&names.reduce_ex, &known.object_reduce_ex), of_object(&names.reduce, &known.object_reduce));
    (any || is_of(&names.reduce_ex, REDUCERS))
        && (plain || is_of(&names.reduce, REDUCERS))
        && (of_object(&names.getstate, &known.object_getstate) || is_of(&names.getstate, STATES))
        && find(&names.getnewargs_ex).is_none()
        && (find(&names.getnewargs).is_none() || is_of(&names.getnewargs, ARGUMENTS))
}

/// The beginning of a method that is not written in Python, as a class has it.
#[repr(C)]
struct Method {
    base: PyObject,
    class: *mut PyTypeObject,
}

/// Whether this is a method that is not written in Python, of one of the classes.
fn is_method_of(found: &Own, classes: &[&[u8]]) -> bool {
    // SAFETY: held; the cast is checked by its exact class. A method's class is held by it, and has a name that lives
    // with it.
    unsafe {
        ffi::Py_TYPE(found.ptr()) == &raw mut ffi::PyMethodDescr_Type && {
            let class = (*found.ptr().cast::<Method>()).class;
            classes.contains(&std::ffi::CStr::from_ptr((*class).tp_name).to_bytes())
        }
    }
}
