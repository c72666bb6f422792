//! A key as it stands before its value: length, table, bytes.
//!
//! ```text
//! length × 2, plus 1 if there is a table number (varint) │ table (varint), unless it is 0 │ key
//! └──────────────────────── prefix, up to 8 bytes ───────────────────────┘
//! └──────────────────────────────────── image ────────────────────────────────────────────┘
//! ```
//! Two keys are the same when their images are the same bytes, so a payload has its key's image or is another's. An
//! image is never made in memory: its words are put together from prefix and key as they are compared.

/// The longest key. What is longer is never found and never stored.
pub(crate) const LONGEST_KEY: usize = u32::MAX as usize;

/// The image of a key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Image<'k> {
    /// The first word: the prefix, and as much of the key as has room beside it.
    first: u64,
    pub prefix_len: usize,
    pub table: u16,
    pub key: &'k [u8],
}

/// Adds a varint to a prefix: seven bits a byte, the lowest first.
#[inline]
fn append(prefix: &mut u64, len: &mut usize, mut value: u64) {
    while value >= 0x80 {
        *prefix |= (value & 0x7F | 0x80) << (8 * *len);
        *len += 1;
        value >>= 7;
    }
    *prefix |= value << (8 * *len);
    *len += 1;
}

/// Up to eight bytes as a word.
#[inline]
fn word_of(bytes: &[u8]) -> u64 {
    if let Some(bytes) = bytes.first_chunk::<8>() {
        return u64::from_le_bytes(*bytes);
    }
    if let (Some(low), Some(high)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        let (low, high) = (u32::from_le_bytes(*low), u32::from_le_bytes(*high));
        return u64::from(low) | u64::from(high) << (8 * (bytes.len() - 4));
    }
    match *bytes {
        [] => 0,
        [a] => u64::from(a),
        [a, b] => u64::from(a) | u64::from(b) << 8,
        [a, b, c, ..] => u64::from(a) | u64::from(b) << 8 | u64::from(c) << 16,
    }
}

impl<'k> Image<'k> {
    /// The image of a key that is no longer than [`LONGEST_KEY`].
    #[inline]
    pub fn new(table: u16, key: &'k [u8]) -> Self {
        if let Some(image) = Self::short(table, key) {
            return image;
        }
        let (mut prefix, mut prefix_len) = (0, 0);
        append(&mut prefix, &mut prefix_len, (key.len() as u64) << 1 | u64::from(table != 0));
        if table != 0 {
            append(&mut prefix, &mut prefix_len, u64::from(table));
        }
        let first = prefix | word_of(key).checked_shl(8 * prefix_len as u32).unwrap_or(0);
        Self { first, prefix_len, table, key }
    }

    /// The image of a key of up to 63 bytes in one of the first 128 tables, whose numbers take a byte each; `None` for
    /// others.
    #[inline(always)]
    pub fn short(table: u16, key: &'k [u8]) -> Option<Self> {
        let short = (key.len() as u64) << 1;
        if short | u64::from(table) >= 0x80 {
            return None;
        }
        let more = table != 0;
        let (prefix, prefix_len) = (short | u64::from(more) | u64::from(table) << 8, 1 + usize::from(more));
        Some(Self { first: prefix | word_of(key) << (8 * prefix_len), prefix_len, table, key })
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.prefix_len + self.key.len()
    }

    /// Whether the first `length` bytes of what `word` gives are the image's; one at least, and no more than those has.
    #[inline(always)]
    pub fn matches(&self, length: usize, word: impl Fn(usize) -> u64) -> bool {
        if length <= 8 {
            return (word(0) ^ self.first) << (64 - 8 * length) == 0;
        }
        // The words behind the first come straight from the key.
        let (words, tail) = self.key[8 - self.prefix_len..length - self.prefix_len].as_chunks::<8>();
        word(0) == self.first
            && words.iter().enumerate().all(|(index, bytes)| word(1 + index) == u64::from_le_bytes(*bytes))
            && (tail.is_empty() || (word(1 + words.len()) ^ word_of(tail)) << (64 - 8 * tail.len()) == 0)
    }

    /// The first eight bytes, zeros behind them where there are fewer.
    #[inline]
    pub fn first(&self) -> [u8; 8] {
        self.first.to_le_bytes()
    }
}

/// Reads an image's prefix from its first bytes: the key's length, the table, the prefix's length.
#[inline]
pub(crate) fn parse_prefix(first: u64) -> (usize, u16, usize) {
    let mut at = 0;
    let mut number = || {
        let mut value = 0_u64;
        for shift in (0..35).step_by(7) {
            let byte = first.checked_shr(8 * at).unwrap_or(0);
            at += 1;
            value |= (byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                break;
            }
        }
        value
    };
    let length = number();
    let table = if length & 1 == 1 { number() as u16 } else { 0 };
    ((length >> 1) as usize, table, at as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_of(image: &Image<'_>) -> Vec<u8> {
        [&image.first()[..image.prefix_len], image.key].concat()
    }

    fn words(bytes: &[u8]) -> impl Fn(usize) -> u64 {
        move |index| word_of(&bytes[(8 * index).min(bytes.len())..])
    }

    #[test]
    fn an_image_matches_its_own_bytes_and_no_others() {
        for (table, length) in
            [(0, 0), (1, 1), (0, 3), (0, 7), (127, 63), (128, 64), (u16::MAX, 93), (5, 9000), (9, 70_000_u32)]
        {
            let key: Vec<u8> = (0..length).map(|n: u32| (n * 7) as u8).collect();
            let image = Image::new(table, &key);
            let mut bytes = bytes_of(&image);
            assert_eq!(parse_prefix(words(&bytes)(0)), (key.len(), table, image.prefix_len));
            bytes.extend_from_slice(b"value");
            assert!(image.matches(image.len(), words(&bytes)));
            assert!(!Image::new(table ^ 1, &key).matches(image.len().min(8), words(&bytes)));
            for at in [0, image.len() / 2, image.len() - 1] {
                bytes[at] ^= 1;
                assert!(!image.matches(image.len(), words(&bytes)), "table {table}, {length} bytes, byte {at}");
                bytes[at] ^= 1;
            }
        }
    }

    #[test]
    fn no_image_is_the_beginning_of_another() {
        let (one, other) = (Image::new(3, b"ab"), bytes_of(&Image::new(3, b"abc")));
        assert!(!one.matches(one.len(), words(&other)));
    }

    #[test]
    fn the_longest_prefix_fits_a_word() {
        let (mut prefix, mut len) = (0, 0);
        append(&mut prefix, &mut len, (LONGEST_KEY as u64) << 1 | 1);
        append(&mut prefix, &mut len, u64::from(u16::MAX));
        assert_eq!((len, parse_prefix(prefix)), (8, (LONGEST_KEY, u16::MAX, 8)));
    }
}
