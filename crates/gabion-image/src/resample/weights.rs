//! Filters and their weights.

use std::f64::consts::PI;
use std::ops::Range;

use gabion_blocks::{Buffer, Pool, Request};

use crate::error::Result;

/// How samples between samples are made up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Filter {
    /// The nearest sample. Fast, and jagged.
    Nearest,
    /// The mean of what a new sample covers.
    Box,
    /// Linear interpolation; a triangle when shrinking.
    Bilinear,
    /// Cubic interpolation with a = −0.5 (Catmull and Rom).
    Bicubic,
    /// A sinc windowed by the middle lobe of a longer one, three lobes a side (Lanczos).
    #[default]
    Lanczos3,
}

impl Filter {
    /// All filters.
    pub const ALL: [Self; 5] = [Self::Nearest, Self::Box, Self::Bilinear, Self::Bicubic, Self::Lanczos3];

    /// The name: `"nearest"`, `"box"`, `"bilinear"`, `"bicubic"`, `"lanczos3"`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nearest => "nearest",
            Self::Box => "box",
            Self::Bilinear => "bilinear",
            Self::Bicubic => "bicubic",
            Self::Lanczos3 => "lanczos3",
        }
    }

    /// The filter of this name; `"lanczos"` is `"lanczos3"`.
    pub fn of_name(name: &str) -> Option<Self> {
        let name = if name == "lanczos" { "lanczos3" } else { name };
        Self::ALL.into_iter().find(|filter| filter.name() == name)
    }

    /// How far the kernel reaches from its middle, in samples.
    fn reach(self) -> f64 {
        match self {
            Self::Nearest | Self::Box => 0.5,
            Self::Bilinear => 1.0,
            Self::Bicubic => 2.0,
            Self::Lanczos3 => 3.0,
        }
    }

    fn kernel(self, x: f64) -> f64 {
        let x = x.abs();
        match self {
            // Half a sample belongs to both its neighbours, so that boxes on a seam are not lost.
            Self::Nearest | Self::Box => {
                if x <= 0.5 {
                    1.0
                } else {
                    0.0
                }
            }
            Self::Bilinear => (1.0 - x).max(0.0),
            Self::Bicubic if x < 1.0 => (1.5 * x - 2.5) * x * x + 1.0,
            Self::Bicubic if x < 2.0 => ((2.5 - 0.5 * x) * x - 4.0) * x + 2.0,
            Self::Lanczos3 => lanczos(x * THIRD_TURN, (x * THIRD_TURN).sin()),
            Self::Bicubic => 0.0,
        }
    }
}

/// The angle of one sample in the window of [`Filter::Lanczos3`].
const THIRD_TURN: f64 = PI / 3.0;

/// `sin πx / πx · sin (πx/3) / (πx/3)` of the angle `πx/3` and its sine: that of three times an angle is `3 sin − 4
/// sin³`.
fn lanczos(angle: f64, sine: f64) -> f64 {
    let squared = sine * sine;
    match angle.abs() {
        PI.. => 0.0,
        // The sine of so small an angle may be wrong in its last digits, and the weight is 1 except for less than
        // those.
        ..1e-6 => 1.0,
        angle => squared * (3.0 - 4.0 * squared) / (3.0 * angle * angle),
    }
}

/// The kernel at places that are equally far apart. The sine of each angle of [`Filter::Lanczos3`] is made of the one
/// before, which takes a tenth of the time.
struct Places {
    filter: Filter,
    x: f64,
    step: f64,
    /// Sine and cosine of the angle at `x`, and of the angle of a step.
    at: (f64, f64),
    turn: (f64, f64),
}

impl Places {
    fn from(filter: Filter, x: f64, step: f64, turn: (f64, f64)) -> Self {
        Self { filter, x, step, at: (x * THIRD_TURN).sin_cos(), turn }
    }
}

impl Iterator for Places {
    type Item = f64;

    #[inline]
    fn next(&mut self) -> Option<f64> {
        let (x, (sine, cosine), (turn_sine, turn_cosine)) = (self.x, self.at, self.turn);
        self.x += self.step;
        if self.filter != Filter::Lanczos3 {
            return Some(self.filter.kernel(x));
        }
        self.at = (sine * turn_cosine + cosine * turn_sine, cosine * turn_cosine - sine * turn_sine);
        Some(lanczos(x * THIRD_TURN, sine))
    }
}

/// The part of the old rows or columns that becomes the new ones: where it begins, and how many it has.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Span {
    pub start: f64,
    pub extent: f64,
}

/// From the first one on.
impl From<f64> for Span {
    fn from(extent: f64) -> Self {
        Self { start: 0.0, extent }
    }
}

/// What each output, a new row or a new column, is made of: adjacent inputs, which are old ones, and how much each of
/// them counts. Made up one by one, so that it takes no memory that grows with their number.
///
/// Equation: the weights of an output add up to 1.
pub struct Weights {
    filter: Filter,
    old: usize,
    new: usize,
    start: f64,
    scale: f64,
    /// How much the kernel is stretched, and how far it reaches then.
    stretch: f64,
    reach: f64,
    /// Sine and cosine of the angle between two inputs: see [`Places`].
    turn: (f64, f64),
    /// How much of each neighbour an input is mixed with before.
    soft: f32,
    /// The weights of one output.
    row: Buffer,
}

impl Weights {
    /// For `new` outputs out of a `span` of `old` inputs: less than all of them when the last is a smaller box, or when
    /// not all of them are wanted.
    ///
    /// # Errors
    /// [`ImageError::Memory`](crate::ImageError::Memory) when the pool has none.
    pub fn new(pool: &Pool, filter: Filter, old: usize, span: impl Into<Span>, new: usize) -> Result<Self> {
        let Span { start, extent } = span.into();
        let scale = extent / new as f64;
        let stretch = scale.max(1.0);
        let reach = filter.reach() * stretch;
        // Room for those that are softened, too.
        let most = max_taps(filter, reach + 1.0, old);
        let row = pool.rent(&Request::new(most * size_of::<f32>()))?;
        let turn = (THIRD_TURN / stretch).sin_cos();
        Ok(Self { filter, old, new, start, scale, stretch, reach, turn, soft: 0.0, row })
    }

    /// The same, of inputs each of which is mixed with that much of its neighbours first, where they become fewer.
    pub fn softened(self, soft: f64) -> Self {
        if soft == 0.0 || self.scale <= 1.0 || self.filter == Filter::Nearest {
            return self;
        }
        // What lies beside the kernel is mixed into its ends.
        Self { soft: soft as f32, reach: self.reach + 1.0, ..self }
    }

    /// The filter.
    pub fn filter(&self) -> Filter {
        self.filter
    }

    /// How many inputs an output is made of, at most.
    pub fn max_taps(&self) -> usize {
        max_taps(self.filter, self.reach, self.old)
    }

    /// How many outputs there are.
    pub fn outputs(&self) -> usize {
        self.new
    }

    /// The inputs that any output is made of.
    pub fn reached(&self) -> Range<usize> {
        match (self.inputs(0), self.inputs(self.new - 1)) {
            (Some(first), Some(last)) => first.start..last.end,
            _ => 0..self.old,
        }
    }

    fn center(&self, output: usize) -> f64 {
        self.start + (output as f64 + 0.5) * self.scale
    }

    /// The inputs that output `output` is made of; `None` when there is no such output.
    #[inline]
    pub fn inputs(&self, output: usize) -> Option<Range<usize>> {
        if output >= self.new {
            return None;
        }
        let center = self.center(output);
        if self.filter == Filter::Nearest {
            let nearest = (center as usize).min(self.old - 1);
            return Some(nearest..nearest + 1);
        }
        let first = ((center - self.reach + 0.5).max(0.0) as usize).min(self.old - 1);
        let end = ((center + self.reach + 0.5) as usize).clamp(first + 1, self.old);
        Some(first..end)
    }

    /// As [`Weights::inputs`], with the weight of each: floats as bytes.
    pub fn of(&mut self, output: usize) -> Option<(Range<usize>, &[[u8; 4]])> {
        let inputs = self.inputs(output)?;
        let (center, stretch) = (self.center(output), self.stretch);
        let weights = &mut self.row.as_mut_slice().as_chunks_mut().0[..inputs.len()];
        let mut sum = 0.0;
        let first = (inputs.start as f64 - center + 0.5) / stretch;
        let kernel = Places::from(self.filter, first, 1.0 / stretch, self.turn);
        for (weight, exact) in weights.iter_mut().zip(kernel) {
            sum += exact;
            *weight = (exact as f32).to_ne_bytes();
        }
        if self.soft > 0.0 {
            soften(weights, self.soft);
        }
        if sum == 0.0 {
            // No sample falls to it: it takes its nearest one.
            weights.fill([0; 4]);
            weights[0] = 1f32.to_ne_bytes();
        } else {
            let share = (1.0 / sum) as f32;
            for weight in &mut *weights {
                *weight = (f32::from_ne_bytes(*weight) * share).to_ne_bytes();
            }
        }
        Some((inputs, weights))
    }
}

/// Makes weights of mixed inputs those of the inputs themselves. The sum stays: what would go to some beyond the
/// picture's ends stays with the last ones.
fn soften(weights: &mut [[u8; 4]], soft: f32) {
    let mut before = weights.first().copied().map_or(0.0, f32::from_ne_bytes);
    for at in 0..weights.len() {
        let own = f32::from_ne_bytes(weights[at]);
        let behind = weights.get(at + 1).copied().map_or(own, f32::from_ne_bytes);
        weights[at] = (own + soft * (before - 2.0 * own + behind)).to_ne_bytes();
        before = own;
    }
}

/// How many whole numbers a stretch of twice `reach` can hold, however it lies; one more for what is rounded.
fn max_taps(filter: Filter, reach: f64, old: usize) -> usize {
    if filter == Filter::Nearest { 1 } else { ((2.0 * reach).ceil() as usize + 1).min(old) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_add_up_and_stay_within_the_image() {
        for filter in Filter::ALL {
            for (old, extent, new) in
                [(1, 1.0, 1), (1, 1.0, 9), (7, 7.0, 7), (9, 8.3, 4), (300, 299.5, 150), (5, 4.1, 200)]
            {
                let mut weights = Weights::new(Pool::global(), filter, old, extent, new).unwrap();
                let (mut before, most) = (0..0, weights.max_taps());
                for row in 0..new {
                    let (rows, weights) = weights.of(row).unwrap();
                    let weights: Vec<f32> = weights.iter().map(|weight| f32::from_ne_bytes(*weight)).collect();
                    assert!(!rows.is_empty() && rows.end <= old, "{filter:?} {old} {new} {row}: {rows:?}");
                    assert!(
                        rows.len() <= most && rows.len() == weights.len(),
                        "{filter:?} {old} {new} {row}: {rows:?}"
                    );
                    assert!(rows.start >= before.start && rows.end >= before.end, "rows go downwards");
                    assert!((weights.iter().sum::<f32>() - 1.0).abs() < 1e-5, "{filter:?} {old} {new} {row}");
                    before = rows;
                }
                assert!(weights.of(new).is_none());
            }
        }
    }

    #[test]
    fn sines_that_are_made_of_each_other_stay_right() {
        for (start, step) in [(-3.2, 0.01), (-3.0, 1.0), (-2.9, 1.0 / 3.0), (-0.5, 0.25), (-0.000_01, 0.000_005)] {
            let turn = (step * THIRD_TURN).sin_cos();
            let places = Places::from(Filter::Lanczos3, start, step, turn).take(700);
            for (number, got) in places.enumerate() {
                let x = start + number as f64 * step;
                let exact = Filter::Lanczos3.kernel(x);
                assert!((got - exact).abs() < 1e-6, "{x}: {got}, not {exact}");
            }
        }
    }

    #[test]
    fn the_same_size_means_the_same_rows() {
        for filter in Filter::ALL {
            let mut weights = Weights::new(Pool::global(), filter, 9, 9.0, 9).unwrap();
            for row in 0..9 {
                let (rows, weights) = weights.of(row).unwrap();
                for (y, &weight) in rows.zip(weights) {
                    let weight = f32::from_ne_bytes(weight);
                    assert!((weight - f32::from(u8::from(y == row))).abs() < 1e-6, "{filter:?} {row} {y} {weight}");
                }
            }
        }
    }

    #[test]
    fn names_lead_back() {
        assert!(Filter::ALL.into_iter().all(|filter| Filter::of_name(filter.name()) == Some(filter)));
        assert_eq!(Filter::of_name("lanczos"), Some(Filter::Lanczos3));
    }

    /// Samples at half the resolution, drawn on straight lines and filtered then, as one filter of the samples.
    #[test]
    fn softened_weights_are_those_of_samples_between_straight_lines() {
        // What has edges, as boxes do, is met less well where they lie between samples.
        let smooth = [(100, 50), (100, 60), (101, 47), (64, 16)];
        let of = |filter: Filter, most: f32, sides: &[(usize, usize)]| {
            sides.iter().map(|&(old, new)| (filter, most, old, new)).collect::<Vec<_>>()
        };
        let all = [
            of(Filter::Lanczos3, 0.012, &smooth),
            of(Filter::Bicubic, 0.014, &smooth),
            of(Filter::Bilinear, 0.04, &smooth),
            of(Filter::Box, 0.016, &[(100, 50), (64, 16)]),
        ];
        for (filter, most, old, new) in all.concat() {
            let weights = |old, extent| Weights::new(Pool::global(), filter, old, extent, new).unwrap();
            let mut soft = weights(old, old as f64).softened(3.0 / 32.0);
            let mut drawn = weights(2 * old, 2.0 * old as f64);
            for row in 0..new {
                let mut exact = vec![0.0; old];
                let (rows, of_drawn) = drawn.of(row).unwrap();
                for (at, weight) in rows.zip(of_drawn) {
                    let (own, far) = (at / 2, if at % 2 == 0 { (at / 2).saturating_sub(1) } else { at / 2 + 1 });
                    exact[own] += 0.75 * f32::from_ne_bytes(*weight);
                    exact[far.min(old - 1)] += 0.25 * f32::from_ne_bytes(*weight);
                }
                let (rows, of_soft) = soft.of(row).unwrap();
                let of_soft: Vec<_> = of_soft.iter().map(|weight| f32::from_ne_bytes(*weight)).collect();
                assert!((of_soft.iter().sum::<f32>() - 1.0).abs() < 1e-5);
                for (at, weight) in rows.zip(of_soft) {
                    let apart = (weight - exact[at]).abs();
                    assert!(apart < most, "{filter:?} {old} {new} {row} {at}: {weight}, not {}", exact[at]);
                }
            }
        }
    }
}
