//! Objects of 2 to 1000 bytes, each replaced at random by one of another size, 48 times over.

use std::hint::black_box;
use std::time::{Duration, Instant};

use gabion_pile::{Pile, Pointer, ReadBuf};

use crate::random::Random;
use crate::{Metric, Outcome};

const SMALLEST: usize = 2;
const LARGEST: usize = 1000;
const TIMES_OVER: usize = 48;

/// What to do: churn over `count` objects; `moves` removes and puts instead of replacing.
pub struct Work {
    pub count: usize,
    pub moves: bool,
}

impl Work {
    fn metric(&self) -> &'static str {
        if self.moves { "remove_put_per_s" } else { "replace_per_s" }
    }
}

fn draw_size(random: &mut Random) -> u16 {
    (SMALLEST + random.below(LARGEST - SMALLEST + 1)) as u16
}

/// The payload of a size starts with the size, and goes on with bytes that its place gives away.
fn pattern() -> Vec<u8> {
    (0..LARGEST).map(|place| (place * 7) as u8).collect()
}

fn payload(pattern: &mut [u8], size: u16) -> &[u8] {
    pattern[..2].copy_from_slice(&size.to_le_bytes());
    &pattern[..usize::from(size)]
}

/// Runs `step(target, size)` until every object was replaced often enough: rate, longest step, steps over a
/// millisecond.
fn steps(work: &Work, mut step: impl FnMut(usize, u16) -> Outcome<()>) -> Outcome<Vec<Metric>> {
    let mut random = Random(13);
    let began = Instant::now();
    let (mut then, mut longest, mut over) = (began, Duration::ZERO, 0u32);
    for _ in 0..work.count * TIMES_OVER {
        step(random.below(work.count), draw_size(&mut random))?;
        let now = Instant::now();
        if now - then > longest {
            longest = now - then;
        }
        over += u32::from(now - then > Duration::from_millis(1));
        then = now;
    }
    let per_s = (work.count * TIMES_OVER) as f64 / began.elapsed().as_secs_f64();
    Ok(vec![
        (work.metric(), per_s, "1/s"),
        ("longest_op", longest.as_secs_f64() * 1e3, "ms"),
        ("ops_over_1_ms", f64::from(over), "count"),
    ])
}

/// Churn in a pile: rate, longest step, memory against the start (per live byte), share of the reserve in use.
pub fn gabion(work: &Work) -> Outcome<Vec<Metric>> {
    let pile = Pile::new()?;
    let mut random = Random(11);
    let mut pattern = pattern();
    let mut sizes: Vec<u16> = (0..work.count).map(|_| draw_size(&mut random)).collect();
    let live_at_start = live(&sizes);
    let mut pointers: Vec<Option<Pointer>> = vec![None; work.count];
    let before = resident_bytes()?;
    for (pointer, &size) in pointers.iter_mut().zip(&sizes) {
        *pointer = Some(pile.put(payload(&mut pattern, size))?);
    }
    let mut pointers: Vec<Pointer> = pointers.into_iter().flatten().collect();
    let start = resident_bytes()? - before;
    let reserved_at_start = pile.stats().reserved_bytes as f64;

    let mut metrics = steps(work, |target, size| {
        let bytes = payload(&mut pattern, size);
        if work.moves {
            pile.remove(pointers[target])?;
            pointers[target] = pile.put(bytes)?;
        } else {
            pile.replace(pointers[target], bytes)?;
        }
        sizes[target] = size;
        Ok(())
    })?;

    let drift = live(&sizes) / live_at_start;
    let resident = resident_bytes()? - before;
    let stats = pile.stats();
    let mut buffer = ReadBuf::new();
    for (&pointer, &size) in pointers.iter().zip(&sizes) {
        assert_eq!(pile.read(pointer, &mut buffer)?, payload(&mut pattern, size), "an object changed under the churn");
    }
    metrics.extend([
        ("memory_vs_start", resident / start / drift, "ratio"),
        ("reserved_vs_start", stats.reserved_bytes as f64 / reserved_at_start / drift, "ratio"),
        ("used_share", stats.used_bytes as f64 / stats.reserved_bytes as f64, "ratio"),
    ]);
    Ok(metrics)
}

/// The floor: the same bytes copied over slots of the largest size, which never move.
pub fn floor(work: &Work) -> Outcome<Vec<Metric>> {
    const SLOT: usize = 1024;
    let mut pattern = pattern();
    let mut memory = vec![1u8; work.count * SLOT];
    steps(work, |target, size| {
        let bytes = payload(&mut pattern, size);
        memory[target * SLOT..][..bytes.len()].copy_from_slice(black_box(bytes));
        Ok(())
    })
}

fn live(sizes: &[u16]) -> f64 {
    sizes.iter().map(|&size| f64::from(size)).sum()
}

/// Resident memory of this process; `smaps_rollup` is exact where `statm` lags behind.
fn resident_bytes() -> Outcome<f64> {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup")?;
    let line = text.lines().find_map(|line| line.strip_prefix("Rss:")).ok_or("smaps_rollup has no Rss line")?;
    Ok(line.trim().trim_end_matches("kB").trim().parse::<f64>()? * 1024.0)
}
