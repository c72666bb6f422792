//! Large values that are left out of an encoding: they are copied once, from where they lie to where they stay.

use std::any::Any;

use crate::ffi;

/// Values from this length on are left out: payloads that are longer go to memory of their own, whatever they consist of.
pub const LEAST: usize = 1 << 20;

/// What was left out of an encoding, in order.
#[derive(Default)]
pub struct Apart {
    parts: Vec<Part>,
    left_out: usize,
}

struct Part {
    /// How many of the encoding's own bytes come before it.
    at: usize,
    bytes: *const u8,
    len: usize,
    _owner: Owner,
}

/// What keeps bytes where they are: an object whose bytes never change ([`Own`](super::object::Own)), or a [`View`].
pub type Owner = Box<dyn Any>;

/// A buffer of an object, which may change it but not move it; released in the end. Boxed, because an object may know its buffers
/// by their addresses.
pub struct View(pub Box<ffi::Py_buffer>);

impl Drop for View {
    fn drop(&mut self) {
        // SAFETY: taken by who made this, and released here only; encodings live and end attached.
        unsafe { ffi::PyBuffer_Release(&raw mut *self.0) };
    }
}

impl Apart {
    /// Leaves out `len` bytes that belong behind the first `at` of the encoding.
    ///
    /// # Safety
    /// They stay where they are as long as `owner` lives.
    pub unsafe fn leave_out(&mut self, at: usize, bytes: *const u8, len: usize, owner: Owner) {
        self.parts.push(Part { at, bytes, len, _owner: owner });
        self.left_out += len;
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// How many bytes were left out.
    #[inline]
    pub fn left_out(&self) -> usize {
        self.left_out
    }

    /// Forgets all of it.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Where among the encoding's own bytes that lies which the whole has at a position, outside of what was left out.
    pub fn index(&self, position: usize) -> usize {
        let mut left_out = 0;
        for part in &self.parts {
            if part.at + left_out >= position {
                break;
            }
            left_out += part.len;
        }
        position - left_out
    }

    /// The whole encoding, whose own bytes are `own`, in pieces.
    pub fn pieces<'a>(&'a self, own: &'a [u8]) -> Vec<&'a [u8]> {
        let mut pieces = Vec::with_capacity(2 * self.parts.len() + 1);
        let mut from = 0;
        for part in &self.parts {
            // SAFETY: the owner lives as long as the part (duty of `leave_out`). Where there is no global lock, another thread may
            // write to a buffer meanwhile, as with everybody who reads one: it is only copied, and has some old bytes then and some new.
            let bytes = unsafe { std::slice::from_raw_parts(part.bytes, part.len) };
            pieces.extend([&own[from..part.at], bytes]);
            from = part.at;
        }
        pieces.push(&own[from..]);
        pieces
    }
}
