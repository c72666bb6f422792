//! Memory for owners outside the pool's limits: block sets, and runs of piles.

use std::ptr::NonNull;

use super::addresses;
use super::pool::Pool;
use super::shared::Shared;
use super::size::{span_bytes, span_class};
use super::span::Span;
use crate::error::BlockError;
use crate::sync::Ordering;

/// What mappings beyond all classes are rounded up to: a page of every kernel.
const OS_PAGE: usize = 64 << 10;

/// Memory outside the pool's limits: a block, a run, or memory of an exact size. It goes back to the pool when dropped.
pub struct Held {
    span: &'static Span,
    shared: &'static Shared,
}

impl Held {
    /// What memory for `len` bytes takes.
    pub fn bytes_for(len: usize) -> usize {
        span_class(len).map_or_else(|| len.next_multiple_of(OS_PAGE), span_bytes)
    }

    /// Takes a span of exactly `bytes` bytes, as [`Held::bytes_for`] gives them, and says whether it reads as zero;
    /// with `zero`, it does.
    ///
    /// # Errors
    /// [`BlockError::NoMemory`]; nothing waits.
    pub fn take(pool: &Pool, bytes: usize, zero: bool) -> Result<(Self, bool), BlockError> {
        let shared = pool.shared();
        let span = shared.hold(bytes, zero)?;
        let reads_zero = span.zero.swap(false, Ordering::Relaxed);
        Ok((Self { span, shared }, reads_zero))
    }

    /// Its first byte, at a multiple of 4 MiB. Nobody else has the memory while this value lives.
    pub fn base(&self) -> NonNull<u8> {
        self.span.base()
    }

    /// Bytes from there on.
    pub fn bytes(&self) -> usize {
        self.span.bytes()
    }
}

/// Notes that part of a held block's memory is not there: given back to the system, or never touched.
pub(crate) fn note_holes(base: NonNull<u8>) {
    if let Some(span) = addresses::find(base.as_ptr()) {
        span.holes.store(true, Ordering::Relaxed);
    }
}

/// Notes that all of a held block's memory is there.
pub(crate) fn note_no_holes(base: NonNull<u8>) {
    if let Some(span) = addresses::find(base.as_ptr()) {
        span.holes.store(false, Ordering::Relaxed);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.shared.let_go(self.span);
    }
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Held").field("base", &self.base()).field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}
