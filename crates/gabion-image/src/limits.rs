//! How large an image may be, and room for what libraries take from `malloc`.

use gabion_blocks::{Allowance, Pool};

use crate::error::{ImageError, LimitKind, Result};
use crate::mode::Mode;

/// How large an image may be. Checked against what a header says, before memory is taken for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Pixels of the picture in the file. Default: 2²⁸, which is 268 megapixels.
    pub max_pixels: u64,
    /// Bytes that one call may take for the new image and for what is decoded as a whole beside it: pixels,
    /// coefficients, another image if it has to be turned. A file that is read may be as long, too; bytes that are
    /// handed over take nothing, and may be longer. Default: 2 GiB.
    pub max_bytes: u64,
}

/// The longest side of an image, in pixels: what the common formats can express.
pub const LONGEST_SIDE: u32 = (1 << 31) - 1;

/// The longest side that `libjpeg` reads and writes, though the format has room for a few more.
pub(crate) const LIBJPEGS_LONGEST_SIDE: u32 = 65_500;

impl Default for Limits {
    fn default() -> Self {
        Self { max_pixels: 1 << 28, max_bytes: 2 << 30 }
    }
}

impl Limits {
    /// Everything that fits the machine.
    pub fn none() -> Self {
        Self { max_pixels: u64::MAX, max_bytes: u64::MAX }
    }

    /// Refuses too many pixels, and sides that are zero or longer than any image's.
    pub(crate) fn check_size(&self, width: u32, height: u32) -> Result<()> {
        if width == 0 || height == 0 {
            return Err(ImageError::setting(format!(
                "an image of {width} × {height} pixels has none: give at least 1 × 1"
            )));
        }
        if width.max(height) > LONGEST_SIDE {
            let (asked, limit) = (width.max(height).into(), LONGEST_SIDE.into());
            return Err(ImageError::Limit { kind: LimitKind::Side, asked, limit });
        }
        let pixels = u64::from(width) * u64::from(height);
        if pixels > self.max_pixels {
            return Err(ImageError::Limit { kind: LimitKind::Pixels, asked: pixels, limit: self.max_pixels });
        }
        Ok(())
    }

    /// Refuses too many bytes.
    pub(crate) fn check_bytes(&self, bytes: u64) -> Result<()> {
        if bytes > self.max_bytes {
            return Err(ImageError::Limit {
                kind: LimitKind::Bytes { at_least: false },
                asked: bytes,
                limit: self.max_bytes,
            });
        }
        Ok(())
    }
}

/// Keeps room in the pool for what a library takes from `malloc`, as long as the result lives. So the pool's limits
/// hold for both, and a call for which there is none waits or is refused as with memory of the pool itself.
///
/// # Errors
/// [`ImageError::Memory`] when the pool has none.
pub(crate) fn room_beside(pool: &Pool, bytes: u64) -> Result<Allowance> {
    Ok(pool.allow(usize::try_from(bytes).unwrap_or(usize::MAX))?)
}

/// Bytes of an image without its spare room.
pub(crate) fn pixel_bytes(mode: Mode, width: u32, height: u32) -> u64 {
    (u64::from(width) * u64::from(height)).saturating_mul(mode.channels() as u64)
}
