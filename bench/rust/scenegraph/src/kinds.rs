//! Kinds that are made side by side and used apart: each leaf of a tree has an array of its own, and some an object,
//! and only the nodes are walked. The side data is freed in random order and made anew, as when a scene's content
//! changes.

use std::alloc::Layout;
use std::ptr::NonNull;

use crate::Outcome;
use crate::clock::Clock;
use crate::random::Random;
use crate::report::{Metric, Report};
use crate::resident::Baseline;
use crate::subject::{Kind, Subject, Task};
use crate::tree::{Node, Seen, ThreeSizes, build_with, destroy_with, nodes_of, walk};

const WALKS: u64 = 20;
const CONSTRUCT: [&str; 3] = ["construct_1", "construct_2", "construct_3"];
const TRAVERSE: [&str; 3] = ["traverse_1", "traverse_2", "traverse_3"];
const REFILL: [&str; 3] = ["refill_1", "refill_2", "refill_3"];
const DESTROY: [&str; 3] = ["destroy_1", "destroy_2", "destroy_3"];
/// Values in an array, at most; the least is one.
const MOST_VALUES: u64 = 48;
/// One leaf of so many has an object.
const EVERY: u64 = 4;

/// What to do: a tree of `levels` levels, `passes` times, three at most.
pub struct Work {
    pub levels: u32,
    pub passes: usize,
}

/// A float array as a scene graph has it: a head of its own, with the values elsewhere.
#[repr(C)]
struct Array {
    number: u64,
    values: NonNull<u32>,
    length: u64,
    extra: Option<NonNull<Extra>>,
    rest: [u64; 5],
}

#[repr(C)]
struct Extra {
    number: u64,
    rest: [u64; 2],
}

const ARRAY: Layout = Layout::new::<Array>();
const EXTRA: Layout = Layout::new::<Extra>();

/// Spread over all sizes, the same for every subject.
fn values_of(number: u64) -> u64 {
    1 + (number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) % MOST_VALUES
}

fn layout_of(length: u64) -> Layout {
    Layout::array::<u32>(length as usize).expect("some dozens of values")
}

/// Gives a leaf its side data.
#[inline]
fn dress<S: Subject>(subject: &S, leaf: &mut Node) {
    let number = leaf.number();
    let length = values_of(number);
    let array: NonNull<Array> = subject.alloc(Kind::Data, ARRAY).cast();
    let values: NonNull<u32> = subject.alloc(Kind::Data, layout_of(length)).cast();
    let extra = number.is_multiple_of(EVERY).then(|| {
        let extra: NonNull<Extra> = subject.alloc(Kind::Objects, EXTRA).cast();
        // SAFETY: the subject gave room for it that nobody else uses.
        unsafe { extra.write(Extra { number, rest: [0; 2] }) };
        extra
    });
    // SAFETY: the subject gave room for one array and `length` values that nobody else uses.
    unsafe {
        for index in 0..length as usize {
            values.add(index).write(number as u32);
        }
        array.write(Array { number, values, length, extra, rest: [0; 5] });
    }
    leaf.side = array.as_ptr().cast();
}

/// Frees a leaf's side data.
///
/// # Safety
/// [`dress`] gave it, on the same subject, and it was not freed since.
#[inline]
unsafe fn strip<S: Subject>(subject: &S, leaf: &mut Node) {
    let array: NonNull<Array> = NonNull::new(leaf.side.cast()).expect("the leaf has side data");
    // SAFETY: the caller says that the array is live; what it refers to lives as long, and each is freed once.
    unsafe {
        let Array { values, length, extra, .. } = array.read();
        subject.free(Kind::Data, values.cast(), layout_of(length));
        if let Some(extra) = extra {
            subject.free(Kind::Objects, extra.cast(), EXTRA);
        }
        subject.free(Kind::Data, array.cast(), ARRAY);
    }
    leaf.side = std::ptr::null_mut();
}

/// Panics unless the leaves' side data is what was written.
///
/// # Safety
/// All leaves are live, and [`dress`] gave each its side data.
unsafe fn check(leaves: &[NonNull<Node>]) {
    for leaf in leaves {
        // SAFETY: the caller says that the leaf and its array are live; the array's values and object live as long.
        unsafe {
            let leaf = leaf.as_ref();
            let array = &*leaf.side.cast::<Array>();
            let number = leaf.number();
            assert_eq!((array.number, array.length), (number, values_of(number)), "an array is another's");
            let values = std::slice::from_raw_parts(array.values.as_ptr(), array.length as usize);
            assert!(values.iter().all(|&value| value == number as u32), "values are not what was written");
            assert!(array.extra.is_none_or(|extra| extra.as_ref().number == number), "an object is another's");
        }
    }
}

/// All leaves, in the order of building and in random order. Both lists are in memory before anything is measured.
struct Leaves {
    built: Vec<NonNull<Node>>,
    shuffled: Vec<NonNull<Node>>,
}

impl Leaves {
    fn of(levels: u32) -> Self {
        let room = vec![NonNull::dangling(); 4_usize.pow(levels)];
        Self { shuffled: room.clone(), built: room }
    }

    fn shuffle(&mut self, seed: usize) {
        self.shuffled.clone_from(&self.built);
        Random(seed as u64).shuffle(&mut self.shuffled);
    }
}

impl Task for Work {
    fn run<S: Subject>(self, subject: &mut S) -> Outcome<Report> {
        let mut leaves = Leaves::of(self.levels);
        let baseline = Baseline::read(subject, |subject| {
            let mut leaf = Node::leaf(0);
            dress(subject, &mut leaf);
            // SAFETY: the leaf was just dressed.
            unsafe { strip(subject, &mut leaf) };
        })?;
        let mut metrics = Vec::new();
        for number in 0..self.passes.min(CONSTRUCT.len()) {
            metrics.extend(self.pass(number, subject, &mut leaves, &baseline)?);
        }
        subject.check_empty();
        subject.trim();
        metrics.push(baseline.ratio("rss_back")?);
        Ok(metrics.into())
    }
}

impl Work {
    /// Builds, walks, exchanges the side data, destroys.
    fn pass<S: Subject>(
        &self,
        number: usize,
        subject: &mut S,
        leaves: &mut Leaves,
        baseline: &Baseline,
    ) -> Outcome<Vec<Metric>> {
        let nodes = nodes_of(self.levels);
        leaves.built.clear();
        let clock = Clock::start();
        let root = build_with::<ThreeSizes, S>(subject, self.levels, &mut 0, &mut |leaf| {
            dress(subject, leaf);
            leaves.built.push(leaf.into());
        });
        let constructed = clock.rate(nodes);
        let full = baseline.growth("rss_full")?;
        let clock = Clock::start();
        for _ in 0..WALKS {
            let mut seen = Seen::default();
            // SAFETY: the tree was just built, by this thread and for it alone.
            unsafe { walk::<ThreeSizes>(root, &mut seen) };
            seen.check(nodes);
        }
        let traversed = clock.rate(nodes * WALKS);
        leaves.shuffle(number);
        // SAFETY: all leaves are live and dressed.
        unsafe { check(&leaves.built) };
        let clock = Clock::start();
        for leaf in &mut leaves.shuffled {
            // SAFETY: the leaves are live, dressed, and this thread's alone; each is in the list once.
            unsafe { strip(subject, leaf.as_mut()) };
        }
        for leaf in &mut leaves.built {
            // SAFETY: as above, and now they are bare.
            dress(subject, unsafe { leaf.as_mut() });
        }
        let refilled = clock.rate(leaves.built.len() as u64);
        // SAFETY: all leaves are live and dressed again.
        unsafe { check(&leaves.built) };
        let clock = Clock::start();
        // SAFETY: the tree is this thread's, its leaves are dressed, and neither it nor the lists are used any more.
        let freed = unsafe { destroy_with::<ThreeSizes, S>(subject, root, &mut |leaf| strip(subject, leaf)) };
        let destroyed = clock.rate(nodes);
        assert_eq!(freed, nodes, "another number of nodes was freed than made");
        subject.all_is_free();
        let mut metrics = vec![
            (CONSTRUCT[number], constructed, "1/s"),
            (TRAVERSE[number], traversed, "1/s"),
            (REFILL[number], refilled, "1/s"),
            (DESTROY[number], destroyed, "1/s"),
        ];
        metrics.extend((number == 0).then_some(full));
        Ok(metrics)
    }
}
