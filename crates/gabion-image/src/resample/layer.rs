//! One layer of an image from one size to another.

use std::ops::Range;

use gabion_blocks::{Buffer, Pool, Request};

use super::Resampling;
use super::boxes::{Boxes, LARGEST};
use super::horizontal::{Horizontal, Target};
use super::horizontal_first::HorizontalFirst;
use super::vertical::Vertical;
use super::weights::{Filter, Span, Weights};
use crate::error::{ImageError, Result};
use crate::sides::Sides;

/// Takes the rows of a layer from the top to the bottom and makes up those of the new size.
pub(crate) struct Layer {
    pool: Pool,
    height: usize,
    came: usize,
    /// Which bytes of a row go on: those that no new row is made of do not.
    part: Range<usize>,
    /// A row as it came, where it does not go on as it is.
    row: Option<Buffer>,
    boxes: Option<Boxes>,
    /// Where rows get their width before their height.
    horizontal_first: Option<HorizontalFirst>,
    /// None where rows have their height and go through as they are.
    vertical: Option<Vertical>,
    horizontal: Horizontal,
}

/// What is to become of a layer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Job {
    /// Bytes in a pixel.
    pub channels: usize,
    /// What comes in.
    pub old: Sides,
    /// Width and height of what comes out.
    pub new: (usize, usize),
    /// The filter.
    pub how: Resampling,
    /// How much of each neighbour a sample is to be mixed with across and down, before it becomes smaller.
    pub soft: (f64, f64),
}

impl Job {
    fn boxes(&self) -> (usize, usize) {
        let side = |old: usize, new: usize| match self.how.filter {
            Filter::Nearest => 1,
            _ => ((old as f64 / new as f64 / self.how.gap.max(1.0)) as usize).clamp(1, LARGEST),
        };
        let seen = self.old.seen();
        (side(seen.0, self.new.0), side(seen.1, self.new.1))
    }
}

impl Layer {
    /// # Errors
    /// [`ImageError::Memory`] when the pool has none.
    pub fn new(pool: &Pool, job: &Job) -> Result<Self> {
        let Job { channels, old: Sides { size: old, start, extent }, new, how, soft } = *job;
        let (wide, high) = job.boxes();
        let (width, height) = (old.0.div_ceil(wide), old.1.div_ceil(high));
        let span =
            |start: f64, extent: f64, side: usize| Span { start: start / side as f64, extent: extent / side as f64 };
        let (columns, rows) = (span(start.0, extent.0, wide), span(start.1, extent.1, high));
        // A box has its neighbour's samples at its edges only.
        let sideways = Weights::new(pool, how.filter, width, columns, new.0)?.softened(soft.0 / (wide * wide) as f64);
        let down = Weights::new(pool, how.filter, height, rows, new.1)?.softened(soft.1 / (high * high) as f64);
        let (horizontal_first, horizontal) = if is_horizontal_first(channels, height, &sideways, &down) {
            let same = new.0 as f64;
            let weights = Weights::new(pool, how.filter, new.0, same, new.0)?;
            let through = Horizontal::new(pool, channels, (new.0, new.0), new.1, same, weights)?;
            (Some(HorizontalFirst::new(pool, channels, height, sideways)?), through)
        } else {
            (None, Horizontal::new(pool, channels, (width, new.0), new.1, columns, sideways)?)
        };
        let columns = horizontal_first.as_ref().map_or_else(|| horizontal.columns(), HorizontalFirst::columns);
        let through =
            horizontal_first.is_none() && horizontal.takes_bytes() && height == new.1 && rows.extent >= height as f64;
        let vertical = if through {
            None
        } else {
            let width = if horizontal_first.is_some() { new.0 } else { columns.len() };
            Some(Vertical::new(pool, width * channels, horizontal_first.is_some(), down)?)
        };
        let part = columns.start * wide..(columns.end * wide).min(old.0);
        let boxes = if wide * high > 1 { Some(Boxes::new(pool, part.len(), channels, wide, high)?) } else { None };
        let row = if boxes.is_some() || part.len() < old.0 {
            Some(pool.rent(&Request::new(old.0 * channels))?)
        } else {
            None
        };
        let part = part.start * channels..part.end * channels;
        Ok(Self {
            pool: pool.clone(),
            height: old.1,
            came: 0,
            part,
            row,
            boxes,
            horizontal_first,
            vertical,
            horizontal,
        })
    }

    /// How many rows are still to come in.
    pub fn missing(&self) -> usize {
        self.height - self.came
    }

    /// Takes a row, which `write` puts where it belongs. Then see [`Layer::prepare_row`].
    ///
    /// # Errors
    /// What `write` gives; [`ImageError::Setting`] when all rows are there; [`ImageError::Memory`].
    pub fn push_row_with(&mut self, write: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<()> {
        if self.missing() == 0 {
            return Err(ImageError::setting("the image has no more rows"));
        }
        self.make_room()?;
        if let Some(row) = &mut self.row {
            write(row.as_mut_slice())?;
            self.add(None)
        } else {
            put(&self.pool, (&mut self.horizontal_first, &mut self.vertical, &mut self.horizontal), write)?;
            self.came += 1;
            Ok(())
        }
    }

    /// As [`Layer::push_row_with`], from a row that lies somewhere already.
    ///
    /// # Errors
    /// As [`Layer::push_row_with`].
    pub fn push_row(&mut self, row: &[u8]) -> Result<()> {
        if self.row.is_none() || self.missing() == 0 {
            return self.push_row_with(|out| {
                out.copy_from_slice(row);
                Ok(())
            });
        }
        self.make_room()?;
        self.add(Some(row))
    }

    /// Has the part of a row go on that is looked at: of this one, or of the one that was put there. Boxes are summed
    /// up first.
    fn add(&mut self, row: Option<&[u8]>) -> Result<()> {
        let last = self.missing() == 1;
        let row = row.or_else(|| self.row.as_ref().map(Buffer::as_slice)).unwrap_or_default();
        let row = &row[self.part.clone()];
        let way = (&mut self.horizontal_first, &mut self.vertical, &mut self.horizontal);
        match &mut self.boxes {
            Some(boxes) => {
                if boxes.add(row, last) {
                    put(&self.pool, way, |out| {
                        boxes.finish_row(out);
                        Ok(())
                    })?;
                }
            }
            None => put(&self.pool, way, |out| {
                out.copy_from_slice(row);
                Ok(())
            })?,
        }
        self.came += 1;
        Ok(())
    }

    /// Makes up the new rows that nobody has asked for yet, before the old rows that they are made of are overwritten.
    fn make_room(&mut self) -> Result<()> {
        while self.make_row()? {}
        Ok(())
    }

    /// Makes up a new row, if what it is made of is there.
    fn make_row(&mut self) -> Result<bool> {
        let Some(vertical) = &mut self.vertical else { return Ok(false) };
        while !vertical.has_row() {
            let Some(horizontal_first) = &mut self.horizontal_first else { return Ok(false) };
            let Some(row) = horizontal_first.first() else { return Ok(false) };
            vertical.next_mut().copy_from_slice(row);
            vertical.commit_row();
            horizontal_first.pop();
        }
        self.horizontal.push(&self.pool, |out| {
            vertical.pop(out);
            Ok(())
        })?;
        Ok(true)
    }

    /// Whether any row came in.
    pub fn has_begun(&self) -> bool {
        self.came > 0
    }

    /// How much of the layer came in, from 0 to 1.
    pub fn progress(&self) -> f64 {
        self.came as f64 / self.height as f64
    }

    /// Makes up the next new row, if it can be, and says whether one is ready: see [`Layer::first`]. So an image that
    /// gets larger is never held beside itself.
    ///
    /// # Errors
    /// [`ImageError::Memory`] when the pool has none.
    pub fn prepare_row(&mut self) -> Result<bool> {
        // Some rows may be filtered together.
        while self.horizontal.first().is_none() && self.make_row()? {}
        Ok(self.horizontal.first().is_some())
    }

    /// The same, of one channel, whose rows keep what stands behind the point if they are filtered last of all.
    pub fn with_fraction(self) -> Self {
        Self { horizontal: self.horizontal.with_fraction(), ..self }
    }

    /// Whether rows are of [`Fixed6`](crate::simd::Fixed6) samples; otherwise of bytes.
    pub fn is_fixed6(&self) -> bool {
        self.horizontal.is_fixed6()
    }

    /// The next new row, as bytes, if [`Layer::prepare_row`] has made it up. See [`Layer::pop`].
    pub fn first(&self) -> Option<&[u8]> {
        self.horizontal.first()
    }

    /// Forgets the row that [`Layer::first`] gave.
    pub fn pop(&mut self) {
        self.horizontal.pop();
    }
}

/// How much cheaper it must be to give rows their width first. Where both take about as long, as with every picture
/// that keeps about its shape, the height comes first.
const CHEAPER: f64 = 4.0;

/// How many samples of a row [`Horizontal`] may hold, which takes 64 bytes for each.
const WIDEST: usize = 1 << 20;

/// Whether rows are to get their width first: of `height` rows, as `sideways` says, which then get their height as
/// `down` says.
fn is_horizontal_first(channels: usize, height: usize, sideways: &Weights, down: &Weights) -> bool {
    let (width, columns) = (sideways.reached().len(), sideways.outputs());
    if columns >= width {
        return false;
    }
    let rows = down.outputs() as f64;
    // Products, of a row and of a column.
    let across = columns as f64 * sideways.max_taps() as f64;
    let vertical_first = rows * (width as f64 * down.max_taps() as f64 + across);
    let horizontal_first = height as f64 * across + columns as f64 * rows * down.max_taps() as f64;
    width * channels > WIDEST || horizontal_first * CHEAPER < vertical_first
}

/// Puts a row that `write` makes where it gets its width or its height first, or where rows go through.
fn put(
    pool: &Pool,
    (horizontal_first, vertical, horizontal): (&mut Option<HorizontalFirst>, &mut Option<Vertical>, &mut Horizontal),
    write: impl FnOnce(&mut [u8]) -> Result<()>,
) -> Result<()> {
    match (horizontal_first, vertical) {
        (Some(horizontal_first), _) => {
            write(horizontal_first.next_mut())?;
            horizontal_first.commit_row();
            Ok(())
        }
        (None, Some(vertical)) => {
            write(vertical.next_mut())?;
            vertical.commit_row();
            Ok(())
        }
        (None, None) => horizontal.push(pool, |out| match out {
            Target::Bytes(out) => write(out),
            Target::Floats(_) => unreachable!("rows go through as bytes"),
        }),
    }
}
