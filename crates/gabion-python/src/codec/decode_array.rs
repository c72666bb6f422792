//! Arrays of NumPy and their items, built anew in memory of their own.

use super::decode_leaf::Maker;
use super::numpy::{Array, Numpy};
use super::object::{Own, Raise};
use super::reader::{Reader, damaged};
use super::{apart, tags, warm};
use crate::ffi;

/// More sides than an array can have.
const MOST_SIDES: usize = 64;

/// What stands before an array's items.
struct Head {
    kind: u8,
    shape: [usize; MOST_SIDES],
    sides: usize,
    /// Bytes of all items.
    len: usize,
}

impl Head {
    /// Reads it, and moves to the first item.
    fn read(reader: &mut Reader<'_>) -> Raise<Head> {
        let (kind, sides, mut shape) = (reader.byte()?, reader.varint()?, [0; MOST_SIDES]);
        for side in shape.get_mut(..sides).ok_or_else(|| damaged("an array of too many dimensions"))? {
            *side = reader.varint()?;
        }
        let len = reader.varint()?;
        reader.take(reader.at.next_multiple_of(8) - reader.at)?;
        Ok(Head { kind, shape, sides, len })
    }
}

/// Moves over an array.
pub fn skip(reader: &mut Reader<'_>) -> Raise<()> {
    let head = Head::read(reader)?;
    reader.take(head.len).map(drop)
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

    /// An array, after its tag: where it is large, in warm memory of the pool.
    #[inline(never)]
    pub fn nd_array(&self, reader: &mut Reader<'_>) -> Raise<Own> {
        let Head { kind, shape, sides, len } = Head::read(reader)?;
        let (numpy, number) = (self.numpy()?, usize::from(kind & tags::ITEMS));
        let (shape, size, columns) = (&shape[..sides], numpy.size(number)?, kind & tags::BY_COLUMNS != 0);
        if shape.iter().try_fold(size, |bytes, side| bytes.checked_mul(*side)) != Some(len) {
            return Err(damaged("an array's length"));
        }
        let items = reader.take(len)?;
        // SAFETY: constructors return a new reference or null with an error; a new array has room for the items and is no
        // one else's yet.
        unsafe {
            if kind & tags::READ_ONLY != 0 {
                let bytes = Own::take(ffi::PyBytes_FromStringAndSize(items.as_ptr().cast(), len as isize))?;
                return numpy.over(&bytes, shape, number, columns);
            }
            if len >= apart::LEAST
                && let Some(memory) = warm::copied(self.py, items)
            {
                return numpy.over(&memory, shape, number, columns);
            }
            let made = numpy.empty(shape, number, columns)?;
            (*made.ptr().cast::<Array>()).data.copy_from_nonoverlapping(items.as_ptr(), len);
            Ok(made)
        }
    }
}
