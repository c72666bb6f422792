//! The first picture of a GIF file.

use std::io::Cursor;

use ::gif::{ColorOutput, DecodeOptions, Decoder, DecodingError, MemoryLimit};
use gabion_blocks::{Pool, Request};

use super::{Decode, Header};
use crate::assembly::{Assembly, GREY};
use crate::error::{ImageError, Result};
use crate::format::Format;
use crate::limits::Limits;
use crate::metadata::Metadata;
use crate::mode::Mode;

pub struct Gif<'a> {
    bytes: &'a [u8],
    limits: Limits,
    decoder: Decoder<Cursor<&'a [u8]>>,
    header: Header,
    place: Place,
    colors: Box<[[u8; 4]; 256]>,
}

/// Where the picture lies on its canvas, in pixels.
struct Place {
    left: usize,
    top: u32,
    width: usize,
    height: u32,
    interlaced: bool,
}

impl Place {
    /// Where a row of the picture is stored: interlaced ones come in four passes.
    fn stored(&self, y: u32) -> u32 {
        let height = self.height;
        match y % 8 {
            _ if !self.interlaced => y,
            0 => y / 8,
            4 => height.div_ceil(8) + y / 8,
            2 | 6 => height.div_ceil(4) + y / 4,
            _ => height.div_ceil(2) + y / 2,
        }
    }
}

impl<'a> Gif<'a> {
    pub fn begin(bytes: &'a [u8], limits: &Limits) -> Result<Self> {
        let mut options = DecodeOptions::new();
        options.set_color_output(ColorOutput::Indexed);
        let bound = limits.max_bytes.max(1).try_into().unwrap_or(std::num::NonZeroU64::MAX);
        options.set_memory_limit(MemoryLimit::Bytes(bound));
        let mut decoder = options.read_info(Cursor::new(bytes)).map_err(fault)?;
        let size = (decoder.width().into(), decoder.height().into());
        limits.check_size(size.0, size.1)?;
        let metadata = Metadata { exif: None, icc: decoder.icc_profile().map(<[u8]>::to_vec) };
        let Some(frame) = decoder.next_frame_info().map_err(fault)? else {
            return Err(ImageError::truncated(Format::Gif));
        };
        // It may claim to be larger than its canvas.
        limits.check_size(frame.width.into(), frame.height.into())?;
        // A code of twelve bits is 4,096 pixels at most, so what is shorter has been cut off, or is a bomb. Said before
        // there is an image for it: memory that is only asked for may cost a huge page in each block.
        if u64::from(frame.width) * u64::from(frame.height) / 2731 > bytes.len() as u64 {
            return Err(ImageError::truncated(Format::Gif));
        }
        let (left, top) = (usize::from(frame.left), frame.top.into());
        let (width, height, interlaced) = (frame.width.into(), frame.height.into(), frame.interlaced);
        let transparent = frame.transparent;
        let place = Place { left, top, width, height, interlaced };
        let covers = (left, top) == (0, 0) && width >= size.0 as usize && height >= size.1;
        // Where nothing can be seen through it, alpha would only be in the way.
        let mode = if covers && transparent.is_none() { Mode::RGB } else { Mode::RGBA };
        let header = Header::of_pixels(Format::Gif, size, mode, metadata);
        let colors = colors(decoder.palette().map_err(fault)?, transparent);
        Ok(Self { bytes, limits: *limits, decoder, header, place, colors })
    }

    /// Reads all of the picture as it is stored, a number of the palette for each pixel. In one piece: where the
    /// library has to put interlaced rows in their order, it gives up at a row that ends within a code.
    fn read(&mut self, pixels: &mut [u8]) -> Result<()> {
        if self.decoder.fill_buffer(pixels).map_err(fault)? { Ok(()) } else { Err(ImageError::truncated(Format::Gif)) }
    }

    /// Reads a damaged picture once more, after it was read over zeros, and says how many pixels come of it. A zero may
    /// be a pixel, too, and is one where it comes over something else.
    fn read_again(&self, pixels: &mut [u8]) -> Result<usize> {
        let behind_last =
            |pixels: &[u8], other: u8| pixels.iter().rposition(|&pixel| pixel != other).map_or(0, |at| at + 1);
        let sure = behind_last(pixels, 0);
        pixels[sure..].fill(1);
        // It ends as it did.
        let _ = Self::begin(self.bytes, &self.limits)?.read(pixels);
        Ok(sure.max(behind_last(pixels, 1)))
    }
}

/// The pixels that the numbers of a palette stand for. What is not in it is grey; the transparent one need not be in
/// it.
fn colors(palette: &[u8], transparent: Option<u8>) -> Box<[[u8; 4]; 256]> {
    let mut colors = Box::new([[GREY, GREY, GREY, 255]; 256]);
    for (color, &[red, green, blue]) in colors.iter_mut().zip(palette.as_chunks::<3>().0) {
        *color = [red, green, blue, 255];
    }
    if let Some(number) = transparent {
        colors[usize::from(number)][3] = 0;
    }
    colors
}

/// How many pictures there are: blocks are passed over, and nothing is decoded. `None` unless the file has its end.
fn frames(file: &[u8]) -> Option<u32> {
    // A flag, and how many bits of a color's number there are, less one.
    let palette = |flags: u8| if flags & 0x80 == 0 { 0 } else { 3 << ((flags & 7) + 1) };
    let mut rest = file.get(13 + palette(*file.get(10)?)..)?;
    let mut frames = 0;
    loop {
        let (kind, behind) = rest.split_first()?;
        rest = match kind {
            // Its place, its palette, and the size of its codes.
            0x2C => {
                frames += 1;
                behind.get(9 + palette(*behind.get(8)?) + 1..)?
            }
            // Of whatever kind.
            0x21 => behind.get(1..)?,
            0x3B => return Some(frames),
            _ => return None,
        };
        loop {
            let (length, behind) = rest.split_first()?;
            rest = behind.get(usize::from(*length)..)?;
            if *length == 0 {
                break;
            }
        }
    }
}

fn fault(error: DecodingError) -> ImageError {
    ImageError::corrupt(Format::Gif, error)
}

impl Decode for Gif<'_> {
    fn header(&self) -> &Header {
        &self.header
    }

    fn frames(&self) -> Option<u32> {
        frames(self.bytes)
    }

    fn beside(&self) -> u64 {
        self.place.width as u64 * u64::from(self.place.height)
    }

    fn rows(&mut self, pool: &Pool, assembly: &mut Assembly, partial: bool) -> Result<()> {
        match self.header.layers.mode() {
            Mode::RGB => self.rows_of::<3>(pool, assembly, partial),
            _ => self.rows_of::<4>(pool, assembly, partial),
        }
    }
}

impl Gif<'_> {
    /// The picture, in pixels of `N` channels. It may cover a part of the canvas; the rest is transparent.
    fn rows_of<const N: usize>(&mut self, pool: &Pool, assembly: &mut Assembly, partial: bool) -> Result<()> {
        let (left, width) = (self.place.left, self.place.width);
        let (top, bottom) = (self.place.top, self.place.top + self.place.height);
        // Of fresh memory, which is zero, a file that gives up early touches little.
        let mut picture = pool.rent(&Request::new(width * self.place.height as usize).clean())?;
        let done = self.read(picture.as_mut_slice());
        let came = match &done {
            Ok(()) => picture.len(),
            Err(_) if partial => self.read_again(picture.as_mut_slice())?,
            Err(_) => return done,
        };
        for y in 0..self.header.height {
            let inside = (top..bottom).contains(&y).then(|| self.place.stored(y - top) as usize * width);
            assembly.push_row_with(0, |out| {
                out.fill(0);
                if let (Some(start), Some(out)) = (inside, out.as_chunks_mut::<N>().0.get_mut(left..)) {
                    let shown = out.len().min(width);
                    let (there, missing) = out[..shown].split_at_mut(came.saturating_sub(start).min(shown));
                    for (out, &number) in there.iter_mut().zip(&picture.as_slice()[start.min(came)..]) {
                        out.copy_from_slice(&self.colors[usize::from(number)][..N]);
                    }
                    missing.fill([GREY; N]);
                }
                Ok(())
            })?;
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use gabion_blocks::{Settings, system};

    use super::*;
    use crate::file::OpenOptions;
    use crate::image::Image;

    /// The rows of a picture in the order in which an interlaced file has them.
    fn passes(height: usize) -> impl Iterator<Item = usize> {
        [(0, 8), (4, 8), (2, 4), (1, 2)].into_iter().flat_map(move |(first, step)| (first..height).step_by(step))
    }

    fn file(width: usize, height: usize, pixel: impl Fn(usize, usize) -> u8, interlaced: bool) -> Vec<u8> {
        let order: Vec<_> = if interlaced { passes(height).collect() } else { (0..height).collect() };
        let pixels: Vec<u8> =
            order.into_iter().flat_map(|y| (0..width).map(move |x| (x, y))).map(|(x, y)| pixel(x, y)).collect();
        let (width, height) = (width as u16, height as u16);
        let mut frame = ::gif::Frame::from_indexed_pixels(width, height, pixels, None);
        frame.interlaced = interlaced;
        let palette: Vec<u8> = (0..=255).flat_map(|grey| [grey, grey, grey]).collect();
        let mut bytes = Vec::new();
        let mut encoder = ::gif::Encoder::new(&mut bytes, width, height, &palette).unwrap();
        encoder.write_frame(&frame).unwrap();
        drop(encoder);
        bytes
    }

    /// What the library itself makes of a file: all pixels, those that do not come grey; nothing without a header.
    fn of_library(file: &[u8]) -> Option<Vec<u8>> {
        let mut options = DecodeOptions::new();
        options.set_color_output(ColorOutput::RGBA);
        let mut decoder = options.read_info(Cursor::new(file)).ok()?;
        decoder.next_frame_info().ok()??;
        let mut pixels = vec![GREY; decoder.buffer_size()];
        let _ = decoder.fill_buffer(&mut pixels);
        // The picture is opaque.
        pixels.chunks_exact(4).map(|pixel| &pixel[..3]).collect::<Vec<_>>().concat().into()
    }

    #[test]
    fn a_picture_has_alpha_where_something_is_seen_through_it() {
        let pool = Pool::new(system(), Settings::default()).unwrap();
        let file = |transparent, (left, width), canvas| {
            let mut frame = ::gif::Frame::from_indexed_pixels(width, 3, vec![7; usize::from(width) * 3], transparent);
            frame.left = left;
            let mut bytes = Vec::new();
            let mut encoder = ::gif::Encoder::new(&mut bytes, canvas, 3, &[90; 30]).unwrap();
            encoder.write_frame(&frame).unwrap();
            encoder.write_frame(&frame).unwrap();
            drop(encoder);
            bytes
        };
        for (transparent, place, canvas, mode, first) in [
            (None, (0, 4), 4, Mode::RGB, &[90, 90, 90][..]),
            (None, (0, 5), 4, Mode::RGB, &[90, 90, 90]),
            (Some(7), (0, 4), 4, Mode::RGBA, &[90, 90, 90, 0]),
            (Some(2), (0, 4), 4, Mode::RGBA, &[90, 90, 90, 255]),
            (None, (0, 3), 4, Mode::RGBA, &[90, 90, 90, 255]),
            (None, (1, 3), 4, Mode::RGBA, &[0, 0, 0, 0]),
        ] {
            let bytes = file(transparent, place, canvas);
            let image = Image::decode(&pool, &bytes, &OpenOptions::default()).unwrap();
            assert_eq!(image.mode(), mode, "{transparent:?} {place:?}");
            assert_eq!(&image.row(0).unwrap()[..first.len()], first, "{transparent:?} {place:?}");
            assert_eq!(frames(&bytes), Some(2));
            assert!((0..bytes.len()).all(|end| frames(&bytes[..end]).is_none()));
        }
    }

    #[test]
    fn numbers_beyond_the_palette_are_grey_or_transparent() {
        let pool = Pool::new(system(), Settings::default()).unwrap();
        for (transparent, pixels) in [
            (Some(7), [[90, 90, 90, 255], [GREY, GREY, GREY, 255], [GREY, GREY, GREY, 0]]),
            (Some(1), [[90, 90, 90, 0], [GREY, GREY, GREY, 255], [GREY, GREY, GREY, 255]]),
        ] {
            let mut bytes = Vec::new();
            let mut encoder = ::gif::Encoder::new(&mut bytes, 3, 1, &[90; 4 * 3]).unwrap();
            encoder.write_frame(&::gif::Frame::from_indexed_pixels(3, 1, vec![1, 6, 7], transparent)).unwrap();
            drop(encoder);
            let image = Image::decode(&pool, &bytes, &OpenOptions::default()).unwrap();
            assert_eq!(image.row(0).unwrap(), pixels.as_flattened(), "{transparent:?}");
        }
    }

    #[test]
    fn of_a_damaged_picture_exactly_what_comes_is_given() {
        let pool = Pool::new(system(), Settings::default()).unwrap();
        let partial = OpenOptions { partial: true, ..OpenOptions::default() };
        let kinds = [
            |_, _| 0,
            |_, _| 1,
            |x: usize, y: usize| ((x / 5 + y) % 2) as u8,
            |x: usize, y: usize| (x * 31 + y * 7 + x * y) as u8,
        ];
        for pixel in kinds {
            let (file, mut given) = (file(40, 30, pixel, false), 0);
            for end in 0..file.len() {
                let part = Image::decode(&pool, &file[..end], &partial).ok();
                let part: Option<Vec<u8>> = part.map(|part| part.rows().flatten().copied().collect());
                assert!(part == of_library(&file[..end]), "{end} of {}", file.len());
                given += usize::from(part.is_some());
            }
            assert!(given > 10, "{given}");
        }
    }

    /// Of one colour most of all: there a code is as long as several rows.
    #[test]
    fn interlaced_pictures_of_all_sizes_are_what_they_are_row_by_row() {
        let pool = Pool::new(system(), Settings::default()).unwrap();
        let open = |bytes: &[u8]| Image::decode(&pool, bytes, &OpenOptions::default());
        for (width, height) in (1..48).flat_map(|width| [1, 2, 3, 4, 5, 8, 9, 16, 23, 31].map(|height| (width, height)))
        {
            for pixel in [|_, _| 0, |x: usize, y: usize| (x / 16 + y * 5) as u8] {
                let plain = open(&file(width, height, pixel, false)).unwrap();
                let interlaced = open(&file(width, height, pixel, true));
                let interlaced = interlaced.unwrap_or_else(|error| panic!("{width} × {height}: {error}"));
                assert!(plain.rows().eq(interlaced.rows()), "{width} × {height}");
            }
        }
    }
}
