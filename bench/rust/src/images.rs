//! Small images by many threads: 1024 of 100×100 pixels each, RGB made and converted to CMYK, behind a barrier.

use std::sync::Barrier;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use gabion_bench_allocators::process::{cpu_seconds, resident_bytes};
use gabion_bench_allocators::{Filled, Source};

use crate::Outcome;
use crate::report::Report;
use crate::subject::Task;

const IMAGES: usize = 1024;
const PIXELS: usize = 100 * 100;
/// Images under way to the next thread.
const UNDER_WAY: usize = 64;

/// What to do: `threads` threads, started anew in each of `rounds` rounds; the first is a warm-up and not counted.
/// With `hand_over`, each converted image is dropped by the next thread.
pub struct Work {
    pub threads: usize,
    pub rounds: usize,
    pub hand_over: bool,
}

type Inbox<S> = Receiver<Filled<<S as Source>::Memory>>;
type Next<S> = SyncSender<Filled<<S as Source>::Memory>>;

impl Task for Work {
    fn run(self, source: &impl Source) -> Outcome<Report> {
        self.round(source);
        source.give_back_idle();
        let (resident, cpu) = (resident_bytes()?, cpu_seconds());
        let rounds: Vec<Vec<Duration>> = (0..self.rounds).map(|_| self.round(source)).collect();
        let cpu = cpu_seconds() - cpu;
        source.give_back_idle();
        let left = resident_bytes()? as f64 - resident as f64;
        let images = (self.rounds * self.threads * IMAGES) as f64;
        let median = |of_round: &dyn Fn(&[Duration]) -> Duration| {
            let mut all: Vec<Duration> = rounds.iter().map(|round| of_round(round)).collect();
            all.sort_unstable();
            all[all.len() / 2].as_secs_f64() * 1e3
        };
        let metrics = vec![
            ("round_max", median(&|round| round.iter().copied().max().unwrap_or_default()), "ms"),
            ("round_mean", median(&|round| round.iter().sum::<Duration>() / round.len() as u32), "ms"),
            ("round_min", median(&|round| round.iter().copied().min().unwrap_or_default()), "ms"),
            ("cpu_per_image", cpu * 1e6 / images, "µs"),
            ("rss_left", left / f64::from(1 << 20), "MiB"),
        ];
        Ok(metrics.into())
    }
}

impl Work {
    /// One round: how long each thread took. All threads are new, and have ended when it is over.
    fn round<S: Source>(&self, source: &S) -> Vec<Duration> {
        let barrier = Barrier::new(self.threads);
        let (senders, inboxes): (Vec<Next<S>>, Vec<Inbox<S>>) =
            (0..self.threads).map(|_| sync_channel(UNDER_WAY)).unzip();
        let mut next: Vec<Next<S>> = senders;
        next.rotate_left(1);
        thread::scope(|scope| {
            let started: Vec<_> = next
                .into_iter()
                .zip(inboxes)
                .enumerate()
                .map(|(thread, (next, inbox))| {
                    let barrier = &barrier;
                    let hand_over = self.hand_over;
                    scope.spawn(move || {
                        barrier.wait();
                        let began = Instant::now();
                        if hand_over {
                            convert_for_next(source, thread, next, &inbox);
                        } else {
                            convert(source, thread);
                        }
                        began.elapsed()
                    })
                })
                .collect();
            started.into_iter().map(|thread| thread.join().expect("a thread panicked")).collect()
        })
    }
}

/// The pixels of the RGB image that is made `index`-th.
fn made(index: usize) -> impl FnMut(usize) -> [u8; 3] {
    move |pixel| [(pixel + index) as u8, (pixel >> 8) as u8, index as u8]
}

/// The pixels of its conversion. Neither function depends on where memory comes from, so every subject runs the same
/// loop.
fn converted(rgb: &[u8]) -> impl FnMut(usize) -> [u8; 4] {
    let (pixels, _) = rgb.as_chunks::<3>();
    move |pixel| {
        let [red, green, blue] = pixels[pixel];
        [!red, !green, !blue, 0]
    }
}

/// Makes an RGB image and its conversion; the first is dropped at once.
fn image<S: Source>(source: &S, lane: usize, index: usize) -> Filled<S::Memory> {
    let rgb = source.rent(lane, PIXELS * 3).fill(made(index));
    source.rent(lane, PIXELS * 4).fill(converted(rgb.bytes()))
}

/// Looks at the first, a middle and the last pixel.
fn check(index: usize, cmyk: &[u8]) {
    for pixel in [0, PIXELS / 3, PIXELS - 1] {
        let expected = [!((pixel + index) as u8), !((pixel >> 8) as u8), !(index as u8), 0];
        assert_eq!(cmyk[pixel * 4..][..4], expected, "pixel {pixel} of image {index} was converted wrongly");
    }
}

fn convert<S: Source>(source: &S, lane: usize) {
    for index in 0..IMAGES {
        check(index, image(source, lane, index).bytes());
    }
}

/// As [`convert`], but each image goes to the next thread. A thread whose neighbour is full empties its own inbox
/// meanwhile, so the ring never locks up; it ends when it has dropped everything that it was sent.
fn convert_for_next<S: Source>(source: &S, lane: usize, next: Next<S>, inbox: &Inbox<S>) {
    let mut seen = 0;
    let mut take = |images: &mut dyn Iterator<Item = Filled<S::Memory>>| {
        for image in images {
            check(seen, image.bytes());
            seen += 1;
        }
    };
    for index in 0..IMAGES {
        let mut pending = image(source, lane, index);
        while let Err(refused) = next.try_send(pending) {
            let TrySendError::Full(back) = refused else { panic!("the next thread ended early") };
            pending = back;
            take(&mut inbox.try_iter());
            thread::yield_now();
        }
        take(&mut inbox.try_iter());
    }
    drop(next);
    take(&mut inbox.iter());
    assert_eq!(seen, IMAGES, "images were lost on their way");
}
