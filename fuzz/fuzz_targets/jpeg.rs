//! JPEG, at full size: planes strip by strip, progressive, CMYK.

#![no_main]

mod pictures;

use std::sync::OnceLock;

use gabion_image::Format;
use libfuzzer_sys::fuzz_target;

static FILES: OnceLock<Vec<Vec<u8>>> = OnceLock::new();

fuzz_target!(|input: &[u8]| {
    let files = FILES.get_or_init(|| pictures::files(Format::Jpeg));
    pictures::try_input(Format::Jpeg, files, false, input);
});
