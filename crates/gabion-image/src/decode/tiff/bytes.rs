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
