//! A key as it stands before its value: table, length, bytes.
//!
//! ```text
//! table (varint) │ length (varint) │ key │ flags (1 byte) │ end (8 bytes, if flagged) │ ttl (8, if flagged) │ value
//! └──────────── image ─────────────┘
//! ```
//! Two keys are the same when their images are the same bytes, so a payload begins with its key's image or is another's.

/// Keys up to this length take no memory beside the stack.
const INLINE: usize = 96;

/// The image of a key.
pub(crate) struct Image {
    inline: [u8; INLINE],
    len: usize,
    long: Vec<u8>,
}

/// Bytes of a varint: seven bits a byte, the lowest first.
fn varint(mut value: u64, mut push: impl FnMut(u8)) {
    while value >= 0x80 {
        push(value as u8 | 0x80);
        value >>= 7;
    }
    push(value as u8);
}

impl Image {
    #[inline]
    pub fn new(table: u16, key: &[u8]) -> Self {
        let mut image = Self { inline: [0; INLINE], len: 0, long: Vec::new() };
        let mut push = |byte| {
            image.inline[image.len] = byte;
            image.len += 1;
        };
        varint(u64::from(table), &mut push);
        varint(key.len() as u64, &mut push);
        let end = image.len + key.len();
        if let Some(room) = image.inline.get_mut(image.len..end) {
            room.copy_from_slice(key);
            image.len = end;
        } else {
            image.long = Vec::with_capacity(end);
            image.long.extend_from_slice(&image.inline[..image.len]);
            image.long.extend_from_slice(key);
        }
        image
    }

    #[inline]
    pub fn bytes(&self) -> &[u8] {
        if self.long.is_empty() { &self.inline[..self.len] } else { &self.long }
    }
}

/// Times that stand with the value, in milliseconds, because the index has no place for them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Times {
    /// When it ends however often it is used, for entries with an idle time.
    pub end: Option<u64>,
    /// The time to live that it was put with, where that is not its table's.
    pub ttl: Option<u64>,
}

const HAS_END: u8 = 1;
const HAS_TTL: u8 = 2;

/// What a payload holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Payload<'a> {
    pub table: u16,
    pub key: &'a [u8],
    pub times: Times,
    pub value: &'a [u8],
}

/// Appends a payload.
#[inline]
pub(crate) fn write(image: &Image, times: Times, value: &[u8], into: &mut Vec<u8>) {
    into.extend_from_slice(image.bytes());
    let flag = |time: Option<u64>, flag| if time.is_some() { flag } else { 0 };
    into.push(flag(times.end, HAS_END) | flag(times.ttl, HAS_TTL));
    for time in [times.end, times.ttl].into_iter().flatten() {
        into.extend_from_slice(&time.to_le_bytes());
    }
    into.extend_from_slice(value);
}

/// Times and value of a payload; `None` when it is another key's.
#[inline]
pub(crate) fn value_of<'a>(image: &Image, payload: &'a [u8]) -> Option<(Times, &'a [u8])> {
    split(payload.strip_prefix(image.bytes())?)
}

#[inline]
fn split(rest: &[u8]) -> Option<(Times, &[u8])> {
    let (&flags, mut rest) = rest.split_first()?;
    let mut times = Times::default();
    for (flag, time) in [(HAS_END, &mut times.end), (HAS_TTL, &mut times.ttl)] {
        if flags & flag != 0 {
            let (bytes, more) = rest.split_first_chunk::<8>()?;
            (*time, rest) = (Some(u64::from_le_bytes(*bytes)), more);
        }
    }
    Some((times, rest))
}

/// Takes a payload apart.
pub(crate) fn parse(payload: &[u8]) -> Option<Payload<'_>> {
    let mut rest = payload;
    let mut number = || {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let (&byte, more) = rest.split_first()?;
            rest = more;
            value |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    };
    let (table, length) = (number()?, number()?);
    let (key, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    let (times, value) = split(rest)?;
    Some(Payload { table: u16::try_from(table).ok()?, key, times, value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_read_back_what_was_written() {
        for (table, length) in
            [(0, 0), (1, 1), (127, 127), (128, 128), (u16::MAX, 93), (5, 94), (5, 95), (9, 70_000_u32)]
        {
            for (end, ttl) in [(None, None), (Some(u64::MAX - 3), None), (None, Some(7)), (Some(1), Some(2))] {
                let times = Times { end, ttl };
                let key: Vec<u8> = (0..length).map(|n: u32| n as u8).collect();
                let (image, mut payload) = (Image::new(table, &key), Vec::new());
                write(&image, times, b"value", &mut payload);
                assert_eq!(parse(&payload), Some(Payload { table, key: &key, times, value: b"value" }));
                assert_eq!(value_of(&image, &payload), Some((times, &b"value"[..])));
                assert_eq!(value_of(&Image::new(table ^ 1, &key), &payload), None);
                assert_eq!(parse(&payload[..image.bytes().len()]), None);
            }
        }
    }

    #[test]
    fn no_image_is_the_beginning_of_another() {
        let one = Image::new(3, b"ab");
        let mut payload = Vec::new();
        write(&Image::new(3, b"abc"), Times::default(), b"", &mut payload);
        assert_eq!(value_of(&one, &payload), None);
    }
}
