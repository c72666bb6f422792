//! A payload on its way in: bytes in one piece, or in several.

use gabion_blocks::{Piece, total_len};

use crate::change::SLOT_PAYLOAD;

/// Bytes to be stored. Made of `&[u8]`, `&[u8; N]`, `&Vec<u8>`, `&str`, `&String`, and of lists of pieces, which lie
/// one behind the other where they are stored: `&[&[u8]]`, or `&[Piece]` where others may write to them meanwhile.
///
/// Pieces of more than 1016 bytes together ([`SLOT_PAYLOAD`]) are copied once, straight to where they stay.
///
/// ```
/// # let pile = gabion_pile::Pile::new()?;
/// let (head, pixels) = (b"1024 x 1024", vec![7; 3 << 20]);
/// let pointer = pile.put_pieces(&[&head[..], &pixels], 0)?;
/// assert_eq!(pile.read(pointer, &mut gabion_pile::ReadBuf::new())?.len(), head.len() + pixels.len());
/// # Ok::<(), gabion_pile::PileError>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub enum Value<'a> {
    /// In one piece.
    Whole(&'a [u8]),
    /// In pieces, the first of which comes first.
    Pieces(&'a [Piece<'a>]),
}

impl Value<'_> {
    /// How many bytes it has.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Whole(bytes) => bytes.len(),
            Self::Pieces(pieces) => total_len(pieces),
        }
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All bytes of pieces, where they may go into a slot, which is written in one go.
    #[inline]
    #[must_use]
    pub fn joined(&self) -> Option<Vec<u8>> {
        match self {
            Self::Whole(_) => None,
            Self::Pieces(pieces) => (self.len() <= SLOT_PAYLOAD).then(|| Piece::concat(pieces)),
        }
    }
}

impl<'a> From<&'a [u8]> for Value<'a> {
    #[inline]
    fn from(bytes: &'a [u8]) -> Self {
        Self::Whole(bytes)
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Value<'a> {
    #[inline]
    fn from(bytes: &'a [u8; N]) -> Self {
        Self::Whole(bytes)
    }
}

impl<'a> From<&'a Vec<u8>> for Value<'a> {
    #[inline]
    fn from(bytes: &'a Vec<u8>) -> Self {
        Self::Whole(bytes)
    }
}

impl<'a> From<&'a str> for Value<'a> {
    #[inline]
    fn from(text: &'a str) -> Self {
        Self::Whole(text.as_bytes())
    }
}

impl<'a> From<&'a String> for Value<'a> {
    #[inline]
    fn from(text: &'a String) -> Self {
        Self::Whole(text.as_bytes())
    }
}

impl<'a> From<&'a [&'a [u8]]> for Value<'a> {
    #[inline]
    fn from(pieces: &'a [&'a [u8]]) -> Self {
        Self::Pieces(Piece::list(pieces))
    }
}

impl<'a, const N: usize> From<&'a [&'a [u8]; N]> for Value<'a> {
    #[inline]
    fn from(pieces: &'a [&'a [u8]; N]) -> Self {
        Self::Pieces(Piece::list(pieces))
    }
}

impl<'a> From<&'a [Piece<'a>]> for Value<'a> {
    #[inline]
    fn from(pieces: &'a [Piece<'a>]) -> Self {
        Self::Pieces(pieces)
    }
}
