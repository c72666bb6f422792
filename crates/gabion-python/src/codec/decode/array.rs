//! Arrays of NumPy and their items, built anew in memory of their own.

use std::mem::MaybeUninit;

use super::leaf::{Maker, bytes_of};
use super::warm;
use crate::codec::apart;
use crate::codec::classes::numpy::{Array, Numpy};
use crate::codec::format::reader::{Reader, damaged};
use crate::codec::format::tags;
use crate::codec::object::{Own, Raise};

/// More sides than an array can have.
const MOST_SIDES: usize = 64;

/// What stands before an array's items, after its tag.
pub struct Head {
    kind: u8,
    shape: [usize; MOST_SIDES],
    sides: usize,
    /// Bytes of all items.
    pub len: usize,
}

impl Head {
    /// Reads it, and moves to the first item.
    pub fn read(reader: &mut Reader<'_>) -> Raise<Head> {
        let (kind, sides, mut shape) = (reader.byte()?, reader.varint()?, [0; MOST_SIDES]);
        for side in shape.get_mut(..sides).ok_or_else(|| damaged("an array of too many dimensions"))? {
            *side = reader.varint()?;
        }
        let len = reader.varint()?;
        reader.take(reader.at.next_multiple_of(8) - reader.at)?;
        Ok(Head { kind, shape, sides, len })
    }
}

impl Maker<'_, '_> {
    /// A single item of an array, after its tag.
    #[inline(never)]
    pub fn nd_scalar(&self, reader: &mut Reader<'_>) -> Raise<Own> {
        let (number, size) = (usize::from(reader.byte()?), usize::from(reader.byte()?));
        let numpy = self.numpy()?;
        if numpy.size(number)? != size {
            return Err(damaged("the length of an array's item"));
        }
        numpy.scalar(number, reader.take(size)?)
    }

    fn numpy(&self) -> Raise<&'static Numpy> {
        Numpy::get(self.py)?.ok_or_else(|| damaged("an array that no array is like"))
    }

    /// An array, after its tag.
    #[inline(never)]
    pub fn nd_array(&self, reader: &mut Reader<'_>) -> Raise<Own> {
        let head = Head::read(reader)?;
        let items = reader.take(head.len)?;
        // SAFETY: bytes that are initialized may be looked at as such that may not be.
        let items = unsafe { &*(std::ptr::from_ref(items) as *const [MaybeUninit<u8>]) };
        let made = self.nd_array_of(&head, |into| {
            into.copy_from_slice(items);
            true
        });
        made?.ok_or_else(|| damaged("an array without items"))
    }

    /// An array whose items `fill` brings, if it says that it did; where it is large, in warm memory of the pool.
    pub fn nd_array_of(&self, head: &Head, fill: impl FnOnce(&mut [MaybeUninit<u8>]) -> bool) -> Raise<Option<Own>> {
        let (numpy, number, len) = (self.numpy()?, usize::from(head.kind & tags::ITEMS), head.len);
        let (shape, size) = (&head.shape[..head.sides], numpy.size(number)?);
        let columns = head.kind & tags::BY_COLUMNS != 0;
        if shape.iter().try_fold(size, |bytes, side| bytes.checked_mul(*side)) != Some(len) {
            return Err(damaged("an array's length"));
        }
        if head.kind & tags::READ_ONLY != 0 {
            let bytes = bytes_of(len, fill)?;
            return bytes.map(|bytes| numpy.over(&bytes, shape, number, columns)).transpose();
        }
        if len >= apart::LARGE
            && let Some((memory, room)) = warm::memory(self.py, len)
        {
            // SAFETY: room for that many bytes, which nobody else knows yet.
            let filled = fill(unsafe { std::slice::from_raw_parts_mut(room.cast(), len) });
            return filled.then(|| numpy.over(&memory, shape, number, columns)).transpose();
        }
        let made = numpy.empty(shape, number, columns)?;
        // SAFETY: a new array has room for its items, and is no one else's yet.
        let filled = unsafe {
            let data = (*made.ptr().cast::<Array>()).data;
            fill(std::slice::from_raw_parts_mut(data.cast(), len))
        };
        Ok(filled.then_some(made))
    }
}
