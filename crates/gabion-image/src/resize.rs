//! An image in another size.

use crate::assembly::Assembly;
use crate::error::Result;
use crate::image::Image;
use crate::limits::Limits;
use crate::resample::{Filter, Resampling, take_nearest};
use crate::sides::{Layers, Sides};

/// The largest size of the same shape within `most`, never larger than `size`, at least 1 × 1.
///
/// The shorter side is rounded to whichever neighbour is nearer in shape, as Pillow does, so that both give the same
/// sizes.
pub(crate) fn fit(size: (u32, u32), most: (u32, u32)) -> (u32, u32) {
    let most = (most.0.max(1), most.1.max(1));
    if size.0 <= most.0 && size.1 <= most.1 {
        return size;
    }
    let shape = f64::from(size.0) / f64::from(size.1);
    let (width, height) = (f64::from(most.0), f64::from(most.1));
    if width / height >= shape {
        (nearer(height * shape, |width| (shape - width / height).abs()), most.1)
    } else {
        (most.0, nearer(width / shape, |height| if height == 0.0 { 0.0 } else { (shape - width / height).abs() }))
    }
}

/// The whole number beside `side` that is less off, the lower one of two that are equally so, at least 1.
fn nearer(side: f64, off: impl Fn(f64) -> f64) -> u32 {
    let (lower, upper) = (side.floor(), side.ceil());
    (if off(upper) < off(lower) { upper } else { lower }).max(1.0) as u32
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

    /// The image no larger than `width` × `height`, in its own shape. An image that is small enough stays as large as
    /// it is.
    ///
    /// # Errors
    /// As [`Image::resize`].
    pub fn thumbnail(&self, width: u32, height: u32, how: Resampling) -> Result<Self> {
        Limits::none().check_size(width, height)?;
        let (width, height) = fit(self.size(), (width, height));
        self.resize(width, height, how)
    }
}
