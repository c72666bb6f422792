//! What a thread does at its end, noted without ending the process.
//!
//! A thread's variable that has a destructor is noted at its first use. The C library takes memory from malloc for the
//! note, and where there is none it ends the process. So code with such a variable asks here first, and does without
//! it.

use std::cell::Cell;
use std::hint::black_box;

use crate::inside;

/// More than a note takes. And more than malloc keeps for a thread's next requests: what it keeps is not found when the
/// note asks for zeroed memory.
const NOTE_BYTES: usize = 4096;

/// Whether malloc, and the program's allocator, have that many bytes just now. Another thread may take them before the
/// caller does: for requests that cannot be refused without ending the process, which this makes unlikely to fail.
pub fn malloc_has(bytes: usize) -> bool {
    let _inside = inside::enter();
    // Through a black box: the compiler leaves out what is asked for and not used.
    // SAFETY: touches no memory; what came, or null, goes back at once and is not used.
    let of_system = unsafe {
        let room = black_box(libc::malloc(bytes));
        let some = !room.is_null();
        libc::free(room);
        some
    };
    let mut room = Vec::<u8>::new();
    of_system && black_box(&mut room).try_reserve_exact(bytes).is_ok()
}

/// Whether a thread's variable that has a destructor has been used: one for each, in a variable without a destructor.
#[derive(Debug, Default)]
pub struct Noted(Cell<bool>);

impl Noted {
    /// Not used yet.
    pub const fn new() -> Self {
        Self(Cell::new(false))
    }

    /// True when the variable has been used.
    #[inline]
    pub fn is_noted(&self) -> bool {
        self.0.get()
    }

    /// True when the variable may be used now: it has been before, or malloc has memory for the note.
    #[inline]
    pub fn can_be_noted(&self) -> bool {
        if !self.0.get() {
            self.0.set(malloc_has(NOTE_BYTES));
        }
        self.0.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_noted_is_not_asked_for_again() {
        let noted = Noted::new();
        assert!(!noted.is_noted() && noted.can_be_noted() && noted.is_noted() && noted.can_be_noted());
        assert!(malloc_has(1) && !malloc_has(isize::MAX as usize));
    }
}
