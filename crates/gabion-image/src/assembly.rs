//! From the rows of a decoder to an image.

use gabion_blocks::{Buffer, Pool, Request};

use crate::convert::{converter, fixed6_to_rgb, mul_div_255, ycbcr_to_rgb};
use crate::error::Result;
use crate::image::Image;
use crate::mode::Mode;
use crate::resample::{Filter, Job, Layer, Resampling};
use crate::sides::{Layers, Sides};
use crate::simd::{FRACTION, Fixed6, Kernel, simd_dispatch};

/// What stands for samples that are missing.
pub(crate) const GREY: u8 = 128;

/// Takes the rows of all layers, in any order among the layers, and makes an image of them: in its size, in its mode.
pub(crate) struct Assembly {
    image: Image,
    done: u32,
    path: Path,
}

/// Which way rows go.
enum Path {
    /// Straight into the image: size and mode are the same.
    Straight,
    /// Pixels in another size or another mode.
    Pixels { layer: Layer, from: Mode, blended: bool, scratch: Buffer },
    /// Luma and differences. Where any of them keeps a fraction, what does not is `widened` to it.
    Planes { layers: Box<[Layer; 3]>, widened: Option<Buffer>, scratch: Buffer },
    /// Luma alone, for a grey image of a coloured one.
    Luma { layer: Layer },
}

impl Assembly {
    /// For an image of `size` in `mode`.
    ///
    /// # Errors
    /// [`ImageError::Memory`](crate::ImageError::Memory) when the pool has none.
    pub fn new(pool: &Pool, layers: &Layers, size: (u32, u32), mode: Mode, how: Resampling) -> Result<Self> {
        let new = (size.0 as usize, size.1 as usize);
        let image = Image::blank(pool, mode, size.0, size.1)?;
        let scratch = |mode: Mode| pool.rent(&Request::new(new.0 * mode.channels()));
        let path = match layers {
            Layers::Pixels(from, old) if old.size == new && old.is_whole() && *from == mode => Path::Straight,
            Layers::Pixels(from, old) => {
                let job = Job { channels: from.channels(), old: *old, new, how, soft: (0.0, 0.0) };
                let layer = Layer::new(pool, &job)?;
                // A cut that begins inside of a sample mixes it with its neighbour, too.
                let kept = old.is_whole() || old.extent == (new.0 as f64, new.1 as f64) && old.begins_at_sample();
                let scaled = old.seen() != new || !kept;
                let blended = from.has_alpha() && scaled && how.filter != Filter::Nearest;
                Path::Pixels { layer, from: *from, blended, scratch: scratch(*from)? }
            }
            Layers::Planes([luma, ..]) if mode == Mode::L => {
                let job = Job { channels: 1, old: *luma, new, how, soft: (0.0, 0.0) };
                Path::Luma { layer: Layer::new(pool, &job)? }
            }
            Layers::Planes(sizes) => {
                // Samples of the differences that must be made up lie on straight lines between their neighbours.
                let how = |old: Sides| match how.filter {
                    Filter::Lanczos3 | Filter::Bicubic
                        if old.seen().0 <= new.0 && old.seen().1 <= new.1 && old.seen() != new =>
                    {
                        Resampling { filter: Filter::Bilinear, ..how }
                    }
                    _ => how,
                };
                let luma = sizes[0];
                let jobs = sizes.map(|old| Job { channels: 1, old, new, how: how(old), soft: softness(luma, old) });
                let [luma, blue, red] = &jobs;
                // Rounded before their colours are, the differences would be off by half as much again.
                let layer = |job| Layer::new(pool, job).map(Layer::with_fraction);
                let layers = Box::new([layer(luma)?, layer(blue)?, layer(red)?]);
                let any = layers.iter().any(Layer::is_fixed6);
                let widened = any.then(|| pool.rent(&Request::new(3 * new.0 * size_of::<Fixed6>()))).transpose()?;
                Path::Planes { layers, widened, scratch: scratch(Mode::RGB)? }
            }
        };
        Ok(Self { image, done: 0, path })
    }

    /// Takes the next row of `layer`, which `write` puts where it belongs.
    ///
    /// # Errors
    /// What `write` gives; [`ImageError::Setting`](crate::ImageError::Setting) when that layer has no more rows.
    pub fn push_row_with(&mut self, layer: usize, write: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<()> {
        match &mut self.path {
            Path::Straight => {
                if let Some(row) = self.image.row_mut(self.done) {
                    write(row)?;
                    self.done += 1;
                }
                return Ok(());
            }
            Path::Pixels { layer, from, blended, .. } => {
                let (from, blended) = (*from, *blended);
                layer.push_row_with(|row| {
                    write(row)?;
                    if blended {
                        premultiply(from, row);
                    }
                    Ok(())
                })?;
            }
            Path::Planes { layers, .. } => layers[layer].push_row_with(write)?,
            Path::Luma { layer: luma } if layer == 0 => luma.push_row_with(write)?,
            Path::Luma { .. } => {}
        }
        self.put_together()
    }

    /// As [`Assembly::push_row_with`], from a row that lies somewhere already.
    ///
    /// # Errors
    /// As [`Assembly::push_row_with`].
    pub fn push_row(&mut self, layer: usize, row: &[u8]) -> Result<()> {
        match &mut self.path {
            Path::Planes { layers, .. } => layers[layer].push_row(row)?,
            Path::Luma { layer: luma } if layer == 0 => luma.push_row(row)?,
            Path::Luma { .. } => {}
            Path::Pixels { layer, blended: false, .. } => layer.push_row(row)?,
            Path::Pixels { .. } | Path::Straight => {
                return self.push_row_with(layer, |out| {
                    out.copy_from_slice(row);
                    Ok(())
                });
            }
        }
        self.put_together()
    }

    /// Has `write` write all rows at once into the image itself, if they are those of the image and it lies in one
    /// piece. None if not, else whether it did; if it did not, no row came in.
    pub fn push_whole(&mut self, write: impl FnOnce(&mut [u8]) -> bool) -> Option<bool> {
        let mut parts = match self.path {
            Path::Straight if self.done == 0 => self.image.parts_mut(),
            _ => return None,
        };
        let (1, Some(whole)) = (parts.len(), parts.next()) else { return None };
        let written = write(whole);
        drop(parts);
        if written {
            self.done = self.image.height();
        }
        Some(written)
    }

    /// Makes rows of the image of what is ready in all layers.
    fn put_together(&mut self) -> Result<()> {
        let mode = self.image.mode();
        while let Some(row) = self.image.row_mut(self.done) {
            match &mut self.path {
                Path::Straight => return Ok(()),
                Path::Pixels { layer, from, blended, scratch } => {
                    layer.prepare_row()?;
                    let Some(ready) = layer.first() else { return Ok(()) };
                    if *blended {
                        scratch.as_mut_slice().copy_from_slice(ready);
                        unpremultiply(*from, scratch.as_mut_slice());
                        converter(*from, mode)(scratch.as_slice(), row);
                    } else {
                        converter(*from, mode)(ready, row);
                    }
                    layer.pop();
                }
                Path::Planes { layers, widened, scratch } => {
                    let [luma, blue, red] = &mut **layers;
                    // Luma comes first, and the others are seldom complete with it.
                    let all = blue.prepare_row()? && red.prepare_row()? && luma.prepare_row()?;
                    if !all {
                        return Ok(());
                    }
                    if mode == Mode::RGB {
                        color(layers, widened.as_mut(), row);
                    } else {
                        color(layers, widened.as_mut(), scratch.as_mut_slice());
                        converter(Mode::RGB, mode)(scratch.as_slice(), row);
                    }
                    layers.iter_mut().for_each(Layer::pop);
                }
                Path::Luma { layer } => {
                    layer.prepare_row()?;
                    let Some(ready) = layer.first() else { return Ok(()) };
                    row.copy_from_slice(ready);
                    layer.pop();
                }
            }
            self.done += 1;
        }
        Ok(())
    }

    /// Whether all rows of all layers are there.
    pub fn is_complete(&self) -> bool {
        self.done == self.image.height()
    }

    /// Whether any row came in.
    pub fn has_begun(&self) -> bool {
        match &self.path {
            Path::Straight => self.done > 0,
            Path::Pixels { layer, .. } | Path::Luma { layer } => layer.has_begun(),
            Path::Planes { layers, .. } => layers[0].has_begun(),
        }
    }

    /// Takes grey for all rows that are missing.
    ///
    /// # Errors
    /// [`ImageError::Memory`](crate::ImageError::Memory) when the pool has none.
    pub fn complete(&mut self) -> Result<()> {
        while !self.is_complete() {
            // Of several layers the one that is furthest behind, so that little of the others is held.
            let behind = match &self.path {
                Path::Planes { layers, .. } => {
                    let progress = |layer: &usize| layers[*layer].progress();
                    (0..layers.len()).min_by(|a, b| progress(a).total_cmp(&progress(b))).unwrap_or(0)
                }
                _ => 0,
            };
            self.push_row_with(behind, |row| {
                row.fill(GREY);
                Ok(())
            })?;
        }
        Ok(())
    }

    /// The image. Rows that did not come hold whatever their memory held before: see [`Assembly::complete`].
    pub fn into_image(self) -> Image {
        self.image
    }
}

/// How much of each neighbour a sample of a difference is mixed with, across and down. One at half the resolution of
/// `luma` is drawn on straight lines to its neighbours where the picture is seen in its own size, and a smaller picture
/// is to be one of that, no sharper in its colours. So three quarters of a sample go to places a quarter of its width
/// away, and a quarter to those three quarters away: a variance of 3/16, as that of 3/32 for each neighbour.
fn softness(luma: Sides, old: Sides) -> (f64, f64) {
    let side = |luma: f64, own: f64| if (luma / own - 2.0).abs() < 0.1 { 3.0 / 32.0 } else { 0.0 };
    (side(luma.extent.0, old.extent.0), side(luma.extent.1, old.extent.1))
}

/// Makes red, green and blue of the rows that are ready.
fn color(layers: &[Layer; 3], widened: Option<&mut Buffer>, to: &mut [u8]) {
    let [luma, blue, red] = layers.each_ref().map(|layer| layer.first().unwrap_or_default());
    let Some(widened) = widened else { return ycbcr_to_rgb(luma, blue, red, to) };
    let mut rooms = widened.as_mut_slice().as_chunks_mut().0.chunks_exact_mut((to.len() / 3).max(1));
    let [luma, blue, red] = layers.each_ref().map(|layer| {
        let (row, room) = (layer.first().unwrap_or_default(), rooms.next().unwrap_or_default());
        if layer.is_fixed6() { row.as_chunks().0 } else { widen(row, room) }
    });
    fixed6_to_rgb(luma, blue, red, to);
}

/// Bytes as samples with a fraction, of nothing.
fn widen<'a>(row: &[u8], room: &'a mut [Fixed6]) -> &'a [Fixed6] {
    for (fixed6, &byte) in room.iter_mut().zip(row) {
        *fixed6 = (i16::from(byte) << FRACTION).to_ne_bytes();
    }
    room
}

/// Multiplies colours by alpha, so that what cannot be seen does not colour its neighbours.
fn premultiply(mode: Mode, row: &mut [u8]) {
    match mode {
        Mode::LA => row.as_chunks_mut().0.iter_mut().for_each(|[l, a]| *l = mul_div_255(*l, *a)),
        Mode::RGBA => simd_dispatch(Premultiplied(row.as_chunks_mut().0)),
        _ => {}
    }
}

/// Undoes [`premultiply`], as far as rounding allows.
pub(crate) fn unpremultiply(mode: Mode, row: &mut [u8]) {
    match mode {
        Mode::LA => row
            .as_chunks_mut()
            .0
            .iter_mut()
            .for_each(|[l, a]| *l = unpremultiply_channel((*l).into(), (*a).into()) as u8),
        Mode::RGBA => simd_dispatch(Unpremultiplied(row.as_chunks_mut().0)),
        _ => {}
    }
}

/// Pixels as words, red in the lowest byte: so the compiler can work on many of them at a time.
struct Premultiplied<'a>(&'a mut [[u8; 4]]);

impl Kernel for Premultiplied<'_> {
    #[inline(always)]
    fn run(self) {
        const TWO: u32 = 0x00FF_00FF;
        for pixel in self.0 {
            let word = u32::from_le_bytes(*pixel);
            let alpha = word >> 24;
            // As `mul_div_255`: red and blue in two halves of a word, which their products fit.
            let both = (word & TWO) * alpha + 0x0080_0080;
            let both = ((both + ((both >> 8) & TWO)) >> 8) & TWO;
            let green = (word >> 8 & 0xFF) * alpha + 128;
            let green = (green + (green >> 8)) & 0xFF00;
            *pixel = (both | green | alpha << 24).to_le_bytes();
        }
    }
}

struct Unpremultiplied<'a>(&'a mut [[u8; 4]]);

impl Kernel for Unpremultiplied<'_> {
    #[inline(always)]
    fn run(self) {
        for pixel in self.0 {
            let word = u32::from_le_bytes(*pixel);
            let alpha = word >> 24;
            let color = |shift: u32| unpremultiply_channel(word >> shift & 0xFF, alpha) << shift;
            *pixel = (color(0) | color(8) | color(16) | alpha << 24).to_le_bytes();
        }
    }
}

/// `255 · channel / alpha`, rounded, and 255 at most. Floats are exact for this: the numbers are below 2²⁴, and two
/// quotients are farther apart than a float's last digit.
#[inline(always)]
fn unpremultiply_channel(channel: u32, alpha: u32) -> u32 {
    let alpha = alpha.max(1);
    // By way of signed numbers, for which processors have instructions.
    let whole = (channel * 255 + alpha / 2).cast_signed() as f32 / alpha.cast_signed() as f32;
    (whole as i32).min(255).cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alpha_is_multiplied_and_divided_exactly() {
        for alpha in 0..=255u8 {
            for channel in 0..=255u8 {
                let pixel = [channel, 255 - channel, channel / 2, alpha];
                let (mut there, mut back) = (pixel, pixel);
                premultiply(Mode::RGBA, &mut there);
                unpremultiply(Mode::RGBA, &mut back);
                let divided = |channel: u8| {
                    let (whole, alpha) = (u32::from(channel) * 255, u32::from(alpha));
                    ((whole + alpha / 2) / alpha.max(1)).min(255) as u8
                };
                for i in 0..3 {
                    assert_eq!((there[i], back[i]), (mul_div_255(pixel[i], alpha), divided(pixel[i])), "{pixel:?}");
                }
                assert_eq!((there[3], back[3]), (alpha, alpha));
                let mut grey = [channel, alpha];
                unpremultiply(Mode::LA, &mut grey);
                assert_eq!(grey, [divided(channel), alpha]);
            }
        }
    }

    /// The planes were rounded, and what that came to again: colours were off by up to two.
    #[test]
    fn colours_of_planes_are_rounded_once() {
        let pool = crate::tests::pool();
        let made = |planes: [&[u8]; 3], mode: Mode| {
            let sides = planes.map(|plane| Sides::covered(plane.len(), 1));
            let how = Resampling::exact(Filter::Box);
            let mut assembly = Assembly::new(&pool, &Layers::Planes(sides), (2, 1), mode, how).unwrap();
            for (layer, plane) in planes.into_iter().enumerate() {
                assembly.push_row(layer, plane).unwrap();
            }
            assembly.into_image().row(0).unwrap().to_vec()
        };
        let (luma, differences) = ([100, 101, 100, 101], [128, 129, 128, 129]);
        // Luma of 100.5, differences of 0.5: 101.2, 99.97, 101.39.
        let planes = [&luma[..], &differences, &differences];
        assert_eq!(made(planes, Mode::RGB), [101, 100, 101, 101, 100, 101]);
        assert_eq!(made(planes, Mode::RGBA), [101, 100, 101, 255, 101, 100, 101, 255]);
        // Differences that are not filtered, of 0 and of 2: 103.3, 98.38, 104.04.
        let planes = [&luma[..], &[128, 130], &[128, 130]];
        let [[r, g, b], second] = *made(planes, Mode::RGB).as_chunks::<3>().0 else { panic!("two pixels") };
        assert!([r, g, b].iter().all(|sample| (100..=101).contains(sample)), "half of a step");
        assert_eq!(second, [103, 98, 104]);
    }
}
