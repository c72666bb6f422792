//! Long values that are left out of an encoding: they are copied once, from where they lie to where they stay.

use std::ops::Deref;

use gabion_pile::Piece;
use pyo3::prelude::*;

use super::classes::numpy::Seen;
use super::object::{Own, Raise, Raised, refuse};
use super::room;
use crate::ffi;

/// Values from this length on are left out: those that a second copy takes longer for than what leaving them out does.
pub const LEAST: usize = 8 << 10;

/// Payloads that are longer go to memory of their own, whatever they consist of.
pub const LARGE: usize = 1 << 20;

/// How many parts a thread keeps room for.
const KEEP: usize = 64;

/// What was left out of an encoding, in order.
#[derive(Default)]
pub struct Apart {
    parts: Vec<Part>,
    left_out: usize,
}

struct Part {
    /// How many of the encoding's own bytes come before it.
    at: usize,
    /// How many bytes are left out before it.
    before: usize,
    bytes: *const u8,
    len: usize,
    owner: Owner,
}

/// What keeps bytes where they are.
#[expect(dead_code, reason = "some are only held")]
pub enum Owner {
    /// An object that does not move them.
    Object(Own),
    /// A buffer of an object.
    Buffer(View),
    /// An array of NumPy's, or a buffer of one. It moves its items although somebody holds it, or has lent them, where
    /// it is told to (`refcheck=False`). So it is looked at before they are read.
    Array(Seen, Option<View>),
}

/// A buffer of an object, which may change it but not move it; released in the end. Boxed, because an object may know
/// its buffers by their addresses.
pub struct View(pub Box<ffi::Py_buffer>);

impl Drop for View {
    fn drop(&mut self) {
        // SAFETY: taken by whoever made this, and released here only; encodings live and end attached.
        unsafe { ffi::PyBuffer_Release(&raw mut *self.0) };
    }
}

impl Apart {
    /// Leaves out `len` bytes that belong behind the first `at` of the encoding.
    ///
    /// # Errors
    /// `MemoryError`; nothing is left out.
    ///
    /// # Safety
    /// They stay where they are as long as `owner` lives.
    pub unsafe fn leave_out(&mut self, at: usize, bytes: *const u8, len: usize, owner: Owner) -> Raise<()> {
        room::push(&mut self.parts, Part { at, before: self.left_out, bytes, len, owner })?;
        self.left_out += len;
        Ok(())
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
        self.left_out = 0;
        if self.parts.capacity() > KEEP {
            self.parts = Vec::new();
        } else {
            self.parts.clear();
        }
    }

    /// Where among the encoding's own bytes that lies which the whole has at a position, outside of what was left out.
    pub fn index(&self, position: usize) -> usize {
        let before = self.parts.partition_point(|part| part.at + part.before < position);
        position - before.checked_sub(1).map_or(0, |last| self.parts[last].before + self.parts[last].len)
    }

    /// The whole encoding, whose own bytes are `own`, in pieces, to be copied before any other code runs.
    ///
    /// # Errors
    /// `MemoryError`; `CodecError` where an array has moved its items meanwhile.
    pub fn pieces<'a>(&'a self, py: Python<'_>, own: &'a [u8]) -> PyResult<Pieces<'a>> {
        for part in &self.parts {
            if let Owner::Array(seen, _) = &part.owner
                && !seen.is_as_it_was()
            {
                let Raised = refuse(
                    "cannot store an array: code that ran for what is stored with it has resized it, or given it a state, \
                     meanwhile; store a copy of it",
                );
                return Err(PyErr::fetch(py));
            }
        }
        if let [part] = self.parts.as_slice() {
            let (before, behind) = own.split_at(part.at);
            return Ok(Pieces::Three([before.into(), part.piece(), behind.into()]));
        }
        let mut pieces = Vec::new();
        room::make(&mut pieces, 2 * self.parts.len() + 1).map_err(|Raised| PyErr::fetch(py))?;
        let mut from = 0;
        for part in &self.parts {
            pieces.extend([own[from..part.at].into(), part.piece()]);
            from = part.at;
        }
        pieces.push(own[from..].into());
        Ok(Pieces::Many(pieces))
    }
}

/// An encoding in pieces.
pub enum Pieces<'a> {
    /// Most often one value is left out, with little around it.
    Three([Piece<'a>; 3]),
    Many(Vec<Piece<'a>>),
}

impl<'a> Deref for Pieces<'a> {
    type Target = [Piece<'a>];

    fn deref(&self) -> &[Piece<'a>] {
        match self {
            Self::Three(pieces) => pieces,
            Self::Many(pieces) => pieces,
        }
    }
}

impl Part {
    fn piece(&self) -> Piece<'_> {
        // SAFETY: the owner lives as long as the part (duty of `leave_out`), and an array was looked at just now.
        // Another thread may write to a buffer meanwhile, where it needs no lock for that: code in C, as NumPy's, or
        // copies of ours, by addresses.
        unsafe { Piece::new(self.bytes, self.len) }
    }
}
