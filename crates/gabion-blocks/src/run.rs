//! One object larger than any chunk, in a mapping of its own.

use std::ptr::NonNull;

use crate::error::BlockError;
use crate::os::Os;

/// What mappings are rounded up to: a page of every kernel. What is never touched takes no memory.
const OS_PAGE: usize = 64 << 10;

/// Bytes in a mapping of their own: filled once, never changed, unmapped when dropped.
pub struct Run {
    at: NonNull<u8>,
    len: usize,
    os: &'static dyn Os,
}

// SAFETY: a run is an owned, immutable byte slice.
unsafe impl Send for Run {}
// SAFETY: as above.
unsafe impl Sync for Run {}

impl Run {
    /// Maps room for `bytes` and copies them in.
    ///
    /// # Errors
    /// [`BlockError::Refused`] when the system gives no memory.
    pub fn new(os: &'static dyn Os, bytes: &[u8]) -> Result<Self, BlockError> {
        let mapped = Self::mapped_bytes(bytes.len());
        let at = os.map(mapped, OS_PAGE).map_err(|errno| BlockError::Refused { asked: mapped as u64, errno })?;
        // SAFETY: fresh memory of at least `bytes.len()` bytes that nobody else knows.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), at.as_ptr(), bytes.len()) };
        Ok(Self { at, len: bytes.len(), os })
    }

    /// What a run of `len` bytes takes from the system.
    pub fn mapped_bytes(len: usize) -> usize {
        len.max(1).next_multiple_of(OS_PAGE)
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: mapped and filled in `new`, never written again, unmapped only by drop.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.len) }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // SAFETY: the range of the map in `new`; `&mut self` proves that no slice of it is left.
        unsafe { self.os.unmap(self.at, Self::mapped_bytes(self.len)) };
    }
}

impl std::fmt::Debug for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Run").field("len", &self.len).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::Twin;

    #[test]
    fn holds_what_it_was_given_and_goes_back() {
        let twin: &'static Twin = Box::leak(Box::default());
        let bytes: Vec<u8> = (0..5_000_000_u32).map(|n| n as u8).collect();
        let run = Run::new(twin, &bytes).unwrap();
        assert_eq!(run.bytes(), bytes);
        assert_eq!(twin.mapped(), Run::mapped_bytes(bytes.len()) as u64);
        drop(run);
        assert_eq!(twin.mapped(), 0);
    }
}
