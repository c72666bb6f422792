//! A value on its way in: bytes in one piece, or in several.

use gabion_blocks::total_len;
use gabion_pile::SLOT_PAYLOAD;

/// The bytes of a value. Every method that stores one takes what can be made into this: `&[u8]`, `&[u8; N]`,
/// `&Vec<u8>`, `&str`, `&String`, and lists of pieces, which lie one behind the other in the cache.
///
/// Pieces of more than 1016 bytes together are copied once, straight to where they stay.
///
/// ```
/// use gabion_cache::{Cache, PutOptions, ReadBuf};
///
/// let cache = Cache::new(64 << 20)?;
/// let (head, pixels) = (b"1024 x 1024", vec![7; 3 << 20]);
/// cache.put(b"picture", &[&head[..], &pixels][..], &PutOptions::default());
/// let mut buf = ReadBuf::new();
/// assert_eq!(cache.get(b"picture", &mut buf).map(<[u8]>::len), Some(head.len() + pixels.len()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub enum Value<'a> {
    /// In one piece.
    Whole(&'a [u8]),
    /// In pieces, the first of which comes first.
    Pieces(&'a [&'a [u8]]),
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

    /// The one piece that pieces are to be made first, where a value is so short that it may lie in its entry.
    #[inline]
    pub(crate) fn joined(&self) -> Option<Vec<u8>> {
        match self {
            Self::Whole(_) => None,
            Self::Pieces(pieces) => (self.len() <= SLOT_PAYLOAD).then(|| pieces.concat()),
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
        Self::Pieces(pieces)
    }
}

#[cfg(test)]
mod tests {
    use crate::{Cache, PutOptions, PutResult, ReadBuf, Value};

    #[test]
    fn text_is_taken_as_its_bytes() {
        let (cache, mut buf) = (Cache::new(64 << 20).unwrap(), ReadBuf::new());
        let text = format!("{} MiB", 4);
        let puts: [Value<'_>; 4] = ["4 MiB".into(), (&text).into(), b"4 MiB".into(), text.as_bytes().into()];
        for value in puts {
            assert!(cache.put(b"stone", value, &PutOptions::default()).is_stored());
            assert_eq!(cache.get(b"stone", &mut buf), Some(text.as_bytes()));
        }
        assert_eq!(cache.replace_if(b"stone", "4 MiB", "2 MiB"), Some(PutResult::Replaced));
        assert!(cache.remove_if(b"stone", &String::from("2 MiB")));
    }

    #[test]
    fn a_put_that_is_refused_is_not_stored_and_leaves_nothing() {
        let cache = Cache::new(1 << 20).unwrap();
        assert!(cache.put(b"stone", "small", &PutOptions::default()).is_stored());
        assert!(!cache.put(b"stone", &vec![7; 8 << 20], &PutOptions::default()).is_stored());
        assert!(!cache.contains(b"stone"));
    }
}
