//! Formats that are not read here, so that an error can name them: many come under the name of one that is.

const CONVERT: &str = "convert it to JPEG, PNG, WebP or TIFF";
const DRAW: &str = "have a program that draws it save it as PNG";
const FRAME: &str = "save a frame of it as JPEG or PNG";
const ASK: &str = "servers send one in place of what they do not give; get the file anew";

/// Where a signature stands, what it is the signature of, and what to do.
const SIGNATURES: [(usize, &[u8], &str, &str); 11] = [
    (0, b"\xFF\x0A", "a JPEG XL picture", CONVERT),
    (0, b"\0\0\0\x0CJXL \r\n\x87\n", "a JPEG XL picture", CONVERT),
    (0, b"\xFF\x4F\xFF\x51", "a JPEG 2000 picture", CONVERT),
    (0, b"\0\0\0\x0CjP  \r\n\x87\n", "a JPEG 2000 picture", CONVERT),
    (0, b"8BPS", "a Photoshop document", CONVERT),
    (0, b"\0\0\x01\0", "an icon (ICO)", CONVERT),
    (0, b"%PDF-", "a PDF document", DRAW),
    (0, b"%!PS", "a PostScript document", DRAW),
    (0, b"\x1A\x45\xDF\xA3", "a WebM or Matroska video", FRAME),
    (8, b"AVI LIST", "an AVI video", FRAME),
    (4, b"moov", "a QuickTime video", FRAME),
];

/// What a file with these first bytes is and what to do, as far as they tell.
pub fn identify(bytes: &[u8]) -> Option<String> {
    let at = |place: usize, signature: &[u8]| bytes.get(place..).is_some_and(|rest| rest.starts_with(signature));
    let signed = SIGNATURES.iter().find(|(place, signature, ..)| at(*place, signature));
    let (kind, advice) = match signed {
        Some((.., kind, advice)) => (*kind, *advice),
        None if at(4, b"ftyp") => boxed(bytes),
        None => text(bytes)?,
    };
    Some(format!("the file is {kind}, which is not read here: {advice}"))
}

/// What a file in the boxes of ISO 14496-12 is: pictures and videos share them, and name what they are in a list of
/// brands.
fn boxed(bytes: &[u8]) -> (&'static str, &'static str) {
    let length = bytes.first_chunk().map_or(0, |length| u32::from_be_bytes(*length) as usize);
    let brands = bytes.get(8..length.min(bytes.len())).unwrap_or_default().as_chunks::<4>().0;
    let any = |known: &[&[u8; 4]]| brands.iter().any(|brand| known.contains(&brand));
    if any(&[b"avif", b"avis"]) {
        ("an AVIF picture", CONVERT)
    } else if any(&[b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"]) {
        ("a HEIC picture", CONVERT)
    } else if any(&[b"crx "]) {
        ("a camera's raw picture (CR3)", CONVERT)
    } else {
        ("an MP4 or QuickTime video", FRAME)
    }
}

/// How much of a text is looked at: what comes before the first element of an SVG is seldom long.
const TEXT: usize = 2048;

fn text(bytes: &[u8]) -> Option<(&'static str, &'static str)> {
    let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes).trim_ascii_start();
    if !bytes.starts_with(b"<") {
        return None;
    }
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(TEXT)]).to_ascii_lowercase();
    if ["<!doctype html", "<html"].iter().any(|start| text.starts_with(start)) {
        Some(("a web page", ASK))
    } else if text.contains("<svg") {
        Some(("an SVG drawing", DRAW))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Format;

    #[test]
    fn what_is_read_is_not_foreign() {
        for (place, signature, kind, _) in SIGNATURES {
            let bytes = [&vec![b'.'; place][..], signature].concat();
            assert!(identify(&bytes).unwrap().contains(kind));
            assert_eq!(Format::of_bytes(&bytes), None, "{kind}");
        }
    }

    #[test]
    fn cut_off_anywhere() {
        let heic = b"\0\0\0\x18ftypmif1\0\0\0\0mif1heic";
        for length in 0..heic.len() {
            assert_eq!(identify(&heic[..length]).is_some(), length >= 8, "{length}");
        }
        for nothing in [&b""[..], b"<", b"<x", b"\xEF\xBB\xBF", b"<\xFF\xFF", b"text with <svg", b"\0\0\0\0", b"RIFF"] {
            assert_eq!(identify(nothing), None, "{nothing:?}");
        }
    }
}
