//! What the bytes of a pixel mean.

use std::fmt;

/// What the bytes of a pixel mean. Each channel has 8 bits; channels lie side by side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Grey.
    L,
    /// Grey and alpha.
    LA,
    /// Red, green, blue.
    RGB,
    /// Red, green, blue and alpha, not premultiplied.
    RGBA,
    /// Cyan, magenta, yellow, black: 0 is no ink.
    CMYK,
}

impl Mode {
    /// All modes.
    pub const ALL: [Self; 5] = [Self::L, Self::LA, Self::RGB, Self::RGBA, Self::CMYK];

    /// Bytes in a pixel.
    #[inline]
    pub fn channels(self) -> usize {
        match self {
            Self::L => 1,
            Self::LA => 2,
            Self::RGB => 3,
            Self::RGBA | Self::CMYK => 4,
        }
    }

    /// Whether the last channel is alpha.
    #[inline]
    pub fn has_alpha(self) -> bool {
        matches!(self, Self::LA | Self::RGBA)
    }

    /// The name: `"L"`, `"LA"`, `"RGB"`, `"RGBA"`, `"CMYK"`.
    pub fn name(self) -> &'static str {
        match self {
            Self::L => "L",
            Self::LA => "LA",
            Self::RGB => "RGB",
            Self::RGBA => "RGBA",
            Self::CMYK => "CMYK",
        }
    }

    /// The mode of this name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
