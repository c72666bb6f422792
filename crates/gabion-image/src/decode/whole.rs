//! Pictures that a library gives as a whole.

use gabion_blocks::{Buffer, Pool, Request};

use crate::assembly::{Assembly, GREY};
use crate::error::Result;

/// As [`rows_of_whole_by`], for rows that are those of the layer.
pub fn rows_of_whole(
    pool: &Pool,
    assembly: &mut Assembly,
    size: (usize, usize),
    partial: bool,
    read: impl FnOnce(&mut [u8]) -> Result<()>,
) -> Result<()> {
    rows_of_whole_by(pool, assembly, size, partial, read, |assembly, row| assembly.push_row(0, row))
}

/// Has `read` write the picture into memory of the pool, and `hand` on its rows. If `partial` is set, also those of a
/// part of it: what is not grey is then the picture as it is to be.
pub fn rows_of_whole_by(
    pool: &Pool,
    assembly: &mut Assembly,
    (row_bytes, rows): (usize, usize),
    partial: bool,
    read: impl FnOnce(&mut [u8]) -> Result<()>,
    mut hand: impl FnMut(&mut Assembly, &[u8]) -> Result<()>,
) -> Result<()> {
    // Zero, so that it never shows what was there before: of fresh memory, which is zero, a file that gives up early
    // touches little.
    let request = Request { clean: !partial, ..Request::new(row_bytes * rows) };
    let mut whole: Buffer = pool.rent(&request)?;
    if partial {
        whole.as_mut_slice().fill(GREY);
    }
    let done = read(whole.as_mut_slice());
    if done.is_ok() || partial && whole.as_slice().iter().any(|&sample| sample != GREY) {
        whole.as_slice().chunks_exact(row_bytes).try_for_each(|row| hand(assembly, row))?;
    }
    done
}
