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
    /// How many of them the picture covers: where a layer is a fraction of the picture, its last samples may reach
    /// beyond the edge.
    pub extent: (f64, f64),
}

impl Sides {
    /// Of a layer that the picture covers.
    pub fn covered(width: usize, height: usize) -> Self {
        Self { size: (width, height), extent: (width as f64, height as f64) }
    }

    /// Of a layer that is `part` of a picture, rounded up.
    pub fn part_of(picture: (usize, usize), part: [(usize, usize); 2]) -> Self {
        let size = |side: usize, (num, den): (usize, usize)| (side * num).div_ceil(den);
        let extent = |side: usize, (num, den): (usize, usize)| (side * num) as f64 / den as f64;
        let [across, down] = part;
        Self {
            size: (size(picture.0, across), size(picture.1, down)),
            extent: (extent(picture.0, across), extent(picture.1, down)),
        }
    }
}

impl Layers {
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
        assert_eq!(sides, Sides { size: (201, 600), extent: (200.125, 600.0) });
        assert_eq!(Sides::part_of((7, 5), [(1, 1); 2]), Sides::covered(7, 5));
    }
}
