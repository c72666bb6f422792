//! One layer of an image from one size to another.

use gabion_blocks::{Buffer, Pool, Request};

use super::Resampling;
use super::across::{Across, Target};
use super::boxes::{Boxes, LARGEST};
use super::ring::Ring;
use super::weights::{Filter, Span, Weights};
use crate::error::{ImageError, Result};
use crate::sides::Sides;

/// Takes the rows of a layer from the top to the bottom and makes up those of the new size.
pub(crate) struct Layer {
    pool: Pool,
    height: usize,
    came: usize,
    boxes: Option<(Boxes, Buffer)>,
    /// None where rows have their height and go through as they are.
    ring: Option<Ring>,
    across: Across,
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
        let Job { channels, old: Sides { size: old, start, extent }, new, how } = *job;
        let (wide, high) = job.boxes();
        let boxes = if wide * high > 1 {
            let row = pool.rent(&Request::new(old.0 * channels))?;
            Some((Boxes::new(pool, old.0, channels, wide, high)?, row))
        } else {
            None
        };
        let (width, height) = (old.0.div_ceil(wide), old.1.div_ceil(high));
        let span =
            |start: f64, extent: f64, side: usize| Span { start: start / side as f64, extent: extent / side as f64 };
        let (columns, rows) = (span(start.0, extent.0, wide), span(start.1, extent.1, high));
        let across = Across::new(pool, channels, (width, new.0), new.1, columns, how.filter)?;
        let through = across.takes_bytes() && height == new.1 && rows.extent >= height as f64;
        let ring = if through {
            None
        } else {
            let weights = Weights::new(pool, how.filter, height, rows, new.1)?;
            Some(Ring::new(pool, width * channels, weights)?)
        };
        Ok(Self { pool: pool.clone(), height: old.1, came: 0, boxes, ring, across })
    }

    /// How many rows are still to come in.
    pub fn missing(&self) -> usize {
        self.height - self.came
    }

    /// Takes a row, which `write` puts where it belongs. Then see [`Layer::has_row`].
    ///
    /// # Errors
    /// What `write` gives; [`ImageError::Setting`] when all rows are there; [`ImageError::Memory`].
    pub fn take(&mut self, write: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<()> {
        if self.missing() == 0 {
            return Err(ImageError::setting("the image has no more rows"));
        }
        self.make_room()?;
        if let Some((_, row)) = &mut self.boxes {
            write(row.as_mut_slice())?;
            self.add(None)
        } else {
            put(&self.pool, &mut self.ring, &mut self.across, write)?;
            self.came += 1;
            Ok(())
        }
    }

    /// As [`Layer::take`], from a row that lies somewhere already.
    ///
    /// # Errors
    /// As [`Layer::take`].
    pub fn take_row(&mut self, row: &[u8]) -> Result<()> {
        if self.boxes.is_none() || self.missing() == 0 {
            return self.take(|out| {
                out.copy_from_slice(row);
                Ok(())
            });
        }
        self.make_room()?;
        self.add(Some(row))
    }

    /// Adds a row to the boxes: this one, or the one that was put there.
    fn add(&mut self, row: Option<&[u8]>) -> Result<()> {
        let last = self.missing() == 1;
        if let Some((boxes, own)) = &mut self.boxes
            && boxes.add(row.unwrap_or(own.as_slice()), last)
        {
            put(&self.pool, &mut self.ring, &mut self.across, |out| {
                boxes.take(out);
                Ok(())
            })?;
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
        let Some(ring) = self.ring.as_mut().filter(|ring| ring.has_row()) else { return Ok(false) };
        self.across.push(&self.pool, |out| {
            ring.pop(out);
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

    /// Makes up the next new row, if it can be: see [`Layer::first`]. So an image that gets larger is never held beside
    /// itself.
    ///
    /// # Errors
    /// [`ImageError::Memory`] when the pool has none.
    pub fn has_row(&mut self) -> Result<bool> {
        // Some rows may be filtered together.
        while self.across.first().is_none() && self.make_row()? {}
        Ok(self.across.first().is_some())
    }

    /// The next new row, if [`Layer::has_row`] has made it up. See [`Layer::pop`].
    pub fn first(&self) -> Option<&[u8]> {
        self.across.first()
    }

    /// Forgets the row that [`Layer::first`] gave.
    pub fn pop(&mut self) {
        self.across.pop();
    }
}

/// Puts a row that `write` makes into the ring, or where rows go through.
fn put(
    pool: &Pool,
    ring: &mut Option<Ring>,
    across: &mut Across,
    write: impl FnOnce(&mut [u8]) -> Result<()>,
) -> Result<()> {
    match ring {
        Some(ring) => {
            write(ring.next_mut())?;
            ring.pushed();
            Ok(())
        }
        None => across.push(pool, |out| match out {
            Target::Bytes(out) => write(out),
            Target::Floats(_) => unreachable!("rows go through as bytes"),
        }),
    }
}
