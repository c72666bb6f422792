//! What the markers of a JPEG file tell before its first scan.

use crate::error::{ImageError, Result};
use crate::format::Format;
use crate::limits::LIBJPEGS_LONGEST_SIDE;
use crate::metadata::Metadata;

/// How the components of a pixel are to be understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colors {
    Grey,
    YCbCr,
    Rgb,
    /// Cyan, magenta, yellow, black, or their luma form; `inverted`: 255 is no ink, as Adobe writes it.
    Cmyk {
        inverted: bool,
    },
}

/// How the coefficients are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Process {
    Sequential,
    Progressive,
}

#[derive(Debug)]
pub struct Frame {
    pub width: u32,
    pub height: u32,
    pub colors: Colors,
    pub process: Process,
    /// True when the coefficients come in more than one scan, as far as the first of them tells.
    pub gathered: bool,
    /// How many scans there are, at most, where they are gathered.
    pub scans: usize,
    /// Of each component, across and down.
    pub sampling: Vec<(usize, usize)>,
    /// Whether a row of a sequential picture may end between two restarts.
    pub restarts_within_rows: bool,
    pub metadata: Metadata,
}

/// The marker and the length of a segment that tells how many units there are from a restart to the next.
const RESTARTS: [u8; 4] = [0xFF, 0xDD, 0, 4];

const TRUNCATED: &str = "the data ends within the header";

/// What is gathered on the way to the first scan.
#[derive(Default)]
struct Markers {
    frame: Option<(u8, Vec<u8>)>,
    jfif: bool,
    adobe: Option<u8>,
    /// Units from a restart to the next; 0: there are none.
    interval: u16,
    exif: Option<Vec<u8>>,
    /// Parts of the profile: the number of each, from 1 on, and how many it says that there are.
    icc: Vec<(u8, u8, Vec<u8>)>,
}

impl Frame {
    /// How many samples all planes have, of whole blocks.
    pub fn samples(&self) -> u64 {
        let most = |side: fn(&(usize, usize)) -> usize| self.sampling.iter().map(side).max().unwrap_or(1) as u64;
        let (across, down) = (most(|s| s.0), most(|s| s.1));
        let units = u64::from(self.width).div_ceil(across * 8) * u64::from(self.height).div_ceil(down * 8);
        self.sampling.iter().map(|&(h, v)| units * (h * v) as u64 * 64).sum()
    }

    /// Whether `libjpeg` reads it, at full size and scaled: it knows sides up to a limit of its own, and planes that
    /// are a whole part of the finest.
    pub fn suits_libjpeg(&self) -> bool {
        let whole = |side: fn(&(usize, usize)) -> usize| {
            let most = self.sampling.iter().map(side).max().unwrap_or(1);
            self.sampling.iter().all(|factors| most.is_multiple_of(side(factors)))
        };
        self.width.max(self.height) <= LIBJPEGS_LONGEST_SIDE && whole(|s| s.0) && whole(|s| s.1)
    }

    /// Whether `zune-jpeg` reads the planes right: it throws away what is left of a row that ends shortly before a
    /// restart.
    pub fn suits_planes(&self) -> bool {
        !self.restarts_within_rows && self.sampling.iter().all(|factors| factors.0 != 3 && factors.1 != 3)
    }

    /// Whether `zune-jpeg` reads the header: it refuses widths of a third.
    pub fn has_known_widths(&self) -> bool {
        self.sampling.iter().all(|factors| factors.0 != 3)
    }

    /// Whether an interval between restarts is such that rows of a scan end within it. Of a picture that is gathered,
    /// all scans that its components may be in count.
    fn cuts_rows(&self, mut intervals: impl Iterator<Item = u16>) -> bool {
        let most = self.sampling.iter().map(|factors| factors.0).max().unwrap_or(1);
        let units = |across: usize| (self.width as usize * across).div_ceil(most * 8);
        let mut rows = vec![units(if self.sampling.len() == 1 { most } else { 1 })];
        if self.gathered {
            rows.extend(self.sampling.iter().map(|factors| units(factors.0)));
        }
        intervals.any(|every| every > 0 && rows.iter().any(|row| row % usize::from(every) > 0))
    }

    /// Walks over the markers up to the first scan.
    pub fn read(bytes: &[u8]) -> Result<Self> {
        let mut markers = Markers::default();
        let mut rest = bytes.get(2..).unwrap_or_default();
        loop {
            let Some(at) = rest.windows(2).position(|pair| pair[0] == 0xFF && !matches!(pair[1], 0 | 0xFF)) else {
                return Err(ImageError::corrupt(Format::Jpeg, TRUNCATED));
            };
            let marker = rest[at + 1];
            rest = &rest[at + 2..];
            match marker {
                // They have no length, and not all libraries know: what the header says would depend on who reads it.
                0x01 | 0xD0..=0xD8 => {
                    return Err(ImageError::corrupt(Format::Jpeg, "its header has a marker that belongs elsewhere"));
                }
                0xD9 => return Err(ImageError::corrupt(Format::Jpeg, "it ends before its picture begins")),
                0xDA => break,
                _ => {}
            }
            let length = rest.first_chunk().map_or(0, |&two| usize::from(u16::from_be_bytes(two)));
            if length < 2 || length > rest.len() {
                return Err(ImageError::corrupt(Format::Jpeg, TRUNCATED));
            }
            markers.add(marker, &rest[2..length]);
            rest = &rest[length..];
        }
        let interval = markers.interval;
        let mut frame = markers.into_frame()?;
        let together = rest.get(2).map_or(0, |&count| usize::from(count));
        frame.gathered = frame.process == Process::Progressive || together < frame.sampling.len();
        if frame.gathered {
            frame.scans += rest.windows(2).filter(|pair| *pair == [0xFF, 0xDA]).count();
        }
        if frame.process == Process::Sequential {
            // Before later scans it may be set anew.
            let later = if frame.gathered { rest } else { &[] };
            let later = later.windows(6).filter(|bytes| bytes.starts_with(&RESTARTS));
            let later = later.map(|bytes| u16::from_be_bytes([bytes[4], bytes[5]]));
            frame.restarts_within_rows = frame.cuts_rows(later.chain([interval]));
        }
        Ok(frame)
    }
}

impl Markers {
    fn add(&mut self, marker: u8, body: &[u8]) {
        match marker {
            0xC0..=0xC3 | 0xC5..=0xC7 | 0xC9..=0xCB | 0xCD..=0xCF => self.frame = Some((marker, body.to_vec())),
            0xE0 if body.starts_with(b"JFIF\0") => self.jfif = true,
            0xE1 if self.exif.is_none() => self.exif = body.strip_prefix(b"Exif\0\0").map(<[u8]>::to_vec),
            0xE2 => {
                if let Some([number, count, part @ ..]) = body.strip_prefix(b"ICC_PROFILE\0") {
                    self.icc.push((*number, *count, part.to_vec()));
                }
            }
            0xDD => self.interval = body.first_chunk().map_or(0, |&two| u16::from_be_bytes(two)),
            0xEE if body.starts_with(b"Adobe") => self.adobe = body.get(11).copied(),
            _ => {}
        }
    }

    fn into_frame(mut self) -> Result<Frame> {
        let corrupt = |what: &str| ImageError::corrupt(Format::Jpeg, what);
        let (marker, body) = self.frame.take().ok_or_else(|| corrupt("it has no frame header"))?;
        let process = match marker {
            0xC0 | 0xC1 => Process::Sequential,
            0xC2 => Process::Progressive,
            0xC3 => return Err(ImageError::unsupported(Format::Jpeg, "lossless JPEG cannot be read")),
            0xC9..=0xCB => {
                return Err(ImageError::unsupported(Format::Jpeg, "JPEG with arithmetic coding cannot be read"));
            }
            _ => return Err(ImageError::unsupported(Format::Jpeg, "hierarchical JPEG cannot be read")),
        };
        let [precision, h1, h0, w1, w0, count, components @ ..] = body.as_slice() else {
            return Err(corrupt(TRUNCATED));
        };
        if *precision != 8 {
            return Err(ImageError::unsupported(
                Format::Jpeg,
                format!("JPEG of {precision} bits a sample cannot be read"),
            ));
        }
        let components = components.as_chunks::<3>().0.get(..usize::from(*count)).ok_or_else(|| corrupt(TRUNCATED))?;
        let sampling: Vec<_> = components.iter().map(|c| (usize::from(c[1] >> 4), usize::from(c[1] & 15))).collect();
        if sampling.iter().any(|&(across, down)| !(1..=4).contains(&across) || !(1..=4).contains(&down)) {
            return Err(corrupt("its sampling factors are not within 1 to 4"));
        }
        let ids: Vec<u8> = components.iter().map(|c| c[0]).collect();
        Ok(Frame {
            width: u16::from_be_bytes([*w1, *w0]).into(),
            height: u16::from_be_bytes([*h1, *h0]).into(),
            colors: self.colors(&ids)?,
            process,
            gathered: false,
            scans: 1,
            sampling,
            restarts_within_rows: false,
            metadata: Metadata { icc: self.profile(), exif: self.exif },
        })
    }

    /// The profile, if each of its parts is there once, as `libjpeg` has it: of some parts nothing can be made.
    fn profile(&mut self) -> Option<Vec<u8>> {
        self.icc.sort_by_key(|&(number, ..)| number);
        let parts = self.icc.len();
        let whole =
            (1..).zip(&self.icc).all(|(place, part)| usize::from(part.0) == place && usize::from(part.1) == parts);
        let icc: Vec<u8> = self.icc.iter().filter(|_| whole).flat_map(|(.., part)| part).copied().collect();
        (!icc.is_empty()).then_some(icc)
    }

    /// The rules of `libjpeg`: JFIF first, then Adobe's marker, then the names of the components. Adobe's programs
    /// invert inks.
    fn colors(&self, ids: &[u8]) -> Result<Colors> {
        match ids.len() {
            1 => Ok(Colors::Grey),
            3 if self.jfif => Ok(Colors::YCbCr),
            3 if self.adobe == Some(0) => Ok(Colors::Rgb),
            3 if self.adobe.is_none() && ids == b"RGB" => Ok(Colors::Rgb),
            3 => Ok(Colors::YCbCr),
            4 => Ok(Colors::Cmyk { inverted: self.adobe.is_some() }),
            count => Err(ImageError::unsupported(Format::Jpeg, format!("JPEG of {count} components cannot be read"))),
        }
    }
}
