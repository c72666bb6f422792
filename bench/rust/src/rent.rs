//! Rent, touch, return: one size over and over, for a given time.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use gabion_bench_allocators::process::cpu_seconds;
use gabion_bench_allocators::{Source, Touch, Written};

use crate::Outcome;
use crate::report::Report;
use crate::subject::Task;

/// Buffers of a request that needs several, but no more bytes at a time than this.
const SEVERAL: usize = 4;
const SEVERAL_BYTES: usize = 128 << 20;
/// Steps before the clock starts, and the least that are timed, however slow.
const WARM_UP: usize = 3;
const LEAST_STEPS: u64 = 3;
/// Beside the buffers under way between a pair of threads, each of them has one in hand.
const IN_HAND: usize = 2;

/// How buffers are held.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Rent one, return it.
    One,
    /// Rent several, return them in the order of renting, as a request does that needs a source, a target and scratch.
    Several,
    /// Rent one, hand it to another thread, which returns it.
    HandOver,
}

impl Way {
    /// The way called `name` on the command line.
    pub fn named(name: &str) -> Outcome<Self> {
        match name {
            "one" => Ok(Self::One),
            "several" => Ok(Self::Several),
            "hand-over" => Ok(Self::HandOver),
            _ => Err(format!("{name} is no way: one, several, hand-over").into()),
        }
    }
}

/// What to do: buffers of `bytes` bytes by `threads` threads (pairs of threads, where they hand over).
pub struct Work {
    pub bytes: usize,
    pub way: Way,
    pub threads: usize,
    pub touch: Touch,
    pub lasts: Duration,
}

impl Work {
    /// Buffers that are held at a time: several, but no more bytes than [`SEVERAL_BYTES`].
    fn several(&self) -> usize {
        SEVERAL.min(SEVERAL_BYTES / self.bytes).max(1)
    }

    /// Pairs of threads that hand over.
    pub fn pairs(&self) -> usize {
        if self.way == Way::HandOver { (self.threads / 2).max(1) } else { 0 }
    }
}

/// What the threads of a run share.
struct Run<'a, S: Source> {
    source: &'a S,
    work: &'a Work,
    /// Passed three times: when all hold as many as they ever will, when all are warm, and when the clock runs.
    barrier: Barrier,
    stop: AtomicBool,
}

impl Task for Work {
    fn run(self, source: &impl Source) -> Outcome<Report> {
        let (threads, lanes) =
            if self.way == Way::HandOver { (2 * self.pairs(), self.pairs()) } else { (self.threads, self.threads) };
        let run = Run { source, work: &self, barrier: Barrier::new(threads + 1), stop: AtomicBool::new(false) };
        let (done, lasted, cpu) = thread::scope(|scope| {
            let started: Vec<_> = (0..lanes).flat_map(|lane| run.start(scope, lane)).collect();
            run.barrier.wait();
            run.barrier.wait();
            let (began, cpu_before) = (Instant::now(), cpu_seconds());
            run.barrier.wait();
            thread::sleep(self.lasts);
            // Relaxed: the flag says nothing about other memory.
            run.stop.store(true, Ordering::Relaxed);
            let done: u64 = started.into_iter().map(|thread| thread.join().expect("a thread panicked")).sum();
            (done as f64, began.elapsed(), cpu_seconds() - cpu_before)
        });
        let metrics = vec![("ops_per_s", done / lasted.as_secs_f64(), "1/s"), ("cpu_per_op", cpu * 1e6 / done, "µs")];
        Ok(metrics.into())
    }
}

impl<S: Source> Run<'_, S> {
    /// Starts the thread or the pair of threads of `lane`; each ends with the number of buffers that it has returned.
    fn start<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        lane: usize,
    ) -> Vec<ScopedJoinHandle<'scope, u64>> {
        if self.work.way == Way::HandOver {
            let (sender, receiver) = sync_channel(self.work.several());
            vec![
                scope.spawn(move || self.rent_for_other(lane, &sender)),
                scope.spawn(move || self.take_over(&receiver)),
            ]
        } else {
            vec![scope.spawn(move || self.rent_and_return(lane))]
        }
    }

    fn wait(&self) {
        self.barrier.wait();
        self.barrier.wait();
    }

    /// Calls `step` until the time is over, each time with another value to write; returns how often.
    fn steps(&self, lane: usize, mut step: impl FnMut(u8)) -> u64 {
        let mut value = lane as u8;
        let mut step = || {
            value = value.wrapping_mul(5).wrapping_add(1);
            step(value);
        };
        (0..WARM_UP).for_each(|_| step());
        self.wait();
        let mut steps = 0;
        // Relaxed: the flag says nothing about other memory.
        while steps < LEAST_STEPS || !self.stop.load(Ordering::Relaxed) {
            step();
            steps += 1;
        }
        steps
    }

    /// Holds that many buffers while all other threads hold theirs: no more are ever out when the clock runs.
    fn hold_most(&self, lane: usize, count: usize) {
        let most: Vec<_> = (0..count).map(|_| self.rent(lane, 0)).collect();
        self.barrier.wait();
        drop(most);
    }

    fn rent(&self, lane: usize, value: u8) -> Written<S::Memory> {
        self.source.rent(lane, self.work.bytes).write(self.work.touch, value)
    }

    fn rent_and_return(&self, lane: usize) -> u64 {
        if self.work.way == Way::One {
            self.hold_most(lane, 1);
            return self.steps(lane, |value| self.rent(lane, value).check());
        }
        let count = self.work.several();
        let mut held = Vec::with_capacity(count);
        self.hold_most(lane, count);
        let steps = self.steps(lane, |value| {
            held.extend((0..count).map(|_| self.rent(lane, value)));
            held.drain(..).for_each(|buffer| buffer.check());
        });
        steps * count as u64
    }

    /// Every buffer that is rented here is counted where it is returned.
    fn rent_for_other(&self, lane: usize, other: &SyncSender<Written<S::Memory>>) -> u64 {
        self.hold_most(lane, self.work.several() + IN_HAND);
        self.steps(lane, |value| other.send(self.rent(lane, value)).expect("the other thread lives as long"));
        0
    }

    fn take_over(&self, buffers: &Receiver<Written<S::Memory>>) -> u64 {
        self.barrier.wait();
        buffers.iter().take(WARM_UP).for_each(|buffer| buffer.check());
        self.wait();
        buffers.iter().map(|buffer| buffer.check()).count() as u64
    }
}
