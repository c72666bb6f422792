//! An image in another size.

use crate::assembly::Assembly;
use crate::convert::converter;
use crate::error::Result;
use crate::image::Image;
use crate::limits::Limits;
use crate::mode::Mode;
use crate::resample::{Filter, Resampling, take_nearest};
use crate::sides::{CenterCrop, Layers, Sides};

/// How a picture comes into a box of another shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Fit {
    /// No larger than the box, in its own shape.
    #[default]
    Inside,
    /// As large as the box: the picture covers it, and what reaches beyond, as much on both sides, is cut away. It gets
    /// larger where it must.
    Cover,
    /// As large as the box: the picture lies inside, in the middle, on a background of this colour: red, green, blue
    /// and alpha, as near as the picture's mode comes to it.
    Pad([u8; 4]),
}

/// The largest size of the same shape within `most`, never larger than `size`, at least 1 × 1.
///
/// The shorter side is rounded to whichever neighbour is nearer in shape, as Pillow does, so that both give the same
/// sizes.
pub(crate) fn fit(size: (u32, u32), most: (u32, u32)) -> (u32, u32) {
    let most = (most.0.max(1), most.1.max(1));
    if size.0 <= most.0 && size.1 <= most.1 { size } else { largest(size, most) }
}

/// The largest size of the same shape within `most`, at least 1 × 1.
fn largest(size: (u32, u32), most: (u32, u32)) -> (u32, u32) {
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
        self.sampled(Sides::covered(self.width() as usize, self.height() as usize), (width, height), how)
    }

    /// What `old` says of the image, in another size.
    fn sampled(&self, old: Sides, (width, height): (u32, u32), how: Resampling) -> Result<Self> {
        Limits::none().check_size(width, height)?;
        if how.filter == Filter::Nearest {
            let mut image = self.blank_like(self.mode(), width, height)?;
            take_nearest(self, old, &mut image)?;
            return Ok(image);
        }
        let layers = Layers::Pixels(self.mode(), old);
        let mut assembly = Assembly::new(self.pool(), &layers, (width, height), self.mode(), how)?;
        for row in self.rows() {
            assembly.push_row(0, row)?;
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

    /// The image in a box of `width` × `height`, in its own shape, and larger than it is where that fills the box: with
    /// [`Fit::Inside`] the largest size within it, otherwise exactly the box.
    ///
    /// # Errors
    /// As [`Image::resize`].
    pub fn resize_to_fit(&self, width: u32, height: u32, fit: Fit, how: Resampling) -> Result<Self> {
        Limits::none().check_size(width, height)?;
        let size = (width, height);
        if fit == Fit::Cover {
            let all = Sides::covered(self.width() as usize, self.height() as usize);
            return self.sampled(all.cut(CenterCrop::shaped(self.size(), size)), size, how);
        }
        let (width, height) = largest(self.size(), size);
        self.resize(width, height, how)?.padded(size, fit)
    }

    /// As [`Image::thumbnail`], with any [`Fit`]: with [`Fit::Cover`] and [`Fit::Pad`] exactly the box. Only to cover
    /// it the image gets larger.
    ///
    /// # Errors
    /// As [`Image::resize`].
    pub fn thumbnail_to_fit(&self, width: u32, height: u32, fit: Fit, how: Resampling) -> Result<Self> {
        match fit {
            Fit::Cover => self.resize_to_fit(width, height, fit, how),
            _ => self.thumbnail(width, height, how)?.padded((width, height), fit),
        }
    }

    /// The image in the middle of a box that it fits into, if it is to fill it.
    pub(crate) fn padded(self, size: (u32, u32), fit: Fit) -> Result<Self> {
        let Fit::Pad(color) = fit else { return Ok(self) };
        if size == self.size() {
            return Ok(self);
        }
        let mode = self.mode();
        let mut background = [0; 4];
        let background = &mut background[..mode.channels()];
        converter(Mode::RGBA, mode)(&color, background);
        let mut image = self.blank_like(mode, size.0, size.1)?;
        image.fill(background)?;
        let middle = |outer: u32, inner: u32| i64::from((outer - inner) / 2);
        image.paste(&self, middle(size.0, self.width()), middle(size.1, self.height()))?;
        Ok(image)
    }
}
