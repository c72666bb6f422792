//! A profile is kept beside pixels of its own colour space only: elsewhere it makes a file that readers refuse.

use super::{picture, pool};
use crate::{Format, Image, Metadata, Mode, OpenOptions, SaveOptions};

/// As much of a profile as says what it is for.
fn profile(space: [u8; 4]) -> Vec<u8> {
    let mut bytes = vec![0; 132];
    bytes[16..20].copy_from_slice(&space);
    bytes[36..40].copy_from_slice(b"acsp");
    bytes
}

/// The profile that fits a mode.
fn profile_of(mode: Mode) -> Vec<u8> {
    profile(match mode {
        Mode::L | Mode::LA => *b"GRAY",
        Mode::RGB | Mode::RGBA => *b"RGB ",
        Mode::CMYK => *b"CMYK",
    })
}

fn with_profile(mode: Mode, icc: Vec<u8>) -> Image {
    let mut image = picture(&pool(), mode, 20, 10);
    *image.metadata_mut() = Metadata { exif: None, icc: Some(icc) };
    image
}

fn encoded(image: &Image, format: Format) -> Vec<u8> {
    let mut bytes = Vec::new();
    image.encode(format, &SaveOptions { lossless: true, ..SaveOptions::default() }, &mut bytes).unwrap();
    bytes
}

#[test]
fn a_conversion_keeps_the_profile_that_still_fits() {
    for from in Mode::ALL {
        let image = with_profile(from, profile_of(from));
        for to in Mode::ALL {
            let kept = (profile_of(from) == profile_of(to)).then(|| profile_of(from));
            assert_eq!(image.convert(to).unwrap().metadata().icc, kept, "{from} to {to}");
            let format = if from == Mode::CMYK { Format::Tiff } else { Format::Png };
            let options = OpenOptions { mode: Some(to), ..OpenOptions::default() };
            let opened = Image::decode(&pool(), &encoded(&image, format), &options).unwrap();
            assert_eq!(opened.metadata().icc, kept, "{from} opened as {to}");
        }
        let held = with_profile(from, profile_of(from)).held_by(Format::Png).unwrap();
        assert_eq!(held.metadata().icc.is_some(), from != Mode::CMYK, "{from}");
    }
}

/// Files as others write them, and metadata that a program has put there.
#[test]
fn a_profile_that_does_not_fit_is_neither_written_nor_read() {
    for mode in Mode::ALL {
        for of in Mode::ALL.into_iter().filter(|of| profile_of(*of) != profile_of(mode)) {
            let image = with_profile(mode, profile_of(of));
            for format in [Format::Jpeg, Format::Png, Format::WebP, Format::Tiff] {
                let mut bytes = Vec::new();
                let stored = if format == Format::WebP { Mode::RGB } else { mode };
                let held = image.encode(format, &SaveOptions::default(), &mut bytes).is_ok();
                if !held || profile_of(of) == profile_of(stored) {
                    continue;
                }
                // Its letters stand in the file as they are, but in PNG, which packs them.
                assert!(!bytes.windows(4).any(|four| four == b"acsp" || four == b"iCCP"), "{of} in {format} {mode}");
            }
        }
    }
    let mut grey = encoded(&with_profile(Mode::L, profile_of(Mode::L)), Format::Tiff);
    let at = grey.windows(4).position(|four| four == b"GRAY").unwrap();
    grey[at..at + 4].copy_from_slice(b"RGB ");
    assert_eq!(Image::decode(&pool(), &grey, &OpenOptions::default()).unwrap().metadata().icc, None);
}

/// WebP stores greys as colours.
#[test]
fn what_is_stored_decides_not_what_is_held() {
    let grey = encoded(&with_profile(Mode::L, profile_of(Mode::L)), Format::WebP);
    assert_eq!(Image::decode(&pool(), &grey, &OpenOptions::default()).unwrap().metadata().icc, None);
    let colour = encoded(&with_profile(Mode::RGB, profile_of(Mode::RGB)), Format::WebP);
    let colour = Image::decode(&pool(), &colour, &OpenOptions::default()).unwrap();
    assert_eq!(colour.metadata().icc, Some(profile_of(Mode::RGB)));
}

#[test]
fn what_is_no_profile_stays_and_what_is_one_of_another_kind_goes() {
    for (icc, kept) in [(vec![], true), (vec![7; 19], true), (vec![7; 200], true), (profile(*b"Lab "), false)] {
        let image = with_profile(Mode::RGB, icc.clone());
        assert_eq!(image.convert(Mode::RGBA).unwrap().metadata().icc, kept.then_some(icc));
    }
}

#[test]
fn a_thumbnail_keeps_the_profile_and_not_the_exif_block() {
    let exif = b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0".to_vec();
    let mut image = with_profile(Mode::RGB, profile_of(Mode::RGB));
    image.metadata_mut().exif = Some(exif.clone());
    for format in [Format::Jpeg, Format::Png, Format::WebP] {
        let file = encoded(&image, format);
        let small = Image::decode(&pool(), &file, &OpenOptions::thumbnail(10, 10)).unwrap();
        assert_eq!(small.size(), (5, 10), "it is turned all the same");
        assert_eq!(small.metadata(), &Metadata { exif: None, icc: Some(profile_of(Mode::RGB)) }, "{format}");
        let bare = OpenOptions { profile: false, upright: false, ..OpenOptions::default() };
        let bare = Image::decode(&pool(), &file, &bare).unwrap();
        assert_eq!(bare.metadata(), &Metadata { exif: Some(exif.clone()), icc: None }, "{format}");
    }
}

/// A picture of JPEG with these parts of a profile: which one each is, of how many, and its bytes.
fn in_parts(parts: &[(u8, u8, &[u8])]) -> Vec<u8> {
    let file = encoded(&picture(&pool(), Mode::RGB, 20, 10), Format::Jpeg);
    let segment = |(number, count, part): &(u8, u8, &[u8])| {
        let body = [&b"ICC_PROFILE\0"[..], &[*number, *count], part].concat();
        [&[0xFF, 0xE2][..], &(body.len() as u16 + 2).to_be_bytes(), &body].concat()
    };
    let segments: Vec<u8> = parts.iter().flat_map(segment).collect();
    [&file[..2], &segments, &file[2..]].concat()
}

/// As `libjpeg` has it.
#[test]
fn a_profile_in_parts_is_whole_or_none() {
    let whole = profile_of(Mode::RGB);
    let (one, two, three) = (&whole[..50], &whole[50..90], &whole[90..]);
    let kept = |parts: &[(u8, u8, &[u8])]| {
        Image::decode(&pool(), &in_parts(parts), &OpenOptions::default()).unwrap().metadata().icc.clone()
    };
    assert_eq!(kept(&[(1, 1, &whole)]), Some(whole.clone()));
    assert_eq!(kept(&[(1, 3, one), (2, 3, two), (3, 3, three)]), Some(whole.clone()));
    assert_eq!(kept(&[(3, 3, three), (1, 3, one), (2, 3, two)]), Some(whole.clone()));
    for parts in [
        &[(1, 3, one), (3, 3, three)][..],
        &[(1, 3, one), (2, 3, two), (2, 3, two), (3, 3, three)],
        &[(1, 3, one), (2, 2, two), (3, 3, three)],
        &[(0, 3, one), (1, 3, two), (2, 3, three)],
        &[(1, 2, &whole)],
        &[(0, 0, &whole)],
        &[(1, 1, &[])],
    ] {
        assert_eq!(kept(parts), None, "{:?}", parts.iter().map(|part| (part.0, part.1)).collect::<Vec<_>>());
    }
}
