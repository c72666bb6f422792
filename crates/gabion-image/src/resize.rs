//! An image in another size.

use crate::assembly::Assembly;
use crate::error::Result;
use crate::image::Image;
use crate::limits::Limits;
use crate::resample::{Filter, Resampling, take_nearest};
use crate::sides::{Layers, Sides};

/// The largest size of the same shape within `most`, never larger than `size`, at least 1 × 1.
pub(crate) fn fit(size: (u32, u32), most: (u32, u32)) -> (u32, u32) {
    let (width, height) = (f64::from(size.0), f64::from(size.1));
    let scale = (f64::from(most.0) / width).min(f64::from(most.1) / height).min(1.0);
    let side = |old: f64, most: u32| ((old * scale).round() as u32).clamp(1, most.max(1));
    (side(width, most.0), side(height, most.1))
}

impl Image {
    /// The image in another size. Colours are blended by their alpha.
    ///
    /// Takes a time linear in the pixels of both sizes, and memory that is linear in the width beside the new image.
    ///
    /// # Errors
    /// [`ImageError::Setting`](crate::ImageError::Setting) when a side is 0,
    /// [`ImageError::Memory`](crate::ImageError::Memory) when the pool has none.
    pub fn resize(&self, width: u32, height: u32, how: Resampling) -> Result<Self> {
        Limits::none().check_size(width, height)?;
        if how.filter == Filter::Nearest {
            let mut image = self.blank_like(self.mode(), width, height)?;
            take_nearest(self, &mut image)?;
            return Ok(image);
        }
        let old = Sides::covered(self.width() as usize, self.height() as usize);
        let layers = Layers::Pixels(self.mode(), old);
        let mut assembly = Assembly::new(self.pool(), &layers, (width, height), self.mode(), how)?;
        for row in self.rows() {
            assembly.take_row(0, row)?;
        }
        let mut image = assembly.into_image();
        *image.metadata_mut() = self.metadata().clone();
        if let Some(format) = self.format() {
            image.set_format(format);
        }
        Ok(image)
    }

    /// The image no larger than `width` × `height`, in its own shape. An image that is small enough stays as large as it is.
    ///
    /// # Errors
    /// As [`Image::resize`].
    pub fn thumbnail(&self, width: u32, height: u32, how: Resampling) -> Result<Self> {
        Limits::none().check_size(width, height)?;
        let (width, height) = fit(self.size(), (width, height));
        self.resize(width, height, how)
    }
}
