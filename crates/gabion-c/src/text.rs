//! Strings in, texts out, places to write to.

use std::ffi::{CStr, c_char};
use std::fmt;

use crate::status::{Failure, Status, boundary};

/// A caller's string.
///
/// # Errors
/// [`Status::BAD_ARGUMENT`] when it is null or not UTF-8.
///
/// # Safety
/// Null, or a string that ends in a zero byte and does not change during `'a`.
pub unsafe fn string<'a>(text: *const c_char) -> Result<&'a str, Failure> {
    if text.is_null() {
        return Err(Failure::argument("the string is NULL"));
    }
    // SAFETY: the caller's duty.
    unsafe { CStr::from_ptr(text) }.to_str().map_err(|_| Failure::argument("the string is not UTF-8"))
}

/// A caller's bytes.
///
/// # Errors
/// [`Status::BAD_ARGUMENT`] when they are null though there are some, or more than an object can have.
///
/// # Safety
/// Null, or `length` readable bytes that do not change during `'a`.
#[inline]
pub unsafe fn bytes<'a>(at: *const u8, length: usize) -> Result<&'a [u8], Failure> {
    if length == 0 {
        return Ok(&[]);
    }
    if at.is_null() || length > isize::MAX as usize {
        return Err(Failure::argument("data is NULL, or longer than any object can be"));
    }
    // SAFETY: not null, a possible length, and the rest is the caller's duty.
    Ok(unsafe { std::slice::from_raw_parts(at, length) })
}

/// Writes a result to where the caller wants it.
///
/// # Errors
/// [`Status::BAD_ARGUMENT`] when that is null; `name` says which.
///
/// # Safety
/// Null, or room for a `T`, aligned or not, that nobody else uses meanwhile.
#[inline]
pub unsafe fn write<T>(place: *mut T, value: T, name: &str) -> Result<(), Failure> {
    check(place, name)?;
    // SAFETY: not null, and the rest is the caller's duty.
    unsafe { place.write_unaligned(value) };
    Ok(())
}

/// That a result can be written there.
///
/// # Errors
/// As [`write()`].
#[inline]
pub fn check<T>(place: *mut T, name: &str) -> Result<(), Failure> {
    if place.is_null() { Err(no_place(name)) } else { Ok(()) }
}

#[cold]
fn no_place(name: &str) -> Failure {
    Failure::new(Status::BAD_ARGUMENT, format_args!("{name} is NULL: it is where the result goes"))
}

/// Whether bytes fit into a caller's buffer.
#[inline]
pub fn fits(bytes: &[u8], buffer: *const u8, capacity: usize) -> bool {
    bytes.is_empty() || (bytes.len() <= capacity && !buffer.is_null())
}

/// Writes bytes into a caller's buffer. `needed` may be null; it is told the length in any case.
///
/// # Errors
/// [`Status::TOO_SMALL`] when they do not fit; nothing is written to the buffer then. The last error tells of it,
/// unless the buffer is null and the length was told: that is how to ask for it.
///
/// # Safety
/// `buffer` is null or has room for `capacity` bytes; `needed` is null or room for a number.
#[inline]
pub unsafe fn copy_out(bytes: &[u8], buffer: *mut u8, capacity: usize, needed: *mut usize) -> Result<(), Failure> {
    if !needed.is_null() {
        // SAFETY: the caller's duty.
        unsafe { write(needed, bytes.len(), "the place for the length")? };
    }
    if !fits(bytes, buffer, capacity) {
        let asked = buffer.is_null() && !needed.is_null();
        return Err(if asked { Failure::size_was_asked() } else { too_small(bytes.len(), capacity) });
    }
    if !bytes.is_empty() {
        // SAFETY: room for `capacity` bytes (caller's duty), which is enough; bytes of ours are not the caller's
        // buffer.
        unsafe { buffer.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }
    Ok(())
}

#[cold]
fn too_small(needed: usize, capacity: usize) -> Failure {
    Failure::new(Status::TOO_SMALL, format_args!("{needed} bytes are needed, the buffer has {capacity}"))
}

/// Writes a text into a caller's buffer as `snprintf` does: cut if need be, and ended by a zero byte. `needed` may be
/// null; it is told the whole length with the zero byte.
///
/// # Errors
/// [`Status::TOO_SMALL`] when it was cut; the last error as in [`copy_out`].
///
/// # Safety
/// As [`copy_out`].
pub unsafe fn print(
    text: &dyn fmt::Display,
    buffer: *mut c_char,
    capacity: usize,
    needed: *mut usize,
) -> Result<(), Failure> {
    let text = text.to_string();
    if !needed.is_null() {
        // SAFETY: the caller's duty.
        unsafe { write(needed, text.len() + 1, "the place for the length")? };
    }
    if capacity > 0 && !buffer.is_null() {
        let length = boundary(&text, capacity - 1);
        // SAFETY: room for `capacity` bytes (caller's duty), of which `length + 1` are written.
        unsafe {
            buffer.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), length);
            buffer.add(length).write(0);
        }
    }
    match (buffer.is_null(), needed.is_null()) {
        (true, false) => Err(Failure::size_was_asked()),
        (false, _) if text.len() < capacity => Ok(()),
        _ => Err(too_small(text.len() + 1, capacity)),
    }
}
