//! A file's picture: of planes or of pixels, at one of the sizes that the library has.

use gabion_blocks::Pool;

use super::header::{Colors, Frame, Process};
use super::restarts::Spaced;
use super::{planes, scaled};
use crate::assembly::Assembly;
use crate::decode::{Decode, Header};
use crate::error::{ImageError, Result};
use crate::format::Format;
use crate::limits::{Limits, room_beside};
use crate::mode::Mode;
use crate::sides::{Layers, Sides};
use crate::simd::JPEG_SIMD;

pub struct Jpeg<'a> {
    bytes: &'a [u8],
    frame: Frame,
    eighths: u8,
    /// Whether the planes are decoded, at full size.
    planes: bool,
    header: Header,
    limits: Limits,
}

/// Scans that a picture may come in. Encoders make ten or so; each goes over the whole picture, however short it is.
const MOST_SCANS: usize = 200;

/// Bytes of a stored coefficient. A progressive picture must be held as coefficients.
const COEFFICIENT_BYTES: u64 = 2;

impl<'a> Jpeg<'a> {
    pub fn begin(bytes: &'a [u8], limits: &Limits) -> Result<Self> {
        let mut frame = Frame::read(bytes)?;
        let (width, height) = (frame.width, frame.height);
        if height == 0 && width > 0 {
            return Err(ImageError::unsupported(
                Format::Jpeg,
                "JPEG that tells its height after the picture cannot be read",
            ));
        }
        limits.check_size(width, height)?;
        // Each block of the finest plane takes a bit at least, so what is shorter has been cut off, or is a bomb.
        if u64::from(width.div_ceil(8)) * u64::from(height.div_ceil(8)) > bytes.len() as u64 * 8 {
            return Err(ImageError::truncated(Format::Jpeg));
        }
        if frame.scans > MOST_SCANS {
            let text = format!("it has {} scans, {MOST_SCANS} allowed", frame.scans);
            return Err(ImageError::corrupt(Format::Jpeg, text));
        }
        limits.check_bytes(coefficient_bytes(&frame))?;
        let planes =
            matches!(frame.colors, Colors::Grey | Colors::YCbCr) && (frame.suits_planes() || !frame.suits_libjpeg());
        if planes && !frame.suits_libjpeg() && !frame.has_known_widths() {
            let text = "JPEG with a sampling factor of 3, in this size or beside one of 2, cannot be read";
            return Err(ImageError::unsupported(Format::Jpeg, text));
        }
        let metadata = std::mem::take(&mut frame.metadata);
        let header = Header {
            format: Format::Jpeg,
            width,
            height,
            layers: layers(&frame, 8, planes),
            orientation: metadata.orientation(),
            metadata,
        };
        Ok(Self { bytes, frame, eighths: 8, planes, header, limits: *limits })
    }
}

/// What a library takes for the coefficients of a picture that comes in several scans. Others it decodes as they come.
fn coefficient_bytes(frame: &Frame) -> u64 {
    if frame.gathered { frame.samples() * COEFFICIENT_BYTES } else { 0 }
}

/// What comes of the frame at `eighths` of its size, of its planes or of pixels.
fn layers(frame: &Frame, eighths: u8, planes: bool) -> Layers {
    let (width, height) = (frame.width as usize, frame.height as usize);
    let scaled = Sides::part_of((width, height), [(usize::from(eighths), 8); 2]);
    let mode = match frame.colors {
        Colors::Grey => Mode::L,
        Colors::YCbCr if planes => {
            let most = |side: fn(&(usize, usize)) -> usize| frame.sampling.iter().map(side).max().unwrap_or(1);
            let (across, down) = (most(|s| s.0), most(|s| s.1));
            let plane = |index: usize| {
                let (h, v) = frame.sampling[index];
                Sides::part_of((width, height), [(h, across), (v, down)])
            };
            return Layers::Planes([plane(0), plane(1), plane(2)]);
        }
        Colors::YCbCr | Colors::Rgb => Mode::RGB,
        Colors::Cmyk { .. } => Mode::CMYK,
    };
    Layers::Pixels(mode, scaled)
}

impl Jpeg<'_> {
    /// Has the header say what layers come of what was chosen. What `libjpeg` passes over in a header costs no more
    /// than the planes.
    fn update_layers(&mut self) {
        let size = (self.frame.width, self.frame.height);
        self.planes = self.planes && (!self.frame.suits_libjpeg() || planes::takes_header(self.bytes, size));
        self.header.layers = layers(&self.frame, self.eighths, self.planes);
    }
}

impl Decode for Jpeg<'_> {
    fn header(&self) -> &Header {
        &self.header
    }

    fn keep_size(&mut self) {
        self.planes &= !JPEG_SIMD || !self.frame.suits_libjpeg();
        self.update_layers();
    }

    fn shrink(&mut self, least: (f64, f64)) {
        // The other scales are slower than the next of these. Where the planes can be had strip by strip, half the size
        // costs as much as the full one without SIMD, which is better.
        let sequential = self.planes && self.frame.process == Process::Sequential;
        let scales: &[u8] = match self.frame.suits_libjpeg() {
            false if self.planes => &[],
            true if sequential && !JPEG_SIMD => &[1, 2],
            _ => &[1, 2, 4],
        };
        let enough = |eighths: &&u8| {
            let side = |side: u32| f64::from(side) * f64::from(**eighths) / 8.0;
            side(self.frame.width) >= least.0 && side(self.frame.height) >= least.1
        };
        self.eighths = scales.iter().find(enough).copied().unwrap_or(8);
        self.planes &= self.eighths == 8;
        self.update_layers();
    }

    fn drop_colors(&mut self) {
        // Of planes at full size, those of the colours are left lying.
        if let (Colors::YCbCr, &Layers::Pixels(_, sides)) = (self.frame.colors, &self.header.layers) {
            self.header.layers = Layers::Pixels(Mode::L, sides);
        }
    }

    fn beside(&self) -> u64 {
        // The library that gives planes keeps what came of the scans before beside the one at hand.
        coefficient_bytes(&self.frame).saturating_mul(if self.planes { 2 } else { 1 })
    }

    fn rows(&mut self, pool: &Pool, assembly: &mut Assembly, _partial: bool) -> Result<()> {
        let _room = room_beside(pool, self.beside())?;
        if self.planes {
            let size = (self.frame.width, self.frame.height);
            let spaced =
                self.frame.restarts_within_rows.then(|| Spaced::of(self.bytes, pool, &self.limits)).transpose()?;
            let bytes = spaced.as_ref().map_or(self.bytes, Spaced::as_slice);
            return planes::rows(bytes, size, self.frame.sampling.len(), pool, assembly);
        }
        let inverted = self.frame.colors == Colors::Cmyk { inverted: true };
        scaled::rows(self.bytes, self.header.layers.mode(), inverted, self.eighths, assembly)
    }
}
