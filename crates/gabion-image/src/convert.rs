//! From one mode to another.

use crate::error::{ImageError, Result};
use crate::image::Image;
use crate::mode::Mode;
use crate::simd::{FRACTION, Fixed6, Kernel, simd_dispatch};

impl Image {
    /// The image in another mode.
    ///
    /// Grey is ITU-R BT.601 luma, `0.299 R + 0.587 G + 0.114 B`, rounded. Alpha that is new is opaque; alpha that goes
    /// is forgotten, not blended. CMYK is the plain complement without black, and comes back as `(255 − C)(255 − K) /
    /// 255`; for print, use the ICC profiles. A profile of another colour space than the new one is not kept.
    ///
    /// # Errors
    /// [`ImageError::Memory`] when the pool has none.
    pub fn convert(&self, mode: Mode) -> Result<Self> {
        if mode == self.mode() {
            return self.copy();
        }
        let convert = converter(self.mode(), mode);
        let mut image = self.blank_like(mode, self.width(), self.height())?;
        self.rows_into(&mut image, convert);
        Ok(image)
    }

    /// The image in a mode without alpha, as it looks over a `background`: a colour in that mode. An image without
    /// alpha is converted.
    ///
    /// # Errors
    /// [`ImageError::Setting`] for a mode with alpha, and for a colour that has not its channels;
    /// [`ImageError::Memory`] when the pool has none.
    pub fn over(&self, mode: Mode, background: &[u8]) -> Result<Self> {
        if mode.has_alpha() || background.len() != mode.channels() {
            let (given, channels) = (background.len(), mode.channels());
            return Err(ImageError::setting(format!(
                "a background for {mode} has {given} channels: pass a mode without alpha and its channels, {channels}"
            )));
        }
        if !self.mode().has_alpha() {
            return self.convert(mode);
        }
        let mut image = self.blank_like(mode, self.width(), self.height())?;
        match (self.mode() == Mode::LA, background) {
            (true, &[under]) => {
                self.rows_into(&mut image, |from, to| map_pixels(from, to, |[l, a]| [over(l, a, under)]));
            }
            (true, &[r, g, b]) => {
                self.rows_into(&mut image, |from, to| {
                    map_pixels_planar(from, to, |[l, a]| blend([l; 3], a, [r, g, b]));
                });
            }
            (true, &[c, m, y, k]) => self.rows_into(&mut image, |from, to| {
                map_pixels(from, to, |[l, a]| blend([0, 0, 0, 255 - l], a, [c, m, y, k]));
            }),
            (false, &[under]) => self.rows_into(&mut image, |from, to| {
                map_pixels_planar(from, to, |[r, g, b, a]| [over(luma([r, g, b]), a, under)]);
            }),
            (false, &[red, green, blue]) => self.rows_into(&mut image, |from, to| {
                map_pixels_planar(from, to, |[r, g, b, a]| blend([r, g, b], a, [red, green, blue]));
            }),
            (false, &[c, m, y, k]) => self.rows_into(&mut image, |from, to| {
                map_pixels(from, to, |[r, g, b, a]| blend([255 - r, 255 - g, 255 - b, 0], a, [c, m, y, k]));
            }),
            (_, _) => unreachable!("as many channels as a mode without alpha has"),
        }
        Ok(image)
    }

    /// The image without alpha, as it looks on white paper. An image without alpha stays as it is.
    ///
    /// # Errors
    /// [`ImageError::Memory`] when the pool has none.
    pub fn over_white(self) -> Result<Self> {
        match self.mode() {
            Mode::LA => self.over(Mode::L, &[255]),
            Mode::RGBA => self.over(Mode::RGB, &[255; 3]),
            _ => Ok(self),
        }
    }

    /// Converts all rows into those of `image`, which has as many pixels in them; at once, where both lie in one piece.
    fn rows_into(&self, image: &mut Self, convert: impl Fn(&[u8], &mut [u8])) {
        if image.is_contiguous()
            && let (Some(from), Some(to)) = (self.as_contiguous(), image.parts_mut().next())
        {
            convert(from, to);
            return;
        }
        for (to, from) in image.rows_mut().zip(self.rows()) {
            convert(from, to);
        }
    }
}

/// Turns a row of one mode into a row of another.
pub(crate) type Converter = fn(&[u8], &mut [u8]);

/// A channel over what lies `under` it.
#[inline(always)]
fn over(channel: u8, alpha: u8, under: u8) -> u8 {
    div_255(u32::from(channel) * u32::from(alpha) + u32::from(under) * u32::from(255 - alpha))
}

/// A pixel over what lies `under` it.
#[inline(always)]
fn blend<const N: usize>(pixel: [u8; N], alpha: u8, under: [u8; N]) -> [u8; N] {
    std::array::from_fn(|channel| over(pixel[channel], alpha, under[channel]))
}

/// What turns a row of one mode into a row of another.
pub(crate) fn converter(from: Mode, to: Mode) -> Converter {
    use Mode::{CMYK, L, LA, RGB, RGBA};
    match (from, to) {
        (L, LA) => |from, to| map_pixels(from, to, |[l]| [l, 255]),
        (L, RGB) => |from, to| map_pixels_planar(from, to, |[l]| [l; 3]),
        (L, RGBA) => |from, to| map_pixels(from, to, |[l]| [l, l, l, 255]),
        (L, CMYK) => |from, to| map_pixels(from, to, |[l]| [0, 0, 0, 255 - l]),
        (LA, L) => |from, to| map_pixels(from, to, |[l, _]| [l]),
        (LA, RGB) => |from, to| map_pixels_planar(from, to, |[l, _]| [l; 3]),
        (LA, RGBA) => |from, to| map_pixels(from, to, |[l, a]| [l, l, l, a]),
        (LA, CMYK) => |from, to| map_pixels(from, to, |[l, _]| [0, 0, 0, 255 - l]),
        (RGB, L) => |from, to| map_pixels_planar(from, to, |rgb| [luma(rgb)]),
        (RGB, LA) => |from, to| map_pixels_planar(from, to, |rgb| [luma(rgb), 255]),
        (RGB, RGBA) => |from, to| map_pixels(from, to, |[r, g, b]| [r, g, b, 255]),
        (RGB, CMYK) => |from, to| map_pixels_planar(from, to, |[r, g, b]| [255 - r, 255 - g, 255 - b, 0]),
        (RGBA, L) => |from, to| map_pixels(from, to, |[r, g, b, _]| [luma([r, g, b])]),
        (RGBA, LA) => |from, to| map_pixels(from, to, |[r, g, b, a]| [luma([r, g, b]), a]),
        (RGBA, RGB) => |from, to| map_pixels(from, to, |[r, g, b, _]| [r, g, b]),
        (RGBA, CMYK) => |from, to| map_pixels(from, to, |[r, g, b, _]| [255 - r, 255 - g, 255 - b, 0]),
        (CMYK, L) => |from, to| map_pixels(from, to, |cmyk| [luma(cmyk_to_rgb(cmyk))]),
        (CMYK, LA) => |from, to| map_pixels(from, to, |cmyk| [luma(cmyk_to_rgb(cmyk)), 255]),
        (CMYK, RGB) => |from, to| map_pixels(from, to, cmyk_to_rgb),
        (CMYK, RGBA) => |from, to| {
            map_pixels(from, to, |cmyk| {
                let [r, g, b] = cmyk_to_rgb(cmyk);
                [r, g, b, 255]
            });
        },
        (L, L) | (LA, LA) | (RGB, RGB) | (RGBA, RGBA) | (CMYK, CMYK) => |from, to| to.copy_from_slice(from),
    }
}

/// Converts each pixel. `pixel` and what it calls are to be inlined: see [`Kernel`].
pub(crate) fn map_pixels<const N: usize, const M: usize>(
    from: &[u8],
    to: &mut [u8],
    pixel: impl Fn([u8; N]) -> [u8; M],
) {
    simd_dispatch(MapPixels { from: from.as_chunks().0, to: to.as_chunks_mut().0, pixel });
}

/// As [`map_pixels`], for pixels of three bytes that are reckoned with: twice as fast.
fn map_pixels_planar<const N: usize, const M: usize>(from: &[u8], to: &mut [u8], pixel: impl Fn([u8; N]) -> [u8; M]) {
    simd_dispatch(MapPixelsPlanar(MapPixels { from: from.as_chunks().0, to: to.as_chunks_mut().0, pixel }));
}

struct MapPixels<'a, const N: usize, const M: usize, P> {
    from: &'a [[u8; N]],
    to: &'a mut [[u8; M]],
    pixel: P,
}

impl<const N: usize, const M: usize, P: Fn([u8; N]) -> [u8; M]> Kernel for MapPixels<'_, N, M, P> {
    #[inline(always)]
    fn run(self) {
        for (to, from) in self.to.iter_mut().zip(self.from) {
            *to = (self.pixel)(*from);
        }
    }
}

struct MapPixelsPlanar<'a, const N: usize, const M: usize, P>(MapPixels<'a, N, M, P>);

impl<const N: usize, const M: usize, P: Fn([u8; N]) -> [u8; M]> Kernel for MapPixelsPlanar<'_, N, M, P> {
    #[inline(always)]
    #[expect(clippy::needless_range_loop, reason = "of iterators the compiler makes no shuffles")]
    fn run(self) {
        let MapPixels { from, to, pixel } = self.0;
        let (from, from_rest) = from.as_chunks();
        let (to, to_rest) = to.as_chunks_mut();
        for (to, from) in to.iter_mut().zip(from) {
            let planes = deinterleave(from);
            let mut new = [[0; BLOCK]; M];
            for channel in 0..M {
                for at in 0..BLOCK {
                    let mut one = [0; N];
                    for channel in 0..N {
                        one[channel] = planes[channel][at];
                    }
                    new[channel][at] = pixel(one)[channel];
                }
            }
            interleave(&new, to);
        }
        MapPixels { from: from_rest, to: to_rest, pixel }.run();
    }
}

/// How many pixels at a time have their channels apart for a moment: the compiler makes shuffles of whole registers
/// from [`deinterleave`] and [`interleave`], which is up to five times as fast as pixels of three bytes one by one.
pub(crate) const BLOCK: usize = 64;

/// The channels of a block, each by itself.
#[inline(always)]
pub(crate) fn deinterleave<const N: usize>(pixels: &[[u8; N]; BLOCK]) -> [[u8; BLOCK]; N] {
    let mut planes = [[0; BLOCK]; N];
    for at in 0..BLOCK {
        for channel in 0..N {
            planes[channel][at] = pixels[at][channel];
        }
    }
    planes
}

/// A block of channels that lie each by itself.
#[inline(always)]
fn interleave<const N: usize>(planes: &[[u8; BLOCK]; N], pixels: &mut [[u8; N]; BLOCK]) {
    for at in 0..BLOCK {
        for channel in 0..N {
            pixels[at][channel] = planes[channel][at];
        }
    }
}

/// Red and blue in each other's place.
pub(crate) fn swap_red_and_blue(from: &[u8], to: &mut [u8]) {
    simd_dispatch(Swap { from: from.as_chunks().0, to: to.as_chunks_mut().0 });
}

struct Swap<'a> {
    from: &'a [[u8; 3]],
    to: &'a mut [[u8; 3]],
}

impl Kernel for Swap<'_> {
    #[inline(always)]
    fn run(self) {
        let (from, from_rest) = self.from.as_chunks();
        let (to, to_rest) = self.to.as_chunks_mut();
        for (to, from) in to.iter_mut().zip(from) {
            let [r, g, b] = deinterleave(from);
            interleave(&[b, g, r], to);
        }
        for (to, [r, g, b]) in to_rest.iter_mut().zip(from_rest) {
            *to = [*b, *g, *r];
        }
    }
}

/// BT.601 luma in 16 fractional bits, rounded; the weights add up to 65536.
#[inline(always)]
fn luma([r, g, b]: [u8; 3]) -> u8 {
    ((u32::from(r) * 19595 + u32::from(g) * 38470 + u32::from(b) * 7471 + 0x8000) >> 16) as u8
}

#[inline(always)]
fn cmyk_to_rgb([c, m, y, k]: [u8; 4]) -> [u8; 3] {
    [c, m, y].map(|ink| mul_div_255(255 - ink, 255 - k))
}

/// `a · b / 255`, rounded to the nearest, without a division.
#[inline(always)]
pub(crate) fn mul_div_255(a: u8, b: u8) -> u8 {
    div_255(u32::from(a) * u32::from(b))
}

/// `sum / 255`, rounded to the nearest, for sums of up to 255².
#[inline(always)]
fn div_255(sum: u32) -> u8 {
    let sum = sum + 128;
    ((sum + (sum >> 8)) >> 8) as u8
}

/// A row of planes as red, green and blue.
pub(crate) fn ycbcr_to_rgb(luma: &[u8], blue: &[u8], red: &[u8], to: &mut [u8]) {
    simd_dispatch(Colored { planes: [luma, blue, red], to, color: colored });
}

/// As [`ycbcr_to_rgb`], of samples with a fraction: the colours alone are rounded.
pub(crate) fn fixed6_to_rgb(luma: &[Fixed6], blue: &[Fixed6], red: &[Fixed6], to: &mut [u8]) {
    simd_dispatch(Colored { planes: [luma, blue, red], to, color: fixed6_colored });
}

struct Colored<'a, T, C> {
    planes: [&'a [T]; 3],
    to: &'a mut [u8],
    color: C,
}

impl<T: Copy, C: Fn([T; 3]) -> [u8; 3]> Kernel for Colored<'_, T, C> {
    #[inline(always)]
    fn run(self) {
        let [(luma, luma_rest), (blue, blue_rest), (red, red_rest)] =
            self.planes.map(|plane| plane.as_chunks::<BLOCK>());
        let (to, to_rest) = self.to.as_chunks_mut().0.as_chunks_mut();
        for (((to, luma), blue), red) in to.iter_mut().zip(luma).zip(blue).zip(red) {
            let mut planes = [[0; BLOCK]; 3];
            for at in 0..BLOCK {
                [planes[0][at], planes[1][at], planes[2][at]] = (self.color)([luma[at], blue[at], red[at]]);
            }
            interleave(&planes, to);
        }
        for (((to, &y), &cb), &cr) in to_rest.iter_mut().zip(luma_rest).zip(blue_rest).zip(red_rest) {
            *to = (self.color)([y, cb, cr]);
        }
    }
}

/// JFIF's conversion, ITU-R BT.601 at full range, in 14 fractional bits.
#[inline(always)]
fn colored(samples: [u8; 3]) -> [u8; 3] {
    colored_with::<0>(samples.map(i32::from))
}

#[inline(always)]
fn fixed6_colored(samples: [Fixed6; 3]) -> [u8; 3] {
    colored_with::<FRACTION>(samples.map(|sample| i32::from(i16::from_ne_bytes(sample))))
}

/// As [`colored`], of samples with that many bits behind the point.
#[inline(always)]
fn colored_with<const BITS: u32>([y, cb, cr]: [i32; 3]) -> [u8; 3] {
    const R_CR: i32 = 22970; // 1.402
    const G_CB: i32 = 5638; // 0.344136
    const G_CR: i32 = 11700; // 0.714136
    const B_CB: i32 = 29032; // 1.772
    let whole = |value: i32| (value >> (14 + BITS)).clamp(0, 255) as u8;
    let y = (y << 14) + (1 << (13 + BITS));
    let (cb, cr) = (cb - (128 << BITS), cr - (128 << BITS));
    [whole(y + R_CR * cr), whole(y - G_CB * cb - G_CR * cr), whole(y + B_CB * cb)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_are_rounded_quotients() {
        for a in 0..=255u8 {
            for b in 0..=255u8 {
                assert_eq!(u32::from(mul_div_255(a, b)), (u32::from(a) * u32::from(b) * 2 + 255) / 510);
            }
        }
    }

    #[test]
    fn quotients_are_rounded() {
        for sum in 0..=255 * 255 {
            assert_eq!(u32::from(div_255(sum)), (sum * 2 + 255) / 510);
        }
    }

    #[test]
    fn a_background_is_a_colour_of_a_mode_without_alpha() {
        let image = Image::new(&crate::tests::pool(), Mode::RGBA, 1, 1, &[10, 0, 0, 0]).unwrap();
        for mode in Mode::ALL {
            for channels in 0..=5 {
                let refused = image.over(mode, &[7; 5][..channels]);
                if mode.has_alpha() || channels != mode.channels() {
                    assert!(matches!(refused, Err(ImageError::Setting { .. })), "{channels} for {mode}");
                } else {
                    assert_eq!(refused.unwrap().rows().next().unwrap(), &[7; 5][..channels], "{mode}");
                }
            }
        }
        assert_eq!(image.over_white().unwrap().rows().next().unwrap(), [255; 3]);
    }

    #[test]
    fn grey_stays_grey_whichever_way_it_goes() {
        for l in 0..=255u8 {
            assert_eq!(luma([l; 3]), l);
            for mode in [Mode::LA, Mode::RGB, Mode::RGBA, Mode::CMYK] {
                let (mut there, mut back) = (vec![0; mode.channels()], [0]);
                converter(Mode::L, mode)(&[l], &mut there);
                converter(mode, Mode::L)(&there, &mut back);
                assert_eq!(back, [l], "{mode}");
            }
            let mut rgb = [0; 3];
            ycbcr_to_rgb(&[l], &[128], &[128], &mut rgb);
            assert_eq!(rgb, [l; 3]);
        }
    }

    /// As many as make blocks, and a few more.
    #[test]
    fn blocks_of_pixels_are_as_pixels_one_by_one() {
        let modes = [Mode::L, Mode::LA, Mode::RGB, Mode::RGBA, Mode::CMYK];
        for width in [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 5] {
            let bytes: Vec<u8> = (0..4 * width).map(|at| (at * 37 + at * at / 3) as u8).collect();
            for (from, to) in modes.iter().flat_map(|from| modes.map(|to| (*from, to))) {
                let (convert, channels) = (converter(from, to), to.channels());
                let pixels = &bytes[..from.channels() * width];
                let mut row = vec![0; channels * width];
                convert(pixels, &mut row);
                for (x, pixel) in pixels.chunks(from.channels()).enumerate() {
                    let mut alone = vec![0; channels];
                    convert(pixel, &mut alone);
                    assert_eq!(row[x * channels..][..channels], alone, "{from} to {to}, pixel {x} of {width}");
                }
            }
            let (rgb, mut bgr) = (&bytes[..3 * width], vec![0; 3 * width]);
            swap_red_and_blue(rgb, &mut bgr);
            assert!(rgb.chunks(3).zip(bgr.chunks(3)).all(|(rgb, bgr)| [rgb[2], rgb[1], rgb[0]] == *bgr), "{width}");
            let (mut row, planes) = (vec![[0; 3]; width], bytes.chunks(width.max(1)).collect::<Vec<_>>());
            if let [luma, blue, red, _] = *planes {
                ycbcr_to_rgb(luma, blue, red, row.as_flattened_mut());
                for (x, &rgb) in row.iter().enumerate() {
                    assert_eq!(rgb, colored([luma[x], blue[x], red[x]]), "pixel {x} of {width}");
                }
            }
        }
    }

    #[test]
    fn ycbcr_is_within_rounding_of_its_definition() {
        for y in (0..=255u8).step_by(5) {
            for cb in (0..=255u8).step_by(5) {
                for cr in (0..=255u8).step_by(5) {
                    let (l, b, r) = (f64::from(y), f64::from(cb) - 128.0, f64::from(cr) - 128.0);
                    let exact = [l + 1.402 * r, l - 0.344_136 * b - 0.714_136 * r, l + 1.772 * b];
                    let mut rgb = [0; 3];
                    ycbcr_to_rgb(&[y], &[cb], &[cr], &mut rgb);
                    for (exact, got) in exact.iter().zip(rgb) {
                        assert!((exact.clamp(0.0, 255.0) - f64::from(got)).abs() <= 0.51, "{y} {cb} {cr}");
                    }
                }
            }
        }
    }
}
