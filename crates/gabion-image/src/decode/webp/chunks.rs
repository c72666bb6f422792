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

/// The content of the first chunk of this name.
fn find(mut chunks: &[u8], name: [u8; 4]) -> Option<&[u8]> {
    loop {
        let (found, behind) = chunks.split_first_chunk::<4>()?;
        let (length, behind) = behind.split_first_chunk()?;
        let length = u32::from_le_bytes(*length) as usize;
        if *found == name {
            return behind.get(..length);
        }
        chunks = behind.get(length.checked_next_multiple_of(2)?..)?;
    }
}

/// The chunks of a file.
pub fn of_file(file: &[u8]) -> &[u8] {
    file.get(BEGIN..).unwrap_or_default()
}

/// The first frame, if all of it is there.
pub fn first_frame(file: &[u8]) -> Option<Frame<'_>> {
    let (head, chunks) = find(of_file(file), *b"ANMF")?.split_at_checked(FRAME)?;
    let number = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], 0]);
    Some(Frame { left: number(0) * 2, top: number(3) * 2, width: number(6) + 1, height: number(9) + 1, chunks })
}

/// The lossless pixels among the chunks of a picture, without their header: all of them, or alpha that is stored so.
pub fn lossless(chunks: &[u8]) -> Option<&[u8]> {
    /// A signature, both sides, alpha and a version.
    const HEADER: usize = 5;
    if let Some(pixels) = find(chunks, *b"VP8L") {
        return pixels.get(HEADER..);
    }
    let (how, alpha) = find(chunks, *b"ALPH")?.split_first()?;
    (how & 3 == 1).then_some(alpha)
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
        assert_eq!(lossless(of_file(&file[..34])), Some(&b"x"[..]));
        assert!(first_frame(file).is_none() && !is_cut_off(file) && is_cut_off(&file[..file.len() - 1]));
        for length in 0..file.len() {
            assert_eq!(find(of_file(&file[..length]), *b"VP8L"), None, "{length}");
        }
    }
}
