//! Appending to the output.

use crate::codec::object::{Raise, Raised};
use crate::ffi;

/// Room to go on with where memory is short.
const LITTLE: usize = 4096;

/// Room for `n` more bytes, and where they start.
#[inline(always)]
fn room(out: &mut Vec<u8>, n: usize) -> *mut u8 {
    if out.capacity() - out.len() < n {
        grow(out, n);
    }
    // SAFETY: the end of the filled part lies within the allocation or one past it.
    unsafe { out.as_mut_ptr().add(out.len()) }
}

/// Where the next byte goes while several values are written, in registers: the output learns of them at the end.
pub struct Cursor {
    at: *mut u8,
    end: *mut u8,
}

impl Cursor {
    /// A cursor at the end of the output.
    #[inline(always)]
    pub fn new(out: &mut Vec<u8>) -> Cursor {
        let start = out.as_mut_ptr();
        Cursor { at: start.wrapping_add(out.len()), end: start.wrapping_add(out.capacity()) }
    }

    /// Makes room for `room` bytes.
    #[inline(always)]
    pub fn make_room(&mut self, out: &mut Vec<u8>, room: usize) {
        if (self.end as usize - self.at as usize) < room {
            self.settle(out);
            grow(out, room);
            *self = Cursor::new(out);
        }
    }

    /// Where to write.
    #[inline(always)]
    pub fn at(&self) -> *mut u8 {
        self.at
    }

    /// Goes on to `end`.
    ///
    /// # Safety
    /// `end` lies within the room made, and everything before it is written.
    #[inline(always)]
    pub unsafe fn advance_to(&mut self, end: *mut u8) {
        self.at = end;
    }

    /// Tells the output what was written.
    #[inline(always)]
    pub fn settle(&self, out: &mut Vec<u8>) {
        let len = self.at as usize - out.as_ptr() as usize;
        // SAFETY: the cursor moves over written bytes within the capacity only (duty of `advance_to`), and the output
        // has not moved since the cursor was made: whatever else writes to it comes after a `settle`.
        unsafe { out.set_len(len) };
    }
}

#[cold]
#[inline(never)]
fn grow(out: &mut Vec<u8>, n: usize) {
    // Behind something large, twice as much may be more than there is, and a little will do.
    if out.try_reserve(n).is_err() {
        out.reserve_exact(n.max(LITTLE));
    }
}

/// One byte.
#[inline(always)]
pub fn byte(out: &mut Vec<u8>, value: u8) {
    // SAFETY: room for one byte, written before the length covers it.
    unsafe {
        *room(out, 1) = value;
        out.set_len(out.len() + 1);
    }
}

/// A tag and the low `n` bytes of `value`, little-endian.
#[inline(always)]
pub fn tagged(out: &mut Vec<u8>, tag: u8, value: u64, n: usize) {
    debug_assert!(n <= 8);
    // SAFETY: room for nine bytes; the length covers the first `1 + n`, which are written.
    unsafe {
        let at = room(out, 9);
        *at = tag;
        at.add(1).cast::<u64>().write_unaligned(value.to_le());
        out.set_len(out.len() + 1 + n);
    }
}

/// An unsigned number, seven bits a byte, low bits first.
#[inline(always)]
pub fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        byte(out, value as u8 | 0x80);
        value >>= 7;
    }
    byte(out, value as u8);
}

/// A tag and an unsigned number.
#[inline(always)]
pub fn tag_varint(out: &mut Vec<u8>, tag: u8, value: usize) {
    byte(out, tag);
    varint(out, value as u64);
}

/// Copies a short run by overlapping words: no call, no loop below 33 bytes.
///
/// # Safety
/// `n` bytes are readable at `from` and writable at `to`; the two do not overlap.
#[inline(always)]
pub unsafe fn copy_short(from: *const u8, to: *mut u8, n: usize) {
    // SAFETY: each piece lies within the first or the last bytes of the run.
    unsafe {
        if n > 32 {
            std::ptr::copy_nonoverlapping(from, to, n);
        } else if n >= 16 {
            let (a, b) = (from.cast::<u128>().read_unaligned(), from.add(n - 16).cast::<u128>().read_unaligned());
            to.cast::<u128>().write_unaligned(a);
            to.add(n - 16).cast::<u128>().write_unaligned(b);
        } else if n >= 8 {
            let (a, b) = (from.cast::<u64>().read_unaligned(), from.add(n - 8).cast::<u64>().read_unaligned());
            to.cast::<u64>().write_unaligned(a);
            to.add(n - 8).cast::<u64>().write_unaligned(b);
        } else if n >= 4 {
            let (a, b) = (from.cast::<u32>().read_unaligned(), from.add(n - 4).cast::<u32>().read_unaligned());
            to.cast::<u32>().write_unaligned(a);
            to.add(n - 4).cast::<u32>().write_unaligned(b);
        } else if n > 0 {
            *to = *from;
            *to.add(n / 2) = *from.add(n / 2);
            *to.add(n - 1) = *from.add(n - 1);
        }
    }
}

/// So many zeros, to be written over.
///
/// # Errors
/// `MemoryError`.
pub fn zeros(out: &mut Vec<u8>, n: usize) -> Raise<()> {
    reserve(out, n)?;
    out.resize(out.len() + n, 0);
    Ok(())
}

/// Room for something long, or a `MemoryError`.
fn reserve(out: &mut Vec<u8>, n: usize) -> Raise<()> {
    // Room for what follows something large, too: to ask for that later might be to ask for all of it once more.
    let more = if n < LITTLE { n } else { n.saturating_add(LITTLE) };
    if out.try_reserve(more).is_err() {
        // SAFETY: codec functions run attached.
        unsafe { ffi::PyErr_NoMemory() };
        return Err(Raised);
    }
    Ok(())
}

/// Raw bytes. Others may be writing them, so nothing refers to them: such a byte arrives as it was or as it gets.
///
/// # Errors
/// Out of memory: of these there may be many.
///
/// # Safety
/// Attached; `from` points at `n` readable bytes, which are not the output's.
pub unsafe fn raw(out: &mut Vec<u8>, from: *const u8, n: usize) -> Raise<()> {
    if n > 0 {
        reserve(out, n)?;
        let to = room(out, n);
        // SAFETY: readable by the caller's word, and room for as many; they are written before the length covers them.
        unsafe {
            std::ptr::copy_nonoverlapping(from, to, n);
            out.set_len(out.len() + n);
        }
    }
    Ok(())
}
