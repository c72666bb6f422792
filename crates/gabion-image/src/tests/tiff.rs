//! TIFF of fewer than eight bits, and with palettes, as other programs write it.

use super::{assert_same, pool};
use crate::{Format, Formats, Image, ImageError, Limits, Mode, OpenOptions, Probe, SaveOptions};

/// What a file says of its samples.
#[derive(Clone, Copy)]
pub(super) struct Kind {
    pub depth: u16,
    /// 0: white is 0; 1: black is 0; 3: a palette.
    pub photometric: u16,
    pub compression: u16,
    pub big: bool,
}

/// The width of tiles.
const TILE: usize = 16;

/// A file of one strip, or of tiles.
pub(super) fn tiff(kind: Kind, (width, height): (usize, usize), palette: &[u16], chunks: &[Vec<u8>]) -> Vec<u8> {
    let two = |value: u16| if kind.big { value.to_be_bytes() } else { value.to_le_bytes() };
    let four = |value: usize| if kind.big { (value as u32).to_be_bytes() } else { (value as u32).to_le_bytes() };
    let mut file = if kind.big { b"MM\0*".to_vec() } else { b"II*\0".to_vec() };
    file.extend(four(0));
    let mut put = |bytes: Vec<u8>| {
        file.resize(file.len().next_multiple_of(2), 0);
        let at = file.len();
        file.extend(bytes);
        at
    };
    let places: Vec<usize> = chunks.iter().map(|chunk| put(chunk.clone())).collect();
    let list = |values: &mut dyn Iterator<Item = usize>| values.flat_map(four).collect::<Vec<u8>>();
    let offsets = put(list(&mut places.iter().copied()));
    let counts = put(list(&mut chunks.iter().map(Vec::len)));
    let colors = put(palette.iter().flat_map(|&value| two(value)).collect());
    let directory = put(Vec::new());
    file[4..8].copy_from_slice(&four(directory));
    let tiled = chunks.len() > 1;
    let mut entries = vec![
        (256, vec![width]),
        (257, vec![height]),
        (258, vec![kind.depth.into()]),
        (259, vec![kind.compression.into()]),
        (262, vec![kind.photometric.into()]),
    ];
    if tiled {
        entries.extend([(322, vec![TILE]), (323, vec![TILE])]);
    } else {
        entries.extend([(273, places), (278, vec![height]), (279, vec![chunks[0].len()])]);
    }
    let long = |tag: u16, count: usize, at: usize| [&two(tag)[..], &two(4), &four(count), &four(at)].concat();
    let mut lines: Vec<(u16, Vec<u8>)> = entries
        .into_iter()
        .map(|(tag, value)| match value[0] {
            value if tag == 273 || tag == 279 => (tag, long(tag, 1, value)),
            value => (tag, [&two(tag)[..], &two(3), &four(1), &two(value as u16), &[0, 0]].concat()),
        })
        .collect();
    if tiled {
        lines.extend([(324, long(324, chunks.len(), offsets)), (325, long(325, chunks.len(), counts))]);
    }
    if !palette.is_empty() {
        lines.push((320, [&two(320)[..], &two(3), &four(palette.len()), &four(colors)].concat()));
    }
    lines.sort();
    file.extend(two(lines.len() as u16));
    for (_, line) in lines {
        file.extend(line);
    }
    file.extend(four(0));
    file
}

/// Rows of samples as they are stored, those of a row without gaps.
pub(super) fn packed(rows: &[Vec<u8>], depth: usize) -> Vec<u8> {
    let pack = |row: &Vec<u8>| {
        let mut bytes = vec![0; (row.len() * depth).div_ceil(8)];
        for (x, sample) in row.iter().enumerate() {
            bytes[x * depth / 8] |= sample << (8 - depth - x * depth % 8);
        }
        bytes
    };
    rows.iter().flat_map(pack).collect()
}

/// Samples of all values, different in each row.
pub(super) fn samples(width: usize, height: usize, depth: usize) -> Vec<Vec<u8>> {
    let most = u8::MAX >> (8 - depth);
    (0..height).map(|y| (0..width).map(|x| (x * 7 + y * 13 + x * y) as u8 & most).collect()).collect()
}

/// Three colours for each value, all different.
pub(super) fn palette(depth: usize) -> Vec<u16> {
    (0..3 << depth).map(|i: u32| (i * 641 + (i << 9)) as u16 | 0x100).collect()
}

/// The rows cut into tiles, each full of samples.
fn tiles(rows: &[Vec<u8>]) -> Vec<Vec<Vec<u8>>> {
    let sample = |y: usize, x: usize| rows.get(y).and_then(|row| row.get(x)).copied().unwrap_or(0);
    let (across, down) = (rows[0].len().div_ceil(TILE), rows.len().div_ceil(TILE));
    let tile = |top: usize, left: usize| {
        (top..top + TILE).map(|y| (left..left + TILE).map(|x| sample(y, x)).collect()).collect()
    };
    (0..across * down).map(|number| tile(number / across * TILE, number % across * TILE)).collect()
}

fn decode(file: &[u8]) -> Image {
    Image::decode(&pool(), file, &OpenOptions::default()).unwrap()
}

fn expected(rows: &[Vec<u8>], mode: Mode, pixel: impl Fn(u8) -> Vec<u8>) -> Image {
    let bytes: Vec<u8> = rows.iter().flatten().flat_map(|&sample| pixel(sample)).collect();
    Image::from_bytes(&pool(), mode, rows[0].len() as u32, rows.len() as u32, &bytes).unwrap()
}

#[test]
fn few_bits_and_palettes_become_greys_and_colours() {
    for (depth, big) in [1, 2, 4, 8].into_iter().flat_map(|depth| [(depth, false), (depth, true)]) {
        for (width, height) in [(1, 1), (3, 5), (16, 16), (37, 21)] {
            let rows = samples(width, height, depth);
            let colors = palette(depth);
            let most = u32::from(u8::MAX >> (8 - depth));
            for photometric in [0, 1, 3] {
                let kind = Kind { depth: depth as u16, photometric, compression: 1, big };
                let wanted = if photometric == 3 {
                    let color = |of: usize, value: u8| (colors[(of << depth) + usize::from(value)] >> 8) as u8;
                    expected(&rows, Mode::RGB, |value| (0..3).map(|of| color(of, value)).collect())
                } else {
                    let light = |value: u8| if photometric == 0 { most - u32::from(value) } else { value.into() };
                    expected(&rows, Mode::L, |value| vec![(light(value) * 255 / most) as u8])
                };
                let given = if photometric == 3 { &colors[..] } else { &[] };
                assert_same(&decode(&tiff(kind, (width, height), given, &[packed(&rows, depth)])), &wanted);
                let tiles: Vec<_> = tiles(&rows).iter().map(|tile| packed(tile, depth)).collect();
                if tiles.len() > 1 {
                    assert_same(&decode(&tiff(kind, (width, height), given, &tiles)), &wanted);
                }
            }
        }
    }
}

#[test]
fn a_palette_of_eight_bits_is_taken_as_it_is() {
    let kind = Kind { depth: 1, photometric: 3, compression: 1, big: false };
    let image = decode(&tiff(kind, (2, 1), &[1, 200, 2, 250, 3, 255], &[vec![0b0100_0000]]));
    assert_eq!(image.row(0), Some(&[1, 2, 3, 200, 250, 255][..]));
}

/// A white page takes a bit for each row, whatever its width.
#[test]
fn a_fax_is_much_shorter_than_its_picture() {
    let page: Vec<u8> = vec![0xFF; 500].into_iter().chain([0x00, 0x10, 0x01]).collect();
    for (photometric, light) in [(0, 255), (1, 0)] {
        let kind = Kind { depth: 1, photometric, compression: 4, big: false };
        let image = decode(&tiff(kind, (10_000, 4_000), &[], std::slice::from_ref(&page)));
        assert_eq!((image.size(), image.mode()), ((10_000, 4_000), Mode::L));
        assert!(image.rows().flatten().all(|&sample| sample == light));
        let claims = tiff(kind, (10_000, 20_000), &[], std::slice::from_ref(&page));
        let refused = Image::decode(&pool(), &claims, &OpenOptions::default());
        assert!(matches!(refused, Err(ImageError::Corrupt { .. })), "{refused:?}");
    }
}

#[test]
fn what_cannot_be_read_says_so_and_names_other_formats() {
    let kind = Kind { depth: 4, photometric: 3, compression: 1, big: false };
    let short = tiff(kind, (3, 3), &palette(2), &[vec![0; 6]]);
    let error = Image::decode(&pool(), &short, &OpenOptions::default()).unwrap_err();
    assert!(matches!(error, ImageError::Corrupt { .. }), "{error}");
    let mut reversed = tiff(kind, (3, 3), &palette(4), &[vec![0; 6]]);
    let rows = [278u16.to_le_bytes(), 3u16.to_le_bytes(), [1, 0], [0, 0], 3u16.to_le_bytes()].concat();
    let at = reversed.windows(rows.len()).position(|entry| entry == rows).unwrap();
    // In place of the rows of a strip, which are all of them: the lowest bit first.
    reversed[at..at + 2].copy_from_slice(&266u16.to_le_bytes());
    reversed[at + 8..at + 10].copy_from_slice(&2u16.to_le_bytes());
    let error = Image::decode(&pool(), &reversed, &OpenOptions::default()).unwrap_err();
    assert!(error.to_string().contains("the lowest bit of each byte first"), "{error}");
    for kind in [Kind { depth: 16, ..kind }, Kind { depth: 1, photometric: 1, compression: 3, big: false }] {
        let file = tiff(kind, (3, 3), &palette(4), &[vec![0; 18]]);
        let error = Image::decode(&pool(), &file, &OpenOptions::default()).unwrap_err();
        assert!(matches!(error, ImageError::Unsupported { .. }), "{error}");
        assert!(error.to_string().ends_with("; convert the file to JPEG, PNG, WebP or BMP"), "{error}");
    }
}

/// The file with samples said to be of this format.
fn with_format(file: &[u8], format: u16) -> Vec<u8> {
    let mut file = file.to_vec();
    let long = |file: &[u8], at: usize| u32::from_le_bytes(*file[at..].first_chunk().unwrap()) as usize;
    let directory = long(&file, 4);
    let entries = usize::from(u16::from_le_bytes([file[directory], file[directory + 1]]));
    let entry = |number: usize| directory + 2 + number * 12;
    // Where there is none, in place of the rows of a strip, which are all of them.
    let known = |at: &usize| [339u16, 278].iter().any(|tag| file[*at..].starts_with(&tag.to_le_bytes()));
    let at = (0..entries).map(entry).rfind(known).unwrap();
    file[at..at + 2].copy_from_slice(&339u16.to_le_bytes());
    let count = long(&file, at + 4);
    let values = if count > 2 { long(&file, at + 8) } else { at + 8 };
    (0..count).for_each(|value| file[values + 2 * value..][..2].copy_from_slice(&format.to_le_bytes()));
    file
}

#[test]
fn samples_are_whole_numbers_or_nothing() {
    let pool = pool();
    let mut files = Vec::new();
    for mode in [Mode::L, Mode::LA, Mode::RGB, Mode::RGBA, Mode::CMYK] {
        let mut file = Vec::new();
        super::picture(&pool, mode, 9, 7).encode(Format::Tiff, &SaveOptions::default(), &mut file).unwrap();
        files.push((format!("{} samples a pixel", mode.channels()), 8, file));
    }
    for (depth, bytes) in [(1, 5), (4, 15), (8, 25), (16, 50)] {
        let kind = Kind { depth, photometric: 1, compression: 1, big: false };
        files.push(("1 samples a pixel".into(), depth, tiff(kind, (5, 5), &[], &[vec![0x3C; bytes]])));
    }
    for (samples, depth, file) in files {
        let plain = decode(&file);
        for format in [1, 4] {
            assert_same(&decode(&with_format(&file, format)), &plain);
        }
        for (format, kind) in [(2, "signed whole numbers"), (3, "floats"), (5, "numbers of an unknown kind")] {
            let error = Image::decode(&pool, &with_format(&file, format), &OpenOptions::default()).unwrap_err();
            assert!(matches!(error, ImageError::Unsupported { .. }), "{samples} {depth} {format}: {error}");
            let text = format!("TIFF with {samples}, {kind} of {depth} bits, cannot be read");
            assert!(error.to_string().contains(&text), "{error}");
        }
    }
}

/// The file with another entry in place of the rows of a strip, which are all of them.
fn with_entry(file: &[u8], tag: u16, kind: u16, count: usize, at: usize) -> Vec<u8> {
    let rows = [278u16.to_le_bytes(), 3u16.to_le_bytes(), 1u16.to_le_bytes(), [0; 2]].concat();
    let place = file.windows(rows.len()).position(|entry| entry == rows).unwrap();
    let numbers = [count, at].map(|number| u32::try_from(number).unwrap().to_le_bytes());
    let entry = [&tag.to_le_bytes()[..], &kind.to_le_bytes(), numbers.as_flattened()].concat();
    [&file[..place], &entry, &file[place + entry.len()..]].concat()
}

fn small(width: usize, height: usize) -> Vec<u8> {
    let kind = Kind { depth: 8, photometric: 1, compression: 1, big: false };
    tiff(kind, (width, height), &[], &[vec![7; width * height]])
}

/// Within the bytes that the file may have itself.
#[test]
fn a_profile_is_kept_however_long_it_is() {
    let mut profile = vec![1; 1 << 20];
    profile[16..20].copy_from_slice(b"GRAY");
    profile[36..40].copy_from_slice(b"acsp");
    let file = small(3, 2);
    let at = file.len();
    let limits = Limits { max_bytes: 2 << 20, ..Limits::default() };
    let opened = |file: &[u8]| Image::decode(&pool(), file, &OpenOptions { limits, ..OpenOptions::default() });
    for kind in [1, 7] {
        let file = [&with_entry(&file, 34675, kind, profile.len(), at)[..], &profile].concat();
        let image = opened(&file).unwrap();
        assert!(image.metadata().icc.as_ref() == Some(&profile), "{kind}");
        assert!(Probe::of(&file, Formats::ALL, &limits).unwrap().profile);
        assert!(opened(&file[..file.len() - 1]).unwrap().metadata().icc.is_none());
    }
    for (kind, count, at) in [(7, 0, at), (3, 1000, at), (7, 67_000_000, at), (7, 200, u32::MAX as usize)] {
        let file = [&with_entry(&file, 34675, kind, count, at)[..], &profile].concat();
        assert!(opened(&file).unwrap().metadata().icc.is_none(), "{kind} {count} {at}");
    }
}

#[test]
fn lists_are_no_longer_than_the_file_and_their_room_counts() {
    let file = small(3, 2);
    let limits = Limits { max_bytes: 1 << 20, ..Limits::default() };
    let refused =
        |file: &[u8]| Image::decode(&pool(), file, &OpenOptions { limits, ..OpenOptions::default() }).unwrap_err();
    for tag in [258, 279, 320, 339, 530] {
        let error = refused(&with_entry(&file, tag, 4, 60_000_000, 8));
        assert!(error.to_string().contains("the data ends before the picture does"), "{tag}: {error}");
        let long = [&with_entry(&file, tag, 1, 100_000, file.len())[..], &vec![8; 100_000]].concat();
        let error = refused(&long);
        assert!(matches!(error, ImageError::Limit { asked: 4_800_000.., .. }), "{tag}: {error}");
    }
}
