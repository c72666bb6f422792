//! What a file says about its picture: EXIF, ICC profile, orientation.

use crate::mode::Mode;

/// What a file says about its picture. Kept when asked for, written when asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Metadata {
    /// The EXIF block, from its TIFF header on.
    pub exif: Option<Vec<u8>>,
    /// The ICC profile. One of another colour space than the image's is neither kept nor written: it would make the
    /// file invalid.
    pub icc: Option<Vec<u8>>,
}

/// What of it goes into a file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Written<'a> {
    pub exif: Option<&'a [u8]>,
    pub icc: Option<&'a [u8]>,
}

/// How a stored picture is to be turned to be seen upright: the eight values of EXIF's orientation tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Orientation {
    /// 1: as it is.
    #[default]
    Upright,
    /// 2: left and right exchanged.
    Mirrored,
    /// 3: turned by 180°.
    Turned180,
    /// 4: top and bottom exchanged.
    Flipped,
    /// 5: rows and columns exchanged.
    Transposed,
    /// 6: to be turned by 90° clockwise.
    Turned90,
    /// 7: rows and columns exchanged along the other diagonal.
    Transversed,
    /// 8: to be turned by 270° clockwise.
    Turned270,
}

const ORIENTATION_TAG: u16 = 0x0112;
const SHORT: u16 = 3;
const LONG: u16 = 4;

impl Orientation {
    /// The orientation of an EXIF block; [`Orientation::Upright`] when it has none, or no sound one.
    pub fn of_exif(exif: &[u8]) -> Self {
        let Some((at, big)) = find_orientation(exif) else { return Self::Upright };
        Self::of_value(short(exif, at, big).unwrap_or(1))
    }

    /// The orientation with this value of EXIF's tag; [`Orientation::Upright`] when there is none.
    pub fn of_value(value: u16) -> Self {
        match value {
            2 => Self::Mirrored,
            3 => Self::Turned180,
            4 => Self::Flipped,
            5 => Self::Transposed,
            6 => Self::Turned90,
            7 => Self::Transversed,
            8 => Self::Turned270,
            _ => Self::Upright,
        }
    }

    /// The value of EXIF's tag.
    pub fn value(self) -> u16 {
        self as u16 + 1
    }

    /// An EXIF block that says this and nothing else, for files that say it in another way. `None` for upright.
    pub(crate) fn as_exif(self) -> Option<Vec<u8>> {
        const BEGIN: &[u8] = b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0";
        let block = [BEGIN, &self.value().to_le_bytes(), &[0; 2 + 4]].concat();
        (self != Self::Upright).then_some(block)
    }

    /// Whether width and height change places.
    pub fn exchanges_sides(self) -> bool {
        matches!(self, Self::Transposed | Self::Turned90 | Self::Transversed | Self::Turned270)
    }
}

impl Metadata {
    /// The orientation that the EXIF block tells.
    pub fn orientation(&self) -> Orientation {
        self.exif.as_deref().map_or(Orientation::Upright, Orientation::of_exif)
    }

    /// Forgets a profile of another colour space than that of `mode`.
    pub fn fit(&mut self, mode: Mode) {
        self.icc.take_if(|icc| !fits(icc, mode));
    }

    /// What can be written beside pixels that are stored in `mode`.
    pub(crate) fn written_with(&self, mode: Mode) -> Written<'_> {
        Written { exif: self.exif.as_deref(), icc: self.icc.as_deref().filter(|icc| fits(icc, mode)) }
    }

    /// Notes that the picture stands upright now.
    pub(crate) fn set_upright(&mut self) {
        if let Some(exif) = &mut self.exif
            && let Some((at, big)) = find_orientation(exif)
            && let Some(value) = exif.get_mut(at..at + 2)
        {
            value.copy_from_slice(&if big { 1u16.to_be_bytes() } else { 1u16.to_le_bytes() });
        }
    }
}

/// Bytes of the header of an ICC profile, and of the number of its tags behind it.
const PROFILE_HEADER: usize = 128 + 4;

/// What is wrong with a profile for pixels of `mode`, as far as its header tells.
pub(crate) fn fault_of_profile(icc: &[u8], mode: Mode) -> Option<String> {
    let bytes = icc.len();
    if bytes < PROFILE_HEADER || icc.get(36..40) != Some(b"acsp") {
        return Some(format!("these {bytes} bytes are no ICC profile: pass the content of a file of type .icc"));
    }
    let said = icc.first_chunk().map_or(0, |said| u32::from_be_bytes(*said));
    if u64::from(said) != bytes as u64 {
        return Some(format!("the ICC profile says that it has {said} bytes, and has {bytes}: pass all of it"));
    }
    if !fits(icc, mode) {
        let space = String::from_utf8_lossy(&icc[16..20]);
        let space = space.trim_end();
        return Some(format!(
            "an ICC profile of the colour space {space} does not fit mode {mode}: convert the image first"
        ));
    }
    None
}

/// An EXIF block without what introduces it in JPEG, and stands before it in files of other formats, too.
pub(crate) fn exif_block(stored: &[u8]) -> &[u8] {
    stored.strip_prefix(b"Exif\0\0").unwrap_or(stored)
}

/// Whether a profile is of the colour space of `mode`. What is no profile fits as well as ever: nobody here can tell.
fn fits(icc: &[u8], mode: Mode) -> bool {
    match icc.get(16..20) {
        Some(b"RGB ") => matches!(mode, Mode::RGB | Mode::RGBA),
        Some(b"GRAY") => matches!(mode, Mode::L | Mode::LA),
        Some(b"CMYK") => mode == Mode::CMYK,
        // Every profile has this word, whatever it is for.
        _ => icc.get(36..40) != Some(b"acsp"),
    }
}

/// Where the orientation's value stands, and whether the block is big-endian.
///
/// Some programs write it as a number of 32 bits, of which the lower half counts.
fn find_orientation(exif: &[u8]) -> Option<(usize, bool)> {
    let (at, kind, big) = find(exif, ORIENTATION_TAG)?;
    let (lower, upper) = if big { (at + 2, at) } else { (at, at + 2) };
    match kind {
        SHORT => Some((at, big)),
        LONG => (short(exif, upper, big)? == 0).then_some((lower, big)),
        _ => None,
    }
}

/// Where the value of a tag stands in the first directory of an EXIF block, or of a TIFF file, which is built alike;
/// and whether it is big-endian. `None` when it is not there, or not as a number of 16 bits.
pub(crate) fn find_short(exif: &[u8], tag: u16) -> Option<(usize, bool)> {
    find(exif, tag).and_then(|(at, kind, big)| (kind == SHORT).then_some((at, big)))
}

/// The same for a value of any type, which comes along.
fn find(exif: &[u8], tag: u16) -> Option<(usize, u16, bool)> {
    let big = match exif.get(..4)? {
        [b'M', b'M', 0, 42] => true,
        [b'I', b'I', 42, 0] => false,
        _ => return None,
    };
    let directory = long(exif, 4, big)? as usize;
    let entries = usize::from(short(exif, directory, big)?);
    for entry in 0..entries {
        let at = directory.checked_add(2 + entry * 12)?;
        if short(exif, at, big)? == tag {
            return Some((at + 8, short(exif, at + 2, big)?, big));
        }
    }
    None
}

pub(crate) fn short(bytes: &[u8], at: usize, big: bool) -> Option<u16> {
    let two = bytes.get(at..at.checked_add(2)?)?.try_into().ok()?;
    Some(if big { u16::from_be_bytes(two) } else { u16::from_le_bytes(two) })
}

fn long(bytes: &[u8], at: usize, big: bool) -> Option<u32> {
    let four = bytes.get(at..at.checked_add(4)?)?.try_into().ok()?;
    Some(if big { u32::from_be_bytes(four) } else { u32::from_le_bytes(four) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An EXIF block with the orientation alone.
    fn exif(big: bool, value: u16) -> Vec<u8> {
        let two = |v: u16| if big { v.to_be_bytes() } else { v.to_le_bytes() };
        let four = |v: u32| if big { v.to_be_bytes() } else { v.to_le_bytes() };
        let mut block = if big { b"MM\0*".to_vec() } else { b"II*\0".to_vec() };
        block.extend(four(8));
        block.extend(two(1));
        block.extend(two(ORIENTATION_TAG));
        block.extend(two(SHORT));
        block.extend(four(1));
        block.extend(two(value));
        block.extend([0, 0]);
        block.extend(four(0));
        block
    }

    #[test]
    fn orientation_is_read_and_set_in_both_byte_orders() {
        for big in [false, true] {
            for value in 1..=8 {
                let mut metadata = Metadata { exif: Some(exif(big, value)), icc: None };
                assert_eq!(metadata.orientation(), Orientation::of_value(value));
                metadata.set_upright();
                assert_eq!(metadata.orientation(), Orientation::Upright);
            }
        }
    }

    #[test]
    fn orientation_may_be_a_number_of_32_bits() {
        for big in [false, true] {
            let mut block = exif(big, 0);
            let (kind, value) = if big { ([0, 4], [0, 0, 0, 6]) } else { ([4, 0], [6, 0, 0, 0]) };
            block[12..14].copy_from_slice(&kind);
            block[18..22].copy_from_slice(&value);
            let mut metadata = Metadata { exif: Some(block.clone()), icc: None };
            assert_eq!(metadata.orientation(), Orientation::Turned90);
            metadata.set_upright();
            assert_eq!(metadata.orientation(), Orientation::Upright);
            // 65542 is no orientation.
            block[if big { 19 } else { 20 }] = 1;
            assert_eq!(Orientation::of_exif(&block), Orientation::Upright);
        }
    }

    #[test]
    fn a_block_says_what_it_was_made_of() {
        for value in 2..=8 {
            let orientation = Orientation::of_value(value);
            assert_eq!((orientation.value(), orientation.as_exif()), (value, Some(exif(false, value))));
        }
        assert_eq!((Orientation::Upright.value(), Orientation::Upright.as_exif()), (1, None));
    }

    #[test]
    fn any_damage_reads_as_upright_or_as_some_orientation() {
        let block = exif(true, 6);
        for cut in 0..block.len() {
            Orientation::of_exif(&block[..cut]);
            for value in [0, 1, 0x7F, 0xFF] {
                let mut damaged = block.clone();
                damaged[cut] = value;
                let mut metadata = Metadata { exif: Some(damaged), icc: None };
                metadata.orientation();
                metadata.set_upright();
            }
        }
    }
}
