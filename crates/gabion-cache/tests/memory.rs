//! What the process grows by, beside what the cache says.
#![cfg(target_os = "linux")]

use std::process::Command;

use gabion_cache::{Cache, CacheOptions, Policy, PutOptions};

const MODE: &str = "GABION_MEMORY_MODE";
const LIMIT: u64 = 8 << 20;
/// A huge page at the end of the blocks that entries lie in, and what threads and `malloc` take.
const BESIDE: u64 = 3 << 20;

/// Bytes of the process that are in memory.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = statm.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

fn fill(policy: Policy) {
    let options = CacheOptions { max_bytes: LIMIT, policy, ..CacheOptions::default() };
    let before = resident();
    let cache = Cache::with_options(&options).unwrap();
    for n in 0..250_000_u32 {
        cache.put(&n.to_le_bytes(), &[7; 8], &PutOptions::default());
    }
    let (grown, stats) = (resident().saturating_sub(before), cache.stats());
    assert!(stats.reserved_bytes <= LIMIT && stats.bytes > LIMIT / 2, "{stats:?}");
    assert!(grown <= LIMIT + BESIDE, "{policy:?} grew by {grown}: {stats:?}");
    // What it says is there.
    assert!(grown + BESIDE >= stats.reserved_bytes, "{policy:?} grew by {grown}: {stats:?}");
}

/// Each policy in a process of its own: what a cache leaves, the next one gets.
#[test]
fn the_process_grows_by_no_more_than_the_limit() {
    let policies =
        [("sketch", Policy::Sketch), ("lru", Policy::Lru), ("fifo", Policy::Fifo), ("s3fifo", Policy::S3Fifo)];
    if let Ok(own) = std::env::var(MODE) {
        return fill(policies.iter().find(|(name, _)| *name == own).unwrap().1);
    }
    for (name, _) in policies {
        let mut run = Command::new(std::env::current_exe().unwrap());
        run.args(["--exact", "the_process_grows_by_no_more_than_the_limit", "--nocapture"]).env(MODE, name);
        let output = run.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
}
