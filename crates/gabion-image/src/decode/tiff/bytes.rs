//! The bytes of a file, as the library is to see them.

use std::io::{self, Cursor, Read, Seek, SeekFrom};

use crate::metadata::{find_short, short};

/// What a sample means.
const PHOTOMETRIC_TAG: u16 = 262;

/// A grey, the higher the lighter.
const GREY: u8 = 1;

/// A number in the palette.
const PALETTE: u16 = 3;

/// The bytes of a file. Unlike a cursor it hands on those that there are when more are asked for.
///
/// A file with a palette says of itself that it has greys: the library reads those, of any depth, and refuses palettes,
/// whose samples are stored in the same way.
pub struct Bytes<'a> {
    file: Cursor<&'a [u8]>,
    /// Where the file says that it has a palette.
    palette: Option<usize>,
}

impl<'a> Bytes<'a> {
    pub fn new(file: &'a [u8]) -> Self {
        let palette = find_short(file, PHOTOMETRIC_TAG)
            .filter(|&(at, big)| short(file, at, big) == Some(PALETTE))
            .map(|(at, big)| if big { at + 1 } else { at });
        Self { file: Cursor::new(file), palette }
    }

    /// Whether samples are numbers in a palette, whatever the library says.
    pub fn has_palette(&self) -> bool {
        self.palette.is_some()
    }
}

/// More directories than this are not counted: of damaged ones, the last may lead back to the first.
const MOST_PAGES: u32 = 1 << 16;

/// How many directories a file has, each of a picture; `None` where one is not there.
pub fn pages(file: &[u8]) -> Option<u32> {
    let big = file.starts_with(b"MM");
    let number = |at: u64, bytes: usize| {
        let digits = file.get(usize::try_from(at).ok()?..)?.get(..bytes)?;
        let add = |sum: u64, digit: &u8| sum << 8 | u64::from(*digit);
        Some(if big { digits.iter().fold(0, add) } else { digits.iter().rev().fold(0, add) })
    };
    // Bytes of a place in the file, of the number of entries, and of an entry.
    let (place, count, entry) = if number(2, 2)? == 43 { (8, 8, 20) } else { (4, 2, 12) };
    let mut at = number(if place == 8 { 8 } else { 4 }, place)?;
    let mut pages = 0;
    while at != 0 && pages < MOST_PAGES {
        pages += 1;
        let entries = number(at, count)?.checked_mul(entry)?;
        at = number(at.checked_add(count as u64)?.checked_add(entries)?, place)?;
    }
    (at == 0 && pages > 0).then_some(pages)
}

impl Read for Bytes<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let start = self.file.position() as usize;
        let count = self.file.read(out)?;
        if let Some(place) = self.palette.and_then(|at| at.checked_sub(start))
            && let Some(byte) = out[..count].get_mut(place)
        {
            *byte = GREY;
        }
        Ok(count)
    }
}

impl Seek for Bytes<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}
