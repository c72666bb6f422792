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

/// A block or a run, owned; it goes back to the pool when it is dropped.
pub(crate) struct HeldSpan {
    span: &'static Span,
    shared: &'static Shared,
}

impl HeldSpan {
    /// What memory for `len` bytes takes.
    pub fn bytes_for(len: usize) -> usize {
        span_class(len).map_or_else(|| len.next_multiple_of(OS_PAGE), span_bytes)
    }

    /// Takes a span of exactly `bytes` bytes, as [`HeldSpan::bytes_for`] gives them, and says whether it reads as zero;
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

    /// Its first byte, at a multiple of 4 MiB.
    pub fn base(&self) -> NonNull<u8> {
        self.span.base()
    }
}

/// Notes that part of a held block's memory is not there: given back to the system, or never touched.
pub(crate) fn note_holes(base: NonNull<u8>) {
    if let Some(span) = addresses::find(base.as_ptr()) {
        span.holes.store(true, Ordering::Relaxed);
    }
}

impl Drop for HeldSpan {
    fn drop(&mut self) {
        self.shared.let_go(self.span);
    }
}
