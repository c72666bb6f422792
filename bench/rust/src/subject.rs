//! The subjects by name: gabion's pool, the C allocators, and the floor.

use gabion_bench_allocators::{CHeap, Floor, Groups, Malloc, Source};
#[cfg(feature = "peers")]
use gabion_bench_allocators::{Jemalloc, Mimalloc};
use gabion_blocks::Pool;

use crate::Outcome;
use crate::report::Report;

/// Something to do with memory, wherever it is rented.
pub trait Task {
    /// Does it; panics on a wrong answer.
    fn run(self, source: &impl Source) -> Outcome<Report>;
}

/// Runs `task` on the subject called `name`; where threads hand over, the floor has so many `pairs`, else none.
pub fn run(name: &str, pairs: usize, task: impl Task) -> Outcome<Report> {
    match name {
        "gabion" => all_returned(task.run(&Pool::global())),
        "gabion-groups" => all_returned(task.run(&Groups(Pool::global()))),
        "floor" if pairs == 0 => task.run(&Floor::of_threads()),
        "floor" => task.run(&Floor::of_pairs(pairs)),
        "malloc" => task.run(&Malloc),
        #[cfg(feature = "peers")]
        "mimalloc" => task.run(&Mimalloc),
        #[cfg(feature = "peers")]
        "jemalloc" => task.run(&Jemalloc),
        #[cfg(feature = "peers")]
        "jemalloc-background" => task.run(&Jemalloc::in_background()),
        _ => Err(format!("{name} is no subject of this build").into()),
    }
}

/// What the task reports, if it has given back everything.
fn all_returned(report: Outcome<Report>) -> Outcome<Report> {
    let in_use = Pool::global().stats().in_use;
    assert_eq!(in_use, 0, "everything was given back, and {in_use} bytes are still lent");
    report
}

/// Name and label of each C allocator that is built in.
pub fn peers() -> Vec<(&'static str, String)> {
    vec![
        ("malloc", Malloc::label()),
        #[cfg(feature = "peers")]
        ("mimalloc", Mimalloc::label()),
        #[cfg(feature = "peers")]
        ("jemalloc", Jemalloc::label()),
        #[cfg(feature = "peers")]
        ("jemalloc-background", format!("{} + background thread", Jemalloc::label())),
    ]
}
