//! Values that hold no others, and the making of strings and numbers.

use std::mem::MaybeUninit;

use pyo3::prelude::*;

use crate::codec::classes::combined::{Combined, combined};
use crate::codec::classes::found::Found;
use crate::codec::classes::known::Known;
use crate::codec::classes::layout::Entry;
use crate::codec::classes::registry::Registry;
use crate::codec::classes::{anew, met};
use crate::codec::datetime;
use crate::codec::format::reader::{Reader, damaged};
use crate::codec::format::{tags, writer};
use crate::codec::object::{Own, Raise, Raised};
use crate::codec::room;
use crate::ffi;

/// What is needed to make leaves.
#[derive(Clone, Copy)]
pub struct Maker<'a, 'py> {
    pub py: Python<'py>,
    pub known: &'static Known,
    pub registry: &'a Registry,
    /// A leaf that was made beforehand, and is not where it stands.
    pub ready: Option<&'a Ready>,
}

/// A leaf that was made before the value that it is part of.
pub struct Ready {
    /// Position of its tag.
    pub at: usize,
    /// Position of what follows it.
    pub next: usize,
    pub value: Own,
}

impl<'a> Maker<'a, '_> {
    /// The entry of a number, as the name of what it stands for leads now. `whole` is what refers to it, for an error
    /// that says what else is not allowed of it; nothing where nobody will read that.
    pub fn entry(&self, id: u32, whole: &[u8]) -> Raise<Option<&'a Entry>> {
        let Some(mut entry) = self.registry.entry(id) else { return Ok(None) };
        if let Entry::Unmet(record) = entry {
            entry = met::met(self.registry, self.known, id, record, || self.needed(whole))?;
        }
        if entry.is_found(Found::holds) {
            Ok(Some(entry))
        } else {
            anew::renewed(self.registry, self.known, id).map(Some)
        }
    }

    /// Reads a leaf; `None` when the value is not one, with nothing read.
    #[inline(always)]
    pub fn leaf(&self, reader: &mut Reader<'_>) -> Raise<Option<Own>> {
        let tag = reader.peek()?;
        if tag as usize <= tags::STR_SHORT_MAX {
            reader.at += 1;
            return ascii(reader.take(tag as usize)?).map(Some);
        }
        // SAFETY (all below): constants of the interpreter; constructors return a new reference or null with an error.
        let made = match tag {
            tags::INT_SMALL..=tags::INT_SMALL_LAST => {
                reader.at += 1;
                // SAFETY: see above.
                unsafe {
                    Own::take(ffi::PyLong_FromLong((i64::from(tag - tags::INT_SMALL) + tags::INT_SMALL_MIN) as _))
                }
            }
            tags::INT..=tags::INT_LAST => {
                reader.at += 1;
                let n = (tag - tags::INT) as usize + 1;
                let shift = 64 - 8 * n as u32;
                let value = ((reader.number(n)? << shift) as i64) >> shift;
                // SAFETY: see above.
                unsafe { Own::take(ffi::PyLong_FromLongLong(value)) }
            }
            tags::NONE => {
                reader.at += 1;
                // SAFETY: see above.
                Ok(unsafe { Own::share(ffi::Py_None()) })
            }
            tags::TRUE | tags::FALSE => {
                reader.at += 1;
                // SAFETY: see above.
                Ok(unsafe { Own::share(if tag == tags::TRUE { ffi::Py_True() } else { ffi::Py_False() }) })
            }
            tags::FLOAT_CENTS => {
                reader.at += 1;
                let whole = reader.number(4)? as u32 as i32;
                // SAFETY: see above.
                unsafe { Own::take(ffi::PyFloat_FromDouble(f64::from(whole) / 100.0)) }
            }
            tags::FLOAT => {
                reader.at += 1;
                let value = f64::from_bits(reader.number(8)?);
                // SAFETY: see above.
                unsafe { Own::take(ffi::PyFloat_FromDouble(value)) }
            }
            tags::DATETIME_SECONDS => {
                reader.at += 1;
                datetime::naive(datetime::from_whole_seconds(reader.number(5)?))
            }
            tags::DATETIME => {
                reader.at += 1;
                datetime::naive(reader.number(8)?)
            }
            // Short objects and containers.
            tags::OBJECT_SHORT..=tags::OBJECT_SHORT_LAST | tags::LIST_SHORT..=tags::DICT_SHORT_LAST => return Ok(None),
            _ => return self.rare(tag, reader),
        };
        made.map(Some)
    }

    #[inline(never)]
    fn rare(&self, tag: u8, reader: &mut Reader<'_>) -> Raise<Option<Own>> {
        let before = reader.at;
        if let Some(ready) = self.ready
            && ready.at == before
        {
            reader.at = ready.next;
            return Ok(Some(ready.value.clone()));
        }
        reader.at += 1;
        // SAFETY: as in `leaf`.
        let made = unsafe {
            match tag {
                tags::INT_BIG => big_int(reader),
                tags::ELLIPSIS => Ok(Own::share(ffi::Py_Ellipsis())),
                tags::NOT_IMPLEMENTED => Ok(Own::share(ffi::Py_NotImplemented())),
                tags::COMPLEX => {
                    let (real, imag) = (f64::from_bits(reader.number(8)?), f64::from_bits(reader.number(8)?));
                    Own::take(ffi::PyComplex_FromDoubles(real, imag))
                }
                tags::STR_ASCII => {
                    let len = reader.varint()?;
                    ascii(reader.take(len)?)
                }
                tags::STR_LATIN1 | tags::STR_UCS2 | tags::STR_UCS4 => wide(tag, reader),
                tags::BYTES => bytes_leaf(reader),
                tags::BYTEARRAY => {
                    let len = reader.varint()?;
                    let bytes = reader.take(len)?;
                    Own::take(ffi::PyByteArray_FromStringAndSize(bytes.as_ptr().cast(), len as isize))
                }
                tags::ARRAY => self.array(reader),
                tags::ND_ARRAY => self.nd_array(reader),
                tags::ND_SCALAR => self.nd_scalar(reader),
                tags::DATE => datetime::date(reader.take(4)?),
                tags::TIME => datetime::time(reader.take(7)?, None),
                tags::TIMEDELTA => datetime::timedelta(reader.take(12)?),
                tags::UTC => Ok(Own::share((*ffi::PyDateTimeAPI()).TimeZone_UTC)),
                tags::DECIMAL => self.decimal(reader),
                tags::UUID => self.uuid(reader),
                tags::ENUM => self.member(reader),
                tags::GLOBAL => match self.entry(reader.id()?, reader.whole())? {
                    Some(Entry::Global { object, .. }) => Ok(object.clone()),
                    _ => Err(damaged("an unknown class or function")),
                },
                tags::TYPE_OF => {
                    let value = match reader.byte()? {
                        tags::NONE => ffi::Py_None(),
                        tags::ELLIPSIS => ffi::Py_Ellipsis(),
                        tags::NOT_IMPLEMENTED => ffi::Py_NotImplemented(),
                        _ => return Err(damaged("an unknown singleton")),
                    };
                    Ok(Own::share(ffi::Py_TYPE(value).cast()))
                }
                _ => {
                    reader.at = before;
                    return Ok(None);
                }
            }
        };
        made.map(Some)
    }

    fn array(&self, reader: &mut Reader<'_>) -> Raise<Own> {
        let code = reader.byte()?;
        let len = reader.varint()?;
        reader.take(reader.at.next_multiple_of(8) - reader.at)?;
        let items = reader.take(len)?;
        // SAFETY: strings and bytes with their lengths; held while they are passed on; new references or null with an
        // error. The method checks the length against the item size.
        unsafe {
            let code = Own::take(ffi::PyUnicode_FromOrdinal(code.into()))?;
            let made = Own::take(ffi::PyObject_CallOneArg(self.known.array.ptr(), code.ptr()))?;
            let bytes = Own::take(ffi::PyMemoryView_FromMemory(
                items.as_ptr().cast_mut().cast(),
                len as isize,
                ffi::PyBUF_READ,
            ))?;
            let method = crate::codec::object::attribute(made.ptr(), c"frombytes")?;
            Own::take(ffi::PyObject_CallOneArg(method.ptr(), bytes.ptr()))?;
            Ok(made)
        }
    }

    fn decimal(&self, reader: &mut Reader<'_>) -> Raise<Own> {
        let len = reader.varint()?;
        let text = ascii(reader.take(len)?)?;
        let class = self.known.decimal(self.py)?;
        // SAFETY: held; a new reference or null with an error.
        unsafe {
            Own::take(ffi::PyObject_CallOneArg(class.ptr(), text.ptr())).map_err(|error| {
                if ffi::PyErr_ExceptionMatches(ffi::PyExc_ArithmeticError) == 0 {
                    return error;
                }
                ffi::PyErr_Clear();
                damaged("no decimal number")
            })
        }
    }

    fn uuid(&self, reader: &mut Reader<'_>) -> Raise<Own> {
        let bytes = reader.take(16)?;
        let (class, unknown) = self.known.uuid(self.py)?;
        let names = &self.known.names;
        // SAFETY: held; a UUID forbids setting attributes, but not to `object.__setattr__`, as its own `__init__` does.
        unsafe {
            let int = Own::take(ffi::_PyLong_FromByteArray(bytes.as_ptr(), 16, 0, 0))?;
            let made = Own::take(ffi::PyType_GenericAlloc(class.ptr().cast(), 0))?;
            for (name, value) in [(&names.int, &int), (&names.is_safe, unknown)] {
                if ffi::PyObject_GenericSetAttr(made.ptr(), name.ptr(), value.ptr()) < 0 {
                    return Err(crate::codec::object::Raised);
                }
            }
            Ok(made)
        }
    }

    fn member(&self, reader: &mut Reader<'_>) -> Raise<Own> {
        let Some(Entry::Enum { class, members, .. }) = self.entry(reader.id()?, reader.whole())? else {
            return Err(damaged("an unknown enum"));
        };
        // No other leaf is a name: one may be a member, whose name may be one, and so on.
        if !tags::is_text(reader.peek()?) {
            return Err(damaged("an enum member without a name"));
        }
        let Some(name) = self.leaf(reader)? else { return Err(damaged("an enum member without a name")) };
        // SAFETY: a dict and a string, both held; the result is borrowed from the dict.
        unsafe {
            let found = ffi::PyDict_GetItemWithError(members.ptr(), name.ptr());
            if !found.is_null() {
                return Ok(Own::share(found));
            }
            if !ffi::PyErr_Occurred().is_null() {
                return Err(Raised);
            }
        }
        self.combination(class, members, &name)
    }

    /// A flag that is told by the names of its parts, as the class has them now.
    #[cold]
    fn combination(&self, class: &Own, members: &Own, name: &Own) -> Raise<Own> {
        // SAFETY: a class, the dict of its members and a string, all held; a new reference or null with an error.
        unsafe {
            if ffi::PyType_IsSubtype(class.ptr().cast(), self.known.flag.ptr().cast()) == 0 {
                return Err(anew::no_member(class, name));
            }
            match combined(members, name)? {
                Combined::Value(value) => Own::take(ffi::PyObject_CallOneArg(class.ptr(), value.ptr())),
                Combined::Unknown(part) => Err(anew::no_member(class, &part)),
            }
        }
    }
}

/// A `bytes`, whose tag is read.
#[inline(always)]
pub fn bytes_leaf(reader: &mut Reader<'_>) -> Raise<Own> {
    let len = reader.varint()?;
    let bytes = reader.take(len)?;
    // SAFETY: as many bytes as said; a new reference or null with an error.
    unsafe { Own::take(ffi::PyBytes_FromStringAndSize(bytes.as_ptr().cast(), len as isize)) }
}

/// A `bytes` of `len` bytes that `fill` brings, if it says that it did.
pub fn bytes_of(len: usize, fill: impl FnOnce(&mut [MaybeUninit<u8>]) -> bool) -> Raise<Option<Own>> {
    // SAFETY: a new reference or null with an error; room for that many bytes, which nobody else has seen yet.
    unsafe {
        let made = Own::take(ffi::PyBytes_FromStringAndSize(std::ptr::null(), len as isize))?;
        let room = ffi::PyBytes_AsString(made.ptr()).cast();
        Ok(fill(std::slice::from_raw_parts_mut(room, len)).then_some(made))
    }
}

/// A string of `len` ASCII characters that `fill` brings, if it says that it did.
pub fn ascii_of(len: usize, fill: impl FnOnce(&mut [MaybeUninit<u8>]) -> bool) -> Raise<Option<Own>> {
    // SAFETY: as in `ascii`; what was filled is initialized.
    unsafe {
        let made = Own::take(ffi::PyUnicode_New(len as isize, 127))?;
        let data = made.ptr().cast::<u8>().add(size_of::<ffi::PyASCIIObject>());
        if !fill(std::slice::from_raw_parts_mut(data.cast(), len)) {
            return Ok(None);
        }
        if !std::slice::from_raw_parts(data, len).is_ascii() {
            return Err(damaged("a string is not what it says"));
        }
        Ok(Some(made))
    }
}

fn big_int(reader: &mut Reader<'_>) -> Raise<Own> {
    let len = reader.varint()?;
    let bytes = reader.take(len)?;
    // SAFETY: as many bytes as said; a new reference or null with an error.
    unsafe { Own::take(ffi::_PyLong_FromByteArray(bytes.as_ptr(), len, 1, 1)) }
}

/// A string of ASCII characters.
#[inline(always)]
fn ascii(bytes: &[u8]) -> Raise<Own> {
    if bytes.len() <= 1 {
        return one(bytes);
    }
    if !bytes.is_ascii() {
        return Err(damaged("a string is not what it says"));
    }
    // SAFETY: the new string has room for that many one-byte characters behind its short header, and nobody else has
    // seen it yet.
    unsafe {
        let made = Own::take(ffi::PyUnicode_New(bytes.len() as isize, 127))?;
        let data = made.ptr().cast::<u8>().add(size_of::<ffi::PyASCIIObject>());
        writer::copy_short(bytes.as_ptr(), data, bytes.len());
        Ok(made)
    }
}

/// The empty string and those of one character exist once.
#[inline(never)]
fn one(bytes: &[u8]) -> Raise<Own> {
    // SAFETY: as many bytes as said; a new reference or null with an error.
    unsafe {
        match bytes.first() {
            Some(&byte) => Own::take(ffi::PyUnicode_FromOrdinal(byte.into())),
            None => Own::take(ffi::PyUnicode_New(0, 0)),
        }
    }
}

fn wide(tag: u8, reader: &mut Reader<'_>) -> Raise<Own> {
    let width = match tag {
        tags::STR_LATIN1 => 1,
        tags::STR_UCS2 => 2,
        _ => 4,
    };
    let len = reader.varint()?;
    let bytes = reader.take(len.saturating_mul(width))?;
    // The interpreter reads the characters as aligned units.
    match width {
        1 => of_units(bytes),
        2 => {
            let units = room::list(bytes.chunks_exact(2).map(|c| u16::from_le_bytes([c[0], c[1]])))?;
            of_units(&units)
        }
        _ => {
            let units = room::list(bytes.chunks_exact(4).map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]])))?;
            if units.iter().any(|&unit| unit > 0x0010_FFFF) {
                return Err(damaged("a character is out of range"));
            }
            of_units(&units)
        }
    }
}

/// A string of these characters, which are numbers of one, two or four bytes.
fn of_units<T>(units: &[T]) -> Raise<Own> {
    let kind = match size_of::<T>() {
        1 => ffi::PyUnicode_1BYTE_KIND,
        2 => ffi::PyUnicode_2BYTE_KIND,
        _ => ffi::PyUnicode_4BYTE_KIND,
    };
    // SAFETY: as many aligned units as said, of that kind; the interpreter narrows the string to its widest character,
    // and refuses what is none. A new reference or null with an error.
    unsafe { Own::take(ffi::PyUnicode_FromKindAndData(kind as _, units.as_ptr().cast(), units.len() as isize)) }
}
