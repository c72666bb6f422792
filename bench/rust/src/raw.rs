//! 64-byte objects: put all, get all, remove all, and put all again into memory that is warm.

use std::hint::black_box;
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use gabion_pile::{Pile, Pointer, ReadBuf};

use crate::random::Random;
use crate::{Metric, Outcome};

const SIZE: usize = 64;

/// What to do: `count` objects divided among `threads`, got and removed in the order of the puts or shuffled.
pub struct Work {
    pub count: usize,
    pub threads: usize,
    pub shuffled: bool,
}

const PHASES: [&str; 4] = ["put_per_s", "get_per_s", "remove_per_s", "refill_per_s"];

/// When a thread was in a phase.
type Span = (Instant, Instant);

/// Puts go in by index, and each payload starts with its index; so the sum of what the gets return is known.
fn payload(index: usize) -> [u8; SIZE] {
    let mut bytes = [0x5A; SIZE];
    bytes[..8].copy_from_slice(&(index as u64).to_le_bytes());
    bytes
}

fn index_of(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"))
}

fn check_sum(sum: u64, indices: std::ops::Range<usize>) {
    let expected = indices.fold(0u64, |sum, index| sum.wrapping_add(index as u64));
    assert_eq!(sum, expected, "the gets did not return what was put");
}

/// One pile shared by all threads. Each thread puts its own objects, gets those of its neighbour, and removes its own.
pub fn gabion(work: &Work) -> Outcome<Vec<Metric>> {
    let pile = Pile::new()?;
    let barrier = Barrier::new(work.threads);
    let put: Vec<Mutex<Vec<Pointer>>> = (0..work.threads).map(|_| Mutex::new(Vec::new())).collect();
    let spans = on_threads(work.threads, |thread| gabion_thread(work, &pile, &barrier, &put, thread))?;
    assert_eq!(pile.len(), (work.count / work.threads * work.threads) as u64, "the pile counts other than was put");
    Ok(metrics(work, &spans))
}

fn gabion_thread(
    work: &Work,
    pile: &Pile,
    barrier: &Barrier,
    put: &[Mutex<Vec<Pointer>>],
    thread: usize,
) -> Outcome<[Span; 4]> {
    let share = work.count / work.threads;
    let mut own = Vec::with_capacity(share);
    // Written once before the clock starts, so that the caller's own page faults are not counted as the pile's.
    own.resize(share, None);
    let mut buffer = ReadBuf::new();
    barrier.wait();

    let began = Instant::now();
    for (place, index) in own.iter_mut().zip(thread * share..) {
        *place = Some(pile.put(&payload(index))?);
    }
    let put_span = (began, Instant::now());

    let mut own: Vec<Pointer> = own.into_iter().flatten().collect();
    if work.shuffled {
        Random(thread as u64).shuffle(&mut own);
    }
    put[thread].lock().expect("no thread panicked").clone_from(&own);
    barrier.wait();
    let neighbour = (thread + 1) % work.threads;
    let theirs = put[neighbour].lock().expect("no thread panicked").clone();
    barrier.wait();

    let began = Instant::now();
    let mut sum = 0u64;
    for &pointer in &theirs {
        sum = sum.wrapping_add(index_of(pile.read(pointer, &mut buffer)?));
    }
    let get_span = (began, Instant::now());
    check_sum(sum, neighbour * share..(neighbour + 1) * share);
    barrier.wait();

    let began = Instant::now();
    for &pointer in &own {
        pile.remove(pointer)?;
    }
    let remove_span = (began, Instant::now());
    assert!(!own.first().is_some_and(|&pointer| pile.contains(pointer)), "a removed object is still there");
    barrier.wait();

    let began = Instant::now();
    for (place, index) in own.iter_mut().zip(thread * share..) {
        *place = pile.put(&payload(index))?;
    }
    Ok([put_span, get_span, remove_span, (began, Instant::now())])
}

/// The floor: the same bytes copied into one flat buffer and out again; a remove overwrites one word.
pub fn floor(work: &Work) -> Outcome<Vec<Metric>> {
    let share = work.count / work.threads;
    let barrier = Barrier::new(work.threads);
    let mut memory = vec![0u8; share * work.threads * SIZE];
    let parts: Vec<Mutex<&mut [u8]>> = memory.chunks_exact_mut(share * SIZE).map(Mutex::new).collect();
    let spans = on_threads(work.threads, |thread| {
        let mut memory = parts[thread].lock().expect("each thread has its own part");
        let mut order: Vec<u32> = (0..u32::try_from(share)?).collect();
        if work.shuffled {
            Random(thread as u64).shuffle(&mut order);
        }
        barrier.wait();
        let began = Instant::now();
        for index in 0..share {
            memory[index * SIZE..][..SIZE].copy_from_slice(black_box(&payload(index)));
        }
        let put_span = (began, Instant::now());
        barrier.wait();
        let began = Instant::now();
        let mut sum = 0u64;
        let mut buffer = [0u8; SIZE];
        for &index in &order {
            buffer.copy_from_slice(&memory[index as usize * SIZE..][..SIZE]);
            sum = sum.wrapping_add(index_of(black_box(&buffer)));
        }
        let get_span = (began, Instant::now());
        check_sum(sum, 0..share);
        barrier.wait();
        let began = Instant::now();
        for &index in &order {
            memory[index as usize * SIZE..][..8].copy_from_slice(black_box(&[0; 8]));
        }
        let remove_span = (began, Instant::now());
        barrier.wait();
        let began = Instant::now();
        for index in 0..share {
            memory[index * SIZE..][..SIZE].copy_from_slice(black_box(&payload(index)));
        }
        Ok([put_span, get_span, remove_span, (began, Instant::now())])
    })?;
    Ok(metrics(work, &spans))
}

fn on_threads(threads: usize, run: impl Fn(usize) -> Outcome<[Span; 4]> + Sync) -> Outcome<Vec<[Span; 4]>> {
    let run = &run;
    thread::scope(|scope| {
        let started: Vec<_> = (0..threads).map(|thread| scope.spawn(move || run(thread))).collect();
        started.into_iter().map(|thread| thread.join().expect("a thread panicked")).collect()
    })
}

/// A phase lasts from its first thread's start to its last thread's end.
fn metrics(work: &Work, spans: &[[Span; 4]]) -> Vec<Metric> {
    let done = (work.count / work.threads * work.threads) as f64;
    let lasted = |phase: usize| -> Duration {
        let began = spans.iter().map(|spans| spans[phase].0).min().expect("one thread at least");
        let ended = spans.iter().map(|spans| spans[phase].1).max().expect("one thread at least");
        ended - began
    };
    PHASES.iter().enumerate().map(|(phase, &name)| (name, done / lasted(phase).as_secs_f64(), "1/s")).collect()
}
