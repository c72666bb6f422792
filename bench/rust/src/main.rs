//! Rust rows of `bench/run.py`: raw bytes in a pile, with no Python around them.
//!
//! `gabion-bench raw gabion|floor COUNT sequential|random THREADS` and
//! `gabion-bench churn gabion|floor COUNT replace|'remove + put'` print one line of JSON, `{"metrics": {name: [value, unit]}}`.
//! A wrong answer panics, and the run then counts as failed.

#![forbid(unsafe_code)]
#![allow(clippy::cast_precision_loss, reason = "counts and bytes stay far below 2^52")]

mod churn;
mod random;
mod raw;

/// What every command ends with.
type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Metric name, value, unit.
type Metric = (&'static str, f64, &'static str);

const USAGE: &str = "gabion-bench raw gabion|floor COUNT sequential|random THREADS
gabion-bench churn gabion|floor COUNT replace|'remove + put'";

fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let metrics = match words[..] {
        ["raw", subject, count, order, threads] => {
            let work = raw::Work { count: count.parse()?, threads: threads.parse()?, shuffled: order == "random" };
            if subject == "gabion" { raw::gabion(&work)? } else { raw::floor(&work)? }
        }
        ["churn", subject, count, way] => {
            let work = churn::Work { count: count.parse()?, moves: way != "replace" };
            if subject == "gabion" { churn::gabion(&work)? } else { churn::floor(&work)? }
        }
        _ => return Err(USAGE.into()),
    };
    let fields: Vec<String> =
        metrics.iter().map(|(name, value, unit)| format!("\"{name}\": [{value:?}, \"{unit}\"]")).collect();
    println!("{{\"metrics\": {{{}}}}}", fields.join(", "));
    Ok(())
}
