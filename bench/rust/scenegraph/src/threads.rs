//! Objects that one thread makes and another frees, through bounded queues.

use std::alloc::Layout;
use std::mem::take;
use std::ptr::NonNull;
use std::sync::Barrier;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Instant;

use crate::Outcome;
use crate::clock::Clock;
use crate::report::Report;
use crate::subject::{Kind, Subject, ThreadTask};

/// Who frees what a thread makes.
#[derive(Clone, Copy)]
pub enum Way {
    /// The thread itself, batch by batch.
    Own,
    /// Its partner: half of the threads make, half free.
    Pairs,
    /// All others in turn: every thread makes and frees.
    AllToAll,
}

impl Way {
    /// The way called `name`.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "own" => Self::Own,
            "pairs" => Self::Pairs,
            "all-to-all" => Self::AllToAll,
            _ => return None,
        })
    }
}

/// What to do: `count` objects in all, by `threads` threads.
pub struct Work {
    pub way: Way,
    pub threads: usize,
    pub count: usize,
}

/// Objects that travel together, so that the queue is a small part of the cost.
const BATCH: usize = 512;
/// Batches under way to one thread.
const UNDER_WAY: usize = 16;
/// Sizes of 24 to 96 bytes, in an order that neither repeats soon nor needs a generator.
const SIZES: usize = 10;

#[inline]
fn layout(number: usize) -> Layout {
    Layout::from_size_align(24 + 8 * (number * 7 % SIZES), 8).expect("less than hundred bytes")
}

/// Live objects, numbered from zero; the receiver knows their sizes as the maker did.
#[derive(Default)]
struct Batch(Vec<NonNull<u8>>);

// SAFETY: the objects belong to the batch alone, and the subjects of this file free from any thread.
unsafe impl Send for Batch {}

impl Batch {
    fn with_room() -> Self {
        Self(Vec::with_capacity(BATCH))
    }

    /// Makes the objects, and writes a number into each.
    #[inline]
    fn fill<S: Subject>(&mut self, subject: &S) {
        for number in 0..BATCH {
            let start = subject.alloc(Kind::Nodes, layout(number));
            // SAFETY: the subject gave at least a word, aligned for it, that nobody else uses.
            unsafe { start.cast::<usize>().write(number) };
            self.0.push(start);
        }
    }

    /// Reads the numbers back, and frees the objects.
    #[inline]
    fn free<S: Subject>(&mut self, subject: &S) {
        let mut wrong = 0;
        for (number, start) in self.0.drain(..).enumerate() {
            // SAFETY: the batch owns the object, `fill` wrote its number and took it with this layout.
            unsafe {
                wrong |= start.cast::<usize>().read() ^ number;
                subject.free(Kind::Nodes, start, layout(number));
            }
        }
        assert_eq!(wrong, 0, "an object does not hold what its maker wrote");
    }
}

/// Times the calls of one thread, without its waiting. To read the clock is a system call; for each object, that is
/// about a nanosecond, the same for every subject.
#[derive(Default)]
struct Watch {
    seconds: f64,
}

impl Watch {
    #[inline]
    fn time(&mut self, work: impl FnOnce()) {
        let clock = Clock::start();
        work();
        self.seconds += clock.seconds();
    }
}

/// What one thread does; it returns the CPU seconds of its calls.
type Job<'a> = Box<dyn FnOnce() -> f64 + Send + 'a>;

impl ThreadTask for Work {
    fn run<S: Subject + Sync>(self, subject: &mut S) -> Outcome<Report> {
        let shared = &*subject;
        let (lasted, cpu) = timed(match self.way {
            Way::Own => (0..self.threads).map(|_| self.own(shared)).collect(),
            Way::Pairs => self.pairs(shared),
            Way::AllToAll => self.all_to_all(shared),
        });
        subject.check_empty();
        let made = (self.batches_each() * self.makers() * BATCH) as f64;
        Ok(vec![("objects_per_s", made / lasted, "1/s"), ("cpu_per_object", cpu * 1e9 / made, "ns")].into())
    }
}

/// Runs each job on a thread of its own: seconds from the first one's start to the last one's end, and of CPU time in
/// all calls.
fn timed(jobs: Vec<Job>) -> (f64, f64) {
    let barrier = &Barrier::new(jobs.len());
    thread::scope(|scope| {
        let start = |job: Job| {
            barrier.wait();
            let began = Instant::now();
            (began, job(), Instant::now())
        };
        let started: Vec<_> = jobs.into_iter().map(|job| scope.spawn(move || start(job))).collect();
        let ended: Vec<_> = started.into_iter().map(|thread| thread.join().expect("a thread panicked")).collect();
        let first = ended.iter().map(|(began, ..)| *began).min().expect("there are threads");
        let last = ended.iter().map(|(.., end)| *end).max().expect("there are threads");
        ((last - first).as_secs_f64(), ended.iter().map(|(_, cpu, _)| cpu).sum())
    })
}

impl Work {
    /// Threads that make objects.
    fn makers(&self) -> usize {
        if matches!(self.way, Way::Pairs) { self.threads / 2 } else { self.threads }
    }

    fn batches_each(&self) -> usize {
        self.count / BATCH / self.makers()
    }

    fn own<'a, S: Subject + Sync>(&self, subject: &'a S) -> Job<'a> {
        let batches = self.batches_each();
        Box::new(move || {
            let (mut batch, mut watch) = (Batch::with_room(), Watch::default());
            // Nobody waits here.
            watch.time(|| {
                for _ in 0..batches {
                    batch.fill(subject);
                    batch.free(subject);
                }
            });
            watch.seconds
        })
    }

    /// Emptied batches travel back, so that no queue allocates.
    fn pairs<'a, S: Subject + Sync>(&self, subject: &'a S) -> Vec<Job<'a>> {
        let batches = self.batches_each();
        let mut jobs: Vec<Job> = Vec::new();
        for _ in 0..self.makers() {
            let (full, inbox) = sync_channel::<Batch>(UNDER_WAY);
            let (empty, emptied) = sync_channel::<Batch>(UNDER_WAY);
            for _ in 0..UNDER_WAY {
                empty.send(Batch::with_room()).expect("there is room for so many");
            }
            jobs.push(Box::new(move || {
                let mut watch = Watch::default();
                for _ in 0..batches {
                    let mut batch = emptied.recv().expect("the partner sends every batch back");
                    watch.time(|| batch.fill(subject));
                    full.send(batch).expect("the partner takes every batch");
                }
                watch.seconds
            }));
            jobs.push(Box::new(move || {
                let (mut taken, mut watch) = (0, Watch::default());
                for mut batch in inbox {
                    watch.time(|| batch.free(subject));
                    taken += 1;
                    // At the end, the partner needs no more of them.
                    drop(empty.send(batch));
                }
                assert_eq!(taken, batches, "batches were lost on their way");
                watch.seconds
            }));
        }
        jobs
    }

    fn all_to_all<'a, S: Subject + Sync>(&self, subject: &'a S) -> Vec<Job<'a>> {
        let batches = self.batches_each();
        let (senders, inboxes): (Vec<_>, Vec<_>) = (0..self.threads).map(|_| sync_channel::<Batch>(UNDER_WAY)).unzip();
        let job = |(own, inbox): (usize, Receiver<Batch>)| -> Job<'a> {
            let mut others = senders.clone();
            others.rotate_left(own);
            // The first is the thread's own.
            others.remove(0);
            Box::new(move || exchange(subject, batches, others, &inbox))
        };
        inboxes.into_iter().enumerate().map(job).collect()
    }
}

/// Makes `batches` batches for the others in turn, and frees what they send. A thread whose receiver is full empties
/// its own inbox meanwhile, so nobody waits for long; it ends when all others have. Returns the CPU seconds of its
/// calls.
fn exchange<S: Subject>(subject: &S, batches: usize, others: Vec<SyncSender<Batch>>, inbox: &Receiver<Batch>) -> f64 {
    // Emptied batches serve again.
    let mut spare: Vec<Batch> = Vec::new();
    let mut watch = Watch::default();
    let receive = |spare: &mut Vec<Batch>, watch: &mut Watch, incoming: &mut dyn Iterator<Item = Batch>| {
        for mut batch in incoming {
            watch.time(|| batch.free(subject));
            spare.push(batch);
        }
    };
    for turn in 0..batches {
        let mut pending = spare.pop().unwrap_or_else(Batch::with_room);
        watch.time(|| pending.fill(subject));
        while let Err(refused) = others[turn % others.len()].try_send(take(&mut pending)) {
            let TrySendError::Full(back) = refused else { panic!("another thread ended early") };
            pending = back;
            receive(&mut spare, &mut watch, &mut inbox.try_iter());
            thread::yield_now();
        }
        receive(&mut spare, &mut watch, &mut inbox.try_iter());
    }
    drop(others);
    receive(&mut spare, &mut watch, &mut inbox.iter());
    watch.seconds
}
