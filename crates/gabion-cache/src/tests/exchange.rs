//! Steps from one value to the next.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::{cache, get, priority, ttl, weight};
use crate::{Cache, CacheOptions, Clock, Former, Policy, PutOptions, PutResult, ReadBuf, Span, TableOptions};

#[test]
fn a_value_is_replaced_only_while_it_is_the_one() {
    let (cache, _) = cache(1 << 20, Policy::Sketch);
    assert_eq!(cache.replace_if(b"k", b"", b"new"), None);
    cache.put(b"k", b"one", &PutOptions::default());
    assert_eq!(cache.replace_if(b"k", b"other", b"new"), None);
    assert_eq!(cache.replace_if(b"k", b"one", &[7; 5000]), Some(PutResult::Replaced));
    assert_eq!(get(&cache, b"k"), Some(vec![7; 5000]));
    assert_eq!(cache.replace_if(b"k", &[7; 5000], b""), Some(PutResult::Replaced));
    assert_eq!(get(&cache, b"k"), Some(vec![]));
    assert_eq!(cache.stats().replaced, 2);
    cache.validate().unwrap();
}

#[test]
fn a_pop_counts_once_and_may_be_taken_back() {
    let (cache, clock) = cache(16 << 20, Policy::Sketch);
    let mut buf = ReadBuf::new();
    let counted = |cache: &Cache| {
        let stats = cache.stats();
        [stats.hits, stats.misses, stats.inserted, stats.replaced, stats.removed, stats.expired, stats.entries]
    };
    let mut expected = [0; 7];
    for value in [vec![1; 20], vec![2; 5000]] {
        cache.put(b"k", &value, &PutOptions { priority: 5, ..ttl(5.0) });
        let (popped, standing) = cache.pop_for_now(b"k", &mut buf).unwrap();
        assert_eq!((popped, cache.contains(b"k")), (&value[..], false));
        assert_eq!(cache.put_back(b"k", popped, standing), Some(PutResult::Inserted));
        // It was never away.
        [expected[2], expected[6]] = [expected[2] + 1, 1];
        assert_eq!(counted(&cache), expected);
        // Another came between.
        let (popped, standing) = cache.pop_for_now(b"k", &mut buf).unwrap();
        cache.put(b"k", &value, &PutOptions { priority: 5, ..ttl(5.0) });
        assert_eq!(cache.put_back(b"k", popped, standing), None);
        assert_eq!(get(&cache, b"k").as_ref(), Some(&value));
        [expected[0], expected[2], expected[4]] = [expected[0] + 1, expected[2] + 1, expected[4] + 1];
        assert_eq!(counted(&cache), expected);
        // Its end is the one that it had; what is newer stays.
        clock.advance(Duration::from_secs(4));
        let (popped, standing) = cache.pop_for_now(b"k", &mut buf).unwrap();
        cache.put_back(b"k", popped, standing);
        assert!(cache.contains(b"k") && !cache.pop_if(b"k", b"other"));
        clock.advance(Duration::from_secs(1));
        assert!(!cache.contains(b"k") && cache.expire() == 1);
        [expected[5], expected[6]] = [expected[5] + 1, 0];
        assert_eq!(counted(&cache), expected);
        // For good, in three ways; and not at all.
        for way in 0..3 {
            cache.put(b"k", &value, &PutOptions::default());
            match way {
                0 => assert!(cache.pop_if(b"k", &value)),
                1 => assert!(cache.pop(b"k", &mut buf).is_some()),
                _ => cache.popped(cache.pop_for_now(b"k", &mut buf).unwrap().1),
            }
            [expected[0], expected[2], expected[4]] = [expected[0] + 1, expected[2] + 1, expected[4] + 1];
            assert_eq!(counted(&cache), expected);
        }
        assert!(cache.pop_for_now(b"k", &mut buf).is_none());
        expected[1] += 1;
        assert_eq!(counted(&cache), expected);
        cache.validate().unwrap();
    }
}

#[test]
fn what_finds_no_way_back_was_removed() {
    let (cache, _) = cache(1 << 20, Policy::Sketch);
    let (table, mut buf) = (cache.table("t", TableOptions::default()).unwrap(), ReadBuf::new());
    table.put(b"k", b"value", &PutOptions::default());
    let (popped, standing) = table.pop_for_now(b"k", &mut buf).unwrap();
    cache.drop_table("t");
    assert_eq!(table.put_back(b"k", popped, standing), Some(PutResult::Rejected));
    let stats = cache.stats();
    assert_eq!((stats.inserted, stats.removed, stats.hits, stats.rejected, stats.entries), (1, 1, 0, 0, 0));
    cache.validate().unwrap();
}

#[test]
fn a_value_is_removed_only_while_it_is_the_one() {
    let (cache, clock) = cache(16 << 20, Policy::Sketch);
    assert!(!cache.remove_if(b"k", b""));
    for value in [vec![1; 20], vec![2; 5000], vec![3; 2 << 20]] {
        cache.put(b"k", &value, &ttl(5.0));
        let lease = cache.lease(b"k");
        assert!(!cache.remove_if(b"k", b"other") && !cache.remove_if(b"l", &value) && lease.holds());
        assert_eq!(get(&cache, b"k"), Some(value.clone()));
        assert!(cache.remove_if(b"k", &value) && !lease.holds());
        assert!(!cache.remove_if(b"k", &value) && !cache.contains(b"k"));
        // Its end is its own, and over is over.
        cache.put(b"k", &value, &ttl(5.0));
        clock.advance(Duration::from_secs(6));
        assert!(!cache.remove_if(b"k", &value));
        cache.validate().unwrap();
    }
    let figures = cache.stats();
    assert_eq!((figures.removed, figures.inserted - figures.expired), (3, 3));
}

#[test]
fn end_idle_time_and_priority_stay() {
    let (cache, clock) = cache(1 << 20, Policy::Sketch);
    let idle = PutOptions { idle: Span::Of(Duration::from_secs(10)), ..ttl(25.0) };
    for (key, options) in [(b"t", ttl(25.0)), (b"i", idle), (b"p", priority(3))] {
        cache.put(key, b"0", &options);
        assert_eq!(cache.replace_if(key, b"0", &[1; 300]), Some(PutResult::Replaced));
    }
    clock.advance(Duration::from_secs(9));
    assert!(get(&cache, b"i").is_some());
    clock.advance(Duration::from_secs(9));
    assert!(get(&cache, b"i").is_some() && get(&cache, b"t").is_some());
    clock.advance(Duration::from_secs(8));
    for key in [b"t", b"i"] {
        assert_eq!((get(&cache, key), cache.replace_if(key, &[1; 300], b"2")), (None, None));
    }
    // A put of lower priority finds nothing that it may evict.
    let mut n = 0_u32;
    while cache.put(&n.to_le_bytes(), &[0; 1000], &priority(2)) == PutResult::Inserted && cache.stats().evicted == 0 {
        n += 1;
    }
    assert!(get(&cache, b"p").is_some());
    cache.validate().unwrap();
}

#[test]
fn a_value_that_finds_no_room_leaves_nothing_behind() {
    let (cache, _) = cache(1 << 20, Policy::Sketch);
    cache.put(b"k", b"old", &PutOptions::default());
    assert_eq!(cache.replace_if(b"k", b"old", &vec![1; 2 << 20]), Some(PutResult::Rejected));
    assert!(!cache.contains(b"k"));
    assert_eq!((cache.stats().rejected, cache.len()), (1, 0));
    cache.validate().unwrap();
}

/// The old value made room for the new one, and was not there any more when that could not be had at once.
#[test]
fn others_make_room_for_a_step() {
    for shards in [1, 16] {
        let max_bytes = 20 * weight(1, 300);
        let options = CacheOptions { max_bytes, policy: Policy::Fifo, shards: Some(shards), ..CacheOptions::default() };
        let cache = Cache::with_options(&options).unwrap();
        (0..20_u8).for_each(|n| assert_eq!(cache.put(&[n], &[n; 300], &priority(0)), PutResult::Inserted));
        // The oldest, and so the next to go.
        assert_eq!(cache.replace_if(&[0], &[0; 300], &[1; 400]), Some(PutResult::Replaced));
        assert_eq!(cache.replace_if(&[0], &[1; 400], &[2; 5000]), Some(PutResult::Replaced));
        assert_eq!(get(&cache, [0]), Some(vec![2; 5000]));
        cache.validate().unwrap();
        // Of its own priority it is alone: its old value gives the room.
        cache.clear();
        cache.put(b"k", &[3; 3000], &priority(-1));
        (0..9_u8).for_each(|n| assert_eq!(cache.put(&[n], &[n; 300], &priority(0)), PutResult::Inserted));
        assert_eq!(cache.replace_if(b"k", &[3; 3000], &[4; 2900]), Some(PutResult::Replaced));
        assert_eq!(cache.replace_if(b"k", &[4; 2900], &[5; 4000]), Some(PutResult::Rejected));
        assert_eq!((get(&cache, b"k"), cache.len()), (None, 9));
        cache.validate().unwrap();
    }
}

#[test]
fn no_step_of_many_threads_is_lost() {
    let (cache, _) = cache(1 << 20, Policy::Sketch);
    cache.put(b"n", &0_u64.to_le_bytes(), &PutOptions::default());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut buf = ReadBuf::new();
                for _ in 0..2000 {
                    loop {
                        let old: [u8; 8] = cache.get(b"n", &mut buf).unwrap().try_into().unwrap();
                        let new = u64::from_le_bytes(old) + 1;
                        if cache.replace_if(b"n", &old, &new.to_le_bytes()) == Some(PutResult::Replaced) {
                            break;
                        }
                    }
                }
            });
        }
    });
    assert_eq!(get(&cache, b"n"), Some(8000_u64.to_le_bytes().to_vec()));
}

/// Each look at it is a millisecond later than the one before.
#[derive(Debug, Default)]
struct Ticking(AtomicU64);

impl Clock for Ticking {
    fn now(&self) -> Duration {
        Duration::from_millis(self.0.fetch_add(1, Relaxed))
    }

    fn roughly(&self) -> Duration {
        Duration::from_millis(self.0.load(Relaxed).saturating_sub(1))
    }

    fn wall(&self) -> Duration {
        self.now()
    }
}

/// It was removed twice: by the put that found it over, and by the step that had found it alive.
#[test]
fn a_value_may_end_while_it_is_replaced() {
    let clock = Arc::new(Ticking::default());
    let options =
        CacheOptions { max_bytes: 1 << 20, shards: Some(1), clock: Some(clock.clone()), ..CacheOptions::default() };
    let cache = Cache::with_options(&options).unwrap();
    for ahead in 0..4 {
        clock.0.store(0, Relaxed);
        (0..20_u8).for_each(|n| _ = cache.put(&[n], b"stays", &PutOptions::default()));
        clock.0.store(1000, Relaxed);
        // Put at 1000.
        cache.put(b"k", b"1", &ttl(1.0));
        clock.0.store(2000 - ahead, Relaxed);
        // Over, or too large: which of them is found first is the clock's matter.
        let stepped = cache.replace_if(b"k", b"1", &vec![0; 2 << 20]);
        assert!(matches!(stepped, None | Some(PutResult::Rejected)), "{stepped:?}");
        cache.validate().unwrap();
        cache.expire();
        assert_eq!((get(&cache, b"k"), cache.len()), (None, 20));
    }
}

/// What was read, and what it is compared with, was held on to while room was made: it counts as memory of the cache.
#[test]
fn a_long_value_makes_room_for_the_next() {
    for policy in [Policy::Sketch, Policy::Lru, Policy::Fifo, Policy::S3Fifo] {
        let options = CacheOptions { max_bytes: 10 << 20, policy, ..CacheOptions::default() };
        for (key, by_run) in [(b"k".to_vec(), true), (b"k".to_vec(), false), (vec![b'k'; 3000], true)] {
            let cache = Cache::with_options(&options).unwrap();
            let idle = PutOptions { idle: Span::Of(Duration::from_secs(3600)), ..priority(2) };
            cache.put(b"other", &[1; 100], &priority(3));
            let mut old = vec![0; 4 << 20];
            assert_eq!(cache.put(&key, &old, &idle), PutResult::Inserted);
            for (at, size) in [7_usize, 4, 5, 6, 9, 2, 1, 9, 9].into_iter().enumerate() {
                let (new, mut buf) = (vec![at as u8 + 1; (size << 20) - 5000], ReadBuf::new());
                let former = if by_run && old.len() > 1 << 20 {
                    assert_eq!(cache.peek(&key, &mut buf), Some(&old[..]));
                    Former::Run(buf.let_go_of_run().unwrap())
                } else {
                    Former::Bytes(&old)
                };
                assert_eq!(
                    cache.replace_if(&key, former.clone(), &new),
                    Some(PutResult::Replaced),
                    "{policy:?} {size}"
                );
                assert_eq!(cache.replace_if(&key, former, b"too late"), None);
                assert!(cache.peek(&key, &mut buf).unwrap() == new && cache.contains(b"other"));
                old = new;
                drop(buf);
                cache.validate().unwrap();
            }
            assert_eq!(cache.stats().rejected, 0);
        }
    }
}

/// Only the value itself is its run: neither one of the same bytes nor one that lies in the same place.
#[test]
fn another_value_of_the_same_bytes_is_another_run() {
    let (cache, _) = cache(64 << 20, Policy::Sketch);
    let (value, mut buf) = (vec![7; 2 << 20], ReadBuf::new());
    cache.put(b"k", &value, &PutOptions::default());
    assert!(cache.peek(b"k", &mut buf).is_some());
    let former = Former::Run(buf.let_go_of_run().unwrap());
    assert!(buf.let_go_of_run().is_none() && buf.payload().is_empty());
    cache.put(b"k", &value, &PutOptions::default());
    assert_eq!(cache.replace_if(b"k", former.clone(), b"new"), None);
    cache.remove(b"k");
    cache.put(b"k", &value, &PutOptions::default());
    assert_eq!(cache.replace_if(b"k", former, b"new"), None);
    assert_eq!(get(&cache, b"k"), Some(value));
    cache.validate().unwrap();
}

/// Others went for a value that had all the room that it needed in the place of its former one.
#[test]
fn a_long_value_lies_where_its_former_one_lay() {
    for policy in [Policy::Sketch, Policy::Lru] {
        for size in [40_000, 9 << 20] {
            let max_bytes = 16 << 20;
            let options = CacheOptions { max_bytes, policy, ..CacheOptions::default() };
            // With pages enough that bytes alone are short.
            let cache = Cache::with_room(&options, 24 << 20).unwrap();
            let mut old = vec![0; size];
            assert_eq!(cache.put(b"k", &old, &PutOptions::default()), PutResult::Inserted);
            let mut others = 0_u32;
            while max_bytes - cache.stats().bytes > 39_000 {
                assert_eq!(cache.put(&others.to_le_bytes(), &[1; 10_000], &PutOptions::default()), PutResult::Inserted);
                assert_eq!(cache.stats().evicted, 0);
                others += 1;
            }
            for (at, length) in [size, size, size - 500, size - 9000].into_iter().enumerate() {
                let new = vec![at as u8 + 1; length];
                let changed = cache.replace_if(b"k", Former::Bytes(&old), &new);
                assert_eq!(changed, Some(PutResult::Replaced), "{policy:?} {size} {at}");
                assert_eq!(cache.put(b"k", &new, &ttl(60.0)), PutResult::Replaced, "{policy:?} {size} {at}");
                old = new;
                let stats = cache.stats();
                assert_eq!((stats.evicted, stats.entries), (0, u64::from(others) + 1), "{policy:?} {size} {at}");
                // Whose buffer holds on to it leaves less room.
                assert!(cache.peek(b"k", &mut ReadBuf::new()) == Some(&old[..]));
            }
            cache.validate().unwrap();
        }
    }
}

/// The former value makes room for the next one, which nobody who reads the key is to notice.
#[test]
fn who_reads_a_key_whose_value_changes_in_its_place_finds_one() {
    let cache = Cache::new(1500 << 10).unwrap();
    cache.put(b"k", &vec![0; 900_000], &PutOptions::default());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut buf = ReadBuf::new();
                while !done.load(Relaxed) {
                    let value = cache.get(b"k", &mut buf).expect("the key always has a value");
                    assert!(value.len() == 900_000 && value.iter().all(|&byte| byte == value[0]));
                    assert!(cache.contains(b"k"));
                }
            });
        }
        let mut old = vec![0; 900_000];
        for at in (0..=u8::MAX).cycle().take(300) {
            let new = vec![at; 900_000];
            let replaced = if at % 2 == 0 {
                cache.replace_if(b"k", Former::Bytes(&old), &new)
            } else {
                Some(cache.put(b"k", &new, &PutOptions::default()))
            };
            assert_eq!(replaced, Some(PutResult::Replaced));
            old = new;
        }
        done.store(true, Relaxed);
    });
    assert_eq!((cache.stats().evicted, cache.stats().removed), (0, 0));
    cache.validate().unwrap();
}

/// The old value was evicted for its own new one: listeners heard of a key that was there, and the figures of an
/// insertion.
#[test]
fn a_value_that_is_replaced_is_not_evicted() {
    for policy in [Policy::Sketch, Policy::Lru, Policy::Fifo, Policy::S3Fifo] {
        // Each time the new value is longer; the key is among the oldest, of a lower priority, or of a higher one.
        for (before, after) in [(0, 0), (-3, 0), (5, 0)] {
            let (cache, _) = cache(64 << 10, policy);
            let heard = Arc::new(Mutex::new(Vec::new()));
            let told = Arc::clone(&heard);
            cache.on_departure(Some(Arc::new(move |gone| told.lock().unwrap().push(gone.key.to_vec()))));
            cache.put(b"k", &[0; 100], &priority(before));
            let mut others = 0_u32;
            while cache.stats().bytes < 63 << 10 {
                cache.put(&others.to_le_bytes(), &[1; 200], &priority(0));
                others += 1;
            }
            let figures = cache.stats();
            for length in [300, 900, 5000, 20_000, 40_000] {
                let replaced = cache.put(b"k", &vec![2; length], &priority(after));
                assert_eq!(replaced, PutResult::Replaced, "{policy:?}, {before}: {length}");
                assert_eq!(get(&cache, b"k"), Some(vec![2; length]));
                cache.validate().unwrap();
            }
            let (now, heard) = (cache.stats(), heard.lock().unwrap());
            assert!(heard.iter().all(|key| key != b"k"), "{policy:?}, {before}: it was told to be gone");
            assert_eq!(now.evicted - figures.evicted, heard.len() as u64, "{policy:?}, {before}");
            assert_eq!(now.replaced - figures.replaced, 5, "{policy:?}, {before}");
            assert_eq!((now.inserted, now.removed), (figures.inserted, figures.removed), "{policy:?}, {before}");
            cache.on_departure(None);
        }
    }
}

/// Where there is no room beside it, the old value goes first, and that is a replacement, too.
#[test]
fn a_value_that_goes_for_its_own_new_one_is_replaced() {
    let (cache, _) = cache(10 << 20, Policy::Sketch);
    assert_eq!(cache.put(b"k", &vec![0; 4 << 20], &PutOptions::default()), PutResult::Inserted);
    assert_eq!(cache.put(b"k", &vec![1; 8 << 20], &PutOptions::default()), PutResult::Replaced);
    assert_eq!(get(&cache, b"k"), Some(vec![1; 8 << 20]));
    let figures = cache.stats();
    assert_eq!((figures.inserted, figures.replaced, figures.removed, figures.evicted), (1, 1, 0, 0));
    assert_eq!(cache.put(b"k", &vec![2; 11 << 20], &PutOptions::default()), PutResult::Rejected);
    let figures = cache.stats();
    assert_eq!((figures.replaced, figures.removed, figures.rejected, figures.entries), (1, 1, 1, 0));
    cache.validate().unwrap();
}
