//! What the targets of the image formats share: small files of a format, changes to them, and what must hold whatever
//! the bytes are: an error or a sound image, within the limits, and all memory back in the pool.
//!
//! An input's first byte says which file is changed (0: none, the input is the file), its second how it is opened.

use gabion_blocks::Pool;
use gabion_image::{Format, Formats, Image, ImageError, Limits, Mode, OpenOptions, Probe, SaveOptions, Subsampling};

/// A pixel more than the largest side of the files that are changed.
const LIMITS: Limits = Limits { max_pixels: 1 << 16, max_bytes: 4 << 20 };

/// Small files of a format, each of another kind.
pub fn files(format: Format) -> Vec<Vec<u8>> {
    if format == Format::Gif {
        return gifs();
    }
    let mut files = Vec::new();
    for (mode, width, height) in
        [(Mode::RGB, 33, 21), (Mode::L, 17, 9), (Mode::RGBA, 12, 20), (Mode::LA, 9, 9), (Mode::CMYK, 24, 17)]
    {
        let image = shaded(mode, width, height);
        for (subsampling, progressive, lossless) in
            [(Subsampling::Full, false, true), (Subsampling::Half, true, false), (Subsampling::Half, false, false)]
        {
            let options = SaveOptions { subsampling, progressive, lossless, ..SaveOptions::default() };
            let mut file = Vec::new();
            if image.encode(format, &options, &mut file).is_ok() {
                files.push(file);
            }
        }
    }
    files
}

fn shaded(mode: Mode, width: u32, height: u32) -> Image {
    let mut image = Image::new(Pool::global(), mode, width, height, &vec![0; mode.channels()]).expect("it is small");
    for y in 0..height {
        for (x, sample) in image.row_mut(y).expect("a row").iter_mut().enumerate() {
            *sample = (x * 3 + y as usize * 7 + x * y as usize % 5) as u8;
        }
    }
    image
}

/// 3 × 2 pixels of four colours, plain and interlaced.
fn gifs() -> Vec<Vec<u8>> {
    let mut gif = b"GIF89a\x03\0\x02\0\x81\0\0\0\0\0\xff\0\0\0\xff\0\0\0\xff".to_vec();
    gif.extend_from_slice(b"\x2c\0\0\0\0\x03\0\x02\0\0\x02\x03\x44\x1a\x05\0\x3b");
    let mut interlaced = gif.clone();
    interlaced[34] |= 0x40;
    vec![gif, interlaced]
}

/// Changes bytes, four bytes of input for each change: where, what, how.
fn change(bytes: &mut Vec<u8>, others: &[Vec<u8>], changes: &[u8]) {
    for change in changes.chunks_exact(4) {
        let at = usize::from(u16::from_le_bytes([change[0], change[1]])) % (bytes.len() + 1);
        let value = change[2];
        match change[3] % 6 {
            0 if at < bytes.len() => bytes[at] = value,
            1 => bytes.insert(at, value),
            2 => bytes.truncate(at),
            3 => {
                let other = &others[usize::from(value) % others.len()];
                bytes.splice(at.., other[at.min(other.len())..].iter().copied());
            }
            4 if at < bytes.len() => drop(bytes.remove(at)),
            5 if at < bytes.len() => bytes[at] ^= 1 << (value % 8),
            _ => {}
        }
    }
}

/// Opens what the input says. With `smaller`, always as a smaller image, so that decoders scale and rows are streamed.
pub fn try_input(format: Format, files: &[Vec<u8>], smaller: bool, input: &[u8]) {
    let [which, how, rest @ ..] = input else { return };
    let bytes = match which {
        0 => rest.to_vec(),
        which => {
            let mut bytes = files[usize::from(*which) % files.len()].clone();
            change(&mut bytes, files, rest);
            bytes
        }
    };
    if Format::of_bytes(&bytes) != Some(format) {
        return;
    }
    let side = 1 + u32::from(how >> 3);
    let options = OpenOptions {
        max_size: (smaller || how & 1 != 0).then_some((side, side)),
        mode: (how & 2 != 0).then_some(Mode::RGB),
        partial: how & 4 != 0,
        limits: LIMITS,
        ..OpenOptions::default()
    };
    let pool = Pool::global();
    let found = Probe::of(&bytes, Formats::ALL, &LIMITS);
    match Image::decode(pool, &bytes, &options) {
        Ok(image) => {
            let found = found.expect("what can be opened can be looked at");
            assert_eq!((Some(found.format), found.frames != Some(0)), (image.format(), true));
            if options.max_size.is_none() {
                assert_eq!(found.size, image.size());
            }
            if options.mode.is_none() {
                assert_eq!(found.mode, image.mode());
            }
            image.validate().expect("every equation holds");
            let (width, height) = image.size();
            assert!(u64::from(width) * u64::from(height) <= LIMITS.max_pixels, "{width} × {height}");
            if options.max_size.is_some() {
                assert!(width <= side && height <= side, "{width} × {height}, {side} asked for");
            }
        }
        Err(ImageError::Io(error)) => panic!("bytes are no file: {error}"),
        Err(_) => {}
    }
    assert_eq!(pool.stats().in_use, 0, "all memory is given back");
}
