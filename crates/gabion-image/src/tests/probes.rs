//! What is said of a file before it is decoded is what comes of it.

use super::{picture, pool};
use crate::{Format, Formats, Image, ImageError, Limits, Mode, OpenOptions, Orientation, Probe, SaveOptions};

fn files() -> Vec<(Format, Vec<u8>)> {
    let pool = pool();
    let mut files = Vec::new();
    for format in Format::ALL.into_iter().filter(|format| format.can_write()) {
        for mode in Mode::ALL {
            let mut image = picture(&pool, mode, 23, 9);
            image.metadata_mut().exif = Orientation::Turned90.as_exif();
            let mut file = Vec::new();
            if image.encode(format, &SaveOptions::default(), &mut file).is_ok() {
                files.push((format, file));
            }
        }
    }
    assert!(files.len() > 15);
    files
}

fn probed(bytes: &[u8]) -> crate::Result<Probe> {
    Probe::of(bytes, Formats::ALL, &Limits::default())
}

#[test]
fn it_is_what_opening_gives() {
    let pool = pool();
    for (format, file) in files() {
        let (found, image) = (probed(&file).unwrap(), Image::decode(&pool, &file, &OpenOptions::default()).unwrap());
        assert_eq!((found.format, Some(found.format)), (format, image.format()));
        assert_eq!((found.mode, found.size), (image.mode(), image.size()));
        let stored = Image::decode(&pool, &file, &OpenOptions { upright: false, ..OpenOptions::default() }).unwrap();
        assert_eq!(found.stored_size, stored.size());
        assert_eq!(found.orientation, stored.metadata().orientation());
        assert_eq!((found.exif, found.profile), (stored.metadata().exif.is_some(), false));
        assert_eq!(found.frames, Some(1));
        let only = |formats| Probe::of(&file, formats, &Limits::default());
        assert_eq!(only(Formats::of([format])).unwrap(), found);
        let others = Formats::of(Format::ALL.into_iter().filter(|other| *other != format));
        assert!(matches!(only(others), Err(ImageError::Unsupported { .. })));
        let few = Limits { max_pixels: 23 * 9 - 1, ..Limits::default() };
        assert!(matches!(Probe::of(&file, Formats::ALL, &few), Err(ImageError::Limit { .. })));
    }
}

#[test]
fn cut_off_or_flipped_anywhere() {
    for (format, file) in files() {
        for end in 0..file.len() {
            if let Ok(found) = probed(&file[..end]) {
                assert_eq!(found.format, format);
            }
        }
        for at in 0..file.len() {
            for flip in [1, 0x80, 0xFF] {
                let mut damaged = file.clone();
                damaged[at] ^= flip;
                match probed(&damaged) {
                    Ok(found) => assert!(found.size.0 > 0 && found.size.1 > 0 && found.frames != Some(0)),
                    Err(ImageError::Setting { what }) => panic!("{format} {at}: {what}"),
                    Err(_) => {}
                }
            }
        }
    }
}

#[test]
fn pages_are_counted_and_rings_are_not() {
    let directory = |next: u32| [&1u16.to_le_bytes()[..], &[0; 12], &next.to_le_bytes()].concat();
    let file = |nexts: &[u32]| {
        let directories: Vec<u8> = nexts.iter().flat_map(|next| directory(*next)).collect();
        [&b"II*\0\x08\0\0\0"[..], &directories].concat()
    };
    let pages = crate::decode::pages;
    assert_eq!(pages(&file(&[0])), Some(1));
    assert_eq!(pages(&file(&[26, 44, 0])), Some(3));
    assert_eq!(pages(&file(&[26, 8])), None, "the second leads back to the first");
    assert_eq!(pages(&file(&[1000])), None);
    assert_eq!(pages(&file(&[u32::MAX])), None);
    assert_eq!(pages(b"II*\0\0\0\0\0"), None);
    let big = [&b"MM\0\x2B\0\x08\0\0"[..], &16u64.to_be_bytes(), &[0; 7], &[1], &[0; 20], &[0; 8]].concat();
    assert_eq!(pages(&big), Some(1));
    let long = [&b"MM\0\x2B\0\x08\0\0"[..], &16u64.to_be_bytes(), &[0xFF; 8], &[0; 28]].concat();
    assert_eq!(pages(&long), None);
}
