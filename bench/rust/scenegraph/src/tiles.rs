//! A scene that pages: random parts of a tree are destroyed and built anew, again and again, and the tree is walked
//! afterwards. Shows what ageing does to locality and to memory.

use std::ptr::NonNull;

use crate::Outcome;
use crate::clock::Clock;
use crate::random::Random;
use crate::report::Report;
use crate::resident::Baseline;
use crate::subject::{Subject, Task};
use crate::tree::{OnePiece, Seen, build, destroy, nodes_of, renumber, subtrees, walk};

/// Levels of a tile: 85 nodes.
const TILE: u32 = 3;
/// How many tiles are destroyed before the first of them is built anew.
const TOGETHER: usize = 64;
const WALKS: u64 = 10;

/// What to do: in a tree of `levels` levels, replace as many tiles as there are, `turns` times over.
pub struct Work {
    pub levels: u32,
    pub turns: usize,
}

impl Task for Work {
    fn run<S: Subject>(self, subject: &mut S) -> Outcome<Report> {
        let baseline = Baseline::read(subject, |subject| {
            let root = build::<OnePiece, S>(subject, 1, &mut 0);
            // SAFETY: the tree was just built.
            unsafe { destroy::<OnePiece, S>(subject, root) };
        })?;
        let nodes = nodes_of(self.levels);
        let root = build::<OnePiece, S>(subject, self.levels, &mut 0);
        let mut tiles: Vec<NonNull<NonNull<_>>> = Vec::with_capacity(4_usize.pow(self.levels - TILE));
        // SAFETY: the tree was just built, of this height, and is this thread's alone.
        let before = unsafe {
            subtrees::<OnePiece>(root, self.levels, TILE, &mut |place| tiles.push(place));
            walks(root, nodes)
        };
        let fresh = baseline.growth("rss_full")?;
        let mut random = Random(1);
        let mut replaced = 0;
        let clock = Clock::start();
        for _ in 0..self.turns * tiles.len() / TOGETHER {
            // Swapping to the front makes the drawn tiles distinct.
            for drawn in 0..TOGETHER {
                let other = drawn + random.below(tiles.len() - drawn);
                tiles.swap(drawn, other);
            }
            for place in &tiles[..TOGETHER] {
                // SAFETY: the place holds the root of a live tile, and no tile is drawn twice.
                replaced += unsafe { destroy::<OnePiece, S>(subject, place.read()) };
            }
            for place in &tiles[..TOGETHER] {
                // SAFETY: the place is in a live node, and now without a tile.
                unsafe { place.write(build::<OnePiece, S>(subject, TILE, &mut 0)) };
            }
        }
        let replaced = clock.rate(replaced);
        // SAFETY: the tree is whole again, and this thread's alone.
        let after = unsafe {
            renumber::<OnePiece>(root, &mut 0);
            walks(root, nodes)
        };
        let aged = baseline.growth("rss_aged")?;
        // SAFETY: the tree is this thread's, and not used any more.
        assert_eq!(unsafe { destroy::<OnePiece, S>(subject, root) }, nodes, "nodes were lost");
        subject.all_is_free();
        subject.check_empty();
        let growth = ("rss_growth", aged.1 / fresh.1, "ratio");
        let metrics = vec![
            ("replace", replaced, "1/s"),
            ("traverse", before, "1/s"),
            ("traverse_aged", after, "1/s"),
            aged,
            growth,
        ];
        Ok(metrics.into())
    }
}

/// Nodes seen per second.
///
/// # Safety
/// The root of a live tree of one piece per node, numbered in walking order, which nobody changes meanwhile.
unsafe fn walks(root: NonNull<crate::tree::Node>, nodes: u64) -> f64 {
    let clock = Clock::start();
    for _ in 0..WALKS {
        let mut seen = Seen::default();
        // SAFETY: the caller's duty.
        unsafe { walk::<OnePiece>(root, &mut seen) };
        seen.check(nodes);
    }
    clock.rate(nodes * WALKS)
}
