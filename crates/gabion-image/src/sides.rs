//! What rows a decoder gives: layers and their sizes.

use crate::mode::Mode;

/// What rows a decoder gives.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Layers {
    /// One layer: pixels of this mode.
    Pixels(Mode, Sides),
    /// Three layers of one channel each, luma first, then blue and red difference.
    Planes([Sides; 3]),
}

/// How large a layer is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Sides {
    /// Width and height in samples.
    pub size: (usize, usize),
    /// Where what is wanted of the picture begins, in samples: 0 for all of it.
    pub start: (f64, f64),
    /// How many of them that covers: where a layer is a fraction of the picture, its last samples may reach beyond the
    /// edge.
    pub extent: (f64, f64),
}

/// The part of a picture that is wanted: the same is cut away at both sides, or above and below.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct CenterCrop {
    /// How much of the width and of the height is kept, above 0 and up to 1.
    pub kept: (f64, f64),
}

impl CenterCrop {
    /// The largest part of a picture that has the shape of a box.
    pub fn shaped(picture: (u32, u32), shape: (u32, u32)) -> Self {
        // Sides are below 2³¹, so that products are exact as whole numbers.
        let (one, other) = (u64::from(picture.0) * u64::from(shape.1), u64::from(picture.1) * u64::from(shape.0));
        let (one, other) = (one as f64, other as f64);
        Self { kept: if one > other { (other / one, 1.0) } else { (1.0, one / other) } }
    }
}

impl Sides {
    /// Of a layer that the picture covers.
    pub fn covered(width: usize, height: usize) -> Self {
        Self { size: (width, height), start: (0.0, 0.0), extent: (width as f64, height as f64) }
    }

    /// Of a layer that is `part` of a picture, rounded up.
    pub fn part_of(picture: (usize, usize), part: [(usize, usize); 2]) -> Self {
        let size = |side: usize, (num, den): (usize, usize)| (side * num).div_ceil(den);
        let extent = |side: usize, (num, den): (usize, usize)| (side * num) as f64 / den as f64;
        let [across, down] = part;
        Self {
            size: (size(picture.0, across), size(picture.1, down)),
            start: (0.0, 0.0),
            extent: (extent(picture.0, across), extent(picture.1, down)),
        }
    }

    /// How many samples are looked at.
    pub fn seen(&self) -> (usize, usize) {
        (self.extent.0.ceil() as usize, self.extent.1.ceil() as usize)
    }

    /// Of what was wanted, the middle alone.
    pub fn cut(self, crop: CenterCrop) -> Self {
        let Self { size, start, extent } = self;
        let kept = (extent.0 * crop.kept.0, extent.1 * crop.kept.1);
        let start = (start.0 + (extent.0 - kept.0) / 2.0, start.1 + (extent.1 - kept.1) / 2.0);
        Self { size, start, extent: kept }
    }

    /// Whether what is wanted begins where a sample does.
    pub fn begins_at_sample(&self) -> bool {
        self.start.0.fract() == 0.0 && self.start.1.fract() == 0.0
    }

    /// Whether all samples are wanted.
    pub fn is_whole(&self) -> bool {
        self.seen() == self.size
    }
}

impl Layers {
    /// Of what was wanted, the middle alone.
    pub fn cut(&self, crop: CenterCrop) -> Self {
        match *self {
            Self::Pixels(mode, sides) => Self::Pixels(mode, sides.cut(crop)),
            Self::Planes(sides) => Self::Planes(sides.map(|sides| sides.cut(crop))),
        }
    }

    /// The mode of the image that the layers make.
    pub fn mode(&self) -> Mode {
        match self {
            Self::Pixels(mode, _) => *mode,
            Self::Planes(_) => Mode::RGB,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A picture that is scaled as if its last column were whole is stretched by up to a pixel.
    #[test]
    fn a_part_is_rounded_up_and_its_extent_is_not() {
        let sides = Sides::part_of((1601, 1200), [(1, 8), (1, 2)]);
        assert_eq!(sides, Sides { size: (201, 600), start: (0.0, 0.0), extent: (200.125, 600.0) });
        assert_eq!(Sides::part_of((7, 5), [(1, 1); 2]), Sides::covered(7, 5));
    }

    #[test]
    fn the_middle_has_the_shape_of_the_box() {
        assert_eq!(CenterCrop::shaped((400, 100), (50, 50)).kept, (0.25, 1.0));
        assert_eq!(CenterCrop::shaped((100, 400), (50, 100)).kept, (1.0, 0.5));
        assert_eq!(CenterCrop::shaped((30, 20), (60, 40)).kept, (1.0, 1.0));
        let cut = Sides::covered(400, 100).cut(CenterCrop { kept: (0.25, 1.0) });
        assert_eq!((cut.size, cut.start, cut.extent), ((400, 100), (150.0, 0.0), (100.0, 100.0)));
        assert_eq!((cut.seen(), cut.is_whole()), ((100, 100), false));
        let longest = crate::LONGEST_SIDE;
        let (width, height) = CenterCrop::shaped((longest, 1), (1, longest)).kept;
        assert!(width > 0.0 && height >= 1.0, "{width}");
    }
}
