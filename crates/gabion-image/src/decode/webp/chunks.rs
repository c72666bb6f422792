//! Where a file has what.

/// Bytes before the first chunk.
const BEGIN: usize = 12;

/// Bytes of a frame before its chunks.
const FRAME: usize = 16;

/// A frame of an animation.
pub struct Frame<'a> {
    /// Where it lies on the canvas, in pixels.
    pub left: u32,
    pub top: u32,
    pub width: u32,
    pub height: u32,
    /// The chunks of its picture.
    pub chunks: &'a [u8],
}

/// Names and contents of chunks, as far as they are there: of the last one, it may be a part.
fn each(mut chunks: &[u8]) -> impl Iterator<Item = ([u8; 4], &[u8], bool)> {
    std::iter::from_fn(move || {
        let (name, behind) = chunks.split_first_chunk()?;
        let (length, behind) = behind.split_first_chunk()?;
        let length = u32::from_le_bytes(*length) as usize;
        chunks = length.checked_next_multiple_of(2).and_then(|length| behind.get(length..)).unwrap_or_default();
        Some((*name, behind.get(..length).unwrap_or(behind), length <= behind.len()))
    })
}

/// The content of the first chunk of this name.
fn find(chunks: &[u8], name: [u8; 4]) -> Option<&[u8]> {
    let (_, content, whole) = each(chunks).find(|(found, ..)| *found == name)?;
    whole.then_some(content)
}

/// The chunks of a file.
pub fn of_file(file: &[u8]) -> &[u8] {
    file.get(BEGIN..).unwrap_or_default()
}

/// The first frame, if all of it is there. Its picture begins with a chunk of one: libwebp would take a whole file
/// there, too, or pixels without any chunk.
pub fn first_frame(file: &[u8]) -> Option<Frame<'_>> {
    let (head, chunks) = find(of_file(file), *b"ANMF")?.split_at_checked(FRAME)?;
    if ![b"ALPH", b"VP8 ", b"VP8L"].iter().any(|name| chunks.starts_with(*name)) {
        return None;
    }
    let number = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], 0]);
    Some(Frame { left: number(0) * 2, top: number(3) * 2, width: number(6) + 1, height: number(9) + 1, chunks })
}

/// The lossless pixels among the chunks of a picture, without their header: all of them, or alpha that is stored so.
/// Those that libwebp takes: of the first picture, and of what comes before it the last alpha.
pub fn lossless(chunks: &[u8]) -> Option<&[u8]> {
    /// A signature, both sides, alpha and a version.
    const HEADER: usize = 5;
    let mut alpha = None;
    for (name, content, _) in each(chunks) {
        match &name {
            b"VP8L" => return content.get(HEADER..),
            b"VP8 " => return alpha,
            b"ALPH" => alpha = content.split_first().and_then(|(how, pixels)| (how & 3 == 1).then_some(pixels)),
            _ => {}
        }
    }
    None
}

/// Whether the file ends before it says that it does.
pub fn is_cut_off(file: &[u8]) -> bool {
    let said = file.get(4..8).and_then(|said| said.first_chunk()).map_or(0, |said| u32::from_le_bytes(*said));
    (file.len() as u64) < u64::from(said) + 8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_found_behind_others_and_not_beyond_the_end() {
        let file = b"RIFF\x28\0\0\0WEBPVP8X\x03\0\0\0abc.ALPH\x02\0\0\0\x01xVP8L\x06\0\0\0header";
        assert_eq!(find(of_file(file), *b"VP8X"), Some(&b"abc"[..]));
        assert_eq!(lossless(of_file(file)), Some(&b"r"[..]));
        assert_eq!(lossless(of_file(&file[..34])), None, "no picture");
        assert!(first_frame(file).is_none() && !is_cut_off(file) && is_cut_off(&file[..file.len() - 1]));
        for length in 0..file.len() {
            assert_eq!(find(of_file(&file[..length]), *b"VP8L"), None, "{length}");
        }
    }

    #[test]
    fn what_is_lossless_is_what_the_library_takes() {
        let chunk = |name: &[u8; 4], content: &[u8]| {
            let length = (content.len() as u32).to_le_bytes();
            [&name[..], &length, content, &[0][..content.len() % 2]].concat()
        };
        let (first, last, raw) = (chunk(b"ALPH", b"\x01first"), chunk(b"ALPH", b"\x01last"), chunk(b"ALPH", b"\x00"));
        let (lossy, whole, more) = (chunk(b"VP8 ", b"lossy"), chunk(b"VP8L", b"2f123pixels"), chunk(b"more", b""));
        let taken = |chunks: &[&Vec<u8>]| {
            lossless(&chunks.iter().flat_map(|chunk| chunk.iter().copied()).collect::<Vec<_>>()).map(<[u8]>::to_vec)
        };
        assert_eq!(taken(&[&first, &more, &last, &lossy, &whole]), Some(b"last".to_vec()));
        assert_eq!(taken(&[&first, &raw, &lossy]), None);
        assert_eq!(taken(&[&lossy, &first, &whole]), None);
        assert_eq!(taken(&[&first, &whole, &lossy]), Some(b"pixels".to_vec()));
        assert_eq!(lossless(&whole[..whole.len() - 4]), Some(&b"pix"[..]), "as much as there is");
        // A frame that is a file, or pixels alone.
        let frame = |content: &[u8]| [&b"RIFF0000WEBP"[..], &chunk(b"ANMF", &[&[0; FRAME], content].concat())].concat();
        assert!(first_frame(&frame(&whole)).is_some() && first_frame(&frame(&[&last[..], &lossy].concat())).is_some());
        assert!(first_frame(&frame(&[&b"RIFF0000WEBP"[..], &whole].concat())).is_none());
        assert!(first_frame(&frame(b"\x2f1234pixels")).is_none());
    }
}
