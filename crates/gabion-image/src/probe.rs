//! What a file says of its picture, before anything is decoded.

use std::path::Path;

use gabion_blocks::Pool;

use crate::decode;
use crate::error::Result;
use crate::file::contents_of;
use crate::format::{Format, Formats};
use crate::limits::Limits;
use crate::metadata::Orientation;
use crate::mode::Mode;

/// What a file says of its picture. Only the headers were read: what is behind them may be damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Probe {
    /// What the first bytes tell.
    pub format: Format,
    /// The mode that the picture has when it is opened.
    pub mode: Mode,
    /// Width and height when it is opened upright.
    pub size: (u32, u32),
    /// Width and height as they are stored.
    pub stored_size: (u32, u32),
    /// How it is to be turned.
    pub orientation: Orientation,
    /// How many pictures there are, frames or pages, of which the first one is opened. `None` where the file does not
    /// tell, or is damaged there.
    pub frames: Option<u32>,
    /// Whether it has an EXIF block.
    pub exif: bool,
    /// Whether it has an ICC profile that is kept when it is opened: of its own colour space.
    pub profile: bool,
}

impl Probe {
    /// Looks at a file.
    ///
    /// # Errors
    /// As [`Image::open`](crate::Image::open), but for what only decoding finds damaged.
    pub fn open(pool: &Pool, path: impl AsRef<Path>, formats: Formats, limits: &Limits) -> Result<Self> {
        Self::of(contents_of(pool, path.as_ref(), limits)?.as_slice(), formats, limits)
    }

    /// Looks at the bytes of a file.
    ///
    /// # Errors
    /// As [`Probe::open`].
    pub fn of(bytes: &[u8], formats: Formats, limits: &Limits) -> Result<Self> {
        let decoder = decode::begin(bytes, formats, limits)?;
        let header = decoder.header();
        let (mode, stored_size) = (header.layers.mode(), (header.width, header.height));
        let mut metadata = header.metadata.clone();
        metadata.fit(mode);
        let (width, height) = stored_size;
        Ok(Self {
            format: header.format,
            mode,
            size: if header.orientation.exchanges_sides() { (height, width) } else { stored_size },
            stored_size,
            orientation: header.orientation,
            frames: decoder.frames(),
            exif: metadata.exif.is_some(),
            profile: metadata.icc.is_some(),
        })
    }
}
