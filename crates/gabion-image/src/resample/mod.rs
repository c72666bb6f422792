//! Resampling, row by row: rows go in at the top as they are decoded, rows of the new size come out below.
//!
//! ```text
//!   row ──► boxes: kx × ky samples to their mean ──► vertical: a ring of rows, weighted ──► horizontal ──► row
//!           (only when the filter leaves room)       (as many as the filter is high)       (some at a time)
//! ```
//!
//! Between the two directions there are as many samples as the old width and the new height say: more than in both
//! pictures together where a wide, low one becomes a narrow, high one. Then rows get their width first, and so the time
//! is always linear in the pixels of both. Rows that are longer than those of photographs do so as well, if
//! they get shorter, because the filter that comes last holds each of their samples 16 times.
//! What a new picture is not made of, at the sides of one that covers a box, is left out before any filter.
//!
//! Memory is linear in the width: the ring holds as many rows as the filter spans, and none of the picture is held
//! beyond that. The filters are separable convolutions with the kernel stretched by the scale, normalised at the edges,
//! as in Pillow and `ImageMagick`; between the two directions samples stay floats, and luma and differences keep a
//! fraction until they become colours.
//!
//! A [`gap`](Resampling::gap) of 2 first takes means of whole boxes, down to twice the new size, and filters the rest:
//! the boxes cost one addition a sample. The last box of a row or column may be smaller, so that nothing is cut off,
//! and the filter knows the exact fraction. Peak signal to noise against the filter alone is 49 dB and more on
//! photographs.
//!
//! | module | what it holds |
//! |---|---|
//! | `weights` | the filters, and how much each row counts |
//! | `boxes` | means of boxes |
//! | `horizontal` | the horizontal filter |
//! | `horizontal_first` | the same, before the vertical one |
//! | `vertical` | the vertical filter |
//! | `layer` | one layer of an image from one size to another |
//! | `nearest` | a whole image by its nearest pixels |

mod weights;

mod boxes;

mod horizontal;

mod horizontal_first;

mod vertical;

mod layer;

mod nearest;

pub(crate) use layer::{Job, Layer};
pub(crate) use nearest::take_nearest;
pub use weights::Filter;

/// How an image is brought to another size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Resampling {
    /// The filter.
    pub filter: Filter,
    /// Down to how many times the new size plain means are good enough. At least 1; infinite for the filter alone.
    pub gap: f64,
}

impl Default for Resampling {
    /// Lanczos with a gap of 2.
    fn default() -> Self {
        Self { filter: Filter::Lanczos3, gap: 2.0 }
    }
}

impl Resampling {
    /// The filter alone: the best that it can give, at a price that grows with the scale.
    pub fn exact(filter: Filter) -> Self {
        Self { filter, gap: f64::INFINITY }
    }
}
