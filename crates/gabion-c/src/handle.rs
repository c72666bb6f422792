//! Handles: what a caller holds of something that lives here.

use std::ptr;

use crate::status::{Failure, Status};

/// Something that callers hold by its address. A mark in front says what it is, so that a null, deleted or mistaken
/// handle is refused instead of followed, as far as its memory still shows it. In C's order, so that the mark of one
/// kind lies where another kind's does.
#[repr(C)]
#[derive(Debug)]
pub struct Handle<T> {
    mark: u64,
    value: T,
}

/// A kind of handles, whose mark is where its static stands. Of several copies of this library in one process, each in
/// a library of somebody else's, each has statics of its own: so it refuses what another copy gave. The letters differ,
/// so that no linker folds two statics into one.
#[derive(Debug)]
pub struct Kind(pub [u8; 8]);

impl Kind {
    /// What stands in front of what is of this kind, made by this copy of the library. Never 0.
    #[inline(always)]
    pub fn mark(&'static self) -> u64 {
        ptr::from_ref(self).addr() as u64
    }
}

/// What can be held.
pub trait Held: Sized {
    /// The kind of its handles.
    const KIND: &'static Kind;
    /// What to call it.
    const NAME: &str;
    /// The function that gives such handles.
    const GIVEN_BY: &str;
}

/// The mark of a handle that was deleted: nothing stands there.
const DELETED: u64 = u64::from_le_bytes(*b"gone for");

impl<T: Held> Handle<T> {
    /// A handle, to be kept in one place from now on.
    pub fn new(value: T) -> Self {
        Self { mark: Self::mark(), value }
    }

    #[inline(always)]
    fn mark() -> u64 {
        T::KIND.mark()
    }

    /// Moves a value behind a handle and gives its address away.
    pub fn give(value: T) -> *mut Self {
        Box::into_raw(Box::new(Self::new(value)))
    }

    /// The value behind a handle.
    ///
    /// # Errors
    /// [`Status::BAD_HANDLE`] when it is none.
    ///
    /// # Safety
    /// Null, or 8 readable bytes; when it is a handle, nobody deletes it during `'a`.
    #[inline]
    pub unsafe fn look<'a>(handle: *const Self) -> Result<&'a T, Failure> {
        // SAFETY: the caller's duty is the same.
        unsafe { Self::at_hand(handle) }.ok_or_else(|| refused::<T>(handle.addr()))
    }

    /// As [`Handle::look`], without a word about what is wrong.
    ///
    /// # Safety
    /// As [`Handle::look`].
    #[inline(always)]
    pub unsafe fn at_hand<'a>(handle: *const Self) -> Option<&'a T> {
        if handle.is_null() {
            return None;
        }
        // SAFETY: readable (caller's duty), and any bits are a number.
        let mark = unsafe { handle.cast::<u64>().read_unaligned() };
        // One branch for both: this is on the way of every call.
        let misplaced = (handle.addr() % align_of::<Self>()) as u64;
        if (mark ^ Self::mark()) | misplaced != 0 {
            return None;
        }
        // SAFETY: the mark says that it is a live handle, which nobody deletes meanwhile (caller's duty).
        Some(unsafe { &(*handle).value })
    }

    /// Takes a handle back that [`Handle::give`] gave. Null is nothing to take.
    ///
    /// # Errors
    /// As [`Handle::look`].
    ///
    /// # Safety
    /// As [`Handle::look`], and nobody uses the handle any more.
    pub unsafe fn take(handle: *mut Self) -> Result<Option<T>, Failure> {
        if handle.is_null() {
            return Ok(None);
        }
        // SAFETY: the caller's duty is the same.
        unsafe { Self::look(handle)? };
        // Volatile: for whoever wrongly looks at memory that is free by then.
        // SAFETY: a live handle, as was just seen, which nobody else uses (caller's duty).
        unsafe { (&raw mut (*handle).mark).write_volatile(DELETED) };
        // SAFETY: a live handle came from `give`; it is taken once, because its mark is gone.
        Ok(Some(unsafe { Box::from_raw(handle) }.value))
    }
}

#[cold]
fn refused<T: Held>(address: usize) -> Failure {
    let (name, given_by) = (T::NAME, T::GIVEN_BY);
    match address {
        0 => Failure::new(Status::BAD_HANDLE, format_args!("the {name} is NULL: pass what {given_by} gave")),
        _ => Failure::new(
            Status::BAD_HANDLE,
            format_args!(
                "{address:#x} is no {name}: it was deleted, is something else, or of another copy of the library"
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Number(u8);
    static NUMBERS: Kind = Kind(*b"a number");
    impl Held for Number {
        const KIND: &'static Kind = &NUMBERS;
        const NAME: &str = "number";
        const GIVEN_BY: &str = "nobody";
    }
    struct Other;
    static OTHERS: Kind = Kind(*b"an other");
    impl Held for Other {
        const KIND: &'static Kind = &OTHERS;
        const NAME: &str = "other";
        const GIVEN_BY: &str = "nobody";
    }

    #[test]
    fn only_live_handles_of_the_kind_are_followed() {
        let handle = Handle::give(Number(7));
        // SAFETY: a live handle, also where it is taken for another kind; null; odd addresses are not read.
        unsafe {
            assert_eq!(Handle::look(handle).unwrap().0, 7);
            assert!(Handle::look(handle.cast::<Handle<Other>>()).is_err());
            assert!(Handle::<Number>::look(std::ptr::null()).is_err());
            assert!(Handle::look(handle.byte_add(1)).is_err());
            assert_eq!(Handle::take(handle).unwrap().unwrap().0, 7);
            assert!(Handle::<Number>::take(std::ptr::null_mut()).unwrap().is_none());
        }
    }
}
