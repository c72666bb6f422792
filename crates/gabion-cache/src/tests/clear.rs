//! Clearing: all at once, or a table among others.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::{get, priority, ttl};
use crate::{Cache, CacheOptions, Policy, ReadBuf, Table, TableOptions};

const POLICIES: [Policy; 4] = [Policy::Sketch, Policy::Lru, Policy::Fifo, Policy::S3Fifo];

/// Values of all kinds of rooms, with ends and without, of three priorities.
fn fill(table: &Table, entries: u32) {
    for n in 0..entries {
        let length = [0, 75, 700, 5000, 70_000, 2 << 20][(n % 97).saturating_sub(91) as usize];
        let options = if n % 3 == 0 { ttl(60.0) } else { priority((n % 4) as i8 - 1) };
        // Where only what is worth more could make room, it is refused.
        table.put(&n.to_le_bytes(), &vec![n as u8; length], &options);
    }
}

#[test]
fn a_cleared_cache_is_as_good_as_new() {
    for policy in POLICIES {
        let options = CacheOptions { max_bytes: 64 << 20, policy, shards: Some(4), ..CacheOptions::default() };
        let cache = Cache::with_options(&options).unwrap();
        let own = TableOptions { max_bytes: Some(8 << 20), ..TableOptions::default() };
        let tables = [cache.table("own", own).unwrap(), cache.table("other", TableOptions::default()).unwrap()];
        let mut removed = 0;
        for _ in 0..3 {
            fill(&cache, 2000);
            for table in &tables {
                fill(table, 500);
            }
            // The cache's own figures are of all tables, and the default one has its own.
            assert_eq!(cache.stats().entries, cache.tables().iter().map(Table::len).sum::<u64>());
            assert_eq!(cache.default_table().stats().entries, cache.len());
            // One by one: the others stay.
            let (of_table, others) = (tables[0].len(), cache.len());
            assert_eq!((tables[0].clear(), tables[0].len(), cache.len()), (of_table, 0, others));
            cache.validate().unwrap();
            fill(&tables[0], 100);
            let entries = cache.stats().entries;
            assert_eq!((cache.clear(), cache.len()), (entries, 0));
            cache.validate().unwrap();
            removed += of_table + entries;
            let stats = cache.stats();
            assert_eq!((stats.entries, stats.bytes, stats.removed), (0, 0, removed), "{policy:?}");
            assert_eq!(get(&cache, 7_u32.to_le_bytes()), None);
            cache.put(&7_u32.to_le_bytes(), b"new", &priority(0));
            assert_eq!(get(&cache, 7_u32.to_le_bytes()), Some(b"new".to_vec()));
            // Alone in the cache, and so all at once.
            assert_eq!((cache.default_table().clear(), cache.default_table().clear()), (1, 0));
            removed += 1;
            cache.validate().unwrap();
        }
    }
}

#[test]
fn threads_put_and_get_while_others_clear() {
    let cache =
        Cache::with_options(&CacheOptions { max_bytes: 16 << 20, shards: Some(4), ..CacheOptions::default() }).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2_u32 {
            let (cache, done) = (&cache, &done);
            scope.spawn(move || {
                let mut n = thread;
                while !done.load(Ordering::Relaxed) {
                    n = n.wrapping_mul(5).wrapping_add(1);
                    let (key, length) = (n % 5000, if n % 701 == 0 { 5000 } else { 75 });
                    let value = [&key.to_le_bytes()[..], &vec![key as u8; length]].concat();
                    cache.put(&key.to_le_bytes(), &value, &if n % 5 == 0 { ttl(60.0) } else { priority(0) });
                }
            });
            scope.spawn(move || {
                let (mut n, mut buf) = (thread, ReadBuf::new());
                while !done.load(Ordering::Relaxed) {
                    n = n.wrapping_mul(5).wrapping_add(1);
                    if let Some(value) = cache.get(&(n % 5000).to_le_bytes(), &mut buf) {
                        let (key, rest) = value.split_first_chunk().unwrap();
                        let key = u32::from_le_bytes(*key);
                        assert!(key == n % 5000 && rest.iter().all(|&byte| byte == key as u8));
                    }
                }
            });
        }
        for _ in 0..200 {
            std::thread::yield_now();
            cache.clear();
        }
        done.store(true, Ordering::Relaxed);
    });
    cache.validate().unwrap();
    cache.clear();
    assert_eq!((cache.stats().bytes, cache.len()), (0, 0));
    cache.validate().unwrap();
}

#[test]
fn a_table_of_few_entries_or_none_is_cleared_among_many() {
    for policy in POLICIES {
        let options = CacheOptions { max_bytes: 64 << 20, policy, shards: Some(4), ..CacheOptions::default() };
        let cache = Cache::with_options(&options).unwrap();
        let table = cache.table("few", TableOptions::default()).unwrap();
        fill(&cache, 2000);
        let others = cache.len();
        for few in [0_u32, 1, 3] {
            for n in 0..few {
                table.put(&n.to_le_bytes(), b"value", &priority(0));
            }
            // Whatever it has, what is made for it just now is not kept.
            let lease = table.lease(b"made");
            assert_eq!((table.clear(), table.len(), cache.len()), (few.into(), 0, others));
            assert_eq!(table.put_made(&lease, b"made", b"value", &priority(0)), None);
            assert!((0..few).all(|n| get(&table, n.to_le_bytes()).is_none()));
            cache.validate().unwrap();
        }
        assert!(cache.drop_table("few") && !cache.drop_table("few") && !cache.drop_table(""));
        assert_eq!((cache.len(), cache.tables().len()), (others, 1));
    }
}

/// The sketches of a cleared cache stayed: 18 MiB for a million and a half of keys that were gone.
#[test]
fn the_index_of_a_cleared_cache_is_as_small_as_a_new_ones() {
    for policy in POLICIES {
        let options = CacheOptions { max_bytes: 64 << 20, policy, shards: Some(4), ..CacheOptions::default() };
        let cache = Cache::with_options(&options).unwrap();
        let empty = cache.stats().index_bytes;
        for _ in 0..2 {
            (0..40_000_u32).for_each(|n| _ = cache.put(&n.to_le_bytes(), b"value", &priority(0)));
            assert!(cache.stats().index_bytes > empty + (256 << 10), "{policy:?}");
            cache.clear();
            assert_eq!(cache.stats().index_bytes, empty, "{policy:?}");
            cache.validate().unwrap();
        }
    }
}

/// Its entries were looked for among those of the whole cache, one after the other.
#[test]
fn a_table_with_a_limit_of_its_own_is_cleared_without_a_look_at_the_others() {
    for policy in POLICIES {
        let options = CacheOptions { max_bytes: 64 << 20, policy, shards: Some(2), ..CacheOptions::default() };
        let cache = Cache::with_options(&options).unwrap();
        (0..200_000_u32).for_each(|n| _ = cache.put(&n.to_le_bytes(), b"value", &priority(0)));
        let others = cache.len();
        let quickest = |max_bytes: Option<u64>| {
            let rounds = (0..5).map(|round| {
                let table = cache.table("few", TableOptions { max_bytes, ..TableOptions::default() }).unwrap();
                (0..50_u32).for_each(|n| _ = table.put(&n.to_le_bytes(), b"value", &priority((n % 3) as i8)));
                let begin = Instant::now();
                if round % 2 == 0 {
                    assert_eq!(table.clear(), 50);
                }
                assert!(cache.drop_table("few"));
                let took = begin.elapsed();
                assert_eq!((table.len(), table.stats().removed, cache.len()), (0, 50, others));
                took
            });
            rounds.min().unwrap()
        };
        let (own, shared) = (quickest(Some(1 << 20)), quickest(None));
        assert!(own * 5 < shared, "{policy:?}: {own:?}, and {shared:?} among the others");
        cache.validate().unwrap();
    }
}

/// As fast as they come: it ends, and takes all that was there before.
#[test]
fn a_table_is_cleared_while_others_fill_it() {
    let cache =
        Cache::with_options(&CacheOptions { max_bytes: 64 << 20, shards: Some(2), ..CacheOptions::default() }).unwrap();
    fill(&cache, 2000);
    let own = TableOptions { max_bytes: Some(1 << 20), ..TableOptions::default() };
    let (table, done) = (cache.table("own", own).unwrap(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for thread in 0..2_u32 {
            let (table, done) = (&table, &done);
            scope.spawn(move || {
                let mut n = thread;
                while !done.load(Ordering::Relaxed) {
                    n = n.wrapping_add(2);
                    table.put(&(n % 2000).to_le_bytes(), b"new", &priority((n % 3) as i8));
                }
            });
        }
        for n in 0..200_u32 {
            let old = [&b"old"[..], &n.to_le_bytes()].concat();
            table.put(&old, b"value", &priority(0));
            table.clear();
            assert!(!table.contains(&old));
        }
        done.store(true, Ordering::Relaxed);
    });
    cache.validate().unwrap();
    let entries = table.len();
    assert_eq!((table.clear(), table.len(), table.stats().bytes), (entries, 0, 0));
    cache.validate().unwrap();
}
