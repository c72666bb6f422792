//! Bitmaps whose palette has greys only are grey.

use super::{assert_same, picture, pool};
use crate::{Format, Image, Mode, OpenOptions, SaveOptions};

/// A bitmap of `bits` a pixel, with a palette of these colours.
fn bitmap((width, height): (u32, u32), bits: u32, palette: &[[u8; 3]], byte: impl Fn(usize) -> u8) -> Vec<u8> {
    let row = (width * bits).div_ceil(32) * 4;
    let start = 54 + palette.len() as u32 * 4;
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let length = row * height;
    let mut file = [b"BM", &words(&[start + length, 0, start, 40, width, height, 1 | bits << 16, 0])[..]].concat();
    file.extend(words(&[length, 0, 0, palette.len() as u32, 0]));
    file.extend(palette.iter().flat_map(|[r, g, b]| [*b, *g, *r, 0]));
    file.extend((0..length as usize).map(byte));
    file
}

#[test]
fn palettes_of_greys_are_grey() {
    let pool = pool();
    for bits in [1, 4, 8] {
        let greys: Vec<[u8; 3]> = (0..1u32 << bits).map(|at| [(at * 255 / ((1 << bits) - 1)) as u8; 3]).collect();
        let mut colours = greys.clone();
        colours[1] = [200, 100, 50];
        for size in [(1, 1), (17, 5), (64, 9)] {
            let byte = |at: usize| (at * 37 % 251) as u8;
            let open = |palette: &[[u8; 3]]| {
                Image::decode(&pool, &bitmap(size, bits, palette, byte), &OpenOptions::default()).unwrap()
            };
            let (grey, colour) = (open(&greys), open(&colours));
            assert_eq!((grey.mode(), colour.mode()), (Mode::L, Mode::RGB), "{bits}");
            let row = (size.0 * bits).div_ceil(32) as usize * 4;
            let number = |x: usize, y: usize| {
                let (bit, y) = (x * bits as usize, size.1 as usize - 1 - y);
                u32::from(byte(y * row + bit / 8)) >> (8 - bits as usize - bit % 8) & ((1 << bits) - 1)
            };
            for (y, row) in grey.rows().enumerate() {
                for (x, sample) in row.iter().enumerate() {
                    assert_eq!(*sample, greys[number(x, y) as usize][0], "{bits} {size:?} {x} {y}");
                }
            }
        }
    }
}

#[test]
fn grey_comes_back_as_grey() {
    let pool = pool();
    for size in [(1, 1), (33, 20)] {
        let image = picture(&pool, Mode::L, size.0, size.1);
        let mut file = Vec::new();
        image.encode(Format::Bmp, &SaveOptions::default(), &mut file).unwrap();
        assert_same(&Image::decode(&pool, &file, &OpenOptions::default()).unwrap(), &image);
        let partial = OpenOptions { partial: true, ..OpenOptions::default() };
        for end in 0..file.len() {
            if let Ok(image) = Image::decode(&pool, &file[..end], &partial) {
                assert_eq!(image.size(), size);
            }
        }
    }
}
