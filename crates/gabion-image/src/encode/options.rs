//! How an image is saved.

/// How colours are stored in JPEG, against brightness.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Subsampling {
    /// At full resolution (4:4:4).
    Full,
    /// At half of the width (4:2:2).
    HalfWidth,
    /// At half of both sides (4:2:0).
    #[default]
    Half,
}

/// How hard PNG and TIFF try to be small. The picture is the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Compression {
    /// Not at all.
    None,
    /// As fast as can be.
    Fast,
    /// A fair share of both.
    #[default]
    Balanced,
    /// As small as can be.
    Small,
}

/// How an image is saved.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a choice of its own")]
pub struct SaveOptions {
    /// JPEG and lossy WebP: 1 to 100. Default: 80.
    pub quality: u8,
    /// JPEG: 4:2:0 unless set.
    pub subsampling: Subsampling,
    /// JPEG: in several scans, coarse to fine.
    pub progressive: bool,
    /// JPEG: code tables of its own: some per cent smaller, and the picture is gone through twice.
    pub optimized: bool,
    /// WebP: every pixel as it is.
    pub lossless: bool,
    /// PNG and TIFF.
    pub compression: Compression,
    /// Writes the image's EXIF block, if it has one. JPEG, PNG and WebP take it, TIFF takes the orientation of it, BMP
    /// nothing. Default: true.
    pub exif: bool,
    /// Writes the image's ICC profile, if it has one; BMP takes none. One that does not fit what is stored is left out,
    /// as that of a grey image in WebP, which stores colours. Default: true.
    pub profile: bool,
}

impl Default for SaveOptions {
    fn default() -> Self {
        Self {
            quality: 80,
            subsampling: Subsampling::default(),
            progressive: false,
            optimized: false,
            lossless: false,
            compression: Compression::default(),
            exif: true,
            profile: true,
        }
    }
}
