//! Puts into a full cache: an entry goes, and another takes its place.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::{get, ttl};
use crate::policy::tests::hit_rate as alone;
use crate::{Cache, CacheOptions, ManualClock, Policy, PutOptions, PutResult, ReadBuf, Table, TableOptions};

/// A cache with one shard that may hold that many bytes, and take so much memory.
fn cache(max_bytes: u64, room: u64) -> (Cache, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::default());
    let options = CacheOptions { max_bytes, shards: Some(1), clock: Some(clock.clone()), ..CacheOptions::default() };
    (Cache::with_room(&options, room).unwrap(), clock)
}

fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state >> 20
}

/// Values that are written over others, of the same key or of one that goes, hang in the wheel where those hung, if
/// they end later: they end by their own time all the same.
#[test]
fn a_value_in_the_place_of_another_ends_by_its_own_time() {
    let (cache, clock) = cache(100_000, u64::MAX);
    let (mut state, mut last, mut now) = (0x9E37_79B9_7F4A_7C15, HashMap::new(), 0);
    for step in 0..60_000_u32 {
        let key = (random(&mut state) % 2000) as u32;
        let span = [40, 900, 30_000, 400_000][random(&mut state) as usize % 4] + random(&mut state) % 40;
        cache.put(&key.to_le_bytes(), &[key as u8; 75], &ttl(span as f64 / 1000.0));
        last.insert(key, now + span);
        let key = (random(&mut state) % 2000) as u32;
        if get(&cache, key.to_le_bytes()).is_some() {
            assert!(now < last[&key], "step {step}: {key} should have ended at {}, it is {now}", last[&key]);
        }
        if step % 8 == 0 {
            now += random(&mut state) % 20;
            clock.set(Duration::from_millis(now));
        }
        if step % 3000 == 0 {
            cache.expire();
            cache.validate().unwrap();
            let live = last.values().filter(|&&end| now < end).count() as u64;
            assert!(cache.len() <= live, "{} of {live}", cache.len());
        }
    }
    let stats = cache.stats();
    assert!(stats.evicted > 5000 && stats.replaced > 5000 && stats.expired > 1000, "{stats:?}");
    clock.set(Duration::from_millis(now + 400_040));
    cache.expire();
    assert_eq!(cache.len(), 0);
    cache.validate().unwrap();
}

/// Nearly all values of one size, some of another, some with an end, some removed: nothing is served but what was put
/// last, and every equation holds.
fn check(cache: &Cache, table: &Table, clock: &ManualClock, timed: u64) {
    let (mut state, mut last) = (0x9E37_79B9_7F4A_7C15, HashMap::new());
    for step in 0..60_000_u32 {
        let key = (random(&mut state) % 20_000) as u32;
        match random(&mut state) % 100 {
            0..80 => {
                let size = if random(&mut state).is_multiple_of(50) { random(&mut state) as usize % 1500 } else { 75 };
                let value = [&step.to_le_bytes()[..], &vec![key as u8; size]].concat();
                let options = if random(&mut state) % 100 < timed { ttl(5.0) } else { PutOptions::default() };
                assert_ne!(table.put(&key.to_le_bytes(), &value, &options), PutResult::Rejected);
                last.insert(key, value);
            }
            80..98 => {
                let got = get(table, key.to_le_bytes());
                assert!(got.is_none() || got.as_ref() == last.get(&key), "step {step}");
            }
            _ => {
                table.remove(&key.to_le_bytes());
                last.remove(&key);
            }
        }
        if step % 3000 == 0 {
            clock.advance(Duration::from_secs(1));
            cache.validate().unwrap();
        }
        let stats = table.stats();
        assert!(stats.bytes <= stats.max_bytes && stats.inserted >= stats.evicted + stats.removed + stats.expired);
    }
    cache.validate().unwrap();
    let stats = table.stats();
    assert!(stats.evicted > 5000, "{stats:?}");
    assert_eq!(stats.entries, stats.inserted - stats.evicted - stats.removed - stats.expired);
}

#[test]
fn where_bytes_are_short_nothing_gets_lost() {
    for timed in [0, 100, 30] {
        let (cache, clock) = cache(1 << 20, 16 << 20);
        check(&cache, &cache, &clock, timed);
    }
}

#[test]
fn where_pages_are_short_nothing_gets_lost() {
    for timed in [0, 100, 30] {
        let (cache, clock) = cache(1 << 30, 4 << 20);
        check(&cache, &cache, &clock, timed);
        assert!(cache.stats().reserved_bytes <= 4 << 20);
    }
}

/// Nobody else makes room for a table that has come to its own limit.
#[test]
fn a_table_at_its_limit_trades_its_own() {
    for timed in [0, 100, 30] {
        let (cache, clock) = cache(8 << 20, 16 << 20);
        let table = cache.table("own", TableOptions { max_bytes: Some(1 << 20), ..TableOptions::default() }).unwrap();
        (0..1000_u32).for_each(|key| {
            cache.put(&key.to_le_bytes(), &[1; 75], &PutOptions::default());
        });
        check(&cache, &table, &clock, timed);
        assert_eq!((cache.len(), cache.default_table().stats().evicted), (1000, 0));
    }
}

/// Which entry goes is the policy's to say, whatever is short.
#[test]
fn where_pages_are_short_the_policy_decides() {
    let (cache, _) = cache(1 << 30, 4 << 20);
    let (mut state, mut buf) = (1, ReadBuf::new());
    // A few keys are asked for again and again, most of the others once: products of two numbers.
    let trace: Vec<u32> =
        (0..400_000).map(|_| ((random(&mut state) % 600) * (random(&mut state) % 600)) as u32).collect();
    for key in &trace {
        if cache.get(&key.to_le_bytes(), &mut buf).is_none() {
            cache.put(&key.to_le_bytes(), &[7; 250], &PutOptions::default());
        }
    }
    cache.validate().unwrap();
    let stats = cache.stats();
    let own = stats.hits * 10_000 / (stats.hits + stats.misses);
    let policy = alone(Policy::Sketch, stats.entries, &trace);
    assert!(own + 50 >= policy, "{own}, {policy} alone, at {} entries", stats.entries);
}

/// What is removed makes room for what comes, although there was none before.
#[test]
fn room_that_is_given_back_is_found() {
    let (cache, _) = cache(1 << 30, 4 << 20);
    let put = |key: u32| cache.put(&key.to_le_bytes(), &[1; 75], &PutOptions::default());
    (0..100_000).for_each(|key| assert_eq!(put(key), PutResult::Inserted));
    let full = cache.len();
    for round in 1..4_u32 {
        let keys: Vec<u32> = (0..100_000 * round).filter(|key| cache.contains(&key.to_le_bytes())).collect();
        keys[..keys.len() / 2].iter().for_each(|key| assert!(cache.remove(&key.to_le_bytes())));
        let evicted = cache.stats().evicted;
        (0..full / 2).for_each(|key| assert_eq!(put(100_000 * round + key as u32), PutResult::Inserted));
        assert!(cache.stats().evicted - evicted <= full / 20, "{} of {full}", cache.stats().evicted - evicted);
    }
    cache.validate().unwrap();
}
