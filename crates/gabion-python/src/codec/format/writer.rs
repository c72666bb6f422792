//! Appending to the output. Each function raises `MemoryError` where it cannot grow.

use crate::codec::object::Raise;
use crate::codec::room;

/// Room for `n` more bytes, and where they start.
#[inline(always)]
fn space(out: &mut Vec<u8>, n: usize) -> Raise<*mut u8> {
    if out.capacity() - out.len() < n {
        room::make(out, n)?;
    }
    // SAFETY: the end of the filled part lies within the allocation or one past it.
    Ok(unsafe { out.as_mut_ptr().add(out.len()) })
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

    /// Makes room for `n` bytes.
    #[inline(always)]
    pub fn make_room(&mut self, out: &mut Vec<u8>, n: usize) -> Raise<()> {
        if (self.end as usize - self.at as usize) < n {
            self.commit_len(out);
            room::make(out, n)?;
            *self = Cursor::new(out);
        }
        Ok(())
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
    pub fn commit_len(&self, out: &mut Vec<u8>) {
        let len = self.at as usize - out.as_ptr() as usize;
        // SAFETY: the cursor moves over written bytes within the capacity only (duty of `advance_to`), and the output
        // has not moved since the cursor was made: whatever else writes to it comes after a `commit_len`.
        unsafe { out.set_len(len) };
    }
}

/// One byte.
#[inline(always)]
pub fn byte(out: &mut Vec<u8>, value: u8) -> Raise<()> {
    // SAFETY: room for one byte, written before the length covers it.
    unsafe {
        *space(out, 1)? = value;
        out.set_len(out.len() + 1);
    }
    Ok(())
}

/// A tag and the low `n` bytes of `value`, little-endian.
#[inline(always)]
pub fn tagged(out: &mut Vec<u8>, tag: u8, value: u64, n: usize) -> Raise<()> {
    debug_assert!(n <= 8);
    // SAFETY: room for nine bytes; the length covers the first `1 + n`, which are written.
    unsafe {
        let at = space(out, 9)?;
        *at = tag;
        at.add(1).cast::<u64>().write_unaligned(value.to_le());
        out.set_len(out.len() + 1 + n);
    }
    Ok(())
}

/// An unsigned number, seven bits a byte, low bits first.
#[inline(always)]
pub fn varint(out: &mut Vec<u8>, mut value: u64) -> Raise<()> {
    while value >= 0x80 {
        byte(out, value as u8 | 0x80)?;
        value >>= 7;
    }
    byte(out, value as u8)
}

/// A tag and an unsigned number.
#[inline(always)]
pub fn tag_varint(out: &mut Vec<u8>, tag: u8, value: usize) -> Raise<()> {
    byte(out, tag)?;
    varint(out, value as u64)
}

/// A few bytes as they are.
#[inline(always)]
pub fn bytes<const N: usize>(out: &mut Vec<u8>, value: &[u8; N]) -> Raise<()> {
    // SAFETY: room for that many bytes, written before the length covers them.
    unsafe {
        space(out, N)?.cast::<[u8; N]>().write(*value);
        out.set_len(out.len() + N);
    }
    Ok(())
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

/// That many zeros, to be written over.
pub fn zeros(out: &mut Vec<u8>, n: usize) -> Raise<()> {
    reserve(out, n)?;
    out.resize(out.len() + n, 0);
    Ok(())
}

/// Room for something long.
fn reserve(out: &mut Vec<u8>, n: usize) -> Raise<()> {
    // Room for what follows something large, too: to ask for that later might be to ask for all of it once more.
    let more = if n < room::LITTLE { n } else { n.saturating_add(room::LITTLE) };
    if out.capacity() - out.len() < more { room::make(out, more) } else { Ok(()) }
}

/// Raw bytes. Others may be writing them, so nothing refers to them: such a byte arrives as it was or as it gets.
///
/// # Safety
/// `from` points at `n` readable bytes, which are not the output's.
pub unsafe fn raw(out: &mut Vec<u8>, from: *const u8, n: usize) -> Raise<()> {
    if n > 0 {
        reserve(out, n)?;
        let to = space(out, n)?;
        // SAFETY: readable by the caller's word, and room for as many; they are written before the length covers them.
        unsafe {
            std::ptr::copy_nonoverlapping(from, to, n);
            out.set_len(out.len() + n);
        }
    }
    Ok(())
}
