//! Rust rows of `bench/run.py`: raw bytes in a pile, and memory of the pool, with no Python around them.
//!
//! Each command prints one line of JSON, `{"metrics": {name: [value, unit]}}`, and what pictures want beside it; the
//! usage names them. A wrong answer panics, and the run then counts as failed.

#![forbid(unsafe_code)]
#![allow(clippy::cast_precision_loss, reason = "counts and bytes stay far below 2^52")]

mod random;

mod report;

mod subject;

mod raw;

mod arithmetic;

mod churn;

mod rent;

mod images;

mod resident;

mod limit;

mod streams;

use std::time::Duration;

use gabion_bench_allocators::Touch;
use gabion_blocks::{Change, Pool};

use report::{Metric, Report};

/// What every command ends with.
type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

const USAGE: &str = "gabion-bench raw gabion|floor COUNT sequential|random THREADS
gabion-bench arithmetic THREADS
gabion-bench churn gabion|floor COUNT replace|'remove + put'
gabion-bench rent SUBJECT BYTES one|several|hand-over THREADS page|full MILLISECONDS
gabion-bench images SUBJECT THREADS keep|hand-over ROUNDS
gabion-bench resident SUBJECT SECONDS TRIM-PERIOD
gabion-bench limit BYTES THREADS SECONDS
gabion-bench streams gabion|naive|floor load|save FILE file|memory SECONDS
gabion-bench peers
SUBJECT: gabion, gabion-groups, floor, or one of those that `peers` names";

fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let report: Report = match words[..] {
        ["raw", subject, count, order, threads] => {
            let work = raw::Work { count: count.parse()?, threads: threads.parse()?, shuffled: order == "random" };
            if subject == "gabion" { raw::gabion(&work)?.into() } else { raw::floor(&work)?.into() }
        }
        ["arithmetic", threads] => arithmetic::run(threads.parse()?).into(),
        ["churn", subject, count, way] => {
            let work = churn::Work { count: count.parse()?, moves: way != "replace" };
            if subject == "gabion" { churn::gabion(&work)?.into() } else { churn::floor(&work)?.into() }
        }
        ["rent", subject, bytes, way, threads, touch, milliseconds] => {
            let touch = if touch == "page" { Touch::Page } else { Touch::Full };
            let work = rent::Work {
                bytes: bytes.parse()?,
                way: rent::Way::named(way)?,
                threads: threads.parse()?,
                touch,
                lasts: Duration::from_millis(milliseconds.parse()?),
            };
            subject::run(subject, work.pairs(), work)?
        }
        ["images", subject, threads, way, rounds] => {
            let work =
                images::Work { threads: threads.parse()?, rounds: rounds.parse()?, hand_over: way == "hand-over" };
            subject::run(subject, if work.hand_over { work.threads } else { 0 }, work)?
        }
        ["resident", subject, seconds, period] => {
            let work = resident::Work {
                lasts: Duration::from_secs_f64(seconds.parse()?),
                trim_period: Duration::from_secs_f64(period.parse()?),
            };
            Pool::global().configure(&Change { trim_period: Some(work.trim_period), ..Change::default() })?;
            subject::run(subject, 1, work)?
        }
        ["limit", bytes, threads, seconds] => limit::run(&limit::Work {
            limit: bytes.parse()?,
            threads: threads.parse()?,
            lasts: Duration::from_secs_f64(seconds.parse()?),
        })?,
        ["streams", subject, way, path, place, seconds] => {
            let work = streams::Work {
                way: streams::Way::named(way)?,
                path: path.to_owned(),
                in_memory: place == "memory",
                lasts: Duration::from_secs_f64(seconds.parse()?),
            };
            streams::run(streams::Subject::named(subject)?, &work)?
        }
        ["peers"] => subject::peers()
            .into_iter()
            .fold(Report::from(Vec::new()), |report, (name, label)| report.with(name, format!("\"{label}\""))),
        _ => return Err(USAGE.into()),
    };
    println!("{}", report.json());
    Ok(())
}
