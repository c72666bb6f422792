//! A whole affinity released at once, against the destruction of the same tree node by node.

use gabion_blocks::Pool;
use gabion_slots::{Affinity, Slots};

use crate::Outcome;
use crate::clock::Clock;
use crate::report::Report;
use crate::slots::Gabion;
use crate::subject::Subject;
use crate::tree::{OnePiece, build, destroy, nodes_of};

/// Builds a tree of `levels` levels and destroys it, then builds it again and releases its affinity.
pub fn run(levels: u32) -> Outcome<Report> {
    let slots = Slots::new(Pool::global())?;
    let subject = Gabion::<true>::on(slots.clone());
    let root = build::<OnePiece, _>(&subject, levels, &mut 0);
    let clock = Clock::start();
    // SAFETY: the tree was just built, and nobody uses it any more.
    let freed = unsafe { destroy::<OnePiece, _>(&subject, root) };
    let destroyed = clock.seconds();
    assert_eq!(freed, nodes_of(levels), "another number of nodes was freed than made");
    build::<OnePiece, _>(&subject, levels, &mut 0);
    let blocks: u64 = slots.stats().affinities.iter().map(|affinity| affinity.blocks).sum();
    let clock = Clock::start();
    // SAFETY: the tree of this affinity is not used any more.
    let released = unsafe { slots.release(Affinity::NODES) };
    let lasted = clock.seconds();
    assert!(released > 0, "there was something to release");
    subject.check_empty();
    let metrics = vec![
        ("release", lasted * 1e3, "ms"),
        ("release_per_block", lasted * 1e6 / blocks as f64, "µs"),
        ("release_vs_destroy", lasted / destroyed, "ratio"),
    ];
    Ok(metrics.into())
}
