//! Large arrays of NumPy, whose reducer names a function and hands over a buffer: that one is rebuilt in [`warm`] memory.

use super::apart;
use super::decode::Decoder;
use super::object::{Own, Raise, attribute_or_none};
use super::{tags, warm};
use crate::ffi;

impl<const REFS: bool> Decoder<'_, '_, REFS> {
    /// Begins to read the arguments of a callable if they are those of a large array, whose bytes may be in any buffer
    /// (PEP 574): a tuple with the first of them, and how many there are. `None`, and nothing is read, when they are anything
    /// else.
    pub fn large_array(&mut self, callable: &Own) -> Raise<Option<(Own, usize)>> {
        let mut ahead = self.reader.ahead();
        let count = match ahead.byte()? {
            short @ 0x90..=0x97 => usize::from(short - tags::TUPLE_SHORT),
            tags::TUPLE | tags::TUPLE_SHARED => ahead.varint()?,
            _ => return Ok(None),
        };
        if count == 0 || ahead.byte()? != tags::BYTEARRAY || self.is_referred_to_before(ahead.at) {
            return Ok(None);
        }
        let len = ahead.varint()?;
        if len < apart::LEAST || !makes_arrays(callable)? {
            return Ok(None);
        }
        let Some(buffer) = warm::copied(self.maker.py, ahead.take(len)?) else { return Ok(None) };
        self.reader.claim(count)?;
        self.reader.at = ahead.at;
        // SAFETY: a new reference or null with an error; the tuple has room for what is put into it.
        unsafe {
            let arguments = Own::take(ffi::PyTuple_New(count as isize))?;
            ffi::PyTuple_SET_ITEM(arguments.ptr(), 0, buffer.into_ptr());
            Ok(Some((arguments, count)))
        }
    }
}

/// Whether a callable is the function that arrays are pickled with, in NumPy 1 or 2.
fn makes_arrays(callable: &Own) -> Raise<bool> {
    let is = |name, wanted: &[&std::ffi::CStr]| -> Raise<bool> {
        // SAFETY: held; what an attribute is, is asked before it is read as text.
        unsafe {
            let Some(found) = attribute_or_none(callable.ptr(), name)? else { return Ok(false) };
            let text = ffi::PyUnicode_CheckExact(found.ptr()) != 0;
            Ok(text && wanted.iter().any(|name| ffi::PyUnicode_CompareWithASCIIString(found.ptr(), name.as_ptr()) == 0))
        }
    };
    Ok(is(c"__name__", &[c"_frombuffer"])? && is(c"__module__", &[c"numpy._core.numeric", c"numpy.core.numeric"])?)
}
