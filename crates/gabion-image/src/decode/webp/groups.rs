//! How many tables of codes a lossless picture needs.
//!
//! Each part of a picture names the group of five tables that its pixels are read by, and libwebp has memory for all
//! groups at a time. A small file may have 65,536 of them, which are 800 MB, and other files have a few: so the names
//! are read before. Before them come the transforms, whose data are images of the same kind, and are passed over.

/// Groups that count for nothing.
const FEW: usize = 16;

/// Bytes that libwebp takes for a group, at most, beside four for each colour of the cache: the entries of its tables,
/// and what leads to them.
const GROUP: usize = 4 * (630 * 3 + 410 + 654 + 2) + 5 * 8 + 4 * 4 + 64 * 8;

/// Up to here libwebp takes as many groups as the highest name says.
const AS_NAMED: usize = 1000;

/// Literals, lengths of copies, and distances.
const LITERALS: usize = 256;
const LENGTHS: usize = 24;
const DISTANCES: usize = 40;

/// In which order the lengths of the codes for lengths are stored.
const ORDER: [usize; 19] = [17, 18, 0, 1, 2, 3, 4, 5, 16, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

/// Where short distances lead: rows up, and eight less columns to the left.
#[rustfmt::skip]
const NEAR: [u8; 120] = [
    0x18, 0x07, 0x17, 0x19, 0x28, 0x06, 0x27, 0x29, 0x16, 0x1A, 0x26, 0x2A, 0x38, 0x05, 0x37,
    0x39, 0x15, 0x1B, 0x36, 0x3A, 0x25, 0x2B, 0x48, 0x04, 0x47, 0x49, 0x14, 0x1C, 0x35, 0x3B,
    0x46, 0x4A, 0x24, 0x2C, 0x58, 0x45, 0x4B, 0x34, 0x3C, 0x03, 0x57, 0x59, 0x13, 0x1D, 0x56,
    0x5A, 0x23, 0x2D, 0x44, 0x4C, 0x55, 0x5B, 0x33, 0x3D, 0x68, 0x02, 0x67, 0x69, 0x12, 0x1E,
    0x66, 0x6A, 0x22, 0x2E, 0x54, 0x5C, 0x43, 0x4D, 0x65, 0x6B, 0x32, 0x3E, 0x78, 0x01, 0x77,
    0x79, 0x53, 0x5D, 0x11, 0x1F, 0x64, 0x6C, 0x42, 0x4E, 0x76, 0x7A, 0x21, 0x2F, 0x75, 0x7B,
    0x31, 0x3F, 0x63, 0x6D, 0x52, 0x5E, 0x00, 0x74, 0x7C, 0x41, 0x4F, 0x10, 0x20, 0x62, 0x6E,
    0x30, 0x73, 0x7D, 0x51, 0x5F, 0x40, 0x72, 0x7E, 0x61, 0x6F, 0x50, 0x71, 0x7F, 0x60, 0x70,
];

/// Bits, the lowest of each byte first.
struct Bits<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Bits<'_> {
    /// Up to 15 of them; `None` behind the last one.
    fn read(&mut self, count: usize) -> Option<usize> {
        if self.at + count > self.bytes.len() * 8 {
            return None;
        }
        let three =
            (0..3).map(|more| self.bytes.get(self.at / 8 + more).map_or(0, |byte| usize::from(*byte) << (8 * more)));
        let bits = three.sum::<usize>() >> (self.at % 8);
        self.at += count;
        Some(bits & ((1 << count) - 1))
    }

    fn flag(&mut self) -> Option<bool> {
        self.read(1).map(|bit| bit == 1)
    }
}

/// A prefix code: how many symbols have each length, and all of them, the shortest first.
struct Code {
    counts: [u16; 16],
    symbols: Vec<u16>,
}

impl Code {
    fn of_lengths(lengths: &[u8]) -> Option<Self> {
        let mut counts = [0; 16];
        let mut symbols = Vec::new();
        for (length, count) in (0..).zip(&mut counts).skip(1) {
            let before = symbols.len();
            symbols.extend((0..).zip(lengths).filter(|(_, of)| **of == length).map(|(symbol, _)| symbol));
            *count = (symbols.len() - before) as u16;
        }
        (!symbols.is_empty()).then_some(Self { counts, symbols })
    }

    /// The next code, which is of `alphabet` symbols.
    fn read(bits: &mut Bits<'_>, alphabet: usize) -> Option<Self> {
        let mut lengths = vec![0; alphabet.max(LITERALS)];
        if bits.flag()? {
            let two = bits.flag()?;
            let long = bits.flag()?;
            lengths[bits.read(if long { 8 } else { 1 })?] = 1;
            if two {
                lengths[bits.read(8)?] = 1;
            }
            // What is no symbol of the alphabet has no code.
            return Self::of_lengths(&lengths[..alphabet]);
        }
        lengths.truncate(alphabet);
        let mut of_lengths = [0; 19];
        for place in &ORDER[..4 + bits.read(4)?] {
            of_lengths[*place] = bits.read(3)? as u8;
        }
        let code = Self::of_lengths(&of_lengths)?;
        let mut left = alphabet;
        if bits.flag()? {
            let count = 2 + 2 * bits.read(3)?;
            left = 2 + bits.read(count)?;
        }
        let (mut symbol, mut last) = (0, 8);
        while symbol < alphabet && left > 0 {
            left -= 1;
            let (length, times) = match code.next(bits)? {
                16 => (last, 3 + bits.read(2)?),
                17 => (0, 3 + bits.read(3)?),
                18 => (0, 11 + bits.read(7)?),
                length => (length as u8, 1),
            };
            lengths.get_mut(symbol..symbol + times)?.fill(length);
            symbol += times;
            last = if length == 0 { last } else { length };
        }
        Self::of_lengths(&lengths)
    }

    /// The next symbol. The only one takes no bits.
    fn next(&self, bits: &mut Bits<'_>) -> Option<usize> {
        if let [only] = self.symbols[..] {
            return Some(only.into());
        }
        let (mut code, mut first, mut before) = (0, 0, 0);
        for count in &self.counts[1..] {
            let count = usize::from(*count);
            code |= bits.read(1)?;
            if code < first + count {
                return Some(self.symbols[before + code - first].into());
            }
            before += count;
            first = (first + count) << 1;
            code <<= 1;
        }
        None
    }
}

/// A number that a symbol begins: the length of a copy, or its distance.
fn number(bits: &mut Bits<'_>, symbol: usize) -> Option<usize> {
    if symbol < 4 {
        return Some(symbol + 1);
    }
    let more = (symbol - 2) >> 1;
    let high = if more > 15 { bits.read(15)? | bits.read(more - 15)? << 15 } else { bits.read(more)? };
    Some(((2 + (symbol & 1)) << more) + high + 1)
}

/// How far back a distance leads in rows of this width.
fn back(width: usize, distance: usize) -> usize {
    match NEAR.get(distance - 1) {
        Some(near) => {
            let (up, left) = (usize::from(near >> 4), 8 - isize::from(near & 15));
            (up * width).saturating_add_signed(left).max(1)
        }
        None => distance - NEAR.len(),
    }
}

/// The pixels of an image. Where they are only passed over, none is kept.
struct Pixels {
    kept: bool,
    all: Vec<u32>,
    count: usize,
    /// Colours that were used, each in a place of its own, and by how much a hash is shifted to be that place.
    colors: Vec<u32>,
    shift: u32,
}

impl Pixels {
    fn put(&mut self, color: u32) {
        self.count += 1;
        if self.kept {
            self.all.push(color);
            if let Some(place) = self.colors.get_mut((0x1E35_A7BD_u32.wrapping_mul(color) >> self.shift) as usize) {
                *place = color;
            }
        }
    }

    /// Puts the pixels from `distance` before the end once more.
    fn copy(&mut self, distance: usize, length: usize) -> Option<()> {
        let from = self.count.checked_sub(distance)?;
        if self.kept {
            (from..from + length).for_each(|at| self.put(self.all[at]));
        } else {
            self.count += length;
        }
        Some(())
    }
}

/// Reads an image of one group; its pixels, if they are to be kept.
fn image(bits: &mut Bits<'_>, (width, height): (usize, usize), kept: bool) -> Option<Vec<u32>> {
    let cache = if bits.flag()? { Some(bits.read(4)?).filter(|cache| (1..=11).contains(cache))? } else { 0 };
    let colors = vec![0; if cache > 0 { 1 << cache } else { 0 }];
    let green = Code::read(bits, LITERALS + LENGTHS + colors.len())?;
    let red = Code::read(bits, LITERALS)?;
    let blue = Code::read(bits, LITERALS)?;
    let alpha = Code::read(bits, LITERALS)?;
    let distances = Code::read(bits, DISTANCES)?;
    let count = width * height;
    let mut pixels = Pixels { kept, all: Vec::new(), count: 0, colors, shift: (32 - cache as u32).min(31) };
    while pixels.count < count {
        let symbol = green.next(bits)?;
        if symbol < LITERALS {
            let (red, blue, alpha) = (red.next(bits)?, blue.next(bits)?, alpha.next(bits)?);
            pixels.put((alpha << 24 | red << 16 | symbol << 8 | blue) as u32);
        } else if symbol < LITERALS + LENGTHS {
            let length = number(bits, symbol - LITERALS)?;
            let distance = distances.next(bits)?;
            let distance = back(width, number(bits, distance)?);
            pixels.copy(distance, length.min(count - pixels.count))?;
        } else {
            let color = *pixels.colors.get(symbol - LITERALS - LENGTHS)?;
            pixels.put(color);
        }
    }
    Some(pixels.all)
}

/// How many parts of a side there are, if each is 1 << `shift` long.
fn parts(side: usize, shift: usize) -> usize {
    (side + (1 << shift) - 1) >> shift
}

/// Bytes that libwebp takes for the groups of lossless pixels of this size, at most. `None` for what it does not read
/// up to there.
pub fn room(pixels: &[u8], size: (u32, u32)) -> Option<u64> {
    let (groups, colors) = count(pixels, size)?;
    Some(groups.saturating_sub(FEW) as u64 * (GROUP + 4 * colors) as u64)
}

/// How many groups libwebp takes memory for, and how many colours the cache has.
fn count(pixels: &[u8], (width, height): (u32, u32)) -> Option<(usize, usize)> {
    let mut bits = Bits { bytes: pixels, at: 0 };
    let (mut width, height) = (width as usize, height as usize);
    let mut seen = [false; 4];
    while bits.flag()? {
        let kind = bits.read(2)?;
        if std::mem::replace(&mut seen[kind], true) {
            return None;
        }
        match kind {
            // Predictions, and colours that depend on each other: of each part of the picture.
            0 | 1 => {
                let shift = 2 + bits.read(3)?;
                image(&mut bits, (parts(width, shift), parts(height, shift)), false)?;
            }
            // A palette. If it is small, several pixels share one.
            3 => {
                let colors = bits.read(8)? + 1;
                image(&mut bits, (colors, 1), false)?;
                width = parts(
                    width,
                    match colors {
                        0..=2 => 3,
                        3..=4 => 2,
                        5..=16 => 1,
                        _ => 0,
                    },
                );
            }
            _ => {}
        }
    }
    let colors = if bits.flag()? { 1 << bits.read(4)? } else { 0 };
    if !bits.flag()? {
        return Some((1, colors));
    }
    let shift = 2 + bits.read(3)?;
    let mut names = image(&mut bits, (parts(width, shift), parts(height, shift)), true)?;
    for name in &mut names {
        *name = *name >> 8 & 0xFFFF;
    }
    names.sort_unstable();
    names.dedup();
    let named = names.last().map_or(1, |name| *name as usize + 1);
    Some((if named > AS_NAMED || named > width * height { names.len() } else { named }, colors))
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::libwebp;

    /// Bits, the lowest of each number first.
    #[derive(Default)]
    struct Written {
        bytes: Vec<u8>,
        bits: usize,
    }

    impl Written {
        fn put(&mut self, number: u32, bits: usize) {
            for bit in 0..bits {
                self.bytes.resize(self.bits / 8 + 1, 0);
                self.bytes[self.bits / 8] |= ((number >> bit & 1) as u8) << (self.bits % 8);
                self.bits += 1;
            }
        }

        /// A code of the symbols up to 255, each of which takes eight bits.
        fn put_bytes(&mut self, alphabet: u32) {
            self.put(0, 1);
            // All lengths are eight, which takes no bits to say.
            self.put(8, 4);
            (0..12).for_each(|place| self.put(u32::from(ORDER[place] == 8), 3));
            self.put(u32::from(alphabet > 256), 1);
            if alphabet > 256 {
                self.put(3, 3);
                self.put(254, 8);
            }
        }

        /// A code of the symbol 0.
        fn put_zero(&mut self) {
            self.put(1, 4);
        }
    }

    /// Lossless pixels with their header, all 0. Each part of four pixels a side names a group, and there are as many
    /// groups as the highest name says.
    pub fn pixels_of_groups((width, height): (u32, u32), names: &[u32]) -> Vec<u8> {
        let mut out = Written::default();
        out.put(0x2F, 8);
        out.put(width - 1, 14);
        out.put(height - 1, 14);
        // No alpha, the version, no transforms, no cache; groups, for parts of 1 << 2, an image without cache.
        out.put(0, 1 + 3 + 1 + 1);
        out.put(1, 1);
        out.put(0, 3 + 1);
        out.put_bytes(280);
        out.put_bytes(256);
        (0..3).for_each(|_| out.put_zero());
        for name in names {
            let reversed = |byte: u32| u32::from((byte as u8).reverse_bits());
            out.put(reversed(name & 255), 8);
            out.put(reversed(name >> 8), 8);
        }
        for _ in 0..=*names.iter().max().unwrap() {
            (0..5).for_each(|_| out.put_zero());
        }
        out.put(0, 8);
        out.bytes
    }

    #[test]
    fn groups_are_those_that_are_named() {
        for (size, names, groups) in [
            ((1, 1), vec![0], 1),
            ((1, 1), vec![1], 1),
            ((1, 1), vec![0xFFFF], 1),
            ((4, 5), vec![1, 0], 2),
            // Few are taken with those between.
            ((8, 8), vec![0, 9, 9, 3], 10),
            ((8, 8), vec![0, 2000, 2000, 3], 3),
            ((64, 64), (1000..1256).collect(), 256),
            ((64, 64), (0..256).rev().collect(), 256),
        ] {
            let pixels = pixels_of_groups(size, &names);
            assert_eq!(count(&pixels[5..], size), Some((groups, 0)), "{size:?} {names:?}");
            for length in 5..pixels.len().min(200) {
                let counted = count(&pixels[5..length], size);
                assert!(counted.is_none_or(|counted| counted == (groups, 0)), "{size:?} {length}");
            }
        }
    }

    /// Those with palettes, predictions, caches and copies: the reader comes to the end of the names.
    #[test]
    fn groups_of_files_are_counted() {
        let mut many = 0;
        for (number, colors) in [2, 4, 16, 200, 60_000].into_iter().cycle().take(60).enumerate() {
            let (width, height) = (20 + number * 7, 300 - number * 3);
            let pixel = |at: usize| {
                let (x, y) = (at % width, at / width);
                let noise = (at as u32).wrapping_mul(2_654_435_761) >> (20 + number % 9);
                let smooth = if x > y { (x * y / 9 + noise as usize) % colors } else { x / 9 % colors };
                (smooth as u32).wrapping_mul(2_654_435).to_le_bytes()
            };
            let pixels: Vec<u8> = (0..width * height).flat_map(pixel).collect();
            let size = (width as u32, height as u32);
            for quality in [0.0, 50.0, 100.0] {
                let file = libwebp::encode(&pixels, size, true, (true, quality)).unwrap();
                let (counted, _) = count(&file[25..], size).unwrap();
                assert!(counted <= 2600, "{counted}");
                many = many.max(counted);
                // Whatever it is that is damaged.
                for at in (25..file.len()).step_by(file.len() / 40) {
                    let mut damaged = file[25..].to_vec();
                    damaged[at - 25] ^= 0x55;
                    count(&damaged, size);
                }
            }
        }
        assert!(many > 5, "{many}");
    }

    /// Such a distance would have had a hundred bits more.
    #[test]
    fn a_code_has_no_symbols_beyond_its_alphabet() {
        // The only symbol, in eight bits.
        let mut only = Written::default();
        only.put(0b101, 3);
        only.put(200, 8);
        let read = |bytes: &[u8], alphabet| Code::read(&mut Bits { bytes, at: 0 }, alphabet).map(|code| code.symbols);
        assert_eq!(read(&only.bytes, LITERALS), Some(vec![200]));
        assert_eq!(read(&only.bytes, DISTANCES), None);
        // 138 zeros at once, of 40.
        let mut zeros = Written::default();
        zeros.put(0, 1);
        zeros.put(0, 4);
        // The lengths of the codes for 17, 18, 0 and 1.
        for length in [0, 1, 0, 1] {
            zeros.put(length, 3);
        }
        zeros.put(0, 1);
        zeros.put(1, 1);
        zeros.put(127, 7);
        zeros.put(0, 8);
        assert_eq!(read(&zeros.bytes, DISTANCES), None);
    }
}
