//! Small objects without a structure around them: what one call costs, in the orders that programs free in.

use std::alloc::Layout;
use std::ptr::NonNull;

use crate::Outcome;
use crate::clock::Clock;
use crate::random::Random;
use crate::report::Report;
use crate::subject::{Kind, Subject, Task};

/// A live object and what it takes to free it.
#[derive(Clone, Copy)]
struct Object {
    start: NonNull<u8>,
    bytes: usize,
}

impl Object {
    /// Takes memory and writes the first word, as any user would.
    #[inline]
    fn new<S: Subject>(subject: &S, bytes: usize) -> Self {
        let start = subject.alloc(Kind::Nodes, layout(bytes));
        // SAFETY: the subject gave at least a word, aligned for it, that nobody else uses.
        unsafe { start.cast::<u64>().write(bytes as u64) };
        Self { start, bytes }
    }

    /// Frees it.
    ///
    /// # Safety
    /// It is live, and neither it nor a copy is used any more.
    #[inline]
    unsafe fn free<S: Subject>(self, subject: &S) {
        // SAFETY: `new` got the memory with this layout, and the caller says that it is free of users.
        unsafe { subject.free(Kind::Nodes, self.start, layout(self.bytes)) }
    }
}

/// Writes all of each object, and reads it back when all are written: no object overlaps another.
///
/// # Safety
/// All are live, and the caller's alone; none is there twice.
unsafe fn check(objects: &[Object]) {
    for (index, object) in objects.iter().enumerate() {
        // SAFETY: the caller says that these bytes are its own.
        unsafe { object.start.write_bytes(index as u8 ^ (index >> 8) as u8, object.bytes) };
    }
    for (index, object) in objects.iter().enumerate() {
        // SAFETY: as above, and all bytes were just written.
        let bytes = unsafe { std::slice::from_raw_parts(object.start.as_ptr(), object.bytes) };
        let expected = index as u8 ^ (index >> 8) as u8;
        assert!(bytes.iter().all(|&byte| byte == expected), "object {index} overlaps another");
    }
}

#[inline]
fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, 8).expect("some hundred bytes")
}

/// `count` objects of 24 to 96 bytes are taken, freed in the order of taking, taken again and freed in random order.
pub struct Batch {
    pub count: usize,
}

/// The sizes of [`Batch`] are multiples of eight.
const LEAST_WORDS: usize = 3;
const SIZES: usize = 10;
const REPEATS: usize = 3;

impl Task for Batch {
    fn run<S: Subject>(self, subject: &mut S) -> Outcome<Report> {
        let mut random = Random(1);
        let sizes: Vec<usize> = (0..self.count).map(|_| 8 * (LEAST_WORDS + random.below(SIZES))).collect();
        let nothing = Object { start: NonNull::dangling(), bytes: 0 };
        let mut objects = vec![nothing; self.count];
        let first = fill(subject, &sizes, &mut objects);
        let (mut pairs, mut randomly) = (Vec::new(), Vec::new());
        // SAFETY: all objects are live, made by this thread, and made anew whenever they were freed.
        unsafe {
            check(&objects);
            free_all(subject, &objects);
            for _ in 0..REPEATS {
                subject.all_is_free();
                let again = fill(subject, &sizes, &mut objects);
                check(&objects);
                pairs.push(again + free_all(subject, &objects));
                subject.all_is_free();
                fill(subject, &sizes, &mut objects);
                check(&objects);
                random.shuffle(&mut objects);
                randomly.push(free_all(subject, &objects));
            }
        }
        subject.all_is_free();
        subject.check_empty();
        let each = |seconds: f64| seconds * 1e9 / self.count as f64;
        let metrics = vec![
            ("first_alloc", each(first), "ns"),
            ("fifo_pair", each(median(pairs)), "ns"),
            ("random_free", each(median(randomly)), "ns"),
        ];
        Ok(metrics.into())
    }
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn fill<S: Subject>(subject: &S, sizes: &[usize], objects: &mut [Object]) -> f64 {
    let clock = Clock::start();
    for (object, &bytes) in objects.iter_mut().zip(sizes) {
        *object = Object::new(subject, bytes);
    }
    clock.seconds()
}

/// # Safety
/// All are live, none is there twice, and none is used any more.
unsafe fn free_all<S: Subject>(subject: &S, objects: &[Object]) -> f64 {
    let clock = Clock::start();
    for object in objects {
        // SAFETY: as the caller says.
        unsafe { object.free(subject) };
    }
    clock.seconds()
}

/// `live` objects of 8 to 248 bytes; a random one is freed and another made in its place, `pairs` times.
pub struct Churn {
    pub live: usize,
    pub pairs: usize,
}

const LEAST_BYTES: usize = 8;
const MOST_BYTES: usize = 248;

impl Task for Churn {
    fn run<S: Subject>(self, subject: &mut S) -> Outcome<Report> {
        let mut random = Random(1);
        let size = |random: &mut Random| LEAST_BYTES + random.below(MOST_BYTES - LEAST_BYTES + 1);
        let mut objects: Vec<Object> = (0..self.live).map(|_| Object::new(subject, size(&mut random))).collect();
        // Each object is replaced once before the clock starts, so that what is timed is the steady state.
        let mut turn = |pairs: usize| {
            let clock = Clock::start();
            for _ in 0..pairs {
                let object = &mut objects[random.below(self.live)];
                // SAFETY: the object is live and this thread's, and replaced at once.
                unsafe { object.free(subject) };
                *object = Object::new(subject, size(&mut random));
            }
            clock.seconds()
        };
        turn(self.live);
        let lasted = turn(self.pairs);
        // SAFETY: all objects are live, made by this thread, and freed once.
        unsafe {
            check(&objects);
            free_all(subject, &objects);
        }
        subject.all_is_free();
        subject.check_empty();
        Ok(vec![("churn_pair", lasted * 1e9 / self.pairs as f64, "ns")].into())
    }
}
