//! Filters and their weights.

use std::f64::consts::PI;
use std::ops::Range;

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
            Self::Lanczos3 if x < 3.0 => sinc(x) * sinc(x / 3.0),
            Self::Bicubic | Self::Lanczos3 => 0.0,
        }
    }
}

fn sinc(x: f64) -> f64 {
    if x == 0.0 { 1.0 } else { (x * PI).sin() / (x * PI) }
}

/// What each new row is made of: adjacent old rows, and how much each of them counts.
pub struct Weights {
    taps: Vec<Tap>,
    all: Vec<f32>,
    most: usize,
}

struct Tap {
    first: u32,
    count: u32,
    at: usize,
}

impl Weights {
    /// For `new` rows out of `old` ones that cover `extent` of them: less than `old` when the last is a smaller box.
    ///
    /// Equation: the weights of a row add up to 1.
    pub fn new(filter: Filter, old: usize, extent: f64, new: usize) -> Self {
        let scale = extent / new as f64;
        let stretch = scale.max(1.0);
        let reach = filter.reach() * stretch;
        let mut weights = Self { taps: Vec::with_capacity(new), all: Vec::new(), most: 0 };
        for row in 0..new {
            let center = (row as f64 + 0.5) * scale;
            let (first, end) = if filter == Filter::Nearest {
                let nearest = (center as usize).min(old - 1);
                (nearest, nearest + 1)
            } else {
                let first = ((center - reach + 0.5).max(0.0) as usize).min(old - 1);
                let end = ((center + reach + 0.5) as usize).clamp(first + 1, old);
                (first, end)
            };
            weights.add(first, end, |x| filter.kernel((x as f64 - center + 0.5) / stretch));
        }
        weights
    }

    fn add(&mut self, first: usize, end: usize, weight: impl Fn(usize) -> f64) {
        let at = self.all.len();
        let mut sum = 0.0;
        self.all.extend((first..end).map(|x| {
            let weight = weight(x);
            sum += weight;
            weight as f32
        }));
        let added = &mut self.all[at..];
        if sum == 0.0 {
            // No sample falls to this row: it takes its nearest one.
            added.fill(0.0);
            added[0] = 1.0;
        } else {
            let share = (1.0 / sum) as f32;
            for weight in added {
                *weight *= share;
            }
        }
        self.taps.push(Tap { first: first as u32, count: (end - first) as u32, at });
        self.most = self.most.max(end - first);
    }

    /// The old rows that new row `row` is made of, and their weights.
    pub fn of(&self, row: usize) -> Option<(Range<usize>, &[f32])> {
        let tap = self.taps.get(row)?;
        let (first, count) = (tap.first as usize, tap.count as usize);
        Some((first..first + count, &self.all[tap.at..tap.at + count]))
    }

    /// The most old rows that a new one is made of.
    pub fn most(&self) -> usize {
        self.most
    }
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
                let weights = Weights::new(filter, old, extent, new);
                let mut before = 0..0;
                for row in 0..new {
                    let (rows, weights) = weights.of(row).unwrap();
                    assert!(!rows.is_empty() && rows.end <= old, "{filter:?} {old} {new} {row}: {rows:?}");
                    assert!(rows.start >= before.start && rows.end >= before.end, "rows go downwards");
                    assert!((weights.iter().sum::<f32>() - 1.0).abs() < 1e-5, "{filter:?} {old} {new} {row}");
                    before = rows;
                }
                assert!(weights.of(new).is_none());
            }
        }
    }

    #[test]
    fn the_same_size_means_the_same_rows() {
        for filter in Filter::ALL {
            let weights = Weights::new(filter, 9, 9.0, 9);
            for row in 0..9 {
                let (rows, weights) = weights.of(row).unwrap();
                for (y, &weight) in rows.zip(weights) {
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
}
