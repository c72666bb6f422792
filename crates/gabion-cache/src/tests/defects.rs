//! What the caches that came before got wrong.

use std::collections::HashMap;

use super::{cache, get, priority, ttl, weight};
use crate::{Cache, Policy, PutOptions, PutResult, TableOptions};

/// A put took the first free place of a probe, without looking whether the key stands further on; after a remove the
/// older copy was found.
#[test]
fn no_stale_value_returns_after_a_remove() {
    let (cache, _) = cache(64 << 20, Policy::Sketch);
    let mut model = HashMap::new();
    let mut random = 0x1234_5678_9ABC_DEF1_u64;
    for step in 0..600_000_u32 {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let key = ((random >> 20) as u32 % 3000).to_le_bytes();
        match random % 4 {
            0 => {
                assert_eq!(cache.remove(&key), model.remove(&key).is_some());
                assert_eq!(get(&cache, key), None);
            }
            1 | 2 => {
                let before = model.insert(key, step);
                let expected = if before.is_some() { PutResult::Replaced } else { PutResult::Inserted };
                assert_eq!(cache.put(&key, &step.to_le_bytes(), &priority(0)), expected);
            }
            _ => assert_eq!(get(&cache, key), model.get(&key).map(|step| step.to_le_bytes().to_vec())),
        }
    }
    assert_eq!(cache.len(), model.len() as u64);
    cache.validate().unwrap();
}

/// One key in ten was lost when its few places were taken, with memory to spare.
#[test]
fn nothing_is_lost_below_the_limit() {
    for shards in [1, 16] {
        let options =
            crate::CacheOptions { max_bytes: 64 << 20, shards: Some(shards), ..crate::CacheOptions::default() };
        let cache = Cache::with_options(&options).unwrap();
        for n in 0..200_000_u32 {
            assert_eq!(cache.put(&n.to_le_bytes(), &n.to_be_bytes(), &priority(0)), PutResult::Inserted);
        }
        assert!((0..200_000_u32).all(|n| get(&cache, n.to_le_bytes()) == Some(n.to_be_bytes().to_vec())));
        assert_eq!((cache.len(), cache.stats().evicted), (200_000, 0));
        cache.validate().unwrap();
    }
}

/// One expired entry took with it all that came after it in its chain, and a replaced entry kept its old age.
#[test]
fn an_entry_that_expires_takes_no_other_with_it_and_a_new_value_has_a_new_time() {
    let (cache, clock) = cache(64 << 20, Policy::Sketch);
    for n in 0..5000_u32 {
        cache.put(&n.to_le_bytes(), b"1", &if n % 7 == 0 { ttl(10.0) } else { ttl(1000.0) });
    }
    clock.advance(std::time::Duration::from_secs(9));
    cache.put(&7_u32.to_le_bytes(), b"2", &ttl(10.0));
    cache.put(&14_u32.to_le_bytes(), b"2, longer, and so in another place", &PutOptions::default());
    clock.advance(std::time::Duration::from_secs(5));
    cache.expire();
    let lives = |n: u32| !n.is_multiple_of(7) || n == 7 || n == 14;
    assert!((0..5000_u32).all(|n| cache.contains(&n.to_le_bytes()) == lives(n)));
    clock.advance(std::time::Duration::from_secs(500));
    assert!(cache.contains(&14_u32.to_le_bytes()) && !cache.contains(&7_u32.to_le_bytes()));
}

/// Putting what is stored under a key already deleted it.
#[test]
fn putting_the_same_value_again_keeps_it() {
    let (cache, _) = cache(1 << 20, Policy::Sketch);
    for size in [0, 10, 1000, 5000, 300_000] {
        let value = vec![3; size];
        cache.put(b"k", &value, &priority(0));
        assert_eq!(cache.put(b"k", &value, &priority(0)), PutResult::Replaced);
        assert_eq!(get(&cache, b"k"), Some(value));
        cache.validate().unwrap();
    }
}

/// A change that ran out of memory lost what it was to change.
#[test]
fn a_refused_put_loses_nothing_but_its_own_key() {
    let (cache, _) = cache(40 * weight(1, 100), Policy::Sketch);
    for n in 0..40_u8 {
        assert_eq!(cache.put(&[n], &[n; 100], &priority(1)), PutResult::Inserted);
    }
    assert_eq!(cache.put(&[99], &[0; 100], &priority(0)), PutResult::Rejected);
    assert_eq!(cache.put(&[0], &[0; 200], &priority(0)), PutResult::Rejected);
    assert_eq!(get(&cache, [0]), None);
    assert!((1..40_u8).all(|n| get(&cache, [n]) == Some(vec![n; 100])));
    cache.validate().unwrap();
}

/// A sweep that took longer than its time began with the same part again, for ever.
#[test]
fn every_part_is_swept_however_little_is_done_at_a_time() {
    let (cache, clock) = cache(64 << 20, Policy::Sketch);
    for n in 0..3000_u32 {
        cache.put(&n.to_le_bytes(), b"", &ttl(1.0 + f64::from(n) / 100.0));
    }
    clock.advance(std::time::Duration::from_secs(3600));
    let mut left = 3000;
    while left > 0 {
        let mut locked = cache.core().lock_only(0);
        let (expired, more) = locked.expire(cache.core().now(), 1);
        left -= expired;
        assert!(more || left == 0);
    }
    assert_eq!(cache.len(), 0);
}

/// A table that was empty for a minute was struck off while callers still held it: what they put then was never swept,
/// purged or counted.
#[test]
fn a_table_stays_whether_empty_or_not_and_a_dropped_one_takes_nothing_in() {
    let (cache, clock) = cache(1 << 20, Policy::Sketch);
    let table = cache.table("t", TableOptions::default()).unwrap();
    table.put(b"k", b"1", &ttl(1.0));
    clock.advance(std::time::Duration::from_secs(100_000));
    cache.expire();
    table.put(b"k", b"2", &PutOptions::default());
    assert_eq!(get(&cache.table("t", TableOptions::default()).unwrap(), b"k"), Some(b"2".to_vec()));
    assert_eq!(cache.tables().iter().map(crate::Table::name).collect::<Vec<_>>(), ["", "t"]);

    assert!(cache.drop_table("t") && !cache.drop_table("t") && !cache.drop_table(""));
    assert_eq!((get(&table, b"k"), table.len(), cache.tables().len()), (None, 0, 1));
    assert_eq!(table.put(b"k", b"3", &PutOptions::default()), PutResult::Rejected);
    assert!(table.is_dropped() && !table.remove(b"k") && get(&table, b"k").is_none());
    let again = cache.table("t", TableOptions::default()).unwrap();
    assert_eq!(again.put(b"k", b"4", &PutOptions::default()), PutResult::Inserted);
    assert_eq!(get(&table, b"k"), None);
    cache.validate().unwrap();
}

/// A memory limit made puts fail where it should have made older entries go.
#[test]
fn the_limit_evicts_and_does_not_fail() {
    let (cache, _) = cache(1 << 20, Policy::Sketch);
    for n in 0..50_000_u32 {
        assert_eq!(cache.put(&n.to_le_bytes(), &[0; 60], &priority(0)), PutResult::Inserted);
    }
    assert!(cache.stats().evicted > 30_000 && cache.contains(&49_999_u32.to_le_bytes()));
}

/// Puts counted hits where hits are not counted, and a key that was put often was not moved up by gets any more.
#[test]
fn a_get_of_a_key_that_was_put_often_moves_it_up() {
    let (cache, _) = cache(8 * weight(1, 1), Policy::Lru);
    for _ in 0..9 {
        assert_ne!(cache.put(&[0], &[0], &priority(0)), PutResult::Rejected);
    }
    (1..8_u8).for_each(|key| assert_eq!(cache.put(&[key], &[0], &priority(0)), PutResult::Inserted));
    for key in 8..99_u8 {
        assert!(get(&cache, [0]).is_some());
        assert_eq!(cache.put(&[key], &[0], &priority(0)), PutResult::Inserted);
        assert_eq!(get(&cache, [key - 7]), None);
    }
    cache.validate().unwrap();
}
