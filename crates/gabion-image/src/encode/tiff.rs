//! TIFF, as a whole.

use std::io::Write;

use ::tiff::TiffError;
use ::tiff::encoder::colortype::{CMYK8, ColorType, Gray8, RGB8, RGBA8};
use ::tiff::encoder::compression::DeflateLevel;
use ::tiff::encoder::{Compression as Method, TiffEncoder};
use ::tiff::tags::{ExtraSamples, Tag};

use gabion_blocks::BlockError;

use super::seek_buffer::SeekBuffer;
use super::whole::with_whole;
use super::{Compression, SaveOptions, metadata};
use crate::error::{ImageError, Result};
use crate::format::Format;
use crate::image::Image;
use crate::metadata::{Orientation, Written};
use crate::mode::Mode;

/// How many bytes a strip should have. Readers decode strip by strip.
const STRIP_BYTES: usize = 64 << 10;

pub fn write(image: &Image, options: &SaveOptions, out: &mut dyn Write) -> Result<()> {
    let extra: &[ExtraSamples] = if image.mode() == Mode::LA { &[ExtraSamples::UnassociatedAlpha] } else { &[] };
    // The offsets in the header are known last, and `out` may not be able to go back.
    let file = match image.mode() {
        Mode::L | Mode::LA => encoded::<Gray8>(image, options, extra),
        Mode::RGB => encoded::<RGB8>(image, options, extra),
        Mode::RGBA => encoded::<RGBA8>(image, options, extra),
        Mode::CMYK => encoded::<CMYK8>(image, options, extra),
    }?;
    file.pour(out)
}

fn encoded<C: ColorType<Inner = u8>>(
    image: &Image,
    options: &SaveOptions,
    extra: &[ExtraSamples],
) -> Result<SeekBuffer> {
    let method = match options.compression {
        Compression::None => Method::Uncompressed,
        Compression::Fast => Method::Deflate(DeflateLevel::Fast),
        Compression::Balanced => Method::Deflate(DeflateLevel::Balanced),
        Compression::Small => Method::Deflate(DeflateLevel::Best),
    };
    let mut out = SeekBuffer::new(image.pool());
    let mut encoder = TiffEncoder::new(&mut out).map_err(fault)?.with_compression(method);
    let mut picture = encoder.new_image::<C>(image.width(), image.height()).map_err(fault)?;
    if !extra.is_empty() {
        picture.extra_samples(extra).map_err(fault)?;
    }
    let Written { exif, icc } = metadata(image, options, image.mode());
    if let Some(exif) = exif {
        // A block within TIFF would have to be taken apart; without this of it, the picture would stay on its side for
        // good.
        let orientation = Orientation::of_exif(exif).value();
        picture.encoder().write_tag(Tag::Orientation, orientation).map_err(fault)?;
    }
    if let Some(icc) = icc {
        picture.encoder().write_tag(Tag::IccProfile, icc).map_err(fault)?;
    }
    let rows = (STRIP_BYTES / image.row_bytes()).clamp(1, image.height() as usize);
    picture.rows_per_strip(rows as u32).map_err(fault)?;
    // Strip by strip the library does not compress, so it gets the picture as a whole.
    with_whole(image, image.mode(), |whole| picture.write_data(whole).map_err(fault))?;
    Ok(out)
}

fn fault(error: TiffError) -> ImageError {
    match error {
        // The pool's own words, which went through the library.
        TiffError::IoError(error) => error.downcast::<BlockError>().map_or_else(ImageError::Io, ImageError::Memory),
        error => ImageError::encoding(Format::Tiff, error),
    }
}
