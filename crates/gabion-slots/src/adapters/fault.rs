//! What becomes of a wrong free where nobody can be told.
//!
//! Drops and deallocations return nothing, and a panic there would end the program. The slot stays as it is: at worst
//! it is lost. The checked build says so on the standard error stream.

use std::io::Write;

use gabion_blocks::os::out_of_cancels_reach;

use crate::FreeError;

/// Takes note of a free that was refused.
#[inline]
pub(super) fn expect_freed(freed: Result<(), FreeError>) {
    if let Err(error) = freed {
        report(error);
    }
}

#[cold]
fn report(error: FreeError) {
    if cfg!(any(debug_assertions, feature = "checked")) {
        // Where that cannot be written either, there is nobody left to tell.
        let _ = out_of_cancels_reach(|| writeln!(std::io::stderr(), "gabion: {error}"));
    }
}
