//! Values that hold no others and are written in place.

use std::ffi::c_int;

use super::encoder::{Begun, Encoder, IN_PLACE};
use super::quick;
use crate::codec::apart::{LARGE, LEAST, Owner, View};
use crate::codec::classes::combined::{Combined, combined};
use crate::codec::classes::found::Found;
use crate::codec::classes::global;
use crate::codec::classes::numpy::{Numpy, Seen};
use crate::codec::classes::plan::Kind;
use crate::codec::format::{tags, writer};
use crate::codec::object::{Own, Raise, Raised, Section, attribute, referenced_at_most};
use crate::codec::room;
use crate::ffi::{self, PyObject};

#[cfg(Py_3_13)]
unsafe extern "C" {
    /// Has had one argument more since 3.13: whether to raise.
    fn _PyLong_AsByteArray(
        int: *mut PyObject,
        to: *mut u8,
        n: usize,
        little: c_int,
        signed: c_int,
        raise: c_int,
    ) -> c_int;
}

/// Fills `bytes` with the integer: two's complement from the low byte up, or unsigned from the high byte down.
///
/// # Safety
/// `obj` is an `int`.
unsafe fn int_bytes(obj: *mut PyObject, bytes: &mut [u8], low_first: bool) -> Raise<()> {
    let (low_first, n) = (c_int::from(low_first), bytes.len());
    // SAFETY: an `int` by the caller's word; as many bytes as said; an overflow is an error.
    let result = unsafe {
        #[cfg(not(Py_3_13))]
        {
            ffi::_PyLong_AsByteArray(obj.cast(), bytes.as_mut_ptr(), n, low_first, low_first)
        }
        #[cfg(Py_3_13)]
        {
            _PyLong_AsByteArray(obj, bytes.as_mut_ptr(), n, low_first, low_first, 1)
        }
    };
    if result < 0 { Err(Raised) } else { Ok(()) }
}

/// The array of NumPy's that has lent a buffer, as it is now: it may move its items in spite of that.
fn lent_by_array(numpy: &Numpy, view: &View) -> Raise<Option<Seen>> {
    // SAFETY: a buffer holds who has lent it, if anybody does, as does a view of memory.
    unsafe {
        if view.0.obj.is_null() {
            return Ok(None);
        }
        let mut owner = Own::share(view.0.obj);
        while ffi::PyMemoryView_Check(owner.ptr()) != 0 {
            owner = attribute(owner.ptr(), c"obj")?;
        }
        numpy.seen(owner.ptr())
    }
}

impl Encoder<'_, '_> {
    /// Writes leaves one after another and says how many were written before the first value that is none. `item` gives
    /// each, read in its owner.
    ///
    /// # Safety
    /// Every item is a live object, and stays so while this runs.
    #[inline(always)]
    pub unsafe fn leaves(&mut self, count: usize, item: impl Fn(usize) -> *mut PyObject) -> Raise<usize> {
        let limit = self.limit(IN_PLACE);
        let mut cursor = writer::Cursor::new(self.out);
        for i in 0..count {
            let obj = item(i);
            cursor.make_room(self.out, quick::ROOM)?;
            // SAFETY: live by the caller's word; the room was just made.
            let end = unsafe { quick::leaf(cursor.at(), obj, limit) };
            if end.is_null() {
                cursor.commit_len(self.out);
                // SAFETY: live by the caller's word.
                if !unsafe { self.rarer_leaf(obj, IN_PLACE)? } {
                    return Ok(i);
                }
                cursor = writer::Cursor::new(self.out);
            } else {
                // SAFETY: all bytes up to there are written.
                unsafe { cursor.advance_to(end) };
            }
        }
        cursor.commit_len(self.out);
        Ok(count)
    }

    /// Writes a leaf and says so, or writes nothing and says no. Runs no Python code.
    ///
    /// # Safety
    /// `obj` is a live object, and stays so while this runs.
    #[inline]
    pub unsafe fn leaf(&mut self, obj: *mut PyObject, limit: isize) -> Raise<bool> {
        let unshared = self.limit(limit);
        // SAFETY: live by the caller's word.
        unsafe { if self.quick_leaf(obj, unshared)? { Ok(true) } else { self.rarer_leaf(obj, limit) } }
    }

    /// The most references that an object may have which is not looked for among those already met.
    #[inline(always)]
    fn limit(&self, limit: isize) -> isize {
        if self.exact { -1 } else { limit }
    }

    /// See [`quick::leaf`].
    #[inline(always)]
    unsafe fn quick_leaf(&mut self, obj: *mut PyObject, limit: isize) -> Raise<bool> {
        let mut cursor = writer::Cursor::new(self.out);
        cursor.make_room(self.out, quick::ROOM)?;
        // SAFETY: live by the caller's word; the room was just made, and is written as far as the end says.
        unsafe {
            let end = quick::leaf(cursor.at(), obj, limit);
            if end.is_null() {
                return Ok(false);
            }
            cursor.advance_to(end);
        }
        cursor.commit_len(self.out);
        Ok(true)
    }

    /// The leaves that [`quick::leaf`] leaves.
    #[inline(never)]
    unsafe fn rarer_leaf(&mut self, obj: *mut PyObject, limit: isize) -> Raise<bool> {
        // SAFETY: live by the caller's word; each arm is for the exact class that it names.
        unsafe {
            let class = ffi::Py_TYPE(obj);
            if class == &raw mut ffi::PyUnicode_Type {
                if !self.met(obj, limit)? {
                    self.unmet_string(obj)?;
                }
            } else if class == &raw mut ffi::PyLong_Type {
                return self.big_int(obj);
            } else if class == (*ffi::PyDateTimeAPI()).DateTimeType {
                // One with a time zone is no leaf.
                let naive = (*obj.cast::<ffi::PyDateTime_DateTime>()).hastzinfo == 0;
                return Ok(naive && (self.met(obj, limit)? || self.quick_leaf(obj, isize::MAX)?));
            } else if class == &raw mut ffi::PyBytes_Type {
                if !self.met(obj, limit)? {
                    let len = ffi::PyBytes_Size(obj) as usize;
                    writer::tag_varint(self.out, tags::BYTES, len)?;
                    self.raw(ffi::PyBytes_AsString(obj).cast(), len, LEAST, || Owner::Object(Own::share(obj)))?;
                }
            } else if obj == ffi::Py_Ellipsis() {
                writer::byte(self.out, tags::ELLIPSIS)?;
            } else if obj == ffi::Py_NotImplemented() {
                writer::byte(self.out, tags::NOT_IMPLEMENTED)?;
            } else {
                return Ok(false);
            }
        }
        Ok(true)
    }

    #[cold]
    unsafe fn big_int(&mut self, obj: *mut PyObject) -> Raise<bool> {
        // SAFETY: an exact `int`, live.
        unsafe {
            let mut overflow = 0;
            let value = ffi::PyLong_AsLongLongAndOverflow(obj, &raw mut overflow);
            if overflow == 0 {
                let mut cursor = writer::Cursor::new(self.out);
                cursor.make_room(self.out, quick::ROOM)?;
                cursor.advance_to(quick::int(cursor.at(), value));
                cursor.commit_len(self.out);
                return Ok(true);
            }
            let n = ffi::_PyLong_NumBits(obj) / 8 + 1;
            self.check_length()?;
            writer::tag_varint(self.out, tags::INT_BIG, n)?;
            let start = self.out.len();
            writer::zeros(self.out, n)?;
            let bytes = std::slice::from_raw_parts_mut(self.out.as_mut_ptr().add(start), n);
            int_bytes(obj, bytes, true)?;
            Ok(true)
        }
    }

    /// A string that is not looked for among those already met.
    unsafe fn unmet_string(&mut self, obj: *mut PyObject) -> Raise<()> {
        // SAFETY: an exact `str`, live.
        unsafe {
            if self.quick_leaf(obj, isize::MAX)? {
                return Ok(());
            }
            let (text, len) = quick::wide_string(obj, self.out)?;
            self.raw(text, len, LEAST, || Owner::Object(Own::share(obj)))
        }
    }

    /// Values with a form of their own that are not met often enough to be leaves.
    ///
    /// # Safety
    /// `obj` is an instance of the class that `kind` is for, held by the stack or by the caller of `encode`.
    pub unsafe fn scalar(&mut self, obj: *mut PyObject, limit: isize, kind: &Kind) -> Raise<()> {
        // SAFETY: as the caller promised.
        unsafe {
            let holds_others = matches!(kind, Kind::DateTime | Kind::Time | Kind::TimeZone | Kind::Range | Kind::Slice);
            if holds_others {
                if self.by_reducers {
                    return self.reduce(obj, limit, false);
                }
                if (self.exact || !referenced_at_most(obj, limit)) && self.construct(obj, false)? == Begun::Before {
                    return Ok(());
                }
            } else if self.met(obj, limit)? {
                return Ok(());
            }
            match kind {
                Kind::Complex => {
                    let value = ffi::PyComplex_AsCComplex(obj);
                    writer::tagged(self.out, tags::COMPLEX, value.real.to_bits(), 8)?;
                    writer::bytes(self.out, &value.imag.to_bits().to_le_bytes())?;
                }
                Kind::ByteArray => Section::hold(obj, || {
                    let len = ffi::PyByteArray_Size(obj) as usize;
                    writer::tag_varint(self.out, tags::BYTEARRAY, len)?;
                    writer::raw(self.out, ffi::PyByteArray_AsString(obj).cast(), len)
                })?,
                Kind::DateTime | Kind::Date | Kind::Time | Kind::TimeDelta | Kind::TimeZone => {
                    self.date_or_time(obj, kind)?;
                }
                Kind::Range | Kind::Slice => {
                    writer::byte(self.out, if matches!(kind, Kind::Range) { tags::RANGE } else { tags::SLICE })?;
                    let [first, end, stride] = [c"start", c"stop", c"step"].map(|name| attribute(obj, name));
                    self.postpone([first?, end?, stride?].iter().map(Own::ptr))?;
                }
                Kind::Enum(id) => return self.member(obj, *id),
                Kind::Decimal => {
                    let text = Own::take(ffi::PyObject_Str(obj))?;
                    let mut len = 0;
                    let data = ffi::PyUnicode_AsUTF8AndSize(text.ptr(), &raw mut len);
                    if data.is_null() {
                        return Err(Raised);
                    }
                    writer::tag_varint(self.out, tags::DECIMAL, len as usize)?;
                    writer::raw(self.out, data.cast(), len as usize)?;
                }
                Kind::Uuid(parts) => return self.uuid(obj, parts),
                Kind::Array => return self.array(obj),
                Kind::PickleBuffer => return self.pickle_buffer(obj),
                _ => return Err(crate::codec::object::refuse("a plan without an encoder")),
            }
        }
        Ok(())
    }

    unsafe fn member(&mut self, obj: *mut PyObject, id: u32) -> Raise<()> {
        let names = &self.known.names;
        // SAFETY: an enum member, held; its attributes are held here.
        unsafe {
            let Some(crate::codec::classes::layout::Entry::Enum { members, .. }) = self.registry.entry(id) else {
                return Err(Raised);
            };
            let name = Own::take(ffi::PyObject_GetAttr(obj, names.value_name.ptr()))?;
            let found = if ffi::PyUnicode_CheckExact(name.ptr()) != 0 {
                ffi::PyDict_GetItemWithError(members.ptr(), name.ptr())
            } else {
                std::ptr::null_mut()
            };
            if found.is_null() && !ffi::PyErr_Occurred().is_null() {
                return Err(Raised);
            }
            if found != obj && !self.is_told_by_name(obj, members, &name)? {
                // Its memo entry is renewed by `reduce`.
                return self.reduce_noted(obj);
            }
            writer::tag_varint(self.out, tags::ENUM, id as usize)?;
            // Without regard to identity: whoever reads the name only looks it up.
            self.unmet_string(name.ptr())?;
        }
        Ok(())
    }

    /// Whether a flag without a name of its own is told by the names of its parts. It may have bits that are nobody's,
    /// or none at all.
    ///
    /// # Safety
    /// `obj` is a live member of an enum.
    unsafe fn is_told_by_name(&self, obj: *mut PyObject, members: &Own, name: &Own) -> Raise<bool> {
        // SAFETY: as the caller promised; ints, held.
        unsafe {
            if ffi::PyUnicode_CheckExact(name.ptr()) == 0
                || ffi::PyType_IsSubtype(ffi::Py_TYPE(obj), self.known.flag.ptr().cast()) == 0
            {
                return Ok(false);
            }
            let Combined::Value(parts) = combined(members, name)? else { return Ok(false) };
            let value = attribute(obj, c"_value_")?;
            if ffi::PyLong_CheckExact(value.ptr()) == 0 {
                return Ok(false);
            }
            match ffi::PyObject_RichCompareBool(parts.ptr(), value.ptr(), ffi::Py_EQ) {
                -1 => Err(Raised),
                equal => Ok(equal == 1),
            }
        }
    }

    unsafe fn uuid(&mut self, obj: *mut PyObject, parts: &crate::codec::classes::plan::Uuid) -> Raise<()> {
        // SAFETY: a UUID, held; both parts are slots of it.
        unsafe {
            let unknown = &self.known.uuid(self.py)?.1;
            let int = Section::hold(obj, || {
                let int = *obj.byte_offset(parts.int).cast::<*mut PyObject>();
                let safe = *obj.byte_offset(parts.is_safe).cast::<*mut PyObject>();
                let plain = safe == unknown.ptr() && !int.is_null() && ffi::PyLong_CheckExact(int) != 0;
                plain.then(|| Own::share(int))
            });
            let Some(int) = int else { return self.reduce_noted(obj) };
            let mut bytes = [0u8; 16];
            int_bytes(int.ptr(), &mut bytes, false)?;
            writer::byte(self.out, tags::UUID)?;
            writer::bytes(self.out, &bytes)?;
        }
        Ok(())
    }

    /// `array.array`: format, length in bytes, zeros up to a multiple of 8 from the start of the encoding, items.
    unsafe fn array(&mut self, obj: *mut PyObject) -> Raise<()> {
        // SAFETY: an array, held; the buffer is released on every path.
        unsafe {
            let mut view = std::mem::MaybeUninit::<ffi::Py_buffer>::zeroed();
            let code = attribute(obj, c"typecode")?;
            let code = *ffi::PyUnicode_DATA(code.ptr()).cast::<u8>();
            if ffi::PyObject_GetBuffer(obj, view.as_mut_ptr(), ffi::PyBUF_SIMPLE) < 0 {
                return Err(Raised);
            }
            let mut view = view.assume_init();
            let mut write = || {
                writer::tagged(self.out, tags::ARRAY, u64::from(code), 1)?;
                writer::varint(self.out, view.len as u64)?;
                while !self.position().is_multiple_of(8) {
                    writer::byte(self.out, 0)?;
                }
                writer::raw(self.out, view.buf.cast(), view.len as usize)
            };
            let written = write();
            ffi::PyBuffer_Release(&raw mut view);
            written
        }
    }

    /// The bytes under a `PickleBuffer`, in band, as pickle does without a buffer callback.
    unsafe fn pickle_buffer(&mut self, obj: *mut PyObject) -> Raise<()> {
        // SAFETY: a PickleBuffer, held; the buffer is released by the view. Whoever wants to change it meanwhile may:
        // then the encoding has the one or the other.
        unsafe {
            // First, as code runs where it is looked for.
            let numpy = Numpy::if_imported(self.py)?;
            let mut view = room::boxed(std::mem::MaybeUninit::<ffi::Py_buffer>::zeroed())?;
            if ffi::PyObject_GetBuffer(obj, view.as_mut_ptr(), ffi::PyBUF_ANY_CONTIGUOUS) < 0 {
                return Err(Raised);
            }
            let view = View(view.assume_init());
            let (bytes, len) = (view.0.buf.cast::<u8>(), view.0.len as usize);
            let tag = if view.0.readonly == 0 { tags::BYTEARRAY } else { tags::BYTES };
            writer::tag_varint(self.out, tag, len)?;
            // Reducers hand such buffers out, and may use them again for the next object.
            if len < LARGE {
                return self.raw(bytes, len, LARGE, || Owner::Buffer(view));
            }
            let seen = match numpy {
                Some(numpy) => lent_by_array(numpy, &view)?,
                None => None,
            };
            self.raw(bytes, len, LARGE, || match seen {
                Some(seen) => Owner::Array(seen, Some(view)),
                None => Owner::Buffer(view),
            })
        }
    }

    /// A function that is not written in Python.
    ///
    /// # Safety
    /// `obj` is one, held by the stack or by the caller of `encode`.
    pub unsafe fn native(&mut self, obj: *mut PyObject, limit: isize) -> Raise<()> {
        // SAFETY: as the caller promised; what it belongs to is borrowed, or null.
        unsafe {
            let owner = ffi::PyCFunction_GetSelf(obj);
            if owner.is_null() || ffi::PyModule_Check(owner) != 0 {
                self.global(obj)
            } else {
                self.reduce(obj, limit, true)
            }
        }
    }

    /// A class or function by its number.
    ///
    /// # Safety
    /// `obj` is held by the stack or by the caller of `encode`.
    pub unsafe fn global(&mut self, obj: *mut PyObject) -> Raise<()> {
        // SAFETY: held by the caller.
        unsafe {
            let singletons = [
                (ffi::Py_TYPE(ffi::Py_None()), tags::NONE),
                (ffi::Py_TYPE(ffi::Py_Ellipsis()), tags::ELLIPSIS),
                (ffi::Py_TYPE(ffi::Py_NotImplemented()), tags::NOT_IMPLEMENTED),
            ];
            if let Some((_, tag)) = singletons.iter().find(|(class, _)| class.cast() == obj) {
                writer::tagged(self.out, tags::TYPE_OF, u64::from(*tag), 1)?;
                return Ok(());
            }
            let holds = |found: &Found| found.leads_here() && found.is_told_by(obj, self.known);
            let known = self.registry.global(obj).filter(|entry| entry.is_found(holds));
            let entry = if let Some(entry) = known {
                entry
            } else {
                let held = Own::share(obj);
                let found = global::check(self.known, &held)?;
                self.registry.add_global(&held, found)
            };
            let crate::codec::classes::layout::Entry::Global { id, .. } = entry else { return Err(Raised) };
            writer::tag_varint(self.out, tags::GLOBAL, *id as usize)?;
        }
        Ok(())
    }
}
