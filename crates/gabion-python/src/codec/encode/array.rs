//! Arrays of NumPy and their items, as they lie in memory. `array.array` is among the leaves.

use std::mem::MaybeUninit;

use super::encoder::Encoder;
use crate::codec::apart::{self, Owner, View};
use crate::codec::classes::numpy::{Array, Numpy, Seen, value_of};
use crate::codec::format::{tags, writer};
use crate::codec::object::{Raise, Raised, refuse};
use crate::codec::room;
use crate::ffi::{self, PyObject};

impl Encoder<'_, '_> {
    /// A single item of an array: type, length, value.
    ///
    /// # Safety
    /// `obj` is an instance of the class that the number is of, held by the stack or by the caller of `encode`.
    pub unsafe fn nd_scalar(&mut self, obj: *mut PyObject, limit: isize, number: u8) -> Raise<()> {
        // SAFETY: as the caller promised; the class is known to keep its value there.
        unsafe {
            if self.met(obj, limit)? {
                return Ok(());
            }
            let numpy = Numpy::met(self.py).ok_or_else(|| refuse("a number that no array has"))?;
            let size = numpy.size(usize::from(number))?;
            writer::tagged(self.out, tags::ND_SCALAR, u64::from(number) | (size as u64) << 8, 2)?;
            let value = value_of(obj, size);
            writer::raw(self.out, value.as_ptr(), value.len())
        }
    }

    /// An array: type of the items and how they lie, the lengths of its sides, length in bytes, zeros up to a multiple
    /// of 8 from the start of the encoding, items. Other types of items, and what has gaps, through the reducer.
    ///
    /// # Safety
    /// `obj` is an array of NumPy's own class, held by the stack or by the caller of `encode`.
    pub unsafe fn nd_array(&mut self, obj: *mut PyObject, limit: isize) -> Raise<()> {
        // SAFETY: as the caller promised.
        unsafe {
            let array = &*obj.cast::<Array>();
            let item = Numpy::met(self.py).and_then(|numpy| numpy.item_of(array.dtype));
            let (Some((number, size)), Some(columns)) = (item, array.by_columns()) else {
                return self.reduce(obj, limit, false);
            };
            if self.met(obj, limit)? {
                return Ok(());
            }
            let columns = if columns { tags::BY_COLUMNS } else { 0 };
            let frozen = if array.is_writeable() { 0 } else { tags::READ_ONLY };
            writer::tagged(self.out, tags::ND_ARRAY, u64::from(number as u8 | columns | frozen), 1)?;
            writer::varint(self.out, array.shape().len() as u64)?;
            let mut len = size;
            for &side in array.shape() {
                writer::varint(self.out, side as u64)?;
                len *= side as usize;
            }
            writer::varint(self.out, len as u64)?;
            while !self.position().is_multiple_of(8) {
                writer::byte(self.out, 0)?;
            }
            // What other code runs before the array is written may change it, or use its memory for the next one.
            let least = if self.exact { apart::LARGE } else { apart::LEAST };
            // Where no other thread runs, it is as it is. Without `exact`, too, code may run before what was left out
            // is copied: that of a class that is met for the first time, or a finalizer's.
            if cfg!(not(Py_GIL_DISABLED)) {
                if len < least {
                    return writer::raw(self.out, array.data, len);
                }
                let seen = Seen::of(obj, ffi::Py_TYPE(obj))?;
                return self.raw(array.data, len, least, || Owner::Array(seen, None));
            }
            let mut view = room::boxed(MaybeUninit::<ffi::Py_buffer>::zeroed())?;
            if ffi::PyObject_GetBuffer(obj, view.as_mut_ptr(), ffi::PyBUF_ANY_CONTIGUOUS) < 0 {
                return Err(Raised);
            }
            let view = View(view.assume_init());
            if view.0.len as usize != len {
                return Err(refuse("another thread changes the array while it is stored"));
            }
            if len < least {
                return writer::raw(self.out, view.0.buf.cast(), len);
            }
            let seen = Seen::of(obj, ffi::Py_TYPE(obj))?;
            self.raw(view.0.buf.cast(), len, least, || Owner::Array(seen, Some(view)))
        }
    }
}
