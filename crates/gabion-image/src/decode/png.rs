//! PNG, row by row.

use std::io::Cursor;

use ::png::{BitDepth, ColorType, Decoder, DecodingError, Limits as Bound, Reader, Transformations};
use gabion_blocks::Pool;

use super::whole::rows_of_whole;
use super::{Decode, Header};
use crate::assembly::Assembly;
use crate::error::{ImageError, LimitKind, Result};
use crate::format::Format;
use crate::limits::{Limits, pixel_bytes};
use crate::metadata::{Metadata, exif_block};
use crate::mode::Mode;

/// What a colour profile and an EXIF block may take. The largest profiles in use have a few MiB.
const METADATA_BYTES: usize = 16 << 20;

/// Bytes before the first chunk.
const SIGNATURE: usize = 8;

/// Bytes behind the content of a chunk.
const CHECKSUM: usize = 4;

pub struct Png<'a> {
    reader: Reader<Cursor<&'a [u8]>>,
    header: Header,
}

impl<'a> Png<'a> {
    pub fn begin(bytes: &'a [u8], limits: &Limits) -> Result<Self> {
        let bound = usize::try_from(limits.max_bytes).unwrap_or(usize::MAX);
        let mut decoder = Decoder::new_with_limits(Cursor::new(bytes), Bound { bytes: bound });
        // Palettes become colours, 16 bits become 8, and fewer bits become 8.
        decoder.set_transformations(Transformations::EXPAND | Transformations::STRIP_16);
        decoder.set_ignore_text_chunk(true);
        let info = decoder.read_header_info().map_err(fault)?;
        let size = (info.width, info.height);
        let row = info.raw_row_length();
        limits.check_size(size.0, size.1)?;
        // Compressed bytes become 1032 times as many at most, so what is shorter has been cut off, or is a bomb.
        if (row as u64).saturating_mul(size.1.into()) / 1032 > bytes.len() as u64 {
            return Err(ImageError::truncated(Format::Png));
        }
        // From here on it takes some rows, and metadata, which are compressed.
        let most = METADATA_BYTES.saturating_add(row.saturating_mul(8));
        decoder.set_limits(Bound { bytes: most.min(bound) });
        let reader = decoder.read_info().map_err(|error| match error {
            DecodingError::LimitsExceeded if bound < most => {
                let limit = limits.max_bytes;
                ImageError::Limit { kind: LimitKind::Bytes { at_least: true }, asked: limit + 1, limit }
            }
            error => fault(error),
        })?;
        let (color, depth) = reader.output_color_type();
        let mode = match color {
            ColorType::Grayscale => Mode::L,
            ColorType::GrayscaleAlpha => Mode::LA,
            ColorType::Rgb => Mode::RGB,
            ColorType::Rgba => Mode::RGBA,
            ColorType::Indexed => return Err(ImageError::corrupt(Format::Png, "its palette is missing")),
        };
        if depth != BitDepth::Eight {
            return Err(ImageError::corrupt(Format::Png, "its samples have no known depth"));
        }
        let info = reader.info();
        let exif = info.exif_metadata.as_deref().or_else(|| late_exif(bytes));
        let metadata = Metadata {
            exif: exif.map(|stored| exif_block(stored).to_vec()),
            icc: info.icc_profile.as_ref().map(|icc| icc.to_vec()),
        };
        Ok(Self { reader, header: Header::of_pixels(Format::Png, size, mode, metadata) })
    }
}

/// The EXIF block that stands behind the pixels, where the library does not come before all of them are decoded.
fn late_exif(file: &[u8]) -> Option<&[u8]> {
    let mut rest = file.get(SIGNATURE..)?;
    loop {
        let (length, behind) = rest.split_first_chunk()?;
        let (name, behind) = behind.split_first_chunk::<4>()?;
        let length = u32::from_be_bytes(*length) as usize;
        let content = behind.get(..length)?;
        match name {
            b"eXIf" => return (length <= METADATA_BYTES).then_some(content),
            b"IEND" => return None,
            _ => rest = behind.get(length.checked_add(CHECKSUM)?..)?,
        }
    }
}

fn fault(error: DecodingError) -> ImageError {
    match error {
        DecodingError::LimitsExceeded => ImageError::corrupt(Format::Png, "it has more than 16 MiB beside its pixels"),
        error => ImageError::corrupt(Format::Png, error),
    }
}

impl Decode for Png<'_> {
    fn header(&self) -> &Header {
        &self.header
    }

    fn frames(&self) -> Option<u32> {
        // The picture that others show need not be a frame; it is the one that is decoded.
        Some(self.reader.info().animation_control.map_or(1, |animation| animation.num_frames.max(1)))
    }

    fn beside(&self) -> u64 {
        let Header { width, height, .. } = self.header;
        if self.reader.info().interlaced { pixel_bytes(self.header.layers.mode(), width, height) } else { 0 }
    }

    fn rows(&mut self, pool: &Pool, assembly: &mut Assembly, partial: bool) -> Result<()> {
        let Header { width, height, .. } = self.header;
        let row_bytes = width as usize * self.header.layers.mode().channels();
        if self.reader.info().interlaced {
            return rows_of_whole(pool, assembly, (row_bytes, height as usize), partial, |whole| {
                self.reader.next_frame(whole).map_err(fault).map(drop)
            });
        }
        for _ in 0..height {
            assembly.push_row_with(0, |row| match self.reader.read_row(row).map_err(fault)? {
                Some(_) => Ok(()),
                None => Err(ImageError::truncated(Format::Png)),
            })?;
        }
        Ok(())
    }
}
