//! Damaged and hostile files: an error or a picture, and nothing else.

use gabion_blocks::{Pool, Settings, system};

use super::{picture, pool, tiff};
use crate::simd::JPEG_SIMD;
use crate::{Format, Image, ImageError, LimitKind, Limits, Mode, OpenOptions, SaveOptions, Subsampling};

/// A small file of each format, and of each kind of JPEG, with its name.
fn small_files(pool: &Pool) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    for (mode, size) in [(Mode::RGB, (33, 21)), (Mode::L, (17, 9)), (Mode::RGBA, (12, 20)), (Mode::CMYK, (24, 17))] {
        let image = picture(pool, mode, size.0, size.1);
        for format in Format::ALL.into_iter().filter(|format| format.can_write()) {
            for (progressive, lossless) in [(false, false), (true, true)] {
                let subsampling = if lossless { Subsampling::Half } else { Subsampling::Full };
                let options = SaveOptions { subsampling, progressive, lossless, ..SaveOptions::default() };
                let mut bytes = Vec::new();
                if image.encode(format, &options, &mut bytes).is_ok() {
                    files.push((format!("{format} {mode} {progressive}"), bytes));
                }
            }
        }
    }
    files.push(("GIF".into(), gif()));
    for (depth, compression) in [(1, 1), (4, 1), (8, 1), (1, 4)] {
        let kind = tiff::Kind { depth, photometric: if compression == 4 { 0 } else { 3 }, compression, big: false };
        let pixels = tiff::packed(&tiff::samples(9, 5, depth.into()), depth.into());
        // Of a fax: five white rows, and its end.
        let chunk = if compression == 4 { vec![0xF8, 0x00, 0x80, 0x08] } else { pixels };
        files.push((
            format!("TIFF {depth} {compression}"),
            tiff::tiff(kind, (9, 5), &tiff::palette(depth.into()), &[chunk]),
        ));
    }
    files
}

/// 3 × 2 pixels of four colours.
fn gif() -> Vec<u8> {
    let mut bytes = Vec::new();
    let palette = [0, 0, 0, 255, 0, 0, 0, 255, 0, 0, 0, 255];
    let mut encoder = ::gif::Encoder::new(&mut bytes, 3, 2, &palette).unwrap();
    encoder.write_frame(&::gif::Frame::from_indexed_pixels(3, 2, [0, 1, 2, 3, 2, 1], None)).unwrap();
    drop(encoder);
    bytes
}

/// Opens it in every way; what comes is sound.
fn try_all_ways(pool: &Pool, bytes: &[u8], name: &str) -> Vec<Result<Image, ImageError>> {
    // Whatever a header claims, a test of a small file takes little.
    let limits = Limits { max_pixels: 1 << 20, max_bytes: 16 << 20 };
    let plain = OpenOptions { limits, ..OpenOptions::default() };
    let ways = [plain, OpenOptions { partial: true, ..plain }, OpenOptions { max_size: Some((4, 4)), ..plain }];
    ways.map(|options| {
        let result = Image::decode(pool, bytes, &options);
        if let Ok(image) = &result {
            image.validate().unwrap();
        }
        if let Err(ImageError::Io(error)) = &result {
            panic!("{name}: {error}");
        }
        result
    })
    .into()
}

#[test]
fn a_file_may_be_cut_off_at_any_byte() {
    let pool = pool();
    for (name, bytes) in small_files(&pool) {
        assert!(try_all_ways(&pool, &bytes, &name).iter().all(Result::is_ok), "{name}");
        for cut in 0..bytes.len() {
            let results = try_all_ways(&pool, &bytes[..cut], &name);
            // What follows the last row may be missing; before that, it is said.
            if cut < bytes.len() / 2 && !name.starts_with("TIFF") {
                assert!(results[0].is_err(), "{name} cut at {cut} of {}", bytes.len());
            }
        }
    }
    assert_eq!(pool.stats().in_use, 0);
}

#[test]
fn a_bit_may_flip_anywhere() {
    let pool = pool();
    for (name, bytes) in small_files(&pool) {
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            for bit in [0, 3, 7] {
                damaged[at] ^= 1 << bit;
                try_all_ways(&pool, &damaged, &name);
                damaged[at] ^= 1 << bit;
            }
        }
    }
    assert_eq!(pool.stats().in_use, 0);
}

#[test]
fn what_can_be_decoded_is_given_on_request() {
    let pool = pool();
    let image = picture(&pool, Mode::RGB, 200, 160);
    for format in [Format::Jpeg, Format::Png, Format::WebP] {
        let mut bytes = Vec::new();
        image.encode(format, &SaveOptions::default(), &mut bytes).unwrap();
        let half = &bytes[..bytes.len() / 2];
        let error = Image::decode(&pool, half, &OpenOptions::default()).unwrap_err();
        assert!(matches!(error, ImageError::Corrupt { .. }), "{format}: {error}");
        assert!(error.to_string().contains(format.name()), "{error}");
        if format == Format::WebP {
            continue;
        }
        for max_size in [None, Some((50, 50))] {
            let options = OpenOptions { partial: true, max_size, ..OpenOptions::default() };
            let part = Image::decode(&pool, half, &options).unwrap();
            part.validate().unwrap();
            let row = part.row(part.height() / 8).unwrap().to_vec();
            let whole = Image::decode(&pool, &bytes, &OpenOptions { max_size, ..OpenOptions::default() }).unwrap();
            assert_eq!(row, whole.row(part.height() / 8).unwrap(), "{format}: the upper part is there");
            assert!(part.row(part.height() - 1).unwrap().iter().all(|&sample| sample == 128), "the rest is grey");
        }
    }
}

/// Of what is decoded as a whole, too; a bitmap begins with its last row.
#[test]
fn what_a_library_came_to_is_given_on_request() {
    let pool = pool();
    let image = picture(&pool, Mode::RGB, 64, 60);
    let mut bmp = Vec::new();
    image.encode(Format::Bmp, &SaveOptions::default(), &mut bmp).unwrap();
    let partial = OpenOptions { partial: true, ..OpenOptions::default() };
    let part = Image::decode(&pool, &bmp[..bmp.len() / 2], &partial).unwrap();
    assert_eq!(part.row(59), image.row(59));
    assert!(part.row(0).unwrap().iter().all(|&sample| sample == 128));
    let gif = gif();
    let part = Image::decode(&pool, &gif[..gif.len() - 4], &partial).unwrap();
    assert_eq!(part.size(), (3, 2));
    // Nothing of it, and what is no picture yet.
    assert!(Image::decode(&pool, &bmp[..54], &partial).is_err());
    for lossless in [false, true] {
        let mut webp = Vec::new();
        image.encode(Format::WebP, &SaveOptions { lossless, ..SaveOptions::default() }, &mut webp).unwrap();
        assert!(Image::decode(&pool, &webp[..webp.len() / 2], &partial).is_err());
    }
}

/// Headers of each format that claim this size.
fn claims(width: u32, height: u32) -> Vec<(Format, Vec<u8>)> {
    let pool = pool();
    let image = picture(&pool, Mode::RGB, 16, 16);
    let file = |format: Format| {
        let mut bytes = Vec::new();
        let options = SaveOptions { lossless: true, ..SaveOptions::default() };
        image.encode(format, &options, &mut bytes).unwrap();
        bytes
    };
    let mut files = Vec::new();
    let mut png = file(Format::Png);
    png[16..20].copy_from_slice(&width.to_be_bytes());
    png[20..24].copy_from_slice(&height.to_be_bytes());
    let crc = crc32(&png[12..29]).to_be_bytes();
    png[29..33].copy_from_slice(&crc);
    files.push((Format::Png, png));
    let mut bmp = file(Format::Bmp);
    bmp[18..22].copy_from_slice(&width.to_le_bytes());
    bmp[22..26].copy_from_slice(&height.to_le_bytes());
    files.push((Format::Bmp, bmp));
    let (small_width, small_height) = (width.min(0xFFFF) as u16, height.min(0xFFFF) as u16);
    let mut jpeg = file(Format::Jpeg);
    let frame = jpeg.windows(2).position(|pair| pair == [0xFF, 0xC0]).unwrap();
    jpeg[frame + 5..frame + 7].copy_from_slice(&small_height.to_be_bytes());
    jpeg[frame + 7..frame + 9].copy_from_slice(&small_width.to_be_bytes());
    files.push((Format::Jpeg, jpeg));
    let mut gif = gif();
    gif[6..8].copy_from_slice(&small_width.to_le_bytes());
    gif[8..10].copy_from_slice(&small_height.to_le_bytes());
    files.push((Format::Gif, gif));
    let mut tiff = file(Format::Tiff);
    let directory = u32::from_le_bytes(tiff[4..8].try_into().unwrap()) as usize;
    for (entry, value) in [(0, width), (1, height)] {
        let at = directory + 2 + entry * 12;
        assert_eq!(u16::from_le_bytes([tiff[at], tiff[at + 1]]), 256 + entry as u16);
        tiff[at + 8..at + 12].copy_from_slice(&value.to_le_bytes());
    }
    files.push((Format::Tiff, tiff));
    files
}

pub(super) fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ (0xEDB8_8320 & (crc & 1).wrapping_neg()))
    })
}

#[test]
fn a_claim_of_many_pixels_takes_no_memory() {
    let pool = pool();
    for (width, height) in [(0x7FFF_FFFF, 0x7FFF_FFFF), (0x7FFF_FFFF, 1), (1, 0x7FFF_FFFF), (60_000, 60_000)] {
        for (format, bytes) in claims(width, height) {
            let before = pool.stats().mapped;
            let result = Image::decode(&pool, &bytes, &OpenOptions::default());
            // Sides of these have no more than 65,535 pixels; a JPEG may end early, a GIF covers a part of its canvas.
            let small = matches!(format, Format::Jpeg | Format::Gif);
            assert!(result.is_err() || small, "{format} {width} × {height}");
            if width == height {
                let refused = matches!(
                    result,
                    Err(ImageError::Limit { .. } | ImageError::Corrupt { .. } | ImageError::Unsupported { .. })
                );
                assert!(refused, "{format} {width} × {height}: {result:?}");
                assert_eq!(pool.stats().mapped, before, "{format}: nothing was taken");
            }
        }
    }
    let error = Image::decode(&pool, &claims(60_000, 60_000)[0].1, &OpenOptions::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the image has 3600000000 pixels, more than max_pixels=268435456 allows: raise max_pixels if its source is trusted"
    );
}

/// The file is sound, and nobody can raise that limit.
#[test]
fn a_bitmap_may_be_too_wide() {
    let pool = pool();
    for (width, height, fits) in [(65_535, 1, true), (65_536, 1, false), (1, 65_536, false)] {
        let image = Image::new(&pool, Mode::L, width, height, &[7]).unwrap();
        let mut file = Vec::new();
        let saved = image.encode(Format::Bmp, &SaveOptions::default(), &mut file);
        assert_eq!(saved.is_ok(), fits, "{saved:?}");
        if fits {
            assert_eq!(Image::decode(&pool, &file, &OpenOptions::default()).unwrap().size(), (width, height));
        } else {
            let text = format!(
                "BMP holds sides of up to 65535 pixels, not {width} × {height}: make the image smaller, or save it in \
                 another format"
            );
            assert_eq!((saved.unwrap_err().to_string(), file.len()), (text, 0));
            let (_, claim) = claims(width, height).into_iter().find(|(format, _)| *format == Format::Bmp).unwrap();
            let error = Image::decode(&pool, &claim, &OpenOptions::default()).unwrap_err();
            assert!(matches!(error, ImageError::Unsupported { .. }), "{error}");
            let text = format!("BMP of {width} × {height} pixels cannot be read: its sides are 65535 at most; convert");
            assert!(error.to_string().starts_with(&text), "{error}");
        }
    }
}

#[test]
fn a_side_beyond_every_image_is_told_as_that() {
    let pool = pool();
    let image = picture(&pool, Mode::L, 4, 4);
    let error = image.resize(1 << 31, 1, crate::Resampling::default()).unwrap_err();
    let text = "the image has 2147483648 pixels a side, and an image has 2147483647 at most: make it smaller";
    assert_eq!(error.to_string(), text);
}

#[test]
fn a_side_of_no_pixels_is_an_error() {
    let pool = pool();
    for (width, height) in [(0, 0), (0, 16), (16, 0)] {
        for (format, bytes) in claims(width, height) {
            let result = Image::decode(&pool, &bytes, &OpenOptions::default());
            assert!(result.is_err(), "{format} {width} × {height}");
        }
    }
}

/// What encoders take from `malloc` has to be free in the pool while they work.
#[test]
fn what_a_library_takes_to_write_is_within_the_limits_of_the_pool() {
    let image = |pool: &Pool| picture(pool, Mode::RGB, 512, 512);
    let progressive = SaveOptions { progressive: true, ..SaveOptions::default() };
    let lossless = SaveOptions { lossless: true, ..SaveOptions::default() };
    let cases = [
        (Format::WebP, SaveOptions::default(), 32 * 512 * 512),
        (Format::WebP, lossless, 25 * 512 * 512 + (44 << 20)),
        (Format::Jpeg, progressive, if JPEG_SIMD { 6 } else { 9 } * 512 * 512),
    ];
    for (format, options, beside) in cases {
        let pool_of = |bytes: u64| {
            let mut settings = Settings::default();
            settings.total_limit = bytes;
            Pool::new(system(), settings).unwrap()
        };
        let small = pool_of(beside);
        let image_there = image(&small);
        let (held, mut file) = (small.stats().in_use, Vec::new());
        let error = image_there.encode(format, &options, &mut file).unwrap_err();
        assert!(matches!(error, ImageError::Memory(_)), "{format}: {error}");
        assert_eq!((small.stats().in_use, file.len()), (held, 0), "{format}");
        let large = pool_of(beside + (64 << 20));
        image(&large).encode(format, &options, &mut file).unwrap();
        assert!(!file.is_empty(), "{format}");
    }
}

#[test]
fn the_best_codes_of_a_jpeg_change_no_pixel() {
    let image = picture(&pool(), Mode::RGB, 1024, 1024);
    let [plain, optimized] = [false, true].map(|optimized| {
        let (options, mut file) = (SaveOptions { optimized, ..SaveOptions::default() }, Vec::new());
        image.encode(Format::Jpeg, &options, &mut file).unwrap();
        file
    });
    assert!(optimized.len() < plain.len(), "{} {}", optimized.len(), plain.len());
    let open = |file: &[u8]| Image::decode(&super::pool(), file, &OpenOptions::default()).unwrap().to_bytes().unwrap();
    assert_eq!(open(&optimized), open(&plain));
}

/// What decoders take from `malloc` counts as the pool's own memory does.
#[test]
fn what_a_library_takes_for_itself_is_within_the_limits() {
    let (side, pixels) = (512, 512 * 512);
    let image = picture(&pool(), Mode::RGB, side, side);
    let plain = SaveOptions { lossless: true, ..SaveOptions::default() };
    let scans = SaveOptions { progressive: true, ..SaveOptions::default() };
    // The library that gives planes holds them twice.
    let coefficients = if JPEG_SIMD { 3 } else { 6 };
    // Of each pixel: what is decoded, and what the library takes.
    for (format, options, bytes, beside) in [(Format::WebP, plain, 3, 6), (Format::Jpeg, scans, 3, coefficients)] {
        let mut file = Vec::new();
        image.encode(format, &options, &mut file).unwrap();
        let both = (bytes + beside) * pixels + 2 * file.len() as u64;
        let open = |pool: &Pool, max_bytes: u64| {
            let limits = Limits { max_bytes, ..Limits::default() };
            Image::decode(pool, &file, &OpenOptions { limits, ..OpenOptions::default() })
        };
        let pool_of = |bytes: u64| {
            let mut settings = Settings::default();
            settings.total_limit = bytes;
            Pool::new(system(), settings).unwrap()
        };
        assert!(open(&pool(), both).is_ok(), "{format}");
        let error = open(&pool(), beside * pixels - 1).unwrap_err();
        assert!(
            matches!(error, ImageError::Limit { kind: LimitKind::Bytes { at_least: false }, .. }),
            "{format}: {error}"
        );
        let small = pool_of(beside * pixels);
        let error = open(&small, u64::MAX).unwrap_err();
        assert!(matches!(error, ImageError::Memory(_)), "{format}: {error}");
        assert_eq!(small.stats().in_use, 0, "{format}");
        assert!(open(&pool_of(64 << 20), u64::MAX).is_ok(), "{format}");
    }
}

/// Lossy WebP in one piece takes some rows beside the image that it is decoded into.
#[test]
fn a_lossy_webp_is_decoded_where_it_is_to_be() {
    let (side, pixels) = (512, 512 * 512);
    for (mode, bytes) in [(Mode::RGB, 4), (Mode::RGBA, 4 + 9)] {
        let mut file = Vec::new();
        picture(&pool(), mode, side, side).encode(Format::WebP, &SaveOptions::default(), &mut file).unwrap();
        let mut settings = Settings::default();
        settings.total_limit = bytes * pixels + 2 * file.len() as u64;
        let small = Pool::new(system(), settings).unwrap();
        let image = Image::decode(&small, &file, &OpenOptions::default()).unwrap();
        assert_eq!(
            image.to_bytes().unwrap(),
            Image::decode(&pool(), &file, &OpenOptions::default()).unwrap().to_bytes().unwrap()
        );
    }
}

/// A library holds the coefficients of all components as soon as the first scan has not got all of them.
#[test]
fn a_jpeg_whose_only_scan_lacks_components_takes_no_memory_that_is_not_counted() {
    let pool = pool();
    let mut file = Vec::new();
    let options = SaveOptions { subsampling: Subsampling::Full, ..SaveOptions::default() };
    picture(&pool, Mode::RGB, 64, 48).encode(Format::Jpeg, &options, &mut file).unwrap();
    let at = file.windows(2).position(|pair| pair == [0xFF, 0xDA]).unwrap();
    assert_eq!(file[at + 2..at + 5], [0, 12, 3]);
    let scan = [0, 8, 1, file[at + 5], file[at + 6], 0, 63, 0];
    file.splice(at + 2..at + 14, scan);
    let open = |max_bytes: u64| {
        let limits = Limits { max_bytes, ..Limits::default() };
        Image::decode(&pool, &file, &OpenOptions { limits, partial: true, ..OpenOptions::default() })
    };
    let coefficients = 64 * 48 * 3 * 2;
    let error = open(coefficients - 1).unwrap_err();
    assert!(
        matches!(error, ImageError::Limit { kind: LimitKind::Bytes { at_least: false }, asked, .. } if asked == coefficients),
        "{error}"
    );
    open(1 << 20).unwrap();
}

/// The file's header for whoever takes a length behind a restart marker, and another one for whoever does not.
fn two_faced(file: &[u8], (width, height): (u16, u16)) -> Vec<u8> {
    let at = file.windows(2).position(|pair| pair == [0xFF, 0xC2]).unwrap();
    let end = at + 2 + usize::from(u16::from_be_bytes([file[at + 2], file[at + 3]]));
    let (frame, mut other) = (&file[at..end], file[at..end].to_vec());
    other[5..7].copy_from_slice(&height.to_be_bytes());
    other[7..9].copy_from_slice(&width.to_be_bytes());
    let length = |bytes: usize| u16::try_from(bytes + 2).unwrap().to_be_bytes();
    let hidden = [frame, &[0xFF, 0xE5], &length(other.len())].concat();
    [&file[..at], &[0xFF, 0xD0], &length(hidden.len()), &hidden, &other, &file[end..]].concat()
}

#[test]
fn a_jpeg_takes_no_memory_for_a_size_that_only_a_library_sees() {
    let pool = pool();
    let (mut file, options) = (Vec::new(), SaveOptions { progressive: true, ..SaveOptions::default() });
    picture(&pool, Mode::RGB, 64, 48).encode(Format::Jpeg, &options, &mut file).unwrap();
    let file = two_faced(&file, (4096, 4096));
    let error = Image::decode(&pool, &file, &OpenOptions::default()).unwrap_err();
    assert!(error.to_string().contains("a marker that belongs elsewhere"), "{error}");
}
