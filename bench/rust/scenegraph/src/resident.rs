//! Resident memory around a task.

use std::io;

use gabion_bench_allocators::process::{read_in_code, resident_bytes};

use crate::report::Metric;
use crate::subject::Subject;

/// What was resident before a task.
pub struct Baseline(u64);

impl Baseline {
    /// Reads it: when the process's code is in memory, `warm_up` was done, and all idle memory was given back.
    pub fn read<S: Subject>(subject: &mut S, warm_up: impl FnOnce(&mut S)) -> io::Result<Self> {
        warm_up(subject);
        subject.all_is_free();
        subject.trim();
        read_in_code()?;
        // Reading takes memory, too, when it is done for the first time.
        resident_bytes()?;
        Ok(Self(resident_bytes()?))
    }

    /// Growth since then, in MiB.
    pub fn growth(&self, name: &'static str) -> io::Result<Metric> {
        Ok((name, (resident_bytes()? as f64 - self.0 as f64) / f64::from(1 << 20), "MiB"))
    }

    /// What is resident against what was.
    pub fn ratio(&self, name: &'static str) -> io::Result<Metric> {
        Ok((name, resident_bytes()? as f64 / self.0 as f64, "ratio"))
    }
}
