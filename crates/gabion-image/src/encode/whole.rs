//! For libraries that want the picture in one piece.

use gabion_blocks::{Buffer, Request};

use crate::convert::converter;
use crate::error::Result;
use crate::image::Image;
use crate::mode::Mode;

/// Calls `write` with all rows in one piece, in this mode; they are copied only if they are not so already.
pub fn with_whole<T>(image: &Image, mode: Mode, write: impl FnOnce(&[u8]) -> Result<T>) -> Result<T> {
    if image.mode() == mode
        && let Some(whole) = image.as_contiguous()
    {
        return write(whole);
    }
    let row_bytes = image.width() as usize * mode.channels();
    let mut whole: Buffer = image.pool().rent(&Request::new(row_bytes * image.height() as usize))?;
    let convert = converter(image.mode(), mode);
    for (to, from) in whole.as_mut_slice().chunks_exact_mut(row_bytes).zip(image.rows()) {
        convert(from, to);
    }
    write(whole.as_slice())
}
