//! Crops, turns and copies of pixels.

use crate::error::{ImageError, Result};
use crate::image::Image;
use crate::metadata::Orientation;

/// A part of an image: from (`left`, `top`), included, to (`right`, `bottom`), excluded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// The first column.
    pub left: u32,
    /// The first row.
    pub top: u32,
    /// The column after the last.
    pub right: u32,
    /// The row after the last.
    pub bottom: u32,
}

/// A turn, clockwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// By 90°.
    Quarter,
    /// By 180°.
    Half,
    /// By 270°.
    ThreeQuarters,
}

/// Which sides change places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flip {
    /// Left and right.
    Horizontal,
    /// Top and bottom.
    Vertical,
}

/// Side of the square tiles in which rows become columns: small enough for the cache, whole cache lines each way.
const TILE: u32 = 64;

/// Where an image lies over another: that many bytes of that many rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overlap {
    /// Rows that both have there.
    pub rows: usize,
    /// Bytes of each of them.
    pub bytes: usize,
    /// Of the image below, the first row, and the first byte in each row.
    pub to: (usize, usize),
    /// The same of the image above.
    pub from: (usize, usize),
}

impl Image {
    /// A part of the image, as an image of its own.
    ///
    /// # Errors
    /// [`ImageError::Setting`] when the region is empty or not within the image.
    pub fn crop(&self, region: Region) -> Result<Self> {
        let Region { left, top, right, bottom } = region;
        if left >= right || top >= bottom || right > self.width() || bottom > self.height() {
            let (width, height) = self.size();
            return Err(ImageError::setting(format!(
                "({left}, {top}, {right}, {bottom}) is no part of an image of {width} × {height} pixels"
            )));
        }
        let channels = self.mode().channels();
        let columns = left as usize * channels..right as usize * channels;
        let mut image = self.blank_like(self.mode(), right - left, bottom - top)?;
        for (row, from) in image.rows_mut().zip(self.rows().skip(top as usize)) {
            row.copy_from_slice(&from[columns.clone()]);
        }
        Ok(image)
    }

    /// Copies `other` over this image, its upper left corner at (`x`, `y`). What lies outside is left out.
    ///
    /// # Errors
    /// [`ImageError::Setting`] when the modes differ.
    pub fn paste(&mut self, other: &Self, x: i64, y: i64) -> Result<()> {
        let Some(Overlap { rows, bytes, to, from }) = self.overlap(other, x, y)? else { return Ok(()) };
        for (mine, its) in self.rows_mut().skip(to.0).take(rows).zip(other.rows().skip(from.0)) {
            mine[to.1..to.1 + bytes].copy_from_slice(&its[from.1..from.1 + bytes]);
        }
        Ok(())
    }

    /// What [`Image::paste`] copies; `None` where nothing of `other` lies inside.
    ///
    /// # Errors
    /// As [`Image::paste`].
    pub fn overlap(&self, other: &Self, x: i64, y: i64) -> Result<Option<Overlap>> {
        if self.mode() != other.mode() {
            let (mine, its) = (self.mode(), other.mode());
            return Err(ImageError::setting(format!(
                "an image of mode {its} cannot be pasted into {mine}: convert it"
            )));
        }
        let channels = self.mode().channels();
        let overlap = |at: i64, its: u32, mine: u32| {
            let (from, to) = (at.max(0), at.saturating_add(its.into()).min(mine.into()));
            (from < to).then(|| (from as usize, (from - at) as usize, (to - from) as usize))
        };
        let across = overlap(x, other.width(), self.width());
        let down = overlap(y, other.height(), self.height());
        Ok(across.zip(down).map(|((column, its_column, columns), (row, its_row, rows))| Overlap {
            rows,
            bytes: columns * channels,
            to: (row, column * channels),
            from: (its_row, its_column * channels),
        }))
    }

    /// The image turned.
    ///
    /// # Errors
    /// [`ImageError::Memory`] when the pool has none.
    pub fn rotate(&self, turn: Turn) -> Result<Self> {
        self.turned(match turn {
            Turn::Quarter => Orientation::Turned90,
            Turn::Half => Orientation::Turned180,
            Turn::ThreeQuarters => Orientation::Turned270,
        })
    }

    /// The image with two of its sides exchanged.
    ///
    /// # Errors
    /// [`ImageError::Memory`] when the pool has none.
    pub fn flip(&self, flip: Flip) -> Result<Self> {
        self.turned(match flip {
            Flip::Horizontal => Orientation::Mirrored,
            Flip::Vertical => Orientation::Flipped,
        })
    }

    /// The image as its EXIF block says that it is to be seen; the kept block says *upright* from then on.
    ///
    /// # Errors
    /// [`ImageError::Memory`] when the pool has none.
    pub fn upright(self) -> Result<Self> {
        let orientation = self.metadata().orientation();
        self.upright_by(orientation)
    }

    pub(crate) fn upright_by(self, orientation: Orientation) -> Result<Self> {
        if orientation == Orientation::Upright {
            return Ok(self);
        }
        let mut image = self.turned(orientation)?;
        image.metadata_mut().set_upright();
        Ok(image)
    }

    /// The image turned as a picture with this orientation must be to stand upright.
    fn turned(&self, orientation: Orientation) -> Result<Self> {
        let (width, height) = self.size();
        let (width, height) = if orientation.exchanges_sides() { (height, width) } else { (width, height) };
        let mut image = self.blank_like(self.mode(), width, height)?;
        match self.mode().channels() {
            1 => turn_into::<1>(self, &mut image, orientation),
            2 => turn_into::<2>(self, &mut image, orientation),
            3 => turn_into::<3>(self, &mut image, orientation),
            _ => turn_into::<4>(self, &mut image, orientation),
        }
        Ok(image)
    }
}

fn turn_into<const N: usize>(from: &Image, to: &mut Image, orientation: Orientation) {
    use Orientation::{Flipped, Mirrored, Transposed, Transversed, Turned90, Turned180, Turned270, Upright};
    let backwards = matches!(orientation, Turned180 | Flipped | Turned90 | Transversed);
    let mirrored = matches!(orientation, Mirrored | Turned180 | Turned270 | Transversed);
    match orientation {
        Upright | Mirrored | Turned180 | Flipped => {
            let last = from.height() - 1;
            for (y, row) in (0..).zip(to.rows_mut()) {
                let source = from.row(if backwards { last - y } else { y }).unwrap_or_default();
                if mirrored { mirror::<N>(source, row) } else { row.copy_from_slice(source) }
            }
        }
        Transposed | Turned90 | Transversed | Turned270 => {
            // Column x of the new image is row x of the old one, counted from the end if `backwards`; row y is column
            // y, counted from the end if `mirrored`.
            for top in (0..to.height()).step_by(TILE as usize) {
                for left in (0..to.width()).step_by(TILE as usize) {
                    turn_tile::<N>(from, to, (left, top), backwards, mirrored);
                }
            }
        }
    }
}

fn mirror<const N: usize>(from: &[u8], to: &mut [u8]) {
    let (from, to) = (from.as_chunks::<N>().0, to.as_chunks_mut::<N>().0);
    for (to, from) in to.iter_mut().zip(from.iter().rev()) {
        *to = *from;
    }
}

/// Exchanges rows and columns within a square of [`TILE`].
fn turn_tile<const N: usize>(from: &Image, to: &mut Image, (left, top): (u32, u32), backwards: bool, mirrored: bool) {
    let (right, bottom) = ((left + TILE).min(to.width()), (top + TILE).min(to.height()));
    let mut sources: [&[[u8; N]]; TILE as usize] = [&[]; TILE as usize];
    for (x, source) in (left..right).zip(&mut sources) {
        let y = if backwards { from.height() - 1 - x } else { x };
        *source = from.row(y).unwrap_or_default().as_chunks().0;
    }
    for y in top..bottom {
        let x = if mirrored { from.width() - 1 - y } else { y } as usize;
        let row = to.row_mut(y).unwrap_or_default();
        let row = &mut row.as_chunks_mut::<N>().0[left as usize..right as usize];
        for (pixel, source) in row.iter_mut().zip(&sources) {
            *pixel = source[x];
        }
    }
}
