//! A limit that is set while the cache is in use.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use super::{cache, get, priority, weight};
use crate::budget::memory_of;
use crate::{Cache, CacheOptions, Policy, PutResult, ReadBuf, Reason, TableOptions};

#[test]
fn a_lower_limit_holds_at_once_and_a_higher_one_is_filled_again() {
    for policy in [Policy::Sketch, Policy::Lru, Policy::Fifo, Policy::S3Fifo] {
        let made_for = 48 << 20;
        let cache = Cache::with_options(&CacheOptions { max_bytes: made_for, policy, ..CacheOptions::default() });
        let (cache, mut key) = (cache.unwrap(), 0_u32);
        let mut fill = || {
            for _ in 0..6_000 {
                key += 1;
                let size = [20, 75, 300, 1000, 5000, 70_000][key as usize % 97 % 6];
                assert_ne!(cache.put(&key.to_le_bytes(), &vec![1; size], &priority(0)), PutResult::Rejected);
            }
        };
        for limit in [48, 20, 30, 9, 3, 48].map(|mib| mib << 20) {
            fill();
            cache.set_max_bytes(limit).unwrap();
            let stats = cache.stats();
            assert!(stats.bytes <= limit && stats.reserved_bytes <= memory_of(limit), "{policy:?} {limit}: {stats:?}");
            assert_eq!((cache.max_bytes(), stats.max_bytes), (limit, limit));
            cache.validate().unwrap();
            fill();
            let stats = cache.stats();
            assert!(stats.bytes <= limit && stats.bytes > limit / 2, "{policy:?} {limit}: {stats:?}");
            assert!(stats.reserved_bytes <= memory_of(limit), "{policy:?} {limit}: {stats:?}");
            cache.validate().unwrap();
        }
        cache.set_max_bytes(0).unwrap();
        assert_eq!((cache.len(), cache.stats().bytes), (0, 0));
        assert_eq!(cache.put(b"k", b"v", &priority(0)), PutResult::Rejected);
        cache.validate().unwrap();
    }
}

#[test]
fn the_lowest_priorities_go_first_and_the_listener_hears_of_each() {
    let (cache, _) = cache(200 * weight(4, 50), Policy::Lru);
    let gone = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&gone);
    cache.on_departure(Some(Arc::new(move |departure| {
        assert_eq!(departure.reason, Reason::Evicted);
        heard.lock().unwrap().push(u32::from_le_bytes(departure.key.try_into().unwrap()));
    })));
    for n in 0..200_u32 {
        cache.put(&n.to_le_bytes(), &[0; 50], &priority(if n < 100 { 5 } else { -3 }));
    }
    // Used last of its priority.
    assert!(get(&cache, 100_u32.to_le_bytes()).is_some());
    cache.set_max_bytes(101 * weight(4, 50)).unwrap();
    assert_eq!(*gone.lock().unwrap(), (101..200).collect::<Vec<_>>());
    assert_eq!((cache.len(), cache.stats().evicted), (101, 99));
    cache.validate().unwrap();
}

#[test]
fn more_than_it_was_made_for_and_less_than_its_tables_take_are_refused() {
    let cache = Cache::new(16 << 20).unwrap();
    cache.put(b"k", b"v", &priority(0));
    assert!(cache.set_max_bytes((16 << 20) + 1).is_err());
    assert_eq!((cache.max_bytes(), get(&cache, b"k")), (16 << 20, Some(b"v".to_vec())));
    let large = Cache::new(1 << 40).unwrap();
    let fixed = large.stats().index_bytes;
    assert!(fixed > 8 << 20 && large.set_max_bytes(fixed - 1).is_err());
    assert_eq!(large.max_bytes(), 1 << 40);
    large.validate().unwrap();
}

#[test]
fn tables_keep_their_own_limits_below_it() {
    let cache = Cache::new(8 << 20).unwrap();
    let own = TableOptions { max_bytes: Some(4 << 20), ..TableOptions::default() };
    let table = cache.table("own", own).unwrap();
    for n in 0..100_000_u32 {
        table.put(&n.to_le_bytes(), &[0; 50], &priority(0));
        cache.put(&n.to_le_bytes(), &[0; 50], &priority(0));
    }
    cache.set_max_bytes(1 << 20).unwrap();
    assert!(table.stats().bytes + cache.default_table().stats().bytes <= 1 << 20);
    assert_eq!(table.stats().max_bytes, 1 << 20);
    cache.validate().unwrap();
    cache.set_max_bytes(8 << 20).unwrap();
    assert_eq!(table.stats().max_bytes, 4 << 20);
}

/// Sets a flag in the end.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Writers, readers, and the limit up and down: never more than the last that was set.
#[test]
fn puts_beside_a_changing_limit_stay_below_it() {
    let cache = Cache::with_options(&CacheOptions { max_bytes: 24 << 20, shards: Some(4), ..CacheOptions::default() });
    let (cache, done) = (cache.unwrap(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        // Also where an assertion fails: the others are waited for.
        let end = Ending(&done);
        for thread in 0..2_u32 {
            let (cache, done) = (&cache, &done);
            scope.spawn(move || {
                let mut n = thread;
                while !done.load(Ordering::Relaxed) {
                    n = n.wrapping_add(2);
                    let size = [20, 75, 300, 1000, 5000][n as usize % 5];
                    cache.put(&(n % 200_000).to_le_bytes(), &vec![1; size], &priority(0));
                    cache.get(&(n / 2 % 200_000).to_le_bytes(), &mut ReadBuf::new());
                }
            });
        }
        for limit in [24, 8, 16, 2, 24, 9, 12, 1].map(|mib| mib << 20) {
            cache.set_max_bytes(limit).unwrap();
            for _ in 0..200 {
                let stats = cache.stats();
                assert!(stats.bytes <= limit && stats.reserved_bytes <= memory_of(limit), "{limit}: {stats:?}");
                std::thread::yield_now();
            }
        }
        drop(end);
    });
    cache.validate().unwrap();
}

/// Long values that lie anywhere: hardly a page comes free where some go.
#[test]
fn no_more_goes_than_is_over_the_limit() {
    let made_for = 64 << 20;
    let cache = Cache::with_options(&CacheOptions { max_bytes: made_for, shards: Some(8), ..CacheOptions::default() });
    let cache = cache.unwrap();
    let mut random = 1_u64;
    for n in 0..3000_u32 {
        cache.put(&n.to_le_bytes(), &vec![1; 30_000 + n as usize % 7 * 10_000], &priority(0));
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        cache.get(&((random >> 40) as u32 % (n + 1)).to_le_bytes(), &mut ReadBuf::new());
    }
    for mib in [60_u64, 56, 40, 39, 20] {
        let (before, limit) = (cache.stats().bytes, mib << 20);
        cache.set_max_bytes(limit).unwrap();
        let stats = cache.stats();
        assert!(stats.bytes <= limit && stats.reserved_bytes <= limit, "{mib} MiB: {stats:?}");
        assert!(stats.bytes > before.min(limit) * 6 / 10, "{mib} MiB: {stats:?} of {before}");
        cache.validate().unwrap();
    }
}

/// Pages of each size, and blocks of long values, from which nothing is taken any more.
#[test]
fn nothing_stays_warm_beyond_the_limit() {
    let cache = Cache::with_options(&CacheOptions { max_bytes: 128 << 20, shards: Some(8), ..CacheOptions::default() });
    let cache = cache.unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8_u32 {
            let cache = &cache;
            scope.spawn(move || {
                for n in 0..2000_u32 {
                    let size = n as usize * 8 % 1200 + if n % 40 == 0 { 100_000 } else { 0 };
                    cache.put(&(n << 3 | thread).to_le_bytes(), &vec![1; size], &priority(0));
                }
            });
        }
    });
    for limit in [16 << 20, 8 << 20, 1 << 20, 0] {
        cache.set_max_bytes(limit).unwrap();
        let stats = cache.stats();
        assert!(stats.bytes <= limit && stats.reserved_bytes <= memory_of(limit), "{limit}: {stats:?}");
        cache.validate().unwrap();
    }
    assert!(cache.is_empty());
}
