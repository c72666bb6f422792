//! The leaves that most fields are, written through a cursor that stays in a register.
//!
//! An encoder that asked its output for room and told it the new length at every field would wait for its own stores
//! each time. So room for a whole leaf is made ahead, and the leaf is written without looking back.

use crate::codec::apart::{Apart, LEAST, Owner};
use crate::codec::datetime;
use crate::codec::format::{tags, writer};
#[cfg(not(Py_3_12))]
use crate::codec::object::Raised;
use crate::codec::object::{Own, Raise, referenced_at_most};
use crate::ffi::{self, PyObject};

/// Room that one such leaf needs: a tag, 63 characters, and what a copy may write beyond them.
pub const ROOM: usize = 96;

/// The start of an `int` object.
#[repr(C)]
struct Int {
    base: PyObject,
    /// 3.12 on: digits << 3 | sign. Before: signed count of digits.
    size: isize,
    digits: [u32; 3],
}

/// The value of an integer of at most two digits (60 bits).
///
/// # Safety
/// `obj` is an exact `int`.
#[inline(always)]
pub(crate) unsafe fn small(obj: *mut PyObject) -> Option<i64> {
    const { assert!(cfg!(target_pointer_width = "64"), "digits of 30 bits are assumed") };
    // SAFETY: an `int` has room for the digits that it says to have.
    unsafe {
        let int = obj.cast::<Int>();
        #[cfg(Py_3_12)]
        let (count, negative) = ((*int).size as usize >> 3, (*int).size & 3 == 2);
        #[cfg(not(Py_3_12))]
        let (count, negative) = ((*int).size.unsigned_abs(), (*int).size < 0);
        let digits = &raw const (*int).digits;
        let digit = |i: usize| i64::from(*digits.cast::<u32>().add(i));
        let magnitude = match count {
            0 => 0,
            1 => digit(0),
            2 => digit(0) | digit(1) << 30,
            _ => return None,
        };
        Some(if negative { -magnitude } else { magnitude })
    }
}

#[cfg(not(Py_3_14))]
unsafe extern "C" {
    /// An `int` with room for that many digits, sign and count set.
    fn _PyLong_New(digits: isize) -> *mut PyObject;
}

/// An `int` of 31 to 60 bits: exactly two digits. A new reference, or null with an error set.
///
/// # Safety
/// Attached, and the value is in that range.
#[inline(always)]
pub(crate) unsafe fn two_digits(value: u64) -> *mut PyObject {
    debug_assert!((1 << 30..1 << 60).contains(&value));
    #[cfg(not(Py_3_14))]
    // SAFETY: a new int with room for two digits, which nobody has seen yet.
    unsafe {
        let made = _PyLong_New(2);
        if !made.is_null() {
            let digits = (&raw mut (*made.cast::<Int>()).digits).cast::<u32>();
            digits.write(value as u32 & ((1 << 30) - 1));
            digits.add(1).write((value >> 30) as u32);
        }
        made
    }
    #[cfg(Py_3_14)]
    // SAFETY: attached.
    unsafe {
        ffi::PyLong_FromUnsignedLongLong(value)
    }
}

/// The float as a number of cents, when it is exactly what a division by 100 gives.
#[inline(always)]
fn cents(value: f64) -> Option<i32> {
    // Half away from zero, by truncation: a wrong neighbour only fails the comparison. Saturating, with 0 for a NaN:
    // these fail it too.
    let whole = (value * 100.0 + 0.5f64.copysign(value)) as i32;
    (f64::from(whole) / 100.0).to_bits().eq(&value.to_bits()).then_some(whole)
}

/// Whether a string is ASCII in the compact form, whose characters follow the short header.
///
/// # Safety
/// `obj` is an exact `str`.
#[inline(always)]
pub unsafe fn is_ascii(obj: *mut PyObject) -> bool {
    // SAFETY: as the caller promised.
    unsafe { ffi::PyUnicode_IS_COMPACT_ASCII(obj) != 0 }
}

/// Writes one byte at the cursor.
#[inline(always)]
unsafe fn byte(at: *mut u8, value: u8) -> *mut u8 {
    // SAFETY: the caller has room.
    unsafe {
        *at = value;
        at.add(1)
    }
}

/// Writes a tag and the low `n` bytes of `value`, little-endian, at the cursor.
#[inline(always)]
unsafe fn tagged(at: *mut u8, tag: u8, value: u64, n: usize) -> *mut u8 {
    // SAFETY: the caller has room for nine bytes.
    unsafe {
        *at = tag;
        at.add(1).cast::<u64>().write_unaligned(value.to_le());
        at.add(1 + n)
    }
}

/// Writes an integer at the cursor, where the caller has [`ROOM`].
///
/// # Safety
/// As said.
#[inline(always)]
pub unsafe fn int(at: *mut u8, value: i64) -> *mut u8 {
    // SAFETY: nine bytes at most.
    unsafe {
        if (tags::INT_SMALL_MIN..=tags::INT_SMALL_MAX).contains(&value) {
            return byte(at, tags::INT_SMALL + (value - tags::INT_SMALL_MIN) as u8);
        }
        // Bits of the magnitude and one for the sign, in whole bytes.
        let bits = 65 - (value ^ (value >> 63)).leading_zeros();
        let n = bits.div_ceil(8);
        tagged(at, tags::INT + (n as u8 - 1), value as u64, n as usize)
    }
}

#[inline(always)]
unsafe fn float(at: *mut u8, value: f64) -> *mut u8 {
    // SAFETY: nine bytes at most.
    unsafe {
        match cents(value) {
            Some(whole) => tagged(at, tags::FLOAT_CENTS, u64::from(whole as u32), 4),
            None => tagged(at, tags::FLOAT, value.to_bits(), 8),
        }
    }
}

/// Writes a datetime's fields at the cursor.
///
/// # Safety
/// `obj` is an exact `datetime` without a time zone; room for nine bytes.
#[inline(always)]
unsafe fn naive_datetime(at: *mut u8, obj: *mut PyObject) -> *mut u8 {
    // SAFETY: a datetime never changes.
    unsafe {
        let value = obj.cast::<ffi::PyDateTime_DateTime>();
        let packed = datetime::pack(&(*value).data, (*value).fold);
        match datetime::whole_seconds(packed) {
            Some(seconds) => tagged(at, tags::DATETIME_SECONDS, seconds, 5),
            None => tagged(at, tags::DATETIME, packed, 8),
        }
    }
}

/// Writes a string of at most 63 ASCII characters at the cursor.
///
/// # Safety
/// `obj` is an exact `str` in the compact ASCII form with `len` characters; [`ROOM`] at the cursor.
#[inline(always)]
unsafe fn text(at: *mut u8, obj: *mut PyObject, len: usize) -> *mut u8 {
    // SAFETY: the characters follow the header. On a build with the GIL nobody writes to the header meanwhile, and the
    // 16 bytes that end with the last character begin inside it at the earliest; the cursor has room for the tag and 64
    // bytes more.
    unsafe {
        *at = len as u8;
        let (data, to) = (obj.cast::<u8>().add(size_of::<ffi::PyASCIIObject>()), at.add(1));
        #[cfg(not(Py_GIL_DISABLED))]
        {
            const { assert!(size_of::<ffi::PyASCIIObject>() >= 16) };
            let last = data.offset(len as isize - 16).cast::<u128>().read_unaligned();
            if len <= 16 {
                // Lengths of names are hard to predict: no branch on them. (Of nothing, anything may be written.)
                let characters = u128::from_le(last).wrapping_shr(8 * (16 - len as u32));
                to.cast::<u128>().write_unaligned(characters.to_le());
            } else {
                to.cast::<u128>().write_unaligned(data.cast::<u128>().read_unaligned());
                if len > 32 {
                    for piece in [16, 32] {
                        let piece = piece.min(len - 16);
                        to.add(piece).cast::<u128>().write_unaligned(data.add(piece).cast::<u128>().read_unaligned());
                    }
                }
                to.add(len - 16).cast::<u128>().write_unaligned(last);
            }
        }
        #[cfg(Py_GIL_DISABLED)]
        writer::copy_short(data, to, len);
        to.add(len)
    }
}

/// Writes a leaf of a common kind at the cursor and returns the cursor behind it; null when `obj` is none, or may be
/// met again (it has more than `limit` references), and nothing counts as written. Runs no Python code.
///
/// # Safety
/// `obj` is a live object and stays so while this runs; [`ROOM`] bytes may be written at `at`.
#[inline(always)]
pub unsafe fn leaf(at: *mut u8, obj: *mut PyObject, limit: isize) -> *mut u8 {
    let no = std::ptr::null_mut();
    // SAFETY: live by the caller's word, who has the room too; each arm is for the exact class that it names.
    unsafe {
        let class = ffi::Py_TYPE(obj);
        if class == &raw mut ffi::PyUnicode_Type {
            let len = ffi::PyUnicode_GET_LENGTH(obj) as usize;
            // Strings of at most one character are singletons, which come back as such.
            let alone = len <= 1 || referenced_at_most(obj, limit);
            if alone && len <= tags::STR_SHORT_MAX && is_ascii(obj) { text(at, obj, len) } else { no }
        } else if class == &raw mut ffi::PyLong_Type {
            small(obj).map_or(no, |value| int(at, value))
        } else if obj == ffi::Py_None() {
            byte(at, tags::NONE)
        } else if class == &raw mut ffi::PyFloat_Type {
            float(at, ffi::PyFloat_AS_DOUBLE(obj))
        } else if class == &raw mut ffi::PyBool_Type {
            byte(at, if obj == ffi::Py_True() { tags::TRUE } else { tags::FALSE })
        } else if class == (*ffi::PyDateTimeAPI()).DateTimeType {
            let naive = (*obj.cast::<ffi::PyDateTime_DateTime>()).hastzinfo == 0;
            if naive && referenced_at_most(obj, limit) { naive_datetime(at, obj) } else { no }
        } else {
            no
        }
    }
}

/// Writes a value that is one leaf and no more, with the format before it; leaves a long one out, if there is a place
/// for that. False when it is none of the common ones, and nothing was written. Runs no Python code.
///
/// # Safety
/// `obj` is a live object and stays so while this runs.
#[inline]
pub unsafe fn alone(obj: *mut PyObject, out: &mut Vec<u8>, apart: Option<&mut Apart>) -> bool {
    // SAFETY: live by the caller's word. Leaves are of the interpreter's own classes, not of those made at run time.
    if unsafe { ffi::PyType_HasFeature(ffi::Py_TYPE(obj), ffi::Py_TPFLAGS_HEAPTYPE) != 0 } {
        return false;
    }
    // SAFETY: live by the caller's word; each arm is for the exact class that it names; the room was just made, and is
    // written as far as the end says.
    unsafe {
        let (class, start) = (ffi::Py_TYPE(obj), out.len());
        if class == &raw mut ffi::PyBytes_Type {
            let len = ffi::PyBytes_Size(obj) as usize;
            if len >= LEAST {
                return longer_alone(obj, out, apart);
            }
            let written = writer::byte(out, tags::FORMAT)
                .and_then(|()| writer::tag_varint(out, tags::BYTES, len))
                .and_then(|()| writer::raw(out, ffi::PyBytes_AsString(obj).cast(), len));
            return stays(written, out, start);
        }
        let mut cursor = writer::Cursor::new(out);
        if let Err(error) = cursor.make_room(out, 1 + ROOM) {
            return stays(Err(error), out, start);
        }
        let end = leaf(byte(cursor.at(), tags::FORMAT), obj, isize::MAX);
        if !end.is_null() {
            cursor.advance_to(end);
            cursor.commit_len(out);
        } else if class == &raw mut ffi::PyUnicode_Type {
            return longer_alone(obj, out, apart);
        } else {
            return false;
        }
        true
    }
}

/// Writes long bytes, or a string that is no short one of ASCII characters, as [`alone`]. What is long is left out, if
/// there is a place for that.
///
/// # Safety
/// `obj` is an exact `bytes` or `str`, and stays so while this runs.
#[inline(never)]
unsafe fn longer_alone(obj: *mut PyObject, out: &mut Vec<u8>, apart: Option<&mut Apart>) -> bool {
    let start = out.len();
    let write = || {
        // SAFETY: as the caller promised; neither ever changes.
        unsafe {
            writer::byte(out, tags::FORMAT)?;
            let (bytes, len) = if ffi::Py_TYPE(obj) == &raw mut ffi::PyBytes_Type {
                let len = ffi::PyBytes_Size(obj) as usize;
                writer::tag_varint(out, tags::BYTES, len)?;
                (ffi::PyBytes_AsString(obj).cast::<u8>().cast_const(), len)
            } else {
                wide_string(obj, out)?
            };
            match apart {
                Some(apart) if len >= LEAST => {
                    apart.leave_out(out.len() - start, bytes, len, Owner::Object(Own::share(obj)))
                }
                _ => writer::raw(out, bytes, len),
            }
        }
    };
    let written = write();
    // SAFETY: attached, as whoever encodes is.
    unsafe { stays(written, out, start) }
}

/// Whether a leaf was written. If there was no memory for it, nothing is, and whoever tries next says so.
///
/// # Safety
/// Attached.
#[inline(always)]
unsafe fn stays(written: Raise<()>, out: &mut Vec<u8>, start: usize) -> bool {
    if written.is_err() {
        // SAFETY: attached.
        unsafe { ffi::PyErr_Clear() };
        out.truncate(start);
    }
    written.is_ok()
}

/// Writes what comes before the text of a string that is no short one of ASCII characters. Returns the text, and its
/// bytes.
///
/// # Errors
/// Out of memory.
///
/// # Safety
/// `obj` is an exact `str`, live.
#[inline(never)]
pub unsafe fn wide_string(obj: *mut PyObject, out: &mut Vec<u8>) -> Raise<(*const u8, usize)> {
    // SAFETY: as the caller promised; a string never changes.
    unsafe {
        // Extensions may have made it by an old interface: before this, it says to have no characters.
        #[cfg(not(Py_3_12))]
        if ffi::PyUnicode_READY(obj) < 0 {
            return Err(Raised);
        }
        let len = ffi::PyUnicode_GET_LENGTH(obj) as usize;
        let (tag, width) = match ffi::PyUnicode_KIND(obj) {
            ffi::PyUnicode_1BYTE_KIND if is_ascii(obj) => (tags::STR_ASCII, 1),
            ffi::PyUnicode_1BYTE_KIND => (tags::STR_LATIN1, 1),
            ffi::PyUnicode_2BYTE_KIND => (tags::STR_UCS2, 2),
            _ => (tags::STR_UCS4, 4),
        };
        writer::tag_varint(out, tag, len)?;
        Ok((ffi::PyUnicode_DATA(obj).cast(), len * width))
    }
}
