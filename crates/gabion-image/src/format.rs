//! File formats: what names and first bytes tell of them, and which modes they hold.

use std::fmt;
use std::path::Path;

use crate::mode::Mode;

/// A file format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// JPEG: baseline and progressive, grey, colour and CMYK.
    Jpeg,
    /// PNG.
    Png,
    /// WebP: lossy and lossless; the first picture of an animation.
    WebP,
    /// TIFF: the first picture of the file.
    Tiff,
    /// Windows bitmap.
    Bmp,
    /// GIF: the first picture; read only.
    Gif,
}

impl Format {
    /// All formats.
    pub const ALL: [Self; 6] = [Self::Jpeg, Self::Png, Self::WebP, Self::Tiff, Self::Bmp, Self::Gif];

    /// The format that the first bytes of a file tell, whatever its name says. Twelve bytes are enough.
    pub fn of_bytes(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [0xFF, 0xD8, 0xFF, ..] => Some(Self::Jpeg),
            [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1A, b'\n', ..] => Some(Self::Png),
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some(Self::WebP),
            [b'I', b'I', 42 | 43, 0, ..] | [b'M', b'M', 0, 42 | 43, ..] => Some(Self::Tiff),
            [b'B', b'M', ..] => Some(Self::Bmp),
            [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some(Self::Gif),
            _ => None,
        }
    }

    /// How long a file that begins so says that it is; nobody has looked whether that is so.
    pub(crate) fn length_said(bytes: &[u8]) -> Option<u64> {
        let word = |at: usize| Some(u64::from(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?)));
        match Self::of_bytes(bytes)? {
            Self::Bmp => word(2),
            // What is counted begins behind the number.
            Self::WebP => Some(word(4)? + 8),
            _ => None,
        }
    }

    /// The format that a file's extension names, in any case.
    pub fn of_path(path: impl AsRef<Path>) -> Option<Self> {
        Self::of_name(path.as_ref().extension()?.to_str()?)
    }

    /// The format of this name or extension, in any case, with a dot or without: `"jpeg"`, `"JPG"`, `".webp"`.
    pub fn of_name(name: &str) -> Option<Self> {
        let name = name.strip_prefix('.').unwrap_or(name);
        Some(match name.to_ascii_lowercase().as_str() {
            "jpg" | "jpeg" | "jpe" | "jfif" => Self::Jpeg,
            "png" => Self::Png,
            "webp" => Self::WebP,
            "tif" | "tiff" => Self::Tiff,
            "bmp" | "dib" => Self::Bmp,
            "gif" => Self::Gif,
            _ => return None,
        })
    }

    /// The name: `"JPEG"`, `"PNG"`, `"WebP"`, `"TIFF"`, `"BMP"`, `"GIF"`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Jpeg => "JPEG",
            Self::Png => "PNG",
            Self::WebP => "WebP",
            Self::Tiff => "TIFF",
            Self::Bmp => "BMP",
            Self::Gif => "GIF",
        }
    }

    /// The usual extension, without its dot.
    pub fn extension(self) -> &'static str {
        match self {
            Self::Jpeg => "jpg",
            Self::Png => "png",
            Self::WebP => "webp",
            Self::Tiff => "tif",
            Self::Bmp => "bmp",
            Self::Gif => "gif",
        }
    }

    /// False when this format can be read only.
    pub fn can_write(self) -> bool {
        self != Self::Gif
    }

    /// Whether pixels of this mode are written as they are. GIF refuses no mode, because it is not written at all.
    pub(crate) fn holds(self, mode: Mode) -> bool {
        match self {
            Self::Jpeg => !mode.has_alpha(),
            Self::Png | Self::WebP | Self::Bmp => mode != Mode::CMYK,
            Self::Tiff | Self::Gif => true,
        }
    }
}

/// Which formats may be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Formats(u8);

impl Formats {
    /// All of them.
    pub const ALL: Self = Self(u8::MAX);

    /// These.
    pub fn of(formats: impl IntoIterator<Item = Format>) -> Self {
        Self(formats.into_iter().fold(0, |all, format| all | Self::bit(format)))
    }

    /// Whether this one may.
    pub fn contains(self, format: Format) -> bool {
        self.0 & Self::bit(format) != 0
    }

    fn bit(format: Format) -> u8 {
        1 << format as u8
    }
}

impl fmt::Display for Formats {
    /// As a text lists them: `JPEG, PNG and WebP`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = Format::ALL.into_iter().filter(|format| self.contains(*format)).map(Format::name).collect();
        match names.split_last() {
            None => f.write_str("none"),
            Some((last, [])) => f.write_str(last),
            Some((last, names)) => write!(f, "{} and {last}", names.join(", ")),
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_extensions_lead_back() {
        for format in Format::ALL {
            assert_eq!(Format::of_name(format.name()), Some(format));
            assert_eq!(Format::of_path(Path::new("a.b").with_extension(format.extension()).as_path()), Some(format));
        }
        assert_eq!(Format::of_path(Path::new("README")), None);
        assert_eq!(Format::of_bytes(b""), None);
    }

    #[test]
    fn formats_are_a_set() {
        let some = Formats::of([Format::Gif, Format::Jpeg, Format::Jpeg]);
        assert_eq!(some.to_string(), "JPEG and GIF");
        assert_eq!(Formats::of([Format::Png]).to_string(), "PNG");
        assert_eq!(Formats::of([]).to_string(), "none");
        for format in Format::ALL {
            assert!(Formats::ALL.contains(format));
            assert_eq!(some.contains(format), matches!(format, Format::Gif | Format::Jpeg));
        }
    }

    #[test]
    fn some_formats_say_how_long_a_file_is() {
        assert_eq!(Format::length_said(b"BM\x36\x00\x01\x00"), Some(0x1_0036));
        assert_eq!(Format::length_said(b"RIFF\xFF\xFF\xFF\xFFWEBP"), Some(0x1_0000_0007));
        assert_eq!(Format::length_said(b"BM\x36"), None);
        assert_eq!(Format::length_said(b"GIF89a\x00\x00"), None);
    }
}
