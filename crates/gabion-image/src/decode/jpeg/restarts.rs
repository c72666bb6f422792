//! Restarts at a distance from the codes before them.
//!
//! `zune-jpeg` reads ahead, and when a row ends after it came to a restart, takes what it read of the next row for
//! done. What lies behind the last code before a restart is passed over by all, so zeros there keep it from coming that
//! far.

use gabion_blocks::{Buffer, Pool, Request};

use crate::error::Result;
use crate::limits::Limits;

/// Zeros before each restart. The library reads ahead by eight bytes, and by four more before it looks for a restart.
const ZEROS: usize = 16;

/// A file with zeros before each restart.
pub struct Spaced {
    buffer: Buffer,
    length: usize,
}

impl Spaced {
    /// # Errors
    /// [`ImageError::Limit`](crate::ImageError::Limit) and [`ImageError::Memory`](crate::ImageError::Memory) when the
    /// copy is too long.
    pub fn of(file: &[u8], pool: &Pool, limits: &Limits) -> Result<Self> {
        let length = file.len() + restarts(file).count() * ZEROS;
        limits.check_bytes(length as u64)?;
        let mut buffer = pool.rent(&Request::new(length))?;
        let (mut rest, mut from) = (buffer.as_mut_slice(), 0);
        for at in restarts(file) {
            let (part, behind) = rest.split_at_mut(at - from);
            part.copy_from_slice(&file[from..at]);
            let (zeros, behind) = behind.split_at_mut(ZEROS);
            zeros.fill(0);
            (rest, from) = (behind, at);
        }
        rest[..file.len() - from].copy_from_slice(&file[from..]);
        Ok(Self { buffer, length })
    }

    pub fn as_slice(&self) -> &[u8] {
        &self.buffer.as_slice()[..self.length]
    }
}

/// Where the restarts are, outside of segments.
fn restarts(file: &[u8]) -> impl Iterator<Item = usize> {
    let mut next = 2;
    std::iter::from_fn(move || {
        loop {
            let rest = file.get(next..)?;
            let at = next + rest.windows(2).position(|pair| pair[0] == 0xFF && !matches!(pair[1], 0 | 0xFF))?;
            next = at + 2;
            match file[at + 1] {
                0xD0..=0xD7 => return Some(at),
                0x01 | 0xD8 | 0xD9 => {}
                _ => next += file.get(next..)?.first_chunk().map_or(0, |&two| usize::from(u16::from_be_bytes(two))),
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_stand_before_restarts_and_nowhere_else() {
        let segment = b"\xFF\xD8\xFF\xE0\0\x06\xFF\xD0\xFF\xD1";
        let spaced = |file: &[u8]| Spaced::of(file, Pool::global(), &Limits::none()).unwrap().as_slice().to_vec();
        let scan = |zeros: &[u8]| {
            [&segment[..], b"\x01\xFF\0\xD2\xFF", zeros, b"\xFF\xD3\x02", zeros, b"\xFF\xD4", segment, b"\x03\xFF\xD9"]
                .concat()
        };
        // A byte that fills up stays where it is.
        assert_eq!(spaced(&scan(b"")), scan(&[0; ZEROS]));
        for cut in 0..scan(b"").len() {
            assert!(spaced(&scan(b"")[..cut]).len() >= cut);
        }
        let limits = Limits { max_bytes: scan(b"").len() as u64 + 31, ..Limits::none() };
        assert!(Spaced::of(&scan(b""), Pool::global(), &limits).is_err());
    }
}
