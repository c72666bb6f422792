//! The family of `datetime`: packed forms, and objects made from them.
//!
//! A datetime is packed as year 14 | month 4 | day 5 | hour 5 | minute 6 | second 6 | microsecond 20 | fold 1 bits. One
//! of whole seconds and fold 0 has 21 low bits of zero: the other 40 are five bytes.

use std::ffi::c_int;

use super::format::reader::damaged;
use super::object::{Own, Raise, class_name, refuse};
use crate::ffi::{self, PyObject};

const SUBSECOND_BITS: u32 = 21;

/// Packs the interpreter's ten bytes (year 2, month, day, hour, minute, second, microsecond 3) and the fold.
#[inline(always)]
pub fn pack(data: &[u8; 10], fold: u8) -> u64 {
    let byte = |i: usize| u64::from(data[i]);
    let micros = byte(7) << 16 | byte(8) << 8 | byte(9);
    (byte(0) << 8 | byte(1)) << 47
        | byte(2) << 43
        | byte(3) << 38
        | byte(4) << 33
        | byte(5) << 27
        | byte(6) << SUBSECOND_BITS
        | micros << 1
        | u64::from(fold & 1)
}

/// The short form, when the value has one.
#[inline(always)]
pub fn whole_seconds(packed: u64) -> Option<u64> {
    (packed.trailing_zeros() >= SUBSECOND_BITS).then_some(packed >> SUBSECOND_BITS)
}

/// The packed form of a short form.
#[inline(always)]
pub fn from_whole_seconds(short: u64) -> u64 {
    short << SUBSECOND_BITS
}

struct Parts {
    year: u64,
    month: u64,
    day: u64,
    hour: u64,
    minute: u64,
    second: u64,
    micros: u64,
    fold: u64,
}

fn unpack(packed: u64) -> Parts {
    let field = |shift: u32, bits: u32| packed >> shift & ((1 << bits) - 1);
    Parts {
        year: packed >> 47,
        month: field(43, 4),
        day: field(38, 5),
        hour: field(33, 5),
        minute: field(27, 6),
        second: field(21, 6),
        micros: field(1, 20),
        fold: field(0, 1),
    }
}

fn days_in_month(year: u64, month: u64) -> u64 {
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    match month {
        2 => 28 + u64::from(leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

impl Parts {
    #[inline(always)]
    fn valid(&self) -> bool {
        let date = (1..=9999).contains(&self.year)
            && (1..=12).contains(&self.month)
            && self.day >= 1
            && (self.day <= 28 || self.day <= days_in_month(self.year, self.month));
        date && self.hour < 24 && self.minute < 60 && self.second < 60 && self.micros < 1_000_000
    }
}

/// Whether an object is no date, datetime or time, or one whose parts are all within their ranges: of the bytes that
/// pickles have the classes called with, those look at one, and count with the others as they are.
pub fn is_sound(object: &Own) -> bool {
    let object = object.ptr();
    // SAFETY: held by the caller; the datetime interface was loaded with the codec; what is read is of the class that
    // was asked for, or of one that inherits from it.
    unsafe {
        let (date, time) = if ffi::PyDateTime_Check(object) != 0 {
            let data = (*object.cast::<ffi::PyDateTime_DateTime>()).data;
            ([data[0], data[1], data[2], data[3]], [data[4], data[5], data[6], data[7], data[8], data[9]])
        } else if ffi::PyDate_Check(object) != 0 {
            ((*object.cast::<ffi::PyDateTime_Date>()).data, [0; 6])
        } else if ffi::PyTime_Check(object) != 0 {
            ([0, 1, 1, 1], (*object.cast::<ffi::PyDateTime_Time>()).data)
        } else {
            return true;
        };
        let [year, low, month, day] = date.map(u64::from);
        let [hour, minute, second, high, middle, lowest] = time.map(u64::from);
        let micros = high << 16 | middle << 8 | lowest;
        Parts { year: year << 8 | low, month, day, hour, minute, second, micros, fold: 0 }.valid()
    }
}

/// A naive datetime.
///
/// # Errors
/// `CodecError` when a part is out of range; out of memory.
#[inline(always)]
pub fn naive(packed: u64) -> Raise<Own> {
    let parts = unpack(packed);
    if !parts.valid() {
        return Err(damaged("a datetime is out of range"));
    }
    // SAFETY: the datetime interface was loaded with the codec. Its own constructor allocates a naive object just so:
    // without the last field, and with these fields set.
    unsafe {
        let class = (*ffi::PyDateTimeAPI()).DateTimeType;
        let Some(alloc) = (*class).tp_alloc else { return Err(refuse("datetime has no allocator")) };
        let made = Own::take(alloc(class, 0))?;
        let value = made.ptr().cast::<ffi::PyDateTime_DateTime>();
        (*value).hashcode = -1;
        (*value).hastzinfo = 0;
        (*value).data = [
            (parts.year >> 8) as u8,
            parts.year as u8,
            parts.month as u8,
            parts.day as u8,
            parts.hour as u8,
            parts.minute as u8,
            parts.second as u8,
            (parts.micros >> 16) as u8,
            (parts.micros >> 8) as u8,
            parts.micros as u8,
        ];
        (*value).fold = parts.fold as u8;
        Ok(made)
    }
}

/// A `tzinfo`: the interpreter's constructors take what they are given unchecked.
#[derive(Clone, Copy)]
pub struct Zone<'a>(&'a Own);

impl<'a> Zone<'a> {
    /// `named` says that it was made by a class or function that is found by its name.
    ///
    /// # Errors
    /// `CodecError` where it is no `tzinfo`.
    pub fn new(tz: &'a Own, named: bool) -> Raise<Zone<'a>> {
        // SAFETY: `tz` holds a reference to a live object.
        if unsafe { ffi::PyTZInfo_Check(tz.ptr()) } != 0 {
            return Ok(Zone(tz));
        }
        if !named {
            return Err(damaged("a tzinfo is expected"));
        }
        // SAFETY: as above.
        let class = unsafe { class_name(tz.ptr()) };
        Err(refuse(&format!(
            "cannot build a datetime or time with its tzinfo: what the name of the class or function of that leads to by now makes \
             an object of class {class}, which is no tzinfo; bind the name to one that makes one again, or replace what is stored"
        )))
    }
}

/// An aware datetime.
///
/// # Errors
/// As [`naive`].
pub fn aware(packed: u64, Zone(tz): Zone<'_>) -> Raise<Own> {
    let parts = unpack(packed);
    // SAFETY: the interface checks the ranges; a new reference or null with an error.
    unsafe {
        let api = &*ffi::PyDateTimeAPI();
        Own::take((api.DateTime_FromDateAndTimeAndFold)(
            parts.year as c_int,
            parts.month as c_int,
            parts.day as c_int,
            parts.hour as c_int,
            parts.minute as c_int,
            parts.second as c_int,
            parts.micros as c_int,
            tz.ptr(),
            parts.fold as c_int,
            api.DateTimeType,
        ))
    }
}

/// A date from the interpreter's four bytes.
///
/// # Errors
/// `ValueError` when a part is out of range.
pub fn date(data: &[u8]) -> Raise<Own> {
    let year = c_int::from(data[0]) << 8 | c_int::from(data[1]);
    // SAFETY: as `aware`.
    unsafe {
        let api = &*ffi::PyDateTimeAPI();
        Own::take((api.Date_FromDate)(year, c_int::from(data[2]), c_int::from(data[3]), api.DateType))
    }
}

/// A time from the interpreter's six bytes and the fold.
///
/// # Errors
/// As [`date`].
pub fn time(data: &[u8], tz: Option<Zone<'_>>) -> Raise<Own> {
    let micros = c_int::from(data[3]) << 16 | c_int::from(data[4]) << 8 | c_int::from(data[5]);
    // SAFETY: as `aware`.
    unsafe {
        let api = &*ffi::PyDateTimeAPI();
        Own::take((api.Time_FromTimeAndFold)(
            c_int::from(data[0]),
            c_int::from(data[1]),
            c_int::from(data[2]),
            micros,
            tz.map_or(ffi::Py_None(), |Zone(tz)| tz.ptr()),
            c_int::from(data[6]),
            api.TimeType,
        ))
    }
}

/// A timedelta from three little-endian numbers of four bytes.
///
/// # Errors
/// `OverflowError` when it is too large.
pub fn timedelta(data: &[u8]) -> Raise<Own> {
    let number = |i: usize| c_int::from_le_bytes([data[i], data[i + 1], data[i + 2], data[i + 3]]);
    // SAFETY: as `aware`.
    unsafe {
        let api = &*ffi::PyDateTimeAPI();
        Own::take((api.Delta_FromDelta)(number(0), number(4), number(8), 1, api.DeltaType))
    }
}

/// A `datetime.timezone`.
///
/// # Errors
/// `ValueError` for an offset of a day or more, `TypeError` when the name is no string.
pub fn timezone(offset: &Own, name: &Own) -> Raise<Own> {
    // SAFETY: as `aware`; arguments are held.
    unsafe {
        let class: *mut PyObject = ffi::Py_TYPE((*ffi::PyDateTimeAPI()).TimeZone_UTC).cast();
        Own::take(if name.ptr() == ffi::Py_None() {
            ffi::call(class, [offset.ptr()])
        } else {
            ffi::call(class, [offset.ptr(), name.ptr()])
        })
    }
}
