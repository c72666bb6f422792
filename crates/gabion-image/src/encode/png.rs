//! PNG, row by row.

use std::borrow::Cow;
use std::io::Write;

use ::png::{BitDepth, ColorType, Compression as Level, Encoder, EncodingError, Filter, Info};

use super::{Compression, SaveOptions, metadata};
use crate::error::{ImageError, Result};
use crate::format::Format;
use crate::image::Image;
use crate::mode::Mode;
use crate::writer::FusedWriter;

pub fn write(image: &Image, options: &SaveOptions, out: &mut dyn Write) -> Result<()> {
    let mut info = Info::with_size(image.width(), image.height());
    info.bit_depth = BitDepth::Eight;
    info.color_type = match image.mode() {
        Mode::L => ColorType::Grayscale,
        Mode::LA => ColorType::GrayscaleAlpha,
        Mode::RGB => ColorType::Rgb,
        Mode::RGBA => ColorType::Rgba,
        Mode::CMYK => return Err(ImageError::encoding(Format::Png, "it has no inks")),
    };
    let metadata = metadata(image, options, image.mode());
    info.exif_metadata = metadata.exif.map(Cow::Borrowed);
    info.icc_profile = metadata.icc.map(Cow::Borrowed);
    let mut encoder = Encoder::with_info(FusedWriter::new(out), info).map_err(fault)?;
    encoder.set_compression(match options.compression {
        Compression::None => Level::NoCompression,
        Compression::Fast => Level::Fast,
        Compression::Balanced => Level::Balanced,
        Compression::Small => Level::High,
    });
    if options.compression == Compression::Small {
        encoder.set_filter(Filter::MinEntropy);
    }
    let mut writer = encoder.write_header().map_err(fault)?;
    let mut rows = writer.stream_writer().map_err(fault)?;
    for row in image.rows() {
        rows.write_all(row)?;
    }
    rows.finish().map_err(fault)?;
    writer.finish().map_err(fault)
}

fn fault(error: EncodingError) -> ImageError {
    match error {
        EncodingError::IoError(error) => ImageError::Io(error),
        error => ImageError::encoding(Format::Png, error),
    }
}

#[cfg(test)]
mod tests {
    use gabion_blocks::Pool;

    use super::*;

    /// Whoever asks for it without a check gets no file whose rows are longer than it says.
    #[test]
    fn inks_are_refused() {
        let image = Image::blank(Pool::global(), Mode::CMYK, 2, 2).unwrap();
        let mut file = Vec::new();
        assert!(matches!(write(&image, &SaveOptions::default(), &mut file), Err(ImageError::Io(_))));
        assert!(file.is_empty());
    }
}
