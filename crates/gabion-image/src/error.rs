//! What can go wrong, with the texts that say so.

use std::fmt;
use std::io;

use gabion_blocks::BlockError;

use crate::format::Format;

/// Why an image was not loaded, changed or saved.
#[derive(Debug)]
#[non_exhaustive]
pub enum ImageError {
    /// The bytes are not what their format demands, or end too early.
    Corrupt {
        /// The format that they claim to be in.
        format: Format,
        /// What the decoder found.
        what: String,
    },
    /// The bytes are no image that is known here, or the format or this kind of it cannot be read or written.
    Unsupported {
        /// What it is, and what to do.
        what: String,
    },
    /// The image is larger than [`Limits`](crate::Limits) allow. Nothing was allocated for it.
    Limit {
        /// What would be exceeded.
        kind: LimitKind,
        /// How many there are.
        asked: u64,
        /// How many are allowed.
        limit: u64,
    },
    /// A file could not be read or written.
    Io(io::Error),
    /// An argument makes no sense.
    Setting {
        /// What it should be.
        what: String,
    },
    /// The pool has no memory to give.
    Memory(BlockError),
}

/// What [`ImageError::Limit`] counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LimitKind {
    /// Pixels of the picture in the file: [`Limits::max_pixels`](crate::Limits::max_pixels).
    Pixels,
    /// Pixels of a side, of which no image has more than [`LONGEST_SIDE`](crate::LONGEST_SIDE).
    Side,
    /// Bytes: [`Limits::max_bytes`](crate::Limits::max_bytes).
    Bytes {
        /// Whether more may be needed: how many is not known before they are there.
        at_least: bool,
    },
}

/// What the calls of this crate return.
pub type Result<T> = std::result::Result<T, ImageError>;

impl ImageError {
    pub(crate) fn corrupt(format: Format, what: impl fmt::Display) -> Self {
        Self::Corrupt { format, what: what.to_string() }
    }

    pub(crate) fn truncated(format: Format) -> Self {
        Self::corrupt(format, "the data ends before the picture does")
    }

    /// A kind of image that other programs can read. They know other formats, too.
    pub(crate) fn unsupported(format: Format, what: impl fmt::Display) -> Self {
        let others = Format::ALL.into_iter().filter(|other| other.can_write() && *other != format);
        let names: Vec<_> = others.map(Format::name).collect();
        let others =
            names.split_last().map_or(String::new(), |(last, names)| format!("{} or {last}", names.join(", ")));
        Self::Unsupported { what: format!("{what}; convert the file to {others}") }
    }

    /// What is no image, as far as can be told.
    pub(crate) fn unknown(what: impl fmt::Display) -> Self {
        Self::Unsupported { what: what.to_string() }
    }

    /// A format that is not written.
    pub(crate) fn not_written(what: impl fmt::Display) -> Self {
        Self::Unsupported { what: format!("{what}; JPEG, PNG, WebP, TIFF and BMP are written") }
    }

    pub(crate) fn setting(what: impl fmt::Display) -> Self {
        Self::Setting { what: what.to_string() }
    }

    /// What a failed write means, for encoders that report it as any other error.
    pub(crate) fn encoding(format: Format, what: impl fmt::Display) -> Self {
        Self::Io(io::Error::other(format!("cannot write {format}: {what}")))
    }
}

/// A field of [`Limits`](crate::Limits), which Python's arguments are called after, and its value: what to raise.
struct Beyond(&'static str, u64);

impl fmt::Display for Beyond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(name, limit) = self;
        write!(f, "more than {name}={limit} allows: raise {name} if its source is trusted")
    }
}

impl fmt::Display for ImageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Corrupt { format, what } => {
                write!(f, "not a sound {format} image: {what}; get the file anew, or ask for what can be decoded")
            }
            Self::Limit { kind: LimitKind::Side, asked, limit } => {
                write!(f, "the image has {asked} pixels a side, and an image has {limit} at most: make it smaller")
            }
            Self::Limit { kind: LimitKind::Pixels, asked, limit } => {
                write!(f, "the image has {asked} pixels, {}", Beyond("max_pixels", *limit))
            }
            Self::Limit { kind: LimitKind::Bytes { at_least }, asked, limit } => {
                let least = if *at_least { "at least " } else { "" };
                write!(f, "the image takes {least}{asked} bytes, {}", Beyond("max_bytes", *limit))
            }
            Self::Io(error) => error.fmt(f),
            Self::Unsupported { what } | Self::Setting { what } => f.write_str(what),
            Self::Memory(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ImageError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            // The text is the cause's: what comes next is the cause's own.
            Self::Io(error) => error.source(),
            Self::Memory(error) => error.source(),
            _ => None,
        }
    }
}

impl From<io::Error> for ImageError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<BlockError> for ImageError {
    fn from(error: BlockError) -> Self {
        Self::Memory(error)
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;

    #[test]
    fn a_cause_whose_text_was_told_is_not_told_again() {
        let errors = [
            ImageError::Io(io::Error::other("no door")),
            ImageError::Io(io::Error::from_raw_os_error(2)),
            ImageError::Memory(BlockError::out_of_memory(4096)),
        ];
        for error in errors {
            let cause = error.source().map(ToString::to_string);
            assert_ne!(cause.as_ref(), Some(&error.to_string()), "{error:?}");
        }
    }

    #[test]
    fn a_limit_says_what_it_counts_and_how_it_is_raised() {
        let text = |kind| ImageError::Limit { kind, asked: 9, limit: 7 }.to_string();
        let raised = |name: &str| format!("more than {name}=7 allows: raise {name} if its source is trusted");
        assert_eq!(text(LimitKind::Pixels), format!("the image has 9 pixels, {}", raised("max_pixels")));
        assert_eq!(text(LimitKind::Side), "the image has 9 pixels a side, and an image has 7 at most: make it smaller");
        for (at_least, number) in [(false, "9"), (true, "at least 9")] {
            let text = text(LimitKind::Bytes { at_least });
            assert_eq!(text, format!("the image takes {number} bytes, {}", raised("max_bytes")));
        }
    }
}
