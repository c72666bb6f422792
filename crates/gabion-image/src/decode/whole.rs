//! Pictures that a library gives as a whole.

use gabion_blocks::{Buffer, Pool, Request};

use crate::assembly::{Assembly, GREY};
use crate::error::Result;

/// What a library that gives up halfway leaves behind.
#[derive(Clone, Copy, PartialEq)]
pub enum Halfway {
    /// The pixels that it came to, as they are to be.
    Pixels,
    /// What is not yet the picture.
    Nothing,
}

/// Has `read` write the picture into memory of the pool, and hands its rows on; also those of a part of it.
pub fn rows_of_whole(
    pool: &Pool,
    assembly: &mut Assembly,
    row_bytes: usize,
    rows: usize,
    halfway: Halfway,
    read: impl FnOnce(&mut [u8]) -> Result<()>,
) -> Result<()> {
    let mut whole: Buffer = pool.rent(&Request::new(row_bytes * rows))?;
    whole.as_mut_slice().fill(GREY);
    let done = read(whole.as_mut_slice());
    if done.is_ok() || halfway == Halfway::Pixels && whole.as_slice().iter().any(|&sample| sample != GREY) {
        whole.as_slice().chunks_exact(row_bytes).try_for_each(|row| assembly.take_row(0, row))?;
    }
    done
}
