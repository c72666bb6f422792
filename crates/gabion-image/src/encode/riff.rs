//! WebP's container, for files that carry more than a picture.
//!
//! ```text
//!   "RIFF" size "WEBP"  │ "VP8X" flags, size of the picture │ "ICCP" │ picture │ "EXIF" │
//! ```
//!
//! A chunk is its name, its length in four bytes, and its bytes, to an even number of them.

use std::io::Write;

use crate::error::{ImageError, Result};
use crate::format::Format;
use crate::metadata::Written;

const ICC: u8 = 0x20;
const ALPHA: u8 = 0x10;
const EXIF: u8 = 0x08;

/// Writes `picture`, a simple WebP file, with the metadata that is there.
pub fn write(picture: &[u8], size: (u32, u32), alpha: bool, metadata: Written, out: &mut dyn Write) -> Result<()> {
    let Written { exif, icc } = metadata;
    // The picture's own chunks follow the container's twelve bytes; a container of its own has its flags there already.
    let chunks = &picture[12..];
    if exif.is_none() && icc.is_none() {
        out.write_all(picture)?;
        return Ok(());
    }
    let chunks = if chunks.starts_with(b"VP8X") { &chunks[18..] } else { chunks };
    let flag = |on: bool, bit: u8| if on { bit } else { 0 };
    let flags = flag(alpha, ALPHA) | flag(exif.is_some(), EXIF) | flag(icc.is_some(), ICC);
    let [w0, w1, w2, _] = (size.0 - 1).to_le_bytes();
    let [h0, h1, h2, _] = (size.1 - 1).to_le_bytes();
    let mut body = Vec::new();
    chunk(&mut body, *b"VP8X", &[flags, 0, 0, 0, w0, w1, w2, h0, h1, h2])?;
    if let Some(icc) = icc {
        chunk(&mut body, *b"ICCP", icc)?;
    }
    body.extend_from_slice(chunks);
    if let Some(exif) = exif {
        chunk(&mut body, *b"EXIF", exif)?;
    }
    let length = u32::try_from(body.len() + 4).map_err(|_| too_long(body.len()))?;
    out.write_all(b"RIFF")?;
    out.write_all(&length.to_le_bytes())?;
    out.write_all(b"WEBP")?;
    out.write_all(&body)?;
    Ok(())
}

fn chunk(out: &mut Vec<u8>, name: [u8; 4], bytes: &[u8]) -> Result<()> {
    let length = u32::try_from(bytes.len()).map_err(|_| too_long(bytes.len()))?;
    out.extend(name);
    out.extend(length.to_le_bytes());
    out.extend_from_slice(bytes);
    out.resize(out.len().next_multiple_of(2), 0);
    Ok(())
}

fn too_long(bytes: usize) -> ImageError {
    ImageError::encoding(Format::WebP, format!("{bytes} bytes are more than the 4 GiB that it can tell"))
}
