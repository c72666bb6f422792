//! What is saved comes back.

use std::fs;

use super::{assert_same, picture, pool, psnr};
use crate::{
    Compression, Format, Image, ImageError, LimitKind, Limits, Metadata, Mode, OpenOptions, Orientation, SaveOptions,
    Subsampling, thumbnail,
};

/// The mode in which an image of `mode` comes back; `None` when the format does not hold it.
fn comes_back(format: Format, mode: Mode) -> Option<Mode> {
    Some(match (format, mode) {
        (Format::Jpeg, Mode::LA | Mode::RGBA) | (Format::Png | Format::WebP | Format::Bmp, Mode::CMYK) => return None,
        (Format::WebP, Mode::L) => Mode::RGB,
        (Format::WebP | Format::Bmp, Mode::LA) => Mode::RGBA,
        (_, mode) => mode,
    })
}

fn encoded(image: &Image, format: Format, options: &SaveOptions) -> Vec<u8> {
    let mut bytes = Vec::new();
    image.encode(format, options, &mut bytes).unwrap();
    bytes
}

#[test]
fn every_mode_comes_back_from_every_format() {
    let pool = pool();
    let options = SaveOptions { quality: 95, lossless: true, subsampling: Subsampling::Full, ..SaveOptions::default() };
    for format in Format::ALL.into_iter().filter(|format| format.can_write()) {
        for mode in Mode::ALL {
            for (width, height) in [(1, 1), (3, 5), (64, 48), (131, 97)] {
                let image = picture(&pool, mode, width, height);
                let Some(back_mode) = comes_back(format, mode) else {
                    let mut bytes = Vec::new();
                    let refused = image.encode(format, &options, &mut bytes);
                    assert!(matches!(refused, Err(ImageError::Setting { .. })) && bytes.is_empty());
                    encoded(&image.held_by(format).unwrap(), format, &options);
                    continue;
                };
                let bytes = encoded(&image, format, &options);
                let back = Image::decode(&pool, &bytes, &OpenOptions::default()).unwrap();
                back.validate().unwrap();
                assert_eq!((back.format(), back.mode()), (Some(format), back_mode), "{format} {mode}");
                let wanted = image.convert(back_mode).unwrap();
                if format == Format::Jpeg {
                    assert!(psnr(&back, &wanted) > 34.0, "{mode} {width} {height}: {}", psnr(&back, &wanted));
                } else {
                    assert_same(&back, &wanted);
                }
            }
        }
    }
    assert!(pool.validate().is_ok() && pool.stats().in_use == 0, "nothing is kept");
}

#[test]
fn every_setting_gives_a_file_that_can_be_read() {
    let pool = pool();
    let image = picture(&pool, Mode::RGB, 90, 70);
    for subsampling in [Subsampling::Full, Subsampling::HalfWidth, Subsampling::Half] {
        for (progressive, optimized) in [(false, false), (true, false), (false, true)] {
            let options = SaveOptions { quality: 92, subsampling, progressive, optimized, ..SaveOptions::default() };
            let bytes = encoded(&image, Format::Jpeg, &options);
            let back = Image::decode(&pool, &bytes, &OpenOptions::default()).unwrap();
            assert!(psnr(&back, &image) > 28.0, "{subsampling:?} {progressive} {}", psnr(&back, &image));
        }
    }
    for compression in [Compression::None, Compression::Fast, Compression::Balanced, Compression::Small] {
        for format in [Format::Png, Format::Tiff] {
            let bytes = encoded(&image, format, &SaveOptions { compression, ..SaveOptions::default() });
            assert_same(&Image::decode(&pool, &bytes, &OpenOptions::default()).unwrap(), &image);
        }
    }
    for quality in [0, 101] {
        let mut out = Vec::new();
        let refused = image.encode(Format::Jpeg, &SaveOptions { quality, ..SaveOptions::default() }, &mut out);
        assert!(matches!(refused, Err(ImageError::Setting { .. })));
    }
}

#[test]
fn metadata_is_kept_when_asked_for() {
    let pool = pool();
    let mut image = picture(&pool, Mode::RGB, 40, 30);
    let icc: Vec<u8> = (0..70_001u32).map(|i| (i * 7 % 251) as u8).collect();
    let exif = b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0".to_vec();
    *image.metadata_mut() = Metadata { exif: Some(exif.clone()), icc: Some(icc.clone()) };
    for format in [Format::Jpeg, Format::Png, Format::WebP] {
        let bytes = encoded(&image, format, &SaveOptions { lossless: true, ..SaveOptions::default() });
        let as_stored = OpenOptions { upright: false, ..OpenOptions::default() };
        let back = Image::decode(&pool, &bytes, &as_stored).unwrap();
        assert_eq!(back.metadata().exif.as_ref(), Some(&exif), "{format}");
        assert_eq!(back.metadata().icc.as_ref(), Some(&icc), "{format}");
        assert_eq!(back.size(), (40, 30));
        let upright = Image::decode(&pool, &bytes, &OpenOptions::default()).unwrap();
        assert_eq!(upright.size(), (30, 40));
        assert_eq!(upright.metadata().orientation(), crate::Orientation::Upright, "it is not turned twice");
        let none = OpenOptions { exif: false, profile: false, ..OpenOptions::default() };
        let bare = Image::decode(&pool, &bytes, &none).unwrap();
        assert_eq!((bare.metadata(), bare.size()), (&Metadata::default(), (30, 40)));
        let without = encoded(&image, format, &SaveOptions { exif: false, profile: false, ..SaveOptions::default() });
        assert_eq!(Image::decode(&pool, &without, &OpenOptions::default()).unwrap().metadata(), &Metadata::default());
    }
    let bytes = encoded(&image, Format::Tiff, &SaveOptions::default());
    assert_eq!(Image::decode(&pool, &bytes, &OpenOptions::default()).unwrap().metadata().icc, Some(icc));
}

/// Other formats have room for it, and what comes from them may be saved as JPEG.
/// A picture that is to be turned.
fn turned(pool: &gabion_blocks::Pool, prefix: &[u8]) -> Image {
    let mut image = picture(pool, Mode::RGB, 30, 20);
    image.metadata_mut().exif = Orientation::Turned90.as_exif().map(|block| [prefix, &block].concat());
    image
}

#[test]
fn an_exif_block_may_be_introduced_as_in_jpeg() {
    let pool = pool();
    for format in [Format::Png, Format::WebP] {
        let [plain, introduced] = [&b""[..], b"Exif\0\0"].map(|prefix| {
            let file = encoded(&turned(&pool, prefix), format, &SaveOptions::default());
            Image::decode(&pool, &file, &OpenOptions::default()).unwrap()
        });
        assert_eq!((introduced.size(), introduced.metadata()), ((20, 30), plain.metadata()), "{format}");
        let file = encoded(&introduced, Format::Jpeg, &SaveOptions::default());
        assert_eq!(file.windows(6).filter(|&bytes| bytes == b"Exif\0\0").count(), 1, "{format}");
    }
}

#[test]
fn an_exif_block_may_stand_behind_the_pixels() {
    let pool = pool();
    let mut file = encoded(&turned(&pool, b""), Format::Png, &SaveOptions::default());
    let open = |file: &[u8]| Image::decode(&pool, file, &OpenOptions { partial: true, ..OpenOptions::default() });
    let before = open(&file).unwrap();
    let at = file.windows(4).position(|name| name == b"eXIf").unwrap() - 4;
    let length = 12 + usize::from(file[at + 3]);
    let chunk: Vec<u8> = file.drain(at..at + length).collect();
    assert_eq!(open(&file).unwrap().size(), (30, 20), "there is none");
    let at = file.len() - 12;
    file.splice(at..at, chunk);
    let after = open(&file).unwrap();
    assert_eq!((after.size(), after.metadata()), ((20, 30), before.metadata()));
    assert_same(&after, &before);
    for cut in at - 20..file.len() {
        let whole = cut >= at + length - 4;
        assert_eq!(open(&file[..cut]).unwrap().size(), if whole { (20, 30) } else { (30, 20) }, "cut at {cut}");
    }
    for byte in 0..4 {
        let mut file = file.clone();
        file[at + byte] = 0xFF;
        assert_eq!(open(&file).unwrap().size(), (30, 20), "a length beyond the end");
    }
}

#[test]
fn an_exif_block_may_be_too_long_for_jpeg() {
    let pool = pool();
    let mut image = picture(&pool, Mode::RGB, 8, 8);
    for (length, fits) in [(65_527, true), (65_528, false)] {
        image.metadata_mut().exif = Some(vec![7; length]);
        let mut bytes = Vec::new();
        let saved = image.encode(Format::Jpeg, &SaveOptions::default(), &mut bytes);
        assert_eq!((saved.is_ok(), bytes.is_empty()), (fits, !fits), "{saved:?}");
        if fits {
            let back = Image::decode(&pool, &bytes, &OpenOptions::default()).unwrap();
            assert_eq!(back.metadata().exif, image.metadata().exif);
        } else {
            assert!(matches!(saved, Err(ImageError::Setting { .. })), "{saved:?}");
            encoded(&image, Format::Jpeg, &SaveOptions { exif: false, profile: false, ..SaveOptions::default() });
            encoded(&image, Format::Png, &SaveOptions::default());
        }
    }
}

#[test]
fn a_thumbnail_is_made_from_file_to_file() {
    let (pool, folder) = (pool(), tempfile::tempdir().unwrap());
    let path = |name: &str| folder.path().join(name);
    picture(&pool, Mode::RGBA, 300, 200).save(path("a.png"), &SaveOptions::default()).unwrap();
    let options = OpenOptions::thumbnail(150, 150);
    let size = thumbnail(&pool, path("a.png"), path("a.jpg"), &options, &SaveOptions::default()).unwrap();
    let small = Image::open(&pool, path("a.jpg"), &OpenOptions::default()).unwrap();
    assert_eq!((size, small.size(), small.format()), ((150, 100), (150, 100), Some(Format::Jpeg)));
    let names = fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(names, 2, "nothing is left beside them");
    let refused = thumbnail(&pool, path("a.png"), path("a.gif"), &options, &SaveOptions::default());
    assert!(matches!(refused, Err(ImageError::Unsupported { .. })));
    drop(small);
    assert_eq!(pool.stats().in_use, 0);
}

#[test]
fn a_failure_while_saving_leaves_the_old_file() {
    let (pool, folder) = (pool(), tempfile::tempdir().unwrap());
    let path = folder.path().join("a.png");
    let image = picture(&pool, Mode::RGB, 30, 20);
    image.save(&path, &SaveOptions::default()).unwrap();
    let before = fs::read(&path).unwrap();
    let failed = crate::save_atomically(&path, |out| {
        out.write_all(&vec![1; 100_000])?;
        Err(std::io::Error::from(std::io::ErrorKind::StorageFull).into())
    });
    assert!(matches!(failed, Err(ImageError::Io(_))));
    assert_eq!(fs::read(&path).unwrap(), before);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    assert!(matches!(image.save(folder.path(), &SaveOptions::default()), Err(ImageError::Unsupported { .. })));
    assert!(matches!(image.save(folder.path().join("no/a.png"), &SaveOptions::default()), Err(ImageError::Io(_))));
    let directory = folder.path().join("d.png");
    fs::create_dir(&directory).unwrap();
    assert!(matches!(image.save(&directory, &SaveOptions::default()), Err(ImageError::Io(_))));
    assert!(matches!(Image::open(&pool, &directory, &OpenOptions::default()), Err(ImageError::Io(_))));
}

#[test]
fn a_name_does_not_say_what_is_in_a_file() {
    let (pool, folder) = (pool(), tempfile::tempdir().unwrap());
    let path = folder.path().join("really-a-png.jpg");
    let image = picture(&pool, Mode::RGB, 30, 20);
    fs::write(&path, encoded(&image, Format::Png, &SaveOptions::default())).unwrap();
    assert_eq!(Image::open(&pool, &path, &OpenOptions::default()).unwrap().format(), Some(Format::Png));
    for bytes in [&b""[..], b"x", b"no picture at all", &[0; 100]] {
        assert!(matches!(Image::decode(&pool, bytes, &OpenOptions::default()), Err(ImageError::Unsupported { .. })));
    }
}

#[test]
fn a_reader_may_give_little_at_a_time() {
    struct Drip<'a>(&'a [u8]);
    impl std::io::Read for Drip<'_> {
        fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
            let some = out.len().min(self.0.len()).min(977);
            out[..some].copy_from_slice(&self.0[..some]);
            self.0 = &self.0[some..];
            Ok(some)
        }
    }
    let pool = pool();
    let image = picture(&pool, Mode::RGB, 300, 200);
    let bytes = encoded(&image, Format::Png, &SaveOptions { compression: Compression::None, ..SaveOptions::default() });
    assert_same(&Image::read(&pool, Drip(&bytes), &OpenOptions::default()).unwrap(), &image);
    let limits = Limits { max_bytes: 100_000, ..Limits::default() };
    let refused = Image::read(&pool, Drip(&bytes), &OpenOptions { limits, ..OpenOptions::default() });
    assert!(matches!(refused, Err(ImageError::Limit { kind: LimitKind::Bytes { at_least: false }, .. })));
}

/// The PNG library ends its file when it is dropped: in the unwinding of a panic, that was the end of the process.
#[test]
fn a_target_may_fail_or_panic_at_any_write() {
    struct Target {
        left: usize,
        panics: bool,
        after: usize,
    }
    impl std::io::Write for Target {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            if self.left == 0 {
                self.after += 1;
                assert!(!self.panics, "the target's own");
                return Err(std::io::Error::other("full"));
            }
            self.left -= 1;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let image = Image::new(&pool(), Mode::RGB, 70, 50, &[1, 2, 3]).unwrap();
    for format in Format::ALL.into_iter().filter(|format| format.can_write()) {
        for (left, panics) in (0..6).flat_map(|left| [(left, false), (left, true)]) {
            let mut target = Target { left, panics, after: 0 };
            let encode = || image.encode(format, &SaveOptions::default(), &mut target).map(drop);
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(encode));
            assert!(format != Format::Png || target.after <= 1, "{} writes after one failed", target.after);
            assert_eq!(result.is_err(), panics && target.after > 0, "{format}");
            assert!(result.is_err() || result.is_ok_and(|result| result.is_err() == (target.after > 0)), "{format}");
        }
    }
}

#[test]
fn absurd_sides_are_an_error() {
    let wrong = Image::from_bytes(&pool(), Mode::RGBA, u32::MAX, u32::MAX, &[]);
    assert!(matches!(wrong, Err(ImageError::Setting { .. })), "{wrong:?}");
}
