//! Pictures that a library gives as a whole.

use gabion_blocks::{Buffer, Pool, Request};

use crate::assembly::Assembly;
use crate::error::Result;

/// Has `read` write the picture into memory of the pool, and hands its rows on.
pub fn rows_of_whole(
    pool: &Pool,
    assembly: &mut Assembly,
    row_bytes: usize,
    rows: usize,
    read: impl FnOnce(&mut [u8]) -> Result<()>,
) -> Result<()> {
    // Clean, because a library that gives up halfway leaves rows behind that are handed on when they are asked for.
    let mut whole: Buffer = pool.rent(&Request::new(row_bytes * rows).clean())?;
    read(whole.as_mut_slice())?;
    whole.as_slice().chunks_exact(row_bytes).try_for_each(|row| assembly.take_row(0, row))
}
