//! The widest instructions of this processor.

use pulp::{Arch, Simd, WithSimd};

/// Whether `mozjpeg` uses them, too: it was built where there is an assembler, on x86-64 NASM. It is the fastest way to
/// all that is not planes then, and else the slowest.
pub const JPEG_SIMD: bool = cfg!(jpeg_simd);

/// A loop over samples. `run` is to be `#[inline(always)]`, with all that it calls: what is inlined is compiled for the
/// widest instructions, what is called is not.
pub trait Kernel {
    /// Goes over the samples.
    fn run(self);
}

/// A [`Kernel`] that adds products up. Where the processor multiplies and adds in one step, `FUSED` is true.
pub trait SumKernel {
    /// Goes over the samples, with [`sum_up`].
    fn run<const FUSED: bool>(self);
}

/// `sum + a * b`.
#[inline(always)]
pub fn sum_up<const FUSED: bool>(sum: f32, a: f32, b: f32) -> f32 {
    // Without the instruction, `mul_add` is the call of a function.
    if FUSED { a.mul_add(b, sum) } else { sum + a * b }
}

struct Widest<K>(K);

impl<K: Kernel> WithSimd for Widest<K> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        self.0.run();
    }
}

struct WidestSum<K>(K);

impl<K: SumKernel> WithSimd for WidestSum<K> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        if S::IS_SCALAR { self.0.run::<false>() } else { self.0.run::<true>() }
    }
}

/// As [`simd_dispatch`], for sums of products.
#[inline]
pub fn simd_dispatch_sum(kernel: impl SumKernel) {
    Arch::new().dispatch(WidestSum(kernel));
}

/// Runs `kernel` compiled for what the processor can do, which is found out once: loops over samples are three times as
/// fast with AVX2 as with what every 64-bit x86 has.
#[inline]
pub fn simd_dispatch(kernel: impl Kernel) {
    Arch::new().dispatch(Widest(kernel));
}

/// A sample with a fraction of [`FRACTION`] bits, as bytes.
pub type Fixed6 = [u8; 2];

/// How many bits behind the point a [`Fixed6`] sample has.
pub const FRACTION: u32 = 6;

/// The nearest number with a fraction of [`FRACTION`] bits; of what is no number, the least. What the filters make of
/// bytes is never further beyond them than this lets through.
#[inline(always)]
#[expect(clippy::manual_clamp, reason = "as in `byte`")]
pub fn fixed6(sample: f32) -> Fixed6 {
    // Half as much again as for whole numbers, so that what is below zero stands in the low bits, too.
    const WHOLE: f32 = 12_582_912.0;
    const ONE: f32 = (1 << FRACTION) as f32;
    ((sample.max(-255.0).min(510.0) * ONE + WHOLE).to_bits() as u16).to_ne_bytes()
}

/// The nearest whole number, within a byte; of what is no number, 0. Whole numbers of 23 bits stand in the low bits of
/// a float of this size, so that no conversion is needed, which would not be done for several samples at a time.
#[inline(always)]
#[expect(clippy::manual_clamp, reason = "`clamp` keeps what is no number, which costs a comparison")]
pub fn byte(sample: f32) -> u8 {
    const WHOLE: f32 = 8_388_608.0;
    (sample.max(0.0).min(255.0) + WHOLE).to_bits() as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_the_nearest_whole_numbers() {
        for tenths in -3000..6000i16 {
            let sample = f32::from(tenths) / 10.0;
            let exact = sample.round_ties_even().clamp(0.0, 255.0);
            assert!((f32::from(byte(sample)) - exact).abs() < 0.01, "{sample}");
        }
    }

    #[test]
    fn fixed6_samples_are_the_nearest_fractions() {
        for thousandths in -300_000..600_000i32 {
            let sample = thousandths as f32 / 1000.0;
            let kept = f32::from(i16::from_ne_bytes(fixed6(sample))) / 64.0;
            assert!((kept - sample.clamp(-255.0, 510.0)).abs() <= 0.5001 / 64.0, "{kept} for {sample}");
        }
        assert_eq!(fixed6(f32::NAN), fixed6(-255.0));
    }
}
