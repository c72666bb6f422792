//! A tree is built, walked ten times and destroyed, several times over in one process: what an application pays for its
//! first scene, and for the next ones.

use std::marker::PhantomData;

use crate::Outcome;
use crate::clock::Clock;
use crate::report::{Metric, Report};
use crate::resident::Baseline;
use crate::subject::{Subject, Task};
use crate::tree::{Seen, Shape, build, destroy, nodes_of, walk};

/// Walks of each tree.
pub const WALKS: u64 = 10;
const CONSTRUCT: [&str; 3] = ["construct_1", "construct_2", "construct_3"];
const TRAVERSE: [&str; 3] = ["traverse_1", "traverse_2", "traverse_3"];
const DESTROY: [&str; 3] = ["destroy_1", "destroy_2", "destroy_3"];
/// A tree so small that it says nothing, for what a subject sets up at first use.
const WARM_UP_LEVELS: u32 = 2;

/// What to do: a tree of `levels` levels, `passes` times, three at most.
#[derive(Clone, Copy)]
pub struct Work {
    pub levels: u32,
    pub passes: usize,
}

impl Work {
    /// The work on trees of one shape.
    pub fn of<H: Shape>(self) -> Passes<H> {
        Passes { work: self, shape: PhantomData }
    }
}

/// [`Work`] on trees of one shape.
pub struct Passes<H> {
    work: Work,
    shape: PhantomData<H>,
}

impl<H: Shape> Task for Passes<H> {
    fn run<S: Subject>(self, subject: &mut S) -> Outcome<Report> {
        let Work { levels, passes } = self.work;
        let baseline = Baseline::read(subject, |subject| {
            pass::<H, S>(subject, WARM_UP_LEVELS);
        })?;
        let mut metrics: Vec<Metric> = Vec::with_capacity(4 * passes);
        for number in 0..passes.min(CONSTRUCT.len()) {
            let clock = Clock::start();
            let root = build::<H, S>(subject, levels, &mut 0);
            metrics.push((CONSTRUCT[number], clock.rate(nodes_of(levels)), "1/s"));
            if number == 0 {
                metrics.push(baseline.growth("rss_full")?);
            }
            let clock = Clock::start();
            for _ in 0..WALKS {
                let mut seen = Seen::default();
                // SAFETY: the tree was just built, by this thread and for it alone.
                unsafe { walk::<H>(root, &mut seen) };
                seen.check(nodes_of(levels));
            }
            metrics.push((TRAVERSE[number], clock.rate(nodes_of(levels) * WALKS), "1/s"));
            let clock = Clock::start();
            // SAFETY: as above, and the root is not used any more.
            let freed = unsafe { destroy::<H, S>(subject, root) };
            metrics.push((DESTROY[number], clock.rate(nodes_of(levels)), "1/s"));
            assert_eq!(freed, nodes_of(levels), "another number of nodes was freed than made");
            subject.all_is_free();
        }
        subject.check_empty();
        subject.trim();
        metrics.push(baseline.ratio("rss_back")?);
        Ok(metrics.into())
    }
}

fn pass<H: Shape, S: Subject>(subject: &S, levels: u32) {
    let root = build::<H, S>(subject, levels, &mut 0);
    // SAFETY: the tree was just built, by this thread and for it alone.
    unsafe { destroy::<H, S>(subject, root) };
}
