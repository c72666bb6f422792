//! Pictures in boxes of another shape: covered, filled around, from files and in memory.

use super::{assert_same, picture, pool, psnr};
use crate::{
    Filter, Fit, Format, Image, ImageError, LONGEST_SIDE, Limits, Mode, OpenOptions, Region, Resampling, SaveOptions,
};

const FITS: [Fit; 3] = [Fit::Inside, Fit::Cover, Fit::Pad([10, 20, 30, 255])];

fn file(image: &Image, format: Format) -> Vec<u8> {
    let mut bytes = Vec::new();
    let options = SaveOptions { quality: 95, lossless: true, ..SaveOptions::default() };
    image.encode(format, &options, &mut bytes).unwrap();
    bytes
}

/// The part of a picture that covers a box of the same height or width, where the seams are whole pixels.
fn middle(image: &Image, width: u32, height: u32) -> Image {
    let (left, top) = ((image.width() - width) / 2, (image.height() - height) / 2);
    image.crop(Region { left, top, right: left + width, bottom: top + height }).unwrap()
}

#[test]
fn what_covers_a_box_of_its_own_scale_is_a_crop() {
    let pool = pool();
    for mode in Mode::ALL {
        let image = picture(&pool, mode, 90, 60);
        for (width, height) in [(60, 60), (90, 30), (2, 60), (90, 60)] {
            for filter in Filter::ALL {
                let how = Resampling { filter, ..Resampling::default() };
                let fitted = image.resize_to_fit(width, height, Fit::Cover, how).unwrap();
                assert_same(&fitted, &middle(&image, width, height));
            }
            let options = OpenOptions { max_size: Some((width, height)), fit: Fit::Cover, ..OpenOptions::default() };
            let format = if mode == Mode::CMYK { Format::Tiff } else { Format::Png };
            let opened = Image::decode(&pool, &file(&image, format), &options).unwrap();
            assert_same(&opened, &middle(&image, width, height));
        }
    }
}

/// Whatever is decoded of a JPEG, planes or pixels, in whichever scale, shows the same part.
#[test]
fn a_file_covers_a_box_as_its_picture_does() {
    let pool = pool();
    for (width, height) in [(640, 200), (203, 611), (400, 400)] {
        let image = picture(&pool, Mode::RGB, width, height);
        for format in [Format::Jpeg, Format::Png, Format::WebP] {
            let bytes = file(&image, format);
            let whole = Image::decode(&pool, &bytes, &OpenOptions::default()).unwrap();
            for size in [(50, 50), (150, 90), (31, 97), (199, 199), (300, 310)] {
                for scaled in [false, true] {
                    let options =
                        OpenOptions { max_size: Some(size), fit: Fit::Cover, scaled, ..OpenOptions::default() };
                    let opened = Image::decode(&pool, &bytes, &options).unwrap();
                    let made = whole.resize_to_fit(size.0, size.1, Fit::Cover, Resampling::default()).unwrap();
                    assert_eq!(opened.size(), size);
                    let alike = psnr(&opened, &made);
                    assert!(alike > 33.0, "{width} × {height} {format} {size:?} {scaled}: {alike}");
                }
            }
        }
    }
}

#[test]
fn sizes_are_those_of_the_box() {
    let pool = pool();
    for (width, height) in [(1, 1), (1, 700), (640, 3), (50, 50), (33, 77)] {
        let image = picture(&pool, Mode::RGBA, width, height);
        let bytes = file(&image, Format::Png);
        for size in [(1, 1), (7, 50), (50, 50), (100, 20)] {
            for fit in FITS {
                let how = Resampling::default();
                let resized = image.resize_to_fit(size.0, size.1, fit, how).unwrap();
                let small = image.thumbnail_to_fit(size.0, size.1, fit, how).unwrap();
                let options = OpenOptions { max_size: Some(size), fit, ..OpenOptions::default() };
                let opened = Image::decode(&pool, &bytes, &options).unwrap();
                opened.validate().unwrap();
                assert_eq!(opened.size(), small.size());
                if fit == Fit::Inside {
                    assert!(resized.width() == size.0 || resized.height() == size.1);
                    assert!(small.width() <= size.0.min(width) && small.height() <= size.1.min(height));
                } else {
                    assert_eq!((resized.size(), small.size()), (size, size));
                }
            }
        }
    }
}

#[test]
fn a_picture_lies_in_the_middle_of_its_background() {
    let pool = pool();
    for (mode, background) in [
        (Mode::L, &[18][..]),
        (Mode::LA, &[18, 100]),
        (Mode::RGB, &[10, 20, 30]),
        (Mode::RGBA, &[10, 20, 30, 100]),
        (Mode::CMYK, &[245, 235, 225, 0]),
    ] {
        let image = picture(&pool, mode, 40, 20);
        let fit = Fit::Pad([10, 20, 30, 100]);
        let padded = image.thumbnail_to_fit(60, 51, fit, Resampling::default()).unwrap();
        assert_same(&middle(&padded, 40, 20), &image);
        let mut plain = Image::new(&pool, mode, 60, 51, background).unwrap();
        plain.paste(&image, 10, 15).unwrap();
        assert_same(&padded, &plain);
        let options = OpenOptions { max_size: Some((60, 51)), fit, ..OpenOptions::default() };
        let format = if mode == Mode::CMYK { Format::Tiff } else { Format::Png };
        assert_same(&Image::decode(&pool, &file(&image, format), &options).unwrap(), &plain);
    }
}

/// A picture of one column that covers a wide box would be a thousand times as high as the box if it were made whole.
#[test]
fn no_more_is_made_than_the_box_holds() {
    let pool = pool();
    let image = picture(&pool, Mode::L, 1, 60_000);
    let bytes = file(&image, Format::Png);
    let limits = Limits { max_bytes: 2 << 20, ..Limits::default() };
    let options = OpenOptions { max_size: Some((1000, 1000)), fit: Fit::Cover, limits, ..OpenOptions::default() };
    assert_eq!(Image::decode(&pool, &bytes, &options).unwrap().size(), (1000, 1000));
    assert!(pool.stats().peak < 64 << 20, "{}", pool.stats().peak);
    let options = OpenOptions { max_size: Some((2000, 2000)), ..options };
    assert!(matches!(Image::decode(&pool, &bytes, &options), Err(ImageError::Limit { .. })));
    for fit in [Fit::Cover, Fit::Pad([0; 4])] {
        let options = OpenOptions { max_size: Some((LONGEST_SIDE, 10)), fit, ..OpenOptions::default() };
        assert!(matches!(Image::decode(&pool, &bytes, &options), Err(ImageError::Setting { .. })));
    }
}
