//! Another size by the nearest pixels: they are taken over as they are, and nothing is computed.

use gabion_blocks::Request;

use super::weights::{Filter, Span, Weights};
use crate::error::Result;
use crate::image::Image;
use crate::sides::Sides;

/// Writes all rows of `to`, which has the mode of `from`: each pixel is the nearest one there, of what `sides` say of
/// `from`. Takes a time that is linear in the pixels of `to` alone.
///
/// # Errors
/// [`ImageError::Memory`](crate::ImageError::Memory) when the pool has none.
pub(crate) fn take_nearest(from: &Image, sides: Sides, to: &mut Image) -> Result<()> {
    match from.mode().channels() {
        1 => take::<1>(from, sides, to),
        2 => take::<2>(from, sides, to),
        3 => take::<3>(from, sides, to),
        _ => take::<4>(from, sides, to),
    }
}

fn take<const N: usize>(from: &Image, sides: Sides, to: &mut Image) -> Result<()> {
    let nearest = |old: usize, start: f64, extent: f64, new: u32| {
        Weights::new(from.pool(), Filter::Nearest, old, Span { start, extent }, new as usize)
    };
    let Sides { size, start, extent } = sides;
    let across = nearest(size.0, start.0, extent.0, to.width())?;
    let down = nearest(size.1, start.1, extent.1, to.height())?;
    // The column of each new pixel: numbers as bytes.
    let mut columns = from.pool().rent(&Request::new(to.width() as usize * size_of::<u32>()))?;
    let columns = columns.as_mut_slice().as_chunks_mut::<4>().0;
    for (x, column) in columns.iter_mut().enumerate() {
        *column = (across.inputs(x).map_or(0, |columns| columns.start) as u32).to_ne_bytes();
    }
    let same_width = from.width() == to.width() && extent.0 >= f64::from(to.width());
    let mut last: Option<(usize, &[u8])> = None;
    for (y, row) in to.rows_mut().enumerate() {
        let old = down.inputs(y).map_or(0, |rows| rows.start);
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
