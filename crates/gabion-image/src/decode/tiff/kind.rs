//! What kind of pixels a file has, and whether they can be read.

use ::tiff::decoder::Decoder;
use ::tiff::decoder::ifd::Value;
use ::tiff::tags::{CompressionMethod, Tag};
use ::tiff::{ColorType, TiffError};

use super::bytes::Bytes;
use super::samples::Samples;
use crate::error::{ImageError, Result};
use crate::format::Format;
use crate::mode::Mode;

/// What the first sample beyond a pixel's colours is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Extra {
    /// Alpha. Also where the file does not say: many programs leave the tag out.
    Alpha,
    /// Alpha by which the colours are multiplied.
    Premultiplied,
    /// Something of the writing program's own.
    Unknown,
}

impl Extra {
    pub fn of(decoder: &mut Decoder<Bytes<'_>>) -> Self {
        let said = decoder.find_tag(Tag::ExtraSamples).ok().flatten().and_then(|tag| tag.into_u16_vec().ok());
        match said.as_deref() {
            None | Some([] | [2, ..]) => Self::Alpha,
            Some([1, ..]) => Self::Premultiplied,
            Some(_) => Self::Unknown,
        }
    }
}

/// What the bits of a sample stand for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Numbers {
    /// Whole numbers from 0 on. Also where the file does not say, or says that it does not know.
    Whole,
    /// Whole numbers with a sign.
    Signed,
    Floats,
    /// Complex numbers, or what is in no list.
    Unknown,
}

impl Numbers {
    /// Of the first sample: the library has refused files where others differ.
    pub fn of(decoder: &mut Decoder<Bytes<'_>>) -> Self {
        let said = decoder.find_tag_unsigned_vec(Tag::SampleFormat).ok().flatten();
        match said.unwrap_or_default().first() {
            None | Some(1u16 | 4) => Self::Whole,
            Some(2) => Self::Signed,
            Some(3) => Self::Floats,
            Some(_) => Self::Unknown,
        }
    }
}

/// The mode of pixels that are not looked up, if they can be read.
pub fn mode_of(color: ColorType, extra: Extra) -> Option<Mode> {
    Some(match color {
        ColorType::Gray(8 | 16) => Mode::L,
        ColorType::Multiband { bit_depth: 8 | 16, num_samples: 2 } if extra == Extra::Unknown => Mode::L,
        ColorType::GrayA(8 | 16) | ColorType::Multiband { bit_depth: 8 | 16, num_samples: 2 } => Mode::LA,
        ColorType::RGB(8 | 16) => Mode::RGB,
        ColorType::RGBA(8 | 16) => Mode::RGBA,
        ColorType::CMYK(8 | 16) => Mode::CMYK,
        _ => return None,
    })
}

/// Why pixels of this kind cannot be read.
pub fn described(color: ColorType, numbers: Numbers, has_palette: bool) -> String {
    let kind = match numbers {
        Numbers::Whole => "whole numbers",
        Numbers::Signed => "signed whole numbers",
        Numbers::Floats => "floats",
        Numbers::Unknown => "numbers of an unknown kind",
    };
    let with = if has_palette { " and a palette" } else { "" };
    let (samples, bits) = (color.num_samples(), color.bit_depth());
    format!("TIFF with {samples} samples a pixel, {kind} of {bits} bits{with}, cannot be read")
}

/// A number of the file's, or what stands for it where there is none.
pub fn tag(decoder: &mut Decoder<Bytes<'_>>, tag: Tag, default: u16) -> u16 {
    decoder.find_tag_unsigned(tag).ok().flatten().unwrap_or(default)
}

/// Refuses a file that is too short for its picture: it has been cut off, or is a bomb.
pub fn refuse_short(decoder: &mut Decoder<Bytes<'_>>, size: (u32, u32), depth: u8, length: usize) -> Result<()> {
    let pixels = u64::from(size.0) * u64::from(size.1);
    let least = if tag(decoder, Tag::Compression, 1) == CompressionMethod::Fax4.to_u16() {
        // A row like the one above is a bit, however long it is.
        u64::from(size.1) / 8
    } else {
        // A code of LZW is 4,096 bytes at most, and nothing else gets shorter.
        pixels.saturating_mul(depth.min(8).into()) / 8 / 2731
    };
    if least > length as u64 { Err(ImageError::truncated(Format::Tiff)) } else { Ok(()) }
}

/// How the samples of a file are stored. Those of no known kind pass as bytes, and are to be refused.
pub fn samples(decoder: &mut Decoder<Bytes<'_>>, color: ColorType, has_palette: bool) -> Result<Samples> {
    let samples = match color {
        ColorType::Gray(depth @ (1 | 2 | 4 | 8)) if has_palette => {
            let palette = decoder.find_tag(Tag::ColorMap).map_err(fault)?;
            let palette = palette.map_or(Ok(Vec::new()), Value::into_u16_vec).map_err(fault)?;
            Samples::of_palette(depth, &palette)?
        }
        ColorType::Gray(depth @ (1 | 2 | 4)) => Samples::of_greys(depth),
        _ if color.bit_depth() == 16 => Samples::Words,
        _ => Samples::Bytes,
    };
    if samples.in_a_byte() > 1 && tag(decoder, Tag::FillOrder, 1) == 2 {
        let text = "TIFF with the lowest bit of each byte first cannot be read";
        return Err(ImageError::unsupported(Format::Tiff, text));
    }
    Ok(samples)
}

pub fn fault(error: TiffError) -> ImageError {
    match error {
        TiffError::UnsupportedError(error) => ImageError::unsupported(Format::Tiff, error),
        error => ImageError::corrupt(Format::Tiff, error),
    }
}
