//! What a file stores beside its pixels, and where.
//!
//! The library takes memory for as many values as an entry claims, before it looks whether they are there, and 32 bytes
//! for each of them. So the claims are looked at first, and what may be long is taken from the file itself.

use ::tiff::tags::Tag;

use crate::error::{ImageError, Result};
use crate::format::Format;
use crate::limits::Limits;

/// More directories than this are not counted: of damaged ones, the last may lead back to the first.
const MOST_PAGES: u32 = 1 << 16;

/// What the library reads of a directory, and what is asked of it here.
const READ: [Tag; 22] = [
    Tag::ImageWidth,
    Tag::ImageLength,
    Tag::BitsPerSample,
    Tag::Compression,
    Tag::PhotometricInterpretation,
    Tag::FillOrder,
    Tag::StripOffsets,
    Tag::Orientation,
    Tag::SamplesPerPixel,
    Tag::RowsPerStrip,
    Tag::StripByteCounts,
    Tag::PlanarConfiguration,
    Tag::Predictor,
    Tag::ColorMap,
    Tag::TileWidth,
    Tag::TileLength,
    Tag::TileOffsets,
    Tag::TileByteCounts,
    Tag::ExtraSamples,
    Tag::SampleFormat,
    Tag::JPEGTables,
    Tag::ChromaSubsampling,
];

/// Bytes that the library takes for a value, at most: while it reads a list, and for what it makes of it.
const VALUE: u64 = 48;

/// Values that count for nothing.
const FEW: u64 = 1024;

/// How a file stores its numbers.
#[derive(Clone, Copy)]
struct Directories<'a> {
    file: &'a [u8],
    big_endian: bool,
    /// `BigTIFF`, where places in the file have 64 bits.
    long: bool,
}

/// What a directory has of one tag.
struct Entry<'a> {
    tag: u16,
    kind: u16,
    count: u64,
    /// Bytes of all values.
    bytes: u64,
    /// The values, if they are in the file.
    content: Option<&'a [u8]>,
}

impl<'a> Directories<'a> {
    fn of(file: &'a [u8]) -> Option<Self> {
        let short = Self { file, big_endian: file.starts_with(b"MM"), long: false };
        Some(Self { long: short.number(2, 2)? == 43, ..short })
    }

    fn part(self, at: u64, bytes: u64) -> Option<&'a [u8]> {
        self.file.get(usize::try_from(at).ok()?..)?.get(..usize::try_from(bytes).ok()?)
    }

    fn number(self, at: u64, bytes: u64) -> Option<u64> {
        let digits = self.part(at, bytes)?;
        let add = |sum: u64, digit: &u8| sum << 8 | u64::from(*digit);
        Some(if self.big_endian { digits.iter().fold(0, add) } else { digits.iter().rev().fold(0, add) })
    }

    /// Bytes of a place in the file.
    fn place(self) -> u64 {
        if self.long { 8 } else { 4 }
    }

    /// Where the first directory stands.
    fn first(self) -> Option<u64> {
        self.number(self.place(), self.place())
    }

    /// Where the entries of a directory begin, and how many bytes all of them have.
    fn entries(self, at: u64) -> Option<(u64, u64)> {
        let count = if self.long { 8 } else { 2 };
        Some((at.checked_add(count)?, self.number(at, count)?.checked_mul(self.entry())?))
    }

    /// Bytes of an entry: tag and type, how many values there are, and those, or where they are.
    fn entry(self) -> u64 {
        4 + 2 * self.place()
    }

    fn entry_at(self, at: u64) -> Option<Entry<'a>> {
        let place = self.place();
        let (tag, kind) = (self.number(at, 2)? as u16, self.number(at.checked_add(2)?, 2)? as u16);
        let count = self.number(at.checked_add(4)?, place)?;
        let bytes = count.saturating_mul(bytes_of(kind));
        let here = at.checked_add(4 + place)?;
        let content = if bytes <= place { Some(here) } else { self.number(here, place) };
        Some(Entry { tag, kind, count, bytes, content: content.and_then(|at| self.part(at, bytes)) })
    }
}

/// Bytes of a value of this type. What is of an unknown one is passed over.
fn bytes_of(kind: u16) -> u64 {
    match kind {
        1 | 2 | 6 | 7 => 1,
        3 | 8 => 2,
        4 | 9 | 11 | 13 => 4,
        5 | 10 | 12 | 16..=18 => 8,
        _ => 0,
    }
}

/// The entries of the first directory, as far as they are there.
fn entries(file: &[u8]) -> impl Iterator<Item = Entry<'_>> {
    let begun = Directories::of(file).and_then(|all| Some((all, all.entries(all.first()?)?)));
    begun.into_iter().flat_map(|(all, (at, bytes))| {
        let places = (0..bytes).step_by(all.entry() as usize).map(move |entry| at.checked_add(entry));
        places.map_while(move |at| all.entry_at(at?))
    })
}

/// Refuses lists that are longer than the file, and those for which the library would take more than is allowed.
pub fn refuse_long(file: &[u8], limits: &Limits) -> Result<()> {
    let read = |entry: &Entry<'_>| READ.iter().any(|tag| tag.to_u16() == entry.tag);
    let mut values = 0u64;
    for entry in entries(file).filter(read) {
        if entry.bytes > file.len() as u64 {
            return Err(ImageError::truncated(Format::Tiff));
        }
        values = values.saturating_add(entry.count);
    }
    if values > FEW { limits.check_bytes(values.saturating_mul(VALUE)) } else { Ok(()) }
}

/// The colour profile, if all of it is there.
pub fn profile(file: &[u8]) -> Option<&[u8]> {
    let entry = entries(file).find(|entry| entry.tag == Tag::IccProfile.to_u16())?;
    // Bytes, of which only the second type says that they are no numbers.
    entry.content.filter(|_| matches!(entry.kind, 1 | 7))
}

/// How many directories a file has, each of a picture; `None` where one is not there.
pub fn pages(file: &[u8]) -> Option<u32> {
    let all = Directories::of(file)?;
    let mut at = all.first()?;
    let mut pages = 0;
    while at != 0 && pages < MOST_PAGES {
        pages += 1;
        let (first, bytes) = all.entries(at)?;
        at = all.number(first.checked_add(bytes)?, all.place())?;
    }
    (at == 0 && pages > 0).then_some(pages)
}
