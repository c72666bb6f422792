//! Real requests through a whole cache: the policy, the index and the sketches together.

use super::{cache, weight};
use crate::policy::tests::{hit_rate as alone, numbers, oltp};
use crate::{Policy, PutOptions, ReadBuf};

/// Hit rate in hundredths of a percent at that many entries.
fn hit_rate(policy: Policy, entries: u64, trace: &[u32]) -> u64 {
    let (cache, _) = cache(entries * weight(4, 4), policy);
    let mut buf = ReadBuf::new();
    for key in trace {
        let key = key.to_le_bytes();
        if cache.get(&key, &mut buf).is_none() {
            cache.put(&key, &key, &PutOptions::default());
        }
    }
    cache.validate().unwrap();
    let stats = cache.stats();
    assert_eq!(stats.hits + stats.misses, trace.len() as u64);
    (stats.hits * 20_000 + trace.len() as u64) / (2 * trace.len() as u64)
}

/// What the whole cache may lose to its policy alone, whose bars are tested there: places are shared among shards, and
/// the hash has another key in every process.
const LOSS: u64 = 50;

fn check(entries: u64, trace: &[u32]) {
    assert_eq!(hit_rate(Policy::Lru, entries, trace), alone(Policy::Lru, entries, trace), "exact at {entries} entries");
    let (own, policy) = (hit_rate(Policy::Sketch, entries, trace), alone(Policy::Sketch, entries, trace));
    assert!(own + LOSS >= policy, "{own}, {policy} alone, at {entries} entries");
}

#[test]
fn the_whole_cache_reaches_what_its_policy_does() {
    let Some(trace) = oltp() else { return };
    check(1000, &trace);
    check(5000, &trace);
    let Some(trace) = numbers("cache2k_web12.trace.xz") else { return };
    check(1500, &trace);
    let Some(trace) = numbers("cache2k_orm-busy.trace.xz") else { return };
    check(5000, &trace[..1_000_000]);
}
