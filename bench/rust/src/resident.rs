//! Resident memory under a service's load: bursts and lulls of buffers of all sizes on many threads, then nothing.
//!
//! ```text
//!   live  ▁▆▇▆▇▁▁▂▁▇▆▇▆▁▂▁▁▇▆▇…▁▁▁▁▁▁▁▁▁▁▁
//!          burst lull burst lull    idle for two trim periods
//! ```

use std::collections::VecDeque;
use std::fmt::Write;
use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use gabion_bench_allocators::process::{read_in_code, resident_bytes, resident_bytes_soon};
use gabion_bench_allocators::{Source, Touch, Written};

use crate::Outcome;
use crate::random::Random;
use crate::report::Report;
use crate::subject::Task;

/// Threads of the service.
pub const THREADS: usize = 16;
/// A cycle is a burst, then a lull.
const CYCLES: f64 = 10.0;
const BURST_SHARE: f64 = 0.6;
/// In a lull, one thread in so many still has work.
const LULL_THREADS: usize = 8;
/// A thread holds no more than this, or one larger buffer.
const HELD_BYTES: usize = 48 << 20;
/// Buffers up to this size are written from end to end, larger ones a byte in each page.
const WRITTEN_BYTES: usize = 1 << 20;
/// Width times height times bytes a pixel of the images among the buffers.
const IMAGES: [usize; 6] =
    [100 * 100 * 4, 150 * 150 * 3, 720 * 480 * 3, 1280 * 720 * 4, 1920 * 1080 * 3, 4000 * 3000 * 3];
/// What a thread does between two buffers, on average; and how often it looks for work in a lull.
const THINK: Duration = Duration::from_micros(500);
const LULL_STEP: Duration = Duration::from_millis(5);
/// A thread that has worked before has used this much of its stack.
const STACK_BYTES: usize = 32 << 10;
/// Readings of resident memory, at most.
const READINGS: u32 = 1200;
/// Idle time in trim periods: two, and a tenth for the trimmer's own steps.
const IDLE_PERIODS: f64 = 2.1;

/// What to do: load for `lasts`, then nothing for two of gabion's trim periods.
pub struct Work {
    pub lasts: Duration,
    pub trim_period: Duration,
}

type Buffer<S> = Written<<S as Source>::Memory>;

/// A buffer and its bytes, as it goes from thread to thread.
type Sent<S> = (usize, Buffer<S>);

/// What the threads of a run share.
struct Service<'a, S: Source> {
    source: &'a S,
    began: Instant,
    lasts: Duration,
    /// Requested bytes that somebody holds.
    live: AtomicU64,
    /// Buffers rented so far.
    rented: AtomicU64,
    /// Passed when all have started, when the load begins, when it is over, and when the idle time is over.
    barrier: Barrier,
}

impl Task for Work {
    fn run(self, source: &impl Source) -> Outcome<Report> {
        let idle = self.trim_period.mul_f64(IDLE_PERIODS);
        let service = &Service {
            source,
            began: Instant::now(),
            lasts: self.lasts,
            live: AtomicU64::new(0),
            rented: AtomicU64::new(0),
            barrier: Barrier::new(THREADS + 1),
        };
        let mut readings = Vec::with_capacity(READINGS as usize * 2);
        let (before, after) = thread::scope(|scope| -> Outcome<(u64, u64)> {
            let (senders, inboxes): (Vec<_>, Vec<_>) = (0..THREADS).map(|_| channel()).unzip();
            for (thread, inbox) in inboxes.into_iter().enumerate() {
                let senders = senders.clone();
                scope.spawn(move || service.work(thread, &senders, &inbox));
            }
            service.barrier.wait();
            read_in_code()?;
            source.give_back_idle();
            let before = resident_bytes()?;
            service.barrier.wait();
            service.read_until(self.lasts, &mut readings)?;
            service.barrier.wait();
            service.read_until(service.began.elapsed() + idle, &mut readings)?;
            let after = resident_bytes()?;
            service.barrier.wait();
            Ok((before, after))
        })?;
        let peak = readings.iter().map(|reading| reading.resident).max().unwrap_or(before).max(after);
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let metrics = vec![
            ("start_rss", mib(before), "MiB"),
            ("peak_rss", mib(peak), "MiB"),
            ("idle_rss", mib(after), "MiB"),
            ("idle_vs_start", after as f64 / before as f64, "ratio"),
            ("peak_live", mib(readings.iter().map(|reading| reading.live).max().unwrap_or(0)), "MiB"),
            // Relaxed: all threads have ended.
            ("rents_per_s", service.rented.load(Ordering::Relaxed) as f64 / self.lasts.as_secs_f64(), "1/s"),
        ];
        Ok(Report::from(metrics).with("readings", json(&readings)))
    }
}

/// Resident and live bytes at a moment.
struct Reading {
    at: Duration,
    resident: u64,
    live: u64,
}

fn json(readings: &[Reading]) -> String {
    let mut text = String::new();
    for reading in readings {
        let comma = if text.is_empty() { "" } else { ", " };
        write!(text, "{comma}[{:.3}, {}, {}]", reading.at.as_secs_f64(), reading.resident, reading.live)
            .expect("a string takes everything");
    }
    format!("[{text}]")
}

impl<S: Source> Service<'_, S> {
    fn read_until(&self, end: Duration, readings: &mut Vec<Reading>) -> Outcome<()> {
        let step = (self.lasts / READINGS).max(Duration::from_millis(20));
        while self.began.elapsed() < end {
            // Relaxed: a figure for the picture.
            let live = self.live.load(Ordering::Relaxed);
            readings.push(Reading { at: self.began.elapsed(), resident: resident_bytes_soon()?, live });
            thread::sleep(step);
        }
        Ok(())
    }

    /// One thread of the service: it works through bursts and lulls, drops everything, and stays, idle, to the end.
    #[allow(clippy::large_stack_arrays, reason = "the stack is what it is about")]
    fn work(&self, thread: usize, others: &[Sender<Sent<S>>], inbox: &Receiver<Sent<S>>) {
        let mut held = Held { service: self, buffers: VecDeque::new(), bytes: 0 };
        let mut random = Random(thread as u64);
        black_box([thread as u8; STACK_BYTES]);
        // What an allocator makes for a thread at its first call is there at the start.
        self.source.rent(thread, IMAGES[0]).write(Touch::Full, 0).check();
        self.barrier.wait();
        self.barrier.wait();
        loop {
            let now = self.began.elapsed();
            if now >= self.lasts {
                break;
            }
            held.keep_all(inbox);
            let cycle = (now.as_secs_f64() / self.lasts.as_secs_f64() * CYCLES).fract();
            let lull = cycle > BURST_SHARE;
            if lull && !thread.is_multiple_of(LULL_THREADS) {
                held.make_room(HELD_BYTES);
                thread::sleep(LULL_STEP);
                continue;
            }
            held.one_request(thread, &mut random, others);
            thread::sleep(if lull { LULL_STEP } else { THINK.mul_f64(random.below(200) as f64 / 100.0) });
        }
        self.barrier.wait();
        held.keep_all(inbox);
        held.make_room(HELD_BYTES);
        drop(held);
        self.barrier.wait();
    }
}

/// The buffers of one thread, oldest first.
struct Held<'a, 'b, S: Source> {
    service: &'a Service<'b, S>,
    buffers: VecDeque<Sent<S>>,
    bytes: usize,
}

impl<S: Source> Held<'_, '_, S> {
    /// Rents one buffer; one in four goes to another thread.
    fn one_request(&mut self, thread: usize, random: &mut Random, others: &[Sender<Sent<S>>]) {
        let bytes = draw_bytes(random);
        self.make_room(bytes);
        let touch = if bytes <= WRITTEN_BYTES { Touch::Full } else { Touch::Page };
        let buffer = self.service.source.rent(thread, bytes).write(touch, random.below(256) as u8);
        // Relaxed: figures for the picture and for the report.
        self.service.live.fetch_add(bytes as u64, Ordering::Relaxed);
        self.service.rented.fetch_add(1, Ordering::Relaxed);
        if random.below(4) == 0 {
            others[random.below(others.len())].send((bytes, buffer)).expect("all threads stay to the end");
        } else {
            self.keep((bytes, buffer));
        }
        // Not always the oldest goes: buffers of one age die at different times.
        if !self.buffers.is_empty() && random.below(2) == 0 {
            let place = random.below(self.buffers.len());
            let sent = self.buffers.swap_remove_back(place);
            self.give_back(sent);
        }
    }

    fn keep_all(&mut self, inbox: &Receiver<Sent<S>>) {
        for sent in inbox.try_iter() {
            self.keep(sent);
        }
    }

    fn keep(&mut self, sent: Sent<S>) {
        self.bytes += sent.0;
        self.buffers.push_back(sent);
    }

    /// Gives buffers back, oldest first, until `bytes` more may be held.
    fn make_room(&mut self, bytes: usize) {
        while self.bytes + bytes > HELD_BYTES && !self.buffers.is_empty() {
            let sent = self.buffers.pop_front();
            self.give_back(sent);
        }
    }

    fn give_back(&mut self, sent: Option<Sent<S>>) {
        if let Some((bytes, buffer)) = sent {
            buffer.check();
            self.bytes -= bytes;
            // Relaxed: a figure for the picture.
            self.service.live.fetch_sub(bytes as u64, Ordering::Relaxed);
        }
    }
}

/// Half arrays of 16 KiB to 1 MiB, a third images, the rest arrays of 1 to 64 MiB; of each doubling as many.
fn draw_bytes(random: &mut Random) -> usize {
    let (least, doublings) = match random.below(6) {
        0..=2 => (16 << 10, 6),
        3 | 4 => return IMAGES[random.below(IMAGES.len())],
        _ => (1 << 20, 6),
    };
    let least: usize = least << random.below(doublings);
    least + random.below(least)
}
