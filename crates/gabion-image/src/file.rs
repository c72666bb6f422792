//! Files: open, save, thumbnails.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use gabion_blocks::{Buffer, Pool, Request};

use crate::assembly::Assembly;
use crate::decode::{self, Decode};
use crate::encode::SaveOptions;
use crate::error::{ImageError, Result};
use crate::format::{Format, Formats};
use crate::image::Image;
use crate::limits::{LONGEST_SIDE, Limits, pixel_bytes};
use crate::metadata::{Metadata, Orientation};
use crate::mode::Mode;
use crate::resample::Resampling;
use crate::resize::{Fit, fit};
use crate::save::save_atomically;
use crate::sides::CenterCrop;

/// How an image is opened.
#[derive(Debug, Clone, Copy, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a choice of its own")]
pub struct OpenOptions {
    /// No larger than this, width and height as they are seen; the shape stays. [`LONGEST_SIDE`]
    /// leaves a side to the shape. `None`: as large as it is.
    pub max_size: Option<(u32, u32)>,
    /// What becomes of the shape: with [`Fit::Cover`] and [`Fit::Pad`] the image is exactly as large as `max_size`,
    /// both sides of which are to be told. Default: [`Fit::Inside`].
    pub fit: Fit,
    /// In this mode. `None`: the one in the file.
    pub mode: Option<Mode>,
    /// How it gets smaller.
    pub resampling: Resampling,
    /// Lets a JPEG decoder give a smaller picture, when it gets smaller anyway. Several times faster; what is left for
    /// the filter is still `resampling.gap` times as large as the result. Default: true.
    pub scaled: bool,
    /// Turns the picture as its EXIF block says. Default: true.
    pub upright: bool,
    /// Keeps the EXIF block. Default: true.
    pub exif: bool,
    /// Keeps the ICC profile, if it is of the colour space of the mode. Default: true.
    pub profile: bool,
    /// Takes what can be decoded of a damaged file; the rest is grey. A damaged WebP file gives nothing. Default:
    /// false, which makes it an error.
    pub partial: bool,
    /// In which formats it may be. Default: all.
    pub formats: Formats,
    /// How large it may be.
    pub limits: Limits,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            max_size: None,
            fit: Fit::Inside,
            mode: None,
            resampling: Resampling::default(),
            scaled: true,
            upright: true,
            exif: true,
            profile: true,
            partial: false,
            formats: Formats::ALL,
            limits: Limits::default(),
        }
    }
}

impl OpenOptions {
    /// For a picture no larger than this, without the EXIF block of its file, which may tell where and by whom it was
    /// taken. The profile is kept: without it, colours of other spaces than sRGB look different.
    pub fn thumbnail(width: u32, height: u32) -> Self {
        Self { max_size: Some((width, height)), exif: false, ..Self::default() }
    }
}

impl Image {
    /// Reads an image from a file. Its first bytes tell the format, not its name.
    ///
    /// # Errors
    /// [`Io`](crate::ImageError::Io) when it cannot be read, [`Unsupported`](crate::ImageError::Unsupported) when it is
    /// no image that is known here, [`Limit`](crate::ImageError::Limit) when it is too large,
    /// [`Corrupt`](crate::ImageError::Corrupt) when it is damaged or cut off, [`Memory`](crate::ImageError::Memory)
    /// when the pool has none.
    pub fn open(pool: &Pool, path: impl AsRef<Path>, options: &OpenOptions) -> Result<Self> {
        open(pool, path.as_ref(), options)
    }

    /// Reads an image from a reader, up to its end.
    ///
    /// # Errors
    /// As [`Image::open`].
    pub fn read(pool: &Pool, reader: impl Read, options: &OpenOptions) -> Result<Self> {
        Self::decode(pool, read_all(pool, reader, 0, &options.limits)?.as_slice(), options)
    }

    /// Reads an image from the bytes of a file.
    ///
    /// # Errors
    /// As [`Image::open`].
    pub fn decode(pool: &Pool, bytes: &[u8], options: &OpenOptions) -> Result<Self> {
        // The libraries work on memory of malloc's, here and in `encode`.
        pool.note_malloc();
        let mut decoder = decode::begin(bytes, options.formats, &options.limits)?;
        let Plan { size, crop, filled } = plan(&mut *decoder, options)?;
        if options.mode == Some(Mode::L) {
            decoder.drop_colors();
        }
        let header = decoder.header();
        let mode = options.mode.unwrap_or_else(|| header.layers.mode());
        let (format, orientation) = (header.format, header.orientation);
        let pixels = pixel_bytes(mode, size.0, size.1);
        // A picture is turned into another one, when nothing of the decoder is left.
        let turned = if options.upright && orientation != Orientation::Upright { pixels } else { 0 };
        // And laid into another one last of all.
        let laid = filled.map_or(0, |(width, height)| pixel_bytes(mode, width, height));
        options.limits.check_bytes(pixels.saturating_add(decoder.beside().max(turned).max(laid)))?;
        let Metadata { exif, icc } = &header.metadata;
        let exif = exif.as_ref().filter(|_| options.exif);
        let icc = icc.as_ref().filter(|_| options.profile);
        let mut metadata = Metadata { exif: exif.cloned(), icc: icc.cloned() };
        metadata.fit(mode);
        let layers = crop.map(|crop| header.layers.cut(crop));
        let layers = layers.as_ref().unwrap_or(&header.layers);
        let mut assembly = Assembly::new(pool, layers, size, mode, options.resampling)?;
        decode::run(&mut *decoder, pool, &mut assembly, options.partial)?;
        drop(decoder);
        let mut image = assembly.into_image();
        image.set_format(format);
        *image.metadata_mut() = metadata;
        let image = if options.upright { image.upright_by(orientation)? } else { image };
        match filled {
            Some(size) => image.padded(size, options.fit),
            None => Ok(image),
        }
    }

    /// Saves the image to a file; its name tells the format. An earlier file stays whole until the new one is complete;
    /// links stay, pipes and devices are written to: see [`save_atomically`].
    ///
    /// # Errors
    /// As [`Image::encode`] and [`Format::to_write`].
    pub fn save(&self, path: impl AsRef<Path>, options: &SaveOptions) -> Result<()> {
        save(self, path.as_ref(), options)
    }
}

fn open(pool: &Pool, path: &Path, options: &OpenOptions) -> Result<Image> {
    Image::decode(pool, contents_of(pool, path, &options.limits)?.as_slice(), options)
}

pub(crate) fn contents_of(pool: &Pool, path: &Path, limits: &Limits) -> Result<Contents> {
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    read_all(pool, file, length, limits)
}

fn save(image: &Image, path: &Path, options: &SaveOptions) -> Result<()> {
    let format = Format::to_write(path)?;
    save_atomically(path, |out| image.encode(format, options, out))
}

/// What a decoder's rows become.
struct Plan {
    /// The size of the new image, as it lies in the file.
    size: (u32, u32),
    /// The part of the picture that it shows, if not all.
    crop: Option<CenterCrop>,
    /// The size that is filled around it, upright.
    filled: Option<(u32, u32)>,
}

/// The decoder is asked for no more than is needed.
fn plan(decoder: &mut dyn Decode, options: &OpenOptions) -> Result<Plan> {
    let header = decoder.header();
    let size = (header.width, header.height);
    let Some(most) = options.max_size else {
        decoder.keep_size();
        return Ok(Plan { size, crop: None, filled: None });
    };
    let sideways = options.upright && header.orientation.exchanges_sides();
    let stored = if sideways { (most.1, most.0) } else { most };
    if options.fit == Fit::Inside {
        options.limits.check_size(most.0.min(size.0), most.1.min(size.1))?;
    } else if most.0.max(most.1) == LONGEST_SIDE {
        return Err(ImageError::setting("a picture covers or fills a box of two sides: pass both as max_size"));
    } else {
        options.limits.check_size(most.0, most.1)?;
    }
    let crop = (options.fit == Fit::Cover).then(|| CenterCrop::shaped(size, stored));
    let new = if crop.is_some() { stored } else { fit(size, stored) };
    if new == size {
        decoder.keep_size();
    } else {
        // Of a part, the whole is asked for that has it in this size.
        let (across, down) = crop.map_or((1.0, 1.0), |crop| crop.kept);
        let gap = if options.scaled { options.resampling.gap.max(1.0) } else { f64::INFINITY };
        decoder.shrink((f64::from(new.0) * gap / across, f64::from(new.1) * gap / down));
    }
    let crop = crop.filter(|crop| crop.kept != (1.0, 1.0));
    Ok(Plan { size: new, crop, filled: matches!(options.fit, Fit::Pad(_)).then_some(most) })
}

/// How much is asked for at first when nobody knows how much comes.
const FIRST_BYTES: usize = 64 << 10;

/// Up to here it gets four times as much when there is more to come, then twice: each time, what is there is copied.
const FAST_UP_TO: usize = 4 << 20;

/// A file may say that it is so many times as long as what is there of it; beyond that it is not believed.
const BELIEVED: u64 = 1 << 10;

/// All bytes of a reader, in memory of the pool. `expected` is a guess.
fn read_all(pool: &Pool, mut reader: impl Read, expected: u64, limits: &Limits) -> Result<Contents> {
    limits.check_bytes(expected)?;
    // A byte more shows that there is too much.
    let most = usize::try_from(limits.max_bytes).map_or(usize::MAX, |most| most.saturating_add(1));
    // One byte more than expected, so that the end is seen without growing.
    let first = usize::try_from(expected).map_or(FIRST_BYTES, |bytes| (bytes + 1).max(FIRST_BYTES)).min(most);
    let mut buffer = pool.rent(&Request::new(first))?;
    let mut length = 0;
    loop {
        match reader.read(&mut buffer.as_mut_slice()[length..]) {
            Ok(0) => return Ok(Contents { buffer, length }),
            Ok(count) => {
                length += count;
                limits.check_bytes(length as u64)?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
        if length == buffer.len() {
            let mut larger = pool.rent(&Request::new(next_length(buffer.as_slice()).min(most)))?;
            larger.as_mut_slice()[..length].copy_from_slice(buffer.as_slice());
            buffer = larger;
        }
    }
}

/// How much is asked for next, when so much of a file is there and more may come.
fn next_length(begin: &[u8]) -> usize {
    let length = begin.len() as u64;
    let times = if begin.len() <= FAST_UP_TO { 4 } else { 2 };
    let said = Format::length_said(begin).filter(|&said| length <= said && said / BELIEVED <= length);
    // One byte more, so that the end is seen without growing.
    let next = said.map_or(length.saturating_mul(times), |said| said + 1);
    usize::try_from(next).unwrap_or(usize::MAX)
}

/// The bytes of a file.
pub(crate) struct Contents {
    buffer: Buffer,
    length: usize,
}

impl Contents {
    pub fn as_slice(&self) -> &[u8] {
        &self.buffer.as_slice()[..self.length]
    }
}

/// Makes a smaller file of a picture, in one go: decoded no larger than needed, made smaller while it is decoded, saved
/// aside and then given its name. Returns the size of the new picture.
///
/// What the new format does not hold is converted: alpha is laid over white, CMYK becomes RGB.
///
/// # Errors
/// As [`Image::open`] and [`Image::save`].
pub fn thumbnail(
    pool: &Pool,
    source: impl AsRef<Path>,
    target: impl AsRef<Path>,
    open: &OpenOptions,
    save: &SaveOptions,
) -> Result<(u32, u32)> {
    make_thumbnail(pool, source.as_ref(), target.as_ref(), open, save)
}

fn make_thumbnail(
    pool: &Pool,
    source: &Path,
    target: &Path,
    open: &OpenOptions,
    save: &SaveOptions,
) -> Result<(u32, u32)> {
    let format = Format::to_write(target)?;
    let image = Image::open(pool, source, open)?.held_by(format)?;
    save_atomically(target, |out| image.encode(format, save, out))?;
    Ok(image.size())
}

impl Image {
    /// The image in a mode that `format` holds: alpha is laid over white where there can be none, CMYK becomes RGB
    /// where it must.
    ///
    /// # Errors
    /// [`ImageError::Memory`] when the pool has none.
    pub fn held_by(self, format: Format) -> Result<Self> {
        match self.mode() {
            mode if format.holds(mode) => Ok(self),
            mode if mode.has_alpha() => self.over_white(),
            _ => self.convert(Mode::RGB),
        }
    }
}
