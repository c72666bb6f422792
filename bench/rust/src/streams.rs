//! Images through Rust's readers and writers, with no Python around them.

use std::fs::File;
use std::io::{Cursor, Read, Seek, Write};
use std::time::{Duration, Instant};

use gabion_bench_allocators::process::cpu_seconds;
use gabion_blocks::Pool;
use gabion_image::{Format, Image, OpenOptions, SaveOptions};

use crate::Outcome;
use crate::report::{Metric, Report};

/// Operations before those that count, and how many of those there are at least.
const WARM_UP: usize = 3;
const LEAST: usize = 5;

/// What is read or written.
pub struct Work {
    pub way: Way,
    /// A picture's file.
    pub path: String,
    /// Whether its bytes come from memory, or go there, and not from the file or to one.
    pub in_memory: bool,
    pub lasts: Duration,
}

/// What is done with it.
#[derive(Clone, Copy, PartialEq)]
pub enum Way {
    /// Decoded as a whole, from a reader.
    Load,
    /// Encoded into a writer.
    Save,
}

impl Way {
    pub fn named(name: &str) -> Outcome<Self> {
        match name {
            "load" => Ok(Self::Load),
            "save" => Ok(Self::Save),
            other => Err(format!("{other}: load and save are known").into()),
        }
    }
}

/// Who does it.
#[derive(Clone, Copy, PartialEq)]
pub enum Subject {
    /// The reader or writer is handed over.
    Gabion,
    /// A buffer of the whole file, made anew: read first, or written at the end.
    Naive,
    /// No reader and no writer: bytes that are there are decoded, or encoded into memory that is there.
    Floor,
}

impl Subject {
    pub fn named(name: &str) -> Outcome<Self> {
        match name {
            "gabion" => Ok(Self::Gabion),
            "naive" => Ok(Self::Naive),
            "floor" => Ok(Self::Floor),
            other => Err(format!("{other}: gabion, naive and floor are known").into()),
        }
    }
}

pub fn run(subject: Subject, work: &Work) -> Outcome<Report> {
    let content = std::fs::read(&work.path)?;
    let format = Format::of_bytes(&content).ok_or("the file is no picture")?;
    let picture = decode(&content)?;
    let times = match (work.way, work.in_memory) {
        (Way::Load, true) => {
            let source = Cursor::new(&content);
            timed(work.lasts, || check(&load(subject, &content, source.clone())?, &picture))?
        }
        (Way::Load, false) => {
            let mut source = File::open(&work.path)?;
            timed(work.lasts, || {
                source.rewind()?;
                check(&load(subject, &content, &source)?, &picture)
            })?
        }
        (Way::Save, in_memory) => {
            // Memory that is there, for the floor or as the target.
            let (mut target, mut there) = (tempfile::tempfile()?, Vec::with_capacity(2 * content.len()));
            timed(work.lasts, || {
                there.clear();
                if in_memory {
                    return save(subject, &picture, format, &mut there);
                }
                target.rewind()?;
                target.set_len(0)?;
                if subject == Subject::Floor {
                    save(subject, &picture, format, &mut there)
                } else {
                    save(subject, &picture, format, &mut target)
                }
            })?
        }
    };
    Ok(vec![times].into())
}

fn decode(bytes: &[u8]) -> Outcome<Image> {
    Ok(Image::decode(Pool::global(), bytes, &OpenOptions::default())?)
}

fn load(subject: Subject, content: &[u8], mut source: impl Read) -> Outcome<Image> {
    match subject {
        Subject::Gabion => Ok(Image::read(Pool::global(), source, &OpenOptions::default())?),
        Subject::Naive => {
            let mut whole = Vec::new();
            source.read_to_end(&mut whole)?;
            decode(&whole)
        }
        Subject::Floor => decode(content),
    }
}

fn check(image: &Image, like: &Image) -> Outcome<()> {
    if image.size() == like.size() { Ok(()) } else { Err("the picture has another size".into()) }
}

fn save(subject: Subject, picture: &Image, format: Format, target: &mut impl Write) -> Outcome<()> {
    let options = SaveOptions { quality: 90, ..SaveOptions::default() };
    if subject == Subject::Naive {
        let mut whole = Vec::new();
        picture.encode(format, &options, &mut whole)?;
        target.write_all(&whole)?;
    } else {
        picture.encode(format, &options, target)?;
    }
    Ok(())
}

/// The median of the CPU time of one operation.
fn timed(lasts: Duration, mut operation: impl FnMut() -> Outcome<()>) -> Outcome<Metric> {
    for _ in 0..WARM_UP {
        operation()?;
    }
    let (mut times, began) = (Vec::new(), Instant::now());
    while times.len() < LEAST || began.elapsed() < lasts {
        let before = cpu_seconds();
        operation()?;
        times.push(cpu_seconds() - before);
    }
    times.sort_unstable_by(f64::total_cmp);
    Ok(("cpu_per_op", times[times.len() / 2] * 1e3, "ms"))
}
