//! `max_bytes`: what is decoded as a whole counts together with the new image.

use std::io::{self, Read};

use gabion_blocks::Pool;

use super::{assert_same, damage, picture, pool, tiff};
use crate::{Format, Image, ImageError, LimitKind, Limits, Metadata, Mode, OpenOptions, SaveOptions};

fn open(pool: &Pool, file: &[u8], max_bytes: u64, options: OpenOptions) -> Result<Image, ImageError> {
    let limits = Limits { max_bytes, ..Limits::default() };
    Image::decode(pool, file, &OpenOptions { limits, ..options })
}

fn saved(image: &Image, format: Format) -> Vec<u8> {
    let mut file = Vec::new();
    image.encode(format, &SaveOptions::default(), &mut file).unwrap();
    file
}

/// A PNG of RGB in Adam7's seven passes, not compressed.
fn interlaced(image: &Image) -> Vec<u8> {
    let (width, height) = image.size();
    let mut rows = Vec::new();
    for (left, top, right, down) in
        [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
    {
        for row in image.rows().skip(top).step_by(down) {
            rows.push(0);
            rows.extend(row.as_chunks::<3>().0.iter().skip(left).step_by(right).flatten());
        }
    }
    let (mut low, mut high) = (1u32, 0u32);
    for byte in &rows {
        low = (low + u32::from(*byte)) % 65_521;
        high = (high + low) % 65_521;
    }
    let length = u16::try_from(rows.len()).unwrap();
    let stored = [&[0x78, 1, 1][..], &length.to_le_bytes(), &(!length).to_le_bytes(), &rows].concat();
    let data = [&stored[..], &(high << 16 | low).to_be_bytes()].concat();
    let header = [&width.to_be_bytes()[..], &height.to_be_bytes(), &[8, 2, 0, 0, 1]].concat();
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    for (name, content) in [(b"IHDR", &header[..]), (b"IDAT", &data), (b"IEND", &[])] {
        let chunk = [&name[..], content].concat();
        file.extend(u32::try_from(content.len()).unwrap().to_be_bytes());
        file.extend(&chunk);
        file.extend(damage::crc32(&chunk).to_be_bytes());
    }
    file
}

fn gif(width: u16, height: u16) -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder = ::gif::Encoder::new(&mut file, width, height, &[0; 3 * 256]).unwrap();
    let pixels: Vec<u8> = (0..u32::from(width) * u32::from(height)).map(|i| (i * 31 / 8) as u8).collect();
    encoder.write_frame(&::gif::Frame::from_indexed_pixels(width, height, pixels, None)).unwrap();
    drop(encoder);
    file
}

#[test]
fn what_is_decoded_as_a_whole_counts_beside_the_new_image() {
    let pool = pool();
    let (width, height) = (80, 60);
    let pixels = u64::from(width * height);
    let image = picture(&pool, Mode::RGB, width, height);
    let png = interlaced(&image);
    assert_same(&open(&pool, &png, u64::MAX, OpenOptions::default()).unwrap(), &image);
    let kind = tiff::Kind { depth: 8, photometric: 1, compression: 1, big: false };
    let strip: Vec<u8> = tiff::samples(width as usize, height as usize, 8).concat();
    // Bytes of a pixel in the new image, and in what is decoded.
    let files = [
        ("interlaced PNG", png, 3, 3),
        ("BMP with a palette", saved(&picture(&pool, Mode::L, width, height), Format::Bmp), 1, 3),
        ("TIFF of one strip", tiff::tiff(kind, (width as usize, height as usize), &[], &[strip]), 1, 1),
        ("GIF", gif(width as u16, height as u16), 3, 1),
    ];
    for (name, file, new, whole) in files {
        let both = (new + whole) * pixels;
        for partial in [false, true] {
            let options = OpenOptions { partial, ..OpenOptions::default() };
            open(&pool, &file, both, options).unwrap_or_else(|error| panic!("{name}: {error}"));
            let error = open(&pool, &file, both - 1, options).unwrap_err();
            assert!(
                matches!(error, ImageError::Limit { kind: LimitKind::Bytes { at_least: false }, asked, .. } if asked == both),
                "{name}: {error}"
            );
            let text =
                format!("the image takes {both} bytes, more than max_bytes={} allows: raise max_bytes", both - 1);
            assert!(error.to_string().starts_with(&text), "{name}: {error}");
        }
        let small = OpenOptions { max_size: Some((8, 6)), ..OpenOptions::default() };
        assert!(open(&pool, &file, (whole * 48 * 100) - 1, small).is_err(), "{name}");
        open(&pool, &file, whole * 48 * 100 + new * 48, small).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

/// What its library takes beside that is gone when rows are handed on.
#[test]
fn a_webp_is_there_twice() {
    let pool = pool();
    let (file, pixels) = (saved(&picture(&pool, Mode::RGB, 256, 256), Format::WebP), 256 * 256);
    assert!((2 * file.len() as u64) < pixels, "{}", file.len());
    open(&pool, &file, 6 * pixels, OpenOptions::default()).unwrap();
    let error = open(&pool, &file, 6 * pixels - 1, OpenOptions::default()).unwrap_err();
    assert!(matches!(error, ImageError::Limit { asked, .. } if asked == 6 * pixels), "{error}");
}

#[test]
fn what_comes_row_by_row_is_the_new_image_alone() {
    let pool = pool();
    let image = picture(&pool, Mode::RGB, 80, 60);
    for format in [Format::Png, Format::Bmp] {
        assert!(open(&pool, &saved(&image, format), 80 * 60 * 3, OpenOptions::default()).is_ok(), "{format}");
    }
}

#[test]
fn a_picture_that_is_to_be_turned_is_there_twice() {
    let pool = pool();
    let mut image = picture(&pool, Mode::RGB, 80, 60);
    // A TIFF structure with one entry: orientation 6.
    let exif = b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0".to_vec();
    *image.metadata_mut() = Metadata { exif: Some(exif), icc: None };
    let (file, once) = (saved(&image, Format::Png), 80 * 60 * 3);
    let lying = OpenOptions { upright: false, ..OpenOptions::default() };
    assert_eq!(open(&pool, &file, once, lying).unwrap().size(), (80, 60));
    assert_eq!(open(&pool, &file, 2 * once, OpenOptions::default()).unwrap().size(), (60, 80));
    let error = open(&pool, &file, 2 * once - 1, OpenOptions::default()).unwrap_err();
    assert!(matches!(error, ImageError::Limit { asked, .. } if asked == 2 * once), "{error}");
}

/// The largest pictures that `max_pixels` allows by default.
#[test]
fn the_default_limits_fit_together() {
    let Limits { max_pixels, max_bytes } = Limits::default();
    for (new, whole) in [(4, 4), (3, 3), (4, 1)] {
        assert!((new + whole) * max_pixels <= max_bytes);
    }
}

/// That many zeros; and how much room there was for what had come.
struct Zeros {
    left: u64,
    came: u64,
    room: u64,
}

impl Zeros {
    fn new(left: u64) -> Self {
        Self { left, came: 0, room: 0 }
    }
}

impl Read for Zeros {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.left.min(out.len() as u64);
        self.room = self.room.max(self.came + out.len() as u64);
        out[..count as usize].fill(0);
        self.left -= count;
        self.came += count;
        Ok(count as usize)
    }
}

#[test]
fn a_stream_of_unknown_length_gets_no_more_room_than_shows_that_it_is_too_long() {
    let most = 5 << 20;
    let limits = Limits { max_bytes: most, ..Limits::default() };
    let options = OpenOptions { limits, ..OpenOptions::default() };
    let pool = pool();
    let mut zeros = Zeros::new(u64::MAX);
    let error = Image::read(&pool, &mut zeros, &options).unwrap_err();
    assert!(
        matches!(error, ImageError::Limit { kind: LimitKind::Bytes { at_least: false }, asked, limit } if asked == most + 1 && limit == most)
    );
    assert_eq!(zeros.room, most + 1);
    // As long as it may be, whether a window ends there or not: no image, but not too long.
    for length in [64 << 10, 4 << 20, most] {
        let limits = Limits { max_bytes: length, ..Limits::default() };
        let options = OpenOptions { limits, ..OpenOptions::default() };
        let error = Image::read(&pool, Zeros::new(length), &options).unwrap_err();
        assert!(matches!(error, ImageError::Unsupported { .. }), "{length}: {error}");
        let error = Image::read(&pool, Zeros::new(length + 1), &options).unwrap_err();
        assert!(matches!(error, ImageError::Limit { .. }), "{length}: {error}");
    }
}

#[test]
fn a_stream_that_says_how_long_it_is_gets_that_much_room_if_it_may_be_so() {
    let pool = pool();
    let room_for = |said: u32, length: u64| {
        let begin = [&b"BM"[..], &said.to_le_bytes()].concat();
        let mut zeros = Zeros::new(length - begin.len() as u64);
        let read = Image::read(&pool, begin.chain(&mut zeros), &OpenOptions::default());
        assert!(matches!(read.unwrap_err(), ImageError::Corrupt { .. }));
        zeros.room + begin.len() as u64
    };
    // What it says, and a byte to see its end.
    assert_eq!(room_for(3 << 20, 3 << 20), (3 << 20) + 1);
    // Cut off, longer than it says, and a claim that nothing speaks for.
    assert_eq!(room_for(3 << 20, 100 << 10), (3 << 20) + 1);
    assert_eq!(room_for(70 << 10, 100 << 10), 4 * ((70 << 10) + 1));
    assert_eq!(room_for(u32::MAX, 100 << 10), 256 << 10);
}
