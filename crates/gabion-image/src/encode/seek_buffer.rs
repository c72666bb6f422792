//! A file that is written out of order, kept in memory of the pool until it is complete.

use std::io::{self, Seek, SeekFrom, Write};

use gabion_blocks::{Buffer, Pool, Request};

use crate::error::Result;

/// How much is rented at a time.
const PART: usize = 1 << 20;

/// Bytes that can be written anywhere. Equation: all parts but those behind `length` are filled; what was skipped is
/// zero.
pub struct SeekBuffer {
    pool: Pool,
    parts: Vec<Buffer>,
    length: usize,
    at: usize,
}

impl SeekBuffer {
    pub fn new(pool: &Pool) -> Self {
        Self { pool: pool.clone(), parts: Vec::new(), length: 0, at: 0 }
    }

    /// Writes all of it to `out`.
    pub fn pour(&self, out: &mut dyn Write) -> Result<()> {
        let mut left = self.length;
        for part in &self.parts {
            let count = left.min(PART);
            out.write_all(&part.as_slice()[..count])?;
            left -= count;
        }
        Ok(())
    }
}

impl Write for SeekBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        while self.parts.len() <= self.at / PART {
            let part = self.pool.rent(&Request::new(PART).clean());
            self.parts.push(part.map_err(|error| io::Error::new(io::ErrorKind::OutOfMemory, error))?);
        }
        let part = &mut self.parts[self.at / PART].as_mut_slice()[self.at % PART..];
        let count = bytes.len().min(part.len());
        part[..count].copy_from_slice(&bytes[..count]);
        self.at += count;
        self.length = self.length.max(self.at);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for SeekBuffer {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => i64::try_from(at).ok(),
            SeekFrom::End(by) => (self.length as i64).checked_add(by),
            SeekFrom::Current(by) => (self.at as i64).checked_add(by),
        };
        self.at = at
            .and_then(|at| usize::try_from(at).ok())
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no place in a file"))?;
        Ok(self.at as u64)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    #[test]
    fn it_is_what_a_cursor_is() {
        let pool = Pool::global();
        let (mut buffer, mut cursor) = (SeekBuffer::new(pool), Cursor::new(Vec::new()));
        let bytes: Vec<u8> = (0..3 * PART / 2).map(|i| (i % 251) as u8).collect();
        let places =
            [SeekFrom::Start(0), SeekFrom::End(5), SeekFrom::Start(7), SeekFrom::Current(-3), SeekFrom::End(-9)];
        for (step, place) in places.into_iter().enumerate() {
            assert_eq!(buffer.seek(place).unwrap(), cursor.seek(place).unwrap());
            for out in [&mut buffer as &mut dyn Write, &mut cursor] {
                out.write_all(&bytes[step * 100..][..bytes.len() - step * 1000]).unwrap();
            }
        }
        let mut poured = Vec::new();
        buffer.pour(&mut poured).unwrap();
        assert!(poured == cursor.into_inner());
        assert!(buffer.seek(SeekFrom::Current(i64::MIN)).is_err());
    }
}
