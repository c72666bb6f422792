//! Keys as bytes: two keys have the same bytes when a dict would take them for the same.
//!
//! ```text
//! text in UTF-8               str
//! FF bytes                    bytes
//! FE eight bytes              int that fits 64 bits, bool, and NumPy's
//! FD two's complement         any other int, as short as can be
//! FC sixteen bytes            uuid.UUID
//! FB (length, item) …         tuple; lengths in 4 bytes
//! FA                          None
//! F9 eight bytes              float that equals no int
//! F8 year, month, day         datetime.date
//! ```
//! No text in UTF-8 has a byte above F4, so it needs no mark, and a text in ASCII is its own bytes, where it lies.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{
    PyBool, PyBytes, PyDate, PyDateAccess, PyDict, PyFloat, PyInt, PyString, PyTuple, PyType, PyTypeMethods,
};

use crate::argument::is_of_numpy;
use crate::codec::{is_ascii, small_int};
use crate::errors::{answered, full_name, type_error, value_error};
use crate::once::{self, intern};
use crate::result;
use crate::scratch::with_key;

const BYTES: u8 = 0xFF;
const SHORT: u8 = 0xFE;
const LONG: u8 = 0xFD;
const UUID: u8 = 0xFC;
const TUPLE: u8 = 0xFB;
const NONE: u8 = 0xFA;
const FLOAT: u8 = 0xF9;
const DATE: u8 = 0xF8;

/// Tuples may be nested so deep.
pub(super) const DEEPEST: usize = 64;

/// Bytes of a number.
const NUMBER: usize = 9;

/// Calls `work` with a key's bytes.
///
/// # Errors
/// Those of `work`, and `TypeError` for a key of another type.
#[inline(always)]
pub(super) fn with<R>(key: &Bound<'_, PyAny>, work: impl FnOnce(&[u8]) -> PyResult<R>) -> PyResult<R> {
    match short(key, &mut [SHORT; NUMBER]) {
        Some(bytes) => work(bytes),
        None => with_written(key, work),
    }
}

/// What `work` makes of a key's bytes where they are at hand: those of an ASCII text or a number of few digits.
#[inline]
pub(super) fn with_short<R>(key: &Bound<'_, PyAny>, work: impl FnOnce(&[u8]) -> R) -> Option<R> {
    short(key, &mut [SHORT; NUMBER]).map(work)
}

/// The bytes of a text in ASCII, where they lie, or of a number of at most two digits of the interpreter's.
#[inline(always)]
fn short<'a>(key: &'a Bound<'_, PyAny>, room: &'a mut [u8; NUMBER]) -> Option<&'a [u8]> {
    let key = key.as_ptr();
    // SAFETY: the key is alive as long as what is returned, and of the exact class that each arm looks into. The
    // characters of a compact ASCII text follow its header, as many as its length says, and never change.
    unsafe {
        if ffi::PyUnicode_CheckExact(key) != 0 {
            let length = (*key.cast::<ffi::PyASCIIObject>()).length as usize;
            let characters = key.cast::<u8>().add(size_of::<ffi::PyASCIIObject>());
            return is_ascii(key).then(|| std::slice::from_raw_parts(characters, length));
        }
        if ffi::PyLong_CheckExact(key) != 0 {
            let number = small_int(key)?;
            room[1..].copy_from_slice(&number.to_le_bytes());
            return Some(room);
        }
    }
    None
}

#[inline(never)]
fn with_written<R>(key: &Bound<'_, PyAny>, work: impl FnOnce(&[u8]) -> PyResult<R>) -> PyResult<R> {
    with_key(|bytes| {
        write(key, bytes, 0)?;
        work(bytes)
    })
}

/// Appends the bytes of a key, or of an item of one that lies in that many tuples.
///
/// # Errors
/// `TypeError` for a key of another type.
pub(super) fn write(key: &Bound<'_, PyAny>, into: &mut Vec<u8>, depth: usize) -> PyResult<()> {
    if let Ok(text) = key.cast_exact::<PyString>() {
        if let Ok(text) = text.to_str() {
            into.extend_from_slice(text.as_bytes());
            return Ok(());
        }
        return surrogates(text, into);
    }
    if let Ok(number) = key.cast_exact::<PyInt>() {
        return integer(number.as_any(), into);
    }
    if let Ok(bytes) = key.cast_exact::<PyBytes>() {
        write_bytes(bytes.as_bytes(), into);
        return Ok(());
    }
    write_other(key, into, depth)
}

/// Appends a text as `str` itself encodes it: a subclass may do that in a way of its own, and is equal as its
/// characters are.
#[cold]
fn surrogates(text: &Bound<'_, PyString>, into: &mut Vec<u8>) -> PyResult<()> {
    let py = text.py();
    // SAFETY: attached; a str, whose own characters are encoded; a new reference, or null with an error set.
    let bytes = unsafe {
        let made = ffi::PyUnicode_AsEncodedString(text.as_ptr(), c"utf-8".as_ptr(), c"surrogatepass".as_ptr());
        Bound::from_owned_ptr_or_err(py, made)?
    };
    into.extend_from_slice(bytes.cast::<PyBytes>()?.as_bytes());
    Ok(())
}

/// Appends the key that some bytes are.
pub(super) fn write_bytes(bytes: &[u8], into: &mut Vec<u8>) {
    into.push(BYTES);
    into.extend_from_slice(bytes);
}

fn integer(number: &Bound<'_, PyAny>, into: &mut Vec<u8>) -> PyResult<()> {
    let mut beyond = 0;
    // SAFETY: attached; an int, or an instance of a subclass of int, whose own digits are read: no code of its class
    // runs.
    let short = unsafe { ffi::PyLong_AsLongLongAndOverflow(number.as_ptr(), &raw mut beyond) };
    if beyond == 0 {
        into.push(SHORT);
        into.extend_from_slice(&short.to_le_bytes());
        return Ok(());
    }
    into.push(LONG);
    // Digests and the numbers of UUIDs have 128 bits.
    if let Ok(wide) = number.extract::<i128>() {
        complement(wide.to_le_bytes(), wide.is_negative(), wide.unsigned_abs(), into);
        return Ok(());
    }
    if let Ok(wide) = number.extract::<u128>() {
        complement(wide.to_le_bytes(), false, wide, into);
        return Ok(());
    }
    let py = number.py();
    let number = py.get_type::<PyInt>().call_method1(intern!(py, "__index__")?, (number,))?;
    let length = number.call_method0(intern!(py, "bit_length")?)?.extract::<u64>()? / 8 + 1;
    let arguments = result::pair(result::number(py, length)?, intern!(py, "little")?.clone().into_any())?;
    let bytes = number.call_method(intern!(py, "to_bytes")?, arguments, Some(&signed(py)?))?;
    into.extend_from_slice(bytes.cast::<PyBytes>()?.as_bytes());
    Ok(())
}

/// The keyword of what turns an int of either sign into bytes, and back.
fn signed(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let signed = result::dict(py)?;
    signed.set_item(intern!(py, "signed")?, true)?;
    Ok(signed)
}

/// Appends a number's two's complement: as many bytes as hold the bits of its magnitude, and one for the sign.
fn complement(low: [u8; 16], is_negative: bool, magnitude: u128, into: &mut Vec<u8>) {
    let mut bytes = [if is_negative { u8::MAX } else { 0 }; 17];
    bytes[..16].copy_from_slice(&low);
    let bits = u128::BITS - magnitude.leading_zeros();
    into.extend_from_slice(&bytes[..=bits as usize / 8]);
}

/// Tuples, UUIDs, and instances of subclasses that compare and hash as their base does.
fn write_other(key: &Bound<'_, PyAny>, into: &mut Vec<u8>, depth: usize) -> PyResult<()> {
    let py = key.py();
    if let Ok(truth) = key.cast_exact::<PyBool>() {
        into.push(SHORT);
        into.extend_from_slice(&i64::from(truth.is_true()).to_le_bytes());
        return Ok(());
    }
    if let Ok(tuple) = key.cast::<PyTuple>()
        && like::<PyTuple>(key)?
    {
        if depth == DEEPEST {
            return Err(too_deep(py));
        }
        begin_tuple(into);
        return tuple.iter().try_for_each(|value| item(py, into, |into| write_item(&value, into, depth)));
    }
    if like::<PyString>(key)? {
        return surrogates(key.cast::<PyString>()?, into);
    }
    if like::<PyInt>(key)? {
        return integer(key, into);
    }
    if like::<PyBytes>(key)? {
        write_bytes(key.cast::<PyBytes>()?.as_bytes(), into);
        return Ok(());
    }
    if key.is_none() {
        into.push(NONE);
        return Ok(());
    }
    if let Ok(number) = key.cast::<PyFloat>()
        && is_float(number)?
    {
        return float(number, into);
    }
    if is_int_of_numpy(key) {
        // SAFETY: attached; the key is alive; a new reference, or null with an error set.
        let whole = unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyNumber_Long(key.as_ptr()))? };
        return integer(&whole, into);
    }
    if like::<PyDate>(key)? {
        let date = key.cast::<PyDate>()?;
        into.push(DATE);
        into.extend_from_slice(&(date.get_year() as u16).to_le_bytes());
        into.extend_from_slice(&[date.get_month(), date.get_day()]);
        return Ok(());
    }
    if compares_as(key, uuid_class(py)?)? {
        into.push(UUID);
        // What UUIDs are compared by. Its bytes are made by Python code.
        into.extend_from_slice(&key.getattr(intern!(py, "int")?)?.extract::<u128>()?.to_be_bytes());
        return Ok(());
    }
    Err(no_key(key, depth))
}

/// Whether a number equals those that its value equals: not what compares in a way of its own, but NumPy's `float64`.
fn is_float(number: &Bound<'_, PyFloat>) -> PyResult<bool> {
    Ok(is_of_numpy(number, &["float64"]) || like::<PyFloat>(number)?)
}

/// Whether a value is one of NumPy's integers or bools, which equal the ints that they stand for and have their hash.
fn is_int_of_numpy(value: &Bound<'_, PyAny>) -> bool {
    const NAMES: &[&str] = &[
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "longlong",
        "ulonglong",
        "intc",
        "uintc",
        "bool",
        "bool_",
    ];
    is_of_numpy(value, NAMES)
}

/// Appends a float, or the int that it equals.
fn float(number: &Bound<'_, PyFloat>, into: &mut Vec<u8>) -> PyResult<()> {
    let value = number.value();
    if value.is_finite() && value.fract() == 0.0 {
        // SAFETY: attached; a new reference, or null with an error set.
        let whole = unsafe { Bound::from_owned_ptr_or_err(number.py(), ffi::PyLong_FromDouble(value))? };
        return integer(&whole, into);
    }
    into.push(FLOAT);
    into.extend_from_slice(&value.to_le_bytes());
    Ok(())
}

/// The error of what is no key, or no item of one that lies in that many tuples.
#[cold]
fn no_key(key: &Bound<'_, PyAny>, depth: usize) -> PyErr {
    let py = key.py();
    let told = || -> PyResult<String> {
        // With its module, where that says more: NumPy's float32 is no float.
        let class = full_name(&key.get_type())?;
        let bases = [
            py.get_type::<PyString>(),
            py.get_type::<PyInt>(),
            py.get_type::<PyBytes>(),
            py.get_type::<PyTuple>(),
            py.get_type::<PyFloat>(),
        ];
        let mut own = false;
        for base in bases.iter().chain([uuid_class(py)?]) {
            own |= answered(py, key.is_instance(base))? == Some(true);
        }
        let own = if own { ", which compares in a way of its own" } else { "" };
        let found = if depth > 0 { "a tuple with an item of type " } else { "" };
        Ok(format!(
            "a cache's key is a str, bytes, int, float, date, UUID, None or a tuple of them, not {found}{class}{own}; pass one \
             that stands for it"
        ))
    };
    told().map_or_else(|error| error, |text| type_error(py, &text))
}

#[cold]
pub(super) fn too_deep(py: Python<'_>) -> PyErr {
    value_error(py, "a cache's key is made of tuples nested more than 64 deep; pass flatter ones")
}

/// Appends what a tuple begins with; its items follow.
pub(super) fn begin_tuple(into: &mut Vec<u8>) {
    into.push(TUPLE);
}

/// Appends an item of a tuple: how long it is, then what `write` appends.
#[inline]
pub(super) fn item(
    py: Python<'_>,
    into: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>) -> PyResult<()>,
) -> PyResult<()> {
    let at = into.len();
    into.extend_from_slice(&[0; 4]);
    write(into)?;
    let length =
        u32::try_from(into.len() - at - 4).map_err(|_| value_error(py, "a key's item is longer than 4 GiB"))?;
    into[at..at + 4].copy_from_slice(&length.to_le_bytes());
    Ok(())
}

/// Whether a value is a key by itself, and no tuple.
pub(super) fn may_be(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = value.py();
    if value.is_none() || is_int_of_numpy(value) {
        return Ok(true);
    }
    let basic = [like::<PyString>, like::<PyInt>, like::<PyBytes>, like::<PyDate>];
    for is_like in basic {
        if is_like(value)? {
            return Ok(true);
        }
    }
    match value.cast::<PyFloat>() {
        Ok(number) => is_float(number),
        Err(_) => compares_as(value, uuid_class(py)?),
    }
}

fn write_item(item: &Bound<'_, PyAny>, into: &mut Vec<u8>, depth: usize) -> PyResult<()> {
    if like::<PyTuple>(item)? { write_other(item, into, depth + 1) } else { write(item, into, depth + 1) }
}

/// Whether a value is of a type or of a subclass that compares and hashes like it.
#[inline]
pub(super) fn like<T: pyo3::PyTypeInfo>(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    if T::is_type_of(value) { compares_as(value, &T::type_object(value.py())) } else { Ok(false) }
}

fn compares_as(value: &Bound<'_, PyAny>, base: &Bound<'_, PyType>) -> PyResult<bool> {
    let class = value.get_type();
    if class.is(base) {
        return Ok(true);
    }
    let (own, of_base) = (class.as_type_ptr(), base.as_type_ptr());
    // SAFETY: attached; both classes are alive, and were made ready when they got instances.
    unsafe {
        if ffi::PyType_IsSubtype(own, of_base) == 0 {
            return Ok(false);
        }
        // By their addresses: the same code does the same. Not where the base was written in Python, as UUID was: there
        // the code is that which looks the methods up, whatever they are.
        let is_native = ffi::PyType_GetFlags(of_base) & ffi::Py_TPFLAGS_HEAPTYPE == 0;
        let does = |class: *mut ffi::PyTypeObject| {
            ((*class).tp_hash.map(|hash| hash as usize), (*class).tp_richcompare.map(|compare| compare as usize))
        };
        if is_native && does(own) == does(of_base) {
            return Ok(true);
        }
    }
    // A class that defines an order of its own may still find what is equal as its base does.
    let py = value.py();
    let same = |name: &Bound<'_, PyString>| {
        let own = answered(py, class.getattr(name))?;
        PyResult::Ok(own.is_some_and(|own| base.getattr(name).is_ok_and(|of_base| own.is(&of_base))))
    };
    Ok(same(intern!(py, "__hash__")?)? && same(intern!(py, "__eq__")?)?)
}

fn uuid_class(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    once::class(py, &CLASS, c"uuid", c"UUID")
}

/// The key that some bytes stand for.
pub(super) fn read<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    read_item(py, bytes, 0)
}

fn read_item<'py>(py: Python<'py>, bytes: &[u8], depth: usize) -> PyResult<Bound<'py, PyAny>> {
    let wrong = || value_error(py, "these bytes are no key's");
    if let Ok(text) = str::from_utf8(bytes) {
        return Ok(result::text(py, text)?.into_any());
    }
    let (&kind, rest) = bytes.split_first().ok_or_else(wrong)?;
    match kind {
        ..DATE => {
            let (start, length) = (bytes.as_ptr().cast(), bytes.len() as isize);
            // SAFETY: attached; the bytes are borrowed for the call; a new reference, or null with an error set.
            unsafe {
                let text = ffi::PyUnicode_DecodeUTF8(start, length, c"surrogatepass".as_ptr());
                Bound::from_owned_ptr_or_err(py, text)
            }
        }
        BYTES => Ok(result::bytes(py, rest)?.into_any()),
        SHORT => result::signed(py, i64::from_le_bytes(rest.try_into().map_err(|_| wrong())?)),
        LONG => {
            let arguments =
                result::pair(result::bytes(py, rest)?.into_any(), intern!(py, "little")?.clone().into_any())?;
            py.get_type::<PyInt>().call_method(intern!(py, "from_bytes")?, arguments, Some(&signed(py)?))
        }
        NONE if rest.is_empty() => Ok(py.None().into_bound(py)),
        FLOAT => Ok(result::float(py, f64::from_le_bytes(rest.try_into().map_err(|_| wrong())?))?.into_any()),
        DATE => {
            let &[low, high, month, day] = rest else { return Err(wrong()) };
            Ok(PyDate::new(py, u16::from_le_bytes([low, high]).into(), month, day)?.into_any())
        }
        UUID => {
            let arguments = result::dict(py)?;
            arguments.set_item(intern!(py, "bytes")?, result::bytes(py, rest)?)?;
            uuid_class(py)?.call((), Some(&arguments))
        }
        TUPLE if depth <= DEEPEST => {
            let (mut items, mut rest) = (Vec::new(), rest);
            while let Some((length, more)) = rest.split_first_chunk::<4>() {
                let (item, more) = more.split_at_checked(u32::from_le_bytes(*length) as usize).ok_or_else(wrong)?;
                items.push(read_item(py, item, depth + 1)?);
                rest = more;
            }
            Ok(result::tuple(py, items.into_iter())?.into_any())
        }
        _ => Err(wrong()),
    }
}
