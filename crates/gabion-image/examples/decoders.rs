//! Prints how fast decoders of JPEG are on the photographs of a folder, as the table in `docs/images.md`:
//!
//! ```text
//! cargo run --release -p gabion-image --example decoders -- FOLDER
//! ```
//!
//! Sequential files only. Megapixels of the file for each second of CPU time, one thread, the best of five rounds;
//! decoders take turns within a round. Where the system does not tell the CPU time it is the time that passes.

use std::io::Cursor;
use std::path::Path;
use std::sync::LazyLock;
use std::time::Instant;

use gabion_blocks::Pool;
use gabion_image::{Image, OpenOptions};
use mozjpeg::Decompress;
use zune_jpeg::zune_core::options::DecoderOptions;
use zune_jpeg::{JpegDecoder, RawImcuRowStatus};

/// Decodes the bytes of a file to that many eighths of its size, and returns a sum that depends on its pixels.
type Decoder = fn(&[u8], u8) -> u64;

const ROUNDS: usize = 5;

fn main() {
    let folder = std::env::args().nth(1).expect("a folder of photographs");
    let files = sequential_files(Path::new(&folder));
    assert!(!files.is_empty(), "{folder} holds no sequential JPEG");
    let megapixels: f64 = files.iter().map(|file| pixels(file) as f64 / 1e6).sum();
    println!("{} files, {megapixels:.0} megapixels\n", files.len());
    let decoders: [(&str, Decoder, &[u8]); 4] = [
        ("gabion, RGB", gabion, &[8, 4, 2, 1]),
        ("`zune-jpeg`, planes", zune_planes, &[8]),
        ("`zune-jpeg`, RGB", zune, &[8]),
        ("`mozjpeg`, RGB", mozjpeg, &[8, 4, 2, 1]),
    ];
    let mut best = [[f64::INFINITY; 9]; 4];
    for _ in 0..ROUNDS {
        for ((_, decode, scales), best) in decoders.iter().zip(&mut best) {
            for &eighths in *scales {
                let began = spent();
                let sum: u64 = files.iter().map(|file| decode(file, eighths)).fold(0, u64::wrapping_add);
                assert_ne!(sum, 0, "pictures of something");
                best[usize::from(eighths)] = best[usize::from(eighths)].min(spent() - began);
            }
        }
    }
    println!("| decoder | full | 4/8 | 2/8 | 1/8 |\n|---|---|---|---|---|");
    for ((name, _, _), best) in decoders.iter().zip(&best) {
        let cells = [8, 4, 2, 1].map(|eighths: usize| match best[eighths] {
            time if time.is_finite() => format!("{:.0}", megapixels / time),
            _ => String::new(),
        });
        println!("| {name} | {} |", cells.join(" | "));
    }
}

/// Seconds of CPU time of this thread.
fn spent() -> f64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanoseconds = told.and_then(|told| told.split_whitespace().next()?.parse::<f64>().ok());
    nanoseconds.map_or_else(|| START.elapsed().as_secs_f64(), |nanoseconds| nanoseconds / 1e9)
}

fn sequential_files(folder: &Path) -> Vec<Vec<u8>> {
    let entries = std::fs::read_dir(folder).expect("the folder can be read");
    let mut paths: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    paths
        .iter()
        .filter(|path| path.extension().is_some_and(|name| name.eq_ignore_ascii_case("jpg")))
        .map(|path| std::fs::read(path).expect("the file can be read"))
        .filter(|file| frame(file).is_some_and(|(marker, ..)| marker == 0xC0))
        .collect()
}

/// The marker of the frame, its width and height.
fn frame(file: &[u8]) -> Option<(u8, u64, u64)> {
    let mut rest = file.get(2..)?;
    loop {
        let &[255, marker, h, l, _, h1, h0, w1, w0, ..] = rest else { return None };
        if (0xC0..=0xC2).contains(&marker) {
            return Some((marker, u16::from_be_bytes([w1, w0]).into(), u16::from_be_bytes([h1, h0]).into()));
        }
        rest = rest.get(2 + usize::from(u16::from_be_bytes([h, l]))..)?;
    }
}

fn pixels(file: &[u8]) -> u64 {
    frame(file).map_or(0, |(_, width, height)| width * height)
}

fn gabion(file: &[u8], eighths: u8) -> u64 {
    let (_, width, height) = frame(file).expect("it was found before");
    let side = |side: u64| (side * u64::from(eighths) / 8) as u32;
    let options = OpenOptions { max_size: Some((side(width), side(height))), upright: false, ..OpenOptions::default() };
    // The decoder is to give just this size, and no filter anything smaller.
    let resampling = gabion_image::Resampling { gap: 1.0, ..options.resampling };
    let image = Image::decode(Pool::global(), file, &OpenOptions { resampling, ..options }).expect("a sound file");
    image.rows().map(|row| u64::from(row[row.len() / 2]) + 1).sum()
}

fn zune(file: &[u8], _: u8) -> u64 {
    let mut decoder = JpegDecoder::new(Cursor::new(file));
    decoder.decode().expect("a sound file").iter().step_by(1009).map(|&sample| u64::from(sample) + 1).sum()
}

fn zune_planes(file: &[u8], _: u8) -> u64 {
    let mut decoder = JpegDecoder::new_with_options(Cursor::new(file), DecoderOptions::default());
    decoder.decode_headers().expect("a sound file");
    let mut raw = decoder.raw_output();
    let (layout, count) = (raw.layout().expect("known by now"), raw.num_components().expect("known by now"));
    let strides: Vec<usize> = layout[..count].iter().map(|plane| plane.stride).collect();
    let mut strips: Vec<Vec<u8>> =
        layout[..count].iter().map(|plane| vec![0; plane.stride * plane.vertical_sampling_factor * 8]).collect();
    let mut sum = 0;
    loop {
        let mut planes: Vec<&mut [u8]> = strips.iter_mut().map(Vec::as_mut_slice).collect();
        match raw.decode_next_imcu_row(&mut planes, &strides).expect("a sound file") {
            RawImcuRowStatus::RowReady { .. } => sum += u64::from(strips[0][0]) + 1,
            _ => return sum,
        }
    }
}

fn mozjpeg(file: &[u8], eighths: u8) -> u64 {
    let mut decoder = Decompress::new_mem(file).expect("a sound file");
    decoder.scale(eighths);
    let mut started = decoder.rgb().expect("a sound file");
    let mut row = vec![0u8; started.width() * 3];
    let mut sum = 0;
    for _ in 0..started.height() {
        started.read_scanlines_into(&mut row).expect("a sound file");
        sum += u64::from(row[row.len() / 2]) + 1;
    }
    sum
}
