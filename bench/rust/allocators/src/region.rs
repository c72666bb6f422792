//! Memory of one owner, from an allocator that does not say what is in it.
//!
//! ```text
//!   Fresh ──write──▶ Written ──check──▶ the bytes that were written, and no others, are read back
//!     └────fill────▶ Filled  ──bytes──▶ every byte was written, so it is a slice like any other
//! ```

use std::ptr::NonNull;

/// Touching writes one byte in so many: the smallest page that processors have.
const STRIDE: usize = 4096;

/// One place in each page of `bytes` bytes: each time another cache line, because bytes at one offset in their pages
/// would compete for the same few places of the processor's caches.
#[inline]
fn places(bytes: usize) -> impl Iterator<Item = usize> {
    let last = bytes.saturating_sub(1);
    (0..bytes.div_ceil(STRIDE)).map(move |page| (page * STRIDE + page % 64 * 64).min(last))
}

/// Memory that one owner holds until it drops it: one part, or several.
///
/// # Safety
/// - Each part is valid for reads and writes of its length, in every thread, until the value is dropped.
/// - Nobody else reads or writes it meanwhile.
/// - The answers stay the same, also when the value moves.
pub unsafe trait Region: Send + 'static {
    /// First byte and length of part `index`; `None` when there are no more.
    fn part(&self, index: usize) -> Option<(NonNull<u8>, usize)>;

    /// All parts in their order.
    #[inline]
    fn parts(&self) -> impl Iterator<Item = (NonNull<u8>, usize)> {
        (0..).map_while(|index| self.part(index))
    }
}

/// How a buffer is used between rent and return.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Touch {
    /// One byte in each page: what brings the pages in, and no more.
    Page,
    /// Every byte.
    Full,
}

/// Memory as it was rented: its content is anything.
pub struct Fresh<M: Region>(pub(crate) M);

impl<M: Region> Fresh<M> {
    /// Writes `value` as `touch` says.
    #[inline]
    pub fn write(self, touch: Touch, value: u8) -> Written<M> {
        for (start, bytes) in self.0.parts() {
            match touch {
                Touch::Page => {
                    for place in places(bytes) {
                        // SAFETY: `place` is below `bytes`, and a region's bytes are ours to write. Volatile, so that
                        // the compiler cannot see that a value which comes back unchanged need not be stored.
                        unsafe { start.add(place).write_volatile(value) };
                    }
                }
                // SAFETY: the part's `bytes` bytes are ours to write.
                Touch::Full => unsafe { start.write_bytes(value, bytes) },
            }
        }
        Written { memory: self.0, value }
    }

    /// Writes every byte, `N` at a time, with what `piece` says for the first, second, … such piece.
    ///
    /// # Panics
    /// When the length is no multiple of `N`, or the memory is in several parts.
    #[inline]
    pub fn fill<const N: usize>(self, piece: impl FnMut(usize) -> [u8; N]) -> Filled<M> {
        let (Some((start, bytes)), None) = (self.0.part(0), self.0.part(1)) else { panic!("not in one part") };
        // SAFETY: a region's bytes are ours to write.
        unsafe { fill(start, bytes, piece) };
        Filled { memory: self.0, start, bytes }
    }
}

/// As [`Fresh::fill`]. Never inlined, and the same for every region: so the compiler cannot make one subject's loop
/// better than another's.
///
/// # Safety
/// `bytes` bytes at `start` may be written.
#[inline(never)]
unsafe fn fill<const N: usize>(start: NonNull<u8>, bytes: usize, mut piece: impl FnMut(usize) -> [u8; N]) {
    assert_eq!(bytes % N, 0, "{bytes} bytes are no whole number of pieces of {N}");
    for index in 0..bytes / N {
        // SAFETY: the piece ends at or before `bytes`, and the caller says that these bytes may be written; arrays of
        // u8 have no alignment.
        unsafe { start.add(index * N).cast::<[u8; N]>().write(piece(index)) };
    }
}

/// Memory of which at least one byte in each page holds a known value.
pub struct Written<M: Region> {
    memory: M,
    value: u8,
}

impl<M: Region> Written<M> {
    /// Reads one byte of each page back.
    ///
    /// # Panics
    /// When one is not what was written: two owners were given the same memory.
    #[inline]
    pub fn check(&self) {
        let mut differ = 0;
        for (start, bytes) in self.memory.parts() {
            for place in places(bytes) {
                // SAFETY: `place` is below the part's length, and `Fresh::write` has written this byte, whichever way.
                differ |= unsafe { start.add(place).read_volatile() } ^ self.value;
            }
        }
        assert_eq!(differ, 0, "a buffer does not hold what was written");
    }
}

/// Memory in one part that is written from end to end.
pub struct Filled<M: Region> {
    /// Only held.
    #[allow(dead_code, reason = "its drop gives the memory back")]
    memory: M,
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a region may be used in any thread, and the pointer is to its memory.
unsafe impl<M: Region> Send for Filled<M> {}

impl<M: Region> Filled<M> {
    /// The content.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `Fresh::fill` has written all of the part's bytes; they stay valid and nobody else's as long as
        // `memory` is held.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }
}
