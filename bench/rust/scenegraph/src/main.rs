//! The scene graph benchmark: trees of small nodes, and the patterns of small objects, on gabion's slots and its peers.
//!
//! A build holds gabion, the system's `malloc` and the floor, and with a feature one peer. Each command prints one line
//! of JSON, `{"metrics": {name: [value, unit]}}`; the usage names them. A wrong answer panics, and the run then counts
//! as failed.

#[path = "../../src/random.rs"]
mod random;

#[path = "../../src/report.rs"]
mod report;

mod clock;

mod subject;

mod slots;

mod peers;

mod floor;

mod resident;

mod tree;

mod passes;

mod kinds;

mod tiles;

mod small;

mod threads;

mod release;

use report::Report;
use subject::{Subject, Task, ThreadTask};

/// What every command ends with.
type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

const USAGE: &str = "gabion-bench-scenegraph label SUBJECT
gabion-bench-scenegraph tree SUBJECT three-sizes|one-piece LEVELS PASSES
gabion-bench-scenegraph kinds SUBJECT LEVELS PASSES
gabion-bench-scenegraph tiles SUBJECT LEVELS TURNS
gabion-bench-scenegraph batch SUBJECT COUNT
gabion-bench-scenegraph churn SUBJECT LIVE PAIRS
gabion-bench-scenegraph threads SUBJECT own|pairs|all-to-all THREADS COUNT
gabion-bench-scenegraph release gabion LEVELS
SUBJECT: gabion, gabion-unsized, malloc, floor (threads: not floor), or the peer that was built in";

fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    println!("{}", run(&words)?.json());
    Ok(())
}

/// Does what the words of a command line say.
fn run(words: &[&str]) -> Outcome<Report> {
    Ok(match *words {
        ["label", subject] => on_one_thread(subject, Label)?,
        ["tree", subject, shape, levels, passes] => {
            let work = passes::Work { levels: levels.parse()?, passes: passes.parse()? };
            match shape {
                "three-sizes" => on_one_thread(subject, work.of::<tree::ThreeSizes>())?,
                "one-piece" => on_one_thread(subject, work.of::<tree::OnePiece>())?,
                _ => return Err(USAGE.into()),
            }
        }
        ["kinds", subject, levels, passes] => {
            on_one_thread(subject, kinds::Work { levels: levels.parse()?, passes: passes.parse()? })?
        }
        ["tiles", subject, levels, turns] => {
            on_one_thread(subject, tiles::Work { levels: levels.parse()?, turns: turns.parse()? })?
        }
        ["batch", subject, count] => on_one_thread(subject, small::Batch { count: count.parse()? })?,
        ["churn", subject, live, pairs] => {
            on_one_thread(subject, small::Churn { live: live.parse()?, pairs: pairs.parse()? })?
        }
        ["threads", subject, way, threads, count] => {
            let way = threads::Way::named(way).ok_or(USAGE)?;
            on_many_threads(subject, threads::Work { way, threads: threads.parse()?, count: count.parse()? })?
        }
        ["release", "gabion", levels] => release::run(levels.parse()?)?,
        _ => return Err(USAGE.into()),
    })
}

/// The subject's name with its version.
struct Label;

impl Task for Label {
    fn run<S: Subject>(self, _subject: &mut S) -> Outcome<Report> {
        Ok(Report::from(Vec::new()).with("label", format!("\"{}\"", S::label())))
    }
}

fn on_one_thread(name: &str, task: impl Task) -> Outcome<Report> {
    match name {
        "floor" => task.run(&mut floor::Floor::default()),
        _ => on_many_threads(name, subject::OneOfMany(task)),
    }
}

fn on_many_threads(name: &str, task: impl ThreadTask) -> Outcome<Report> {
    match name {
        "gabion" => task.run(&mut slots::Gabion::<true>::default()),
        "gabion-unsized" => task.run(&mut slots::Gabion::<false>::default()),
        "malloc" => task.run(&mut peers::Malloc),
        #[cfg(any(feature = "mimalloc2", feature = "mimalloc3"))]
        "mimalloc2" | "mimalloc3" => task.run(&mut peers::Mimalloc),
        #[cfg(feature = "jemalloc")]
        "jemalloc" => task.run(&mut peers::Jemalloc),
        #[cfg(feature = "snmalloc")]
        "snmalloc" => task.run(&mut peers::Snmalloc),
        _ => Err(format!("{name} is no subject of this build\n{USAGE}").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::run;

    #[test]
    fn every_task_checks_its_answers_on_every_subject() {
        for work in ["tree S three-sizes 4 2", "tree S one-piece 4 2", "kinds S 4 2", "batch S 1000", "label S"] {
            for subject in ["gabion", "gabion-unsized", "malloc", "floor"] {
                well(work, subject);
            }
        }
        for work in ["tiles S 6 2", "churn S 100 1000", "threads S own 2 4096", "threads S pairs 4 8192"] {
            for subject in ["gabion", "gabion-unsized", "malloc"] {
                well(work, subject);
            }
        }
        well("threads S all-to-all 3 9216", "gabion");
        well("release S 5", "gabion");
    }

    fn well(work: &str, subject: &str) {
        let words: Vec<&str> = work.split(' ').map(|word| if word == "S" { subject } else { word }).collect();
        let report = run(&words).unwrap_or_else(|error| panic!("{words:?}: {error}"));
        assert!(report.json().starts_with("{\"metrics\""), "{words:?}");
    }

    #[test]
    fn what_is_no_command_is_refused() {
        for words in
            [&["tree"][..], &["tree", "gabion", "round", "4", "2"], &["label", "nobody"], &["release", "malloc", "5"]]
        {
            assert!(run(words).is_err(), "{words:?}");
        }
    }
}
