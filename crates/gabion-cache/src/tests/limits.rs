//! The limit in bytes, priorities and tables.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::{cache, get, priority, ttl, weight};
use crate::index::SEGMENT_FULL;
use crate::{Cache, CacheOptions, Policy, PutOptions, PutResult, ReadBuf, Reason, Span, TableOptions};

#[test]
fn a_full_cache_evicts_and_never_fails() {
    for policy in [Policy::Sketch, Policy::Lru, Policy::Fifo, Policy::S3Fifo] {
        let limit = 32 << 20;
        let (cache, _) = cache(limit, policy);
        for n in 0..300_000_u32 {
            let size = [20, 75, 300, 1000, 5000][n as usize % 5];
            assert_ne!(cache.put(&n.to_le_bytes(), &vec![1; size], &priority(0)), PutResult::Rejected, "{n}");
            if n % 1000 == 0 {
                let stats = cache.stats();
                assert!(stats.bytes <= limit && stats.reserved_bytes <= limit, "{stats:?}");
            }
        }
        cache.validate().unwrap();
        let stats = cache.stats();
        assert!(stats.bytes > limit * 7 / 10, "{stats:?}");
    }
}

#[test]
fn sizes_may_change_as_they_like() {
    let limit = 24 << 20;
    let (cache, _) = cache(limit, Policy::Sketch);
    let mut key = 0_u32;
    for size in [100, 900, 30, 20_000, 500, 2_000_000, 64, 300_000] {
        for _ in 0..(3 * limit as usize / (size + 100)).max(30) {
            key += 1;
            let value = vec![key as u8; size];
            assert_eq!(cache.put(&key.to_le_bytes(), &value, &priority(0)), PutResult::Inserted, "{size}");
            assert_eq!(get(&cache, key.to_le_bytes()), Some(value));
        }
        cache.validate().unwrap();
        let stats = cache.stats();
        assert!(stats.reserved_bytes <= limit && stats.bytes * 2 > limit, "{size}: {stats:?}");
    }
}

#[test]
fn what_can_never_fit_is_refused_and_its_key_is_empty() {
    let limit = 1 << 20;
    let (cache, _) = cache(limit, Policy::Sketch);
    cache.put(b"other", b"stays", &priority(0));
    cache.put(b"k", b"old", &priority(0));
    assert_eq!(cache.put(b"k", &vec![0; limit as usize], &priority(0)), PutResult::Rejected);
    assert_eq!(get(&cache, b"k"), None);
    assert_eq!(get(&cache, b"other"), Some(b"stays".to_vec()));
    assert_eq!((cache.stats().rejected, cache.stats().evicted), (1, 0));
    cache.validate().unwrap();
    let (tiny, _) = super::cache(0, Policy::Sketch);
    assert_eq!(tiny.put(b"k", b"", &priority(0)), PutResult::Rejected);
    assert_eq!(get(&tiny, b"k"), None);
    tiny.validate().unwrap();
}

#[test]
fn a_put_evicts_its_own_priority_and_below_lowest_first() {
    for shards in [1, 8] {
        let limit = 400 * weight(4, 50);
        let options = CacheOptions { max_bytes: limit, shards: Some(shards), ..CacheOptions::default() };
        let cache = Cache::with_options(&options).unwrap();
        let put = |n: u32, p| cache.put(&n.to_le_bytes(), &[0; 50], &priority(p));
        for n in 0..400 {
            assert_eq!(put(n, if n < 200 { 5 } else { -3 }), PutResult::Inserted);
        }
        // The lower half goes first, all of it, before anything else.
        let alive = |range: std::ops::Range<u32>| range.filter(|n| cache.contains(&n.to_le_bytes())).count();
        for n in 400..590 {
            assert_eq!(put(n, 5), PutResult::Inserted);
            assert_eq!(alive(0..200), 200);
        }
        for n in 600..800 {
            put(n, 5);
        }
        assert_eq!(alive(200..400), 0);
        // Nothing is left that a lower one may evict: refused, and nothing is lost.
        let before = (cache.len(), cache.stats().evicted);
        assert_eq!(put(900, 4), PutResult::Rejected);
        assert_eq!((cache.len(), cache.stats().evicted), before);
        assert_eq!(get(&cache, 900_u32.to_le_bytes()), None);
        // A key's own value can be replaced whatever its priority.
        let mine = (0..800_u32).find(|n| cache.contains(&n.to_le_bytes())).unwrap();
        assert_eq!(put(mine, -8), PutResult::Replaced);
        assert_eq!(put(900, -8), PutResult::Inserted);
        assert!(!cache.contains(&mine.to_le_bytes()));
        cache.validate().unwrap();
    }
}

/// One other priority or table with a limit, once used, made all later puts look at several cohorts.
#[test]
fn a_cohort_without_entries_is_none_to_choose_from() {
    for policy in [Policy::Sketch, Policy::Lru, Policy::Fifo] {
        let (cache, _) = cache(1 << 20, policy);
        let cohorts = || cache.core().lock_only(0).state.cohorts.len();
        let small = TableOptions { max_bytes: Some(1 << 16), ..TableOptions::default() };
        cache.put(b"first", b"", &priority(-1));
        assert!(cache.remove(b"first") && cohorts() == 0);
        for clear in [false, true] {
            cache.put(b"one", b"", &priority(0));
            cache.put(b"other", b"", &priority(3));
            cache.table("small", small).unwrap().put(b"third", b"", &priority(0));
            assert_eq!(cohorts(), 3);
            if clear {
                cache.clear();
                assert_eq!(cohorts(), 0);
            } else {
                assert!(cache.remove(b"other") && cache.drop_table("small"));
                assert_eq!(cohorts(), 1);
            }
            cache.validate().unwrap();
        }
    }
}

#[test]
fn a_table_keeps_to_its_own_limit_within_the_caches() {
    let options = CacheOptions { max_bytes: 4 << 20, ..CacheOptions::default() };
    let cache = Cache::with_options(&options).unwrap();
    let small = TableOptions { max_bytes: Some(100 * weight(4, 50)), ..TableOptions::default() };
    let (small, wide) = (cache.table("small", small).unwrap(), cache.table("wide", TableOptions::default()).unwrap());
    for n in 0..1000_u32 {
        assert_eq!(wide.put(&n.to_le_bytes(), &[1; 50], &priority(0)), PutResult::Inserted);
        assert_eq!(small.put(&n.to_le_bytes(), &[2; 50], &priority(0)), PutResult::Inserted);
        assert!(small.stats().bytes <= small.stats().max_bytes);
    }
    assert_eq!((wide.len(), wide.stats().evicted), (1000, 0));
    assert!((95..=100).contains(&small.len()), "{}", small.len());
    assert_eq!(get(&wide, 5_u32.to_le_bytes()), Some(vec![1; 50]));
    assert_eq!(get(&cache, 5_u32.to_le_bytes()), None);
    assert_eq!(small.put(b"k", &vec![0; 1 << 20], &priority(0)), PutResult::Rejected);
    let total = cache.stats();
    assert_eq!((total.entries, total.inserted), (1000 + small.len(), 2000));
    cache.validate().unwrap();
    assert_eq!((small.clear(), wide.len()), (total.entries - 1000, 1000));
    cache.validate().unwrap();
}

#[test]
fn listeners_hear_of_each_entry_that_leaves_by_itself() {
    let (cache, clock) = cache(50 * weight(4, 50), Policy::Lru);
    let heard = Arc::new(Mutex::new(Vec::new()));
    let (again, told) = (cache.clone(), Arc::clone(&heard));
    cache.on_departure(Some(Arc::new(move |gone| {
        // No lock is held: the cache can be used.
        assert!(!again.contains(gone.key));
        told.lock().unwrap().push((gone.table.to_owned(), gone.key.to_vec(), gone.value.to_vec(), gone.reason));
    })));
    for n in 0..60_u32 {
        cache.put(&n.to_le_bytes(), &[n as u8; 50], &PutOptions::default());
    }
    let evicted: Vec<_> =
        (0..10_u32).map(|n| (String::new(), n.to_le_bytes().to_vec(), vec![n as u8; 50], Reason::Evicted)).collect();
    assert_eq!(*heard.lock().unwrap(), evicted);
    cache.remove(&20_u32.to_le_bytes());
    cache.put(&21_u32.to_le_bytes(), &[9; 50], &PutOptions::default());
    cache.clear();
    assert_eq!(heard.lock().unwrap().len(), 10);
    cache.put(b"end", b"value", &ttl(1.0));
    clock.advance(std::time::Duration::from_secs(2));
    cache.expire();
    assert_eq!(heard.lock().unwrap().last().unwrap().3, Reason::Expired);
    // Whatever call finds that they are over.
    for n in 0..7_u8 {
        cache.put(&[n], b"", &ttl(1.0));
    }
    clock.advance(std::time::Duration::from_secs(2));
    cache.for_each_key(|_| ());
    assert!(cache.stats().expired > 1);
    assert_eq!(heard.lock().unwrap().len() as u64, 10 + cache.stats().expired);
    cache.on_departure(None);
}

#[test]
fn a_put_is_not_refused_for_want_of_what_others_free_meanwhile() {
    let options = CacheOptions { max_bytes: 9 << 20, shards: Some(1), ..CacheOptions::default() };
    let cache = Cache::with_options(&options).unwrap();
    for n in 0..75_000_u32 {
        cache.put(&n.to_le_bytes(), &[1; 40], &PutOptions::default());
    }
    let again = cache.clone();
    // At the first eviction that the put makes all the others go, so that it finds nobody more to evict.
    cache.on_departure(Some(Arc::new(move |_| {
        again.clear();
    })));
    assert_eq!(cache.put(b"long", &vec![1; 3 << 20], &PutOptions::default()), PutResult::Inserted);
    cache.on_departure(None);
    assert_eq!(cache.len(), 1);
    cache.validate().unwrap();
}

#[test]
fn sixteen_threads_never_exceed_the_limit() {
    let limit = 12 << 20;
    let cache = Cache::new(limit).unwrap();
    let most = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..16_u64 {
            let (cache, most) = (&cache, &most);
            scope.spawn(move || {
                for n in 0..4000_u64 {
                    let size = 1_usize << (4 + (n * 7 + thread) % 13);
                    cache.put(&(n * 16 + thread).to_le_bytes(), &vec![0; size], &priority((n % 3) as i8));
                    let stats = cache.stats();
                    most.fetch_max(stats.bytes.max(stats.reserved_bytes), Ordering::Relaxed);
                }
            });
        }
    });
    assert!(most.load(Ordering::Relaxed) <= limit);
    cache.validate().unwrap();
}

/// A put of a size that there was no page for made a third of the cache go, until some page happened to be empty.
#[test]
fn a_put_of_another_size_costs_about_itself_and_a_few_pages() {
    for policy in [Policy::Sketch, Policy::Lru] {
        let (cache, _) = cache(16 << 20, policy);
        let mut random = 0x9E37_79B9_97F4_A7C1_u64;
        for _ in 0..300_000 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let key = ((random >> 20) as u32 % 200_000).to_le_bytes();
            if cache.get(&key, &mut ReadBuf::new()).is_none() {
                cache.put(&key, &[1; 100], &priority(0));
            }
        }
        for size in [5_000, 700, 40, 200_000, 20_000] {
            let before = cache.stats();
            assert_eq!(cache.put(&size.to_string().into_bytes(), &vec![2; size], &priority(0)), PutResult::Inserted);
            let evicted = (before.evicted..cache.stats().evicted).count() as u64 * weight(4, 100);
            assert!(evicted <= 2 * size as u64 + (512 << 10), "{evicted} bytes evicted for {size} in {policy:?}");
            cache.validate().unwrap();
        }
    }
}

#[test]
fn numbers_of_dropped_tables_are_used_again() {
    let (cache, _) = cache(1 << 20, Policy::Sketch);
    let first = cache.table("first", TableOptions::default()).unwrap();
    for round in 0..70_000_u32 {
        let table = cache.table("t", TableOptions::default()).unwrap();
        if round % 10_000 == 0 {
            table.put(b"k", b"v", &priority(0));
            first.put(b"k", b"first", &priority(0));
        }
        assert!(cache.drop_table("t"));
        assert!(get(&table, b"k").is_none());
    }
    assert_eq!((get(&first, b"k"), cache.stats().inserted), (Some(b"first".to_vec()), 8));
    cache.validate().unwrap();
}

/// A cache of a few KiB took up to 8 MiB: a page for each size class and thread, and pages for each part of the index.
#[test]
fn a_small_cache_is_small() {
    for policy in [Policy::Sketch, Policy::Lru, Policy::Fifo, Policy::S3Fifo] {
        for limit in [0, 1 << 12, 1 << 16, 1 << 20, 5 << 20, 8 << 20] {
            let cache =
                Cache::with_options(&CacheOptions { max_bytes: limit, policy, ..CacheOptions::default() }).unwrap();
            let most_memory = limit.max((8 << 20).min(limit + (5 << 20)));
            let mut random = 0x9E37_79B9_97F4_A7C1_u64;
            for key in 0..20_000_u32 {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                // Of all sizes, and now and then a long one.
                let most = if random.is_multiple_of(50) { (limit / 8).min(20_000) } else { (limit / 8).min(1000) };
                let size = (random >> 20) as usize % (most as usize + 1);
                let result = cache.put(&key.to_le_bytes(), &vec![3; size], &priority(0));
                assert!(result == PutResult::Inserted || weight(4, size) > limit, "{size} of {limit}: {result:?}");
                if key % 50 == 0 {
                    let stats = cache.stats();
                    assert!(stats.bytes <= limit && stats.reserved_bytes <= most_memory, "{stats:?}");
                }
            }
            cache.validate().unwrap();
            let stats = cache.stats();
            // A page for each size class is half empty on average.
            let least = if limit <= 1 << 20 { limit * 8 / 10 } else { limit / 8 };
            assert!(policy == Policy::S3Fifo || stats.bytes >= least, "{policy:?}, {limit}: {stats:?}");
        }
    }
    // One value takes a page, and the index what it needs.
    let cache = Cache::new(1 << 20).unwrap();
    cache.put(b"k", b"v", &priority(0));
    let stats = cache.stats();
    assert!(stats.reserved_bytes < 96 << 10 && stats.index_bytes < 24 << 10, "{stats:?}");
}

#[test]
fn a_value_that_no_pages_can_hold_costs_nobody_else() {
    let limit = 8 << 20;
    let cache = Cache::new(limit).unwrap();
    cache.put(b"other", b"stays", &priority(0));
    // Less than the limit, and too much for the pages beside those of the index.
    assert_eq!(cache.put(b"k", &vec![0; limit as usize - 1000], &priority(0)), PutResult::Rejected);
    assert_eq!((get(&cache, b"other"), cache.stats().evicted), (Some(b"stays".to_vec()), 0));
    assert_eq!(cache.put(b"k", &vec![0; limit as usize / 2], &priority(0)), PutResult::Inserted);
    cache.validate().unwrap();
}

/// Ghosts were outside the limit.
#[test]
fn ghosts_are_within_the_limit() {
    let limit = 8 << 20;
    let options = CacheOptions { max_bytes: limit, policy: Policy::S3Fifo, ..CacheOptions::default() };
    let cache = Cache::with_options(&options).unwrap();
    for n in 0..300_000_u32 {
        assert_eq!(cache.put(&n.to_le_bytes(), b"", &priority(0)), PutResult::Inserted);
    }
    let stats = cache.stats();
    let ghosts = (limit - stats.bytes) / 24;
    assert!(ghosts >= stats.entries / 10 && stats.reserved_bytes <= limit, "{stats:?}");
    cache.validate().unwrap();
    // They make room for what may evict nobody.
    for n in 0..60_000_u32 {
        cache.put(&n.to_le_bytes(), &[0; 500], &priority(1));
    }
    let kept = cache.len();
    assert_eq!(cache.put(b"low", b"", &priority(0)), PutResult::Inserted);
    assert_eq!(cache.len(), kept + 1);
    cache.clear();
    assert_eq!((cache.stats().bytes, cache.len()), (0, 0));
    cache.validate().unwrap();
    // All of it can be had again.
    assert_eq!(cache.put(b"large", &vec![0; limit as usize / 2], &priority(0)), PutResult::Inserted);
}

/// The table that leads to the ghosts grew with the limit beyond all bounds.
#[test]
fn a_limit_may_be_larger_than_any_memory() {
    for policy in [Policy::Sketch, Policy::Lru, Policy::Fifo, Policy::S3Fifo] {
        let options = CacheOptions { max_bytes: u64::MAX >> 1, policy, ..CacheOptions::default() };
        let cache = Cache::with_options(&options).unwrap();
        cache.put(b"k", b"value", &PutOptions::default());
        assert_eq!(get(&cache, b"k"), Some(b"value".to_vec()));
        let machine = gabion_blocks::limits::read().physical;
        assert!(cache.stats().reserved_bytes < (8 << 20) + machine / 64, "{policy:?}: {:?}", cache.stats());
        cache.validate().unwrap();
    }
}

/// What the index keeps was not reckoned with: everything was evicted for a value that found no room even so.
#[test]
fn nobody_goes_for_a_value_nearly_as_large_as_the_cache() {
    let limit = 16_u64 << 20;
    for policy in [Policy::Sketch, Policy::Lru, Policy::S3Fifo] {
        let cache = Cache::with_options(&CacheOptions { max_bytes: limit, policy, ..CacheOptions::default() }).unwrap();
        let (mut n, mut size) = (0_u64, limit - 200);
        loop {
            while cache.len() * 1000 < limit * 8 / 10 {
                cache.put(&n.to_le_bytes(), &[0; 960], &PutOptions::default());
                n += 1;
            }
            let before = cache.len();
            if cache.put(b"large", &vec![0; size as usize], &PutOptions::default()) != PutResult::Rejected {
                break;
            }
            assert_eq!(cache.len(), before, "{policy:?}: refused {} bytes below the limit", limit - size);
            size -= 50_000;
        }
        assert!(size > limit / 100 * 95, "{policy:?}: {} bytes below the limit are refused", limit - size);
        cache.validate().unwrap();
    }
}

/// A put said that it replaced a value which had just made room for it, and entries came that nobody had inserted.
#[test]
fn what_came_and_went_is_what_there_is() {
    let options = CacheOptions { max_bytes: 2 << 20, shards: Some(4), ..CacheOptions::default() };
    for seed in 1..20_u64 {
        let cache = Cache::with_options(&options).unwrap();
        let table = cache.table("t", TableOptions { max_bytes: Some(1 << 19), ..TableOptions::default() }).unwrap();
        let mut random = seed * 7919 + 99;
        for _ in 0..6000 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let key = (random % 1500).to_le_bytes();
            let value = vec![1; (random >> 20) as usize % 3000];
            let place = if random % 11 < 6 { &*cache } else { &table };
            match random % 13 {
                0 => _ = place.remove(&key),
                1 => _ = place.pop(&key, &mut ReadBuf::new()),
                2 => _ = place.touch(&key, Span::Of(std::time::Duration::from_secs(60))),
                3 => {
                    let old = place.peek(&key, &mut ReadBuf::new()).map(<[u8]>::to_vec);
                    _ = old.and_then(|old| place.replace_if(&key, &old, &value));
                }
                _ => _ = place.put(&key, &value, &priority((random % 3) as i8)),
            }
            let all = cache.stats();
            assert_eq!(all.inserted, all.entries + all.removed + all.evicted + all.expired, "seed {seed}: {all:?}");
        }
        cache.validate().unwrap();
    }
}

#[test]
fn what_finds_no_place_in_the_index_gets_one_that_becomes_free() {
    let options = CacheOptions { max_bytes: 64 << 20, shards: Some(1), ..CacheOptions::default() };
    let cache = Cache::with_options(&options).unwrap();
    let stashed = || cache.core().shards()[0].lock().stash.len();
    // As full as segments get before they are split.
    let entries = SEGMENT_FULL * 64 - 1;
    let key = |number: u64| number.to_le_bytes();
    for number in 0..entries {
        cache.put(&key(number), b"value", &priority(0));
    }
    cache.validate().unwrap();
    let before = stashed();
    assert!(before > 50, "{before} found no place");
    // Each that goes makes room for one that comes, and perhaps for one from the stash.
    for number in 0..entries {
        assert!(cache.remove(&key(number)));
        cache.put(&key(number + entries), b"value", &priority(0));
        if number % 1000 == 0 {
            cache.validate().unwrap();
        }
    }
    let after = stashed();
    assert!(after < 2 * before, "{after} of {entries} entries have no place, and of the first {before} had none");
    let mut buf = ReadBuf::new();
    assert!((entries..2 * entries).all(|number| cache.get(&key(number), &mut buf).is_some()));
    for number in entries..entries + entries / 4 {
        cache.remove(&key(number));
    }
    cache.validate().unwrap();
    assert!(stashed() < before / 10, "{} wait beside room for nearly all", stashed());
}

/// Its old value had gone at the first try, to make room, and at the second nothing was there to be replaced.
#[test]
fn a_value_that_makes_room_for_its_own_new_one_is_replaced() {
    for policy in [Policy::Fifo, Policy::Lru, Policy::S3Fifo, Policy::Sketch] {
        let (cache, _) = cache(6000, policy);
        assert_eq!(cache.put(&[56], &vec![1; 519], &priority(0)), PutResult::Inserted);
        assert_eq!(cache.add(&[0], &vec![2; 2721], &priority(0)), Some(PutResult::Inserted));
        assert_eq!(cache.put(&[56], &vec![3; 3081], &priority(0)), PutResult::Replaced, "{policy:?}");
        assert_eq!(get(&cache, [56]), Some(vec![3; 3081]));
        cache.validate().unwrap();
    }
}

/// A put that may evict nobody was refused, though there was room: other shards had it in hand.
#[test]
fn what_other_shards_have_in_hand_is_room() {
    let options = CacheOptions { max_bytes: 4 << 20, shards: Some(16), ..CacheOptions::default() };
    let cache = Cache::with_room(&options, 32 << 20).unwrap();
    let keys = (0_u32..).take_while(|n| {
        cache.put(&n.to_le_bytes(), &[1; 900], &priority(1));
        cache.stats().evicted == 0
    });
    let keys: Vec<_> = keys.collect();
    let removed = keys.iter().filter(|n| cache.remove(&n.to_le_bytes())).take(40).count();
    assert_eq!(removed, 40);
    let before = cache.stats();
    let room = before.max_bytes - before.bytes;
    // Such a value's room is rounded by up to 1/32.
    let value = vec![0; room as usize * 31 / 32 - 200];
    assert_eq!(cache.put(b"low", &value, &priority(0)), PutResult::Inserted, "{room} bytes");
    assert_eq!(cache.stats().evicted, before.evicted);
    cache.validate().unwrap();
}

#[test]
fn a_table_takes_no_more_than_the_cache_whatever_it_was_given() {
    let (cache, _) = cache(1 << 20, Policy::Sketch);
    for (own, told) in [(None, 1 << 20), (Some(1 << 30), 1 << 20), (Some(1 << 16), 1 << 16)] {
        let table =
            cache.table(&format!("{own:?}"), TableOptions { max_bytes: own, ..TableOptions::default() }).unwrap();
        assert_eq!((table.stats().max_bytes, table.options().max_bytes), (told, own));
    }
}
