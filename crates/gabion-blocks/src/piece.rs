//! Bytes that are copied by their addresses.

use std::marker::PhantomData;
use std::ptr;

/// Bytes that are to be copied: one of the pieces that a payload lies in. Others may write to them meanwhile (as to an
/// array of another language that a thread of its own works on): so nothing refers to them, and a copy has some old
/// bytes then, and some new.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub struct Piece<'a> {
    bytes: *const [u8],
    borrowed: PhantomData<&'a [u8]>,
}

// SAFETY: a piece is only copied from, which any thread may do as long as the bytes are borrowed.
unsafe impl Send for Piece<'_> {}
// SAFETY: as above.
unsafe impl Sync for Piece<'_> {}

impl<'a> Piece<'a> {
    /// The `len` bytes at `start`.
    ///
    /// # Safety
    /// They can be read for `'a`. Who writes to them meanwhile does so outside of this program's Rust, or atomically.
    pub unsafe fn new(start: *const u8, len: usize) -> Self {
        Self { bytes: ptr::slice_from_raw_parts(start, len), borrowed: PhantomData }
    }

    /// Slices as pieces.
    pub fn list<'b>(slices: &'b [&'a [u8]]) -> &'b [Self] {
        // SAFETY: a piece has the layout of a pointer to a slice, which that of a reference is; what it refers to can
        // be read for 'a.
        unsafe { std::slice::from_raw_parts(slices.as_ptr().cast(), slices.len()) }
    }

    /// How many bytes it has.
    pub fn len(self) -> usize {
        self.bytes.len()
    }

    /// Whether it has none.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The first byte: to be read by this address alone.
    pub fn start(self) -> *const u8 {
        self.bytes.cast()
    }

    /// The first `at` bytes, and the others.
    ///
    /// # Panics
    /// When it has fewer.
    #[must_use]
    pub fn split_at(self, at: usize) -> (Self, Self) {
        assert!(at <= self.len(), "{at} bytes of {}", self.len());
        let start = self.start();
        // SAFETY: both lie inside of the piece.
        unsafe { (Self::new(start, at), Self::new(start.add(at), self.len() - at)) }
    }

    /// Copies the bytes.
    ///
    /// # Panics
    /// When `into` has another length.
    pub fn copy_to(self, into: &mut [u8]) {
        assert_eq!(self.len(), into.len(), "a copy is as long as what is copied");
        // SAFETY: so many bytes can be read, and `into` is exclusive, so that no bytes of others are part of it.
        unsafe { into.as_mut_ptr().copy_from_nonoverlapping(self.start(), self.len()) };
    }

    /// All the bytes of pieces, one behind the other.
    pub fn concat(pieces: &[Self]) -> Vec<u8> {
        let mut whole = vec![0; total_len(pieces)];
        let mut rest = &mut *whole;
        for piece in pieces {
            let (place, behind) = rest.split_at_mut(piece.len());
            piece.copy_to(place);
            rest = behind;
        }
        whole
    }
}

impl<'a> From<&'a [u8]> for Piece<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self { bytes, borrowed: PhantomData }
    }
}

/// How many bytes pieces have together: the most that can be counted where they are more, which is more than anybody
/// gets memory for. The same piece may be there many times.
pub fn total_len(pieces: &[Piece<'_>]) -> usize {
    pieces.iter().fold(0, |sum, piece| sum.saturating_add(piece.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_the_slices_that_they_are_made_of() {
        let slices = [&b"red "[..], b"", b"and green"];
        let pieces = Piece::list(&slices);
        assert_eq!((pieces.len(), total_len(pieces)), (3, 13));
        assert_eq!(Piece::concat(pieces), b"red and green");
        let (first, rest) = pieces[2].split_at(4);
        assert_eq!((Piece::concat(&[first]), Piece::concat(&[rest])), (b"and ".to_vec(), b"green".to_vec()));
        assert!(pieces[1].is_empty() && rest.split_at(5).1.is_empty());
    }

    #[test]
    #[should_panic(expected = "a copy is as long")]
    fn a_copy_of_another_length_is_refused() {
        Piece::from(&b"red"[..]).copy_to(&mut [0; 4]);
    }
}
