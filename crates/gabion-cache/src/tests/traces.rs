//! Real requests through a whole cache: the policy, the index and the sketches together.

use super::{cache, weight};
use crate::policy::tests::{numbers, oltp};
use crate::{Mode, PutOptions, ReadBuf};

/// Hit rate in hundredths of a percent at so many entries.
fn hit_rate(mode: Mode, entries: u64, trace: &[u32]) -> u64 {
    let (cache, _) = cache(entries * weight(4, 4), mode);
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

fn check(entries: u64, trace: &[u32], bar: u64, lru: u64) {
    assert_eq!(hit_rate(Mode::Lru, entries, trace), lru);
    let own = hit_rate(Mode::Sketch, entries, trace);
    eprintln!("{entries} entries: {own}");
    assert!(own >= bar, "{own} of {bar} at {entries} entries");
}

#[test]
fn the_default_policy_reaches_its_bars() {
    let Some(trace) = oltp() else { return };
    check(1000, &trace, 3900, 3283);
    check(5000, &trace, 5520, 5365);
    let Some(trace) = numbers("cache2k_web12.trace.xz") else { return };
    check(1500, &trace, 7250, 6943);
    let Some(trace) = numbers("cache2k_orm-busy.trace.xz") else { return };
    check(5000, &trace[..1_000_000], 0, hit_rate(Mode::Lru, 5000, &trace[..1_000_000]));
}
