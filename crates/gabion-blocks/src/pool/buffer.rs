//! One piece of memory that is lent.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::ptr::NonNull;

use super::addresses;
use super::cache::Piece;
use super::seat;
use super::shared::Shared;
use super::size::{BLOCK_CLASS, LARGEST_PIECE, exact_bytes, piece_at, piece_bytes, piece_class, stagger};
use super::span::{NO_CLASS, Span, Use};
use super::whole::{CLOSE, Plan};
use crate::BLOCK_BYTES;
use crate::error::BlockError;
use crate::sync::Ordering;

/// Contiguous memory of the pool, owned: it goes back when the buffer is dropped, once, whichever thread drops it.
///
/// What it holds at first is zero when it was asked for `clean`, and otherwise whatever an earlier user left. It derefs
/// to its bytes.
///
/// ```
/// use gabion_blocks::{Pool, Request};
///
/// let mut buffer = Pool::global().rent(&Request::new(1000).clean())?;
/// buffer[..5].copy_from_slice(b"stone");
/// assert!(buffer.starts_with(b"stone") && buffer[5..].iter().all(|&byte| byte == 0));
/// # Ok::<(), gabion_blocks::BlockError>(())
/// ```
pub struct Buffer {
    at: NonNull<u8>,
    len: usize,
    span: &'static Span,
    shared: &'static Shared,
}

// SAFETY: a buffer is an owned byte slice; what it refers to beside is `Sync`, and takes memory back from any thread.
unsafe impl Send for Buffer {}
// SAFETY: as above, and shared references only read.
unsafe impl Sync for Buffer {}

// As a `Vec<u8>`: bytes have no state to be half in, and nothing of a caller's runs while the pool changes.
impl UnwindSafe for Buffer {}
impl RefUnwindSafe for Buffer {}

impl Buffer {
    /// The first byte, at a multiple of 64 at least, for reading. Valid until the buffer is dropped.
    #[inline]
    pub fn as_ptr(&self) -> *const u8 {
        self.at.as_ptr()
    }

    /// The first byte, as [`Buffer::as_ptr`], for writing.
    #[inline]
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.at.as_ptr()
    }

    /// The first byte, as [`Buffer::as_ptr`], for owners that share the memory with other languages: also for writing,
    /// as far as no reference to the bytes is alive and nobody else reads or writes there at that time.
    #[inline]
    pub fn as_non_null(&self) -> NonNull<u8> {
        self.at
    }

    /// How many bytes were asked for.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True when no byte was asked for.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many bytes may be used from [`Buffer::as_ptr`] on; at least [`Buffer::len`].
    pub fn capacity(&self) -> usize {
        usable(self.span, self.at.as_ptr())
    }

    /// The bytes.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: lent to this buffer alone until it is dropped, and initialised: `len` bytes at least were lent, the
        // system filled each with zero when it gave the memory, and again where pages were given back meanwhile; since
        // then it had other values only by what earlier users wrote.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.len) }
    }

    /// The bytes, for writing.
    #[inline]
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_slice`, and `&mut self` proves that no other reference is alive.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr(), self.len) }
    }

    /// True when dropping the buffer would keep its memory warm, as things stand: no system call is made then.
    pub fn drops_warm(&self) -> bool {
        self.span.class() != NO_CLASS && self.shared.keeps()
    }

    /// Lets go of the buffer and keeps its memory lent. Give it back by [`Pool::return_raw`](super::Pool::return_raw).
    #[must_use = "the memory stays lent until `Pool::return_raw` is given this"]
    pub fn into_raw(self) -> NonNull<u8> {
        ManuallyDrop::new(self).at
    }
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl DerefMut for Buffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        self.as_mut_slice()
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl AsMut<[u8]> for Buffer {
    fn as_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl Drop for Buffer {
    #[inline]
    fn drop(&mut self) {
        self.shared.give(self.span, self.at);
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").field("len", &self.len).field("at", &self.at).finish_non_exhaustive()
    }
}

/// How many bytes of what is lent there may be used from `at` on.
fn usable(span: &Span, at: *const u8) -> usize {
    let offset = at.addr() - span.base().addr().get();
    if span.state() == Use::Cut {
        let class = span.piece_class();
        // What a block has beyond its last piece is in none.
        ((piece_at(class, offset) + 1) * piece_bytes(class)).min(BLOCK_BYTES) - offset
    } else {
        span.bytes() - offset
    }
}

impl Shared {
    /// Lends `bytes` bytes, as soon as there is room for them.
    ///
    /// # Errors
    /// [`BlockError::Total`] when there is none, [`BlockError::NoMemory`] when the system has none.
    #[inline]
    pub fn lend(&'static self, bytes: usize, clean: bool) -> Result<Buffer, BlockError> {
        if bytes > LARGEST_PIECE {
            let plan = Plan::of(bytes);
            return Ok(self.buffer_of(self.rent_whole(bytes, plan)?, bytes, clean));
        }
        match self.rent_piece(bytes, piece_class(bytes), clean) {
            Ok(piece) => Ok(self.buffer_on(piece, bytes, clean)),
            Err(BlockError::Total { .. }) => self.lend_scarce(bytes, clean),
            Err(other) => Err(other),
        }
    }

    /// Lends what a piece would serve where there is no room for a block more to cut, or none to waste: there may be
    /// for the bytes alone, or a piece that lay in a cache is free now.
    #[cold]
    fn lend_scarce(&'static self, bytes: usize, clean: bool) -> Result<Buffer, BlockError> {
        loop {
            let error = match self.rent_exactly(bytes, exact_bytes(bytes)) {
                Err(error @ BlockError::Total { .. }) => error,
                done => return Ok(self.buffer_of(done?, bytes, clean)),
            };
            match self.rent_free_piece(piece_class(bytes), clean) {
                Ok(piece) => return Ok(self.buffer_on(piece, bytes, clean)),
                // They are back in a moment.
                Err(true) => std::thread::yield_now(),
                Err(false) => return Err(error),
            }
        }
    }

    /// A buffer of `bytes` bytes on a span that was lent whole.
    pub fn buffer_of(&'static self, span: &'static Span, bytes: usize, clean: bool) -> Buffer {
        // Even no bytes have a place of their own.
        let slack = span.bytes().checked_sub(bytes.max(1)).expect("a span that is long enough");
        // Blocks only as far as they have room to spare; where a span's user begins never changes, so that pages stay
        // warm.
        let slack = if span.class() == BLOCK_CLASS { slack.min(BLOCK_STAGGER) } else { slack };
        let start = stagger(span.colour.load(Ordering::Relaxed), slack);
        // SAFETY: `start` is at most the slack, so it and `bytes` bytes from there on lie inside the span.
        let at = unsafe { span.base().add(start) };
        span.start.store(start as u32, Ordering::Relaxed);
        let zero = span.zero.swap(false, Ordering::Relaxed);
        let buffer = Buffer { at, len: bytes, span, shared: self };
        if clean && !zero { cleared(buffer) } else { buffer }
    }

    /// Lends idle memory as it is: without a system call, and without clearing more than [`LITTLE`].
    pub fn lend_warm(&'static self, bytes: usize, clean: bool) -> Option<Buffer> {
        if clean && bytes > LITTLE {
            return None;
        }
        if bytes > LARGEST_PIECE {
            return Some(self.buffer_of(self.rent_warm(Plan::of(bytes), CLOSE)?, bytes, clean));
        }
        Some(self.buffer_on(self.rent_warm_piece(piece_class(bytes), clean)?, bytes, clean))
    }

    /// Lends a piece of this thread's own, if it has one: no limit, nobody who waits and no other thread has a say in
    /// it.
    #[inline(always)]
    pub fn lend_own(&'static self, bytes: usize, clean: bool) -> Option<Buffer> {
        if bytes > LARGEST_PIECE {
            return None;
        }
        Some(self.buffer_on(self.rent_own_piece(piece_class(bytes))?, bytes, clean))
    }

    /// A buffer of `bytes` bytes on a piece that was lent.
    #[inline(always)]
    fn buffer_on(&'static self, piece: Piece, bytes: usize, clean: bool) -> Buffer {
        if clean && !piece.reads_zero() {
            // SAFETY: the piece has that many bytes at least, and is this buffer's alone.
            unsafe { piece.address().write_bytes(0, bytes) };
        }
        Buffer { at: piece.address(), len: bytes, span: piece.span(), shared: self }
    }

    /// Takes back what is lent at `at` in a span.
    #[inline]
    fn give(&'static self, span: &'static Span, at: NonNull<u8>) {
        if span.state() == Use::Cut {
            self.return_piece(Piece::used(span, at));
        } else {
            self.return_whole(span);
        }
    }

    /// See [`Pool::owns`](super::Pool::owns).
    #[inline]
    pub fn owns(&self, at: *const u8) -> Option<usize> {
        let span = addresses::find(at).filter(|span| span.pool() == self.number)?;
        matches!(span.state(), Use::Lent | Use::Cut).then(|| usable(span, at))
    }

    /// See [`Pool::lent_at`](super::Pool::lent_at).
    pub fn lent_at(&'static self, at: *const u8) -> Option<usize> {
        let span = addresses::find(at).filter(|span| span.pool() == self.number)?;
        // Of memory that is nobody's, all of this may change until the lock is held.
        let offset = at.addr().wrapping_sub(span.base().addr().get());
        if span.state() == Use::Lent {
            let begins = offset == span.start.load(Ordering::Relaxed) as usize;
            return if begins { span.bytes().checked_sub(offset) } else { None };
        }
        let (arena, at) = (self.arena(span.home()), NonNull::new(at.cast_mut())?);
        let class = {
            let _shelves = arena.lock();
            if !span.is_cut_in(arena.index, self.number) || offset >= BLOCK_BYTES {
                return None;
            }
            let class = span.piece_class();
            let index = piece_at(class, offset);
            // SAFETY: on the arena's list, as was just seen, and its lock is held.
            let cut = unsafe { span.cut() };
            if offset != index * piece_bytes(class) || index >= cut.pieces || cut.is_free(index) {
                return None;
            }
            class
        };
        // To its arena a piece in a cache is taken.
        let kept =
            seat::cache(self).is_some_and(|own| own.try_lock_biased().unwrap_or_else(|| own.open()).has(class, at));
        (!kept).then(|| piece_bytes(class))
    }

    /// Takes back what `Buffer::into_raw` let go.
    ///
    /// # Panics
    /// When the memory is not this pool's.
    pub fn return_raw(&'static self, at: NonNull<u8>) {
        let span = addresses::find(at.as_ptr()).filter(|span| span.pool() == self.number);
        let span = span.expect("memory of this pool");
        if span.state() == Use::Cut {
            // Rounded down to a piece's start: an address from outside is not trusted to be exact.
            let offset = at.addr().get() - span.base().addr().get();
            self.return_piece(Piece::new(span, piece_at(span.piece_class(), offset), false));
        } else {
            self.return_whole(span);
        }
    }
}

/// What is cleared in no time.
const LITTLE: usize = 64 << 10;

/// How far the starts of buffers in blocks may lie apart.
const BLOCK_STAGGER: usize = 256 << 10;

fn cleared(mut buffer: Buffer) -> Buffer {
    buffer.as_mut_slice().fill(0);
    buffer
}
