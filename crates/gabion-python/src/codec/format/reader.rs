//! Reading the stored bytes: every step is checked against their end.

use crate::codec::object::{Raise, Raised, refuse};

/// A position in stored bytes.
pub struct Reader<'a> {
    bytes: &'a [u8],
    /// Position of the next byte.
    pub at: usize,
    /// The sum of all counts that containers have claimed so far. Each value takes a byte at least, so a sum beyond the
    /// whole length is damage: nothing is allocated for it.
    claimed: usize,
}

/// Raises the error of bytes that end too early or make no sense.
#[cold]
#[inline(never)]
pub fn damaged(what: &str) -> Raised {
    refuse(&format!(
        "stored bytes are damaged: {what}; remove what is stored there. In a file, it is damaged, or was made so: take a backup. In \
         memory, report it: this is a fault of gabion, or of other native code that writes where it should not"
    ))
}

/// The number that bytes begin with, seven bits a byte, and how many bytes it takes: as [`Reader::varint`], for whoever
/// raises nothing.
pub fn leading_varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0;
    for (at, &byte) in bytes.iter().take(10).enumerate() {
        value |= u64::from(byte & 0x7F) << (7 * at);
        if byte < 0x80 {
            return Some((value, at + 1));
        }
    }
    None
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8], at: usize) -> Reader<'a> {
        Reader { bytes, at, claimed: 0 }
    }

    /// Another reader of the same bytes, at a position that was read.
    pub fn back_at(&self, at: usize) -> Reader<'a> {
        Reader::new(self.bytes, at)
    }

    /// All of the bytes, those before the position too.
    pub fn whole(&self) -> &'a [u8] {
        self.bytes
    }

    /// The next byte, which stays the next.
    #[inline(always)]
    pub fn peek(&self) -> Raise<u8> {
        self.bytes.get(self.at).copied().ok_or_else(|| damaged("they end too early"))
    }

    /// The next byte.
    #[inline(always)]
    pub fn byte(&mut self) -> Raise<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Ok(byte)
    }

    /// The next `n` bytes.
    #[inline(always)]
    pub fn take(&mut self, n: usize) -> Raise<&'a [u8]> {
        let rest = &self.bytes[self.at..];
        if n > rest.len() {
            return Err(damaged("they end too early"));
        }
        self.at += n;
        Ok(&rest[..n])
    }

    /// A little-endian number of `n <= 8` bytes.
    #[inline(always)]
    pub fn number(&mut self, n: usize) -> Raise<u64> {
        if let Some(word) = self.bytes.get(self.at..self.at + 8) {
            self.at += n;
            let word = u64::from_le_bytes(word.try_into().map_err(|_| damaged("they end too early"))?);
            return Ok(if n == 8 { word } else { word & ((1 << (8 * n)) - 1) });
        }
        let bytes = self.take(n)?;
        Ok(bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }

    /// An unsigned number of seven bits a byte.
    #[inline(always)]
    pub fn varint(&mut self) -> Raise<usize> {
        let first = self.byte()?;
        if first < 0x80 {
            return Ok(first as usize);
        }
        let mut value = u64::from(first & 0x7F);
        for shift in (7..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Ok(value as usize);
            }
        }
        Err(damaged("a number is too long"))
    }

    /// A number of the registry.
    #[inline(always)]
    pub fn id(&mut self) -> Raise<u32> {
        u32::try_from(self.varint()?).map_err(|_| damaged("an unknown number"))
    }

    /// Notes that `n` values follow, somewhere before the end.
    #[inline(always)]
    pub fn claim(&mut self, n: usize) -> Raise<()> {
        self.claimed = self.claimed.saturating_add(n);
        if self.claimed > self.bytes.len() {
            return Err(damaged("a count is larger than what is left"));
        }
        Ok(())
    }

    /// Bytes that are left.
    pub fn left(&self) -> usize {
        self.bytes.len() - self.at
    }
}
