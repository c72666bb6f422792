//! Views of a pile's objects for C: `gabion_pile_view`.

use std::ffi::c_void;

use gabion_blocks::try_box;
use gabion_pile::View;

use crate::handle::{Handle, Held, Kind};
use crate::pile::{PileHandle, look, pointer_of};
use crate::status::{Status, call, call_on_file};
use crate::text;

static KIND: Kind = Kind(*b"gab view");

impl Held for View {
    const KIND: &'static Kind = &KIND;
    const NAME: &str = "view";
    const GIVEN_BY: &str = "gabion_pile_view";
}

/// What C calls `gabion_view`. It keeps the pile.
pub type ViewHandle = Handle<View>;

/// An object's bytes in place.
///
/// # Safety
/// `pile` is a handle, `out` and `data` are room for a pointer, `length` for a number, or any of them null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_pile_view(
    pile: *mut PileHandle,
    pointer: u64,
    data: *mut *const c_void,
    length: *mut usize,
    out: *mut *mut ViewHandle,
) -> Status {
    call(|| {
        text::check(data, "data")?;
        text::check(length, "length")?;
        text::check(out, "out")?;
        // SAFETY: the caller's duty is the same.
        let view = unsafe { look(pile) }?.view(pointer_of(pointer)?)?;
        let (at, bytes) = (view.as_ptr(), view.len());
        // Not `give`, which ends the process where there is no memory. Then the view ends here.
        let handle = Box::into_raw(try_box(Handle::new(view))?);
        // SAFETY: room for each (caller's duty), as was just seen; so none is written without the others.
        unsafe {
            text::write(data, at.cast(), "data")?;
            text::write(length, bytes, "length")?;
            text::write(out, handle, "out")
        }
    })
}

/// Ends a view.
///
/// # Safety
/// Null or a handle that nobody uses any more, and nobody its bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_pile_unview(view: *mut ViewHandle) -> Status {
    // SAFETY: the caller's duty is the same.
    call_on_file(|| unsafe { Handle::take(view) }.map(drop))
}
