//! Another size by the nearest pixels: they are taken over as they are, and nothing is computed.

use gabion_blocks::Request;

use super::weights::{Filter, Weights};
use crate::error::Result;
use crate::image::Image;

/// Writes all rows of `to`, which has the mode of `from`: each pixel is the nearest one there. Takes a time that is
/// linear in the pixels of `to` alone.
///
/// # Errors
/// [`ImageError::Memory`](crate::ImageError::Memory) when the pool has none.
pub(crate) fn take_nearest(from: &Image, to: &mut Image) -> Result<()> {
    match from.mode().channels() {
        1 => take::<1>(from, to),
        2 => take::<2>(from, to),
        3 => take::<3>(from, to),
        _ => take::<4>(from, to),
    }
}

fn take<const N: usize>(from: &Image, to: &mut Image) -> Result<()> {
    let nearest =
        |old: u32, new: u32| Weights::new(from.pool(), Filter::Nearest, old as usize, f64::from(old), new as usize);
    let (across, down) = (nearest(from.width(), to.width())?, nearest(from.height(), to.height())?);
    // The column of each new pixel: numbers as bytes.
    let mut columns = from.pool().rent(&Request::new(to.width() as usize * size_of::<u32>()))?;
    let columns = columns.as_mut_slice().as_chunks_mut::<4>().0;
    for (x, column) in columns.iter_mut().enumerate() {
        *column = (across.rows(x).map_or(0, |columns| columns.start) as u32).to_ne_bytes();
    }
    let same_width = from.width() == to.width();
    let mut last: Option<(usize, &[u8])> = None;
    for (y, row) in to.rows_mut().enumerate() {
        let old = down.rows(y).map_or(0, |rows| rows.start);
        let source = from.row(old as u32).unwrap_or_default();
        match last {
            Some((before, above)) if before == old => row.copy_from_slice(above),
            _ if same_width => row.copy_from_slice(source),
            _ => {
                let source = source.as_chunks::<N>().0;
                for (pixel, column) in row.as_chunks_mut::<N>().0.iter_mut().zip(&*columns) {
                    *pixel = source[u32::from_ne_bytes(*column) as usize];
                }
            }
        }
        last = Some((old, row));
    }
    Ok(())
}
