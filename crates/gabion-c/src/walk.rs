//! Walks over piles for C: `gabion_pile_next`.

use std::mem::needs_drop;

use gabion_pile::{Cursor, Pointer};

use crate::handle::Kind;
use crate::pile::{PileHandle, look};
use crate::status::{Failure, Status, call};
use crate::text;

static KIND: Kind = Kind(*b"gab walk");

/// What C calls `gabion_pile_cursor`: room of the caller's for a place in a walk. Its first word is zero before the
/// walk begins.
#[repr(C)]
#[derive(Debug)]
pub struct PileCursor {
    /// Ours to use, in no order that C may count on.
    pub state: [u64; 64],
}

/// What stands in that room once the walk has begun. In C's order, so that the mark lies where the first word was.
#[repr(C)]
struct Walk {
    mark: u64,
    /// The pile's number.
    pile: u64,
    cursor: Cursor,
}

// It fits, and C may drop or copy it as it does with any bytes.
const _: () = assert!(size_of::<Walk>() <= size_of::<PileCursor>() && align_of::<Walk>() <= align_of::<PileCursor>());
const _: () = assert!(!needs_drop::<Walk>());

/// The next pointer of a walk, or 0 at its end.
///
/// # Safety
/// `pile` is a handle, `cursor` has a first word that is zero or was used by this function alone, no other thread uses
/// it meanwhile, `out` is room for a number, or any of them null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gabion_pile_next(pile: *const PileHandle, cursor: *mut PileCursor, out: *mut u64) -> Status {
    call(|| {
        text::check(out, "out")?;
        // SAFETY: the caller's duties are the same.
        let live = unsafe { look(pile)? };
        // SAFETY: as above.
        let walk = unsafe { walk(cursor, live.number)? };
        let next = live.next_pointer(&mut walk.cursor).map_or(0, Pointer::to_bits);
        // SAFETY: room for a number (caller's duty).
        unsafe { text::write(out, next, "out") }
    })
}

/// The walk in a cursor, which begins if it has not yet.
///
/// # Errors
/// [`Status::BAD_ARGUMENT`] when the cursor is null, misplaced, never was zeroed, or walks another pile.
///
/// # Safety
/// As [`gabion_pile_next`].
unsafe fn walk<'a>(cursor: *mut PileCursor, pile: u64) -> Result<&'a mut Walk, Failure> {
    if cursor.is_null() || !cursor.addr().is_multiple_of(align_of::<PileCursor>()) {
        return Err(Failure::argument("the cursor is NULL or lies askew: pass a gabion_pile_cursor"));
    }
    let (place, mark) = (cursor.cast::<Walk>(), KIND.mark());
    // SAFETY: room for a cursor, whose first word has a value (caller's duties), and which is aligned.
    match unsafe { (&raw const (*place).mark).read() } {
        // SAFETY: as above; a walk is no larger and asks for no more alignment, and nobody else uses it.
        0 => unsafe { place.write(Walk { mark, pile, cursor: Cursor::default() }) },
        // SAFETY: the mark says that a walk stands there.
        seen if seen == mark => match unsafe { (&raw const (*place).pile).read() } {
            known if known == pile => {}
            _ => return Err(Failure::argument("the cursor walks another pile: set it to zero to begin anew")),
        },
        _ => return Err(Failure::argument("the cursor is none: set it to zero before the first call")),
    }
    // SAFETY: a walk stands there, which nobody else uses (caller's duty).
    Ok(unsafe { &mut *place })
}
